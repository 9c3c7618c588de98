"""A broker's place in the cluster: registered, unfenced, and out again in good order (KIP-631).

    STARTING → register → wait until the image holds our registration → heartbeat → RUNNING
    RUNNING → heartbeat every broker.heartbeat.interval.ms → stop asked → CONTROLLED_SHUTDOWN
    CONTROLLED_SHUTDOWN → the controller moves our leaderships away → SHUT_DOWN

The broker epoch is the offset of the registration record; a request with another one is stale. A
clean stop leaves it in `.kafka_cleanshutdown`, and the next registration names it: the controller
then knows that nothing was lost here (KIP-966).
"""

import asyncio
import logging
from enum import Enum
from typing import TYPE_CHECKING, Any

from sparkraft.base.env import random_uuid
from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.metadata.features import CORDONED_LEVEL, SUPPORTED_FEATURES
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.storage.disk import StorageFault

if TYPE_CHECKING:
    from sparkraft.base.ids import Uuid
    from sparkraft.server.broker.controller_channel import ControllerChannel
    from sparkraft.server.broker.metadata_publisher import MetadataPublisher
    from sparkraft.server.broker.services import BrokerServices
    from sparkraft.server.config import ListenerAddress

log = logging.getLogger(__name__)

UNFENCE_RETRY_MS = 20
"""Between heartbeats while starting: the controller may need a moment to see us caught up."""

SHUTDOWN_MS_MAX = 30_000
"""How long a stop waits for the controller before it goes on without it."""

SHUTDOWN_HEARTBEAT_MS = 50
"""Between heartbeats while stopping."""


class BrokerState(Enum):
    """Kafka's broker states, by name."""

    STARTING = 1
    """Registering; serves nobody."""
    RUNNING = 3
    """Unfenced: in Metadata, may lead."""
    CONTROLLED_SHUTDOWN = 6
    """Still serving, while leaderships move away."""
    SHUT_DOWN = 7
    """Out of the cluster."""


class BrokerLifecycle:
    """Registers and heartbeats until told to stop."""

    def __init__(
        self,
        broker: "BrokerServices",
        channel: "ControllerChannel",
        publisher: "MetadataPublisher",
        *,
        advertised: "tuple[ListenerAddress, ...]",
        directories: "list[Uuid]",
        previous_epoch: int,
    ) -> None:
        """Prepare; `run` does it.

        Args:
            broker: whose life it is.
            channel: to the controller.
            publisher: knows how far the metadata log is applied.
            advertised: where clients and brokers find us, ports filled in.
            directories: ids of the log dirs that are online.
            previous_epoch: of the last clean stop, -1 where there was none.
        """
        self._broker = broker
        self._config = broker.config
        self._channel = channel
        self._publisher = publisher
        self._fault_point = broker.env.fault_point
        self._advertised = advertised
        self._directories = directories
        self._previous_epoch = previous_epoch
        self._incarnation = random_uuid(broker.env.entropy)
        self._wake = asyncio.Event()
        self._stopping = False
        self.offline_directories: list[Uuid] = []
        self._untold_since_ms: int | None = None
        """Since when a failed directory has been known here and not to the controller."""
        self.state = BrokerState.STARTING
        self.broker_epoch = -1
        self.settled = asyncio.Event()
        """Every log here has its topic's settings, and logs of no topic are set aside."""
        self.running = asyncio.Event()

    async def run(self) -> None:
        """Live until `stop`; sets `running` once unfenced."""
        try:
            await self._register()
            self._fault_point("registered_before_caught_up")
            await self._publisher.catch_up(self.broker_epoch)
            await self._broker.replica_manager.settle()
            self._broker.replica_manager.set_strays_aside()
            self.settled.set()
            await self._unfence()
            await self._heartbeat_until_stopped()
            self._fault_point("before_controlled_shutdown")
            if self._config.flag("controlled.shutdown.enable"):
                await self._leave()
        finally:
            self.state = BrokerState.SHUT_DOWN

    def stop(self) -> None:
        """Begin to leave."""
        self._stopping = True
        self._wake.set()

    def report_offline(self, directory: "Uuid") -> None:
        """A log dir failed: the controller hears of it at once.

        While it doesn't, it lets this broker lead what nobody can read here. After
        log.dir.failure.timeout.ms the node gives up (KIP-858).
        """
        self.offline_directories.append(directory)
        if self._untold_since_ms is None:
            self._untold_since_ms = self._broker.clock.mono_ms()
        self._wake.set()

    # ---- joining

    async def _register(self) -> None:
        request = self._registration()
        timeout_ms = self._config.number("initial.broker.registration.timeout.ms")
        answer = await self._channel.send(
            request, ApiKey.BROKER_REGISTRATION, timeout_ms=timeout_ms
        )
        pause_ms = 100
        if answer.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            log.warning(
                "Broker id %d is registered by another process: this one's last life, which is "
                "forgotten when its session lapses, or a second node of the same id",
                request.broker_id,
            )
        deadline = self._broker.clock.mono_ms() + timeout_ms
        while answer.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            # Our last incarnation was killed and its session lasts; it is fenced when that ends.
            if self._stopping or self._broker.clock.mono_ms() > deadline:
                break
            await self._pause(pause_ms)
            answer = await self._channel.send(
                request, ApiKey.BROKER_REGISTRATION, timeout_ms=timeout_ms
            )
        if answer.error_code:
            code = ErrorCode(answer.error_code)
            raise KafkaError(code, f"the controller refuses to register broker {request.broker_id}")
        self.broker_epoch = answer.broker_epoch
        log.info("Registered with broker epoch %d", self.broker_epoch)

    def _registration(self) -> Any:
        from sparkraft.protocol.messages.k62_broker_registration import (
            BrokerRegistrationRequest,
            Feature,
            Listener,
        )

        return BrokerRegistrationRequest(
            broker_id=self._config.node_id,
            cluster_id=self._broker.cluster_id,
            incarnation_id=self._incarnation,
            listeners=[
                Listener(
                    name=a.name, host=a.host, port=a.port, security_protocol=a.security_protocol
                )
                for a in self._advertised
            ],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in sorted(SUPPORTED_FEATURES.items())
            ],
            rack=self._config.text("broker.rack") or None,
            log_dirs=sorted(self._directories),
            previous_broker_epoch=self._previous_epoch,
        )

    async def _unfence(self) -> None:
        while not self._stopping:
            answer = await self._heartbeat(want_shut_down=False)
            if answer is not None and not answer.is_fenced:
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
                self._check_told()

    def _check_told(self) -> None:
        since_ms = self._untold_since_ms
        limit_ms = self._config.number("log.dir.failure.timeout.ms")
        if since_ms is not None and self._broker.clock.mono_ms() - since_ms > limit_ms:
            raise StorageFault(
                ", ".join(map(str, self.offline_directories)),
                "tell the controller of a failed log directory",
                f"it has not answered for {limit_ms} ms",
            )

    async def _leave(self) -> None:
        self.state = BrokerState.CONTROLLED_SHUTDOWN
        deadline = self._broker.clock.mono_ms() + SHUTDOWN_MS_MAX
        while self._broker.clock.mono_ms() < deadline:
            answer = await self._heartbeat(want_shut_down=True)
            if answer is None or answer.should_shut_down:
                return
            await asyncio.sleep(SHUTDOWN_HEARTBEAT_MS / 1000)
        log.warning("The controller did not let this broker go in time; stopping anyway")

    async def _heartbeat(self, *, want_shut_down: bool) -> Any:
        """One heartbeat's answer; None where it failed, which the next one may mend."""
        from sparkraft.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest

        request = BrokerHeartbeatRequest(
            broker_id=self._config.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._publisher.offset,
            want_fence=False,
            want_shut_down=want_shut_down,
            offline_log_dirs=sorted(self.offline_directories),
            cordoned_log_dirs=self._cordoned(),
        )
        told = len(self.offline_directories)
        if self._fault_point("heartbeat_lost"):
            return None
        try:
            answer = await self._channel.send(
                request,
                ApiKey.BROKER_HEARTBEAT,
                timeout_ms=self._config.number("broker.session.timeout.ms") // 2,
            )
        except KafkaError as error:
            log.warning("A heartbeat failed: %s", error)
            for channel in (self._channel, self._broker.channel):
                channel.connect_anew("the controller answers no heartbeat")
            return None
        if self._fault_point("answer_to_a_heartbeat_lost"):
            return None
        if answer.error_code:
            log.warning("The controller refused a heartbeat: %s", ErrorCode(answer.error_code).name)
            return None
        if told == len(self.offline_directories):
            self._untold_since_ms = None
        return answer

    def _cordoned(self) -> "list[Uuid] | None":
        """Directories that are to get no new replicas; None where the cluster needn't hear."""
        image = self._broker.image
        known = image.brokers.get(self._broker.node_id)
        if image.metadata_version < CORDONED_LEVEL or known is None:
            return None
        manager = self._broker.log_manager
        found = [
            directory.directory_id
            for directory in manager.directories
            if directory.path in manager.cordoned and directory.directory_id is not None
        ]
        return sorted(found) if found or known.cordoned_directories else None

    async def _pause(self, wait_ms: int) -> None:
        """Wait, but no longer than until `stop` or `report_offline`."""
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()
