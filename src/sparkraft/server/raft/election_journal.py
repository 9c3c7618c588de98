"""The elections this node has seen, with reasons: bounded, kept across restarts.

    {"at": 1795210247989, "kind": "candidate", "epoch": 4, "reason": "pre-votes of 1, 2", …}

One JSON object per line in `sparkraft-elections.jsonl`, in the metadata log directory; the oldest
entries are dropped. It is for people (docs/decisions/0008-decisions-carry-reasons.md): no decision
depends on it, it is not fsynced, and a write error does not stop the node. Its winners can be
checked against the LeaderChange records of the log, which every node also journals (kind `log`).
"""

import json
import logging
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from sparkraft.raft.states import Candidate, Leader, Prospective, Resigned
from sparkraft.server.recent_values import RecentValues
from sparkraft.storage.disk import StorageFault

if TYPE_CHECKING:
    from sparkraft.base.env import Clock
    from sparkraft.base.ids import Millis
    from sparkraft.raft.events import LeaderChange
    from sparkraft.raft.replica import Ballot, Transition
    from sparkraft.storage.disk import Disk

ENTRIES_MAX = 1_000
"""About 200 kB: months of a healthy quorum, or the last hours of an unhealthy one."""

FILE_NAME = "sparkraft-elections.jsonl"

REASON_CHARS_MAX = 500

log = logging.getLogger("sparkraft.raft")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line; absent ids are -1, times are wall-clock ms.

    `kind` is the state this node entered, in lower case; `vote` or `pre-vote` for its response to
    one; `log` for a LeaderChange record of the metadata log.
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
        """Load the entries that earlier runs of node `local_id` left in `directory`."""
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
        self.election_ms_recent = RecentValues(clock)
        self.dropped = 0
        self._load()

    def entries(self, since_ms: int = -1) -> Iterator[Entry]:
        """The entries not older than `since_ms`, oldest first."""
        return (entry for entry in self._entries if entry.at >= since_ms)

    # ---- recording

    def note_transition(self, change: "Transition") -> None:
        """Record a state transition of this node; repeated ones are only counted."""
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
        # A voter that cannot win alternates between two states: record the pair once.
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
        """Record this node's response to a Vote request, unless it repeats the last one."""
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
        if last is not None and _same_response(last, entry):
            return
        if len(self._last_ballots) > ENTRIES_MAX:
            self._last_ballots.clear()
        self._last_ballots[ballot.candidate.id] = entry
        self._add(entry)

    def note_leader_change(self, change: "LeaderChange", epoch: int, offset: int) -> None:
        """Record a LeaderChange record: the winner and the votes it got."""
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
        """Record whether this node is in touch with a leader, to measure elections."""
        if in_touch:
            self.has_met_leader = True
            if self._lost is not None and self._lost[0] != epoch:
                took = now - self._lost[1]
                self.elections += 1
                self.election_ms_last = took
                self.election_ms_max = max(self.election_ms_max, took)
                self.election_ms_total += took
                self.election_ms_recent.add(took)
            self._lost = None
        elif self._lost is None:
            self._lost = (epoch, now)

    def leaderless_ms(self, now: "Millis") -> int:
        """Milliseconds since this node was last in touch with a leader; 0 while it is."""
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
            log.warning("Cannot write the election journal; keeping it in memory: %s", error)

    def _load(self) -> None:
        try:
            raw = self._disk.read(self._path)
        except FileNotFoundError:
            return
        except (StorageFault, OSError) as error:
            log.warning("Cannot read the election journal: %s", error)
            return
        lines = raw.split(b"\n")
        self._lines = len(lines)
        self._entries.extend(_readable(lines))  # a deque keeps the newest
        if lines[-1]:
            # A torn last line would corrupt the next one.
            self._lines = 2 * ENTRIES_MAX


def _ballots_of(state: Any) -> tuple[tuple[int, bool, str], ...]:
    """The votes that a candidate got before its state ended."""
    if not isinstance(state, Candidate | Prospective):
        return ()
    granted = [(voter, True, "") for voter in sorted(state.granted_by)]
    return (*granted, *((voter, False, "") for voter in sorted(state.rejected_by)))


def _same_response(one: Entry, other: Entry) -> bool:
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
