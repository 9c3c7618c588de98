"""The four elections of a partition's leader in ZooKeeper mode (Election.scala of Kafka 3.9).

    strategy              leader                                   ISR               sent to
    OFFLINE               first live replica in the ISR;           live members;     live replicas
                          unclean: first live replica,             unclean: leader
                          which recovers (KIP-704)
    REASSIGN              first live target replica in the ISR     unchanged         target replicas
    PREFERRED             first replica if live and in the ISR     unchanged         all replicas
    CONTROLLED_SHUTDOWN   first replica in the ISR that does       without those     live or leaving
                          not shut down                            that shut down    replicas

"First" is by the order of assignment. Each election increments the leader epoch. The leader itself
is chosen by `controller.leader_election.choose_leader`, as under KRaft, and with the same reasons.

Difference from KRaft: a live leader has no precedence, and eligible leader replicas do not exist.
"""

from enum import Enum
from typing import NamedTuple

from sparkraft.base.ids import TopicPartition
from sparkraft.controller.leader_election import (
    Candidacy,
    Choice,
    ElectionKind,
    choose_leader,
)
from sparkraft.metadata.partition_state import NO_LEADER
from sparkraft.zookeeper.controller.context import ControllerContext
from sparkraft.zookeeper.controller.values import LeaderAndIsr


class Strategy(Enum):
    """How the leader of a partition is elected."""

    OFFLINE = "OfflinePartitionLeaderElectionStrategy"
    REASSIGN = "ReassignPartitionLeaderElectionStrategy"
    PREFERRED = "PreferredReplicaPartitionLeaderElectionStrategy"
    CONTROLLED_SHUTDOWN = "ControlledShutdownPartitionLeaderElectionStrategy"


class Elected(NamedTuple):
    """The result of an election."""

    state: LeaderAndIsr | None
    """Leader and ISR to be written; None if no replica may lead."""
    recipients: tuple[int, ...]
    """Brokers that LeaderAndIsr is sent to."""
    choice: Choice
    """The reasons."""


def elect(
    strategy: Strategy,
    context: ControllerContext,
    at: TopicPartition,
    state: LeaderAndIsr,
    *,
    unclean: bool = False,
    recovers: bool = True,
) -> Elected:
    """Elect a leader by the rules of the module docstring.

    Args:
        strategy: the rules.
        context: brokers and assignments.
        at: the partition.
        state: its state znode.
        unclean: for OFFLINE, whether a replica outside of the ISR may lead.
        recovers: whether such a leader is marked as recovering, from 3.2 on.
    """
    match strategy:
        case Strategy.OFFLINE:
            return _offline(context, at, state, unclean=unclean, recovers=recovers)
        case Strategy.REASSIGN:
            target = context.assignment(at).target
            choice = _choose(context, at, state, target, ElectionKind.ONLINE)
            return Elected(_led(state, choice, state.isr), target, choice)
        case Strategy.PREFERRED:
            replicas = context.assignment(at).replicas
            choice = _choose(context, at, state, replicas[:1], ElectionKind.ONLINE)
            return Elected(_led(state, choice, state.isr), replicas, choice)
        case Strategy.CONTROLLED_SHUTDOWN:
            replicas = context.assignment(at).replicas
            choice = _choose(context, at, state, replicas, ElectionKind.ONLINE)
            isr = tuple(r for r in state.isr if r not in context.shutting_down)
            recipients = (r for r in replicas if context.is_online_or_shutting_down(r, at))
            return Elected(_led(state, choice, isr), tuple(recipients), choice)


def _offline(
    context: ControllerContext,
    at: TopicPartition,
    state: LeaderAndIsr,
    *,
    unclean: bool,
    recovers: bool,
) -> Elected:
    replicas = context.assignment(at).replicas
    kind = ElectionKind.UNCLEAN if unclean else ElectionKind.ONLINE
    choice = _choose(context, at, state, replicas, kind)
    live = tuple(replica for replica in replicas if context.is_online(replica, at))
    if choice.unclean:
        leader = choice.leader
        led = state.elect_unclean(leader) if recovers else state.elect(leader, (leader,))
        return Elected(led, live, choice)
    isr = tuple(replica for replica in state.isr if context.is_online(replica, at))
    return Elected(_led(state, choice, isr), live, choice)


def _choose(
    context: ControllerContext,
    at: TopicPartition,
    state: LeaderAndIsr,
    candidates: tuple[int, ...],
    kind: ElectionKind,
) -> Choice:
    return choose_leader(
        Candidacy(
            kind=kind,
            replicas=candidates,
            isr=state.isr,
            elr=(),
            current_leader=NO_LEADER,  # it has no precedence
            last_known_leader=None,
            elr_enabled=False,
            why_not=lambda replica: context.why_not(replica, at),
        )
    )


def _led(state: LeaderAndIsr, choice: Choice, isr: tuple[int, ...]) -> LeaderAndIsr | None:
    return None if choice.leader == NO_LEADER else state.elect(choice.leader, isr)
