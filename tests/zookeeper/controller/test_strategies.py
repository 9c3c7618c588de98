"""The four elections; cases of PartitionLeaderElectionAlgorithmsTest, and recipients."""

from sparkraft.controller.leader_election import ChosenBy
from sparkraft.metadata.partition_state import RECOVERED, RECOVERING
from sparkraft.zookeeper.controller.context import ControllerContext
from sparkraft.zookeeper.controller.strategies import Strategy, elect
from sparkraft.zookeeper.controller.values import Broker, LeaderAndIsr, ReplicaAssignment

AT = ("t", 0)


def run(strategy, *, isr, live, replicas=(1, 2, 3), leader=1, stopping=(), unclean=False,
        failed_directory=(), removing=()):  # fmt: skip
    context = ControllerContext()
    context.brokers = {broker: Broker(broker, 1, ()) for broker in live}
    context.shutting_down = set(stopping)
    context.offline_replicas = {broker: {AT} for broker in failed_directory}
    context.assign(AT, ReplicaAssignment(replicas, (), removing))
    state = LeaderAndIsr(leader, isr, leader_epoch=4, partition_epoch=9)
    return elect(strategy, context, AT, state, unclean=unclean)


def test_offline_elects_the_first_live_replica_in_the_isr_by_assignment():
    elected = run(Strategy.OFFLINE, isr=(3, 2), live=[2, 3])
    assert elected.state == LeaderAndIsr(2, (3, 2), 5, 9, RECOVERED)
    assert elected.recipients == (2, 3)
    assert elected.choice.reason.chosen_by is ChosenBy.IN_SYNC_REPLICA


def test_offline_removes_members_that_are_not_live_from_the_isr():
    assert run(Strategy.OFFLINE, isr=(1, 2, 3), live=[3]).state == LeaderAndIsr(3, (3,), 5, 9)


def test_offline_gives_a_live_leader_no_precedence():
    assert run(Strategy.OFFLINE, isr=(1, 2), live=[1, 2], leader=2).state.leader == 1


def test_offline_elects_nobody_if_the_isr_is_not_live():
    elected = run(Strategy.OFFLINE, isr=(1,), live=[2, 3])
    assert elected.state is None
    assert dict(elected.choice.reason.ruled_out) == {
        1: "broker not registered", 2: "not in the ISR", 3: "not in the ISR"}  # fmt: skip


def test_unclean_elects_a_live_replica_outside_of_the_isr_and_lets_it_recover():
    elected = run(Strategy.OFFLINE, isr=(1,), live=[2, 3], unclean=True)
    assert elected.state == LeaderAndIsr(2, (2,), 5, 9, RECOVERING)
    assert elected.choice.reason.chosen_by is ChosenBy.ANY_LIVE_REPLICA


def test_unclean_prefers_a_member_of_the_isr():
    elected = run(Strategy.OFFLINE, isr=(3,), live=[2, 3], unclean=True)
    assert elected.state == LeaderAndIsr(3, (3,), 5, 9, RECOVERED)


def test_a_replica_on_a_failed_directory_does_not_lead():
    elected = run(Strategy.OFFLINE, isr=(1, 2), live=[1, 2, 3], failed_directory=[1])
    assert elected.state == LeaderAndIsr(2, (2,), 5, 9)
    assert elected.recipients == (2, 3)


def test_reassign_elects_among_the_target_replicas_and_keeps_the_isr():
    elected = run(Strategy.REASSIGN, isr=(1, 2, 3), live=[1, 2, 3], removing=(1,))
    assert elected.state == LeaderAndIsr(2, (1, 2, 3), 5, 9)
    assert elected.recipients == (2, 3)


def test_reassign_elects_nobody_if_no_target_is_in_the_isr():
    assert run(Strategy.REASSIGN, isr=(1,), live=[1, 2, 3], removing=(1,)).state is None


def test_preferred_elects_the_first_replica_only():
    elected = run(Strategy.PREFERRED, isr=(2, 1), live=[1, 2], leader=2)
    assert elected.state == LeaderAndIsr(1, (2, 1), 5, 9)
    assert elected.recipients == (1, 2, 3)
    assert run(Strategy.PREFERRED, isr=(2,), live=[1, 2], leader=2).state is None
    assert run(Strategy.PREFERRED, isr=(1, 2), live=[2], leader=2).state is None


def test_preferred_elects_nobody_without_replicas():
    assert run(Strategy.PREFERRED, isr=(1,), live=[1], replicas=()).state is None


def test_controlled_shutdown_moves_the_leader_and_shrinks_the_isr():
    elected = run(Strategy.CONTROLLED_SHUTDOWN, isr=(1, 2), live=[1, 2, 3], stopping=[1])
    assert elected.state == LeaderAndIsr(2, (2,), 5, 9)
    assert elected.recipients == (1, 2, 3)


def test_controlled_shutdown_elects_nobody_if_all_of_the_isr_shuts_down():
    elected = run(Strategy.CONTROLLED_SHUTDOWN, isr=(1, 2), live=[1, 2, 3], stopping=[1, 2])
    assert elected.state is None


def test_a_stopping_broker_without_a_session_receives_nothing():
    elected = run(Strategy.CONTROLLED_SHUTDOWN, isr=(1, 2), live=[2, 3], stopping=[1])
    assert elected.recipients == (2, 3)
