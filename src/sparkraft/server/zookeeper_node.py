"""A node in ZooKeeper mode: a broker that registers in ZooKeeper and follows its controller.

With sparkraft.controllership.enable it also stands for the controller (`zookeeper.own_controller`).

    session open → cluster id, broker id → logs recovered → ports bound → configs read
    → /brokers/ids/N → listeners accept → the controller's requests

It has no raft. The order is that of Kafka 3.9 (`KafkaServer.startup`):
the broker registers before its listeners accept, and the controller's connections wait.

Kafka 3.9's znodes with access control lists are refused: this broker would not enforce them.
"""

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from sparkraft.base.loop_work import LoopBound
from sparkraft.server.api.registry import load_api
from sparkraft.server.broker.controller_channel import ControllerChannel
from sparkraft.server.broker.topic_configs import TopicConfigs
from sparkraft.server.broker_assembly import Joined
from sparkraft.server.config import ConfigError, NodeConfig
from sparkraft.server.identity import StartRefused
from sparkraft.server.log_dirs import lock_log_dirs, recover_logs
from sparkraft.server.node import Node
from sparkraft.server.sasl_config import inter_broker_login
from sparkraft.server.zookeeper.configs import ZooKeeperConfigs
from sparkraft.server.zookeeper.control import ControllerRequests
from sparkraft.server.zookeeper.controllers import KnownController
from sparkraft.server.zookeeper.forwarding import ZooKeeperForwarding
from sparkraft.server.zookeeper.hosting import Hosting
from sparkraft.server.zookeeper.identity import (
    complete_directories,
    known_broker_id,
    read_directories,
)
from sparkraft.server.zookeeper.images import ZooKeeperImages
from sparkraft.server.zookeeper.lifecycle import ZooKeeperLifecycle
from sparkraft.server.zookeeper.own_controller import OwnController, OwnControllerServices
from sparkraft.server.zookeeper.registration import (
    cluster_id_of,
    create_top_level_paths,
    generate_broker_id,
    has_acls,
)
from sparkraft.server.zookeeper.session import EnsembleSession
from sparkraft.server.zookeeper.status import ZooKeeperStatus
from sparkraft.server.zookeeper_config import metadata_level
from sparkraft.zookeeper.errors import ZooKeeperError
from sparkraft.zookeeper.znodes.json_form import ZnodeError

if TYPE_CHECKING:
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.server.broker.broker_epoch import BrokerEpoch
    from sparkraft.server.broker.replica_manager import ReplicaManager
    from sparkraft.server.broker_assembly import BrokerFoundation
    from sparkraft.server.env import Env

log = logging.getLogger(__name__)

LOGS_AT_ONCE: LoopBound = 100
"""Logs that get their topic's configs before the event loop continues."""


class ZooKeeperNode(Node):
    """See the module docstring."""

    def __init__(self, config: NodeConfig, env: "Env") -> None:
        super().__init__(config, env)
        try:
            self._session = EnsembleSession(config, env)
        except ValueError as error:
            raise ConfigError(f"zookeeper.connect: {error}") from error
        if any(each.security_protocol.uses_sasl for each in config.listeners):
            raise ConfigError("SASL listeners are not available in ZooKeeper mode")
        level = metadata_level(config.properties)
        assert level is not None, "checked with the configuration"
        self._images = ZooKeeperImages(level)
        self._configs = ZooKeeperConfigs(self._session, self._images, env.clock)
        self._known = KnownController(self._images, config.control_plane_listener_name)
        self._own: OwnControllerServices | None = None
        """The controller of this node; None before it is made."""

    @property
    def is_controller(self) -> bool:
        """Whether it is the controller of the cluster, as far as it knows."""
        return self._own is not None and self._own.controller.is_active

    @property
    def zookeeper(self) -> ZooKeeperStatus | None:
        """For observers; None before the controller is made."""
        if self._own is None:
            return None
        return ZooKeeperStatus(self._session, self._own.controller, self._known.id)

    @property
    def session_id(self) -> int:
        """Of its present ZooKeeper session."""
        return self._session.client.session_id

    def _image(self) -> "ClusterImage":
        return self._images.image

    async def _open_logs(self) -> None:
        try:
            await self._session.start()
            await create_top_level_paths(self._session.client)
            cluster_id = await cluster_id_of(self._session.client, self.env.entropy)
            if await has_acls(self._session.client):
                raise StartRefused(
                    "ZooKeeper has access control lists below /kafka-acl, which a broker in "
                    "ZooKeeper mode does not enforce here"
                )
            self._log_manager = lock_log_dirs(self.config, self.env)
            directories = read_directories(self.env.disk, self.config)
            broker_id = known_broker_id(
                directories, cluster_id=cluster_id, configured=self.config.node_id
            )
            if broker_id < 0:
                broker_id = await self._generate_id()
        except (TimeoutError, ZooKeeperError, ZnodeError) as error:
            raise StartRefused(str(error)) from error
        if broker_id != self.config.node_id:
            self.config = NodeConfig({**self.config.properties, "broker.id": str(broker_id)})
        self.identity = complete_directories(
            self.env.disk, directories, cluster_id=cluster_id, broker_id=broker_id
        )
        recover_logs(self._log_manager, self.config, self.env)

    async def _generate_id(self) -> int:
        if not self.config.flag("broker.id.generation.enable"):
            raise StartRefused("No broker ID found, and broker.id.generation.enable is disabled.")
        reserved_max = self.config.number("reserved.broker.max.id")
        return await generate_broker_id(self._session.client, reserved_max)

    async def _start_roles(self) -> None:
        assert self._dialing is not None
        self._own = self._make_controller()
        self.channel = channel = ControllerChannel(
            self.env,
            self._known,
            node_id=self.config.node_id,
            local=self._own,
            controller_listener=self.config.control_plane_listener_name,
            connect=self._dialing.to_controllers,
            login=inter_broker_login(self.config),
            describe=self._known.describe,
            load=partial(load_api, controller_listener=False, zookeeper=True),
        )
        self._known.add_listener(channel.on_leader)
        try:
            await self._configs.load()
        except ZooKeeperError as error:
            raise StartRefused(f"the configs in ZooKeeper could not be read: {error}") from error
        await self._configure_logs()
        membership = ZooKeeperMembership(
            self._session, self._images, self._configs, self._known, self._own
        )
        await self._run_broker(self._images, membership)

    def _make_controller(self) -> OwnControllerServices:
        assert self._dialing is not None
        assert self.identity is not None
        cluster_id = self.identity.cluster_id
        controller = OwnController(
            self.config,
            self.env,
            self._session,
            self._images,
            self._configs,
            cluster_id=cluster_id,
            connect=self._dialing.to_controllers,
            spawn=self.spawn,
        )
        return OwnControllerServices(self.config, self.env, controller, cluster_id=cluster_id)

    async def _configure_logs(self) -> None:
        """Apply the topics' configs to the logs of earlier runs.

        Retention and compaction may run before the controller assigns the partitions.
        """
        assert self._log_manager is not None
        topic_configs = TopicConfigs(self.config)
        for number, known in enumerate(list(self._log_manager.logs())):
            if number % LOGS_AT_ONCE == LOGS_AT_ONCE - 1:
                await asyncio.sleep(0)
            values = topic_configs.of(self._images.image, known.topic)
            known.configure(self._log_manager.log_config(values))

    async def _close_quorum(self) -> None:
        """End the session last, when no client is served any more."""
        if self._own is not None:
            await self._own.controller.stop()
        if self.channel is not None:
            await self.channel.close()
        await self._session.close()


class ZooKeeperMembership:
    """Registers in ZooKeeper and serves the controller's requests."""

    def __init__(
        self,
        session: EnsembleSession,
        images: ZooKeeperImages,
        configs: ZooKeeperConfigs,
        controller: KnownController,
        own: OwnControllerServices,
    ) -> None:
        """Prepare.

        Args:
            session: with the ensemble, open.
            images: publishes images.
            configs: in ZooKeeper, read already.
            controller: of the cluster.
            own: the controller of this node.
        """
        self._session = session
        self._images = images
        self._configs = configs
        self._controller = controller
        self._own = own

    def join(
        self, base: "BrokerFoundation", broker_epoch: "BrokerEpoch", replicas: "ReplicaManager"
    ) -> Joined:
        """See `Membership`."""
        hosting = Hosting(replicas, node_id=base.config.node_id)
        base.supervisor.spawn(self._session.run(), "ZooKeeper sessions")
        base.supervisor.spawn(self._configs.run(), "config changes")
        lifecycle = ZooKeeperLifecycle(
            base.config,
            base.env,
            self._session,
            advertised=base.advertised,
            broker_epoch=broker_epoch,
            channel=base.channel,
            spawn=base.supervisor.spawn,
        )
        if base.config.flag("sparkraft.controllership.enable"):
            base.supervisor.spawn(
                self._own.controller.run(lifecycle.running), "controller election"
            )
        return Joined(
            lifecycle=lifecycle,
            follow_image=hosting.on_image,
            forwarding=ZooKeeperForwarding(base.config, base.channel, self._own),
            reports_directories=False,
            controller_requests=ControllerRequests(
                self._images, hosting, broker_epoch, self._controller, self._configs
            ),
            controller_journal=self._own.controller.journal,
        )
