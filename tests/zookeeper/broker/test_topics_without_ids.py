"""Topics that the controller names without an id, and that get one (KIP-516).

With inter.broker.protocol.version below 2.8 the controller sends LeaderAndIsr v4 and UpdateMetadata
v6. Kafka 3.9: `ReplicaManager.becomeLeaderOrFollower`, `ZkMetadataCache.updateMetadata`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import Uuid
from sparkraft.base.placeholder_ids import placeholder_id
from sparkraft.coordinator.runtime import MetadataDelta
from sparkraft.protocol.codec import decode, encode
from sparkraft.protocol.messages import k04_leader_and_isr as k04
from sparkraft.protocol.messages import k06_update_metadata as k06
from sparkraft.server.zookeeper.old_forms import (
    normalize_leader_and_isr,
    normalize_update_metadata,
)
from tests.zookeeper.broker.parts import HERE, OTHER, OTHER_ID, TOPIC_ID, Parts, lead, stop, update

T0 = ("t", 0)
NONE, STALE = ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH
DELETED = -2


def run(folder: Path, scenario: Callable[[Parts], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(Parts(folder))

    asyncio.run(main())


def nameless(**fields: int) -> k04.LeaderAndIsrRequest:
    """A LeaderAndIsr of t-0 without the topic's id."""
    return lead(topic_id=Uuid.ZERO, **fields)


def metadata_file(parts: Parts) -> Path:
    log = parts.logs.get("t", 0)
    assert log is not None
    return Path(log.directory) / "partition.metadata"


def test_its_log_has_no_id_and_no_metadata_file(tmp_path):
    async def scenario(parts: Parts) -> None:
        assert await parts.control.lead_and_follow(nameless()) == {T0: NONE}
        assert parts.replicas.leader("t", 0).leader_epoch == 0
        log = parts.logs.get("t", 0)
        assert log is not None
        assert log.topic_id is None
        assert not metadata_file(parts).exists()
        assert await parts.control.lead_and_follow(nameless()) == {T0: STALE}

    run(tmp_path, scenario)


@pytest.mark.parametrize("leader", [HERE, OTHER])
def test_an_id_that_comes_with_the_known_epoch_is_kept_and_the_role_stays(tmp_path, leader):
    async def scenario(parts: Parts) -> None:
        await parts.control.lead_and_follow(nameless(leader=leader))
        hosted = parts.replicas.hosted("t", 0)
        fetched: list[tuple[Uuid, int | None]] = []
        led: list[int | None] = []
        parts.replicas.fetcher_listeners.append(
            lambda replica, leader_id, _: fetched.append((replica.topic_id, leader_id))
        )
        parts.replicas.leadership_listeners.append(lambda *change: led.append(change[2]))
        assert await parts.control.lead_and_follow(lead(leader=leader)) == {T0: NONE}
        assert parts.replicas.hosted("t", 0) is hosted
        assert hosted is not None
        assert (hosted.topic_id, hosted.is_leader) == (TOPIC_ID, leader == HERE)
        assert not led, "coordinators are not loaded again"
        old = placeholder_id("t")
        assert fetched == ([] if leader == HERE else [(old, None), (TOPIC_ID, OTHER)])
        assert metadata_file(parts).read_text() == f"version: 0\ntopic_id: {TOPIC_ID}"
        assert await parts.control.lead_and_follow(lead(leader=leader)) == {T0: STALE}

    run(tmp_path, scenario)


def test_an_id_may_come_with_a_new_epoch(tmp_path):
    async def scenario(parts: Parts) -> None:
        await parts.control.lead_and_follow(nameless())
        moved = lead(leader=OTHER, leader_epoch=1, is_new=False)
        assert await parts.control.lead_and_follow(moved) == {T0: NONE}
        hosted = parts.replicas.hosted("t", 0)
        assert hosted is not None
        assert (hosted.topic_id, hosted.leader_id, hosted.log.topic_id) == (
            TOPIC_ID,
            OTHER,
            TOPIC_ID,
        )

    run(tmp_path, scenario)


def test_a_controller_of_an_older_version_does_not_take_the_id_of_a_log(tmp_path):
    async def scenario(parts: Parts) -> None:
        await parts.control.lead_and_follow(lead())
        later = nameless(leader_epoch=1, controller_epoch=2)
        assert await parts.control.lead_and_follow(later) == {T0: NONE}
        hosted = parts.replicas.hosted("t", 0)
        assert hosted is not None
        assert (hosted.is_leader, hosted.leader_epoch) == (True, 1)
        assert hosted.log.topic_id == TOPIC_ID
        # The next one knows it again.
        again = lead(leader_epoch=1, controller_epoch=3)
        assert await parts.control.lead_and_follow(again) == {T0: STALE}
        assert hosted.topic_id == TOPIC_ID
        other = lead(leader_epoch=2, controller_epoch=3, topic_id=OTHER_ID)
        assert await parts.control.lead_and_follow(other) == {T0: ErrorCode.INCONSISTENT_TOPIC_ID}

    run(tmp_path, scenario)


def test_a_log_with_an_id_of_an_earlier_run_is_hosted(tmp_path):
    async def first(parts: Parts) -> None:
        await parts.control.lead_and_follow(lead())
        parts.logs.close()

    async def second(parts: Parts) -> None:
        assert await parts.control.lead_and_follow(nameless(is_new=False)) == {T0: NONE}
        assert parts.replicas.leader("t", 0).log.topic_id == TOPIC_ID

    run(tmp_path, first)
    run(tmp_path, second)


def test_it_is_stopped_deleted_and_created_again(tmp_path):
    async def scenario(parts: Parts) -> None:
        await parts.control.lead_and_follow(nameless())
        assert await parts.control.stop(stop(leader_epoch=-2, delete=True)) == {T0: NONE}
        assert parts.logs.get("t", 0) is None
        assert await parts.control.lead_and_follow(nameless()) == {T0: NONE}
        assert parts.replicas.leader("t", 0).leader_epoch == 0

    run(tmp_path, scenario)


def test_the_image_has_it_by_name_and_keeps_its_partitions_when_it_gets_an_id(tmp_path):
    async def scenario(parts: Parts) -> None:
        images, deltas = [], []
        parts.images.subscribe(lambda *change: deltas.append(MetadataDelta(*change)))
        for topic_id in (Uuid.ZERO, TOPIC_ID, Uuid.ZERO):
            await parts.control.update(update(HERE, topic_id=topic_id))
            images.append(parts.images.image)
        old = placeholder_id("t")
        ids = [dict(image.topics_by_name) for image in images]
        assert ids == [{"t": old}, {"t": TOPIC_ID}, {"t": old}]
        assert [list(image.topics_by_id) for image in images] == [[old], [TOPIC_ID], [old]]
        assert {image.topic("t").partitions[0].leader for image in images} == {HERE}
        assert not any(delta.deleted_topics for delta in deltas), "its offsets stay"
        # A request without this partition keeps it, under the new id.
        second = update(HERE, OTHER)
        second.topic_states[0].partition_states = second.topic_states[0].partition_states[1:]
        await parts.control.update(second)
        topic = parts.images.image.topic("t")
        assert topic is not None
        assert (topic.id, sorted(topic.partitions)) == (TOPIC_ID, [0, 1])
        await parts.control.update(update(DELETED, DELETED, topic_id=Uuid.ZERO))
        assert not parts.images.image.topics_by_id
        assert not parts.images.image.topics_by_name
        assert deltas[-1].deleted_topics == {"t"}

    run(tmp_path, scenario)


@pytest.mark.parametrize("version", range(8))
def test_every_version_of_leader_and_isr_has_the_same_partitions(tmp_path, version):
    async def scenario(parts: Parts) -> None:
        request = lead()
        if version < 2:
            (topic,) = request.topic_states
            request.ungrouped_partition_states = topic.partition_states
            request.ungrouped_partition_states[0].topic_name = "t"
            request.topic_states = []
        sent = decode(k04.LeaderAndIsrRequest, version, encode(request, version))
        normalize_leader_and_isr(sent)
        assert await parts.control.lead_and_follow(sent) == {T0: NONE}
        assert parts.replicas.leader("t", 0).leader_epoch == 0

    run(tmp_path, scenario)


@pytest.mark.parametrize("version", range(9))
def test_every_version_of_update_metadata_has_the_same_cluster(tmp_path, version):
    async def scenario(parts: Parts) -> None:
        request = update(HERE)
        if version < 5:
            (topic,) = request.topic_states
            request.ungrouped_partition_states = topic.partition_states
            request.ungrouped_partition_states[0].topic_name = "t"
            request.topic_states = []
        if version < 1:
            for broker in request.live_brokers:
                broker.v0_host, broker.v0_port = broker.endpoints[0].host, broker.endpoints[0].port
        sent = decode(k06.UpdateMetadataRequest, version, encode(request, version))
        normalize_update_metadata(sent, version)
        await parts.control.update(sent)
        image = parts.images.image
        topic = image.topic("t")
        assert topic is not None
        assert (topic.partitions[0].leader, topic.partitions[0].leader_epoch) == (HERE, 3)
        endpoint = image.brokers[OTHER].endpoint("PLAINTEXT")
        assert endpoint is not None
        assert (endpoint.host, endpoint.port) == ("host2", 9092)

    run(tmp_path, scenario)
