"""Which requests of a peer may raise this replica's epoch or change its leader (KIP-595, KIP-853).

Without authentication any process that reaches a controller listener can send a Vote,
BeginQuorumEpoch or EndQuorumEpoch. An epoch never goes back, so the damage of an adopted epoch
stays. These rules refuse what no correct replica needs:

    Vote of an outsider      refused without adopting its epoch if that cannot cost an election:
                             the voters are static (kraft.version 0), or its log is not ahead of
                             ours, or we are in touch with a leader. Otherwise KIP-853 applies: the
                             record that made it a voter may be missing from our log.
    BeginQuorumEpoch of one  refused if the voters are static, or while we are in touch with a
                             leader. Its sender repeats it.
    EndQuorumEpoch           counts only if its sender is the leader we follow, in its epoch.
    an outsider's epoch      at most `OUTSIDER_STEP_MAX` above ours, once per election timeout.
    the last epochs          from `RESERVED_FROM` on, a request of any replica raises our epoch by
                             `RESERVED_STEP_MAX` at most. No single message can use up the range,
                             and elections continue at its end. Responses raise it further, up to
                             `RESPONSES_UNTIL`: voters that forged requests have moved apart meet
                             there, and one that is at the very end draws in no other.

An outsider is a replica that is not in our voter set. A voter's id can be forged, and a majority
may really have moved on, so the epochs of voters have no other limit.

Not here: adopting an epoch (`replica`), the log and the epoch that decide a vote (`votes`).
"""

from dataclasses import dataclass

from sparkraft.base.ids import LeaderEpoch, Millis
from sparkraft.raft.events import EpochAndOffset
from sparkraft.raft.voters import ReplicaKey, VoterSet

EPOCH_LAST = LeaderEpoch(2**31 - 2)
"""The last epoch in which a voter stands for election; the next ones do not fit into an int32."""

RESERVED_FROM = LeaderEpoch(2**31 - 2**20)
"""From here on epochs are reserved: enough elections to keep a quorum working until it is repaired
with `metadata-quorum repair`. At one election per second a quorum gets here after 68 years."""

RESERVED_STEP_MAX = 100
"""Elections that a voter may miss and still follow at the end of the range. A forged message raises
the epoch by no more than this there."""

RESPONSES_UNTIL = LeaderEpoch(2**31 - 2**19)
"""Responses come from addresses that we chose, so strangers do not write them. A voter that adopts
any epoch, such as Kafka's, may have been brought to the last one all the same."""

OUTSIDER_STEP_MAX = 1_000_000
"""How far an outsider may be ahead: more elections than a replica misses in a year of one every
30 seconds. At one step per election timeout it takes 36 minutes without a leader to use up all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalView:
    """The replica that a guard protects.

    Attributes:
        log_end: the end of our log, whether on disk or not.
        in_touch: whether we lead, or have heard from our leader within the fetch timeout.
    """

    epoch: LeaderEpoch
    voters: VoterSet
    kraft_version: int
    log_end: EpochAndOffset
    in_touch: bool
    now: Millis


class EpochGuard:
    """The rules of the module docstring; remembers when an outsider last raised the epoch."""

    def __init__(self, election_timeout_ms: int) -> None:
        self._election_timeout_ms = election_timeout_ms
        self._next_raise_at: Millis | None = None

    def is_reachable(
        self, ours: LeaderEpoch, epoch: LeaderEpoch, *, responded: bool = False
    ) -> bool:
        """Whether a replica in epoch `ours` may adopt `epoch` at all, from any peer.

        `responded`: it is that of a response, not of a request.
        """
        if not 0 <= epoch <= EPOCH_LAST:
            return False
        until = RESPONSES_UNTIL if responded else RESERVED_FROM
        return epoch < until or epoch - ours <= RESERVED_STEP_MAX

    def why_not_vote(
        self, view: LocalView, candidate: ReplicaKey, epoch: LeaderEpoch, claim: EpochAndOffset
    ) -> str | None:
        """Why a Vote is refused without adopting its epoch; None if the usual rules apply.

        `claim` is the end of the candidate's log as given in its request.
        """
        if not is_outsider(view.voters, candidate):
            return None
        if has_static_voters(view):
            return "it is not one of the static voters"
        if claim <= view.log_end:
            return "it is not a voter, and its log is not ahead of ours"
        if view.in_touch:
            return "it is not a voter, and we are in touch with a leader"
        return self._why_not_raise(view, epoch)

    def why_not_follow(self, view: LocalView, leader: ReplicaKey, epoch: LeaderEpoch) -> str | None:
        """Why a BeginQuorumEpoch is refused; None if the usual rules apply."""
        if not is_outsider(view.voters, leader) or epoch < view.epoch:
            return None
        if has_static_voters(view):
            return "it is not one of the static voters"
        if epoch > view.epoch and view.in_touch:
            return "it is not a voter, and we are in touch with a leader"
        return self._why_not_raise(view, epoch)

    def _why_not_raise(self, view: LocalView, epoch: LeaderEpoch) -> str | None:
        if epoch <= view.epoch:
            return None
        if epoch - view.epoch > OUTSIDER_STEP_MAX:
            return f"it is not a voter, and its epoch is more than {OUTSIDER_STEP_MAX} above ours"
        if self._next_raise_at is not None and view.now < self._next_raise_at:
            return "a replica that is not a voter has raised the epoch just now"
        self._next_raise_at = Millis(view.now + self._election_timeout_ms)
        return None

    def counts_resignation(
        self, *, follows_sender: bool, ours: LeaderEpoch, epoch: LeaderEpoch
    ) -> bool:
        """Whether an EndQuorumEpoch counts; `follows_sender` if its sender is our leader."""
        return follows_sender and epoch == ours


def is_outsider(voters: VoterSet, key: ReplicaKey) -> bool:
    """Whether `key` is not in the voter set; an unknown directory id matches any."""
    voter = voters.get(key.id)
    if voter is None:
        return True
    known = (voter.key.directory_id, key.directory_id)
    return None not in known and known[0] != known[1]


def has_static_voters(view: LocalView) -> bool:
    """Whether the voters are those of `controller.quorum.voters`.

    A replica that has no voter set yet has no static ones; its log will name the voters.
    """
    return view.kraft_version == 0 and len(view.voters) > 0
