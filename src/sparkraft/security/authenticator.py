"""The server's side of SASL on one connection: Kafka's `SaslServerAuthenticator`, without I/O.

    FIRST ──ApiVersions──► VERSIONS_SENT ──SaslHandshake──► TOKENS ──last token──► COMPLETE
      └──────────────────SaslHandshake────────────────────────┘ └──any failure──► FAILED

* From SaslHandshake v1 on, tokens travel in SaslAuthenticate requests (KIP-152). After v0 they are
  frames without a header, and failures have no response (KIP-43).
* A request that a state does not accept ends the connection; its body is never decoded.
* The response to a failure is delayed (`connection.failed.authentication.delay.ms`), and the
  connection closes after it.
* Re-authentication (KIP-368) is a second exchange on the same connection, with an `Authenticator`
  of its own that has a `predecessor`. It must have the same mechanism and user. As in Kafka, a
  handshake for another enabled mechanism succeeds, and the next frame ends the connection without
  a response; one for an unknown mechanism ends it at once.

Not here: bytes, timers, sessions (`sparkraft.server.network.sasl_gate`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k17_sasl_handshake import SaslHandshakeResponse
from sparkraft.protocol.messages.k18_api_versions import ApiVersionsResponse
from sparkraft.protocol.messages.k36_sasl_authenticate import SaslAuthenticateResponse
from sparkraft.security.principal import USER
from sparkraft.security.sasl import SaslError, SaslServer

TOKENS_MAX = 64
"""Tokens of one exchange; no mechanism needs more than three."""


class State(Enum):
    """The progress of a connection."""

    FIRST = auto()
    """Nothing that counts: ApiVersions or SaslHandshake may follow."""
    VERSIONS_SENT = auto()
    """It knows our versions: SaslHandshake must follow."""
    TOKENS = auto()
    """It chose a mechanism: tokens must follow."""
    OTHER_MECHANISM = auto()
    """It re-authenticates with another mechanism than before: its next frame fails."""
    COMPLETE = auto()
    """It is authenticated."""
    FAILED = auto()
    """It will be closed; nothing more is read."""


NEXT_STATES: Mapping[State, frozenset[State]] = {
    State.FIRST: frozenset(
        {State.VERSIONS_SENT, State.TOKENS, State.OTHER_MECHANISM, State.FAILED}
    ),
    State.VERSIONS_SENT: frozenset({State.TOKENS, State.FAILED}),
    State.TOKENS: frozenset({State.COMPLETE, State.FAILED}),
    State.OTHER_MECHANISM: frozenset({State.FAILED}),
    State.COMPLETE: frozenset(),
    State.FAILED: frozenset(),
}
"""State → the states that may follow it."""


_UNEXPECTED: Mapping[ApiKey, type[SaslHandshakeResponse] | type[ApiVersionsResponse]] = {
    ApiKey.SASL_HANDSHAKE: SaslHandshakeResponse,
    ApiKey.API_VERSIONS: ApiVersionsResponse,
}
"""The responses that Kafka sends with ILLEGAL_SASL_STATE and that need no decoded request."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The response to a request or a raw token.

    Attributes:
        response: a message; bytes after a raw token; None: nothing.
        failure: why authentication failed: send the response after the delay, then close. The text
            is for the log.
    """

    response: SaslHandshakeResponse | ApiVersionsResponse | SaslAuthenticateResponse | bytes | None
    failure: str | None = None


class SessionLimits(Protocol):
    """How long sessions of a listener may last."""

    def lifetime_ms(self, mechanism: str, credential_expires_at_ms: int | None) -> int | None:
        """How long a session that begins now lasts; None: it does not end.

        `credential_expires_at_ms` is in wall-clock time; None: the credential does not expire.
        """
        ...


class Authenticator:
    """One authentication of a connection.

    Attributes:
        state: see `NEXT_STATES`.
        mechanism: the one the client chose; "" before.
        user: the authenticated user; "" before.
        lifetime_ms: how long the session lasts from its completion; None: it does not end.
        token_authenticated: whether the client authenticated with a delegation token.
    """

    def __init__(
        self,
        mechanisms: Mapping[str, Callable[[], SaslServer]],
        limits: SessionLimits,
        predecessor: "Authenticator | None" = None,
    ) -> None:
        """Begin.

        Args:
            mechanisms: those offered, by name; each begins an exchange.
            limits: of the session that begins at the end.
            predecessor: the authentication that this one renews; None: it is the first.
        """
        self._mechanisms = mechanisms
        self._limits = limits
        self.lifetime_ms: int | None = None
        self._server: SaslServer | None = None
        self._tokens = 0
        self._has_headers = True
        self.state = State.FIRST
        self.mechanism = ""
        self.user = ""
        self.token_authenticated = False
        self._before = None if predecessor is None else (predecessor.mechanism, predecessor.user)

    @property
    def expects_raw_token(self) -> bool:
        """Whether the next frame is a token without a header."""
        return self.state is State.TOKENS and not self._has_headers

    def accepts_versions(self) -> bool:
        """Whether ApiVersions may come now."""
        return self.state is State.FIRST

    def on_versions(self) -> None:
        """A valid ApiVersions request got its response."""
        self._enter(State.VERSIONS_SENT)

    def accepts_handshake(self) -> bool:
        """Whether SaslHandshake may come now."""
        return self.state in {State.FIRST, State.VERSIONS_SENT}

    def on_handshake(self, version: int, mechanism: str) -> Reply:
        """Begin an exchange, or refuse an unknown mechanism with the list of those we have."""
        offered = sorted(self._mechanisms)
        if mechanism not in self._mechanisms:
            self._enter(State.FAILED)
            refusal = SaslHandshakeResponse(
                error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=offered
            )
            why = f"unsupported SASL mechanism {mechanism!r}"
            return Reply(refusal if self._before is None else None, why)
        self._has_headers = version >= 1
        self.mechanism = mechanism
        if self._before is not None and mechanism != self._before[0]:
            self._enter(State.OTHER_MECHANISM)
        else:
            self._server = self._mechanisms[mechanism]()
            self._enter(State.TOKENS)
        return Reply(SaslHandshakeResponse(mechanisms=offered))

    def on_frame_after_other_mechanism(self) -> Reply:
        """Refuse the frame after a handshake for another mechanism, without a response."""
        assert self._before is not None
        self._enter(State.FAILED)
        why = (
            f"SASL mechanism '{self.mechanism}' requested by client is not supported for "
            f"re-authentication of mechanism '{self._before[0]}'"
        )
        return Reply(None, why)

    def on_unexpected(self, key: ApiKey) -> Reply:
        """Refuse a request in place of a token; bodies of other keys are not read for this."""
        self._enter(State.FAILED)
        response_class = _UNEXPECTED.get(key)
        response = None
        if response_class is not None:
            response = response_class(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        why = f"unexpected Kafka request of type {key.name} during SASL authentication"
        return Reply(response, why)

    @property
    def blocks(self) -> bool:
        """Whether `answer` waits for files or the network."""
        return self._server is not None and self._server.blocks

    def on_token(self, token: bytes) -> Reply:
        """Take a token of the client; the exchange continues, completes or fails."""
        return self.on_answer(self.answer(token))

    def answer(self, token: bytes) -> bytes | SaslError:
        """The mechanism's answer, for `on_answer`; it may be computed in a thread."""
        assert self._server is not None
        self._tokens += 1
        if self._tokens > TOKENS_MAX:
            return SaslError(f"more than {TOKENS_MAX} tokens")
        try:
            return self._server.respond(token)
        except SaslError as failure:
            return failure

    def on_answer(self, answer: bytes | SaslError) -> Reply:
        """Take the answer to a token."""
        assert self._server is not None
        try:
            if isinstance(answer, SaslError):
                raise answer
            self._check_unchanged(self._server.user)
        except SaslError as failure:
            return self._failed(failure)
        if self._server.user:
            self.user = self._server.user
            self.token_authenticated = self._server.token_authenticated
            self.lifetime_ms = self._limits.lifetime_ms(self.mechanism, self._server.expires_at_ms)
            self._enter(State.COMPLETE)
        if not self._has_headers:
            return Reply(answer)
        lifetime_ms = self.lifetime_ms or 0
        return Reply(SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=lifetime_ms))

    def _check_unchanged(self, user: str) -> None:
        """Raise `SaslError` if the client re-authenticated as another user."""
        if self._before is not None and user and user != self._before[1]:
            raise SaslError(
                "Cannot change principals during re-authentication from "
                f"{USER}.{self._before[1]}: {USER}.{user}",
                public=True,
            )

    def _failed(self, failure: SaslError) -> Reply:
        self._enter(State.FAILED)
        process = "authentication" if self._before is None else "re-authentication"
        text = failure.public_text or (
            f"Authentication failed during {process} due to invalid credentials with SASL "
            f"mechanism {self.mechanism}"
        )
        response = SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=text
        )
        has_response = self._has_headers and not failure.is_retriable
        return Reply(response if has_response else None, str(failure))

    def _enter(self, state: State) -> None:
        assert state in NEXT_STATES[self.state], (self.state, state)
        self.state = state
