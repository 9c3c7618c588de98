"""The driver's interface for its parts: feed the core, run work, stop the node.

Not here: the driver itself (`driver`), which implements this.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from sparkraft.raft.events import Event

T = TypeVar("T")


class CoreHost(Protocol):
    """Runs the core and its background work, on the event loop."""

    def step(self, event: Event) -> None:
        """Feed the core and carry out the result; does nothing after a stop or a failure."""
        ...

    def fail(self, error: BaseException) -> None:
        """Report an error that ends the node; only the first one counts."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` in the background; a stop waits for it."""
        ...

    async def in_executor(self, work: Callable[[], T]) -> T:
        """Run blocking disk work off the event loop."""
        ...
