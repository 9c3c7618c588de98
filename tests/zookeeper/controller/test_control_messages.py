"""Control requests: equal to the bytes of Kafka 3.9.2's controller, in the versions it selects.

The recordings are those of `tests/protocol/test_zookeeper_messages.py`: controller 4 with epoch 2
creates topic `f1` on brokers 9 and 4, and deletes it. They were recorded with
inter.broker.protocol.version 3.9.
"""

import re
import zipfile

import pytest

from sparkraft.base.ids import Uuid
from sparkraft.base.steps import complete
from sparkraft.protocol.codec import decode, decode_from, encode
from sparkraft.protocol.messages.headers import RequestHeader
from sparkraft.protocol.messages.k04_leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from sparkraft.protocol.messages.k05_stop_replica import (
    StopReplicaPartitionError,
    StopReplicaResponse,
)
from sparkraft.zookeeper.controller.context import ControllerContext
from sparkraft.zookeeper.controller.control_messages import (
    MissingListenerError,
    Sender,
    convert_at_once,
    leader_and_isr_errors,
    stop_replica_errors,
)
from sparkraft.zookeeper.controller.protocol_version import parse_protocol_version
from sparkraft.zookeeper.controller.requests import RequestBatch
from sparkraft.zookeeper.controller.values import (
    Broker,
    Endpoint,
    LeaderAndIsr,
    Leadership,
    ReplicaAssignment,
)
from tests.protocol.test_zookeeper_messages import BROKER_EPOCH, RECORDED, TOPIC_ID
from tests.support.kafka_jars import kafka_3_9_jars_or_reason
from tests.support.outside_tools import Missing

F1 = ("f1", 0)
LEADERSHIP = Leadership(LeaderAndIsr(9, (9, 4)), 2)


def broker(number, *, listener="PLAINTEXT", protocol="PLAINTEXT", rack=None):
    endpoint = Endpoint(listener, "127.0.0.1", 26500 + number, protocol)
    return Broker(number, BROKER_EPOCH, (endpoint,), rack)


def cluster():
    context = ControllerContext(epoch=2)
    context.brokers = {4: broker(4), 9: broker(9)}
    context.assign(F1, ReplicaAssignment((9, 4)))
    context.leaderships[F1] = LEADERSHIP
    context.topic_ids["f1"] = TOPIC_ID
    return context, RequestBatch(context)


def sender(version="3.9", listener="PLAINTEXT"):
    return Sender(4, parse_protocol_version(version), listener)


def sent_to(number, batch):
    """The requests of a batch that a broker receives."""
    return [each for each in batch.drain() if each.broker == number]


def recorded_requests():
    """What Kafka's controller did, done here: in the order of the recordings."""
    context, batch = cluster()
    batch.add_update_metadata([9])
    requests = sent_to(9, batch)
    batch.add_leader_and_isr([9], F1, LEADERSHIP, is_new=True)
    requests += sent_to(9, batch)
    context.topics_to_be_deleted.add("f1")
    batch.add_update_metadata([9], [F1])
    requests += sent_to(9, batch)
    for delete in (False, True):
        batch.add_stop_replica(9, F1, delete=delete)
        requests += sent_to(9, batch)
    return requests


def test_the_requests_equal_those_of_kafkas_controller():
    requests = recorded_requests()
    assert len(requests) == len(RECORDED)
    for request, (recorded, _) in zip(requests, RECORDED, strict=True):
        data = bytes.fromhex(recorded)
        header, at = decode_from(RequestHeader, 2, memoryview(data), 0)
        message, version = convert_at_once(request, sender())
        assert version == header.request_api_version
        assert encode(message, version).hex() == data[at:].hex()


@pytest.mark.parametrize(
    ("named", "versions"),
    [
        ("2.6", (4, 6, 3)),
        ("2.7-IV2", (4, 6, 3)),
        ("2.8-IV0", (4, 6, 3)),
        ("2.8-IV1", (5, 7, 3)),
        ("2.8", (5, 7, 3)),
        ("3.1", (5, 7, 3)),
        ("3.2", (6, 7, 3)),
        ("3.3-IV3", (6, 7, 3)),
        ("3.4-IV0", (7, 8, 4)),
        ("3.9.2", (7, 8, 4)),
    ],
)
def test_the_protocol_version_selects_the_versions_of_requests(named, versions):
    _, batch = cluster()
    batch.add_leader_and_isr([9], F1, LEADERSHIP, is_new=True)
    batch.add_stop_replica(9, F1, delete=True)
    messages = [convert_at_once(each, sender(named)) for each in sent_to(9, batch)]
    assert tuple(version for _, version in messages) == versions
    for message, version in messages:
        data = encode(message, version)
        assert encode(decode(type(message), version, data), version) == data


@pytest.mark.parametrize("named", ["", "2.5", "2.6-IV1", "3.9-IV1", "4.0", "3", "3.9x"])
def test_an_unknown_protocol_version_is_refused(named):
    with pytest.raises(ValueError, match=re.escape(repr(named))):
        parse_protocol_version(named)


def test_the_protocol_versions_are_those_of_kafka_3_9():
    jars = kafka_3_9_jars_or_reason()
    if isinstance(jars, Missing):
        pytest.skip(jars.reason)
    jar = next(jars.glob("**/kafka-server-common-3.9*.jar"))
    with zipfile.ZipFile(jar) as archive:
        constants = archive.read("org/apache/kafka/server/common/MetadataVersion.class")
    names = {tuple(map(int, found)) for found in re.findall(rb"IBP_(\d+)_(\d+)_IV(\d+)", constants)}
    supported = {each for each in names if (2, 6) <= each[:2] <= (3, 9)}
    assert len(supported) > 20
    for major, minor, change in supported:
        version = parse_protocol_version(f"{major}.{minor}-IV{change}")
        assert version == (major, minor, change)
        last = max(each for each in supported if each[:2] == (major, minor))
        assert parse_protocol_version(f"{major}.{minor}") == last


def test_the_recovery_state_is_sent_from_3_2_on():
    _, batch = cluster()
    recovering = Leadership(LeaderAndIsr(9, (9,), 1).elect_unclean(9), 2)
    batch.add_leader_and_isr([9], F1, recovering, is_new=False)
    request = sent_to(9, batch)[0]
    states = [
        convert_at_once(request, sender(named)).message.topic_states[0].partition_states[0]
        for named in ("3.1", "3.2")
    ]
    assert [state.leader_recovery_state for state in states] == [0, 1]


def test_the_reassignment_the_rack_and_all_listeners_are_sent():
    context, batch = cluster()
    context.assign(F1, ReplicaAssignment((4, 9, 5), (4,), (5,)))
    tls = Endpoint("CLIENTS", "::1", 26600, "SASL_SSL")
    context.brokers[4] = Broker(4, 7, (*broker(4).endpoints, tls), "r1")
    batch.add_leader_and_isr([9], F1, LEADERSHIP, is_new=False)
    first, second = (convert_at_once(each, sender()).message for each in sent_to(9, batch))
    state = first.topic_states[0].partition_states[0]
    assert (state.replicas, state.adding_replicas, state.removing_replicas) == ([4, 9, 5], [4], [5])
    four = second.live_brokers[0]
    assert four.rack == "r1"
    assert [(each.listener, each.security_protocol) for each in four.endpoints] == [
        ("PLAINTEXT", 0),
        ("CLIENTS", 3),
    ]
    assert second.topic_states[0].partition_states[0].offline_replicas == [5]


def test_a_leader_without_the_inter_broker_listener_fails_the_request():
    _, batch = cluster()
    batch.add_leader_and_isr([9], F1, LEADERSHIP, is_new=False)
    request = sent_to(9, batch)[0]
    with pytest.raises(MissingListenerError, match=r"Broker 9 has no listener named INTERNAL\."):
        convert_at_once(request, sender(listener="INTERNAL"))


def test_errors_of_leader_and_isr_are_found_by_name_and_by_id():
    by_name = LeaderAndIsrPartitionError(topic_name="f1", partition_index=2, error_code=11)
    response = LeaderAndIsrResponse(partition_errors=[by_name])
    assert complete(leader_and_isr_errors(response, {})) == {("f1", 2): 11}
    by_id = LeaderAndIsrPartitionError(partition_index=3, error_code=56)
    unknown = Uuid(bytes([9] * 16))
    response = LeaderAndIsrResponse(
        topics=[
            LeaderAndIsrTopicError(topic_id=TOPIC_ID, partition_errors=[by_id]),
            LeaderAndIsrTopicError(topic_id=unknown, partition_errors=[by_id]),
        ]
    )
    assert complete(leader_and_isr_errors(response, {"f1": TOPIC_ID})) == {("f1", 3): 56}


def test_errors_of_stop_replica_are_those_of_partitions():
    failed = StopReplicaPartitionError(topic_name="f1", partition_index=1, error_code=74)
    response = StopReplicaResponse(partition_errors=[failed])
    assert complete(stop_replica_errors(response)) == {("f1", 1): 74}
