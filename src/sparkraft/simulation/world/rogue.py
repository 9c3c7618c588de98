"""A process that reaches the controller listeners and sends what no correct replica sends.

It knows the voters' ids, directory ids and epochs, which DescribeQuorum reports to anyone, and
sends Vote, BeginQuorumEpoch, EndQuorumEpoch and requests to resign or to change the voters, under
its own id or under a voter's. It does not send Fetch: a forged acknowledgement is a lost record in
any quorum without authentication (docs/RELIABILITY.md).
"""

from collections.abc import Callable
from typing import Any

from sparkraft.base.ids import BrokerId, LeaderEpoch, Offset
from sparkraft.raft.epoch_guard import (
    OUTSIDER_STEP_MAX,
    RESERVED_FROM,
    RESERVED_STEP_MAX,
    is_outsider,
)
from sparkraft.raft.events import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    RemoveVoterRequest,
    ResignRequested,
    VoteRequest,
)
from sparkraft.raft.states import Follower, State
from sparkraft.raft.voters import ReplicaKey
from sparkraft.simulation.world.core_node import CLUSTER_ID, CoreNode, directory_of, endpoint_of
from sparkraft.simulation.world.cores import World
from sparkraft.simulation.world.trace import tell

OWN_IDS = (98, 99)
"""No node of a world has these."""

EVERY_MS_MAX = (30, 200, 1_500)
"""Choices for the maximum delay between messages: a stream of them, or one every election."""

INT32_MAX = 2**31 - 1
FAR_OFFSET = 2**62

Require = Callable[[object, str, str], None]


class Rogue:
    """See the module docstring; `require` checks an invariant, as `Invariants.require`."""

    def __init__(self, world: World, require: Require) -> None:
        self._world = world
        self._require = require
        self._going = False
        self._every_ms_max = world.dice.choice(EVERY_MS_MAX)
        self._jumps = self._epoch_jumps()
        self._kinds = (
            *(self._vote, self._vote),
            *(self._begin, self._begin),
            *(self._end, self._change, self._resign),
        )

    def _epoch_jumps(self) -> tuple[int, ...]:
        """How far above the receiver's epoch a message may be; a negative one is absolute."""
        small = (0, 0, 1, 1, 2, 50, 1_000, OUTSIDER_STEP_MAX, OUTSIDER_STEP_MAX + 1)
        world = self._world
        voters = [node for node in world.nodes.values() if node.may_vote]
        if 2 * len(world.adopting_any_epoch) >= len(voters):
            return (
                small  # Kafka's own voters would end at the last epoch, and the quorum with them.
            )
        return (*small, -(RESERVED_FROM - 1), -RESERVED_FROM, -(INT32_MAX - 1), -INT32_MAX)

    def start(self) -> None:
        """Send messages until `stop`."""
        self._going = True
        self._strike()

    def stop(self) -> None:
        """Send nothing any more."""
        self._going = False
        self._world.note("-- the rogue is silent")

    def _strike(self) -> None:
        if not self._going:
            return
        world = self._world
        world.after(world.dice.randint(1, self._every_ms_max), self._strike)
        running = [node for node in world.nodes.values() if node.is_up and node.backlog is None]
        node = world.dice.choice(running)
        make = world.dice.choice(
            (
                self._vote,
                self._vote,
                self._begin,
                self._begin,
                self._end,
                self._change,
                self._resign,
            )
        )
        make(node)
        world.counts["rogue messages"] += 1

    # ---- messages

    def _key(self) -> ReplicaKey:
        """An id of its own or of a node, with a known, unknown or invented directory id."""
        dice, world = self._world.dice, self._world
        if dice.random() < 0.5:  # noqa: PLR2004 (a coin)
            own = dice.choice(OWN_IDS)
            return ReplicaKey(BrokerId(own), dice.choice((None, directory_of(own))))
        key = dice.choice(list(world.nodes.values())).key
        return dice.choice((key, key, ReplicaKey(key.id), ReplicaKey(key.id, directory_of(77))))

    def _epoch(self, node: CoreNode) -> LeaderEpoch:
        jump = self._world.dice.choice(self._jumps)
        return LeaderEpoch(-jump if jump < 0 else min(node.quorum.state.epoch + jump, INT32_MAX))

    def _vote(self, node: CoreNode) -> None:
        dice, epoch = self._world.dice, self._epoch(node)
        end = node.quorum.log.end_point
        pre_vote = dice.random() < 0.3  # noqa: PLR2004 (seldom)
        ahead = dice.random() < 0.5  # noqa: PLR2004 (a coin)
        last_epoch = max(0, min(epoch - 1, end.epoch + 1)) if ahead else end.epoch
        offset = FAR_OFFSET if ahead else end.offset
        request = VoteRequest(
            cluster_id=dice.choice((None, CLUSTER_ID)),
            voter=dice.choice((None, node.key)),
            candidate=self._key(),
            epoch=epoch,
            last_epoch=LeaderEpoch(last_epoch),
            last_offset=Offset(offset),
            pre_vote=pre_vote,
        )
        self._deliver(node, request, request.candidate)

    def _begin(self, node: CoreNode) -> None:
        dice, leader = self._world.dice, self._key()
        at = dice.choice((leader.id, dice.choice(OWN_IDS)))
        request = BeginQuorumEpochRequest(
            cluster_id=dice.choice((None, CLUSTER_ID)),
            voter=dice.choice((None, node.key)),
            leader_id=leader.id,
            epoch=self._epoch(node),
            leader_endpoints=dice.choice(((), (endpoint_of(at),), (endpoint_of(at),))),
        )
        self._deliver(node, request, ReplicaKey(leader.id))

    def _end(self, node: CoreNode) -> None:
        dice, leader = self._world.dice, self._key()
        known = node.quorum.leader_and_epoch.leader_id
        if known is not None and dice.random() < 0.3:  # noqa: PLR2004 (seldom)
            leader = ReplicaKey(known)
        request = EndQuorumEpochRequest(
            cluster_id=dice.choice((None, CLUSTER_ID)),
            leader_id=leader.id,
            epoch=self._epoch(node),
            preferred_successors=dice.choice(((), (node.key,), (self._key(), node.key))),
        )
        self._deliver(node, request, ReplicaKey(leader.id))

    def _change(self, node: CoreNode) -> None:
        own = ReplicaKey(BrokerId(self._world.dice.choice(OWN_IDS)), directory_of(77))
        add = AddVoterRequest(cluster_id=None, voter=own, endpoints=(endpoint_of(own.id),))
        remove = RemoveVoterRequest(cluster_id=None, voter=own)
        self._deliver(node, self._world.dice.choice((add, remove)), own)

    def _resign(self, node: CoreNode) -> None:
        if node.is_leader and node.id not in self._world.adopting_any_epoch:
            self._world.note(f"the rogue asks {node.name} to resign")
            node.step(ResignRequested(epoch=node.quorum.state.epoch))

    # ---- delivery

    def _deliver(self, node: CoreNode, request: Any, sender: ReplicaKey) -> None:
        before, in_touch = node.quorum.state, node.quorum.is_in_touch(node.now)
        outsider = is_outsider(node.quorum.log.voters, sender)
        self._world.note(f"the rogue sends {node.name}: {tell(request)}")
        node.ask(request, _ignore)
        if node.core is None or node.id in self._world.adopting_any_epoch:
            return
        after = node.core.state
        step = after.epoch - before.epoch
        same = (type(before), before.epoch) == (type(after), after.epoch)
        text = f"{node.name} goes from epoch {before.epoch} to {after.epoch}: {tell(request)}"
        self._require(not (outsider and in_touch) or same, "Q12", text)
        self._require(not outsider or step <= OUTSIDER_STEP_MAX, "Q12", text)
        reserved = after.epoch >= RESERVED_FROM
        self._require(not reserved or step <= RESERVED_STEP_MAX, "Q12", text)
        if isinstance(request, EndQuorumEpochRequest) and not _is_led_by(before, request):
            self._require(same, "Q12", f"EndQuorumEpoch of another than its leader: {text}")


def _is_led_by(state: State, request: EndQuorumEpochRequest) -> bool:
    return (
        isinstance(state, Follower)
        and state.leader_id == request.leader_id
        and state.epoch == request.epoch
    )


def _ignore(_: Any) -> None:
    """It needs no responses."""
