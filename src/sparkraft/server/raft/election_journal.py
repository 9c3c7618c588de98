"""What this node saw of the quorum's elections, and why: bounded, kept over a restart (DESIGN D8).

    {"at": 1795210247989, "kind": "candidate", "epoch": 4, "reason": "pre-votes of 1, 2", …}

One JSON object a line in `sparkraft-elections.jsonl`, in the metadata log directory; the oldest are
dropped. It is for people: it is never read to decide anything, is not flushed to disk, and a disk
that refuses it ends nothing. What it says of winners can be checked against the LeaderChange
records of the log, which every node notes as it gets them (kind `log`).
"""

import json
import logging
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from sparkraft.raft.states import Candidate, Leader, Prospective, Resigned
from sparkraft.storage.disk import StorageFault

if TYPE_CHECKING:
    from sparkraft.base.env import Clock
    from sparkraft.base.ids import Millis
    from sparkraft.raft.events import LeaderChange
    from sparkraft.raft.replica import Ballot, Transition
    from sparkraft.storage.disk import Disk

ENTRIES_MAX = 1_000
"""Some 200 kB, and months of a healthy quorum; an unhealthy one shows its last hours."""

FILE_NAME = "sparkraft-elections.jsonl"

REASON_CHARS_MAX = 500

log = logging.getLogger("sparkraft.raft")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line; ids are -1 where there is none, times are wall-clock ms.

    `kind` is the state that this node went to, in small letters; `vote` or `pre-vote` for an answer
    it gave; `log` for a LeaderChange record of the metadata log.
    """

    at: int
    kind: str
    epoch: int
    leader: int = -1
    candidate: int = -1
    reason: str = ""
    lasted_ms: int = -1
    ballots: tuple[tuple[int, bool, str], ...] = ()


class ElectionJournal:
    """See the module docstring."""

    def __init__(self, disk: "Disk", directory: str, clock: "Clock", local_id: int) -> None:
        """Read what earlier lives of node `local_id` left in `directory`."""
        self._local_id = local_id
        self._disk = disk
        self._path = f"{directory}/{FILE_NAME}"
        self._clock = clock
        self._entries: deque[Entry] = deque(maxlen=ENTRIES_MAX)
        self._lines = 0
        self._broken = False
        self._state_since: Millis | None = None
        self._last_ballots: dict[int, Entry] = {}
        self._lost: tuple[int, Millis] | None = None
        self._last_steps: deque[Entry] = deque(maxlen=2)
        self._repeated = 0
        self.has_met_leader = False
        self.elections = 0
        self.election_ms_last = 0
        self.election_ms_max = 0
        self.election_ms_total = 0
        self.dropped = 0
        self._load()

    def entries(self, since_ms: int = -1) -> Iterator[Entry]:
        """Those not older than `since_ms`, oldest first."""
        return (entry for entry in self._entries if entry.at >= since_ms)

    # ---- what happened

    def note_transition(self, change: "Transition") -> None:
        """This node changed its state."""
        lasted = -1 if self._state_since is None else change.at - self._state_since
        self._state_since = change.at
        new = change.new
        leader = getattr(new, "leader_id", None)
        if isinstance(new, Leader | Resigned):
            leader = self._local_id
        entry = Entry(
            at=self._clock.wall_ms(),
            kind=type(new).__name__.lower(),
            epoch=new.epoch,
            leader=-1 if leader is None else leader,
            reason=change.reason[:REASON_CHARS_MAX],
            lasted_ms=lasted,
            ballots=_ballots_of(change.old),
        )
        # A voter that can't win goes to and fro for as long as it lasts: once is enough.
        if any(_same_step(entry, last) for last in self._last_steps):
            self._repeated += 1
            return
        if self._repeated:
            entry = replace(
                entry, reason=f"{entry.reason} ({self._repeated} repeated steps before)"
            )
            self._repeated = 0
        self._last_steps.append(entry)
        self._add(entry)

    def note_ballot(self, ballot: "Ballot") -> None:
        """This node answered a Vote request; the same answer again is not noted."""
        granted = ballot.why_not is None
        reason = (ballot.why_not or "")[:REASON_CHARS_MAX]
        entry = Entry(
            at=self._clock.wall_ms(),
            kind="pre-vote" if ballot.pre_vote else "vote",
            epoch=ballot.epoch,
            candidate=ballot.candidate.id,
            ballots=((self._local_id, granted, reason),),
        )
        last = self._last_ballots.get(ballot.candidate.id)
        if last is not None and _same_answer(last, entry):
            return
        if len(self._last_ballots) > ENTRIES_MAX:
            self._last_ballots.clear()
        self._last_ballots[ballot.candidate.id] = entry
        self._add(entry)

    def note_leader_change(self, change: "LeaderChange", epoch: int, offset: int) -> None:
        """The metadata log says who won, and by whose votes."""
        self._add(
            Entry(
                at=self._clock.wall_ms(),
                kind="log",
                epoch=epoch,
                leader=change.leader_id,
                reason=f"offset {offset}",
                ballots=tuple((voter, True, "") for voter in sorted(change.granting_voter_ids)),
            )
        )

    def note_contact(self, *, in_touch: bool, epoch: int, now: "Millis") -> None:
        """Whether this node is in touch with a leader: how long elections take."""
        if in_touch:
            self.has_met_leader = True
            if self._lost is not None and self._lost[0] != epoch:
                took = now - self._lost[1]
                self.elections += 1
                self.election_ms_last = took
                self.election_ms_max = max(self.election_ms_max, took)
                self.election_ms_total += took
            self._lost = None
        elif self._lost is None:
            self._lost = (epoch, now)

    def leaderless_ms(self, now: "Millis") -> int:
        """For how long this node has been in touch with no leader; 0 while it is."""
        return 0 if self._lost is None else now - self._lost[1]

    # ---- the file

    def _add(self, entry: Entry) -> None:
        self.dropped += len(self._entries) == ENTRIES_MAX
        self._entries.append(entry)
        if self._broken:
            return
        try:
            if self._lines >= 2 * ENTRIES_MAX:
                fresh = self._path + ".new"
                self._disk.write(fresh, b"".join(map(_line, self._entries)))
                self._disk.rename(fresh, self._path)
                self._lines = len(self._entries)
            else:
                self._disk.append(self._path, [_line(entry)])
                self._lines += 1
        except (StorageFault, OSError) as error:
            self._broken = True
            log.warning("The election journal can't be written and is kept in memory: %s", error)

    def _load(self) -> None:
        try:
            raw = self._disk.read(self._path)
        except FileNotFoundError:
            return
        except (StorageFault, OSError) as error:
            log.warning("The election journal can't be read: %s", error)
            return
        lines = raw.split(b"\n")
        self._lines = len(lines)
        self._entries.extend(_readable(lines))  # a deque keeps the newest
        if lines[-1]:
            # A torn last line would spoil the next one.
            self._lines = 2 * ENTRIES_MAX


def _ballots_of(state: Any) -> tuple[tuple[int, bool, str], ...]:
    """The votes that a candidacy got before it ended."""
    if not isinstance(state, Candidate | Prospective):
        return ()
    granted = [(voter, True, "") for voter in sorted(state.granted_by)]
    return (*granted, *((voter, False, "") for voter in sorted(state.rejected_by)))


def _same_answer(one: Entry, other: Entry) -> bool:
    return (one.kind, one.epoch, one.ballots) == (other.kind, other.epoch, other.ballots)


def _same_step(one: Entry, other: Entry) -> bool:
    same = (one.kind, one.epoch, one.leader) == (other.kind, other.epoch, other.leader)
    return same and other.reason.startswith(one.reason)


def _line(entry: Entry) -> bytes:
    return json.dumps(asdict(entry), separators=(",", ":")).encode() + b"\n"


def _readable(lines: Iterable[bytes]) -> Iterator[Entry]:
    for line in lines:
        try:
            fields = json.loads(line)
            ballots = tuple((int(v), bool(g), str(r)) for v, g, r in fields.pop("ballots", ()))
            entry = Entry(**fields, ballots=ballots)
        except (ValueError, TypeError, AttributeError):
            continue  # torn by a crash, or of another version
        yield entry
