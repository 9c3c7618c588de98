"""Partitions of `__consumer_offsets` move to brokers that serve more types of groups."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from immutables import Map

from sparkraft.base.ids import BrokerId, Uuid
from sparkraft.coordinator.internal_topics import GROUP_METADATA_TOPIC
from sparkraft.metadata.image import EMPTY_IMAGE, BrokerRegistration, ClusterImage, Endpoint, Topic
from sparkraft.metadata.partition_state import PartitionState
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.server.coordinator.external_coordinators import ExternalCoordinators
from sparkraft.server.env import SystemNetwork
from tests.client.test_connection import Peer, api, serving
from tests.server.coordinator.fake_broker import FakeBroker

OURS, KAFKA = 1, 11
BOTH = frozenset({"share", "streams"})
SHARE = frozenset({"share"})


def broker(broker_id: int, port: int) -> BrokerRegistration:
    endpoint = Endpoint("PLAINTEXT", "127.0.0.1", port, 0)
    return BrokerRegistration(
        BrokerId(broker_id), 1, Uuid(bytes(15) + bytes([broker_id])), (endpoint,), Map(), None,
        fenced=False, in_controlled_shutdown=False, directories=(), cordoned_directories=None,
        is_migrating_zk_broker=False,
    )  # fmt: skip


def image_with(replicas: tuple[int, ...], port: int) -> ClusterImage:
    """Two partitions with these replicas, which this broker leads."""
    none = (Uuid.ZERO,) * len(replicas)
    state = PartitionState(replicas, replicas, (), (), OURS, 0, 0, none, (), (), 0)
    topic = Topic(GROUP_METADATA_TOPIC, Uuid(bytes(16)), Map({0: state, 1: state}))
    return EMPTY_IMAGE._replace(
        brokers=Map({OURS: broker(OURS, 1), KAFKA: broker(KAFKA, port)}),
        topics_by_id=Map({topic.id: topic}),
        topics_by_name=Map({topic.name: topic.id}),
    )


class Channel:
    """To the controller: keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[ApiKey, Any]] = []

    async def send(self, request: Any, key: ApiKey, *, timeout_ms: int) -> None:
        assert timeout_ms > 0
        self.sent.append((key, request))


async def requested(
    types: frozenset[str], replicas: tuple[int, ...], *served: ApiKey
) -> list[tuple[ApiKey, Any]]:
    """What is sent to the controller for partition 1; the other broker serves these keys."""

    async def script(peer: Peer) -> None:
        await peer.answer_versions([api(18, 0, 4), *(api(key, 0, 1) for key in served)])

    async with serving(script) as port:
        channel: Any = Channel()
        metadata: Any = SimpleNamespace(image=image_with(replicas, port))
        external = ExternalCoordinators(
            FakeBroker().config, SystemNetwork().connect, metadata, channel, own_topics=()
        )
        await external.move_leader(GROUP_METADATA_TOPIC, 1, types)
        sent: list[tuple[ApiKey, Any]] = channel.sent
        return sent


def test_the_able_broker_is_preferred_first_then_elected() -> None:
    async def test() -> None:
        served = (ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_HEARTBEAT)
        ((key, request),) = await requested(BOTH, (OURS, KAFKA), *served)
        assert key is ApiKey.ALTER_PARTITION_REASSIGNMENTS
        (topic,) = request.topics
        moves = {one.partition_index: one.replicas for one in topic.partitions}
        assert (topic.name, moves) == (GROUP_METADATA_TOPIC, {1: [KAFKA, OURS]})
        ((key, request),) = await requested(BOTH, (KAFKA, OURS), *served)
        assert key is ApiKey.ELECT_LEADERS
        (elected,) = request.topic_partitions
        assert (elected.topic, elected.partitions) == (GROUP_METADATA_TOPIC, [1])

    asyncio.run(test())


@pytest.mark.parametrize("types", [BOTH, SHARE])
def test_a_broker_is_able_if_it_serves_all_types(types: frozenset[str]) -> None:
    async def test() -> None:
        sent = await requested(types, (OURS, KAFKA), ApiKey.SHARE_GROUP_HEARTBEAT)
        assert bool(sent) is (types == SHARE)

    asyncio.run(test())
