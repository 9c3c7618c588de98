"""Requests that list the whole cluster, or long histories, are answered in pieces."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.base.loop_work import LOOP_WORK_MAX
from sparkraft.base.ordering import NAMES, in_order
from sparkraft.controller.leader_election import Cause, CauseKind
from sparkraft.controller.past_events import BrokerEvent, PartitionEvent
from sparkraft.controller.reassignment import list_partition_reassignments
from sparkraft.metadata.apply import apply
from sparkraft.metadata.image import EMPTY_IMAGE, ClusterImage
from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.protocol.codec import decode
from sparkraft.protocol.messages import k46_list_partition_reassignments as k46m
from sparkraft.protocol.messages.k04_leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from sparkraft.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from sparkraft.protocol.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from sparkraft.protocol.messages.k48_describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from sparkraft.protocol.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    TopicData,
    TransactionState,
)
from sparkraft.protocol.messages.k74_list_config_resources import ListConfigResourcesRequest
from sparkraft.protocol.messages.k10002_describe_history import (
    DescribeHistoryRequest,
    HistoryTopic,
)
from sparkraft.protocol.messages.metadata_records import (
    ClientQuotaRecord,
    EntityData,
    PartitionRecord,
    TopicRecord,
)
from sparkraft.server.api import k04_leader_and_isr as k04
from sparkraft.server.api import k10_find_coordinator as k10
from sparkraft.server.api import k23_offset_for_leader_epoch as k23
from sparkraft.server.api import k46_list_partition_reassignments as k46
from sparkraft.server.api import k48_describe_client_quotas as k48
from sparkraft.server.api import k65_describe_transactions as k65
from sparkraft.server.api import k74_list_config_resources as k74
from sparkraft.server.api import k10002_describe_history as k10002
from sparkraft.server.api.encoded_array import CHUNK
from sparkraft.server.api.history_values import OUT_OF_SYNC_MAX
from sparkraft.server.api.registry import RequestContext
from sparkraft.server.env import Env, SystemClock
from tests.support.sessions import client_session

PARTITIONS = 4 * CHUNK
EVENTS = 1_000


def carried_out(key: ApiKey, handle: Any, node: Any, request: Any) -> tuple[list[int], Any]:
    """The units of each piece, and the decoded response."""
    version = API_INFO[key].max_version
    context = RequestContext(
        key, version, 1, "client", session=client_session(), connection=None, received_ms=0,
    )  # fmt: skip
    steps, units, sent = handle(node, context, request), [], None
    while True:
        try:
            got = steps.send(sent)
        except StopIteration as end:
            return units, decode(API_INFO[key].response_class(), version, b"".join(end.value))
        sent = None
        if isinstance(got, int):
            units.append(got)
        else:
            sent = awaited(got)


def awaited(work: Any) -> Any:
    """The result of a coroutine that waits for nothing."""
    with pytest.raises(StopIteration) as end:
        work.send(None)
    return end.value.value


def image_of(topics: int, partitions: int) -> ClusterImage:
    image = EMPTY_IMAGE
    for number in range(topics):
        topic_id = Uuid((number + 1).to_bytes(16, "big"))
        name = f"t{(number * 7_919) % 100_003:06d}"
        image = apply(image, TopicRecord(name=name, topic_id=topic_id))
        for index in range(partitions):
            record = PartitionRecord(
                partition_id=index, topic_id=topic_id, replicas=[1, 2], isr=[1], leader=1
            )
            image = apply(image, record)
    return image


def test_names_are_sorted_in_pieces() -> None:
    names = [f"{(number * 7_919) % 100_003}" for number in range(3 * NAMES + 1)]
    pieces = 0

    def counted() -> Any:
        nonlocal pieces
        steps = in_order(names)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value
            pieces += 1

    assert list(counted()) == sorted(names)
    assert pieces == 4


class Past:
    """A history in which every partition and broker has as many changes as are returned."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.start = 0
        self.at_ms = 5

    async def read(self, _: Any) -> "Past":
        return self

    def partition_events(self, topic_id: Uuid, index: int) -> list[PartitionEvent]:
        state = self.image.partition(topic_id, index)
        cause = Cause(CauseKind.FENCED, "a cause")
        return [
            PartitionEvent(
                offset=n, at_ms=1, epoch=1, topic="t", topic_id=topic_id, partition=index,
                before=state, after=state, cause=cause,
            )
            for n in range(EVENTS)
        ]  # fmt: skip

    def broker_events(self, broker_id: int) -> list[BrokerEvent]:
        return [BrokerEvent(n, 1, broker_id, 1, "registered") for n in range(EVENTS)]

    def elections_of(self, _: int) -> list[PartitionEvent]:
        (topic_id,) = self.image.topics_by_id
        return self.partition_events(topic_id, 0)


def test_a_long_history_is_described_and_encoded_in_pieces_and_a_broker_once() -> None:
    past = Past(image_of(1, PARTITIONS))
    node = SimpleNamespace(
        controller=None, image=past.image, raft=SimpleNamespace(node_id=1, past=past)
    )
    (name,) = past.image.topics_by_name
    request = DescribeHistoryRequest(
        topics=[HistoryTopic(name=name, partitions=[0, 1, 2])], broker_ids=[2, 1, 2] + [9] * 50
    )
    units, response = carried_out(ApiKey.DESCRIBE_HISTORY, k10002.handle, node, request)
    assert max(units) <= CHUNK
    assert sum(units) >= 3 * EVENTS * k10002.UNITS_OF_CHANGE
    assert [len(each.events) for each in response.partitions] == [EVENTS] * 3
    assert response.partitions[0].events[7].offset == 7
    assert [one.broker_id for one in response.brokers] == [2, 1, 9]
    second, first, unknown = response.brokers
    assert (first.replicas, first.leads, first.in_sync) == (PARTITIONS, PARTITIONS, PARTITIONS)
    assert (second.replicas, second.leads, second.in_sync) == (PARTITIONS, 0, 0)
    assert [one.partition for one in second.out_of_sync] == list(range(OUT_OF_SYNC_MAX))
    assert unknown.replicas == 0
    assert len(first.changes) == len(first.elections) == EVENTS


def test_config_resources_are_listed_in_order_in_pieces() -> None:
    image = image_of(PARTITIONS, 0)
    node = SimpleNamespace(image=image)
    units, response = carried_out(
        ApiKey.LIST_CONFIG_RESOURCES, k74.handle, node, ListConfigResourcesRequest()
    )
    assert max(units) <= CHUNK
    assert sum(units) >= PARTITIONS
    names = [one.resource_name for one in response.config_resources]
    assert names == sorted(image.topics_by_name)


def test_the_results_of_many_partitions_of_leader_and_isr_are_encoded_in_pieces() -> None:
    async def lead_and_follow(_: Any) -> dict[tuple[str, int], int]:
        return {("t", index): index % 2 for index in range(PARTITIONS)}

    node = SimpleNamespace(controlled=SimpleNamespace(lead_and_follow=lead_and_follow))
    states = [LeaderAndIsrPartitionState(partition_index=index) for index in range(PARTITIONS)]
    topic = LeaderAndIsrTopicState(
        topic_name="t", topic_id=Uuid(bytes(16)), partition_states=states
    )
    request = LeaderAndIsrRequest(topic_states=[topic])
    units, response = carried_out(ApiKey.LEADER_AND_ISR, k04.handle, node, request)
    assert max(units) <= CHUNK
    assert sum(units) >= PARTITIONS
    (found,) = response.topics
    assert [one.error_code for one in found.partition_errors] == [0, 1] * (PARTITIONS // 2)


def test_ends_of_epochs_of_very_many_partitions_are_found_in_pieces() -> None:
    def leader(_: str, index: int) -> Any:
        if index % 2:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = SimpleNamespace(end_offset_for_epoch=lambda epoch: (epoch, index))
        return SimpleNamespace(check_epoch=lambda _: None, log=log)

    node = SimpleNamespace(replica_manager=SimpleNamespace(leader=leader))
    parts = [OffsetForLeaderPartition(partition=n, leader_epoch=3) for n in range(PARTITIONS)]
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic="t", partitions=parts)]
    )
    units, response = carried_out(ApiKey.OFFSET_FOR_LEADER_EPOCH, k23.handle, node, request)
    assert max(units) <= CHUNK
    assert sum(units) >= PARTITIONS
    found = response.topics[0].partitions
    assert [(one.error_code, one.end_offset) for one in found[:4]] == [
        (0, 0),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        (0, 2),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
    ]


def test_coordinators_of_very_many_keys_are_found_in_pieces() -> None:
    async def discover(_: int, keys: list[str]) -> None:
        discovered.extend(keys)

    discovered: list[str] = []
    coordinators = SimpleNamespace(
        needs_discovery=lambda _: True,
        discover=discover,
        locate=lambda *_: SimpleNamespace(broker_id=9, problem="gone"),
    )
    node = SimpleNamespace(coordinators=coordinators, image=EMPTY_IMAGE)
    keys = [f"group-{number}" for number in range(PARTITIONS)]
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=keys)
    units, response = carried_out(ApiKey.FIND_COORDINATOR, k10.handle, node, request)
    assert max(units) <= CHUNK
    assert sum(units) >= 2 * PARTITIONS
    assert discovered == keys
    assert [one.key for one in response.coordinators] == keys
    assert {one.error_code for one in response.coordinators} == {
        ErrorCode.COORDINATOR_NOT_AVAILABLE
    }


def test_large_transactions_are_described_in_pieces() -> None:
    async def later(state: TransactionState) -> TransactionState:
        return state

    def execute_read(read: Any) -> Any:
        return later(read(shard, None))

    def describe(transactional_id: str) -> TransactionState:
        topics = [TopicData(topic="t", partitions=list(range(CHUNK)))]
        return TransactionState(transactional_id=transactional_id, topics=topics)

    shard = SimpleNamespace(describe=describe)
    runtime = SimpleNamespace(execute_read=execute_read)
    node = SimpleNamespace(transactions=SimpleNamespace(shard_for=lambda _: runtime))
    ids = [f"x-{number}" for number in range(CHUNK)] + [""]
    request = DescribeTransactionsRequest(transactional_ids=ids)
    units, response = carried_out(ApiKey.DESCRIBE_TRANSACTIONS, k65.handle, node, request)
    assert max(units) <= CHUNK
    assert len(units) == len(ids)
    assert [one.transactional_id for one in response.transaction_states] == ids
    assert response.transaction_states[-1].error_code == ErrorCode.INVALID_REQUEST
    assert len(response.transaction_states[0].topics[0].partitions) == CHUNK


def test_very_many_quotas_are_described_in_pieces() -> None:
    image = EMPTY_IMAGE
    count = 3 * NAMES
    for number in range(count):
        entity = [EntityData(entity_type="user", entity_name=f"u{(number * 7_919) % 100_003:06d}")]
        record = ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=float(number))
        image = apply(image, record)
    request = DescribeClientQuotasRequest(
        components=[ComponentData(entity_type="user", match_type=2, match=None)]
    )
    node = SimpleNamespace(image=image)
    units, response = carried_out(ApiKey.DESCRIBE_CLIENT_QUOTAS, k48.handle, node, request)
    assert max(units) <= CHUNK
    assert sum(units) >= count
    names = [entry.entity[0].entity_name for entry in response.entries]
    assert names == sorted(names)
    assert len(set(names)) == count


class Deciding:
    """A controller that decides ListPartitionReassignments, and counts what it looks up."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.config = SimpleNamespace(is_zookeeper=False)
        self.env = Env(network=None, clock=SystemClock(), entropy=None, disk=None, executor=None)  # type: ignore[arg-type]
        self.mutation_quotas = None
        self.looked_up: list[int] = []

    @property
    def controller(self) -> "Deciding":
        return self

    async def submit(self, _key: ApiKey, request: Any, **_: Any) -> Any:
        assert request.topics is not None
        self.looked_up.append(sum(len(topic.partition_indexes) for topic in request.topics))
        context: Any = SimpleNamespace(image=self.image)
        call: Any = SimpleNamespace(request=request)
        return list_partition_reassignments(context, call).response


@pytest.mark.parametrize("named", [False, True], ids=["all", "named"])
def test_the_reassignments_of_very_many_partitions_are_looked_up_in_parts(named: bool) -> None:
    image = image_of(5, LOOP_WORK_MAX.partitions)
    for topic in list(image.topics_in_order())[1:3]:
        for index in range(0, LOOP_WORK_MAX.partitions, 7):
            moving = PartitionRecord(
                partition_id=index, topic_id=topic.id, replicas=[1, 2, 3], isr=[1], leader=1,
                adding_replicas=[3],
            )  # fmt: skip
            image = apply(image, moving)
    names = sorted(image.topics_by_name)
    indexes = list(range(LOOP_WORK_MAX.partitions))
    topics = [
        k46m.ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
        for name in names
    ]
    request = k46m.ListPartitionReassignmentsRequest(topics=topics if named else None)
    node: Any = Deciding(image)
    context = RequestContext(
        ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 1, "client", session=client_session(),
        connection=None, received_ms=0,
    )  # fmt: skip
    response = asyncio.run(k46.handle(node, context, request))
    assert max(node.looked_up) <= LOOP_WORK_MAX.partitions
    assert sum(node.looked_up) == 5 * LOOP_WORK_MAX.partitions
    assert [topic.name for topic in response.topics] == names[1:3]
    for topic in response.topics:
        moved = [partition.partition_index for partition in topic.partitions]
        assert moved == list(range(0, LOOP_WORK_MAX.partitions, 7))
    nothing = k46m.ListPartitionReassignmentsRequest(topics=[])
    assert asyncio.run(k46.handle(node, context, nothing)).topics == []


def test_topics_may_be_deleted_while_their_reassignments_are_listed() -> None:
    node: Any = Deciding(image_of(3, 2))
    env = node.env

    async def carry_out(steps: Any) -> Any:
        names = await env.turn(1).carry_out(steps)
        node.image = EMPTY_IMAGE
        return names

    node.env = SimpleNamespace(
        turn=lambda _: SimpleNamespace(carry_out=carry_out),
        turns=env.turns,
        work_max=env.work_max,
    )
    context = RequestContext(
        ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 1, "client", session=client_session(),
        connection=None, received_ms=0,
    )  # fmt: skip
    every = k46m.ListPartitionReassignmentsRequest(topics=None)
    assert asyncio.run(k46.handle(node, context, every)).topics == []
    assert sum(node.looked_up) == 3 * 2
