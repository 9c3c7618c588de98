"""A listening address: accepts up to its limits, names connections, closes idle ones.

Clients share the loop with the controller. Frames of a controller listener are handled at once;
client connections of one loop round share a time budget, frame by frame, and what comes after it is
spent waits for the next round, behind whatever the sockets of the quorum brought meanwhile and the
timers that became due, heartbeats among them (DESIGN D2).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.security.authorizer import AllowAll, Authorizer
from sparkraft.security.principal import ANONYMOUS
from sparkraft.security.protocols import SecurityProtocol
from sparkraft.security.session import Session
from sparkraft.server.network.connection import Connection
from sparkraft.server.network.connection_rate import AcceptLine, CreationRate
from sparkraft.server.network.dispatch import Routes
from sparkraft.server.network.request_memory import RequestMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.base.env import Clock
    from sparkraft.server.env import Network

log = logging.getLogger(__name__)

ROUND_MS_MAX = 8
"""Client work in one round of the loop before the quorum's sockets are looked at again."""

IDLE_CHECK_MS = 1_000
"""How often idle connections are looked for; small beside any sensible idle limit."""

REFUSALS_LOGGED_EACH_MS = 5_000
"""A flood of refused connections is one line in this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a listener bears.

    Attributes:
        connections_max: open connections; further ones are closed when accepted.
        connections_per_ip_max: the same for one client address.
        per_ip_overrides: that limit for addresses that have one of their own.
        request_bytes_max: `socket.request.max.bytes`.
        idle_ms_max: `connections.max.idle.ms`; negative: no limit.
    """

    connections_max: int
    connections_per_ip_max: int
    request_bytes_max: int
    idle_ms_max: int
    per_ip_overrides: Mapping[str, int] = field(default_factory=dict)

    def connections_of(self, address: str) -> int:
        """How many connections a client address may have."""
        return self.per_ip_overrides.get(address, self.connections_per_ip_max)


class Turns:
    """Shares a loop's rounds among client connections: each works while the round has time.

    A round begins with the first who works in it and ends after all that the loop had to do then,
    sockets of the quorum included. Whoever comes too late, or isn't done, waits for the next one.
    """

    def __init__(self, clock: "Clock") -> None:
        """Nothing is spent yet."""
        self._clock = clock
        self._round_started_ms: int | None = None
        self._waiting: deque[Connection] = deque()

    def take(self, connection: Connection) -> bool:
        """Whether `connection` may run now; else it is run in a later round."""
        if not self._waiting and not self.is_over():
            return True
        self.wait(connection)
        return False

    def wait(self, connection: Connection) -> None:
        """Have `connection` run in a later round, after those who wait already."""
        if not connection.awaits_turn:
            connection.awaits_turn = True
            self._waiting.append(connection)

    def is_over(self) -> bool:
        """Whether the time of this round is spent; begins one where there is none."""
        now = self._clock.mono_ms()
        if self._round_started_ms is None:
            self._round_started_ms = now
            asyncio.get_running_loop().call_soon(self._end_round)
        return now - self._round_started_ms >= ROUND_MS_MAX

    def _end_round(self) -> None:
        """A new round: those who waited first, as far as the time goes."""
        self._round_started_ms = None
        while self._waiting and not self.is_over():
            connection = self._waiting.popleft()
            connection.awaits_turn = False
            connection.run()


class Listener:
    """One entry of `listeners`. Handlers see it as `context.listener_name`."""

    def __init__(  # noqa: PLR0913 (made in one place)
        self,
        name: str,
        *,
        controller_listener: bool,
        limits: Limits,
        clock: "Clock",
        turns: Turns,
        on_invariant_broken: "Callable[[BaseException], None]",
        security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
        authorizer: Authorizer | None = None,
        rates: Sequence[CreationRate] = (),
        memory: RequestMemory | None = None,
        translate: "Callable[[Exception, str], KafkaError] | None" = None,
        on_unreadable: "Callable[[], None] | None" = None,
    ) -> None:
        """Describe it; `bind` and `serve` make it listen.

        `authorizer`: of its sessions; everything is allowed by default.
        `rates`: those its connections are held to. `memory`: for requests that arrive; no bound
        by default. `on_unreadable`: called where what an answer holds of a file can't be read.
        """
        self.name = name
        self.node: Any = None
        self.security_protocol = security_protocol
        self.authorizer: Authorizer = authorizer or AllowAll()
        self.controller_listener = controller_listener
        self.limits = limits
        self.request_bytes_max = limits.request_bytes_max
        self.clock = clock
        self.routes = Routes(controller_listener=controller_listener)
        self.on_invariant_broken = on_invariant_broken
        self.translate = translate or unexpected
        self.on_unreadable = on_unreadable or (lambda: None)
        self.bytes_out = 0
        self.bad_requests = 0
        self.connections_total = 0
        self.port = 0
        self.memory = memory or RequestMemory(0)
        self._line = AcceptLine(rates, clock)
        self._turns = turns
        self._server: asyncio.AbstractServer | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._connections: dict[Connection, None] = {}
        self._when_closed: dict[Connection, Callable[[Connection], None]] = {}
        self._per_ip: dict[str, int] = {}
        self._refused = 0
        self._refused_logged_ms = -REFUSALS_LOGGED_EACH_MS

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._connections)

    @property
    def in_line(self) -> int:
        """How many of them are not served yet, as too many came (max.connection.creation.rate)."""
        return len(self._line)

    async def bind(self, network: "Network", host: str | None, port: int) -> None:
        """Take the port without serving; 0 takes a free one. OSError where it is taken."""
        self._server = await network.listen(lambda: Connection(self), host, port)
        sockets = getattr(self._server, "sockets", ())
        self.port = sockets[0].getsockname()[1] if sockets else port

    async def serve(self, node: Any) -> None:
        """Accept connections, for `node` to answer."""
        assert self._server is not None, "bind it first"
        self.node = node
        await self._server.start_serving()
        self._watch_idle()

    def limit(
        self,
        *,
        connections_max: int,
        connections_per_ip_max: int,
        per_ip_overrides: "Mapping[str, int]",
    ) -> None:
        """Change the limits of new connections."""
        self.limits = replace(
            self.limits,
            connections_max=connections_max,
            connections_per_ip_max=connections_per_ip_max,
            per_ip_overrides=per_ip_overrides,
        )

    def stop_accepting(self) -> None:
        """Take no more connections; those open go on."""
        if self._server is not None:
            self._server.close()

    async def close(self) -> None:
        """Close the address and every connection."""
        self.stop_accepting()
        self._line.close()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for connection in list(self._connections):
            connection.close()
        await asyncio.sleep(0)
        for connection in list(self._connections):
            connection.abort()

    # ---- what connections call

    def takes_turn(self, connection: Connection) -> bool:
        """Whether `connection` may handle what it received; else it is run when it may."""
        return self.controller_listener or self._turns.take(connection)

    def ends_turn(self, connection: Connection) -> bool:
        """Whether `connection` must leave what it has left for its next turn."""
        if self.controller_listener or not self._turns.is_over():
            return False
        self._turns.wait(connection)
        return True

    def session_of(self, client_host: str) -> Session:
        """The session of a new connection; nothing authenticates yet."""
        return Session(
            ANONYMOUS,
            listener_name=self.name,
            security_protocol=self.security_protocol,
            client_host=client_host,
            authorizer=self.authorizer,
        )

    def on_open(self, connection: Connection, local: Any, peer: Any) -> str:
        """Count a connection in and name it; one too many is closed."""
        self.connections_total += 1
        host = str(peer[0])
        name = f"{local[0]}:{local[1]}-{host}:{peer[1]}-{self.connections_total}"
        self._connections[connection] = None
        same_ip = self._per_ip.get(host, 0) + 1
        self._per_ip[host] = same_ip
        if len(self._connections) > self.limits.connections_max:
            self._refuse(connection, f"max.connections is {self.limits.connections_max}")
        elif same_ip > (most := self.limits.connections_of(host)):
            self._refuse(connection, f"max.connections.per.ip is {most} and {host} has them")
        else:
            self._line.enter(connection)
        return name

    def _refuse(self, connection: Connection, why: str) -> None:
        self._refused += 1
        now = self.clock.mono_ms()
        if now - self._refused_logged_ms >= REFUSALS_LOGGED_EACH_MS:
            self._refused_logged_ms = now
            log.warning("Refusing connections on %s: %s (%d so far)", self.name, why, self._refused)
        connection.abort()

    def when_closed(self, connection: Connection, tell: "Callable[[Connection], None]") -> None:
        """Have `tell` called when the connection is lost; one may ask for it."""
        self._when_closed[connection] = tell

    def on_close(self, connection: Connection) -> None:
        """Count a connection out."""
        tell = self._when_closed.pop(connection, None)
        if tell is not None:
            tell(connection)
        if self._connections.pop(connection, self) is self:
            return
        left = self._per_ip.get(connection.client_host, 0) - 1
        if left > 0:
            self._per_ip[connection.client_host] = left
        else:
            self._per_ip.pop(connection.client_host, None)

    def _watch_idle(self) -> None:
        if self.limits.idle_ms_max >= 0:
            oldest = self.clock.mono_ms() - self.limits.idle_ms_max
            for connection in list(self._connections):
                if connection.last_active_ms < oldest and connection.is_idle:
                    connection.expire(f"idle for connections.max.idle.ms={self.limits.idle_ms_max}")
        loop = asyncio.get_running_loop()
        self._idle_timer = loop.call_later(IDLE_CHECK_MS / 1000, self._watch_idle)


def unexpected(error: Exception, where: str) -> KafkaError:
    """What a client hears of an exception nobody planned for; the log has the rest."""
    log.error("%s failed", where, exc_info=error)
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the server failed; its log says more")
