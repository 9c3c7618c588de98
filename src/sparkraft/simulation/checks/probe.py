"""The part of a simulated world that its checkers use.

A world gives itself to its checkers as a `Probe` (whole nodes) or a `CoreProbe` (bare cores), and
calls them through `world.observers`. Checkers know nothing else of a world: they read machines,
disks, clocks and settings, write to the trace, count events and report violations.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from sparkraft.simulation.world.loop import CURRENT, Incarnation

if TYPE_CHECKING:
    from sparkraft.simulation.world.core_node import CoreNode
    from sparkraft.simulation.world.machine import Machine
    from sparkraft.simulation.world.violation import Violation

Require: TypeAlias = Callable[[object, str, str], None]
"""Called with a condition, an invariant and a message; raises `Violation` if the condition is false
and the invariant is checked in this run."""


class ClusterSettings(Protocol):
    """Properties of the cluster that invariants depend on."""

    @property
    def min_insync(self) -> int: ...
    @property
    def balanced(self) -> bool: ...
    @property
    def id_expiration_ms(self) -> int: ...
    @property
    def open_by_default(self) -> bool: ...


class Listeners(Protocol):
    """The listening sockets of the simulated network."""

    def listens(self, host: str, port: int) -> Incarnation | None: ...


class ConnectionEnd(Protocol):
    """One end of a simulated connection; `far_port` is the port of the other end."""

    incarnation: Incarnation
    far_port: int


class Probe(Protocol):
    """A world of whole nodes."""

    @property
    def seed(self) -> int: ...
    @property
    def now(self) -> int:
        """World milliseconds."""

    @property
    def counts(self) -> Counter[str]:
        """Number of events by name, printed after a run."""

    @property
    def layout(self) -> ClusterSettings: ...
    @property
    def dynamic(self) -> bool:
        """Whether the voters are in the log (KIP-853)."""

    @property
    def network(self) -> Listeners: ...
    @property
    def machines(self) -> "Sequence[Machine]": ...
    @property
    def controllers(self) -> "Sequence[Machine]": ...
    @property
    def brokers(self) -> "Sequence[Machine]": ...
    @property
    def broken(self) -> "Sequence[Machine]":
        """Machines that stay stopped, paused or partitioned for good."""

    def machine(self, name: str) -> "Machine | None": ...
    def note(self, text: str, kind: str | None = "note", **fields: Any) -> None:
        """Add a line to the trace, and with a `kind` an event of it; see `trace_events`."""

    def record(self, kind: str, **fields: Any) -> None:
        """Add an event that has no line."""

    def check(self, look: Callable[[], None]) -> None:
        """Run a check called from the product, which must not catch the violation itself."""

    def fail(self, violation: "Violation") -> None:
        """Stop the run with a violation."""


class CoreProbe(Protocol):
    """A world of bare cores."""

    @property
    def now(self) -> int: ...
    @property
    def counts(self) -> Counter[str]: ...
    @property
    def nodes(self) -> "Mapping[int, CoreNode]": ...
    def note(self, text: str, kind: str | None = "note", **fields: Any) -> None: ...
    def on_leader(self, node: "CoreNode", epoch: int) -> None:
        """Called when a node has become the leader."""


def current_machine(probe: Probe) -> "Machine | None":
    """Return the machine whose process is executing; None for clients and killed processes."""
    who = CURRENT.get()
    machine = None if who is None or who.dead else probe.machine(who.name)
    return machine if machine is not None and machine.incarnation is who else None
