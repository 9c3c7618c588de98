"""Markers reach every partition, once for each leader, until none is missing."""

import asyncio
from collections.abc import Coroutine, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.coordinator.transaction.decision import WriteMarkers
from sparkraft.coordinator.transaction.metadata import TransactionMetadata
from sparkraft.coordinator.transaction.states import TransactionState
from sparkraft.protocol.messages import k27_write_txn_markers as k27
from sparkraft.server.broker.inter_broker_versions import at_protocol_version
from sparkraft.server.coordinator.broker_batches import BrokerBatches
from sparkraft.server.coordinator.marker_log import Marker, MarkerWrite
from sparkraft.server.coordinator.marker_sender import MARKERS_AT_ONCE, MarkerSender
from sparkraft.zookeeper.controller.protocol_version import parse_protocol_version
from tests.server.harness import make_env, until

OWN, OTHER = 1, 2
NONE = ErrorCode.NONE
MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER


def spawn(work: Coroutine[Any, Any, Any], name: str) -> Any:
    return asyncio.get_running_loop().create_task(work, name=name)


class Cluster:
    """Two brokers; `codes` are the next answers of each partition, then NONE.

    Markers of `uncommitted` topics are committed once `commit` is set.
    """

    def __init__(self, leaders: dict[str, int]) -> None:
        self.leaders = leaders
        self.codes: dict[str, list[ErrorCode]] = {}
        self.requests: list[k27.WriteTxnMarkersRequest] = []
        self.local: list[str] = []
        self.uncommitted: set[str] = set()
        self.commit = asyncio.Event()
        self.unreachable = 0
        config: Any = SimpleNamespace(node_id=OWN, number=lambda _: 1000)
        shared: Any = self
        self.sender = MarkerSender(
            config,
            shared,
            shared,
            shared,
            make_env(),
            spawn,
            versions=lambda: at_protocol_version(parse_protocol_version("2.7")),
        )

    @property
    def image(self) -> Any:
        return SimpleNamespace(topic=self._topic)

    def _topic(self, name: str) -> Any:
        if name not in self.leaders:
            return None
        return SimpleNamespace(partitions={0: SimpleNamespace(leader=self.leaders[name])})

    def _code(self, topic: str) -> ErrorCode:
        codes = self.codes.get(topic)
        return codes.pop(0) if codes else NONE

    # MarkerLog

    async def write_all(self, writes: Iterable[MarkerWrite]) -> list[ErrorCode]:
        return [self._code_of(*one) for one in writes]

    def write(self, marker: Marker, topic: str, index: int) -> Any:
        code = self._code_of(marker, topic, index)
        if topic not in self.uncommitted:
            return code
        return asyncio.ensure_future(self._committed(code))

    def _code_of(self, marker: Marker, topic: str, index: int) -> ErrorCode:
        assert (marker.producer_id, index) == (4000, 0)
        self.local.append(topic)
        return self._code(topic)

    async def _committed(self, code: ErrorCode) -> None:
        await self.commit.wait()
        if code is not NONE:
            raise KafkaError(code)

    # BrokerConnections

    async def send(self, broker_id: int, request: Any, *, timeout_ms: int, at_most: int) -> Any:
        assert (broker_id, timeout_ms) == (OTHER, 1000)
        assert at_most == 0, "with inter.broker.protocol.version below 2.8"
        self.requests.append(request)
        await asyncio.sleep(0)
        if self.unreachable:
            self.unreachable -= 1
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION)
        return k27.WriteTxnMarkersResponse(
            markers=[
                k27.WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        k27.WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                k27.WritableTxnMarkerPartitionResult(
                                    partition_index=0, error_code=self._code(topic.name)
                                )
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )

    async def run(self, *topics: str, current: bool = True, producer_id: int = 4000) -> None:
        writing = self.begin(*topics, current=current, producer_id=producer_id)
        if writing is not None:
            await writing

    def begin(self, *topics: str, current: bool = True, producer_id: int = 4000) -> Any:
        return self.sender.write(effect(*topics, producer_id=producer_id), lambda _: current)


def effect(*topics: str, producer_id: int = 4000) -> WriteMarkers:
    metadata = TransactionMetadata(
        transactional_id="tx",
        producer_id=producer_id,
        producer_epoch=3,
        timeout_ms=1,
        updated_ms=1,
        state=TransactionState.PREPARE_COMMIT,
        partitions=frozenset((topic, 0) for topic in topics),
        client_version=2,
    )
    return WriteMarkers(metadata=metadata, coordinator_epoch=7)


def test_each_leader_gets_the_markers_of_its_partitions() -> None:
    cluster = Cluster({"a": OWN, "b": OTHER, "c": OTHER})
    asyncio.run(cluster.run("a", "b", "c", "deleted"))
    assert cluster.local == ["a"]
    ((marker,),) = (request.markers for request in cluster.requests)
    assert [topic.name for topic in marker.topics] == ["b", "c"]
    assert (marker.coordinator_epoch, marker.transaction_version) == (7, 2)
    assert (marker.producer_epoch, marker.transaction_result) == (3, True)


def test_markers_of_partitions_led_here_are_written_at_once() -> None:
    cluster = Cluster({"a": OWN, "b": OWN})
    assert cluster.begin("b", "a") is None
    assert (cluster.local, cluster.requests) == (["a", "b"], [])


def test_a_marker_that_must_be_replicated_is_waited_for() -> None:
    async def test() -> None:
        cluster = Cluster({"a": OWN, "b": OWN, "c": OWN})
        cluster.uncommitted = {"b", "c"}
        cluster.codes = {"a": [MOVED], "c": [ErrorCode.NOT_COORDINATOR]}
        writing = asyncio.ensure_future(cluster.begin("a", "b", "c"))
        await asyncio.sleep(0)
        assert (cluster.local, writing.done()) == (["a", "b", "c"], False)
        cluster.commit.set()
        await writing
        assert cluster.local == ["a", "b", "c", "a", "c"], "those that are missing are repeated"

    asyncio.run(test())


def test_a_transaction_of_many_partitions_is_not_completed_at_once() -> None:
    names = [f"{number:03d}" for number in range(MARKERS_AT_ONCE + 1)]
    cluster = Cluster(dict.fromkeys(names, OWN))
    writing = cluster.begin(*names)
    assert (cluster.local, writing is None) == ([], False)
    asyncio.run(writing)
    assert cluster.local == names


def test_only_missing_markers_are_repeated() -> None:
    cluster = Cluster({"a": OWN, "b": OTHER, "c": OTHER})
    cluster.codes = {"b": [MOVED, ErrorCode.NOT_ENOUGH_REPLICAS]}
    asyncio.run(cluster.run("a", "b", "c"))
    assert cluster.local == ["a"]
    sent = [[topic.name for topic in one.markers[0].topics] for one in cluster.requests]
    assert sent == [["b", "c"], ["b"], ["b"]]


def test_partitions_are_looked_up_again() -> None:
    async def test() -> None:
        cluster = Cluster({"a": -1, "b": OTHER})
        cluster.unreachable = 1
        running = asyncio.ensure_future(cluster.run("a", "b"))
        await until(lambda: len(cluster.requests) == 2)
        cluster.leaders["a"] = OWN
        await running
        assert cluster.local == ["a"]

    asyncio.run(test())


def test_a_topic_is_deleted_while_its_marker_is_repeated() -> None:
    """TransactionMarkerChannelManager: a partition that is not in the metadata needs no marker."""

    async def test() -> None:
        cluster = Cluster({"a": -1, "b": OTHER})
        cluster.codes = {"b": [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2}
        running = asyncio.ensure_future(cluster.run("a", "b"))
        await until(lambda: cluster.requests)
        assert not running.done()
        del cluster.leaders["a"], cluster.leaders["b"]
        await running
        assert cluster.local == []

    asyncio.run(test())


@pytest.mark.parametrize(
    "code", [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION]
)
def test_a_partition_that_cannot_have_markers_needs_none(code: ErrorCode) -> None:
    """TransactionMarkerRequestCompletionHandler removes it like one that has its marker."""
    cluster = Cluster({"a": OWN, "b": OTHER})
    cluster.codes = {"a": [code], "b": [code]}
    asyncio.run(cluster.run("a", "b"))
    assert (cluster.local, len(cluster.requests)) == (["a"], 1)


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED]
)
def test_a_fenced_marker_ends_the_attempt(code: ErrorCode) -> None:
    cluster = Cluster({"a": OWN})
    cluster.codes = {"a": [code]}
    with pytest.raises(KafkaError, match=code.name):
        asyncio.run(cluster.run("a"))


def test_a_former_coordinator_stops() -> None:
    cluster = Cluster({"a": OWN})
    cluster.codes = {"a": [MOVED] * 100}
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        asyncio.run(cluster.run("a", current=False))
    assert cluster.local == ["a"]


def test_markers_that_wait_share_the_next_request() -> None:
    async def test() -> None:
        cluster = Cluster({"b": OTHER})
        first = asyncio.ensure_future(cluster.run("b", producer_id=10))
        await until(lambda: cluster.requests)
        await asyncio.gather(*(cluster.run("b", producer_id=number) for number in range(5)))
        await first
        assert [len(one.markers) for one in cluster.requests] == [1, 5]

    asyncio.run(test())


def test_every_item_of_a_failed_batch_gets_the_error() -> None:
    async def send(_broker_id: int, _items: list[int]) -> list[int]:
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION)

    async def test() -> None:
        batches = BrokerBatches(send, spawn, "items", size_of=lambda _: 1)
        results = await asyncio.gather(
            *(batches.submit(2, number) for number in range(3)), return_exceptions=True
        )
        assert [getattr(one, "code", None) for one in results] == [ErrorCode.NETWORK_EXCEPTION] * 3

    asyncio.run(test())
