"""The recent decisions of groups, each with its reason: for people, no decision depends on it.

    leader, assignor   of a classic group, with candidates and votes
    generation         a classic group completed a rebalance
    joined, left       a member, at its own request
    fenced             a member, by the coordinator
    epoch              a subscription or a topic changed, so the group is assigned again
    target             a new target assignment: which partitions are to move
    moved              partitions that a member took over, and how long the hand-over took
    converted          between the classic and the consumer protocol

Entries are added once the decision is committed. Bounded; a sink may store them.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Literal, NamedTuple

from sparkraft.base.ids import Millis
from sparkraft.base.loop_work import LoopBound

MOVES_MAX = 100
"""Moves listed by one entry; `move_count` counts all of them."""

LISTED_MAX: LoopBound = 100
"""Candidates, votes and ruled-out candidates that one entry lists: a group may have any number of
members. The reason counts the votes."""

ENTRY_CHARS_MAX = 32 * 1024
"""Characters of an entry: three times as many as with a hundred moves and usual names. Clients
choose the names, which may have 32 KB each."""

TEXT_CHARS_MAX = 1_000
"""Characters of each text of an entry that is longer than `ENTRY_CHARS_MAX`."""

Kind = Literal[
    "leader",
    "assignor",
    "generation",
    "joined",
    "left",
    "fenced",
    "epoch",
    "target",
    "moved",
    "converted",
]


class Move(NamedTuple):
    """A partition that moves between members; an empty id for none.

    Attributes:
        took_ms: from the decision until the new owner has it; -1 if it does not have it yet.
    """

    topic: str
    partition: int
    from_member: str
    to_member: str
    took_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One decision of a group. A journal lists the first `LISTED_MAX` of each kind (`bounded`).

    Attributes:
        at_ms: wall clock.
        generation: the generation or group epoch that the decision led to.
        chosen: member id or protocol name; None if there was no eligible candidate.
        candidates: in the order in which they were considered.
        votes: protocol chosen by each member, for assignors.
        ruled_out: candidate → why it could not be chosen.
        reason: a sentence.
        member_id: the member that joined, left, was fenced, or took over partitions.
        moves: the first `MOVES_MAX`.
        took_ms: how long the whole took; -1 if it has no duration.
    """

    at_ms: Millis
    group_id: str
    generation: int
    kind: Kind
    chosen: str | None = None
    candidates: tuple[str, ...] = ()
    reason: str
    votes: Mapping[str, str] = field(default_factory=dict)
    ruled_out: Mapping[str, str] = field(default_factory=dict)
    member_id: str = ""
    moves: tuple[Move, ...] = ()
    move_count: int = 0
    took_ms: int = -1

    @property
    def item_count(self) -> int:
        """How many moves, candidates and votes it lists."""
        return len(self.moves) + len(self.candidates) + len(self.votes) + len(self.ruled_out)

    @property
    def char_count(self) -> int:
        """Characters of its texts."""
        moves = (name for move in self.moves for name in (move.topic, *move[2:4]))
        named = (*self.votes, *self.votes.values(), *self.ruled_out, *self.ruled_out.values())
        texts = (self.group_id, self.reason, self.member_id, self.chosen or "")
        return sum(map(len, (*texts, *self.candidates, *named, *moves)))


def bounded(entry: JournalEntry) -> JournalEntry:
    """The entry, with the first `LISTED_MAX` of each list; without lists if its texts are long."""
    entry = replace(
        entry,
        candidates=entry.candidates[:LISTED_MAX],
        votes=_first(entry.votes),
        ruled_out=_first(entry.ruled_out),
    )
    if entry.char_count <= ENTRY_CHARS_MAX:
        return entry
    return replace(
        entry,
        chosen=None if entry.chosen is None else entry.chosen[:TEXT_CHARS_MAX],
        reason=entry.reason[:TEXT_CHARS_MAX],
        member_id=entry.member_id[:TEXT_CHARS_MAX],
        candidates=(),
        votes={},
        ruled_out={},
        moves=(),
    )


def _first(items: Mapping[str, str]) -> Mapping[str, str]:
    return items if len(items) <= LISTED_MAX else dict(islice(items.items(), LISTED_MAX))


Sink = Callable[[JournalEntry], None]
"""Stores a new entry."""


class Journal:
    """The last decisions, oldest first, numbered from 0."""

    def __init__(
        self, entries_max: int, *, earlier: Iterable[JournalEntry] = (), sink: Sink | None = None
    ) -> None:
        """Keep at most `entries_max` entries, starting with `earlier`; pass new ones to `sink`."""
        self._entries: deque[JournalEntry] = deque(maxlen=entries_max)
        self._entries.extend(earlier)
        self._added = len(self._entries)
        self._sink = sink
        self.counts: Counter[Kind] = Counter()
        """Decisions by kind since the start of the process; those in `earlier` do not count."""
        self.epochs_raised = 0
        """By heartbeats and regular expressions of consumer groups, as Kafka counts rebalances."""

    def add(self, entry: JournalEntry) -> None:
        """Append an entry, `bounded`; the oldest is dropped if the journal is full."""
        entry = bounded(entry)
        self._entries.append(entry)
        self._added += 1
        self.counts[entry.kind] += 1
        if self._sink is not None:
            self._sink(entry)

    def entries(self, group_id: str | None = None) -> list[JournalEntry]:
        """Entries of one group, or of all (None), oldest first."""
        return [one for one in self._entries if group_id is None or one.group_id == group_id]

    def numbered(self, first: int = 0) -> Iterator[tuple[int, JournalEntry]]:
        """Number and entry, from number `first` on."""
        oldest = self._added - len(self._entries)
        for at in range(max(first - oldest, 0), len(self._entries)):
            yield oldest + at, self._entries[at]
