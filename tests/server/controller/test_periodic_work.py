"""What a node's controller does unasked, and how often: as its configuration says."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkraft.base.ids import Uuid
from sparkraft.metadata.partition_state import PartitionState
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import k19_create_topics as k19
from sparkraft.protocol.messages import k44_incremental_alter_configs as k44
from sparkraft.protocol.messages import k56_alter_partition as k56
from sparkraft.server.config import NodeConfig
from sparkraft.server.env import real_env
from sparkraft.server.identity import Identity
from sparkraft.server.quorum import make_controller
from tests.controller.cluster_of import CLUSTER_ID, Dice
from tests.server.controller.test_driver import Clock, ListRaft, World

KAFKAS_CHECKS_MS = 300_000
KAFKAS_IDLE_MS = 500

MOVED, LOST = "moved", "lost"
"""Topics of one partition: one that its preferred replica doesn't lead, one that nobody leads."""

SECONDS_MAX = 60


class NodesWorld(World):
    """The controller of a node with this configuration, on a raft that is a list."""

    def __init__(self, root: Path, properties: dict[str, str]) -> None:
        self.raft, self.clock = ListRaft(), Clock()
        config = NodeConfig(
            {
                "process.roles": "controller",
                "node.id": "1",
                "controller.quorum.voters": "1@127.0.0.1:9",
                "listeners": "CONTROLLER://127.0.0.1:9",
                "controller.listener.names": "CONTROLLER",
                "log.dirs": str(root),
                # Clocks leap and no broker listens here: nobody is to be fenced for that.
                "broker.session.timeout.ms": "100000000",
                "broker.refused.connection.fence.enable": "false",
                **properties,
            }
        )
        services = make_controller(
            config,
            replace(real_env(), clock=self.clock, entropy=Dice()),
            Identity(cluster_id=CLUSTER_ID, node_id=1, directory_ids={str(root): Uuid(b"d" * 16)}),
            self.raft,  # type: ignore[arg-type]
        )
        self.driver = services.controller
        self.core = self.driver.core
        self.committed = 0

    def pass_ms(self, ms: int) -> None:
        """Time, and the timer at its end."""
        self.clock.ms += ms
        self.driver.tick()

    def partition(self, name: str) -> PartitionState:
        topic = self.core.latest.topic(name)
        assert topic is not None
        return topic.partitions[0]

    def leaders(self) -> tuple[int, int]:
        """Who leads the moved and the lost partition."""
        return self.partition(MOVED).leader, self.partition(LOST).leader

    async def disarrange(self) -> None:
        """Brokers 1 to 4; of 1 and 2 the second leads `MOVED`, and of 3 and 4 none `LOST`."""
        self.lead()
        for broker_id in (1, 2, 3, 4):
            await self.register(broker_id)
            await self.heartbeat(broker_id)
        await self.create(MOVED, [1, 2])
        await self.create(LOST, [3, 4])
        for leaves in (1, 4, 3):
            await self.heartbeat(leaves, want_fence=True)
        for returns in (1, 4):
            await self.heartbeat(returns)
        await self.have_all_in_sync(MOVED)
        await self.allow_losses(LOST)
        assert self.partition(MOVED).isr == (1, 2)
        assert self.leaders() == (2, -1)

    async def create(self, name: str, replicas: list[int]) -> None:
        assignment = k19.CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
        topic = k19.CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment]
        )
        answer = await self.ask(ApiKey.CREATE_TOPICS, k19.CreateTopicsRequest(topics=[topic]))
        assert answer.topics[0].error_code == 0

    async def have_all_in_sync(self, name: str) -> None:
        """The leader tells that every replica is."""
        image, partition = self.core.latest, self.partition(name)
        data = k56.AlterPartitionRequestPartitionData(
            partition_index=0,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr_with_epochs=[
                k56.BrokerState(broker_id=n, broker_epoch=image.brokers[n].epoch)
                for n in partition.replicas
            ],
        )
        topic = k56.AlterPartitionRequestTopicData(
            topic_id=image.topics_by_name[name], partitions=[data]
        )
        leader = partition.leader
        request = k56.AlterPartitionRequest(
            broker_id=leader, broker_epoch=image.brokers[leader].epoch, topics=[topic]
        )
        answer = await self.ask(ApiKey.ALTER_PARTITION, request, version=3)
        assert answer.topics[0].partitions[0].error_code == 0

    async def allow_losses(self, name: str) -> None:
        change = k44.AlterableConfig(
            name="unclean.leader.election.enable", config_operation=0, value="true"
        )
        resource = k44.AlterConfigsResource(resource_type=2, resource_name=name, configs=[change])
        request = k44.IncrementalAlterConfigsRequest(resources=[resource])
        await self.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request)


Scenario = Callable[[NodesWorld], Awaitable[None]]
Play = Callable[..., None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Runs a scenario on the controller of a node with these properties."""

    def run(scenario: Scenario, properties: dict[str, str] | None = None) -> None:
        async def main() -> None:
            await scenario(NodesWorld(tmp_path, properties or {}))

        asyncio.run(main())

    return run


def test_leaders_are_looked_at_every_300_seconds_unless_told_otherwise(play: Play) -> None:
    async def scenario(world: NodesWorld) -> None:
        await world.disarrange()
        # From when it took over: nothing has moved the clock since.
        world.pass_ms(KAFKAS_CHECKS_MS - 1)
        assert world.leaders() == (2, -1)
        world.pass_ms(1)
        assert world.leaders() == (1, 4)

    play(scenario)


def test_an_idle_log_gets_a_record_every_500_ms_unless_told_otherwise(play: Play) -> None:
    async def scenario(world: NodesWorld) -> None:
        world.lead()
        before = len(world.raft.batches)
        for _ in range(3):
            world.pass_ms(KAFKAS_IDLE_MS - 1)
            assert len(world.raft.batches) == before
            world.pass_ms(1)
            before += 1
            assert len(world.raft.batches) == before
            assert [type(r).__name__ for r in world.raft.batches[-1].records] == ["NoOpRecord"]

    play(scenario)


def test_without_auto_leader_rebalance_leaders_stay_where_they_are(play: Play) -> None:
    async def scenario(world: NodesWorld) -> None:
        await world.disarrange()
        for _ in range(5):
            world.pass_ms(KAFKAS_CHECKS_MS)
            assert world.leaders() == (2, 4), "the other check goes on"

    play(scenario, {"auto.leader.rebalance.enable": "false"})


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("leader.imbalance.check.interval.seconds", "7", (1, -1)),
        ("unclean.leader.election.interval.ms", "7000", (2, 4)),
    ],
)
def test_each_check_has_an_interval_of_its_own(
    play: Play, key: str, value: str, expected: tuple[int, int]
) -> None:
    async def scenario(world: NodesWorld) -> None:
        await world.disarrange()
        world.pass_ms(6_999)
        assert world.leaders() == (2, -1)
        world.pass_ms(1)
        assert world.leaders() == expected

    play(scenario, {key: value})


def test_the_timer_of_a_started_controller_brings_leaderships_back(play: Play) -> None:
    async def scenario(world: NodesWorld) -> None:
        world.driver.start()
        try:
            await world.disarrange()
            world.clock.ms += KAFKAS_CHECKS_MS
            async with asyncio.timeout(SECONDS_MAX):
                while world.leaders() != (1, 4):  # noqa: ASYNC110 (the timer tells nobody)
                    await asyncio.sleep(0.01)
            world.commit()
            committed: Any = world.driver.image.topic(MOVED)
            assert committed.partitions[0].leader == 1
        finally:
            await world.driver.stop()

    play(scenario)
