"""The registration and the controlled shutdown of a broker in ZooKeeper mode.

    STARTING → /brokers/ids/N → RUNNING → stop → CONTROLLED_SHUTDOWN → SHUT_DOWN

The broker epoch is the czxid of the registration (KIP-380). After a session that expired the
broker registers again, with a new epoch. While it still leads partitions, ControlledShutdown is
sent again, up to `controlled.shutdown.max.retries` times and
`controlled.shutdown.retry.backoff.ms` apart; then the broker stops anyway, as in Kafka 3.9
(`KafkaServer.doControlledShutdown`).

If the advertised listeners change, the data of the registration is replaced.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.server.broker.lifecycle import BrokerState
from sparkraft.server.identity import StartRefused
from sparkraft.server.zookeeper.registration import (
    check_endpoints,
    describe_broker,
    register,
    update_registration,
)
from sparkraft.zookeeper.errors import ZooKeeperError
from sparkraft.zookeeper.requests import Create
from sparkraft.zookeeper.znodes.changes import encode_log_dir_event

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from sparkraft.base.ids import Uuid
    from sparkraft.server.broker.broker_epoch import BrokerEpoch
    from sparkraft.server.broker.controller_channel import ControllerChannel
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.env import Env
    from sparkraft.server.zookeeper.advertised import Addresses, AdvertisedListeners
    from sparkraft.server.zookeeper.session import EnsembleSession
    from sparkraft.zookeeper.znodes.brokers import Registration

log = logging.getLogger(__name__)

LOG_DIR_EVENT = "/log_dir_event_notification/log_dir_event_"


class ZooKeeperLifecycle:
    """Registers, waits for `stop`, leaves.

    Attributes:
        state: of the broker.
        settled: as of `BrokerLifecycle`.
        running: set once registered.
    """

    def __init__(  # noqa: PLR0913 (every collaborator, by name)
        self,
        config: "NodeConfig",
        env: "Env",
        session: "EnsembleSession",
        *,
        advertised: "AdvertisedListeners",
        broker_epoch: "BrokerEpoch",
        channel: "ControllerChannel",
        spawn: "Callable[[Coroutine[Any, Any, Any], str], Any]",
        registration_version: int,
    ) -> None:
        self._registration_version = registration_version
        self._config = config
        self._clock = env.clock
        self._session = session
        self._advertised = advertised
        self._addresses: Addresses = ()
        """Of the newest registration."""
        self._registering = asyncio.Lock()
        self._epoch = broker_epoch
        self._channel = channel
        self._spawn = spawn
        self._stop = asyncio.Event()
        self._has_left = False
        self._registered_session = 0
        """Session of the newest registration."""
        self.state = BrokerState.STARTING
        self.settled = asyncio.Event()
        self.running = asyncio.Event()

    @property
    def broker_epoch(self) -> int:
        """Of the newest registration; -1 before the first."""
        return self._epoch.value

    @property
    def is_registered(self) -> bool:
        """Whether the present session has registered the broker."""
        return self._registered_session == self._session.client.session_id != 0

    async def run(self) -> None:
        """Register, wait for `stop`, shut down.

        Raises:
            StartRefused: another broker has the id or an endpoint.
        """
        self._advertised.add_listener(
            lambda: self._spawn(self._advertise(), "advertised listeners")
        )
        self._addresses = self._advertised.addresses
        try:
            await self._register()
            self._session.add_session_listener(self._register_again)
            self.settled.set()
            self.state = BrokerState.RUNNING
            self.running.set()
            await self._stop.wait()
            if self._config.flag("controlled.shutdown.enable") and not self._has_left:
                await self._leave()
        finally:
            self.state = BrokerState.SHUT_DOWN

    def stop(self, *, has_left: bool = False) -> None:
        """Begin a controlled shutdown.

        Args:
            has_left: whether a KRaft controller rules, which gets no ControlledShutdown.
        """
        self._has_left = has_left
        self._stop.set()

    def report_offline(self, directory: "Uuid | None") -> None:
        """Notify the controller that a log directory failed (KIP-112); it then asks for all."""
        _ = directory
        self._spawn(self._report(), "log directory failure")

    async def _report(self) -> None:
        data = encode_log_dir_event(self._config.node_id)
        create = Create(path=LOG_DIR_EVENT, data=data, sequential=True)
        try:
            await self._session.client.submit_until_connected(create)
        except ZooKeeperError as error:
            # The controller asks about all replicas when this broker registers again.
            log.warning("The failure of a log directory could not be reported: %s", error)

    async def _register(self) -> None:
        node_id = self._config.node_id
        async with self._registering:
            registration = self._registration(self._addresses)
            await check_endpoints(self._session.client, node_id, registration)
            session_id = self._session.client.session_id
            self._epoch.on_registered(await register(self._session, node_id, registration))
            self._registered_session = session_id
        log.info("Registered broker %d with broker epoch %d", node_id, self.broker_epoch)

    def _registration(self, addresses: "Addresses") -> "Registration":
        return describe_broker(
            addresses,
            version=self._registration_version,
            rack=self._config.text("broker.rack") or None,
            now_ms=self._clock.wall_ms(),
        )

    async def _advertise(self) -> None:
        """Replace the registration after the advertised listeners have changed.

        If the session ends meanwhile, the next registration has the new listeners.
        """
        node_id = self._config.node_id
        await self.running.wait()
        async with self._registering:
            addresses = self._advertised.addresses
            registration = self._registration(addresses)
            try:
                await check_endpoints(self._session.client, node_id, registration)
                self._addresses = addresses
                await update_registration(self._session.client, node_id, registration)
            except StartRefused as error:
                log.warning("The advertised listeners are not registered: %s", error)
            except ZooKeeperError as error:
                log.info("The registration was not updated: %s", error)

    async def _register_again(self) -> None:
        try:
            await self._register()
        except StartRefused:
            log.exception("This broker is not registered any more")
            return
        if self._advertised.addresses != self._addresses:
            await self._advertise()  # the session ended before the change was registered

    async def _leave(self) -> None:
        self.state = BrokerState.CONTROLLED_SHUTDOWN
        retries = self._config.number("controlled.shutdown.max.retries")
        backoff_ms = self._config.number("controlled.shutdown.retry.backoff.ms")
        for left in range(retries, -1, -1):
            if await self._has_handed_over():
                return
            if left:
                await asyncio.sleep(backoff_ms / 1000)
        log.warning("The controlled shutdown did not complete; stopping anyway")

    async def _has_handed_over(self) -> bool:
        """Send one ControlledShutdown; whether this broker may stop."""
        from sparkraft.protocol.messages.k07_controlled_shutdown import ControlledShutdownRequest

        request = ControlledShutdownRequest(
            broker_id=self._config.node_id, broker_epoch=self.broker_epoch
        )
        timeout_ms = self._config.number("controller.socket.timeout.ms")
        try:
            response = await self._channel.send(
                request, ApiKey.CONTROLLED_SHUTDOWN, timeout_ms=timeout_ms, tries_ms=timeout_ms // 6
            )
        except KafkaError as error:
            log.info("ControlledShutdown failed: %s", error)
            return False
        if response.error_code:
            log.info("ControlledShutdown was refused: %s", ErrorCode(response.error_code).name)
            return False
        remaining = [f"{p.topic_name}-{p.partition_index}" for p in response.remaining_partitions]
        if remaining:
            log.info("Partitions that this broker still leads: %s", ", ".join(remaining[:10]))
        return not remaining
