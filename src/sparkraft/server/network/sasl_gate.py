"""In front of a connection on a SASL listener: no request is handled before authentication.

    bytes ──► frames ──► SaslGate ──► handlers
                            └── ApiVersions, SaslHandshake, SaslAuthenticate, raw tokens

Afterwards only connections whose session expires keep their gate, for re-authentication (KIP-368),
as in Kafka's `SocketServer.Processor`: a SaslHandshake begins it, at most once a second. Any other
request after the expiry closes the connection without a response, when it is its turn to be
handled; a connection that sends nothing stays open. While a client re-authenticates, no other
request is accepted.

Only the bodies of these three requests are decoded, and only in the order that
`security.authenticator` describes. All else closes the connection without a response. Bounds: the
size of frames (sasl.server.max.receive.size), the bytes of one read (`READ_BYTES`), the time since
the accept (`AUTHENTICATION_MS_MAX`), and the connections that are authenticating
(sparkraft.unauthenticated.connections.max).

Nothing here logs the bytes of a frame: they may be a password.
"""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from sparkraft.base.errors import DecodeError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.security.authenticator import Authenticator, Reply, State
from sparkraft.security.principal import USER, KafkaPrincipal
from sparkraft.security.session import Session
from sparkraft.server.api.registry import RequestContext
from sparkraft.server.network.dispatch import HEADER, Route, Routes, skip_tagged_fields
from sparkraft.tls.stream import RECEIVE_BYTES, limit_reads

if TYPE_CHECKING:
    from sparkraft.base.env import Clock
    from sparkraft.security.sasl import SaslError
    from sparkraft.server.sasl_config import ListenerSasl

log = logging.getLogger(__name__)

AUTHENTICATION_MS_MAX = 30_000
"""Time to authenticate, counted from the accept: bytes that trickle in do not extend it.

Re-authentication has the same time, counted from its SaslHandshake.
"""

REAUTHENTICATION_INTERVAL_MS_MIN = 1_000
"""Kafka's: an earlier SaslHandshake is a request like any other, with an error response."""

READ_BYTES = 8 * 1024
"""Read at once before authentication. A connection that waits for memory keeps what it has read:
with asyncio's 256 KiB, a thousand of them would keep more than all unfinished requests may."""

RECEIVE_SIZE = "sasl.server.max.receive.size"

_KEY_BYTES = 2
_HANDSHAKE_KEY = int(ApiKey.SASL_HANDSHAKE).to_bytes(_KEY_BYTES, "big")

THREADS = 2
"""Of a listener with GSSAPI: a token takes about a millisecond of a processor."""

FAILURES_LOGGED_PER_SECOND_MAX = 10
"""A flood of failures does not fill the disk with log lines."""


class GatedConnection(Protocol):
    """A connection, as its gate uses it."""

    session: Session

    transport: asyncio.Transport | None

    def admit(self, session: Session) -> None:
        """Handle requests from now on, for `session`."""
        ...

    def limit_frames(self, bytes_max: int) -> None:
        """Close instead of reading a longer frame."""
        ...

    def begin(self, route: Route) -> None:
        """Count a request, before its response."""
        ...

    def respond(self, route: Route, context: RequestContext, request: Any, response: Any) -> None:
        """Send a response, or keep it until it is next."""
        ...

    def write(self, parts: list[Any]) -> None:
        """Send bytes that are not a response with a header."""
        ...

    def close(self, why: str = "") -> None:
        """Send what is ready and close."""
        ...

    def resume(self) -> None:
        """Send what is ready, and handle the frames that waited."""
        ...


class SaslGates:
    """The gates of one listener.

    Attributes:
        open: connections that are authenticating.
        succeeded: how many authenticated.
        failed: how many failed to.
        renewed: how often clients re-authenticated.
        renewals_failed: how often they failed to.
        expired: connections closed because their session had expired.
    """

    def __init__(self, settings: "ListenerSasl", routes: Routes, clock: "Clock") -> None:
        self.settings = settings
        self.routes = routes
        self.clock = clock
        self.open = 0
        self.succeeded = 0
        self.failed = 0
        self.renewed = 0
        self.renewals_failed = 0
        self.expired = 0
        self._second = 0
        self._logged = 0
        self._threads: ThreadPoolExecutor | None = None

    @property
    def threads(self) -> ThreadPoolExecutor:
        """For mechanisms that block: their own, so that neither they nor other work wait."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, "sasl")
        return self._threads

    def close(self) -> None:
        """The listener has closed."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def frame_bytes_max(self) -> int:
        """The longest frame before authentication."""
        return self.settings.receive_bytes_max

    def counters(self) -> dict[str, int]:
        """Return the counters, each by the name of its metric."""
        return {
            "successful_authentications": self.succeeded,
            "failed_authentications": self.failed,
            "successful_reauthentications": self.renewed,
            "failed_reauthentications": self.renewals_failed,
            "expired_connections_killed": self.expired,
        }

    def gate(self, connection: GatedConnection) -> "SaslGate":
        """The gate of a new connection."""
        return SaslGate(self, connection)

    def on_open(self) -> bool:
        """Count a connection that begins to authenticate; whether it may."""
        self.open += 1
        return self.open <= self.settings.unauthenticated_max

    def on_end(self) -> None:
        """It has authenticated, failed or gone."""
        self.open -= 1

    def lifetime_ms(self, mechanism: str, credential_expires_at_ms: int | None) -> int | None:
        """See `SessionLimits`: the smaller of connections.max.reauth.ms and the credential's."""
        limits = []
        if (most := self.settings.reauth_ms_max.get(mechanism, 0)) > 0:
            limits.append(most)
        if credential_expires_at_ms is not None:
            limits.append(credential_expires_at_ms - self.clock.wall_ms())
        return max(min(limits), 0) if limits else None

    def on_success(self, *, again: bool) -> None:
        """Count it; `again`: a client re-authenticated."""
        if again:
            self.renewed += 1
        else:
            self.succeeded += 1

    def on_expired(self) -> None:
        """Count it."""
        self.expired += 1

    def on_failure(self, connection: GatedConnection, why: str, *, again: bool) -> None:
        """Count it and log it, unless there are too many at once."""
        if again:
            self.renewals_failed += 1
        else:
            self.failed += 1
        second = self.clock.mono_ms() // 1000
        if second != self._second:
            self._second, self._logged = second, 0
        self._logged += 1
        if self._logged <= FAILURES_LOGGED_PER_SECOND_MAX:
            log.info("Failed authentication with %s: %s", connection, why)
        elif self._logged == FAILURES_LOGGED_PER_SECOND_MAX + 1:
            log.info("Failed authentications are not logged for the rest of this second")


class SaslGate:
    """The gate of one connection."""

    __slots__ = (
        "_authenticator",
        "_connection",
        "_expires_at_ms",
        "_gates",
        "_is_counted",
        "_is_over",
        "_last",
        "_renewal_ms",
        "_timer",
        "is_busy",
    )

    def __init__(self, gates: SaslGates, connection: GatedConnection) -> None:
        """Begin; a connection too many is closed."""
        self._gates = gates
        self._connection = connection
        self._authenticator = Authenticator(gates.settings.mechanisms, gates)
        self._last: tuple[Route, RequestContext] | None = None
        self._expires_at_ms: int | None = None
        self._renewal_ms: int | None = None
        """When re-authentication began last."""
        self._is_counted = True
        self._is_over = False
        """The connection is closed, or has failed: the answer to a token comes too late."""
        self.is_busy = False
        """A token is being answered in a thread: frames must wait."""
        self._timer = self._begin()
        if not gates.on_open():
            maximum = gates.settings.unauthenticated_max
            asyncio.get_running_loop().call_soon(
                connection.close, f"{maximum} connections are authenticating already"
            )

    def _begin(self) -> asyncio.TimerHandle:
        self._connection.limit_frames(self._gates.frame_bytes_max)
        limit_reads(self._connection.transport, READ_BYTES)
        loop = asyncio.get_running_loop()
        return loop.call_later(AUTHENTICATION_MS_MAX / 1000, self._on_timeout)

    @property
    def is_authenticating(self) -> bool:
        """Whether its limits apply, rather than those of requests."""
        return self._authenticator.state is not State.COMPLETE

    @property
    def frame_limit_config(self) -> str:
        """The config that limits the next frame."""
        return RECEIVE_SIZE if self.is_authenticating else "socket.request.max.bytes"

    def takes(self, frame: memoryview, now_ms: int) -> bool:
        """Handle `frame`; False if the connection must: ApiVersions, or it is authenticated."""
        try:
            if not self.is_authenticating and not self._renews(frame):
                return self._is_expired()
            return self._take(frame, now_ms)
        except DecodeError as error:
            self._fail(f"it sent what is not a request before authentication: {error}")
            return True

    def close(self) -> None:
        """It has authenticated, until it re-authenticates, or is lost."""
        self._timer.cancel()
        if self._is_counted:
            self._is_counted = False
            self._gates.on_end()

    def on_lost(self) -> None:
        """The connection is lost."""
        self._is_over = True
        self.close()

    def _renews(self, frame: memoryview) -> bool:
        """Whether `frame` begins re-authentication."""
        if frame[:_KEY_BYTES] != _HANDSHAKE_KEY:
            return False
        now = self._gates.clock.mono_ms()
        last = self._renewal_ms
        if last is not None and now - last < REAUTHENTICATION_INTERVAL_MS_MIN:
            return False
        self._renewal_ms = now
        self._authenticator = Authenticator(
            self._gates.settings.mechanisms, self._gates, predecessor=self._authenticator
        )
        self._timer = self._begin()
        return True

    def _is_expired(self) -> bool:
        """Close the connection if its session has expired; the loop's time may be older."""
        assert self._expires_at_ms is not None
        if self._gates.clock.mono_ms() <= self._expires_at_ms:
            return False
        self._gates.on_expired()
        self._connection.close("its session expired, and it did not re-authenticate")
        return True

    def _take(self, frame: memoryview, now_ms: int) -> bool:
        authenticator = self._authenticator
        if authenticator.state is State.FAILED:
            return True
        if authenticator.state is State.OTHER_MECHANISM:
            assert self._last is not None
            self._send(*self._last, authenticator.on_frame_after_other_mechanism())
            return True
        if authenticator.expects_raw_token:
            assert self._last is not None
            self._on_token(*self._last, bytes(frame))
            return True
        if len(frame) < HEADER.size:
            raise DecodeError("a request shorter than its header", at=len(frame))
        key, version, correlation_id, id_size = HEADER.unpack_from(frame)
        if key == ApiKey.API_VERSIONS and authenticator.accepts_versions():
            return self._on_versions(frame, version, id_size)
        route = self._gates.routes.find(key, version)
        if route is None or not self._accepts(key):
            self._fail(f"it sent key {key} version {version} before authentication")
            return True
        context = RequestContext(
            key,
            version,
            correlation_id,
            None,
            session=self._connection.session,
            connection=self._connection,
            received_ms=now_ms,
        )
        self._last = route, context
        if key == ApiKey.SASL_AUTHENTICATE:
            token = bytes(_decode(route, frame, id_size).auth_bytes)
            self._on_token(route, context, token)
        else:
            self._send(route, context, self._reply(route, frame, id_size))
        return True

    def _on_token(self, route: Route, context: RequestContext, token: bytes) -> None:
        """Answer a token, in a thread if the mechanism blocks."""
        authenticator = self._authenticator
        if not authenticator.blocks:
            self._send(route, context, authenticator.on_token(token))
            return
        self.is_busy = True
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._gates.threads, authenticator.answer, token)
        work.add_done_callback(partial(self._on_answer, route, context))

    def _on_answer(
        self, route: Route, context: RequestContext, work: "asyncio.Future[bytes | SaslError]"
    ) -> None:
        self.is_busy = False
        if work.cancelled() or self._is_over:
            return
        self._send(route, context, self._authenticator.on_answer(work.result()))
        self._connection.resume()

    def _accepts(self, key: int) -> bool:
        """Whether a request of this key has a response now; it may be an error."""
        if self._authenticator.state is State.TOKENS:
            return key in {ApiKey.SASL_AUTHENTICATE, ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS}
        return key == ApiKey.SASL_HANDSHAKE

    def _reply(self, route: Route, frame: memoryview, id_size: int) -> Reply:
        authenticator = self._authenticator
        if authenticator.state is State.TOKENS:
            return authenticator.on_unexpected(route.api.key)
        return authenticator.on_handshake(route.version, _decode(route, frame, id_size).mechanism)

    def _on_versions(self, frame: memoryview, version: int, id_size: int) -> bool:
        """Let the connection respond; a valid request must be followed by SaslHandshake."""
        from sparkraft.server.api.k18_api_versions import has_valid_software

        route = self._gates.routes.find(ApiKey.API_VERSIONS, version)
        if route is not None and has_valid_software(version, _decode(route, frame, id_size)):
            self._authenticator.on_versions()
        return False

    def _send(self, route: Route, context: RequestContext, reply: Reply) -> None:
        if reply.failure is not None:
            self._respond_late(route, context, reply)
        elif isinstance(reply.response, bytes):
            self._connection.write([len(reply.response).to_bytes(4, "big"), reply.response])
        else:
            self._connection.begin(route)
            self._connection.respond(route, context, None, reply.response)
        if self._authenticator.state is State.COMPLETE:
            self._complete()

    def _complete(self) -> None:
        self._gates.on_success(again=self._renewal_ms is not None)
        before = self._connection.session
        lifetime_ms = self._authenticator.lifetime_ms
        self._expires_at_ms = None
        if lifetime_ms is not None:
            self._expires_at_ms = self._gates.clock.mono_ms() + lifetime_ms
        session = Session(
            KafkaPrincipal(
                USER,
                self._authenticator.user,
                token_authenticated=self._authenticator.token_authenticated,
            ),
            listener_name=before.listener_name,
            security_protocol=before.security_protocol,
            client_host=before.client_host,
            authorizer=before.authorizer,
            expires_at_ms=self._expires_at_ms,
        )
        self.close()
        limit_reads(self._connection.transport, RECEIVE_BYTES)
        self._connection.admit(session)

    def _respond_late(self, route: Route, context: RequestContext, reply: Reply) -> None:
        """Send the response after the delay, then close; frames wait for it meanwhile."""
        assert reply.failure is not None
        self._timer.cancel()
        self._count_failure(reply.failure)
        loop = asyncio.get_running_loop()
        delayed = loop.create_future()
        self._connection.begin(route)
        self._connection.respond(route, context, None, delayed)
        delayed.add_done_callback(lambda _: self._connection.close("authentication failed"))
        loop.call_later(self._gates.settings.failure_delay_ms / 1000, _settle, delayed, reply)

    def _count_failure(self, why: str) -> None:
        self._gates.on_failure(self._connection, why, again=self._renewal_ms is not None)

    def _fail(self, why: str) -> None:
        self._is_over = True
        self._count_failure(why)
        self._connection.close()

    def _on_timeout(self) -> None:
        self._fail(f"it did not authenticate within {AUTHENTICATION_MS_MAX} ms")


def _settle(delayed: "asyncio.Future[Any]", reply: Reply) -> None:
    if not delayed.done():
        delayed.set_result(reply.response)


def _decode(route: Route, frame: memoryview, id_size: int) -> Any:
    """The body of a request; DecodeError if it is malformed."""
    at = HEADER.size + max(id_size, 0)
    if at > len(frame):
        raise DecodeError("client_id ends after its frame", path="client_id", at=HEADER.size)
    if route.flexible_request:
        at = skip_tagged_fields(frame, at)
    request, _ = route.decode(route.request_class, route.version, frame[at:], 0)
    return request
