"""Bootstrap lists, retries, and metadata that only moves forward."""

import asyncio

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster, _topic_of, parse_bootstrap
from sparkraft.protocol.messages.k03_metadata import (
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from sparkraft.protocol.messages.k55_describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
)
from sparkraft.protocol.messages.k60_describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("a:1,b:2 , c", [("a", 1), ("b", 2), ("c", 9092)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("PLAINTEXT://h:1", [("h", 1)]),
    ],
)
def test_a_bootstrap_list_is_read(text, expected):
    assert parse_bootstrap(text) == expected


@pytest.mark.parametrize("text", ["", " , ", "host:", "host:x", "host:0", "host:65536", ":9092"])
def test_a_list_without_a_usable_address_is_refused(text):
    with pytest.raises(ValueError, match="host:port"):
        parse_bootstrap(text)


def attempts(*outcomes):
    left = list(outcomes)

    async def attempt():
        outcome = left.pop(0)
        if isinstance(outcome, ErrorCode):
            raise KafkaError(outcome)
        return outcome

    attempt.left = left
    return attempt


def test_retriable_errors_are_tried_again():
    attempt = attempts(ErrorCode.NOT_COORDINATOR, ErrorCode.LEADER_NOT_AVAILABLE, "done")
    assert asyncio.run(Cluster("h:1").retrying(attempt)) == "done"


def test_another_error_is_raised_at_once():
    attempt = attempts(ErrorCode.INVALID_TOPIC_EXCEPTION, "never")
    with pytest.raises(KafkaError):
        asyncio.run(Cluster("h:1").retrying(attempt))
    assert attempt.left == ["never"]


def test_time_that_is_up_ends_the_retries_with_the_last_error():
    attempt = attempts(ErrorCode.NOT_COORDINATOR, "never")
    with pytest.raises(KafkaError) as refused:
        asyncio.run(Cluster("h:1", api_timeout_ms=1).retrying(attempt))
    assert refused.value.code is ErrorCode.NOT_COORDINATOR


class Controllers(Cluster):
    """Three of them, of which each tells who leads by what it knows; -2 refuses connections."""

    def __init__(self, *told: int):
        super().__init__("h:1,h:2,h:3", to_controllers=True)
        self.told = {n + 1: leader for n, leader in enumerate(told)}
        self.asked: list[int] = []

    async def connect(self, host, port, *, parked=False):
        if self.told[port] == -2:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "refused")
        return port

    async def _ask(self, connection, request, version):
        self.asked.append(connection)
        if isinstance(request, DescribeQuorumRequest):
            leads = connection == self.told[3]
            code = ErrorCode.NONE if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER
            part = DescribeQuorumResponsePartitionData(error_code=code, leader_id=connection)
            topic = DescribeQuorumResponseTopicData(partitions=[part])
            return DescribeQuorumResponse(topics=[topic])
        nodes = [DescribeClusterBroker(broker_id=n, host="h", port=n) for n in self.told]
        return DescribeClusterResponse(controller_id=self.told[connection], brokers=nodes)


@pytest.mark.parametrize("told", [(-1, 2, 2), (-2, -1, 2), (1, 2, 2), (3, 3, 2)])
def test_a_controller_that_is_cut_off_does_not_hide_the_leader(told):
    async def test():
        client = Controllers(*told)
        return (await Admin(client).describe_quorum()).leader_id

    assert asyncio.run(test()) == told[2]


@pytest.mark.parametrize(
    ("told", "code"),
    [
        ((-1, -2, -1), ErrorCode.NOT_CONTROLLER),
        ((-2, -2, -1), ErrorCode.NOT_CONTROLLER),
        ((-2, -2, -2), ErrorCode.NETWORK_EXCEPTION),
    ],
)
def test_without_a_leader_all_controllers_are_asked(told, code):
    client = Controllers(*told)
    with pytest.raises(KafkaError) as refused:
        asyncio.run(client.ask_controller(DescribeQuorumRequest()))
    assert refused.value.code is code
    assert client.asked == [n for n, leader in client.told.items() if leader != -2]


def topic(topic_id: Uuid, leader: int, epoch: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name="t",
        topic_id=topic_id,
        partitions=[
            MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)
        ],
    )


def test_an_older_leader_epoch_does_not_replace_a_newer():
    one = Uuid(bytes(15) + b"\x01")
    known = _topic_of(topic(one, leader=2, epoch=5), None)
    assert _topic_of(topic(one, leader=1, epoch=4), known).partitions[0].leader == 2
    assert _topic_of(topic(one, leader=3, epoch=6), known).partitions[0].leader == 3


def test_a_topic_made_anew_starts_over():
    known = _topic_of(topic(Uuid(bytes(15) + b"\x01"), leader=2, epoch=5), None)
    again = _topic_of(topic(Uuid(bytes(15) + b"\x02"), leader=1, epoch=0), known)
    assert again.partitions[0].leader == 1


def test_a_newer_kafkas_error_code_is_no_crash():
    from sparkraft.client.cluster import check

    with pytest.raises(KafkaError) as refused:
        check(9_999)
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
