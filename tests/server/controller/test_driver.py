"""The controller's driver on a raft that is a list: decisions, commits, leadership, timers."""

import asyncio
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import BrokerId, LeaderEpoch, Millis, Offset
from sparkraft.base.loop_work import LOOP_WORK_MAX
from sparkraft.controller.controller import Controller
from sparkraft.controller.decision import RECORDS_PER_BATCH
from sparkraft.controller.decision_context import ControllerConfig
from sparkraft.metadata import replay
from sparkraft.metadata.snapshot import records_of
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import k19_create_topics as k19
from sparkraft.protocol.messages import k44_incremental_alter_configs as k44
from sparkraft.protocol.messages import k56_alter_partition as k56
from sparkraft.protocol.messages import k62_broker_registration as k62
from sparkraft.protocol.messages import k63_broker_heartbeat as k63
from sparkraft.raft.voters import ReplicaKey, Voter, VoterSet
from sparkraft.server.controller.driver import ControllerDriver, Intervals
from sparkraft.server.controller.snapshots import MetadataSnapshots
from sparkraft.server.loop_turns import LoopTurns, Turn
from sparkraft.server.raft.metadata_log_listener import CommittedBatch
from tests.controller.cluster_of import CLUSTER_ID, Cluster, Dice

BOUND_S = 60
ITERATIONS_MAX = 10_000


class Clock:
    def __init__(self) -> None:
        self.ms = 1000

    def wall_ms(self) -> Millis:
        return Millis(self.ms)

    def mono_ms(self) -> Millis:
        return Millis(self.ms)


class ListRaft:
    """A quorum of one that commits when the test says so."""

    def __init__(self) -> None:
        self.batches: list[CommittedBatch] = []
        self.snapshots: list[tuple[int, int, list[Any]]] = []
        self.refuse = False
        self.on_append: Callable[[], None] = lambda: None

    @property
    def log_end_offset(self) -> Offset:
        # Offset 0 is raft's own record of the new leader.
        return Offset(self.batches[-1].last_offset + 1 if self.batches else 1)

    @property
    def voters(self) -> VoterSet:
        return VoterSet.of([Voter(key=ReplicaKey(BrokerId(1)), endpoints=())])

    def encode(self, records: list[tuple[Any, int]]) -> Generator[int, None, str]:
        yield len(records)
        return "encoded"

    def append_now(
        self, records: list[tuple[Any, int]], *, epoch: int, encoded: str | None
    ) -> Offset:
        assert (encoded is not None) == (len(records) > RECORDS_PER_BATCH)
        if self.refuse:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        base = self.log_end_offset
        last = Offset(base + len(records) - 1)
        messages = [message for message, _ in records]
        self.batches.append(
            CommittedBatch(base, last, LeaderEpoch(epoch), Millis(0), 100, messages)
        )
        self.on_append()
        return last

    async def create_snapshot(self, offset: int, epoch: int, records: Iterator[Any]) -> bool:
        made = [record for record in records if record is not None]
        self.snapshots.append((offset, epoch, made))
        return True


class World:
    def __init__(self, **intervals: Any) -> None:
        self.raft, self.clock = ListRaft(), Clock()
        self.turns, self.units_max = LoopTurns(), LOOP_WORK_MAX.partitions
        config = ControllerConfig(cluster_id=CLUSTER_ID, node_id=1, voter_ids=(1,))
        self.core = Controller(config, Dice())
        self.driver = ControllerDriver(
            self.raft,  # type: ignore[arg-type]
            self.core,
            self.clock,
            lambda: Turn(self.turns, self.clock, self.units_max),
            intervals=Intervals(**intervals),
        )
        self.committed = 0

    def commit(self) -> None:
        for batch in self.raft.batches[self.committed :]:
            self.driver.on_commit(batch)
        self.committed = len(self.raft.batches)

    def lead(self, epoch: int = 1) -> None:
        self.driver.on_leader_change(1, LeaderEpoch(epoch))  # type: ignore[arg-type]

    async def register(self, broker_id: int = 1) -> Any:
        sketch = Cluster()
        sketch.register(broker_id)
        broker = sketch.core.latest.brokers[broker_id]
        request = k62.BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=broker.incarnation_id,
            log_dirs=list(broker.directories),
            features=[
                k62.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in broker.supported_features.items()
            ],
        )
        return await self.ask(ApiKey.BROKER_REGISTRATION, request)

    async def heartbeat(self, broker_id: int = 1, **fields: Any) -> Any:
        request = k63.BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.core.latest.brokers[broker_id].epoch,
            current_metadata_offset=self.core.latest.offset,
            **fields,
        )
        return await self.ask(ApiKey.BROKER_HEARTBEAT, request)

    async def ask(self, key: ApiKey, request: Any, version: int = 7) -> Any:
        """Submit, commit what comes of it, and wait for the answer."""
        asked = asyncio.ensure_future(self.driver.submit(key, request, version=version))
        for _ in range(ITERATIONS_MAX):
            await asyncio.sleep(0)
            self.commit()
            if asked.done():
                break
        return await asyncio.wait_for(asked, BOUND_S)


def topics(*names: str) -> k19.CreateTopicsRequest:
    return k19.CreateTopicsRequest(
        topics=[k19.CreatableTopic(name=n, num_partitions=1, replication_factor=1) for n in names]
    )


def run(scenario: Callable[[World], Any], **intervals: Any) -> None:
    async def main() -> None:
        await scenario(World(**intervals))

    asyncio.run(main())


def test_a_leader_bootstraps_an_empty_log():
    async def scenario(world: World) -> None:
        world.lead()
        assert world.driver.is_active
        assert not world.driver.image.features
        world.commit()
        assert world.driver.image.metadata_version == 30
        assert world.driver.image.offset == world.raft.batches[-1].last_offset

    run(scenario)


def test_an_answer_waits_for_the_commit():
    async def scenario(world: World) -> None:
        world.lead()
        await world.register()
        await world.heartbeat()
        asked = asyncio.ensure_future(
            world.driver.submit(ApiKey.CREATE_TOPICS, topics("t"), version=7)
        )
        for _ in range(5):
            await asyncio.sleep(0)
        assert not asked.done()
        assert world.core.latest.topic("t") is not None
        assert world.driver.image.topic("t") is None
        world.commit()
        answer = await asyncio.wait_for(asked, BOUND_S)
        assert answer.topics[0].error_code == 0
        assert world.driver.image.topic("t") is not None

    run(scenario)


def test_a_refusal_that_read_what_is_not_committed_waits_too():
    async def scenario(world: World) -> None:
        world.lead()
        await world.register()
        await world.heartbeat()
        first = asyncio.ensure_future(
            world.driver.submit(ApiKey.CREATE_TOPICS, topics("t"), version=7)
        )
        await asyncio.sleep(0)
        second = asyncio.ensure_future(
            world.driver.submit(ApiKey.CREATE_TOPICS, topics("t"), version=7)
        )
        for _ in range(5):
            await asyncio.sleep(0)
        assert not second.done()
        world.commit()
        answer = await asyncio.wait_for(second, BOUND_S)
        assert answer.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        await first

    run(scenario)


def test_a_standby_answers_not_controller_and_replays():
    async def scenario(world: World) -> None:
        with pytest.raises(KafkaError) as caught:
            await world.driver.submit(ApiKey.CREATE_TOPICS, topics("t"), version=7)
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        leader = World()
        leader.lead()
        await leader.register()
        for batch in leader.raft.batches:
            world.driver.on_commit(batch)
        assert world.driver.image == leader.driver.image
        assert 1 in world.driver.image.brokers

    run(scenario)


def test_losing_leadership_turns_away_who_waits_and_forgets_what_was_not_committed():
    async def scenario(world: World) -> None:
        world.lead()
        await world.register()
        await world.heartbeat()
        stable = world.driver.image
        asked = asyncio.ensure_future(
            world.driver.submit(ApiKey.CREATE_TOPICS, topics("t"), version=7)
        )
        await asyncio.sleep(0)
        world.driver.on_leader_change(2, LeaderEpoch(2))  # type: ignore[arg-type]
        with pytest.raises(KafkaError) as caught:
            await asked
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        assert not world.driver.is_active
        assert world.core.latest == stable

    run(scenario)


def test_what_is_appended_in_the_step_that_ends_the_leadership_is_for_the_log_to_tell():
    async def scenario(world: World) -> None:
        world.lead()
        world.commit()
        await world.register()
        await world.heartbeat(want_fence=False)
        before = world.core.latest
        world.raft.on_append = lambda: world.driver.on_leader_change(None, LeaderEpoch(1))
        with pytest.raises(KafkaError) as caught:
            await world.driver.submit(ApiKey.CREATE_TOPICS, topics("kept"), version=7)
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        assert not world.driver.is_active
        assert world.core.latest is before
        # Another leader has committed it after all, or something else in its place.
        world.commit()
        assert world.driver.image is world.core.latest
        assert "kept" in world.core.latest.topics_by_name

    run(scenario)


def test_timers_outlive_a_leadership_that_ends_while_they_decide():
    async def scenario(world: World) -> None:
        world.lead()
        world.commit()
        await world.register()
        await world.heartbeat(want_fence=False)
        world.raft.on_append = lambda: world.driver.on_leader_change(None, LeaderEpoch(1))
        before = world.core.latest
        world.clock.ms += 500
        world.driver.tick()
        assert not world.driver.is_active
        assert world.core.latest is before

    run(scenario, idle_ms=500)


def test_a_leadership_that_is_over_before_it_began_ends_quietly():
    async def scenario(world: World) -> None:
        world.raft.refuse = True
        world.lead()
        assert not world.driver.is_active
        assert world.core.latest.offset == -1

    run(scenario)


def test_a_refused_append_changes_nothing():
    async def scenario(world: World) -> None:
        world.lead()
        await world.register()
        await world.heartbeat()
        before = world.core.latest
        world.raft.refuse = True
        with pytest.raises(KafkaError):
            await world.driver.submit(ApiKey.CREATE_TOPICS, topics("t"), version=7)
        assert world.core.latest is before

    run(scenario)


def test_broker_epochs_are_above_rafts_own_records():
    async def scenario(world: World) -> None:
        world.lead()
        world.commit()
        answer = await world.register()
        assert answer.broker_epoch == world.raft.batches[-1].base_offset
        again = await world.heartbeat()
        assert again.is_caught_up

    run(scenario)


def test_an_idle_log_gets_a_record_twice_a_second():
    async def scenario(world: World) -> None:
        world.lead()
        world.commit()
        before = len(world.raft.batches)
        world.driver.tick()
        assert len(world.raft.batches) == before
        world.clock.ms += 500
        world.driver.tick()
        assert [type(r).__name__ for r in world.raft.batches[-1].records] == ["NoOpRecord"]

    run(scenario)


def test_leaders_are_looked_at_each_kind_in_its_own_interval():
    def leader(world: World) -> int:
        topic = world.core.latest.topic("t")
        assert topic is not None
        return topic.partitions[0].leader

    async def allow_losses(world: World) -> None:
        change = k44.AlterableConfig(
            name="unclean.leader.election.enable", config_operation=0, value="true"
        )
        resource = k44.AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
        request = k44.IncrementalAlterConfigsRequest(resources=[resource])
        await world.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request)

    async def scenario(world: World) -> None:
        world.lead()
        for broker_id in (1, 2):
            await world.register(broker_id)
            await world.heartbeat(broker_id)
        assignment = k19.CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])
        topic = k19.CreatableTopic(
            name="t", num_partitions=-1, replication_factor=-1, assignments=[assignment]
        )
        await world.ask(ApiKey.CREATE_TOPICS, k19.CreateTopicsRequest(topics=[topic]))
        await world.heartbeat(2, want_fence=True)
        await world.heartbeat(1, want_fence=True)
        await world.heartbeat(2)
        assert leader(world) == -1
        await allow_losses(world)
        for _ in range(3):
            assert leader(world) == -1
            world.clock.ms += 1000
            world.driver.tick()
        assert leader(world) == 2

    run(scenario, unclean_ms=3000, balance_ms=None)


def test_a_silent_broker_is_fenced_but_not_right_after_a_stall():
    async def scenario(world: World) -> None:
        world.lead()
        await world.register()
        await world.heartbeat()
        world.clock.ms += 20_000  # this process stood still
        world.driver.tick()
        assert not world.core.latest.brokers[1].fenced
        world.clock.ms += 500
        world.driver.tick()
        assert world.core.latest.brokers[1].fenced

    run(scenario)


# ---- long decisions


PARTITIONS = 600


async def of_many_partitions(world: World) -> None:
    """Broker 1 leads 600 partitions, which broker 2 follows; slices of one change."""
    world.lead()
    for broker_id in (1, 2):
        await world.register(broker_id)
        await world.heartbeat(broker_id)
    topic = k19.CreatableTopic(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            k19.CreatableReplicaAssignment(partition_index=n, broker_ids=[1, 2])
            for n in range(PARTITIONS)
        ],
    )
    await world.ask(ApiKey.CREATE_TOPICS, k19.CreateTopicsRequest(topics=[topic]))
    world.units_max = 1


def fencing(world: World, **fields: Any) -> "asyncio.Future[Any]":
    """Send the heartbeat with which broker 1 asks to be fenced."""
    request = k63.BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=world.core.latest.brokers[1].epoch,
        current_metadata_offset=world.core.latest.offset,
        want_fence=True,
        **fields,
    )
    return asyncio.ensure_future(world.driver.submit(ApiKey.BROKER_HEARTBEAT, request, version=1))


async def until(holds: Callable[[], bool]) -> int:
    """Return how many iterations of the loop it takes until this holds."""
    for count in range(ITERATIONS_MAX):
        if holds():
            return count
        await asyncio.sleep(0)
    raise AssertionError("it never holds")


async def first_batch(world: World) -> int:
    """Return once a long decision has appended a batch; the number of batches before it."""
    before = len(world.raft.batches)
    await until(lambda: len(world.raft.batches) > before)
    return before


async def fenced(world: World) -> None:
    """Return once broker 1 is fenced in the latest image."""
    await until(lambda: world.core.latest.brokers[1].fenced)


def test_a_long_decision_is_made_in_slices_and_appended_in_batches():
    async def scenario(world: World) -> None:
        await of_many_partitions(world)
        asked, before = fencing(world), len(world.raft.batches)
        assert await until(lambda: len(world.raft.batches) > before) > PARTITIONS
        await fenced(world)
        sizes = [len(batch.records) for batch in world.raft.batches[before:]]
        rest = PARTITIONS + 1 - 2 * RECORDS_PER_BATCH
        assert sizes == [RECORDS_PER_BATCH, RECORDS_PER_BATCH, rest]
        last = world.raft.batches.pop()
        world.commit()
        await asyncio.sleep(0)
        assert not asked.done()  # it waits for the last batch
        world.raft.batches.append(last)
        world.commit()
        assert (await asyncio.wait_for(asked, BOUND_S)).is_fenced

    run(scenario)


def test_a_large_atomic_decision_is_one_batch_made_in_slices(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(replay, "RECORDS_PER_PIECE", 10)
    applied: list[int] = []
    apply = replay.apply
    monkeypatch.setattr(replay, "apply", lambda *both: applied.append(1) or apply(*both))

    async def scenario(world: World) -> None:
        await of_many_partitions(world)
        world.units_max = 10
        request = topics("new")
        request.topics[0].num_partitions = PARTITIONS
        before, image = len(world.raft.batches), world.core.latest
        asked = asyncio.ensure_future(world.driver.submit(ApiKey.CREATE_TOPICS, request, version=7))
        applied.clear()
        most = 0
        while len(world.raft.batches) == before:
            assert world.core.latest is image  # nothing of it is seen
            done = len(applied)
            await asyncio.sleep(0)
            most = max(most, len(applied) - done)
        assert most == replay.RECORDS_PER_PIECE
        assert len(applied) == PARTITIONS + 1
        (batch,) = world.raft.batches[before:]
        assert len(batch.records) == PARTITIONS + 1
        world.commit()
        assert (await asyncio.wait_for(asked, BOUND_S)).topics[0].error_code == 0
        assert len(world.driver.image.topic("new").partitions) == PARTITIONS  # type: ignore[union-attr]

    run(scenario)


def test_elections_are_noted_with_the_batch_that_has_them():
    async def scenario(world: World) -> None:
        await of_many_partitions(world)
        asked = fencing(world)
        before = await first_batch(world)
        await fenced(world)
        ends = [batch.last_offset for batch in world.raft.batches[before:]]
        noted = [entry.offset for entry in world.core.journal.entries(topic="t")]
        rest = PARTITIONS - 2 * RECORDS_PER_BATCH
        counts = [RECORDS_PER_BATCH, RECORDS_PER_BATCH, rest]
        assert noted == [end for end, count in zip(ends, counts, strict=True) for _ in range(count)]
        world.commit()
        await asked

    run(scenario)


def test_a_decision_waits_for_the_one_before_it_and_sees_its_effects():
    async def scenario(world: World) -> None:
        await of_many_partitions(world)
        asked = fencing(world)
        await first_batch(world)
        change = k56.AlterPartitionRequestPartitionData(
            partition_index=PARTITIONS - 1,
            new_isr_with_epochs=[
                k56.BrokerState(broker_id=n, broker_epoch=world.core.latest.brokers[n].epoch)
                for n in (1, 2)
            ],
        )
        topic_id = world.core.latest.topics_by_name["t"]
        topic = k56.AlterPartitionRequestTopicData(topic_id=topic_id, partitions=[change])
        request = k56.AlterPartitionRequest(
            broker_id=1, broker_epoch=world.core.latest.brokers[1].epoch, topics=[topic]
        )
        altered = asyncio.ensure_future(
            world.driver.submit(ApiKey.ALTER_PARTITION, request, version=3)
        )
        await fenced(world)
        assert not altered.done()
        for _ in range(5):
            await asyncio.sleep(0)
        world.commit()
        response = await asyncio.wait_for(altered, BOUND_S)
        assert response.topics[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
        await asked

    run(scenario)


def test_the_loss_of_leadership_ends_a_decision_in_progress_and_those_that_wait():
    async def scenario(world: World) -> None:
        await of_many_partitions(world)
        stable = world.driver.image
        asked = [fencing(world), fencing(world)]
        before = await first_batch(world)
        world.driver.on_leader_change(2, LeaderEpoch(2))  # type: ignore[arg-type]
        for one in asked:
            with pytest.raises(KafkaError) as caught:
                await asyncio.wait_for(one, BOUND_S)
            assert caught.value.code is ErrorCode.NOT_CONTROLLER
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(world.raft.batches) == before + 1
        assert world.core.latest == stable
        del world.raft.batches[before:]  # the new leader has written other records
        world.lead(3)
        await world.heartbeat(2)
        assert world.driver.is_active

    run(scenario)


def test_leadership_that_is_lost_by_an_append_ends_a_decision_in_progress():
    async def scenario(world: World) -> None:
        await of_many_partitions(world)
        asked = fencing(world)
        world.raft.on_append = lambda: world.driver.on_leader_change(None, LeaderEpoch(1))
        with pytest.raises(KafkaError) as caught:
            await asyncio.wait_for(asked, BOUND_S)
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        assert world.core.latest == world.driver.image

    run(scenario)


def test_a_heartbeat_that_waits_for_a_decision_renews_its_session():
    async def scenario(world: World) -> None:
        await of_many_partitions(world)
        asked = fencing(world)
        await first_batch(world)
        world.clock.ms += 8_000
        beat = k63.BrokerHeartbeatRequest(
            broker_id=2, broker_epoch=world.core.latest.brokers[2].epoch
        )
        other = asyncio.ensure_future(world.driver.submit(ApiKey.BROKER_HEARTBEAT, beat, version=1))
        await asyncio.sleep(0)
        sessions = world.core.sessions
        assert sessions.last_contact(2, beat.broker_epoch) == world.clock.ms
        await fenced(world)
        await asyncio.sleep(0)
        world.commit()
        await asyncio.gather(asked, other)

    run(scenario)


def test_a_refused_broker_is_fenced_only_if_that_is_still_certain():
    async def scenario(world: World) -> None:
        await of_many_partitions(world)
        asked = fencing(world)
        await first_batch(world)
        certain = True
        refused = asyncio.ensure_future(world.driver.fence_refused(2, lambda: certain))
        await asyncio.sleep(0)
        certain = False  # a heartbeat arrives
        await asyncio.wait_for(refused, BOUND_S)
        assert not world.core.latest.brokers[2].fenced
        await world.driver.fence_refused(2, lambda: True)
        assert world.core.latest.brokers[2].fenced
        world.commit()
        await asked

    run(scenario)


def test_a_snapshot_is_taken_of_the_stable_image_after_so_many_bytes():
    async def scenario(world: World) -> None:
        snapshots = MetadataSnapshots(
            world.raft,  # type: ignore[arg-type]
            lambda: world.driver.image,
            world.clock,
            bytes_between=250,
        )
        world.lead()
        await world.register()
        await world.heartbeat()
        for batch in world.raft.batches:
            snapshots.on_commit(batch)
        await snapshots.stop()
        ((offset, epoch, records),) = world.raft.snapshots
        assert offset == world.driver.image.offset + 1
        assert epoch == 1
        assert records == list(records_of(world.driver.image))
        await snapshots.create()
        assert len(world.raft.snapshots) == 1

    run(scenario)
