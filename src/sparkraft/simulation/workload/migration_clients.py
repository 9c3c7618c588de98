"""Clients of modelled brokers during a migration: one administers topics, one writes values.

Before the migration topics are created and deleted by the broker that is the controller, in
ZooKeeper and guarded by its epoch; afterwards by requests to the active controller of the quorum.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import Uuid
from sparkraft.protocol.messages import k19_create_topics as k19
from sparkraft.protocol.messages import k20_delete_topics as k20
from sparkraft.simulation.workload.quorum_requests import ask_controllers
from sparkraft.simulation.workload.zookeeper_broker import At, ZooKeeperBroker
from sparkraft.simulation.world.nodes import NodesWorld
from sparkraft.zookeeper.controller import store, znodes
from sparkraft.zookeeper.controller.steps import ControllerMovedError
from sparkraft.zookeeper.controller.values import ReplicaAssignment
from sparkraft.zookeeper.controller.znodes import Topic
from sparkraft.zookeeper.driver import execute
from sparkraft.zookeeper.errors import ZooKeeperError
from sparkraft.zookeeper.requests import Create
from sparkraft.zookeeper.znodes.topics import encode_configs

PARTITIONS = 2
TOPICS_MAX = 12

ADMIN_S = (0.2, 2.0)
"""Between two operations of the administrator."""

WRITE_S = (0.01, 0.1)
"""Between two values."""

DELETED_SHARE = 0.15


class AdminObserver(Protocol):
    """Sees which topics exist for sure."""

    topics: dict[str, Uuid]
    """Topics whose creation was acknowledged and whose deletion was not requested."""

    def on_topic(self, name: str, topic_id: Uuid, configs: dict[str, str]) -> None:
        """Called when the creation of a topic is acknowledged."""


class MigrationClients:
    """See the module docstring."""

    def __init__(
        self, world: NodesWorld, brokers: Sequence[ZooKeeperBroker], observer: AdminObserver
    ) -> None:
        """Do nothing yet."""
        self._world = world
        self._brokers = brokers
        self._observer = observer
        self._made = 0
        self._values = 0

    def start(self) -> None:
        """Work until the world ends its clients."""
        self._world.after(2, self._administer)
        self._world.after(2, self._write)

    # ---- topics

    def _administer(self) -> None:
        world = self._world
        if world.draining:
            return
        world.after(world.dice.uniform(*ADMIN_S), self._administer)
        controllers = [each for each in self._brokers if each.is_controller]
        names = sorted(self._observer.topics)
        deletes = names and world.dice.random() < DELETED_SHARE
        if deletes:
            name = world.dice.choice(names)
            del self._observer.topics[name]
        elif len(names) >= TOPICS_MAX:
            return
        else:
            self._made += 1
            name = f"topic-{self._made}"
        if controllers:
            broker = world.dice.choice(controllers)
            assert broker.incarnation is not None
            work = self._delete_in if deletes else self._create_in
            world.loop.call_soon(
                lambda: broker._spawn(work(broker, name), "admin"),  # noqa: SLF001 (its process)
                context=broker.incarnation.context,
            )
        else:
            world.operate(self._delete(name) if deletes else self._create(name))

    def _replicas(self) -> list[int]:
        ids = [each.id for each in self._brokers]
        self._world.dice.shuffle(ids)
        return ids

    async def _create_in(self, broker: ZooKeeperBroker, name: str) -> None:
        """Create a topic in ZooKeeper, as the AdminManager of Kafka 3.9 does."""
        world = self._world
        topic_id = Uuid(world.dice.randbytes(16))
        replicas = {at: ReplicaAssignment(tuple(self._replicas())) for at in range(PARTITIONS)}
        configs = {"retention.ms": str(world.dice.randint(1, 1 << 30))}
        data = znodes.encode_topic(Topic(id=topic_id, assignments=replicas))
        writes = [
            Create(path=znodes.topic_config_path(name), data=encode_configs(configs)),
            Create(path=znodes.topic_path(name), data=data),
        ]
        if await self._write_in(broker, writes):
            self._observer.on_topic(name, topic_id, configs)

    async def _delete_in(self, broker: ZooKeeperBroker, name: str) -> None:
        await self._write_in(broker, [Create(path=f"{znodes.DELETE_TOPICS}/{name}")])

    async def _write_in(self, broker: ZooKeeperBroker, writes: list[Create]) -> bool:
        """Whether all writes were applied while the broker was the controller."""
        active, session = broker.active, broker.session
        if active is None or session is None or not active.is_active:
            return False
        steps = store.write(writes, active.context.epoch_version)
        try:
            results = await execute(session.client, steps, lambda _: None)
        except (ControllerMovedError, ZooKeeperError):
            return False
        return not any(isinstance(each, ZooKeeperError) for each in results)

    async def _create(self, name: str) -> None:
        configs = {"retention.ms": str(self._world.dice.randint(1, 1 << 30))}
        topic = k19.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                k19.CreatableReplicaAssignment(partition_index=at, broker_ids=self._replicas())
                for at in range(PARTITIONS)
            ],
            configs=[k19.CreatableTopicConfig(name=k, value=v) for k, v in configs.items()],
        )
        answer = await self._ask(k19.CreateTopicsRequest(topics=[topic], timeout_ms=4_000))
        if answer is not None and answer.topics[0].error_code == ErrorCode.NONE:
            self._observer.on_topic(name, answer.topics[0].topic_id, configs)

    async def _delete(self, name: str) -> None:
        state = k20.DeleteTopicState(name=name)
        await self._ask(k20.DeleteTopicsRequest(topics=[state], timeout_ms=4_000))

    async def _ask(self, request: object) -> Any:
        return await ask_controllers(self._world, request, "admin")

    # ---- values

    def _write(self) -> None:
        world = self._world
        if world.draining:
            return
        world.after(world.dice.uniform(*WRITE_S), self._write)
        led: list[tuple[At, ZooKeeperBroker]] = [
            (at, broker)
            for broker in self._brokers
            if broker.is_up
            for at in sorted(broker.roles)
            if broker.leads(at) is not None
        ]
        if led:
            at, broker = world.dice.choice(led)
            self._values += 1
            broker.append(at, self._values)
