"""A replica manager on real log directories, and the parts that serve the ZooKeeper controller."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sparkraft.base.ids import Uuid
from sparkraft.protocol.messages import k04_leader_and_isr as k04
from sparkraft.protocol.messages import k05_stop_replica as k05
from sparkraft.protocol.messages import k06_update_metadata as k06
from sparkraft.server.broker.active_brokers import ActiveBrokers
from sparkraft.server.broker.broker_epoch import BrokerEpoch
from sparkraft.server.broker.metadata_cache import MetadataCache
from sparkraft.server.broker.replica_manager import ReplicaManager
from sparkraft.server.config import NodeConfig
from sparkraft.server.log_dirs import lock_log_dirs, recover_logs
from sparkraft.server.zookeeper.control import ControllerRequests
from sparkraft.server.zookeeper.controllers import BrokerTarget, KnownController
from sparkraft.server.zookeeper.hosting import Hosting
from sparkraft.server.zookeeper.images import ZooKeeperImages
from sparkraft.storage.disk import StorageFault
from tests.server.harness import make_env

TOPIC_ID = Uuid(b"\1" * 16)
OTHER_ID = Uuid(b"\2" * 16)
BROKER_EPOCH = 50
QUORUM_EPOCH = 9
"""Of a migrating broker, as a KRaft controller knows it."""
FULL = 2
"""`type` of a request that has everything."""
HERE, OTHER = 1, 2


class Supervisor:
    """Runs the work on folders, and keeps what failed."""

    def __init__(self, parts: "Parts") -> None:
        self._parts = parts
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Any, name: str) -> None:
        assert name == "folders of logs", f"unexpected task {name}"
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(lambda done: done.result())

    def fail(self, error: BaseException) -> None:
        raise error

    def on_storage_fault(self, fault: StorageFault) -> None:
        self._parts.logs.fail_directory(fault)
        self._parts.replicas.drop_log_dir(fault.log_dir)


class IsrChanges:
    """Takes ISR changes, and sends none."""

    def submit(self, hosted: Any, pending: Any) -> None:
        """Nothing."""


class TopicConfigs:
    """Notes which topics' configs are read, and forgotten."""

    def __init__(self) -> None:
        self.log: list[str] = []

    async def learn(self, topics: Iterable[str]) -> None:
        self.log += [f"learn {topic}" for topic in topics]

    def forget(self, topics: Iterable[str]) -> None:
        self.log += [f"forget {topic}" for topic in topics]


class Parts:
    """Broker 1 with two log directories, registered with broker epoch 50.

    One that `migrates` is registered with a quorum, too.
    """

    def __init__(self, folder: Path, *, migrates: bool = False) -> None:
        config = NodeConfig(
            {
                "broker.id": str(HERE),
                "zookeeper.connect": "127.0.0.1:2181",
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": f"{folder / 'a'},{folder / 'b'}",
            }
        )
        env = make_env()
        self.logs = lock_log_dirs(config, env)
        recover_logs(self.logs, config, env)
        self.images = ZooKeeperImages(21)
        metadata = MetadataCache(self.images.image)
        epoch = BrokerEpoch()
        epoch.on_registered(BROKER_EPOCH)
        self.replicas = ReplicaManager(
            config,
            env,
            self.logs,
            brokers=ActiveBrokers(metadata),
            isr_changes=IsrChanges(),
            supervisor=Supervisor(self),  # type: ignore[arg-type]
            cluster=lambda: metadata.image,
        )
        hosting = Hosting(self.replicas, node_id=HERE)
        self.images.subscribe(lambda _, image, __: metadata.on_image(image))
        self.images.subscribe(lambda _, image, changed: hosting.on_image(image, changed))
        self.known = KnownController()
        self.target = BrokerTarget(
            self.known, self.images, "PLAINTEXT", connect=env.network.connect, login=None
        )
        self.configs = TopicConfigs()
        quorum_epoch = BrokerEpoch()
        quorum_epoch.on_registered(QUORUM_EPOCH)
        self.control = ControllerRequests(
            self.images,
            hosting,
            epoch,
            self.known,
            self.configs,
            quorum_epoch if migrates else None,
        )
        self.images.publish(self.images.image, None)


def lead(
    *,
    leader: int = HERE,
    leader_epoch: int = 0,
    replicas: tuple[int, ...] = (HERE, OTHER),
    is_new: bool = True,
    controller_epoch: int = 1,
    broker_epoch: int = BROKER_EPOCH,
    topic_id: Uuid = TOPIC_ID,
    topic: str = "t",
    partition: int = 0,
    partition_epoch: int | None = None,
    scope: int = 0,
) -> k04.LeaderAndIsrRequest:
    """A LeaderAndIsr for one partition of a topic; with a scope, it is of a KRaft controller."""
    state = k04.LeaderAndIsrPartitionState(
        partition_index=partition,
        controller_epoch=controller_epoch,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=list(replicas),
        partition_epoch=leader_epoch if partition_epoch is None else partition_epoch,
        replicas=list(replicas),
        is_new=is_new,
    )
    states = k04.LeaderAndIsrTopicState(
        topic_name=topic, topic_id=topic_id, partition_states=[state]
    )
    return k04.LeaderAndIsrRequest(
        controller_id=OTHER,
        is_kraft_controller=bool(scope),
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        type=scope,
        topic_states=[states],
    )


def stop(
    *, leader_epoch: int, delete: bool, controller_epoch: int = 1, broker_epoch: int = -1
) -> k05.StopReplicaRequest:
    """A StopReplica for t-0."""
    state = k05.StopReplicaPartitionState(
        partition_index=0, leader_epoch=leader_epoch, delete_partition=delete
    )
    return k05.StopReplicaRequest(
        controller_id=OTHER,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        topic_states=[k05.StopReplicaTopicState(topic_name="t", partition_states=[state])],
    )


def update(
    *leaders: int,
    topic_id: Uuid = TOPIC_ID,
    brokers: tuple[int, ...] = (HERE, OTHER),
    controller_epoch: int = 1,
    broker_epoch: int = BROKER_EPOCH,
    offline: tuple[int, ...] = (),
    topic: str = "t",
    scope: int = 0,
) -> k06.UpdateMetadataRequest:
    """An UpdateMetadata: live brokers, and partitions of a topic with these leaders.

    With a scope, it is of a KRaft controller.
    """
    states = [
        k06.UpdateMetadataPartitionState(
            partition_index=index,
            controller_epoch=controller_epoch,
            leader=leader,
            leader_epoch=3,
            isr=[HERE, OTHER],
            zk_version=4,
            replicas=[HERE, OTHER],
            offline_replicas=list(offline),
        )
        for index, leader in enumerate(leaders)
    ]
    topics = [
        k06.UpdateMetadataTopicState(topic_name=topic, topic_id=topic_id, partition_states=states)
    ]
    return k06.UpdateMetadataRequest(
        controller_id=OTHER,
        is_kraft_controller=bool(scope),
        type=scope,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        topic_states=topics if leaders else [],
        live_brokers=[
            k06.UpdateMetadataBroker(
                id=broker,
                endpoints=[
                    k06.UpdateMetadataEndpoint(
                        port=9090 + broker,
                        host=f"host{broker}",
                        listener="PLAINTEXT",
                        security_protocol=0,
                    )
                ],
                rack=f"r{broker}",
            )
            for broker in brokers
        ],
    )
