"""The most recent elections of partition leaders, with their reasons.

Soft state of each controller. The elections can be derived from the metadata log; the exact reasons
are known only to the controller that decided.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from sparkraft.base.ids import Offset
from sparkraft.controller.leader_election import Election

ENTRIES_MAX = 10_000
"""One failed broker may cause this many elections; a few megabytes at most."""


class JournalEntry(NamedTuple):
    """An election, the time of the decision, and the end offset of its batch.

    A deposed controller may have decided elections that were never committed. The log then has a
    batch of another controller at that offset, so an entry applies only to a batch of its own
    controller `epoch`.
    """

    wall_ms: int
    offset: Offset
    epoch: int
    election: Election


class ElectionJournal:
    """A bounded list of elections, newest last."""

    def __init__(self, entries_max: int = ENTRIES_MAX) -> None:
        self._entries: deque[JournalEntry] = deque(maxlen=entries_max)
        self.counts: dict[str, int] = {}
        """Number of elections by kind since the start, including entries that were dropped."""

    def add(self, election: Election, *, wall_ms: int, offset: int, epoch: int) -> None:
        """Add an election of the batch that ends at `offset`, of controller epoch `epoch`."""
        self._entries.append(JournalEntry(wall_ms, Offset(offset), epoch, election))
        kind = election.reason.name
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def entries(
        self, *, topic: str | None = None, partition: int | None = None
    ) -> Iterator[JournalEntry]:
        """Elections of a topic, of a partition, or all of them, oldest first."""
        for entry in self._entries:
            election = entry.election
            if topic is not None and election.topic != topic:
                continue
            if partition is None or election.partition == partition:
                yield entry

    def __len__(self) -> int:
        return len(self._entries)
