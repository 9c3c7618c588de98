"""Decisions with their reasons: elections, failed transitions, failover steps.

Soft state of one node, bounded; it starts with the process.
"""

from collections import deque
from typing import NamedTuple

from sparkraft.controller.journal import ElectionJournal

ENTRIES_MAX = 1_000
"""A failover writes about ten entries, a broker failure a few; a failed transition writes one."""


class Entry(NamedTuple):
    """A decision or an observation."""

    kind: str
    """`attempt`, `failover`, `resignation`, `failed transition` or `event`."""
    text: str


class ControllerJournal:
    """The newest entries, and the elections of partition leaders."""

    def __init__(self) -> None:
        self.entries: deque[Entry] = deque(maxlen=ENTRIES_MAX)
        self.elections = ElectionJournal()

    def add(self, kind: str, text: str) -> None:
        self.entries.append(Entry(kind, text))

    def of(self, kind: str) -> list[str]:
        """Return the texts of one kind, oldest first."""
        return [entry.text for entry in self.entries if entry.kind == kind]
