"""Detects stopped broker processes on the active controller, long before their sessions expire.

    its last raft Fetch connection closes ─┐
    new controller, and no heartbeat for   ┴▶ connect to its listeners ─▶ all refuse ─▶ fence it
      one interval                               any other result: retry later

The kernel refuses a connection at once if no process listens on the port. Together with the closed
connection, that proves that the process has stopped. A timeout, a reset, an idle or a closed
connection alone prove nothing: a broker that is only unreachable keeps its session, as in Kafka.
Kafka has no such detection; `broker.refused.connection.fence.enable` turns it off. The fencing is
the same as after an expired session.

Invariants:
    * A broker is fenced only if it has no Fetch connection here, sent no heartbeat after the probe
      began, and every endpoint registered with the watched broker epoch refused the connection.
    * One broker per event-loop iteration: each decision sees the effects of the one before it.

Not here: sessions and fencing (`sparkraft.controller.brokers`).
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from sparkraft.base.env import Clock
    from sparkraft.base.ids import Millis
    from sparkraft.metadata.image import BrokerRegistration, Endpoint
    from sparkraft.server.controller.driver import ControllerDriver
    from sparkraft.server.env import Network

Connect = Callable[[Callable[[], asyncio.Protocol], str, int], Coroutine[Any, Any, object]]
"""`Network.connect`."""

PROBE_MS_MAX = 1_000
"""Connect timeout; a timeout does not count as refused."""

FIRST_PAUSES_MS = (0, 10, 20, 50, 100, 200, 400)
"""Pauses before the first probes: a stopping process closes its sockets one after another."""

LATE_HEARTBEAT_MS = 1_000
"""A heartbeat this long after the connection closed was sent later: the broker is running."""

log = logging.getLogger(__name__)


class ConnectionOwner(Protocol):
    """The listener that accepted a connection."""

    def when_closed(self, connection: Any, tell: "Callable[[Any], None]") -> None:
        """Call `tell(connection)` when it is lost."""


class Connection(Protocol):
    """A replica's connection to this controller."""

    @property
    def listener(self) -> ConnectionOwner: ...


class ProcessWatch:
    """See the module docstring."""

    def __init__(
        self,
        controller: "ControllerDriver",
        clock: "Clock",
        network: "Network",
        *,
        heartbeat_interval_ms: int,
    ) -> None:
        """Watch the brokers of `controller`; make `on_role` its role listener."""
        self._controller = controller
        self._clock = clock
        self._connect: Connect = network.connect
        self._interval_ms = heartbeat_interval_ms
        self._replica_of: dict[Connection, int] = {}
        self._connections: dict[int, int] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._turn = asyncio.Lock()
        self._first_check: asyncio.TimerHandle | None = None

    # ---- events

    def on_fetch(self, replica_id: int, connection: Connection) -> None:
        """Record that a replica fetches over this connection; call it for every raft Fetch."""
        known = self._replica_of.get(connection)
        if known == replica_id:
            return
        if known is None:
            connection.listener.when_closed(connection, self._on_closed)
        else:
            self._count(known, -1)
        self._replica_of[connection] = replica_id
        self._count(replica_id, 1)

    def _on_closed(self, connection: Connection) -> None:
        replica_id = self._replica_of.pop(connection)
        self._count(replica_id, -1)
        if replica_id not in self._connections:
            self._watch([replica_id])

    def _count(self, replica_id: int, change: int) -> None:
        left = self._connections.get(replica_id, 0) + change
        if left:
            self._connections[replica_id] = left
        else:
            self._connections.pop(replica_id, None)

    def on_role(self, *, active: bool) -> None:
        """Restart or stop watching when the controller becomes active or is deposed."""
        self.stop()
        if active:
            loop = asyncio.get_running_loop()
            self._first_check = loop.call_later(self._interval_ms / 1000, self._check_all)

    def stop(self) -> None:
        """Stop watching all brokers."""
        if self._first_check is not None:
            self._first_check.cancel()
            self._first_check = None
        for broker_id in sorted(self._tasks):
            self._tasks[broker_id].cancel()
        self._tasks.clear()

    def _check_all(self) -> None:
        """Watch brokers that should have sent a heartbeat to this new controller by now."""
        self._first_check = None
        self._watch(sorted(self._controller.core.latest.brokers))

    # ---- watching

    def _watch(self, broker_ids: Iterable[int]) -> None:
        for broker_id in broker_ids:
            broker = self._controller.core.latest.brokers.get(broker_id)
            if broker is None or broker_id in self._tasks:
                continue
            since = self._clock.mono_ms()
            if self._may_have_stopped(broker, since):
                task = asyncio.get_running_loop().create_task(
                    self._probe(broker, since), name=f"probe of broker {broker_id}"
                )
                self._tasks[broker_id] = task
                task.add_done_callback(lambda done, n=broker_id: self._on_done(n, done))  # type: ignore[misc]

    def _on_done(self, broker_id: int, task: "asyncio.Task[None]") -> None:
        if self._tasks.get(broker_id) is task:
            del self._tasks[broker_id]
        if not task.cancelled() and task.exception() is not None:
            # Only time is lost: the session will expire.
            log.error("Failed to probe broker %d", broker_id, exc_info=task.exception())

    def _may_have_stopped(self, broker: "BrokerRegistration", since: "Millis") -> bool:
        """Whether this controller is active and got nothing from this broker epoch since then."""
        core = self._controller.core
        known = core.latest.brokers.get(broker.id)
        if not self._controller.is_active or known is None or known.epoch != broker.epoch:
            return False
        own = core.config.is_broker and broker.id == core.config.node_id
        if known.fenced or own or broker.id in self._connections:
            return False
        last_contact = core.sessions.last_contact(broker.id, broker.epoch)
        return last_contact is None or last_contact <= since + LATE_HEARTBEAT_MS

    async def _probe(self, broker: "BrokerRegistration", since: "Millis") -> None:
        for pause_ms in self._pauses():
            await asyncio.sleep(pause_ms / 1000)
            if not self._may_have_stopped(broker, since):
                return
            probed_at = self._clock.mono_ms()
            if await all_refuse(self._connect, broker.endpoints):
                await self._fence(broker, since, probed_at)

    def _pauses(self) -> Iterator[int]:
        yield from FIRST_PAUSES_MS
        yield from itertools.repeat(
            self._interval_ms
        )  # Ends when the session expires, at the latest.

    async def _fence(
        self, broker: "BrokerRegistration", since: "Millis", probed_at: "Millis"
    ) -> None:
        def is_certain() -> bool:
            last_contact = self._controller.core.sessions.last_contact(broker.id, broker.epoch)
            silent = last_contact is None or last_contact < probed_at
            return silent and self._may_have_stopped(broker, since)

        async with self._turn:
            await self._controller.fence_refused(broker.id, is_certain)
            await asyncio.sleep(0)


async def all_refuse(connect: Connect, endpoints: "Iterable[Endpoint]") -> bool:
    """Whether there is an endpoint, and each refuses the connection."""
    refused = False
    for endpoint in endpoints:
        refused = await _refuses(connect, endpoint)
        if not refused:
            return False
    return refused


async def _refuses(connect: Connect, endpoint: "Endpoint") -> bool:
    probe = _Probe()
    try:
        async with asyncio.timeout(PROBE_MS_MAX / 1000):
            await connect(lambda: probe, endpoint.host, endpoint.port)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    probe.abort()
    return False


class _Probe(asyncio.Protocol):
    """A connection that sends and reads nothing."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def abort(self) -> None:
        """Close the connection at once."""
        assert self._transport is not None
        self._transport.abort()
