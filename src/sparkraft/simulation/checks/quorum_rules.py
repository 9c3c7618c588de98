"""Rules for each step of a quorum member, shared by both tiers.

    Q4  an offset and epoch identify one batch with one predecessor, so logs that match there
        match below
    Q8  one voter at a time, after the previous set and the epoch's start are committed; a removed
        leader resigns
    Q9  a pre-vote changes no vote and no epoch; voters with a leader refuse it
    Q11 a leader without a majority resigns

`invariants` applies them to bare cores, `node_events` to whole nodes.
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
"""Allowance beyond 1.5 fetch timeouts for clock drift and paused leaders."""


class Member(NamedTuple):
    """A quorum member.

    Attributes:
        voters_below: returns the offset of the last voter set in its log below an offset; -1 if
            there is none.
    """

    name: str
    key: ReplicaKey
    core: Quorum
    voters_below: Callable[[int], int]


def voters_are_committed(core: Quorum) -> bool:
    """Whether the current voter set is committed; a static one always is.

    An uncommitted set is only in some logs, and other voters still elect by the previous set.
    """
    at, reached = core.log.voters_offset, core.log.high_watermark
    return at is None or (reached is not None and at < reached)


class Step(NamedTuple):
    """One step of a core; `before` and `high_watermark` are from before the step."""

    event: Event | None
    before: State
    high_watermark: Offset | None
    ready: Ready


class QuorumRules:
    """See the module docstring; keeps all batches written and the last fetch of each follower.

    Attributes:
        leading_since: node id → epoch and time in ms of its last won election.
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
        self._fetched_at: dict[int, dict[int, int]] = {}
        self._written: dict[tuple[int, int], tuple[Hashable, tuple[int, int] | None]] = {}

    def on_start(self, node_id: int) -> None:
        """A new incarnation starts without the old one's memory."""
        self._fetched_at[node_id] = {}

    # ---- the log

    def on_batch(
        self, name: str, place: tuple[int, int], content: Hashable, link: tuple[int, int] | None
    ) -> None:
        """Check a batch of a log; `place` and `link` are (base offset, epoch) pairs.

        `content` identifies the batch; `link` is its predecessor, None at the start of the log.
        """
        known = self._written.setdefault(place, (content, link))
        self._require(
            known[0] == content and (link is None or known[1] in (None, link)),
            "Q4",
            f"{name} has {content} at {place} after {link}, another log has {known}",
        )
        if known[1] is None and link is not None:
            self._written[place] = (content, link)

    # ---- states

    def on_transition(self, member: Member, old: State, new: State) -> None:
        """Check a state transition of a core."""
        if isinstance(new, Prospective):
            self._require(
                new.epoch == old.epoch, "Q9", f"{member.name} raises its epoch to pre-vote"
            )
        if isinstance(new, Leader) and not isinstance(old, Leader):
            self._leads_from_now(member, new.epoch)

    def _leads_from_now(self, member: Member, epoch: int) -> None:
        self.leading_since[member.key.id] = (epoch, self._now())
        self._fetched_at[member.key.id] = {}

    # ---- each step

    def on_step(self, member: Member, step: Step) -> None:
        """Check a step right after the core handled its event, before `ready` is carried out."""
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
            f"{member.name} changes its vote to {new} on a pre-vote",
        )
        has_leader = isinstance(before, Leader) or (
            isinstance(before, Follower) and before.has_fetched
        )
        for respond in step.ready.respond:
            response = respond.response
            if respond.request_id != request_id or not isinstance(response, VoteResponse):
                continue
            self._require(
                not (response.granted and has_leader and after.epoch == before.epoch),
                "Q9",
                f"{member.name} grants a pre-vote although it has a leader in epoch {after.epoch}",
            )

    def _on_fetch(self, member: Member, request: FetchRequest | FetchSnapshotRequest) -> None:
        core = member.core
        if core.is_leader and request.epoch == core.state.epoch:
            self._fetched_at.setdefault(member.key.id, {})[request.replica.id] = self._now()

    def _on_voters_written(
        self, member: Member, batch: LogBatch, high_watermark: Offset | None
    ) -> None:
        """Compare a voter set that a leader appends with the previous one."""
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
            # From now on another majority counts, so earlier fetches are irrelevant.
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
            f"{member.name} changes {len(different)} voters at once at {at}, from {old} to {new}",
        )

    def _check_change_is_due(
        self, member: Member, state: Leader, at: Offset, high_watermark: Offset | None
    ) -> None:
        committed = high_watermark if high_watermark is not None else Offset(-1)
        self._require(
            committed > state.epoch_start_offset,
            "Q8",
            f"{member.name} changes the voters at {at} before the start of its epoch is committed",
        )
        previous = member.voters_below(at)
        self._require(
            previous < committed,
            "Q8",
            f"{member.name} changes the voters at {at} before the set at {previous} "
            f"is committed, HW={committed}",
        )

    def check_voted_out(self, member: Member) -> None:
        """Check after a step that a removed voter does not keep leading."""
        core = member.core
        state = core.state
        if isinstance(state, Leader) and not core.is_voter:
            at, reached = core.log.voters_offset, core.log.high_watermark
            committed = at is not None and reached is not None and at < reached
            self._require(
                not committed or state.resign_reason is not None,
                "Q8",
                f"{member.name} keeps leading although removed at {at}, HW={reached}",
            )

    # ---- every second

    def check_quorum(self, member: Member) -> None:
        """Check that a majority has fetched from this running leader recently."""
        core = member.core
        epoch, since = self.leading_since.get(member.key.id, (0, self._now()))
        voters = core.log.voters
        if voters.is_only_voter(member.key) or epoch != core.state.epoch:
            return
        fetched_at = self._fetched_at.get(member.key.id, {})
        others = [voter_id for voter_id in voters.ids if voter_id != member.key.id]
        times = sorted((fetched_at.get(voter_id, since) for voter_id in others), reverse=True)
        needed = voters.majority - (1 if core.is_voter else 0)
        if not 0 < needed <= len(times):
            return
        silent_ms = self._now() - times[needed - 1]
        limit = int(core.config.fetch_timeout_ms * 1.5) * 2 + CHECK_QUORUM_SLACK_MS
        self._require(
            silent_ms <= limit,
            "Q11",
            f"{member.name} keeps leading {silent_ms} ms after the last fetch of a majority",
        )


def _voted(member: Member, state: State) -> ReplicaKey | None:
    return member.key if isinstance(state, Candidate) else getattr(state, "voted", None)


def _members(voters: VoterSet) -> list[tuple[Any, ...]]:
    return [(int(voter.key.id), voter.key.directory_id) for voter in voters.voters]


def _is_upgrade(batch: LogBatch) -> bool:
    return any(isinstance(control, KRaftVersionChange) for control in batch.controls)
