"""AlterPartition, ControlledShutdown, AllocateProducerIds: error by error, as in Kafka 3.9."""

import json

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.metadata.partition_state import RECOVERED, RECOVERING
from sparkraft.zookeeper.controller import events
from sparkraft.zookeeper.controller.failover import load_and_derive
from sparkraft.zookeeper.controller.values import IsrChangeRequest, LeaderAndIsr, ReplicaAssignment
from tests.zookeeper.controller.test_controller import cluster_of, handle, state_of

AT = ("t", 0)


@pytest.fixture
def cluster():
    made = cluster_of(1, 2, 3, topics={"t": {0: ([1, 2, 3], 1, [1, 2], 5)}})
    made.set("/brokers/topics/t/partitions/0/state",
             made.znodes.get("/brokers/topics/t/partitions/0/state").data)  # fmt: skip
    made.run(load_and_derive(made.active))
    return made


def alter(cluster, state, *, broker=1, epoch=None, version=3, at=AT):
    known = cluster.context.brokers.get(broker)
    epoch = epoch if epoch is not None else known.epoch if known else 0
    request = IsrChangeRequest(
        broker=broker, broker_epoch=epoch, version=version, states={at: state}
    )
    handle(cluster, events.AlterPartition(request))
    (answer,) = cluster.take_answers()
    return answer if isinstance(answer, KafkaError) else answer[at]


def wanted(isr, *, leader_epoch=5, partition_epoch=1, recovery=RECOVERED):
    return LeaderAndIsr(1, isr, leader_epoch, partition_epoch, recovery)


def test_an_isr_is_written_sent_and_answered_with_its_new_epoch(cluster):
    assert alter(cluster, wanted((1, 2, 3))) == LeaderAndIsr(1, (1, 2, 3), 5, 2)
    assert state_of(cluster, "t", 0) == (1, 5, [1, 2, 3])
    assert cluster.sends() == [f"UpdateMetadata to {broker}: t-0" for broker in (1, 2, 3)]
    assert cluster.context.leaderships[AT].state.isr == (1, 2, 3)


def test_a_repeated_request_succeeds_without_a_write(cluster):
    alter(cluster, wanted((1, 2, 3)))
    cluster.writes.clear()
    assert alter(cluster, wanted((1, 2, 3))) == LeaderAndIsr(1, (1, 2, 3), 5, 2)
    assert cluster.writes == []


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (wanted((1,), leader_epoch=6), ErrorCode.NOT_CONTROLLER),
        (wanted((1,), partition_epoch=2), ErrorCode.NOT_CONTROLLER),
        (wanted((1,), leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
        (wanted((1,), partition_epoch=0), ErrorCode.INVALID_UPDATE_VERSION),
        (wanted((1, 2, 3), recovery=RECOVERING), ErrorCode.INVALID_REQUEST),
        (wanted((1,), recovery=RECOVERING), ErrorCode.INVALID_REQUEST),
        (wanted((1, 9)), ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_a_partition_is_refused(cluster, state, error):
    assert alter(cluster, state) is error
    assert cluster.writes == []


def test_a_replica_that_shuts_down_is_ineligible(cluster):
    cluster.context.shutting_down.add(3)
    assert alter(cluster, wanted((1, 3))) is ErrorCode.INELIGIBLE_REPLICA
    assert alter(cluster, wanted((1, 3)), version=1) is ErrorCode.OPERATION_NOT_ATTEMPTED


def test_an_unknown_partition_is_refused(cluster):
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(cluster, wanted((1,)), at=("other", 0)) is error


def test_a_znode_that_changed_meanwhile_is_refused(cluster):
    cluster.state(AT, 1, [1], epoch=5)
    assert alter(cluster, wanted((1, 2, 3))) is ErrorCode.INVALID_UPDATE_VERSION


def test_a_broker_of_another_epoch_is_refused(cluster):
    assert alter(cluster, wanted((1,)), epoch=3).code is ErrorCode.STALE_BROKER_EPOCH
    assert alter(cluster, wanted((1,)), broker=9).code is ErrorCode.STALE_BROKER_EPOCH


def test_a_node_that_is_not_the_controller_refuses(cluster):
    cluster.active.controller_id = 2
    assert alter(cluster, wanted((1,))).code is ErrorCode.NOT_CONTROLLER


def test_a_deposed_controller_answers_with_an_error_and_resigns(cluster):
    cluster.set("/controller_epoch", b"8")
    assert alter(cluster, wanted((1,))).code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not cluster.active.is_active


def test_an_isr_that_completes_a_reassignment_is_answered_before_it_is_completed(cluster):
    handle(cluster, events.AlterReassignments({AT: (3, 2)}))
    cluster.take_answers()
    state = cluster.context.leaderships[AT].state
    answer = alter(cluster, state._replace(isr=(1, 2, 3)))
    assert answer.isr == (1, 2, 3)
    assert cluster.context.assignment(AT) == ReplicaAssignment((3, 2))


def shut_down(cluster, broker, epoch):
    handle(cluster, events.ControlledShutdown(broker, epoch))
    (answer,) = cluster.take_answers()
    return answer.code if isinstance(answer, KafkaError) else answer


def test_a_broker_shuts_down(cluster):
    assert shut_down(cluster, 1, cluster.context.brokers[1].epoch) == []
    assert state_of(cluster, "t", 0) == (2, 6, [2])


def test_a_shutdown_is_refused(cluster):
    assert shut_down(cluster, 1, 1) is ErrorCode.STALE_BROKER_EPOCH
    assert shut_down(cluster, 9, 1) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert shut_down(cluster, 9, -1) is ErrorCode.BROKER_NOT_AVAILABLE
    cluster.active.controller_id = 2
    assert shut_down(cluster, 1, -1) is ErrorCode.STALE_CONTROLLER_EPOCH


def allocate(cluster, broker, epoch):
    handle(cluster, events.AllocateProducerIds(broker, epoch))
    (answer,) = cluster.take_answers()
    return answer.code if isinstance(answer, KafkaError) else answer


def test_producer_ids_are_allocated_in_blocks(cluster):
    cluster.make("/latest_producer_id_block")
    epoch = cluster.context.brokers[3].epoch
    assert allocate(cluster, 3, epoch) == 0
    assert cluster.znodes.get("/latest_producer_id_block").data == (
        b'{"version":1,"broker":3,"block_start":"0","block_end":"999"}'
    )
    assert allocate(cluster, 3, epoch) == 1000


def test_producer_ids_are_refused(cluster):
    cluster.make("/latest_producer_id_block")
    assert allocate(cluster, 9, 1) is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert allocate(cluster, 3, 1) is ErrorCode.STALE_BROKER_EPOCH
    assert json.loads(cluster.znodes.get("/latest_producer_id_block").data or "{}") == {}


def test_exhausted_producer_ids_are_an_error(cluster):
    block = {"version": 1, "broker": 1, "block_start": "0", "block_end": str(2**63 - 2)}
    cluster.make("/latest_producer_id_block", json.dumps(block).encode())
    epoch = cluster.context.brokers[3].epoch
    assert allocate(cluster, 3, epoch) is ErrorCode.UNKNOWN_SERVER_ERROR
