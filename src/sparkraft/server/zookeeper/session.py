"""The ZooKeeper sessions of a broker, one after another.

A session that has expired is replaced by a new one, as Kafka's `ZooKeeperClient.reinitialize` does:
attempts are `RETRY_MS` apart, without an end, because the data plane can continue without
ZooKeeper. Before it, the listeners for expired sessions run: the controller resigns. After it, the
listeners for new sessions run, in order: the broker registers again, and watches are set again.
While only a connection is lost, the session and its watches continue.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from sparkraft.security.tls_settings import TlsConfigError
from sparkraft.server.config import ConfigError
from sparkraft.tls.dialing import client_dialing
from sparkraft.zookeeper.client import State, ZooKeeperClient
from sparkraft.zookeeper.connect_string import ConnectString, parse_connect_string
from sparkraft.zookeeper.errors import ZooKeeperError
from sparkraft.zookeeper.security import read_ensemble_security

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sparkraft.server.config import NodeConfig
    from sparkraft.server.env import Env
    from sparkraft.tls.dialing import Connect
    from sparkraft.zookeeper.exchange import WatchEvent

log = logging.getLogger(__name__)

RETRY_MS = 1_000
"""Between attempts to open a session after one has expired: Kafka's pause."""


class EnsembleSession:
    """See the module docstring.

    Attributes:
        client: of the newest session.
        previous_session_id: of the session before; 0 if there was none.
        expired: how many sessions have expired.
    """

    def __init__(self, config: "NodeConfig", env: "Env") -> None:
        """Prepare a session with the ensemble of `zookeeper.connect`.

        Raises:
            ValueError: zookeeper.connect is malformed.
            ConfigError: a store of zookeeper.ssl.* cannot be used.
        """
        self._config = config
        self._env = env
        self._security = read_ensemble_security(config.properties)
        self._connect: Connect = env.network.connect
        if self._security.tls is not None:
            try:
                self._connect = client_dialing(self._security.tls, env.network.connect)
            except TlsConfigError as error:
                raise ConfigError(f"zookeeper.ssl.*: {error}") from error
        self._ensemble = parse_connect_string(config.text("zookeeper.connect"))
        self._watchers: list[Callable[[WatchEvent], None]] = []
        self._expiry_listeners: list[Callable[[], Awaitable[None]]] = []
        self._listeners: list[Callable[[], Awaitable[None]]] = []
        self._expired = asyncio.Event()
        self.client = self._new_client(self._ensemble)
        self.previous_session_id = 0
        self.expired = 0
        self._lost_ms: int | None = None
        """When the connection was lost; None while there is one."""

    @property
    def is_connected(self) -> bool:
        """Whether the session has a connection."""
        return self.client.state is State.CONNECTED

    @property
    def is_valid(self) -> bool:
        """Whether the session certainly has not expired: it lasts without a connection, too."""
        if self.is_connected:
            return True
        if self._lost_ms is None or self.client.state is not State.CONNECTING:
            return False
        return self._env.clock.mono_ms() - self._lost_ms < self.client.timeout_ms

    def add_watcher(self, watcher: "Callable[[WatchEvent], None]") -> None:
        """Call `watcher` with each watch event; it must not block."""
        self._watchers.append(watcher)

    def add_expiry_listener(self, listener: "Callable[[], Awaitable[None]]") -> None:
        """Await `listener` after a session has expired, before a new one is opened."""
        self._expiry_listeners.append(listener)

    def add_session_listener(self, listener: "Callable[[], Awaitable[None]]") -> None:
        """Await `listener` after each new session that follows an expired one."""
        self._listeners.append(listener)

    async def start(self) -> None:
        """Open the first session; create the chroot if it is missing, as Kafka does.

        Raises:
            TimeoutError: no server accepted a session in time.
        """
        if self._ensemble.chroot:
            root = self._new_client(self._ensemble._replace(chroot=""))
            await root.start(self._connection_timeout_ms)
            try:
                await root.create_recursive(self._ensemble.chroot)
            finally:
                await root.close()
        await self.client.start(self._connection_timeout_ms)

    async def run(self) -> None:
        """Replace expired sessions until cancelled."""
        while True:
            await self._expired.wait()
            self._expired.clear()
            self.previous_session_id = self.client.session_id
            await self.client.close()
            for before in self._expiry_listeners:
                await before()
            await self._reopen()
            for listener in self._listeners:
                try:
                    await listener()
                except ZooKeeperError as error:
                    log.warning("Not all was done after a new session: %s", error)

    async def close(self) -> None:
        """End the session; its ephemeral znodes are deleted at once."""
        await self.client.close()

    async def _reopen(self) -> None:
        while True:
            self.client = self._new_client(self._ensemble)
            try:
                await self.client.start(self._connection_timeout_ms)
            except TimeoutError as error:
                log.warning("No new ZooKeeper session: %s", error)
                await asyncio.sleep(RETRY_MS / 1000)
            else:
                return

    def _new_client(self, ensemble: ConnectString) -> ZooKeeperClient:
        config = self._config
        return ZooKeeperClient(
            ensemble,
            connect=self._connect,
            security=self._security,
            clock=self._env.clock,
            entropy=self._env.entropy,
            session_timeout_ms=config.number("zookeeper.session.timeout.ms"),
            in_flight_max=config.number("zookeeper.max.in.flight.requests"),
            on_event=self._on_event,
            on_state=self._on_state,
        )

    @property
    def _connection_timeout_ms(self) -> int:
        config = self._config
        given = config.number("zookeeper.connection.timeout.ms")
        return given or config.number("zookeeper.session.timeout.ms")

    def _on_event(self, event: "WatchEvent") -> None:
        for watcher in self._watchers:
            watcher(event)

    def _on_state(self, state: State) -> None:
        if state is State.CONNECTED:
            self._lost_ms = None
        elif self._lost_ms is None:
            self._lost_ms = self._env.clock.mono_ms()
        if state is State.EXPIRED:
            self.expired += 1
            self._expired.set()
