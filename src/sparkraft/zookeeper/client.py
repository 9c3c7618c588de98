"""A session with a ZooKeeper ensemble: connects, reconnects, and sends requests.

    start ─► CONNECTING ⇄ CONNECTED ─► EXPIRED or CLOSED

Invariants:
    * A connection is authenticated before any request is sent on it.
    * A session has at most one connection. After a disconnect the same session continues on the
      next server; its watches are set again before any other request.
    * A request in flight at a disconnect fails with `ConnectionLossError`; it may have been
      applied.
    * An expired session stays expired. Its owner decides what to undo and then makes a new client:
      Kafka's controller resigns in between.
    * At most `in_flight_max` requests wait for replies (`zookeeper.max.in.flight.requests`).

Watch events and state changes are reported in the order of the connection, before any later reply.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from sparkraft.security.sasl import SaslError
from sparkraft.zookeeper.errors import (
    Code,
    ConnectionLossError,
    NodeExistsError,
    SessionExpiredError,
    ZooKeeperError,
    error_of,
)
from sparkraft.zookeeper.exchange import SessionState, WatchEvent
from sparkraft.zookeeper.line import Line
from sparkraft.zookeeper.pipeline import Pipeline, fail_soon
from sparkraft.zookeeper.requests import Close, Create, Multi, MultiRead, Operation, Request, Sasl
from sparkraft.zookeeper.security import UNSECURED
from sparkraft.zookeeper.watches import Watches

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from sparkraft.base.env import Clock, Entropy
    from sparkraft.zookeeper.connect_string import ConnectString
    from sparkraft.zookeeper.exchange import SessionOpened
    from sparkraft.zookeeper.logins import EnsembleLogin
    from sparkraft.zookeeper.pipeline import OnResult
    from sparkraft.zookeeper.security import EnsembleSecurity

    Connect = Callable[[Callable[[], asyncio.Protocol], str, int], Awaitable[Any]]
    """Opens a transport for the factory's protocol, to a host and port; OSError if it fails."""

P = ParamSpec("P")
T = TypeVar("T")

_LOG = logging.getLogger(__name__)

SESSION_TIMEOUT_MS = 18_000
"""Kafka's `zookeeper.session.timeout.ms`."""

IN_FLIGHT_MAX = 10
"""Kafka's `zookeeper.max.in.flight.requests`."""

RECONNECT_MS_MAX = 1_000
"""Longest wait, chosen at random, before the servers are tried again from the first; a quarter of
the session timeout if that is less, so that a short session does not expire of waiting."""

CNONCE_BYTES = 16
"""Random bytes of the client's nonce in an exchange of SASL tokens."""

CLOSE_SECONDS_MAX = 5
"""Longest wait for the reply to the end of the session."""


class State(Enum):
    """The state of a session."""

    CONNECTING = auto()
    """No connection; requests fail with `ConnectionLossError`, or wait."""
    CONNECTED = auto()
    EXPIRED = auto()
    """The ensemble ended the session; all requests fail with `SessionExpiredError`."""
    CLOSED = auto()
    """`close` ended it."""


class ZooKeeperClient:
    """One session; `start` opens it, `close` ends it.

    Attributes:
        ensemble: its servers, and the chroot of all paths.
        state: of the session.
        timeout_ms: session timeout; the requested one until the ensemble has granted one.
    """

    def __init__(  # noqa: PLR0913 (all but four have defaults)
        self,
        ensemble: ConnectString,
        *,
        connect: Connect,
        clock: Clock,
        entropy: Entropy,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        in_flight_max: int = IN_FLIGHT_MAX,
        security: EnsembleSecurity = UNSECURED,
        on_event: Callable[[WatchEvent], None] = lambda _: None,
        on_state: Callable[[State], None] = lambda _: None,
    ) -> None:
        """Prepare a session.

        Args:
            ensemble: the servers, tried in random order.
            connect: opens a TCP connection.
            clock: finds silent servers.
            entropy: the order of the servers, and the waits between attempts.
            session_timeout_ms: wanted; the ensemble may grant another.
            in_flight_max: requests without a reply; more of them wait.
            security: the user of the session, and the lists of new znodes; `connect` secures
                connections.
            on_event: called when a watch fired. Must not block.
            on_state: called when the state changed. Must not block.
        """
        self.ensemble = ensemble
        self.state = State.CONNECTING
        self.timeout_ms = session_timeout_ms
        self._connect = connect
        self._clock = clock
        self._entropy = entropy
        self._security = security
        self._pipeline = Pipeline(in_flight_max, self._post)
        self._on_event = on_event
        self._on_state = on_state
        self._session = SessionState()
        self._watches = Watches()
        self._waiters: list[asyncio.Future[None]] = []
        self._line: Line | None = None
        self._refuses_multi_read = False
        """Whether a server has refused a `MultiRead`."""
        self._task: asyncio.Task[None] | None = None
        self._last_failure = "no server responded"

    @property
    def session_id(self) -> int:
        """The owner of its ephemeral znodes; 0 before the first connection."""
        return self._session.session_id

    async def start(self, timeout_ms: int | None = None) -> None:
        """Connect to one of the servers.

        Raises:
            TimeoutError: no server accepted a session within `timeout_ms`, by default the session
                timeout. The text names the servers and the last failure.
        """
        wait_ms = timeout_ms or self.timeout_ms
        self._task = asyncio.create_task(self._run(), name="zookeeper session")
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._connected()
        except TimeoutError:
            await self.close()
            raise TimeoutError(
                f"no ZooKeeper server of {self.ensemble} accepted a session within {wait_ms} ms: "
                f"{self._last_failure}"
            ) from None

    async def close(self) -> None:
        """End the session: its ephemeral znodes are deleted at once."""
        if self._line is not None and self.state is State.CONNECTED:
            with suppress(
                TimeoutError, ConnectionLossError
            ):  # the timeout of the session ends it then
                async with asyncio.timeout(CLOSE_SECONDS_MAX):
                    await self._line.send(Close())
        if self.state is not State.EXPIRED:
            self._set_state(State.CLOSED)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def submit(self, request: Request) -> Any:
        """Send `request` once and return its result, of the type given in `requests`.

        Raises:
            ConnectionLossError: not connected, or disconnected before the reply arrived.
            SessionExpiredError: the session has ended.
            ZooKeeperError: the server refused it.
        """
        return await self._pipeline.send(request)

    def _with_acl(self, request: Any) -> Any:
        """The request with the lists of the znodes that it creates."""
        if isinstance(request, Create) and request.acl is None:
            return replace(request, acl=self._security.acl_of(request.path))
        if isinstance(request, Multi):
            return replace(request, operations=tuple(map(self._with_acl, request.operations)))
        return request

    async def submit_until_connected(self, request: Request) -> Any:
        """As `submit`, but after a disconnect wait for the next connection and send it again.

        As Kafka's `retryRequestUntilConnected`. The second attempt may meet the effect of the
        first: NodeExistsError, NoNodeError or BadVersionError after one that was applied.
        """
        while True:
            await self._connected()
            with suppress(ConnectionLossError):
                return await self.submit(request)

    async def submit_all(self, requests: Sequence[Request]) -> list[Any]:
        """Pipeline requests, each as `submit_until_connected`.

        Return a result or an exception for each, in their order. The reads of a `MultiRead` are
        sent one by one if a server of the ensemble does not serve it.
        """
        results = await self._submit_each(requests)
        for index, request in enumerate(requests):
            if isinstance(request, MultiRead) and _is_unimplemented(results[index]):
                results[index] = await self._submit_each(request.reads)
        return results

    async def _submit_each(self, requests: Sequence[Request]) -> list[Any]:
        results: list[Any] = [SessionExpiredError(Code.SESSION_EXPIRED)] * len(requests)
        left = list(range(len(requests)))
        with suppress(SessionExpiredError):
            while left:
                await self._connected()
                left = await self._pipeline.send_all(requests, left, results)
        return results

    async def multi(self, *operations: Operation) -> list[Any]:
        """Send a transaction once; return the result of each operation.

        Raises:
            MultiError: it was not applied.
            ConnectionLossError: it may have been applied.
        """
        results: list[Any] = await self.submit(Multi(operations))
        return results

    async def create_recursive(self, path: str) -> None:
        """Create a persistent znode without data, and those above it, unless they exist."""
        names = path.strip("/").split("/")
        for depth in range(1, len(names) + 1):
            with suppress(NodeExistsError):
                await self.submit_until_connected(Create(path="/" + "/".join(names[:depth])))

    def _post(self, request: Request, on_result: OnResult) -> None:
        """Send a request on the connection; without one, it fails soon."""
        if self._line is None or self._has_ended():
            code = Code.SESSION_EXPIRED if self._has_ended() else Code.CONNECTION_LOSS
            fail_soon(on_result, error_of(code, request.path))
            return
        if isinstance(request, MultiRead):
            if self._refuses_multi_read:
                fail_soon(on_result, error_of(Code.UNIMPLEMENTED))
                return
            on_result = partial(self._on_multi_read, on_result)
        if self._security.sets_acls:
            request = self._with_acl(request)
        self._line.post(request, on_result)

    def _on_multi_read(self, on_result: OnResult, result: Any) -> None:
        """Do not send another one to a server that closes the connection because of it."""
        self._refuses_multi_read |= _is_unimplemented(result)
        on_result(result)

    def _has_ended(self) -> bool:
        return self.state in {State.EXPIRED, State.CLOSED}

    def _check_not_ended(self) -> None:
        if self._has_ended():
            raise SessionExpiredError(Code.SESSION_EXPIRED)

    async def _connected(self) -> None:
        while self.state is State.CONNECTING:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        self._check_not_ended()

    def _set_state(self, state: State) -> None:
        if state is self.state:
            return
        self.state = state
        self._on_state(state)
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # The task of the session

    async def _run(self) -> None:
        while not self._has_ended():
            for server in self._shuffled():
                if not self._has_ended():
                    await self._use(*server)
            bound_ms = min(RECONNECT_MS_MAX, self.timeout_ms // 4)
            await asyncio.sleep(self._entropy.below(bound_ms) / 1000)

    def _shuffled(self) -> list[tuple[str, int]]:
        left = list(self.ensemble.servers)
        return [left.pop(self._entropy.below(len(left))) for _ in range(len(left))]

    async def _use(self, host: str, port: int) -> None:
        """Connect to one server and stay until the connection is lost."""
        line = Line(
            self._session,
            self._watches,
            self._clock,
            chroot=self.ensemble.chroot,
            timeout_ms=self.timeout_ms,
            on_event=self._on_event,
            on_end=self._on_line_end,
        )
        try:
            async with asyncio.timeout(self.timeout_ms / 1000 / len(self.ensemble.servers)):
                await self._connect(lambda: line, host, port)
                line.open()
                opened = await line.opened
                if self._security.login is not None and opened.session_id:
                    await self._authenticate(line, host, self._security.login)
            if self._continue(opened, line):
                self._last_failure = await line.keep_alive(self.timeout_ms)
        except TimeoutError:
            self._last_failure = f"{host}:{port} did not respond"
        except (OSError, ConnectionError, SaslError, ZooKeeperError) as error:
            self._last_failure = f"{host}:{port}: {error}"
        finally:
            line.abort("the session left this server")
        _LOG.info("ZooKeeper %s:%d: %s", host, port, self._last_failure)

    async def _authenticate(self, line: Line, host: str, login: EnsembleLogin) -> None:
        """Exchange SASL tokens (`ZooKeeperSaslClient`).

        Raises:
            SaslError: the server does not know the credentials, or a ticket is missing.
            ZooKeeperError: the server refused the user.
        """
        step = asyncio.to_thread if login.blocks else _at_once
        cnonce = self._entropy.random_bytes(CNONCE_BYTES).hex()
        exchange = await step(login.client, cnonce, host, line.peer_address)
        token: bytes | None = await step(exchange.first)
        while token is not None:
            token = await step(exchange.respond, await line.send(Sasl(token)))

    def _on_line_end(self) -> None:
        """Report the disconnect before another request is sent on the closed connection."""
        self._line = None
        if self.state is State.CONNECTED:
            self._set_state(State.CONNECTING)

    def _continue(self, opened: SessionOpened, line: Line) -> bool:
        """Take over the server's view of the session; false if it has expired."""
        if not opened.session_id:
            _LOG.warning("ZooKeeper session 0x%x has expired", self.session_id)
            self._watches.clear()
            self._set_state(State.EXPIRED)
            return False
        self._session.session_id = opened.session_id
        self._session.password = opened.password
        self.timeout_ms = opened.timeout_ms
        line.renew_watches()
        self._line = line
        self._set_state(State.CONNECTED)
        return True


def _is_unimplemented(result: Any) -> bool:
    return isinstance(result, ZooKeeperError) and result.code == Code.UNIMPLEMENTED


async def _at_once(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """As `asyncio.to_thread`, for work that does not block."""
    return work(*arguments, **named)
