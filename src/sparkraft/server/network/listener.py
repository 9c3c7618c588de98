"""A listening address: accepts up to its limits, names connections, closes idle ones.

Clients share the loop with the controller. Frames of a controller listener are handled at once;
client connections share the time of one loop iteration, frame by frame (`loop_budget`). Frames
left when it is used up wait for the next iteration, after the frames that the quorum's sockets
received meanwhile and the timers that became due, heartbeats among them.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.security.authorizer import AllowAll, Authorizer
from sparkraft.security.client_quotas import ClientQuotas
from sparkraft.security.principal import ANONYMOUS, KafkaPrincipal
from sparkraft.security.protocols import SecurityProtocol
from sparkraft.security.session import Session
from sparkraft.server.loop_monitor import LoopMonitor
from sparkraft.server.network.connection import Connection
from sparkraft.server.network.connection_rate import AcceptLine, CreationRate
from sparkraft.server.network.dispatch import Routes
from sparkraft.server.network.gathering import Gathering
from sparkraft.server.network.loop_budget import LoopBudget
from sparkraft.server.network.refusals import log_tls_failure
from sparkraft.server.network.request_log import RequestLog
from sparkraft.server.network.request_memory import RequestMemory
from sparkraft.server.network.response_memory import ResponseMemory
from sparkraft.server.network.sasl_gate import SaslGate, SaslGates
from sparkraft.server.network.slices import SlicedWork
from sparkraft.tls.stream import RECEIVE_BYTES, TlsFailedError, TlsSide, TlsStream

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.base.env import Clock
    from sparkraft.server.api.registry import Steps
    from sparkraft.server.env import Network
    from sparkraft.server.network.loop_wakes import LoopWakes
    from sparkraft.server.network.tls import ListenerTls
    from sparkraft.server.sasl_config import ListenerSasl

log = logging.getLogger(__name__)

IDLE_CHECK_MS = 1_000
"""Interval of the search for idle connections, and for requests that hold memory without progress;
small compared with any sensible idle limit."""

HELD_MAX = 1_000
"""Connections above the quota of their address that are kept unserved for a time: each has a
socket. Further ones are closed at once."""

HANDSHAKES_MAX = 1_000
"""The default of `sparkraft.unauthenticated.connections.max`."""

REFUSALS_LOGGED_EACH_MS = 5_000
"""A flood of refused connections is one line in this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many connections and how large requests a listener accepts.

    Attributes:
        connections_max: open connections; further ones are closed when accepted.
        connections_per_ip_max: the same for one client address.
        per_ip_overrides: that limit for addresses that have one of their own.
        request_bytes_max: `socket.request.max.bytes`.
        idle_ms_max: `connections.max.idle.ms`; negative: no limit.
        handshakes_max: connections in their TLS handshake, if a certificate is what authenticates:
            `sparkraft.unauthenticated.connections.max`. Before SASL, `sasl_gate` counts them.
    """

    connections_max: int
    connections_per_ip_max: int
    request_bytes_max: int
    idle_ms_max: int
    per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    handshakes_max: int = HANDSHAKES_MAX

    def connections_of(self, address: str) -> int:
        """How many connections a client address may have."""
        return self.per_ip_overrides.get(address, self.connections_per_ip_max)


class Listener:
    """One entry of `listeners`. Handlers see it as `context.listener_name`."""

    def __init__(  # noqa: PLR0913 (made in one place)
        self,
        name: str,
        *,
        controller_listener: bool,
        limits: Limits,
        clock: "Clock",
        budget: LoopBudget,
        on_invariant_broken: "Callable[[BaseException], None]",
        security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
        sasl: "ListenerSasl | None" = None,
        tls: "ListenerTls | None" = None,
        authorizer: Authorizer | None = None,
        rates: Sequence[CreationRate] = (),
        memory: RequestMemory | None = None,
        monitor: LoopMonitor | None = None,
        response_memory: ResponseMemory | None = None,
        gathering: Gathering | None = None,
        translate: "Callable[[Exception, str], KafkaError] | None" = None,
        on_unreadable: "Callable[[], None] | None" = None,
        zookeeper: bool = False,
        telemetry: bool = False,
    ) -> None:
        """Describe it; `bind` and `serve` make it listen.

        Args:
            name: as in `listeners`.
            controller_listener: serves the quorum; its frames need no budget.
            limits: of its connections.
            clock: the node's.
            budget: shared by the node's listeners.
            on_invariant_broken: called with a bug of ours.
            security_protocol: of its connections.
            sasl: how they authenticate; None: they do not.
            tls: encrypts them; None: they are not encrypted.
            authorizer: of its sessions; everything is allowed by default.
            rates: the limits its connections are held to.
            memory: for requests that arrive; no bound by default.
            monitor: watches how long requests keep the loop.
            response_memory: for responses that are not read; no bound by default.
            gathering: of the node; lets fetches wait while the event loop is busy.
            translate: returns the client's error for an exception and the request it is from.
            on_unreadable: called if records of a response cannot be read from their file.
            zookeeper: whether the node is a broker in ZooKeeper mode.
            telemetry: whether clients may push their metrics.
        """
        self.name = name
        self.node: Any = None
        self.security_protocol = security_protocol
        self.authorizer: Authorizer = authorizer or AllowAll()
        self.controller_listener = controller_listener
        self.limits = limits
        self.quotas = ClientQuotas()
        """Of its clients; those of a broker from `serve` on."""
        self.request_bytes_max = limits.request_bytes_max
        self.clock = clock
        self.request_log = RequestLog(clock)
        self.routes = Routes(
            controller_listener=controller_listener, zookeeper=zookeeper, telemetry=telemetry
        )
        self.gates = None if sasl is None else SaslGates(sasl, self.routes, clock)
        self._tls = tls
        self._tls_side = None if tls is None else self._tls_side_of(tls)
        self._on_invariant_broken = on_invariant_broken
        self._translate = translate or unexpected
        self._on_unreadable = on_unreadable or (lambda: None)
        self.bytes_out = 0
        self.bad_requests = 0
        self.connections_total = 0
        self.port = 0
        self.memory = memory or RequestMemory(0)
        self.monitor = monitor or LoopMonitor(clock)
        self.response_memory = response_memory or ResponseMemory(0)
        self._line = AcceptLine(rates, clock)
        self._budget = budget
        self.gathering = gathering or Gathering(budget)
        self._server: asyncio.AbstractServer | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._connections: dict[Connection, None] = {}
        self._when_closed: dict[Connection, Callable[[Connection], None]] = {}
        self._per_ip: dict[str, int] = {}
        # Those above the quota of their address: they are never served, and count for no limit.
        self._held: set[Connection] = set()
        # Those in their TLS handshake, on a listener without SASL.
        self._handshakes: set[Connection] = set()
        self._refused = 0
        self._refused_logged_ms = -REFUSALS_LOGGED_EACH_MS
        self.tls_failures = 0
        self._tls_failure_logged_ms = -REFUSALS_LOGGED_EACH_MS

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    @property
    def unauthenticated(self) -> int:
        """How many connections are authenticating, or in the TLS handshake before it."""
        return len(self._handshakes) if self.gates is None else self.gates.open

    @property
    def response_room(self) -> int:
        """Bytes of records that the next response should have at most (`response_memory`)."""
        return self.response_memory.room

    @property
    def wakes(self) -> "LoopWakes":
        """Of the node's event loop."""
        return self._budget.wakes

    @property
    def in_line(self) -> int:
        """How many of them are not served yet because of max.connection.creation.rate."""
        return len(self._line)

    @property
    def waiting(self) -> int:
        """Clients and slices of the node that wait for the next event-loop iteration."""
        return self._budget.waiting

    async def bind(self, network: "Network", host: str | None, port: int) -> None:
        """Take the port without serving; 0 takes a free one.

        Raises:
            OSError: the port is in use.
        """
        self._server = await network.listen(self._new_protocol, host, port)
        sockets = getattr(self._server, "sockets", ())
        self.port = sockets[0].getsockname()[1] if sockets else port

    async def serve(self, node: Any, quotas: ClientQuotas | None = None) -> None:
        """Accept connections, whose requests `node` handles, within `quotas`."""
        self.quotas = quotas or self.quotas
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
        """Accept no more connections; open ones continue."""
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
        if self.gates is not None:
            self.gates.close()

    # ---- TLS

    def _new_protocol(self) -> asyncio.Protocol:
        """The protocol of an accepted socket: a connection, after TLS if the listener has it."""
        connection = Connection(self)
        if self._tls_side is None:
            return connection
        # asyncio's transports take buffered protocols, too.
        return cast("asyncio.Protocol", TlsStream(connection, self._tls_side))

    def _tls_side_of(self, tls: "ListenerTls") -> TlsSide:
        return TlsSide(
            context=tls.context,
            server_side=True,
            buffer=bytearray(RECEIVE_BYTES),
            may_work=self._may_shake_hands,
            on_secured=partial(self._on_secured, tls),
            on_failed=self._on_tls_failed,
        )

    def _may_shake_hands(self, stream: TlsStream) -> bool:
        """Whether there is time for a part of a handshake, which takes half a millisecond."""
        return self.controller_listener or self._budget.try_run(stream)

    def _on_secured(self, tls: "ListenerTls", stream: TlsStream) -> None:
        """The handshake is complete: a certificate is the client's user, except before SASL."""
        connection = stream.protocol
        assert isinstance(connection, Connection)
        if self.security_protocol is SecurityProtocol.SSL:
            principal = tls.principal_of(stream.peer_certificate)
            connection.admit(self.session_of(connection.client_host, principal))
        self._handshakes.discard(connection)

    def _on_tls_failed(self, stream: TlsStream, error: TlsFailedError) -> None:
        self.tls_failures += 1
        now = self.clock.mono_ms()
        if now - self._tls_failure_logged_ms >= REFUSALS_LOGGED_EACH_MS:
            self._tls_failure_logged_ms = now
            log_tls_failure(stream.protocol, str(error))

    # ---- called by connections

    def try_run(self, connection: Connection) -> bool:
        """Whether `connection` may handle what it received; otherwise it is run when it may."""
        return self.controller_listener or self._budget.try_run(connection)

    def must_yield(self, connection: Connection) -> bool:
        """Whether `connection` must leave its other frames for the next iteration."""
        if self.controller_listener or not self._budget.exhausted():
            return False
        self._budget.queue(connection)
        return True

    def start_slices(self, steps: "Steps", on_end: "Callable[[], None] | None") -> Any:
        """Run a request's first slice: its result, or a future of it."""
        return SlicedWork(steps, self._budget, on_end).start()

    def on_sent(self, byte_count: int) -> None:
        """Count what was written."""
        self.bytes_out += byte_count

    def on_backlog(self, connection: Connection, parts: Any) -> None:
        """Count the bytes that wait for the client of `connection` to read."""
        self.response_memory.on_backlog(connection, parts, self.clock.mono_ms())

    def on_bad_request(self) -> None:
        """Count a request that could not be read."""
        self.bad_requests += 1

    def on_unreadable(self) -> None:
        """Records of a response cannot be read from their file."""
        self._on_unreadable()

    def on_invariant_broken(self, error: BaseException) -> None:
        """Stop the node because of a bug."""
        self._on_invariant_broken(error)

    def translate(self, error: Exception, where: str) -> KafkaError:
        """The client's error for an exception that is not a KafkaError."""
        return self._translate(error, where)

    def session_of(self, client_host: str, principal: KafkaPrincipal = ANONYMOUS) -> Session:
        """The session of a connection; ANONYMOUS until it authenticates."""
        return Session(
            principal,
            listener_name=self.name,
            security_protocol=self.security_protocol,
            client_host=client_host,
            authorizer=self.authorizer,
        )

    def gate_of(self, connection: Connection) -> SaslGate | None:
        """The gate of a new connection, which takes its frames until it has authenticated."""
        return None if self.gates is None else self.gates.gate(connection)

    def on_open(self, connection: Connection, local: Any, peer: Any) -> str:
        """Count a connection in and name it; close it if there are too many."""
        self.connections_total += 1
        host = str(peer[0])
        name = f"{local[0]}:{local[1]}-{host}:{peer[1]}-{self.connections_total}"
        self._connections[connection] = None
        is_full = len(self._connections) - len(self._held) > self.limits.connections_max
        if not is_full and (throttle_ms := self._throttle_of(host)):
            self._hold(connection, host, throttle_ms)
            return name
        same_ip = self._per_ip.get(host, 0) + 1
        self._per_ip[host] = same_ip
        if is_full:
            self._refuse(connection, f"max.connections is {self.limits.connections_max}")
        elif same_ip > (most := self.limits.connections_of(host)):
            self._refuse(connection, f"max.connections.per.ip is {most} and {host} has them")
        elif not self._may_begin_handshake(connection):
            why = f"{self.limits.handshakes_max} connections are in their TLS handshake already"
            self._refuse(connection, why)
        else:
            self._line.enter(connection)
        return name

    def _may_begin_handshake(self, connection: Connection) -> bool:
        """Count the connection until its TLS handshake ends; False if there are too many."""
        if self._tls is None or self.gates is not None:
            return True
        if len(self._handshakes) >= self.limits.handshakes_max:
            return False
        self._handshakes.add(connection)
        return True

    def _hold(self, connection: Connection, host: str, throttle_ms: int) -> None:
        """Keep a connection unserved for a time, and close it then, as Kafka's acceptor does.

        It takes no slot of max.connections, of max.connections.per.ip, or of the clients that
        authenticate: an address above its quota would keep others out by them.
        """
        if len(self._held) >= HELD_MAX:
            throttle_ms = 0
        self._held.add(connection)
        connection.hold()
        why = f"{host} exceeds its quota of connection_creation_rate"
        loop = asyncio.get_running_loop()
        loop.call_later(throttle_ms / 1000, self._refuse, connection, why)

    def _throttle_of(self, host: str) -> int:
        """How long to hold a new connection, in ms, because of its address's quota (KIP-612)."""
        addresses = self.quotas.addresses
        return addresses.record(host, self.clock.mono_ms()) if addresses.is_active else 0

    def _refuse(self, connection: Connection, why: str) -> None:
        self._refused += 1
        now = self.clock.mono_ms()
        if now - self._refused_logged_ms >= REFUSALS_LOGGED_EACH_MS:
            self._refused_logged_ms = now
            log.warning("Refusing connections on %s: %s (%d so far)", self.name, why, self._refused)
        connection.abort()

    def when_closed(
        self, connection: Connection, on_closed: "Callable[[Connection], None]"
    ) -> None:
        """Have `on_closed` called when the connection is lost; one callback per connection."""
        self._when_closed[connection] = on_closed

    def on_close(self, connection: Connection) -> None:
        """Count a connection out."""
        self.response_memory.forget(connection)
        self._handshakes.discard(connection)
        on_closed = self._when_closed.pop(connection, None)
        if on_closed is not None:
            on_closed(connection)
        if self._connections.pop(connection, self) is self:
            return
        if connection in self._held:
            self._held.remove(connection)
            return
        left = self._per_ip.get(connection.client_host, 0) - 1
        if left > 0:
            self._per_ip[connection.client_host] = left
        else:
            self._per_ip.pop(connection.client_host, None)

    def _watch_idle(self) -> None:
        self.request_log.refresh()
        if self.limits.idle_ms_max >= 0:
            oldest = self.clock.mono_ms() - self.limits.idle_ms_max
            for connection in list(self._connections):
                if connection.last_active_ms < oldest and connection.is_idle:
                    connection.expire(f"idle for connections.max.idle.ms={self.limits.idle_ms_max}")
        self.memory.check_progress(self.clock.mono_ms())
        self.response_memory.check_progress(self.clock.mono_ms())
        loop = asyncio.get_running_loop()
        self._idle_timer = loop.call_later(IDLE_CHECK_MS / 1000, self._watch_idle)


def unexpected(error: Exception, where: str) -> KafkaError:
    """The client's error for an unexpected exception, which is logged."""
    log.error("%s failed", where, exc_info=error)
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the server failed; see its log")
