"""Decisions with their reasons: attempts, failover steps, elections, failed transitions.

Bounded; soft state that no decision depends on. The node keeps it on disk, so that it survives a
restart. `partition_journal` has the changes of partitions.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from sparkraft.controller.journal import ElectionJournal
from sparkraft.zookeeper.controller.partition_journal import PartitionJournal

ENTRIES_MAX = 1_000
"""A failover writes about ten entries, a broker failure a few; a failed transition writes one."""


MALFORMED = "malformed"
"""Kind of the entries about znodes that are ignored; their texts name the znodes."""

STRANGER = "stranger"
"""Kind of the entries about a /controller that no registered broker holds."""


class Entry(NamedTuple):
    """A decision or an observation."""

    kind: str
    """`attempt`, `failover`, `resignation`, `failed transition`, `brokers`, `topics`, `deletion`,
    `reassignment`, `malformed` or `stranger`."""
    text: str
    at_ms: int = 0
    """Wall clock."""
    topic: str = ""
    """The topic it is about; empty for none or several."""
    brokers: tuple[int, ...] = ()
    """The brokers it is about."""


Sink = Callable[[Entry], None]
"""Stores a new entry."""


class ControllerJournal:
    """The newest entries, and the elections of partition leaders.

    Attributes:
        entries: oldest first.
        elections: of this run of the node.
        partitions: changes of leaders and ISRs.
    """

    def __init__(self) -> None:
        self.entries: deque[Entry] = deque(maxlen=ENTRIES_MAX)
        self.elections = ElectionJournal()
        self.partitions = PartitionJournal()
        self._dropped = 0
        self._now: Callable[[], int] = int
        self._sink: Sink | None = None

    def keep(self, earlier: Iterable[Entry], now: Callable[[], int], sink: Sink) -> None:
        """Continue after the entries of earlier runs.

        Args:
            earlier: oldest first.
            now: the wall clock in ms.
            sink: stores entries.
        """
        self.entries.extend(earlier)
        self._now = now
        self._sink = sink

    def add(self, kind: str, text: str, *, topic: str = "", brokers: Iterable[int] = ()) -> None:
        entry = Entry(kind, text, self._now(), topic, tuple(brokers))
        self._dropped += len(self.entries) == ENTRIES_MAX
        self.entries.append(entry)
        if self._sink is not None:
            self._sink(entry)

    def of(self, kind: str) -> list[str]:
        """Return the texts of one kind, oldest first."""
        return [entry.text for entry in self.entries if entry.kind == kind]

    def numbered(self, first: int) -> Iterator[tuple[int, Entry]]:
        """Entries from number `first` on, with their numbers, which stay when older ones go."""
        for number, entry in enumerate(self.entries, self._dropped):
            if number >= first:
                yield number, entry
