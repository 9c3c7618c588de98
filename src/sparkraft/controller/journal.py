"""The last elections of partition leaders, with their reasons (DESIGN D8).

Soft state of each controller: the facts can always be derived again from the metadata log, the
reasons only by whoever decided.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from sparkraft.base.ids import Offset
from sparkraft.controller.leader_election import Election

ENTRIES_MAX = 10_000
"""A broker that dies may change this many leaders at once; a few megabytes at most."""


class JournalEntry(NamedTuple):
    """An election, when it was decided and where in the metadata log it was to stand.

    A controller that is deposed may have decided what was never committed: another's log then has
    something else at that offset, even of the same leader epoch, so an entry speaks only of a
    batch of its own controller `epoch`.
    """

    wall_ms: int
    offset: Offset
    epoch: int
    election: Election


class ElectionJournal:
    """A bounded list of elections, the newest last."""

    def __init__(self, entries_max: int = ENTRIES_MAX) -> None:
        """Keep at most `entries_max`."""
        self._entries: deque[JournalEntry] = deque(maxlen=entries_max)
        self.counts: dict[str, int] = {}
        """Elections by kind since the start, those that are not kept any more included."""

    def add(self, election: Election, *, wall_ms: int, offset: int, epoch: int) -> None:
        """Note an election that the batch ending at `offset` of controller `epoch` carries out."""
        self._entries.append(JournalEntry(wall_ms, Offset(offset), epoch, election))
        kind = election.reason.name
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def entries(
        self, *, topic: str | None = None, partition: int | None = None
    ) -> Iterator[JournalEntry]:
        """Elections of a topic and partition, or of all, oldest first."""
        for entry in self._entries:
            election = entry.election
            if topic is not None and election.topic != topic:
                continue
            if partition is None or election.partition == partition:
                yield entry

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._entries)
