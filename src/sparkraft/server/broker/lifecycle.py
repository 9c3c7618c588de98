"""A broker's registration, heartbeats and controlled shutdown (KIP-631).

    STARTING → register → wait until the image has our registration → heartbeat → RUNNING
    RUNNING → heartbeat every broker.heartbeat.interval.ms → stop → CONTROLLED_SHUTDOWN
    CONTROLLED_SHUTDOWN → the controller moves our leaderships away → SHUT_DOWN

The broker epoch is the offset of the registration record; requests with another one are stale. A
clean stop writes it to `.kafka_cleanshutdown`, and the next registration sends it: the controller
then knows that this broker lost no records (KIP-966).

A controller accepts a registration with another incarnation id if the registered broker has no
session: before its first heartbeat, or after it expired. So the delayed registration of an earlier
process can replace ours. `BrokerLifecycle._reclaim` registers again then.
"""

import asyncio
import logging
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from sparkraft.base.env import random_uuid
from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.metadata.features import CORDONED_LEVEL, METADATA_VERSION, SUPPORTED_FEATURES
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.server.broker.broker_epoch import UNREGISTERED
from sparkraft.server.identity import StartRefused
from sparkraft.storage.disk import StorageFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.base.ids import Uuid
    from sparkraft.server.broker.broker_epoch import BrokerEpoch
    from sparkraft.server.broker.controller_channel import ControllerChannel
    from sparkraft.server.broker.metadata_publisher import MetadataPublisher
    from sparkraft.server.config import ListenerAddress, NodeConfig
    from sparkraft.server.env import Env
    from sparkraft.storage.log_manager import LogManager

log = logging.getLogger(__name__)

UNFENCE_RETRY_MS = 20
"""Between heartbeats while starting: the controller may need a moment to see us caught up."""

_REASONS = {
    ErrorCode.UNSUPPORTED_VERSION: (
        "a feature of the cluster is finalized at a level that this node does not support; start "
        "a newer version, or downgrade the feature first"
    ),
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "another running node has this id",
}
"""Why a controller refuses a registration."""

DUPLICATE_RETRY_MS = 100
"""Between registrations that another process with our id, or our last incarnation, prevents."""

RECLAIMS_MAX = 3
"""How often a process registers again before the controller accepts a heartbeat. Beside another
running process the count continues: two nodes with one id must not take turns without end."""

SHUTDOWN_MS_MAX = 30_000
"""How long a controlled shutdown may take."""

SHUTDOWN_HEARTBEAT_MS = 50
"""Between heartbeats during a controlled shutdown."""


class BrokerState(Enum):
    """Kafka's broker states, by name."""

    STARTING = 1
    """Registering; serves no clients."""
    RUNNING = 3
    """Unfenced: in Metadata, may lead."""
    CONTROLLED_SHUTDOWN = 6
    """Still serving, while leaderships move away."""
    SHUT_DOWN = 7
    """Out of the cluster."""


class Replicas(Protocol):
    """The replicas that must match the image before the broker may be unfenced."""

    async def settle(self) -> None:
        """Return when the logs match every image so far."""

    async def set_strays_aside(self) -> None:
        """Rename logs that are not assigned to this broker."""


class Lifecycle(Protocol):
    """How a broker joins and leaves its cluster: by the quorum, or by ZooKeeper.

    Attributes:
        settled: every log here has its topic's configs, and unassigned logs are set aside.
        running: the broker may lead.
    """

    settled: asyncio.Event
    running: asyncio.Event

    @property
    def state(self) -> BrokerState:
        """Of the broker."""

    @property
    def broker_epoch(self) -> int:
        """Of this incarnation; -1 before it is registered."""

    async def run(self) -> None:
        """Join, wait for `stop`, leave."""

    def stop(self) -> None:
        """Begin a controlled shutdown."""

    def report_offline(self, directory: "Uuid | None") -> None:
        """Report a failed log directory, by its id if it has one."""


class BrokerLifecycle:
    """Registers and heartbeats until stopped."""

    def __init__(  # noqa: PLR0913 (every collaborator, by name)
        self,
        config: "NodeConfig",
        env: "Env",
        *,
        cluster_id: str,
        advertised: "tuple[ListenerAddress, ...]",
        broker_epoch: "BrokerEpoch",
        channel: "ControllerChannel",
        on_heartbeat_lost: "Callable[[str], None]",
        publisher: "MetadataPublisher",
        replicas: Replicas,
        log_manager: "LogManager",
        migrating_level: int | None = None,
    ) -> None:
        """Prepare; `run` does the work.

        Args:
            config: static configs of this node.
            env: clock, entropy and fault points.
            cluster_id: as in meta.properties.
            advertised: listeners that clients and brokers connect to, ports filled in.
            broker_epoch: set once registered.
            channel: to the controller, for registration and heartbeats.
            on_heartbeat_lost: called with a reason when the controller does not respond.
            publisher: has the current image, and knows how far the metadata log is applied.
            replicas: hosted here.
            log_manager: has the log directories and the epoch of the last clean stop.
            migrating_level: of a broker in ZooKeeper mode that is being migrated (KIP-866), the
                metadata.version of its inter.broker.protocol.version: it supports no other one.
                None in KRaft mode.
        """
        self._config = config
        self._clock = env.clock
        self._cluster_id = cluster_id
        self._advertised = advertised
        self._epoch = broker_epoch
        self._channel = channel
        self._on_heartbeat_lost = on_heartbeat_lost
        self._publisher = publisher
        self._replicas = replicas
        self._log_manager = log_manager
        self._fault_point = env.fault_point
        self._directories = _online(log_manager)
        self._migrating_level = migrating_level
        is_migrating = migrating_level is not None
        self._previous_epoch = UNREGISTERED if is_migrating else log_manager.previous_broker_epoch
        self._incarnation = random_uuid(env.entropy)
        self._wake = asyncio.Event()
        self._stopping = False
        self._reclaims = 0
        self._has_rival = False
        """Whether the controller refused a registration for another process's session."""
        self.offline_directories: list[Uuid] = []
        self._unreported_since_ms: int | None = None
        """Since when a failed directory has been unknown to the controller."""
        self.state = BrokerState.STARTING
        self.settled = asyncio.Event()
        """Every log here has its topic's configs, and unassigned logs are set aside."""
        self.running = asyncio.Event()

    @property
    def broker_epoch(self) -> int:
        """Of this incarnation; -1 before it is registered."""
        return self._epoch.value

    async def run(self) -> None:
        """Register, heartbeat until `stop`, shut down; sets `running` once unfenced."""
        try:
            await self._register()
            self._fault_point("registered_before_caught_up")
            await self._publisher.catch_up(self.broker_epoch)
            await self._replicas.settle()
            await self._replicas.set_strays_aside()
            self.settled.set()
            await self._unfence()
            await self._heartbeat_until_stopped()
            self._fault_point("before_controlled_shutdown")
            if self._config.flag("controlled.shutdown.enable"):
                await self._leave()
        finally:
            self.state = BrokerState.SHUT_DOWN

    def stop(self) -> None:
        """Begin a controlled shutdown."""
        self._stopping = True
        self._wake.set()

    def report_offline(self, directory: "Uuid | None") -> None:
        """Report a failed log dir to the controller at once; one without an id is not known to it.

        Until the controller knows, it lets this broker lead partitions it cannot read. After
        log.dir.failure.timeout.ms the node stops (KIP-858).
        """
        if directory is None:
            return
        self.offline_directories.append(directory)
        if self._unreported_since_ms is None:
            self._unreported_since_ms = self._clock.mono_ms()
        self._wake.set()

    # ---- joining

    async def _register(self) -> None:
        request = self._registration()
        timeout_ms = self._config.number("initial.broker.registration.timeout.ms")
        response = await self._first_response(request, timeout_ms)
        if response.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            log.info(
                "Waiting until the session of broker %d's previous incarnation expires",
                request.broker_id,
            )
        started = self._clock.mono_ms()
        deadline = started + timeout_ms
        # Twice: the last heartbeat of the previous incarnation may have been sent just before.
        suspicious = started + 2 * self._config.number("broker.session.timeout.ms")
        while response.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            now = self._clock.mono_ms()
            if self._stopping or now > deadline:
                break
            if now > suspicious:
                suspicious = deadline
                log.warning(
                    "Broker id %d is registered by another process that is still running: a "
                    "second node with the same id",
                    request.broker_id,
                )
            await self._pause(DUPLICATE_RETRY_MS)
            response = await self._send_registration(request, timeout_ms)
        if response.error_code:
            code = ErrorCode(response.error_code)
            reason = _REASONS.get(code, code.name)
            raise StartRefused(
                f"the controller refused to register broker {request.broker_id}: {reason}"
            )
        self._epoch.on_registered(response.broker_epoch)
        log.info("Registered with broker epoch %d", self.broker_epoch)

    async def _first_response(self, request: Any, timeout_ms: int) -> Any:
        """The response to the first registration.

        If this node is a controller too, the timeout does not begin before the metadata log is
        replayed up to the high watermark: Kafka starts the broker of such a node once its
        controller has published that (`KafkaRaftServer.startup`, `ControllerServer.startup`). A
        long log without a snapshot takes minutes, and a node without a quorum waits for one.
        """
        while True:
            begins = not self._config.is_controller or self._publisher.is_loaded
            try:
                return await self._send_registration(request, timeout_ms)
            except KafkaError as error:
                if begins or self._stopping:
                    raise
                log.info("The metadata log is not loaded yet; still registering: %s", error)

    async def _send_registration(self, request: Any, timeout_ms: int) -> Any:
        return await self._channel.send(request, ApiKey.BROKER_REGISTRATION, timeout_ms=timeout_ms)

    def _registration(self) -> Any:
        from sparkraft.protocol.messages.k62_broker_registration import (
            BrokerRegistrationRequest,
            Feature,
            Listener,
        )

        return BrokerRegistrationRequest(
            broker_id=self._config.node_id,
            cluster_id=self._cluster_id,
            incarnation_id=self._incarnation,
            listeners=[
                Listener(
                    name=a.name, host=a.host, port=a.port, security_protocol=a.security_protocol
                )
                for a in self._advertised
            ],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in sorted(self._features().items())
            ],
            rack=self._config.text("broker.rack") or None,
            log_dirs=sorted(set(self._directories) - set(self.offline_directories)),
            previous_broker_epoch=self._previous_epoch,
            is_migrating_zk_broker=self._migrating_level is not None,
        )

    def _features(self) -> dict[str, tuple[int, int]]:
        """Supported levels; the controller compares the brokers' metadata.version this way."""
        level = self._migrating_level
        own = {} if level is None else {METADATA_VERSION: (level, level)}
        return {**SUPPORTED_FEATURES, **own}

    async def _unfence(self) -> None:
        while not self._stopping:
            response = await self._heartbeat(want_shut_down=False)
            if response is not None and not response.is_fenced:
                break
            await self._pause(UNFENCE_RETRY_MS)
        if not self._stopping:
            self.state = BrokerState.RUNNING
            self.running.set()

    # ---- staying and leaving

    async def _heartbeat_until_stopped(self) -> None:
        interval_ms = self._config.number("broker.heartbeat.interval.ms")
        while not self._stopping:
            await self._pause(interval_ms)
            if not self._stopping:
                await self._heartbeat(want_shut_down=False)
                self._check_reported()

    def _check_reported(self) -> None:
        since_ms = self._unreported_since_ms
        limit_ms = self._config.number("log.dir.failure.timeout.ms")
        if since_ms is not None and self._clock.mono_ms() - since_ms > limit_ms:
            raise StorageFault(
                ", ".join(map(str, self.offline_directories)),
                "report a failed log directory to the controller",
                f"no response for {limit_ms} ms",
            )

    async def _leave(self) -> None:
        self.state = BrokerState.CONTROLLED_SHUTDOWN
        deadline = self._clock.mono_ms() + SHUTDOWN_MS_MAX
        while self._clock.mono_ms() < deadline:
            response = await self._heartbeat(want_shut_down=True)
            if response is None or response.should_shut_down:
                return
            await asyncio.sleep(SHUTDOWN_HEARTBEAT_MS / 1000)
        log.warning("Controlled shutdown timed out; stopping anyway")

    async def _heartbeat(self, *, want_shut_down: bool) -> Any:
        """The response to one heartbeat; None if it failed, and the next one may succeed."""
        request = self._heartbeat_request(want_shut_down=want_shut_down)
        reported = len(self.offline_directories)
        if self._fault_point("heartbeat_lost"):
            return None
        try:
            response = await self._channel.send(
                request,
                ApiKey.BROKER_HEARTBEAT,
                timeout_ms=self._config.number("broker.session.timeout.ms") // 2,
            )
        except KafkaError as error:
            # The controllers may stop together with this broker.
            level = logging.INFO if want_shut_down else logging.WARNING
            log.log(level, "Heartbeat failed: %s", error)
            self._channel.reconnect(_NO_RESPONSE)
            self._on_heartbeat_lost(_NO_RESPONSE)
            return None
        if self._fault_point("answer_to_a_heartbeat_lost"):
            return None
        if response.error_code:
            log.warning("Heartbeat was refused: %s", ErrorCode(response.error_code).name)
            if response.error_code == ErrorCode.STALE_BROKER_EPOCH and not want_shut_down:
                await self._reclaim()
            return None
        if not self._has_rival:  # we have a session: the controller refuses other processes
            self._reclaims = 0
        if reported == len(self.offline_directories):
            self._unreported_since_ms = None
        return response

    async def _reclaim(self) -> None:
        """Register again if the image has another process's registration with our id.

        A process that has ended sends no heartbeats, so it has no session, and the controller
        accepts our registration with a new broker epoch. While the other process runs, it refuses.
        An accepted heartbeat resets the count until the controller has refused a registration.
        A broker that was unregistered stays so. Kafka's broker stays fenced until it is restarted.
        """
        known = self._publisher.image.brokers.get(self._config.node_id)
        if known is None:
            return
        if known.incarnation_id == self._incarnation:
            if known.epoch > self.broker_epoch:  # the response to an earlier call was lost
                self._epoch.on_registered(known.epoch)
            return
        if self._reclaims < RECLAIMS_MAX and await self._register_again():
            return
        log.warning(
            "Broker id %d is registered by another process: a second node with the same id. This "
            "broker stays fenced; stop one of them",
            self._config.node_id,
        )
        await self._pause(self._config.number("broker.heartbeat.interval.ms"))

    async def _register_again(self) -> bool:
        """Whether the controller accepted it; True as well without a response to act on."""
        timeout_ms = self._config.number("broker.session.timeout.ms") // 2
        try:
            response = await self._send_registration(self._registration(), timeout_ms)
        except KafkaError as error:
            log.warning("Registration failed: %s", error)
            return True
        if response.error_code:
            code = ErrorCode(response.error_code)
            self._has_rival |= code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
            log.warning("Registration was refused: %s", code.name)
            return False
        self._reclaims += 1
        self._epoch.on_registered(response.broker_epoch)
        log.warning(
            "Another process had registered broker %d; registered again with broker epoch %d",
            self._config.node_id,
            self.broker_epoch,
        )
        return True

    def _heartbeat_request(self, *, want_shut_down: bool) -> Any:
        from sparkraft.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest

        return BrokerHeartbeatRequest(
            broker_id=self._config.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._publisher.offset,
            want_fence=False,
            want_shut_down=want_shut_down,
            offline_log_dirs=sorted(self.offline_directories),
            cordoned_log_dirs=self._cordoned(),
        )

    def _cordoned(self) -> "list[Uuid] | None":
        """Return the cordoned directories; None if the controller does not need them."""
        image = self._publisher.image
        known = image.brokers.get(self._config.node_id)
        if image.metadata_version < CORDONED_LEVEL or known is None:
            return None
        manager = self._log_manager
        found = [
            directory.directory_id
            for directory in manager.directories
            if directory.path in manager.cordoned and directory.directory_id is not None
        ]
        return sorted(found) if found or known.cordoned_directories else None

    async def _pause(self, wait_ms: int) -> None:
        """Wait; `stop` and `report_offline` end the wait early."""
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()


_NO_RESPONSE = "the controller did not respond to a heartbeat"


def _online(log_manager: "LogManager") -> "list[Uuid]":
    return [
        directory.directory_id
        for directory in log_manager.directories
        if directory.fault is None and directory.directory_id is not None
    ]
