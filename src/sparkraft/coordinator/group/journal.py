"""The recent choices of leaders and assignors, each with its candidates and its reason.

Bounded and in memory: it explains the recent history of groups that this broker coordinates.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sparkraft.base.ids import Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One choice of a group.

    Attributes:
        at_ms: wall clock.
        generation: of the group when the choice was made.
        kind: the group's leader, or the assignor all members will use.
        chosen: member id or protocol name; None if there was no eligible candidate.
        candidates: in the order in which they were considered.
        votes: protocol chosen by each member, for assignors.
        ruled_out: candidate → why it could not be chosen.
        reason: a sentence.
    """

    at_ms: Millis
    group_id: str
    generation: int
    kind: Literal["leader", "assignor"]
    chosen: str | None
    candidates: tuple[str, ...]
    reason: str
    votes: Mapping[str, str] = field(default_factory=dict)
    ruled_out: Mapping[str, str] = field(default_factory=dict)


class Journal:
    """The last choices, oldest first."""

    def __init__(self, entries_max: int) -> None:
        """Keep at most `entries_max` entries."""
        self._entries: deque[JournalEntry] = deque(maxlen=entries_max)

    def add(self, entry: JournalEntry) -> None:
        """Append an entry; the oldest is dropped if the journal is full."""
        self._entries.append(entry)

    def entries(self, group_id: str | None = None) -> list[JournalEntry]:
        """Entries of one group, or of all (None), oldest first."""
        return [one for one in self._entries if group_id is None or one.group_id == group_id]
