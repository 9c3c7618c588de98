"""Notices on the active controller that a broker's process is gone, long before its session lapses.

    its last raft Fetch connection closes ─┐
    new controller, one heartbeat interval ┴▶ connect to its listeners ─▶ all refuse ─▶ fence it
      without a word of it                       anything else: try again later, or leave it

A kernel refuses connections at once where nobody listens, so together with the closed connection
that is as good as a death certificate. A time-out, a reset, an idle or closed connection alone
prove nothing: a broker that merely can't be reached keeps its session, as in Kafka. The rule is
ours (`broker.refused.connection.fence.enable`); the fencing itself is the controller's usual one.

Invariants:
    * Fenced is only who had no Fetch connection here, sent no heartbeat after the probe began, and
      whose every registered endpoint refused it, under the epoch that was watched.
    * One broker a turn of the loop: each decision sees what the one before it changed.

Not here: sessions and fencing (`sparkraft.controller.brokers`).
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from sparkraft.base.env import Clock
    from sparkraft.base.ids import Millis
    from sparkraft.metadata.image import BrokerRegistration, Endpoint
    from sparkraft.server.controller.driver import ControllerDriver

PROBE_MS_MAX = 1_000
"""A connect that takes longer is no refusal, whatever it becomes."""

FIRST_PAUSES_MS = (0, 10, 20, 50, 100, 200, 400)
"""Before the first probes: a dying process closes its sockets one after another."""

HEARD_MS = 1_000
"""A heartbeat this long after the connection closed was no late one: the broker lives."""

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
        self, controller: "ControllerDriver", clock: "Clock", *, heartbeat_interval_ms: int
    ) -> None:
        """Watch for `controller`, which tells by `on_role` when it takes over and steps back."""
        self._controller = controller
        self._clock = clock
        self._interval_ms = heartbeat_interval_ms
        self._replica_of: dict[Connection, int] = {}
        self._connections: dict[int, int] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._turn = asyncio.Lock()
        self._first_look: asyncio.TimerHandle | None = None

    # ---- what happens

    def on_fetch(self, replica_id: int, connection: Connection) -> None:
        """A replica fetched the metadata log over this connection; call it for every Fetch."""
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
        """The controller takes over, or steps back."""
        self.stop()
        if active:
            loop = asyncio.get_running_loop()
            self._first_look = loop.call_later(self._interval_ms / 1000, self._look)

    def stop(self) -> None:
        """Watch nobody any more."""
        if self._first_look is not None:
            self._first_look.cancel()
            self._first_look = None
        for broker_id in sorted(self._tasks):
            self._tasks[broker_id].cancel()
        self._tasks.clear()

    def _look(self) -> None:
        """Whoever should have sent a heartbeat to the new controller by now is looked for."""
        self._first_look = None
        self._watch(sorted(self._controller.core.latest.brokers))

    # ---- watching

    def _watch(self, broker_ids: Iterable[int]) -> None:
        for broker_id in broker_ids:
            broker = self._controller.core.latest.brokers.get(broker_id)
            if broker is None or broker_id in self._tasks:
                continue
            since = self._clock.mono_ms()
            if self._may_be_gone(broker, since):
                task = asyncio.get_running_loop().create_task(
                    self._find_out(broker, since), name=f"is broker {broker_id} gone?"
                )
                self._tasks[broker_id] = task
                task.add_done_callback(lambda done, n=broker_id: self._on_done(n, done))  # type: ignore[misc]

    def _on_done(self, broker_id: int, task: "asyncio.Task[None]") -> None:
        if self._tasks.get(broker_id) is task:
            del self._tasks[broker_id]
        if not task.cancelled() and task.exception() is not None:
            # Nothing is lost but time: the session lapses anyway.
            log.error("Watching broker %d failed", broker_id, exc_info=task.exception())

    def _may_be_gone(self, broker: "BrokerRegistration", since: "Millis") -> bool:
        """Active here, and no sign of the broker's life under this epoch since then."""
        core = self._controller.core
        known = core.latest.brokers.get(broker.id)
        if not self._controller.is_active or known is None or known.epoch != broker.epoch:
            return False
        own = core.config.is_broker and broker.id == core.config.node_id
        if known.fenced or own or broker.id in self._connections:
            return False
        heard = core.sessions.last_contact(broker.id, broker.epoch)
        return heard is None or heard <= since + HEARD_MS

    async def _find_out(self, broker: "BrokerRegistration", since: "Millis") -> None:
        for pause_ms in self._pauses():
            await asyncio.sleep(pause_ms / 1000)
            if not self._may_be_gone(broker, since):
                return
            probed_at = self._clock.mono_ms()
            if await _all_refuse(broker.endpoints):
                await self._fence(broker, since, probed_at)

    def _pauses(self) -> Iterator[int]:
        yield from FIRST_PAUSES_MS
        yield from itertools.repeat(self._interval_ms)  # Ended by the session, if not before.

    async def _fence(
        self, broker: "BrokerRegistration", since: "Millis", probed_at: "Millis"
    ) -> None:
        async with self._turn:
            heard = self._controller.core.sessions.last_contact(broker.id, broker.epoch)
            if self._may_be_gone(broker, since) and (heard is None or heard < probed_at):
                self._controller.fence_refused(broker.id)
            await asyncio.sleep(0)


async def _all_refuse(endpoints: "Iterable[Endpoint]") -> bool:
    """Whether there is an endpoint, and a connect to each is refused."""
    refused = False
    for endpoint in endpoints:
        refused = await _refuses(endpoint.host, endpoint.port)
        if not refused:
            return False
    return refused


async def _refuses(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(PROBE_MS_MAX / 1000):
            transport, _ = await asyncio.get_running_loop().create_connection(
                asyncio.Protocol, host, port
            )
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    transport.abort()
    return False
