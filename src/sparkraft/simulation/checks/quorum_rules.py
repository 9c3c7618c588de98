"""What a member of a quorum may do in a step, and how long it may lead unheard: for either tier.

    Q4  one offset of one epoch is one batch, after one predecessor: so logs that agree there
        agree below
    Q8  one voter at a time, the set before and the epoch's start committed first; a leader voted
        out resigns
    Q9  a pre-vote changes no vote and no epoch; who hears a leader refuses it
    Q11 a leader without a majority stops leading

`invariants` asks this of bare cores, `node_events` of whole nodes.
"""

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from sparkraft.base.ids import Offset
from sparkraft.raft.events import (
    AppendBatch,
    Event,
    FetchRequest,
    FetchSnapshotRequest,
    KRaftVersionChange,
    LogBatch,
    Ready,
    RequestReceived,
    VoteRequest,
    VoteResponse,
    VotersChange,
)
from sparkraft.raft.quorum import Quorum
from sparkraft.raft.states import Candidate, Follower, Leader, Prospective, State
from sparkraft.raft.voters import ReplicaKey, VoterSet

CHECK_QUORUM_SLACK_MS = 1_500
"""Beyond 1.5 fetch timeouts: clocks drift, and a paused leader learns of it late."""


class Member(NamedTuple):
    """Who takes a step.

    Attributes:
        voters_below: the offset of the last voter set that its log has below an offset; -1
            without one.
    """

    name: str
    key: ReplicaKey
    core: Quorum
    voters_below: Callable[[int], int]


def voters_are_committed(core: Quorum) -> bool:
    """Whether the voter set in force is, as static ones always are.

    Until then it is only in the logs of some, and others elect by the set before.
    """
    at, reached = core.log.voters_offset, core.log.high_watermark
    return at is None or (reached is not None and at < reached)


class Step(NamedTuple):
    """One step of a core; `before` and `high_watermark` are what they were when it began."""

    event: Event | None
    before: State
    high_watermark: Offset | None
    ready: Ready


class QuorumRules:
    """See the module docstring; remembers what was written, and who was heard when.

    Attributes:
        leading_since: by id: epoch and time in ms of each node's last election won.
    """

    def __init__(
        self,
        require: Callable[[object, str, str], None],
        counts: Counter[str],
        now: Callable[[], int],
    ) -> None:
        self._require = require
        self._counts = counts
        self._now = now
        self.leading_since: dict[int, tuple[int, int]] = {}
        self._heard: dict[int, dict[int, int]] = {}
        self._written: dict[tuple[int, int], tuple[Hashable, tuple[int, int] | None]] = {}

    def on_start(self, node_id: int) -> None:
        """A new incarnation: what it only had in memory is forgotten."""
        self._heard[node_id] = {}

    # ---- the log

    def on_batch(
        self, name: str, place: tuple[int, int], told: Hashable, link: tuple[int, int] | None
    ) -> None:
        """A log has a batch at `place` behind the one at `link`, offset and epoch each.

        `told` stands for its content; `link` is None where the log begins.
        """
        known = self._written.setdefault(place, (told, link))
        self._require(
            known[0] == told and (link is None or known[1] in (None, link)),
            "Q4",
            f"{name} has {told} at {place} after {link}, known {known}",
        )
        if known[1] is None and link is not None:
            self._written[place] = (told, link)

    # ---- states

    def on_transition(self, member: Member, old: State, new: State) -> None:
        """A core went from one state to the next."""
        if isinstance(new, Prospective):
            self._require(new.epoch == old.epoch, "Q9", f"{member.name} raises the epoch to ask")
        if isinstance(new, Leader) and not isinstance(old, Leader):
            self._leads_from_now(member, new.epoch)

    def _leads_from_now(self, member: Member, epoch: int) -> None:
        self.leading_since[member.key.id] = (epoch, self._now())
        self._heard[member.key.id] = {}

    # ---- each step

    def on_step(self, member: Member, step: Step) -> None:
        """Right after the core took its event, before anything of `ready` is done."""
        if isinstance(step.event, RequestReceived):
            request = step.event.request
            if isinstance(request, VoteRequest) and request.pre_vote:
                self._on_pre_vote(member, step, step.event.request_id)
            if isinstance(request, FetchRequest | FetchSnapshotRequest):
                self._on_fetch(member, request)
        for effect in step.ready.log:
            if isinstance(effect, AppendBatch):
                self._on_voters_written(member, effect.batch, step.high_watermark)

    def _on_pre_vote(self, member: Member, step: Step, request_id: int) -> None:
        before, after = step.before, member.core.state
        old, new = _voted(member, before), _voted(member, after)
        self._require(
            after.epoch != before.epoch or old == new,
            "Q9",
            f"{member.name} votes for {new} for a pre-vote",
        )
        hears = isinstance(before, Leader) or (isinstance(before, Follower) and before.has_fetched)
        for respond in step.ready.respond:
            answer = respond.response
            if respond.request_id != request_id or not isinstance(answer, VoteResponse):
                continue
            self._require(
                not (answer.granted and hears and after.epoch == before.epoch),
                "Q9",
                f"{member.name} hears the leader of epoch {after.epoch} and grants a pre-vote",
            )

    def _on_fetch(self, member: Member, request: FetchRequest | FetchSnapshotRequest) -> None:
        core = member.core
        if core.is_leader and request.epoch == core.state.epoch:
            self._heard.setdefault(member.key.id, {})[request.replica.id] = self._now()

    def _on_voters_written(
        self, member: Member, batch: LogBatch, high_watermark: Offset | None
    ) -> None:
        """A leader writes a voter set: compare it with the one before."""
        state = member.core.state
        if not isinstance(state, Leader) or batch.epoch != state.epoch:
            return
        for delta, control in enumerate(batch.controls):
            if not isinstance(control, VotersChange):
                continue
            at = Offset(batch.base_offset + delta)
            before, _ = member.core.log.voters_at(at)
            if not before.voters:
                continue
            self._counts["voter sets written"] += 1
            # Another majority from now on: what the old one fetched says nothing of it.
            self._leads_from_now(member, state.epoch)
            self._check_change(member, before, control.voters, at=at, batch=batch)
            if _members(before) != _members(control.voters) and not _is_upgrade(batch):
                self._check_change_is_due(member, state, at, high_watermark)

    def _check_change(
        self, member: Member, before: VoterSet, after: VoterSet, *, at: int, batch: LogBatch
    ) -> None:
        old, new = _members(before), _members(after)
        if _is_upgrade(batch):
            old, new = [key[:1] for key in old], [key[:1] for key in new]
        different = [key for key in [*old, *new] if (key in old) != (key in new)]
        self._require(
            len(different) <= 1,
            "Q8",
            f"{member.name} changes {len(different)} voters at once at {at}: {old} to {new}",
        )

    def _check_change_is_due(
        self, member: Member, state: Leader, at: Offset, high_watermark: Offset | None
    ) -> None:
        committed = high_watermark if high_watermark is not None else Offset(-1)
        self._require(
            committed > state.epoch_start_offset,
            "Q8",
            f"{member.name} changes the voters at {at} before its epoch's start is committed",
        )
        previous = member.voters_below(at)
        self._require(
            previous < committed,
            "Q8",
            f"{member.name} changes the voters at {at}, and those of {previous} "
            f"are not committed: HW={committed}",
        )

    def check_voted_out(self, member: Member) -> None:
        """Once a step is over: who is no voter any more does not lead on."""
        core = member.core
        state = core.state
        if isinstance(state, Leader) and not core.is_voter:
            at, reached = core.log.voters_offset, core.log.high_watermark
            committed = at is not None and reached is not None and at < reached
            self._require(
                not committed or state.resign_reason is not None,
                "Q8",
                f"{member.name} leads on, though voted out at {at} and HW={reached}",
            )

    # ---- every second

    def check_quorum(self, member: Member) -> None:
        """A leader that runs: a majority has fetched from it not long ago."""
        core = member.core
        epoch, since = self.leading_since.get(member.key.id, (0, self._now()))
        voters = core.log.voters
        if voters.is_only_voter(member.key) or epoch != core.state.epoch:
            return
        heard = self._heard.get(member.key.id, {})
        others = [voter_id for voter_id in voters.ids if voter_id != member.key.id]
        times = sorted((heard.get(voter_id, since) for voter_id in others), reverse=True)
        needed = voters.majority - (1 if core.is_voter else 0)
        if not 0 < needed <= len(times):
            return
        silent_ms = self._now() - times[needed - 1]
        limit = int(core.config.fetch_timeout_ms * 1.5) * 2 + CHECK_QUORUM_SLACK_MS
        self._require(
            silent_ms <= limit,
            "Q11",
            f"{member.name} leads on, {silent_ms} ms after a majority fetched",
        )


def _voted(member: Member, state: State) -> ReplicaKey | None:
    return member.key if isinstance(state, Candidate) else getattr(state, "voted", None)


def _members(voters: VoterSet) -> list[tuple[Any, ...]]:
    return [(int(voter.key.id), voter.key.directory_id) for voter in voters.voters]


def _is_upgrade(batch: LogBatch) -> bool:
    return any(isinstance(control, KRaftVersionChange) for control in batch.controls)
