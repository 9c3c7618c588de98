"""A node in ZooKeeper mode: a broker that registers in ZooKeeper and follows its controller.

Unless sparkraft.controllership.enable=false it also stands for the controller
(`zookeeper.own_controller`).

    session open → cluster id, broker id → logs recovered → ports bound → configs read
    → /brokers/ids/N → listeners accept → the controller's requests

The order is that of Kafka 3.9 (`KafkaServer.startup`): the broker registers before its listeners
accept, and the controller's connections wait. Credentials, access control lists and delegation
tokens are read with the configs. A broker that is being migrated to KRaft (KIP-866,
zookeeper.metadata.migration.enable) also observes the metadata log, and registers with the quorum;
others have no raft.
"""

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from sparkraft.base.env import random_uuid
from sparkraft.base.loop_work import LoopBound
from sparkraft.metadata.image import ResourceType
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.security.standard_authorizer import StandardAuthorizer
from sparkraft.server.api.registry import load_api
from sparkraft.server.broker.broker_epoch import BrokerEpoch
from sparkraft.server.broker.controller_channel import ControllerChannel, ControllerTarget
from sparkraft.server.broker.inter_broker_versions import at_protocol_version
from sparkraft.server.broker.lifecycle import BrokerLifecycle
from sparkraft.server.broker.topic_configs import TopicConfigs
from sparkraft.server.broker_assembly import Joined
from sparkraft.server.config import ConfigError, NodeConfig
from sparkraft.server.identity import StartRefused
from sparkraft.server.log_dirs import lock_log_dirs, recover_logs
from sparkraft.server.node import Node
from sparkraft.server.sasl_config import control_plane_login
from sparkraft.server.zookeeper.acls import ZooKeeperAcls
from sparkraft.server.zookeeper.advertised import AdvertisedListeners
from sparkraft.server.zookeeper.configs import ZooKeeperConfigs
from sparkraft.server.zookeeper.control import ControllerRequests
from sparkraft.server.zookeeper.controllers import (
    BrokerTarget,
    KnownController,
    MigratingTarget,
)
from sparkraft.server.zookeeper.epochs import MigratingBrokerEpoch
from sparkraft.server.zookeeper.features import FinalizedFeatures
from sparkraft.server.zookeeper.forwarding import ZooKeeperForwarding
from sparkraft.server.zookeeper.hosting import Hosting
from sparkraft.server.zookeeper.identity import (
    check_broker_id,
    complete_directories,
    known_broker_id,
    read_directories,
)
from sparkraft.server.zookeeper.images import ZooKeeperImages
from sparkraft.server.zookeeper.lifecycle import ZooKeeperLifecycle
from sparkraft.server.zookeeper.migrating import MigratingLifecycle, NoReplicas
from sparkraft.server.zookeeper.own_controller import OwnController, OwnControllerServices
from sparkraft.server.zookeeper.registration import (
    cluster_id_of,
    create_top_level_paths,
    generate_broker_id,
    has_acls,
)
from sparkraft.server.zookeeper.session import EnsembleSession
from sparkraft.server.zookeeper.status import ZooKeeperStatus
from sparkraft.server.zookeeper.tokens import ZooKeeperTokens
from sparkraft.server.zookeeper.znode_requests import ZnodeRequests
from sparkraft.server.zookeeper_config import (
    PROTOCOL_VERSION,
    RESERVED_BROKER_ID_MAX,
    metadata_level,
)
from sparkraft.zookeeper.controller.protocol_version import parse_protocol_version
from sparkraft.zookeeper.errors import ZooKeeperError
from sparkraft.zookeeper.znodes.json_form import ZnodeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.metadata.image import ClusterImage
    from sparkraft.server.broker.replica_manager import ReplicaManager
    from sparkraft.server.broker_assembly import BrokerFoundation
    from sparkraft.server.config import ListenerAddress
    from sparkraft.server.env import Env
    from sparkraft.server.quorum import QuorumFollowers
    from sparkraft.server.zookeeper.own_controller import Change
    from sparkraft.zookeeper.controller.protocol_version import ProtocolVersion

log = logging.getLogger(__name__)

LOGS_AT_ONCE: LoopBound = 100
"""Logs that get their topic's configs before the event loop continues."""


class ZooKeeperNode(Node):
    """See the module docstring."""

    def __init__(self, config: NodeConfig, env: "Env") -> None:
        check_broker_id(config)
        super().__init__(config, env)
        try:
            self._session = EnsembleSession(config, env)
        except ValueError as error:
            raise ConfigError(f"zookeeper.connect: {error}") from error
        self._protocol = parse_protocol_version(config.text(PROTOCOL_VERSION))
        self._images = ZooKeeperImages(metadata_level(self._protocol))
        self._configs = ZooKeeperConfigs(self._session, self._images, env.clock)
        self._features = FinalizedFeatures(self._session, enabled=self._protocol.has_features)
        self._known = KnownController()
        self._quorum: QuorumFollowers | None = None
        """Follows the metadata log; None unless the broker is being migrated."""
        self._own: OwnControllerServices | None = None
        """The controller of this node; None before it is made."""
        self._acls: ZooKeeperAcls | None = None
        """Without an authorizer there are none."""
        if isinstance(self.authorizer, StandardAuthorizer):
            self._acls = ZooKeeperAcls(self._session, self._images, env, self.authorizer)
        self._tokens = ZooKeeperTokens(
            config, env, self._session, self._images, lambda: self.is_controller
        )

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
            if self._acls is None and await has_acls(self._session.client):
                log.warning(
                    "ZooKeeper has access control lists below /kafka-acl, and this broker has no "
                    "authorizer.class.name: it does not enforce them"
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
        migrates = self.config.is_migrating_broker
        self.identity = complete_directories(
            self.env.disk,
            directories,
            cluster_id=cluster_id,
            broker_id=broker_id,
            new_directory_id=partial(random_uuid, self.env.entropy) if migrates else None,
        )
        recover_logs(self._log_manager, self.config, self.env)

    async def _generate_id(self) -> int:
        reserved_max = self.config.number(RESERVED_BROKER_ID_MAX)
        return await generate_broker_id(self._session.client, reserved_max)

    async def _start_roles(self) -> None:
        self._own = self._make_controller()
        if self.config.is_migrating_broker:
            self._quorum = self._open_quorum()
        self.channel = channel = ControllerChannel(
            self.env,
            self._controller_target(),
            node_id=self.config.node_id,
            local=self._own,
            controller_listener=self.config.control_plane_listener_name,
            load=partial(load_api, controller_listener=False, zookeeper=True),
        )
        self._known.add_listener(channel.on_leader)
        if self._quorum is not None:
            self._quorum.publisher.add_leader_listener(channel.on_leader)
        try:
            await self._configs.load()
            await self._features.load()
            await self._tokens.load()
            if self._acls is not None:
                await self._acls.load()
        except (ZooKeeperError, ZnodeError) as error:
            raise StartRefused(f"the configs in ZooKeeper could not be read: {error}") from error
        await self._configure_logs()
        advertised = AdvertisedListeners(
            self.config, self._advertised_by, lambda: self._images.image
        )
        node = str(self.config.node_id)
        advertised.apply(self._images.image.config(ResourceType.BROKER, node))
        membership = ZooKeeperMembership(
            advertised,
            self._protocol,
            self._session,
            self._images,
            self._configs,
            self._features,
            self._known,
            self._own,
            self._quorum,
        )
        self.spawn(self._tokens.run(), "delegation tokens")
        if self._acls is not None:
            self.spawn(self._acls.run(), "access control lists")
        if self.raft is not None:
            await self.raft.start()
        await self._run_broker(self._images, membership)

    def _advertised_by(self, config: NodeConfig) -> "tuple[ListenerAddress, ...]":
        return self._listeners.advertised(controller=False, config=config)

    def _controller_target(self) -> ControllerTarget:
        assert self._dialing is not None
        broker = BrokerTarget(
            self._known,
            self._images,
            self.config.control_plane_listener_name,
            connect=self._dialing.to_zookeeper_controller,
            login=control_plane_login(self.config),
        )
        if self._quorum is None:
            return broker
        return MigratingTarget(self._known, broker, self._quorum.target)

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
            connect=self._dialing.to_zookeeper_controller,
            login=control_plane_login(self.config),
            changes=self._security_changes(),
            spawn=self.spawn,
        )
        return OwnControllerServices(self.config, self.env, controller, cluster_id=cluster_id)

    def _security_changes(self) -> "dict[ApiKey, Change]":
        changes: dict[ApiKey, Change] = {
            ApiKey.CREATE_DELEGATION_TOKEN: self._tokens.create,
            ApiKey.RENEW_DELEGATION_TOKEN: self._tokens.renew,
            ApiKey.EXPIRE_DELEGATION_TOKEN: self._tokens.expire,
        }
        if self._acls is not None:
            changes[ApiKey.CREATE_ACLS] = self._acls.create_acls
            changes[ApiKey.DELETE_ACLS] = self._acls.delete_acls
        return changes

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

    def _needs_directory(self, log_dir: str) -> bool:
        """A migrating broker needs all: it cannot report one that fails (KAFKA-16431)."""
        _ = log_dir
        return self.config.is_migrating_broker

    async def _close_quorum(self) -> None:
        """End the session last, when no client is served any more."""
        if self._own is not None:
            await self._own.controller.stop()
        await super()._close_quorum()
        await self._session.close()


class ZooKeeperMembership:
    """Registers in ZooKeeper and serves the controller's requests."""

    def __init__(  # noqa: PLR0913, PLR0917 (every collaborator)
        self,
        advertised: AdvertisedListeners,
        protocol: "ProtocolVersion",
        session: EnsembleSession,
        images: ZooKeeperImages,
        configs: ZooKeeperConfigs,
        features: FinalizedFeatures,
        controller: KnownController,
        own: OwnControllerServices,
        quorum: "QuorumFollowers | None",
    ) -> None:
        """Prepare.

        Args:
            advertised: as the stored configs of this broker have them.
            protocol: inter.broker.protocol.version.
            session: with the ensemble, open.
            images: publishes images.
            configs: in ZooKeeper, read already.
            features: in ZooKeeper, read already.
            controller: of the cluster.
            own: the controller of this node.
            quorum: follows the metadata log; None unless the broker is being migrated.
        """
        self._advertised = advertised
        self._protocol = protocol
        self.versions = at_protocol_version(protocol)
        self._session = session
        self._images = images
        self._configs = configs
        self._features = features
        self._controller = controller
        self._own = own
        self._epochs = MigratingBrokerEpoch(controller)
        self._quorum = quorum

    @property
    def broker_epoch(self) -> BrokerEpoch:
        """See `Membership`."""
        return self._epochs.zookeeper if self._quorum is None else self._epochs

    def requests(self, base: "BrokerFoundation") -> ZnodeRequests:
        """See `Membership`."""
        requests = ZnodeRequests(self._protocol, self._session, base.channel, base.env.clock)
        if not self._protocol.has_alter_partition:
            base.supervisor.spawn(requests.run(), "notifications of ISR changes")
        return requests

    def join(self, base: "BrokerFoundation", replicas: "ReplicaManager") -> Joined:
        """See `Membership`."""
        hosting = Hosting(replicas, node_id=base.config.node_id)
        base.supervisor.spawn(self._session.run(), "ZooKeeper sessions")
        base.supervisor.spawn(self._configs.run(), "config changes")
        base.supervisor.spawn(self._features.run(), "finalized features")
        lifecycle = self._lifecycle(base)
        if base.config.flag("sparkraft.controllership.enable"):
            base.supervisor.spawn(
                self._own.controller.run(lifecycle.running, lambda: lifecycle.is_registered),
                "controller election",
            )
        return Joined(
            lifecycle=lifecycle,
            follow_image=hosting.on_image,
            forwarding=ZooKeeperForwarding(base.config, base.channel, self._own, self._controller),
            reports_directories=False,
            controller_requests=ControllerRequests(
                self._images,
                hosting,
                self._epochs.zookeeper,
                self._controller,
                self._configs,
                None if self._quorum is None else self._epochs.quorum,
            ),
            own_controller=self._own,
            advertised=self._advertised,
            finalized_features=self._features,
        )

    def _lifecycle(self, base: "BrokerFoundation") -> ZooKeeperLifecycle | MigratingLifecycle:
        in_zookeeper = ZooKeeperLifecycle(
            base.config,
            base.env,
            self._session,
            advertised=self._advertised,
            broker_epoch=self._epochs.zookeeper,
            channel=base.channel,
            spawn=base.supervisor.spawn,
            registration_version=self._protocol.registration,
        )
        if self._quorum is None:
            return in_zookeeper
        with_quorum = BrokerLifecycle(
            base.config,
            base.env,
            cluster_id=base.cluster_id,
            advertised=self._advertised.addresses,
            broker_epoch=self._epochs.quorum,
            channel=self._quorum.heartbeats,
            on_heartbeat_lost=self._on_heartbeat_lost(base.channel),
            publisher=self._quorum.publisher,
            replicas=NoReplicas(),
            log_manager=base.log_manager,
            migrating_level=self._images.image.metadata_version,
        )
        return MigratingLifecycle(
            in_zookeeper, with_quorum, self._controller, base.supervisor.spawn
        )

    def _on_heartbeat_lost(self, channel: ControllerChannel) -> "Callable[[str], None]":
        def reconnect(why: str) -> None:
            if self._controller.is_kraft:
                channel.reconnect(why)

        return reconnect
