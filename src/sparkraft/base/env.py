"""The outside world as a core may see it: a clock and entropy, always injected, never global.

The same code runs with the machine's clock and random numbers and with a simulator's.
"""

from collections.abc import Callable
from typing import Protocol

from sparkraft.base.ids import Millis, Uuid

FaultPoint = Callable[[str], bool]
"""A fault point by name: a moment at which a fault would hurt most. False on a machine, always.

A simulator may end the process at this point, pause it or break its disk; True makes the caller
simulate the fault in the point's name, such as a lost heartbeat."""


class Clock(Protocol):
    """Time, in whole milliseconds."""

    def wall_ms(self) -> Millis:
        """Milliseconds since 1970-01-01 UTC; may jump."""
        ...

    def mono_ms(self) -> Millis:
        """Milliseconds since an arbitrary start; never goes back."""
        ...


class Entropy(Protocol):
    """A source of random numbers."""

    def random_bytes(self, count: int) -> bytes:
        """`count` random bytes."""
        ...

    def below(self, bound: int) -> int:
        """A whole number from 0 to `bound` - 1."""
        ...


def no_faults(point: str) -> bool:
    """The `FaultPoint` of a machine."""
    _ = point
    return False


_RESERVED_UUIDS = 100
"""Kafka keeps the first hundred UUIDs for itself (MIGRATING 0, UNASSIGNED 1, LOST 2)."""


def random_uuid(entropy: Entropy) -> Uuid:
    """A new identifier, as Kafka's `Uuid.randomUuid`: version 4, not reserved, no leading dash.

    A leading dash would read as an option on a command line.
    """
    while True:
        raw = bytearray(entropy.random_bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        made = Uuid(bytes(raw))
        if int.from_bytes(made, "big") >= _RESERVED_UUIDS and not str(made).startswith("-"):
            return made
