"""One node: opens everything in order, runs until told to stop, closes in reverse order.

    directories locked, identity read → logs recovered → ports bound → raft → controller
    → broker registered → unfenced → listeners accept → ready

A node is a broker, a controller or both (`process.roles`). Whoever finds that it can't go on (a
broken invariant, the last disk gone) calls `fail`; the node then stops, and `run` returns 1.

Not here: what each part does; this file only puts them together.
"""

import asyncio
import logging
import signal
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import DecodeError, ErrorCode, KafkaError
from sparkraft.security.authorizer import AllowAll, Authorizer
from sparkraft.server.config import ConfigError, ListenerAddress, NodeConfig
from sparkraft.server.identity import Identity, StartRefused, read_identity
from sparkraft.server.limits import connections_max, per_ip_overrides, tune_malloc
from sparkraft.server.loading import load_options
from sparkraft.server.network.connection_rate import ConnectionRates
from sparkraft.server.network.listener import Limits, Listener, Turns, unexpected
from sparkraft.server.network.request_memory import RequestMemory
from sparkraft.storage.config import LogConfig
from sparkraft.storage.disk import DirectoryLocked, FileLimitTooLow, StorageFault
from sparkraft.storage.log_manager import LogManager
from sparkraft.storage.quorum_state import BadQuorumState

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from sparkraft.server.broker.controller_channel import ControllerChannel
    from sparkraft.server.broker.dynamic_configs import ConnectionConfigs
    from sparkraft.server.broker.metadata_publisher import MetadataPublisher
    from sparkraft.server.broker.services import BrokerServices
    from sparkraft.server.controller.services import ControllerServices
    from sparkraft.server.controller.snapshots import MetadataSnapshots
    from sparkraft.server.env import Env
    from sparkraft.server.raft.driver import RaftDriver

log = logging.getLogger(__name__)

_BAD_DISKS = (StorageFault, BadQuorumState, DecodeError)
"""What disks and files did: the text says it all, and where we met it helps nobody."""

_REFUSALS = (
    *_BAD_DISKS,
    StartRefused,
    ConfigError,
    DirectoryLocked,
    FileLimitTooLow,
    OSError,
    KafkaError,
)
"""What may stop a start; anything else is our bug."""

STOP_MS_MAX = 40_000
"""A stop that takes longer is cut short: something hangs, and the disk's state is sound anyway."""


class Node:
    """See the module docstring.

    Attributes:
        ports: listener name → port it is bound to, once started.
        broker: the broker's services, None without that role.
        controller_services: the controller's, None without that role.
    """

    def __init__(self, config: NodeConfig, env: "Env") -> None:
        """Open nothing yet."""
        self.config = config
        self.env = env
        self.ports: dict[str, int] = {}
        self.listeners: list[Listener] = []
        self.broker: BrokerServices | None = None
        self.controller_services: ControllerServices | None = None
        self.raft: RaftDriver | None = None
        self.identity: Identity | None = None
        self.failure: BaseException | None = None
        self._log_manager: LogManager | None = None
        self._publisher: MetadataPublisher | None = None
        self._snapshots: MetadataSnapshots | None = None
        self.channel: ControllerChannel | None = None
        self.heartbeats: ControllerChannel | None = None
        """A connection of their own, as in Kafka: nothing that clients ask for is before them."""
        self._turns = Turns(env.clock)
        self.authorizer: Authorizer = AllowAll()
        self.connection_rates = ConnectionRates(config)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._life: asyncio.Task[Any] | None = None
        self._faulted: set[str] = set()
        self._stop_asked = asyncio.Event()
        self._failed = asyncio.Event()
        self._http: Any = None

    # ---- the whole life

    async def run(self, started: "Callable[[], None] | None" = None) -> int:
        """Start, serve until SIGTERM, SIGINT or a failure, stop. The process's exit code.

        `started` is called once the node serves.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_asked.set)
        try:
            start = loop.create_task(self.start())
            asked = loop.create_task(self._stop_asked.wait())
            await asyncio.wait({start, asked}, return_when=asyncio.FIRST_COMPLETED)
            if not start.done():
                start.cancel()
            await asyncio.gather(start, return_exceptions=True)
            if not start.cancelled() and start.exception() is not None:
                self._explain(start.exception())
                return 1
            if started is not None:
                started()
            await asked
        finally:
            await self.stop()
        return 1 if self.failure is not None else 0

    def _explain(self, error: BaseException | None) -> None:
        if isinstance(error, _REFUSALS):
            log.error("This node can't start: %s", error)
        else:
            log.error("This node can't start", exc_info=error)
        self.failure = error

    async def start(self) -> None:
        """Open everything; returns once the node serves.

        Raises:
            One of `_REFUSALS`.
        """
        for key in self.config.unknown:
            log.warning("Nobody knows the configuration key %s; it is ignored", key)
        idle = self.config.without_effect
        if idle:
            log.info("These keys are Kafka's, and have no effect here yet: %s", ", ".join(idle))
        tune_malloc()
        limits = self._limits()
        self._open_disks()
        await self._bind(limits)
        await self._start_raft()
        if self.config.is_controller:
            await self._start_controller()
        if self.config.is_broker:
            await self._start_broker()
        await self._start_http()
        log.info("Node %d is ready: %s", self.config.node_id, self.ports)

    async def stop(self) -> None:
        """Leave the cluster in good order and close everything; may be called at any time."""
        try:
            async with asyncio.timeout(STOP_MS_MAX / 1000):
                await self._leave()
        except TimeoutError:
            log.exception("The node did not stop within %d ms; cutting it short", STOP_MS_MAX)
        finally:
            await self._close_all()

    def fail(self, error: BaseException) -> None:
        """Stop because of `error`; the first one counts."""
        if self.failure is None:
            self.failure = error
            where = None if isinstance(error, _BAD_DISKS) else error
            log.critical("This node stops: %s", error, exc_info=where)
        self._failed.set()
        self._stop_asked.set()

    def spawn(self, work: "Coroutine[Any, Any, Any]", name: str) -> asyncio.Task[Any]:
        """Run `work` as a task of this node; an exception nobody expected stops the node."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            assert error is not None
            log.error("The task %r failed", task.get_name(), exc_info=error)
            self.fail(error)

    # ---- disks

    def _open_disks(self) -> None:
        config = self.config
        base = LogConfig(
            record_validation=config.text("sparkraft.record.validation"),
            producer_id_expiration_ms=config.number("producer.id.expiration.ms"),
        )
        directories = config.log_dirs if config.is_broker else (config.metadata_log_dir,)
        if config.metadata_log_dir not in directories:
            directories = (*directories, config.metadata_log_dir)
        manager = LogManager(
            self.env.disk, directories, base, clock=self.env.clock, entropy=self.env.entropy
        )
        manager.lock()
        self._log_manager = manager
        self.identity = read_identity(self.env.disk, config)
        manager.set_default_config(manager.log_config(config.topic_defaults))
        manager.load(options=load_options(config, self.env))
        for fault in manager.damaged.values():
            log.error("A replica is damaged and not served: %s", fault)
        for directory in manager.offline_directories:
            log.error("A log directory is offline: %s", directory.fault)

    def on_storage_fault(self, fault: StorageFault) -> None:
        """A disk failed: its log dir goes offline, and the node with it if it was needed."""
        if fault.log_dir in self._faulted or self._log_manager is None:
            return
        self._faulted.add(fault.log_dir)
        log.error("A log directory failed and goes offline: %s", fault)
        manager = self._log_manager
        manager.fail_directory(fault)
        if self.broker is not None:
            self.broker.replica_manager.drop_log_dir(fault.log_dir)
            self.broker.log_dir_moves.on_directory_failed()
        if fault.log_dir == self.config.metadata_log_dir:
            self.fail(fault)
        elif len(manager.offline_directories) == len(manager.directories):
            log.error("No log directory is left")
            self.fail(fault)
        elif self.broker is not None and self.identity is not None:
            directory_id = self.identity.directory_ids.get(fault.log_dir)
            if directory_id is not None:
                self.broker.lifecycle.report_offline(directory_id)

    def translate(self, error: Exception, where: str) -> KafkaError:
        """What a client hears of an exception that is no KafkaError."""
        if isinstance(error, StorageFault):
            self.on_storage_fault(error)
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "a disk failed")
        return unexpected(error, where)

    def _on_unreadable(self) -> None:
        """Read files anew from now on: a disk that fails then shows as one."""
        if self.broker is not None:
            self.broker.log_manager.release_views(entirely=True)

    # ---- listeners

    def _limits(self) -> Limits:
        config = self.config
        try:
            overrides = per_ip_overrides(config.text("max.connections.per.ip.overrides"))
        except KafkaError as error:
            raise ConfigError(error.detail) from error
        return Limits(
            connections_max=connections_max(
                config.number("max.connections"), listeners=len(config.listeners)
            ),
            connections_per_ip_max=config.number("max.connections.per.ip"),
            per_ip_overrides=overrides,
            request_bytes_max=config.number("socket.request.max.bytes"),
            idle_ms_max=config.number("connections.max.idle.ms"),
        )

    async def _bind(self, limits: Limits) -> None:
        """Take the ports; controllers serve at once, brokers once they are in the cluster."""
        memory = RequestMemory(self.config.number("queued.max.request.bytes"))
        for address in self.config.listeners:
            controller_listener = address.name in self.config.controller_listener_names
            listener = Listener(
                address.name,
                controller_listener=controller_listener,
                limits=limits,
                clock=self.env.clock,
                turns=self._turns,
                on_invariant_broken=self.fail,
                security_protocol=address.security_protocol,
                authorizer=self.authorizer,
                rates=self.connection_rates.of(address.name),
                memory=None if controller_listener else memory,
                translate=self.translate,
                on_unreadable=self._on_unreadable,
            )
            self.listeners.append(listener)
            await listener.bind(self.env.network, address.host or None, address.port)
            self.ports[address.name] = listener.port

    def advertised(self, *, controller: bool) -> tuple[ListenerAddress, ...]:
        """Where others find this node's listeners of one kind; ports that were 0 are filled in."""
        names = set(self.config.controller_listener_names)
        return tuple(
            ListenerAddress(
                name=a.name,
                host=a.host,
                port=a.port or self.ports[a.name],
                security_protocol=a.security_protocol,
            )
            for a in self.config.advertised_listeners
            if (a.name in names) == controller and a.name in self.ports
        )

    def _limit_connections(
        self, configs: "ConnectionConfigs", overrides: "Mapping[str, int]"
    ) -> None:
        """Apply dynamic connection limits to new connections."""
        self.connection_rates.limit(configs.number, configs.number_of)
        connections = configs.number("max.connections")
        for listener in self.listeners:
            listener.limit(
                connections_max=connections_max(connections, listeners=len(self.listeners)),
                connections_per_ip_max=configs.number("max.connections.per.ip"),
                per_ip_overrides=overrides,
            )

    async def _serve(self, node: Any, *, controller: bool) -> None:
        for listener in self.listeners:
            if listener.controller_listener == controller:
                await listener.serve(node)

    # ---- raft and controller

    async def _start_raft(self) -> None:
        """Open the metadata log and everybody who follows it, then let raft go."""
        from sparkraft.server.broker.controller_channel import ControllerChannel
        from sparkraft.server.broker.metadata_publisher import MetadataPublisher
        from sparkraft.server.controller.snapshots import MetadataSnapshots
        from sparkraft.server.metadata_point import MetadataPoint
        from sparkraft.server.quorum import make_controller
        from sparkraft.server.raft.setup import open_raft

        config, env = self.config, self.env
        assert self.identity is not None
        assert self._log_manager is not None
        place = self._log_manager.directory(config.metadata_log_dir)
        known = place.metadata_recovery_point()
        self.raft = raft = open_raft(
            config,
            env,
            cluster_id=self.identity.cluster_id,
            directory_id=self.identity.directory_ids[config.metadata_log_dir],
            recovery_point=known,
            on_fatal=self.fail,
        )
        place.metadata_recovery_point = lambda: max(known, raft.recovery_point)
        raft.register(
            MetadataPoint(
                self._log_manager, config.metadata_log_dir, env.clock, self.on_storage_fault
            )
        )
        core = None
        if config.is_controller:
            self.controller_services = make_controller(config, env, self.identity, raft)
            raft.register(self.controller_services.controller)
            core = self.controller_services.controller.core
        self._publisher = publisher = MetadataPublisher(core)
        raft.register(publisher)
        self._snapshots = MetadataSnapshots(
            raft,
            lambda: publisher.image,
            env.clock,
            bytes_between=config.number("metadata.log.max.record.bytes.between.snapshots"),
            interval_ms=config.number("metadata.log.max.snapshot.interval.ms"),
        )
        raft.register(self._snapshots)
        self.channel, self.heartbeats = (
            ControllerChannel(
                env,
                raft,
                node_id=config.node_id,
                local=self.controller_services,
                controller_listener=config.controller_listener_names[0],
            )
            for _ in range(2)
        )
        for channel in (self.channel, self.heartbeats):
            publisher.tell_leaders(channel.on_leader)
        await self._serve(self.controller_services, controller=True)
        await raft.start()

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

    # ---- broker

    async def _start_broker(self) -> None:
        from sparkraft.server.broker.assembly import BrokerFoundation, assemble

        assert self.raft is not None
        assert self._log_manager is not None
        assert self.identity is not None
        assert self._publisher is not None
        assert self.channel is not None
        assert self.heartbeats is not None
        controller = self.controller_services
        self.broker = broker = assemble(
            BrokerFoundation(
                config=self.config,
                env=self.env,
                cluster_id=self.identity.cluster_id,
                advertised=self.advertised(controller=False),
                log_manager=self._log_manager,
                raft=self.raft,
                controller=None if controller is None else controller.controller,
                publisher=self._publisher,
                channel=self.channel,
                heartbeats=self.heartbeats,
                supervisor=self,
                limit_connections=self._limit_connections,
            )
        )
        self._life = self.spawn(broker.lifecycle.run(), "broker lifecycle")
        await self._until_running(broker)
        await self._serve(broker, controller=False)

    async def _until_running(self, broker: "BrokerServices") -> None:
        """Return once the broker is unfenced in the image it serves; raise if it never will be."""
        assert self._life is not None
        running = asyncio.get_running_loop().create_task(broker.lifecycle.running.wait())
        try:
            await asyncio.wait({running, self._life}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            running.cancel()
        if self._life.done():
            error = None if self._life.cancelled() else self._life.exception()
            raise error if error is not None else StartRefused("the broker was told to stop")
        await broker.replica_manager.settle()

    async def _start_http(self) -> None:
        address = self.config.text("sparkraft.http.listener")
        if address:
            from sparkraft.server.http import HttpServer

            self._http = HttpServer(self, address)
            await self._http.start()

    # ---- stopping

    async def _leave(self) -> None:
        """Have the controller move what this broker leads.

        Only a broker that runs has anything to hand over, as in Kafka's `BrokerLifecycleManager`;
        one that waits to be registered or to catch up may wait for a quorum that never comes. Nor
        does a node whose disk fails while it leaves wait for anybody.
        """
        if self.broker is None or self._life is None or self._life.done():
            return
        lifecycle = self.broker.lifecycle
        lifecycle.stop()
        if not lifecycle.running.is_set():
            self._life.cancel()
        failed = asyncio.get_running_loop().create_task(self._failed.wait())
        try:
            await asyncio.wait({self._life, failed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            failed.cancel()

    async def _close_all(self) -> None:
        await self._close_broker()
        await self._close_quorum()
        for listener in self.listeners:
            await listener.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._log_manager is not None:
            self._close_logs(self._log_manager)
            self._log_manager = None
        self.env.executor.shutdown(wait=False)

    def _close_logs(self, manager: LogManager) -> None:
        """Sync and checkpoint every log; blocks, as nobody else has a turn any more."""
        offline = [directory.path for directory in manager.offline_directories]
        epoch = -1 if self.broker is None else self.broker.lifecycle.broker_epoch
        manager.close(
            clean=self.failure is None, broker_epoch=epoch, run_all=self.env.run_all_and_wait
        )
        for directory in manager.offline_directories:
            if directory.path not in offline:
                log.error(
                    "A log directory failed while it was closed; the next start recovers it: %s",
                    directory.fault,
                )
                self.failure = self.failure or directory.fault

    async def _close_broker(self) -> None:
        for listener in self.listeners:
            if not listener.controller_listener:
                await listener.close()
        if self._http is not None:
            await self._http.stop()
        if self.broker is not None:
            self.broker.groups.close()
            await self.broker.verification.close()

    async def _close_quorum(self) -> None:
        for channel in (self.channel, self.heartbeats):
            if channel is not None:
                await channel.close()
        if self.controller_services is not None:
            await self.controller_services.controller.stop()
        if self._snapshots is not None:
            await self._snapshots.stop()
        if self.raft is not None:
            await self.raft.stop()
