"""One node: opens everything in order, runs until it is stopped, closes in reverse order.

    directories locked, identity read → logs recovered → ports bound → raft → controller
    → broker registered → unfenced → listeners accept → ready

A node is a broker, a controller or both (`process.roles`). A part that cannot continue (a broken
invariant, the last failed disk) calls `fail`; the node then stops, and `run` returns 1.

Not here: ZooKeeper mode (`zookeeper_node`); the parts of a node. Listeners: `listeners`; log
directories: `log_dirs`; tasks and failures: `supervisor`; the metadata quorum: `quorum`; the
broker's parts: `broker_assembly`.
"""

import asyncio
import logging
import signal
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.metadata.image import EMPTY_IMAGE
from sparkraft.server.access_control import authorizer_of, check_voters, publish_acls
from sparkraft.server.config import ConfigError, ListenerAddress, NodeConfig
from sparkraft.server.dialing import NodeDialing
from sparkraft.server.followed_quotas import followed_quotas
from sparkraft.server.http_access import HttpAccess
from sparkraft.server.identity import Identity, StartRefused
from sparkraft.server.limits import keep_freed_buffers
from sparkraft.server.listeners import NodeListeners, limits_of, listener_tls
from sparkraft.server.log_dirs import close_log_dirs, load_logs, lock_log_dirs
from sparkraft.server.loop_monitor import LoopMonitor
from sparkraft.server.network.listener import Listener, unexpected
from sparkraft.server.node_tls import NodeTls, stores_follower
from sparkraft.server.openness import openness
from sparkraft.server.sasl_config import sasl_of_listeners
from sparkraft.server.scram_logins import ScramLogins
from sparkraft.server.supervisor import BAD_DISKS, NodeTasks
from sparkraft.server.tls_config import HTTP_LISTENER, check_tls
from sparkraft.storage.disk import DirectoryLocked, FileLimitTooLow, StorageFault

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from sparkraft.metadata.image import ClusterImage
    from sparkraft.security.authorizer import Authorizer
    from sparkraft.security.client_quotas import ClientQuotas
    from sparkraft.server.broker.controller_channel import ControllerChannel
    from sparkraft.server.broker.metadata_publisher import MetadataPublisher
    from sparkraft.server.broker_assembly import Membership, Publisher
    from sparkraft.server.broker_services import BrokerServices
    from sparkraft.server.controller.services import ControllerServices
    from sparkraft.server.controller.snapshots import MetadataSnapshots
    from sparkraft.server.env import Env
    from sparkraft.server.http import HttpServer
    from sparkraft.server.migration.driver import MigrationDriver
    from sparkraft.server.network.connection_rate import ConnectionRates
    from sparkraft.server.quorum import QuorumFollowers
    from sparkraft.server.raft.driver import RaftDriver
    from sparkraft.server.zookeeper.status import ZooKeeperStatus
    from sparkraft.storage.log_manager import LogManager

log = logging.getLogger(__name__)

_REFUSALS = (
    *BAD_DISKS,
    StartRefused,
    ConfigError,
    DirectoryLocked,
    FileLimitTooLow,
    OSError,
    KafkaError,
)
"""Expected reasons why a node cannot start; any other exception is a bug."""

STOP_MS_MAX = 40_000
"""A controlled shutdown that takes longer is aborted: something hangs, and the disks are sound."""


class Node:
    """See the module docstring. It is its parts' `Supervisor`, and observers' `NodeStatus`.

    Attributes:
        broker: the broker's services; None without that role or before they are built.
        controller_services: the controller's; likewise.
        loop_monitor: how late the event loop is.
        migration: of a controller that migrates a cluster from ZooKeeper; None otherwise.
    """

    def __init__(self, config: NodeConfig, env: "Env") -> None:
        self.config = config
        self.env = env
        self.authorizer: Authorizer = authorizer_of(config)
        self.broker: BrokerServices | None = None
        self.controller_services: ControllerServices | None = None
        self.raft: RaftDriver | None = None
        self.identity: Identity | None = None
        self.channel: ControllerChannel | None = None
        self.heartbeats: ControllerChannel | None = None
        """A connection of its own, as in Kafka, so that heartbeats wait for no other request."""
        self.loop_monitor = LoopMonitor(env.clock)
        self._listeners = NodeListeners(config, env, self.loop_monitor)
        self._tasks = NodeTasks(self.loop_monitor)
        self._log_manager: LogManager | None = None
        self._publisher: MetadataPublisher | None = None
        self._quotas: ClientQuotas | None = None
        self._snapshots: MetadataSnapshots | None = None
        self._lifecycle: asyncio.Task[Any] | None = None
        self.migration: MigrationDriver | None = None
        self._failed_dirs: set[str] = set()
        self._http: HttpServer | None = None
        self._dialing: NodeDialing | None = None
        self._tls: NodeTls | None = None

    @property
    def failure(self) -> BaseException | None:
        """Why the node stops; None while it runs."""
        return self._tasks.failure

    @property
    def listeners(self) -> list[Listener]:
        """In the order of `listeners`, once bound."""
        return self._listeners.all

    @property
    def zookeeper(self) -> "ZooKeeperStatus | None":
        """The parts of ZooKeeper mode, for observers; None in KRaft mode."""
        return None

    @property
    def ports(self) -> dict[str, int]:
        """Listener name → port it is bound to, once bound."""
        return self._listeners.ports

    @property
    def connection_rates(self) -> "ConnectionRates":
        """The limits of max.connection.creation.rate."""
        return self._listeners.rates

    # ---- running

    async def run(self, started: "Callable[[], None] | None" = None) -> int:
        """Start, serve until SIGTERM, SIGINT or a failure, stop. The process's exit code.

        `started` is called once the node serves.
        """
        loop = asyncio.get_running_loop()
        requested = self._tasks.stop_requested
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, requested.set)
        try:
            start = loop.create_task(self.start())
            stop = loop.create_task(requested.wait())
            await asyncio.wait({start, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not start.done():
                start.cancel()
            await asyncio.gather(start, return_exceptions=True)
            if not start.cancelled() and start.exception() is not None:
                self._on_start_failed(start.exception())
                return 1
            if started is not None:
                started()
            await stop
        finally:
            await self.stop()
        return 1 if self.failure is not None else 0

    def _on_start_failed(self, error: BaseException | None) -> None:
        if isinstance(error, _REFUSALS):
            log.error("This node can't start: %s", error)
        else:
            log.error("This node can't start", exc_info=error)
        self._tasks.keep(error)

    async def start(self) -> None:
        """Open everything; returns once the node serves.

        Raises:
            One of `_REFUSALS`.
        """
        for key in self.config.unknown:
            log.warning("Unknown config %s is ignored", key)
        idle = self.config.without_effect
        if idle:
            log.info("These configs of Kafka have no effect here yet: %s", ", ".join(idle))
        keep_freed_buffers()
        limits = limits_of(self.config)
        scram = ScramLogins(self._image, self.env.entropy, self.env.clock, self.config.token_key)
        sasl = sasl_of_listeners(self.config, scram, self.env.clock)
        check_tls(self.config)
        self._tls = tls = NodeTls(self.config)
        self._dialing = NodeDialing(self.config, self.env.network, tls)
        self.spawn(self.loop_monitor.run(), "loop monitor")
        await self._open_logs()
        await self._listeners.bind(
            limits,
            sasl=sasl,
            tls=tls,
            authorizer=self.authorizer,
            fail=self.fail,
            translate=self.translate,
            on_unreadable=self._on_unreadable,
        )
        await self._start_roles()
        if self.broker is None:
            await self._start_http()
        self._start_otlp()
        log.info("Node %d is ready: %s", self.config.node_id, self.ports)
        http = None if self._http is None else (self._http.host, self._http.port)
        log.info("%s", openness(self.config, self.ports, http))

    async def _open_logs(self) -> None:
        """Lock the log directories, read the identity, load the logs."""
        self._log_manager = lock_log_dirs(self.config, self.env)
        self.identity = load_logs(self._log_manager, self.config, self.env)

    async def _start_roles(self) -> None:
        """Join the cluster; returns once all listeners serve."""
        await self._start_raft()
        if self.config.is_controller:
            await self._start_controller()
        if self.config.is_broker:
            await self._start_broker()

    async def stop(self) -> None:
        """Shut down and close everything; may be called at any time."""
        try:
            async with asyncio.timeout(STOP_MS_MAX / 1000):
                await self._leave()
        except TimeoutError:
            log.exception("The node did not stop within %d ms; aborting", STOP_MS_MAX)
        finally:
            await self._close_all()

    # ---- the Supervisor of its parts

    def spawn(self, work: "Coroutine[Any, Any, Any]", name: str) -> asyncio.Task[Any]:
        """See `Supervisor`."""
        return self._tasks.spawn(work, name)

    def fail(self, error: BaseException) -> None:
        """See `Supervisor`."""
        self._tasks.fail(error)

    def on_storage_fault(self, fault: StorageFault) -> None:
        """See `Supervisor`."""
        if fault.log_dir in self._failed_dirs or self._log_manager is None:
            return
        self._failed_dirs.add(fault.log_dir)
        log.error("A log directory failed and goes offline: %s", fault)
        manager = self._log_manager
        manager.fail_directory(fault)
        if self.broker is not None:
            self.broker.replica_manager.drop_log_dir(fault.log_dir)
            self.broker.log_dir_moves.on_directory_failed()
        if self._needs_directory(fault.log_dir):
            self.fail(fault)
        elif len(manager.offline_directories) == len(manager.directories):
            log.error("All log directories have failed")
            self.fail(fault)
        elif self.broker is not None and self.identity is not None:
            self.broker.lifecycle.report_offline(self.identity.directory_ids.get(fault.log_dir))

    def _needs_directory(self, log_dir: str) -> bool:
        """Whether the node cannot continue without it."""
        return log_dir == self.config.metadata_log_dir

    def translate(self, error: Exception, where: str) -> KafkaError:
        """The client's error for an exception other than KafkaError."""
        if isinstance(error, StorageFault):
            self.on_storage_fault(error)
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "a disk failed")
        return unexpected(error, where)

    def _image(self) -> "ClusterImage":
        """The metadata that this node has replayed."""
        return EMPTY_IMAGE if self._publisher is None else self._publisher.image

    def _on_unreadable(self) -> None:
        """Reopen files before they are read again, so that a failed disk is noticed."""
        if self.broker is not None:
            self.broker.log_manager.release_views(entirely=True)

    # ---- raft and controller

    async def _start_raft(self) -> None:
        """Open the metadata log, register its listeners, then start raft."""
        followers = self._open_quorum()
        assert self.raft is not None
        self.controller_services = followers.controller_services
        self._publisher = followers.publisher
        publish_acls(self.raft, self.authorizer, self._publisher)
        self.channel = followers.channel
        if not self.config.is_broker:  # a broker's follow its dynamic configs
            assert self._tls is not None
            followers.publisher.follow(stores_follower(self._tls, self.config.node_id))
        self._quotas = followed_quotas(self.config, followers.publisher, self.env, self.spawn)
        await self._listeners.serve(self.controller_services, controller=True, quotas=self._quotas)
        await self.raft.start()

    def _open_quorum(self) -> "QuorumFollowers":
        """Open the metadata log and register its listeners; raft is not started."""
        from sparkraft.server.quorum import follow_quorum, open_member

        assert self.identity is not None
        assert self._log_manager is not None
        assert self._dialing is not None
        connect = self._dialing.to_controllers
        self.raft = open_member(
            self.config,
            self.env,
            self.identity,
            self._log_manager,
            on_fatal=self.fail,
            connect=connect,
        )
        check_voters(self.config, self.authorizer, len(self.raft.voters.ids))
        followers = follow_quorum(
            self.config,
            self.env,
            self.identity,
            self.raft,
            self._log_manager,
            on_storage_fault=self.on_storage_fault,
            connect=connect,
        )
        self._snapshots, self.heartbeats = followers.snapshots, followers.heartbeats
        return followers

    async def _start_controller(self) -> None:
        from sparkraft.server.quorum import register_controller

        assert self.controller_services is not None
        assert self.channel is not None
        assert self._publisher is not None
        self.controller_services.controller.start()
        registration = register_controller(
            self.config,
            self.env,
            self.channel,
            self._publisher,
            self.advertised(controller=True),
        )
        self.spawn(registration, "controller registration")
        if self.config.migrates:
            self._start_migration()

    def _start_migration(self) -> None:
        from sparkraft.server.migration.driver import MigrationDriver

        assert self.controller_services is not None
        assert self.identity is not None
        assert self._publisher is not None
        assert self._dialing is not None
        self.migration = MigrationDriver(
            self.config,
            self.env,
            self.controller_services.controller,
            self._publisher,
            cluster_id=self.identity.cluster_id,
            connect=self._dialing.to_brokers,
            spawn=self.spawn,
        )
        self.migration.start()

    def advertised(self, *, controller: bool) -> tuple[ListenerAddress, ...]:
        """The advertised listeners of one kind, with the ports that were 0 filled in."""
        return self._listeners.advertised(controller=controller)

    # ---- broker

    async def _start_broker(self) -> None:
        from sparkraft.server.broker_assembly import KRaftMembership

        assert self._publisher is not None
        assert self.heartbeats is not None
        membership = KRaftMembership(self._publisher, self.heartbeats)
        await self._run_broker(self._publisher, membership)

    async def _run_broker(self, publisher: "Publisher", membership: "Membership") -> None:
        """Build the broker and join; returns once its listeners serve."""
        from sparkraft.server.broker_assembly import BrokerFoundation, assemble

        assert self._log_manager is not None
        assert self.identity is not None
        assert self.channel is not None
        assert self._dialing is not None
        assert self._tls is not None
        controller = self.controller_services
        self.broker = broker = assemble(
            BrokerFoundation(
                config=self.config,
                env=self.env,
                cluster_id=self.identity.cluster_id,
                advertised=self.advertised(controller=False),
                log_manager=self._log_manager,
                raft=None if self.config.is_zookeeper else self.raft,
                controller=None if controller is None else controller.controller,
                publisher=publisher,
                channel=self.channel,
                membership=membership,
                supervisor=self,
                quotas=self._quotas
                or followed_quotas(self.config, publisher, self.env, self.spawn),
                limit_connections=self._listeners.limit,
                connect=self._dialing.to_brokers,
                stores=self._tls,
            )
        )
        self._lifecycle = self.spawn(broker.lifecycle.run(), "broker lifecycle")
        await self._until_running(broker, self._lifecycle)
        # Before the listeners: if a client can connect, /health responds too.
        await self._start_http()
        await self._listeners.serve(broker, controller=False, quotas=broker.client_quotas)

    async def _until_running(
        self, broker: "BrokerServices", lifecycle: "asyncio.Task[Any]"
    ) -> None:
        """Return once the broker is unfenced in the image it serves; raise if its task ended."""
        running = asyncio.get_running_loop().create_task(broker.lifecycle.running.wait())
        try:
            await asyncio.wait({running, lifecycle}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            running.cancel()
        if lifecycle.done():
            error = None if lifecycle.cancelled() else lifecycle.exception()
            raise error if error is not None else StartRefused("the broker was stopped")
        await broker.replica_manager.settle()

    async def _start_http(self) -> None:
        address = self.config.text("sparkraft.http.listener")
        if address:
            from sparkraft.server.http import HttpServer

            assert self._tls is not None
            tls = listener_tls(self._tls, HTTP_LISTENER)
            access = HttpAccess(tls, self.authorizer, self.env.clock)
            self._http = HttpServer(self, self.env.network, address, access)
            await self._http.start()

    def _start_otlp(self) -> None:
        endpoint = self.config.text("sparkraft.otlp.endpoint")
        if endpoint:
            from sparkraft.server.otlp_export import OtlpExport

            interval_ms = self.config.number("sparkraft.otlp.interval.ms")
            export = OtlpExport(self, self.env.clock, endpoint, interval_ms)
            self.spawn(export.run(), "OTLP export")

    # ---- stopping

    async def _leave(self) -> None:
        """Run the controlled shutdown, in which the controller moves leaderships away.

        Only a running broker has leaderships, as in Kafka's `BrokerLifecycleManager`; a broker
        that is still registering or catching up may wait for a quorum that never forms. A disk
        failure ends the controlled shutdown too.
        """
        if self.broker is None or self._lifecycle is None or self._lifecycle.done():
            return
        lifecycle = self.broker.lifecycle
        lifecycle.stop()
        if not lifecycle.running.is_set():
            self._lifecycle.cancel()
        failed = asyncio.get_running_loop().create_task(self._tasks.failed.wait())
        try:
            await asyncio.wait({self._lifecycle, failed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            failed.cancel()

    async def _close_all(self) -> None:
        await self._close_broker()
        await self._close_quorum()
        await self._listeners.close()
        if self.broker is not None:
            await self.broker.replica_manager.close_folders()
        await self._tasks.cancel_all()
        if self._log_manager is not None:
            manager, self._log_manager = self._log_manager, None
            epoch = -1 if self.broker is None else self.broker.lifecycle.broker_epoch
            clean = self.failure is None
            self._tasks.keep(close_log_dirs(manager, self.env, clean=clean, broker_epoch=epoch))
        self.env.executor.shutdown(wait=False)
        if self.env.record_threads is not None:
            self.env.record_threads.shutdown()

    async def _close_broker(self) -> None:
        await self._listeners.close_brokers()
        if self._http is not None:
            await self._http.stop()
        if self.broker is not None:
            self.broker.transactions.close()
            self.broker.groups.close()
            self.broker.cold_reads.close()
            await self.broker.broker_connections.close()

    async def _close_quorum(self) -> None:
        for channel in (self.channel, self.heartbeats):
            if channel is not None:
                await channel.close()
        if self.migration is not None:
            await self.migration.close()
        if self.controller_services is not None:
            await self.controller_services.controller.stop()
        if self._snapshots is not None:
            await self._snapshots.stop()
        if self.raft is not None:
            await self.raft.stop()
