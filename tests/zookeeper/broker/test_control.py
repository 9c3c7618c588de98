"""LeaderAndIsr, StopReplica and UpdateMetadata of a ZooKeeper controller, on real log directories.

Kafka 3.9: `ReplicaManager.becomeLeaderOrFollower`, `stopReplicas`, `maybeUpdateMetadataCache`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.storage.disk import StorageFault
from tests.zookeeper.broker.parts import HERE, OTHER, OTHER_ID, TOPIC_ID, Parts, lead, stop, update

T0 = ("t", 0)


def run(folder: Path, scenario: Callable[[Parts], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(Parts(folder))

    asyncio.run(main())


def test_a_leader_accepts_records_and_a_higher_epoch_makes_it_a_follower(tmp_path):
    async def scenario(parts: Parts) -> None:
        assert await parts.control.lead_and_follow(lead()) == {T0: ErrorCode.NONE}
        assert parts.replicas.leader("t", 0).leader_epoch == 0
        await parts.control.lead_and_follow(lead(leader=OTHER, leader_epoch=1, is_new=False))
        hosted = parts.replicas.hosted("t", 0)
        assert hosted is not None
        assert (hosted.is_leader, hosted.leader_id) == (False, OTHER)

    run(tmp_path, scenario)


@pytest.mark.parametrize("leader_epoch", [1, 2])
def test_a_leader_epoch_that_is_not_newer_is_error_11(tmp_path, caplog, leader_epoch):
    """Only an older one is logged: a new controller repeats the known one."""

    async def scenario(parts: Parts) -> None:
        await parts.control.lead_and_follow(lead(leader_epoch=2))
        again = await parts.control.lead_and_follow(lead(leader=OTHER, leader_epoch=leader_epoch))
        assert again == {T0: ErrorCode.STALE_CONTROLLER_EPOCH}
        assert parts.replicas.leader("t", 0).leader_epoch == 2

    run(tmp_path, scenario)
    old = (
        "Ignoring LeaderAndIsr of controller 2 with epoch 1 for t-0: its leader epoch 1 is smaller "
        "than the current leader epoch 2"
    )
    assert caplog.messages == ([old] if leader_epoch < 2 else [])


def test_a_partition_of_other_brokers_is_error_3(tmp_path):
    async def scenario(parts: Parts) -> None:
        results = await parts.control.lead_and_follow(lead(leader=OTHER, replicas=(OTHER, 3)))
        assert results == {T0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert parts.replicas.hosted("t", 0) is None

    run(tmp_path, scenario)


def test_another_topic_of_the_same_name_is_error_103(tmp_path):
    async def scenario(parts: Parts) -> None:
        await parts.control.lead_and_follow(lead())
        results = await parts.control.lead_and_follow(lead(leader_epoch=1, topic_id=OTHER_ID))
        assert results == {T0: ErrorCode.INCONSISTENT_TOPIC_ID}

    run(tmp_path, scenario)


def test_requests_of_an_older_controller_are_refused(tmp_path):
    async def scenario(parts: Parts) -> None:
        await parts.control.update(update(controller_epoch=7))
        old = [
            parts.control.lead_and_follow(lead(controller_epoch=6)),
            parts.control.stop(stop(leader_epoch=-1, delete=True, controller_epoch=6)),
            parts.control.update(update(controller_epoch=6)),
        ]
        for request in old:
            with pytest.raises(KafkaError) as refused:
                await request
            assert refused.value.code is ErrorCode.STALE_CONTROLLER_EPOCH
        assert parts.replicas.hosted("t", 0) is None

    run(tmp_path, scenario)


def test_requests_for_an_earlier_registration_are_refused(tmp_path):
    async def scenario(parts: Parts) -> None:
        with pytest.raises(KafkaError) as refused:
            await parts.control.lead_and_follow(lead(broker_epoch=49, controller_epoch=9))
        assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
        assert parts.control.controller_epoch == -1, "a stale request changes nothing"
        for epoch in (-1, 51):
            request = lead(broker_epoch=epoch, leader_epoch=epoch + 1)
            assert (await parts.control.lead_and_follow(request))[T0] is ErrorCode.NONE

    run(tmp_path, scenario)


def test_a_stopped_replica_keeps_its_log_and_a_deleted_one_does_not(tmp_path, caplog):
    async def scenario(parts: Parts) -> None:
        await parts.control.lead_and_follow(lead(leader_epoch=2))
        assert await parts.control.stop(stop(leader_epoch=1, delete=True)) == {
            T0: ErrorCode.FENCED_LEADER_EPOCH
        }
        assert caplog.messages == [
            "Ignoring StopReplica (delete=true) of controller 2 with epoch 1 for t-0: its leader "
            "epoch 1 is smaller than the current leader epoch 2"
        ]
        assert await parts.control.stop(stop(leader_epoch=2, delete=False)) == {T0: ErrorCode.NONE}
        hosted = parts.replicas.hosted("t", 0)
        assert hosted is not None
        assert (hosted.is_leader, hosted.is_follower) == (False, False)
        assert parts.logs.get("t", 0) is not None
        assert await parts.control.stop(stop(leader_epoch=-2, delete=True)) == {T0: ErrorCode.NONE}
        assert parts.logs.get("t", 0) is None
        assert parts.replicas.hosted("t", 0) is None
        # The controller waits for a result of each partition, also after a lost response.
        assert await parts.control.stop(stop(leader_epoch=-2, delete=True)) == {T0: ErrorCode.NONE}
        results = await parts.control.lead_and_follow(lead(topic_id=OTHER_ID))
        assert results == {T0: ErrorCode.NONE}, "the name may be used again"

    run(tmp_path, scenario)


def test_a_replica_that_is_not_new_is_not_created_beside_a_failed_directory(tmp_path):
    async def scenario(parts: Parts) -> None:
        parts.logs.fail_directory(StorageFault(str(tmp_path / "a"), "write", "broken"))
        old = await parts.control.lead_and_follow(lead(is_new=False))
        assert old == {T0: ErrorCode.KAFKA_STORAGE_ERROR}
        new = await parts.control.lead_and_follow(lead(partition=1))
        assert new == {("t", 1): ErrorCode.NONE}

    run(tmp_path, scenario)


def test_a_failed_replica_stays_offline(tmp_path):
    async def scenario(parts: Parts) -> None:
        await parts.control.lead_and_follow(lead())
        hosted = parts.replicas.hosted("t", 0)
        assert hosted is not None
        fault = StorageFault(hosted.log.log_dir, "write", "broken")
        parts.replicas.on_disk_error(fault, hosted)
        for request in (lead(leader_epoch=1), lead(leader_epoch=2, is_new=False)):
            results = await parts.control.lead_and_follow(request)
            assert results == {T0: ErrorCode.KAFKA_STORAGE_ERROR}
        assert await parts.control.stop(stop(leader_epoch=3, delete=True)) == {
            T0: ErrorCode.KAFKA_STORAGE_ERROR
        }

    run(tmp_path, scenario)


def test_update_metadata_publishes_brokers_partitions_and_the_controller(tmp_path):
    async def scenario(parts: Parts) -> None:
        await parts.control.update(update(OTHER, HERE, offline=(HERE,)))
        image = parts.images.image
        assert parts.control.controller_id == OTHER
        node = parts.target.leader_node
        assert node is not None
        assert (node.host, node.port) == ("host2", 9092)
        state = image.partition(TOPIC_ID, 0)
        assert state is not None
        assert (state.leader, state.leader_epoch, state.partition_epoch) == (OTHER, 3, 4)
        assert [image.brokers[each].rack for each in sorted(image.brokers)] == ["r1", "r2"]
        directory = state.directories[state.replicas.index(HERE)]
        assert not image.brokers[HERE].has_online_directory(directory)
        # Only LeaderAndIsr hosts a partition, and the error shows that it exists.
        with pytest.raises(KafkaError) as refused:
            parts.replicas.leader("t", 1)
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(tmp_path, scenario)


def test_update_metadata_without_partitions_replaces_the_brokers_alone(tmp_path):
    async def scenario(parts: Parts) -> None:
        await parts.control.update(update(OTHER))
        await parts.control.update(update(brokers=(HERE,)))
        assert sorted(parts.images.image.brokers) == [HERE]
        assert parts.images.image.topic("t") is not None

    run(tmp_path, scenario)


def test_leader_minus_2_removes_a_partition_and_the_last_one_its_topic(tmp_path):
    async def scenario(parts: Parts) -> None:
        await parts.control.update(update(OTHER, HERE))
        await parts.control.update(update(-2))
        topic = parts.images.image.topic("t")
        assert topic is not None
        assert sorted(topic.partitions) == [1]
        await parts.control.update(update(-2, -2))
        assert parts.images.image.topic("t") is None
        assert not parts.images.image.topics_by_id

    run(tmp_path, scenario)


def test_a_topic_created_again_replaces_the_one_of_the_same_name(tmp_path):
    async def scenario(parts: Parts) -> None:
        await parts.control.update(update(OTHER, HERE))
        await parts.control.update(update(OTHER, topic_id=OTHER_ID))
        image = parts.images.image
        assert list(image.topics_by_id) == [OTHER_ID]
        assert image.topics_by_name["t"] == OTHER_ID

    run(tmp_path, scenario)
