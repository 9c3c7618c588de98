"""The record of who was chosen, when, among whom and why (DESIGN D8).

Bounded and in memory: it explains the recent past of groups that this broker coordinates.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sparkraft.base.ids import Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One choice of a group.

    Args:
        at_ms: wall clock.
        generation: the one the group was in when the choice was made.
        kind: the group's leader, or the assignor all members will use.
        chosen: member id or protocol name; None where nobody could be chosen.
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
    """The last decisions, oldest first."""

    def __init__(self, entries_max: int) -> None:
        """Keep at most `entries_max` decisions."""
        self._entries: deque[Decision] = deque(maxlen=entries_max)

    def add(self, decision: Decision) -> None:
        """Remember; the oldest goes where there is no room."""
        self._entries.append(decision)

    def entries(self, group_id: str | None = None) -> list[Decision]:
        """Oldest first; of one group, or of all."""
        return [one for one in self._entries if group_id is None or one.group_id == group_id]
