"""The listener of a connection, as the connection uses it.

Not here: listeners themselves (`listener`), and what one connection does (`connection`).
"""

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.base.env import Clock
    from sparkraft.base.errors import KafkaError
    from sparkraft.security.client_quotas import ClientQuotas
    from sparkraft.security.session import Session
    from sparkraft.server.api.registry import Steps
    from sparkraft.server.loop_monitor import LoopMonitor
    from sparkraft.server.network.dispatch import Routes
    from sparkraft.server.network.gathering import Gathering
    from sparkraft.server.network.loop_wakes import LoopWakes
    from sparkraft.server.network.request_log import RequestLog
    from sparkraft.server.network.request_memory import RequestMemory
    from sparkraft.server.network.sasl_gate import SaslGate


class ConnectionOwner(Protocol):
    """A connection calls each method with itself."""

    name: str
    node: Any
    routes: "Routes"
    clock: "Clock"
    memory: "RequestMemory"
    monitor: "LoopMonitor"
    request_bytes_max: int
    controller_listener: bool
    quotas: "ClientQuotas"
    request_log: "RequestLog"
    gathering: "Gathering"

    @property
    def wakes(self) -> "LoopWakes":
        """Measures the wakes of the event loop."""
        ...

    @property
    def response_room(self) -> int:
        """Bytes of records that the next response should have at most."""
        ...

    def session_of(self, client_host: str) -> "Session":
        """The session of a connection from there."""
        ...

    def gate_of(self, connection: Any) -> "SaslGate | None":
        """The gate that takes its frames until it has authenticated; None: it need not."""
        ...

    def on_open(self, connection: Any, local: Any, peer: Any) -> str:
        """Count a connection in, name it, and abort it if there are too many."""
        ...

    def on_close(self, connection: Any) -> None:
        """Count a connection out."""
        ...

    def when_closed(self, connection: Any, on_closed: "Callable[[Any], None]") -> None:
        """Have `on_closed` called when the connection is lost."""
        ...

    def try_run(self, connection: Any) -> bool:
        """Whether the connection may run now; otherwise it is run later."""
        ...

    def must_yield(self, connection: Any) -> bool:
        """Whether the connection must stop now; it is run later then."""
        ...

    def start_slices(self, steps: "Steps", on_end: "Callable[[], None] | None") -> Any:
        """Begin work in slices: its result, or a future of it; see `SlicedWork`."""
        ...

    def on_sent(self, byte_count: int) -> None:
        """So much was written."""
        ...

    def on_backlog(self, connection: Any, parts: Any) -> None:
        """`parts` wait for the client to read; none any more if it is empty."""
        ...

    def on_bad_request(self) -> None:
        """A peer sent what is not a request."""
        ...

    def on_unreadable(self) -> None:
        """Records of a response cannot be read from their file."""
        ...

    def on_invariant_broken(self, error: BaseException) -> None:
        """We have a bug: stop the node."""
        ...

    def translate(self, error: Exception, where: str) -> "KafkaError":
        """The client's error for an exception that is not a KafkaError."""
        ...
