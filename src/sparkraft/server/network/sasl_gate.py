"""In front of a connection on a SASL listener: no request is handled before authentication.

    bytes ──► frames ──► SaslGate ──► handlers
                            └── ApiVersions, SaslHandshake, SaslAuthenticate, raw tokens

Only the bodies of these three requests are decoded, and only in the order that
`security.authenticator` describes. All else closes the connection without a response. Bounds: the
size of frames (sasl.server.max.receive.size), the time since the accept (`AUTHENTICATION_MS_MAX`),
and the connections that are authenticating (sparkraft.unauthenticated.connections.max).

Nothing here logs the bytes of a frame: they may be a password.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Protocol

from sparkraft.base.errors import DecodeError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.security.authenticator import Authenticator, Reply, State
from sparkraft.security.principal import USER, KafkaPrincipal
from sparkraft.security.session import Session
from sparkraft.server.api.registry import RequestContext
from sparkraft.server.network.dispatch import HEADER, Route, Routes, skip_tagged_fields

if TYPE_CHECKING:
    from sparkraft.base.env import Clock
    from sparkraft.server.sasl_config import ListenerSasl

log = logging.getLogger(__name__)

AUTHENTICATION_MS_MAX = 30_000
"""Time to authenticate, counted from the accept: bytes that trickle in do not extend it."""

FAILURES_LOGGED_PER_SECOND_MAX = 10
"""A flood of failures does not fill the disk with log lines."""


class GatedConnection(Protocol):
    """A connection, as its gate uses it."""

    session: Session

    def admit(self, session: Session) -> None:
        """Handle requests from now on, for `session`."""
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


class SaslGates:
    """The gates of one listener.

    Attributes:
        open: connections that are authenticating.
        succeeded: how many authenticated.
        failed: how many failed to.
    """

    def __init__(self, settings: "ListenerSasl", routes: Routes, clock: "Clock") -> None:
        self.settings = settings
        self.routes = routes
        self.clock = clock
        self.open = 0
        self.succeeded = 0
        self.failed = 0
        self._second = 0
        self._logged = 0

    @property
    def frame_bytes_max(self) -> int:
        """The longest frame before authentication."""
        return self.settings.receive_bytes_max

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

    def on_success(self) -> None:
        """Count it."""
        self.succeeded += 1

    def on_failure(self, connection: GatedConnection, why: str) -> None:
        """Count it and log it, unless there are too many at once."""
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

    __slots__ = ("_authenticator", "_connection", "_gates", "_is_counted", "_last", "_timer")

    def __init__(self, gates: SaslGates, connection: GatedConnection) -> None:
        """Begin; a connection too many is closed."""
        self._gates = gates
        self._connection = connection
        self._authenticator = Authenticator(gates.settings.mechanisms)
        self._last: tuple[Route, RequestContext] | None = None
        self._is_counted = True
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(AUTHENTICATION_MS_MAX / 1000, self._on_timeout)
        if not gates.on_open():
            maximum = gates.settings.unauthenticated_max
            loop.call_soon(connection.close, f"{maximum} connections are authenticating already")

    @property
    def frame_bytes_max(self) -> int:
        """The longest frame before authentication."""
        return self._gates.frame_bytes_max

    def takes(self, frame: memoryview, now_ms: int) -> bool:
        """Handle `frame`; False if the connection must: an ApiVersions request."""
        try:
            return self._take(frame, now_ms)
        except DecodeError as error:
            self._fail(f"it sent what is not a request before authentication: {error}")
            return True

    def close(self) -> None:
        """The connection is lost or authenticated."""
        self._timer.cancel()
        if self._is_counted:
            self._is_counted = False
            self._gates.on_end()

    def _take(self, frame: memoryview, now_ms: int) -> bool:
        authenticator = self._authenticator
        if authenticator.state is State.FAILED:
            return True
        if authenticator.expects_raw_token:
            assert self._last is not None
            self._send(*self._last, authenticator.on_token(bytes(frame)))
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
        self._send(route, context, self._reply(route, frame, id_size))
        return True

    def _accepts(self, key: int) -> bool:
        """Whether a request of this key has a response now; it may be an error."""
        if self._authenticator.state is State.TOKENS:
            return key in {ApiKey.SASL_AUTHENTICATE, ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS}
        return key == ApiKey.SASL_HANDSHAKE

    def _reply(self, route: Route, frame: memoryview, id_size: int) -> Reply:
        authenticator = self._authenticator
        if route.api.key == ApiKey.SASL_AUTHENTICATE:
            return authenticator.on_token(bytes(_decode(route, frame, id_size).auth_bytes))
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
            self._connection.respond(route, context, None, reply.response)
        if self._authenticator.state is State.COMPLETE:
            self._complete()

    def _complete(self) -> None:
        self._gates.on_success()
        anonymous = self._connection.session
        session = Session(
            KafkaPrincipal(USER, self._authenticator.user),
            listener_name=anonymous.listener_name,
            security_protocol=anonymous.security_protocol,
            client_host=anonymous.client_host,
            authorizer=anonymous.authorizer,
        )
        self.close()
        self._connection.admit(session)

    def _respond_late(self, route: Route, context: RequestContext, reply: Reply) -> None:
        """Send the response after the delay, then close; frames wait for it meanwhile."""
        assert reply.failure is not None
        self._timer.cancel()
        self._gates.on_failure(self._connection, reply.failure)
        loop = asyncio.get_running_loop()
        delayed = loop.create_future()
        self._connection.respond(route, context, None, delayed)
        delayed.add_done_callback(lambda _: self._connection.close("authentication failed"))
        loop.call_later(self._gates.settings.failure_delay_ms / 1000, _settle, delayed, reply)

    def _fail(self, why: str) -> None:
        self._gates.on_failure(self._connection, why)
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
