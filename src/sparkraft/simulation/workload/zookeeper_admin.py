"""An administrator of a cluster in ZooKeeper mode, and old tools that write znodes.

Topics are created, deleted, created again at once, and extended; partitions are reassigned, also
while they are, and reassignments are cancelled; preferred leaders are elected. Requests go to any
broker. Tools before Kafka 2.4 write `/admin/reassign_partitions` and
`/admin/preferred_replica_election` instead.
"""

import json
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.messages import k19_create_topics as k19
from sparkraft.protocol.messages import k20_delete_topics as k20
from sparkraft.protocol.messages import k37_create_partitions as k37
from sparkraft.protocol.messages import k43_elect_leaders as k43
from sparkraft.protocol.messages import k45_alter_partition_reassignments as k45
from sparkraft.simulation.workload.node_clients import BROKER_PORT, FAILURES, REQUEST_MS
from sparkraft.simulation.workload.record_clients import PARTITIONS, TOPIC, Client
from sparkraft.zookeeper.requests import Create

if TYPE_CHECKING:
    from sparkraft.simulation.world.nodes import NodesWorld
    from sparkraft.simulation.world.zookeeper_servers import WatchedEnsemble

TOPICS_MAX = 3
"""Of one administrator; more are not created."""

PARTITIONS_MAX = 4
"""More are not added to a topic."""

REASSIGN, ELECT = "/admin/reassign_partitions", "/admin/preferred_replica_election"

PAUSE_S = (0.05, 0.8)
"""Between two operations."""


class Known(NamedTuple):
    """A topic that was created; `partitions` is the number of those that exist for sure."""

    name: str
    partitions: int


class ZooKeeperAdmin(Client):
    """See the module docstring."""

    def __init__(
        self,
        world: "NodesWorld",
        name: str,
        ensemble: "WatchedEnsemble",
        on_configs: Callable[[str, dict[str, str] | None], None],
    ) -> None:
        """Do nothing yet.

        Args:
            world: the cluster.
            name: of its topics.
            ensemble: for the tools that write znodes.
            on_configs: called with a topic and its configs when its creation is acknowledged, and
                with None before its deletion is requested.
        """
        super().__init__(world)
        self._nodes = world
        self._name = name
        self._ensemble = ensemble
        self._on_configs = on_configs
        self._made = 0
        self._topics: dict[str, Known] = {}

    async def run(self) -> None:
        """Work until the world is healed."""
        kinds: dict[Callable[[], Coroutine[Any, Any, None]], int] = {
            self._create: 8,
            self._delete: 4,
            self._replace: 3,
            self._grow: 4,
            self._reassign: 4,
            self._elect: 2,
            self._reassign_by_znode: 1,
            self._elect_by_znode: 1,
        }
        while not self._nodes.is_healed:
            await self.pause(*PAUSE_S)
            work = self.world.dice.choices(list(kinds), list(kinds.values()))[0]
            try:
                await work()
            except FAILURES:
                self.world.counts["requests failed"] += 1

    def some_host(self) -> str:
        """Return a random broker that accepts connections, if one does."""
        listens = self._nodes.network.listens
        up = [each.name for each in self._nodes.brokers if listens(each.name, BROKER_PORT)]
        return self.world.dice.choice(up) if up else super().some_host()

    # ---- topics

    async def _create(self) -> None:
        if len(self._topics) < TOPICS_MAX:
            self._made += 1
            await self._create_named(f"{self._name}-{self._made}")

    async def _create_named(self, name: str) -> None:
        dice = self.world.dice
        configs = {"retention.ms": str(dice.randint(1 << 28, 1 << 30))}
        partitions, replicas = dice.choice([1, 2]), dice.choice([1, 2, 3])
        topic = k19.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=min(replicas, self.world.replicas),
            configs=[k19.CreatableTopicConfig(name=k, value=v) for k, v in configs.items()],
        )
        request = k19.CreateTopicsRequest(topics=[topic], timeout_ms=REQUEST_MS)
        answer = await self.ask(self.some_host(), request)
        if answer.topics[0].error_code == ErrorCode.NONE:
            self._topics[name] = Known(name, partitions)
            self._on_configs(name, configs)
            self._nodes.checks.on_created(name, answer.topics[0].topic_id)

    async def _delete(self) -> None:
        if self._topics:
            await self._delete_named(self.world.dice.choice(sorted(self._topics)))

    async def _delete_named(self, name: str) -> None:
        self._topics.pop(name, None)
        self._nodes.checks.created.pop(name, None)
        self._on_configs(name, None)
        request = k20.DeleteTopicsRequest(
            topics=[k20.DeleteTopicState(name=name)], timeout_ms=REQUEST_MS
        )
        answer = await self.ask(self.some_host(), request)
        if answer.responses[0].error_code == ErrorCode.NONE:
            self.world.counts["topics deleted"] += 1

    async def _replace(self) -> None:
        """Delete a topic and create it again at once."""
        if self._topics:
            name = self.world.dice.choice(sorted(self._topics))
            await self._delete_named(name)
            await self._create_named(name)

    async def _grow(self) -> None:
        if not self._topics:
            return
        known = self._topics[self.world.dice.choice(sorted(self._topics))]
        count = known.partitions + 1
        if count > PARTITIONS_MAX:
            return
        topic = k37.CreatePartitionsTopic(name=known.name, count=count, assignments=None)
        request = k37.CreatePartitionsRequest(topics=[topic], timeout_ms=REQUEST_MS)
        answer = await self.ask(self.some_host(), request)
        if answer.results[0].error_code == ErrorCode.NONE and known.name in self._topics:
            self._topics[known.name] = known._replace(partitions=count)
            self.world.counts["partitions added"] += 1

    # ---- replicas and leaders

    def _some_partition(self) -> tuple[str, int]:
        """A partition of the records, or of another topic."""
        dice = self.world.dice
        counts = {TOPIC: PARTITIONS} | {
            each.name: each.partitions for each in self._topics.values()
        }
        name = TOPIC if dice.random() < 0.5 else dice.choice(sorted(counts))  # noqa: PLR2004 (a coin)
        return name, dice.randrange(counts[name])

    def _some_replicas(self) -> list[int]:
        ids = [machine.id for machine in self._nodes.brokers]
        return self.world.dice.sample(ids, self.world.dice.choice([2, 3]))

    async def _reassign(self) -> None:
        """Reassign a partition; in half of the cases cancel or replace that soon after."""
        name, index = self._some_partition()
        await self._move(name, index, self._some_replicas())
        if self.world.dice.random() < 0.5:  # noqa: PLR2004 (a coin)
            await self.pause(0, 0.5)
            again = self.world.dice.random() < 0.4  # noqa: PLR2004 (a cancellation more often)
            await self._move(name, index, self._some_replicas() if again else None)

    async def _move(self, name: str, index: int, replicas: list[int] | None) -> None:
        part = k45.ReassignablePartition(partition_index=index, replicas=replicas)
        topic = k45.ReassignableTopic(name=name, partitions=[part])
        request = k45.AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=REQUEST_MS)
        answer = await self.ask(self.some_host(), request)
        done = answer.error_code == ErrorCode.NONE and all(
            each.error_code == ErrorCode.NONE for one in answer.responses for each in one.partitions
        )
        what = "cancelled" if replicas is None else "begun"
        self.world.counts[f"reassignments {what if done else 'refused'}"] += 1

    async def _elect(self) -> None:
        request = k43.ElectLeadersRequest(
            election_type=0, topic_partitions=None, timeout_ms=REQUEST_MS
        )
        await self.ask(self.some_host(), request)

    async def _reassign_by_znode(self) -> None:
        name, index = self._some_partition()
        move = {"topic": name, "partition": index, "replicas": self._some_replicas()}
        self._order(REASSIGN, move)

    async def _elect_by_znode(self) -> None:
        name, index = self._some_partition()
        self._order(ELECT, {"topic": name, "partition": index})

    def _order(self, path: str, partition: dict[str, Any]) -> None:
        data = json.dumps({"version": 1, "partitions": [partition]}).encode()
        if self._ensemble.operate(Create(path=path, data=data)):
            self.world.counts[f"znodes {path.rpartition('/')[2]}"] += 1
