"""What a part of a node may ask of the node: run a task, stop, or handle a failed disk."""

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

    from sparkraft.storage.disk import StorageFault


class Supervisor(Protocol):
    """Implemented by `sparkraft.server.node.Node`."""

    def spawn(self, work: "Coroutine[Any, Any, Any]", name: str) -> "asyncio.Task[Any]":
        """Run `work` as a task of the node; an unexpected exception stops the node."""

    def fail(self, error: BaseException) -> None:
        """Stop the node because of `error`; only the first one is kept."""

    def on_storage_fault(self, fault: "StorageFault") -> None:
        """Take a failed log directory offline, and stop the node if it cannot run without it."""
