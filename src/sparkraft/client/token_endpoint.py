"""OAUTHBEARER with access tokens of a token endpoint (RFC 6749, KIP-768).

    POST url    a form of `token_requests`    200 {"access_token": TOKEN}

Behavior as in Kafka's `HttpJwtRetriever`: failed requests are sent again with growing waits, for
`sasl.login.retry.backoff.max.ms` altogether, unless their status is final. Connections
with the same settings share a token until `REFRESH_FACTOR` of its lifetime has passed. If no new
one arrives then, the old one is used until it expires. In Kafka, a thread renews it at that time.

Neither redirects nor proxies are followed, and servers are verified with the system's certificate
authorities. No error quotes a token, the secret, or the response, except for the code of an error.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
import time
from base64 import urlsafe_b64decode
from dataclasses import dataclass
from functools import lru_cache
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.assertions import AssertionFailureError
from sparkraft.security.bearer_client import OAuthBearerClient
from sparkraft.security.sasl import OAUTHBEARER
from sparkraft.security.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.client.token_requests import TokenRequest

REFRESH_FACTOR: Final = 0.8
"""The default of Kafka's sasl.login.refresh.window.factor."""

ANSWER_BYTES_MAX: Final = 1 << 20
ENDPOINTS_MAX: Final = 64
"""Endpoints whose token is kept; a process has one or a few."""

HEADERS: Final = {
    "Accept": "application/json",
    "Cache-Control": "no-cache",
    "Content-Type": "application/x-www-form-urlencoded",
}

_USELESS: Final = frozenset(
    {400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 413, 414, 415, 501, 505}
)
"""Kafka's `HttpJwtRetriever.UNRETRYABLE_HTTP_CODES`."""
_SUCCESSES: Final = frozenset({200, 201})
_TOKEN = re.compile(r"[-_~+/.a-zA-Z0-9]+=*", re.ASCII)
_ERROR = re.compile(r"[a-zA-Z0-9_.-]{1,60}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEndpoint:
    """The source of tokens, and how to ask for one.

    Attributes:
        url: `http:` or `https:`.
        request: authenticates the client.
        connect_timeout_ms: the longest wait for a connection.
        read_timeout_ms: the longest wait for each part of an answer.
        retry_ms: the first wait after a failure; it doubles.
        retry_ms_max: after that time no request is sent again.
    """

    url: str
    request: TokenRequest
    connect_timeout_ms: int = 10_000
    read_timeout_ms: int = 10_000
    retry_ms: int = 100
    retry_ms_max: int = 10_000


@dataclass(frozen=True, slots=True)
class TokenEndpointLogin:
    """Credentials of a token endpoint."""

    endpoint: TokenEndpoint
    mechanism: str = OAUTHBEARER

    @property
    def blocks(self) -> bool:
        """It may have to request a token."""
        return True

    def client(self, nonce: str, host: str) -> OAuthBearerClient:
        """Begin an exchange.

        Raises:
            KafkaError: SASL_AUTHENTICATION_FAILED without a token.
        """
        return OAuthBearerClient(_tokens_of(self.endpoint).current())


class UselessError(ValueError):
    """A failure that another request cannot change."""


class Tokens:
    """The token of an endpoint, shared by threads."""

    def __init__(
        self,
        endpoint: TokenEndpoint,
        *,
        wall: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Request nothing yet. `wall` and `sleep` are in seconds."""
        self._endpoint = endpoint
        self._wall = wall
        self._sleep = sleep
        self._lock = threading.Lock()
        self._token: Secret | None = None
        self._refresh_at = 0.0
        self._expires_at = 0.0

    def current(self) -> Secret:
        """A token that has not expired; blocks while one is requested.

        Raises:
            KafkaError: SASL_AUTHENTICATION_FAILED if there is none.
        """
        with self._lock:
            if self._token is not None and self._wall() < self._refresh_at:
                return self._token
            try:
                self._take(self._request())
            except (OSError, HTTPException, ValueError) as error:
                if self._token is None or self._wall() >= self._expires_at:
                    raise KafkaError(
                        ErrorCode.SASL_AUTHENTICATION_FAILED,
                        f"no token from {self._endpoint.url}: {_reason(error)}",
                    ) from None
            assert self._token is not None
            return self._token

    def _take(self, token: str) -> None:
        now = self._wall()
        self._token = Secret(token)
        self._expires_at = expires_at = _expiry(token)
        self._refresh_at = now + (expires_at - now) * REFRESH_FACTOR

    def _request(self) -> str:
        """Request a token, again after failures that may pass."""
        begun = self._wall()
        wait_s = self._endpoint.retry_ms / 1000
        while True:
            try:
                return post(self._endpoint, int(self._wall()))
            except (UselessError, AssertionFailureError):
                raise
            except (OSError, HTTPException, ValueError):
                left_s = begun + self._endpoint.retry_ms_max / 1000 - self._wall()
                if left_s <= 0 or wait_s <= 0:
                    raise
                self._sleep(min(wait_s, left_s))
                wait_s *= 2


_tokens_of = lru_cache(ENDPOINTS_MAX)(Tokens)


def post(endpoint: TokenEndpoint, now_s: int) -> str:
    """Request a token once; `now_s` is the wall-clock time.

    Raises:
        UselessError: the endpoint refuses the request.
        AssertionFailureError: the request needs an assertion, which cannot be made or read.
        OSError, HTTPException, ValueError: it does not answer, or not with a token.
    """
    body = endpoint.request.body(now_s).encode()
    headers = HEADERS | endpoint.request.headers()
    parts = urlsplit(endpoint.url)
    host, timeout = parts.hostname or "", endpoint.connect_timeout_ms / 1000
    connection: HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        connection = HTTPSConnection(host, parts.port, timeout=timeout, context=context)
    else:
        connection = HTTPConnection(host, parts.port, timeout=timeout)
    try:
        connection.connect()
        connection.sock.settimeout(endpoint.read_timeout_ms / 1000)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", path, body=body, headers=headers)
        answer = connection.getresponse()
        content = answer.read(ANSWER_BYTES_MAX + 1)
        return _token_in(answer.status, content)
    finally:
        connection.close()


def _token_in(status: int, content: bytes) -> str:
    if len(content) > ANSWER_BYTES_MAX:
        raise ValueError("the response is too long")
    if status not in _SUCCESSES:
        kind = UselessError if status in _USELESS else ValueError
        raise kind(f"the response has status {status}{_error_in(content)}")
    found = _parsed(content)
    for name in ("access_token", "id_token"):
        token = found.get(name)
        if isinstance(token, str) and token.strip():
            if _TOKEN.fullmatch(token.strip()) is None:
                break
            return token.strip()
    raise UselessError("the response has no access token")


def _error_in(content: bytes) -> str:
    """The code of an error (RFC 6749, 5.2), if it is one: other text may be anything."""
    try:
        error = _parsed(content).get("error")
    except ValueError:
        return ""
    return f" ({error})" if isinstance(error, str) and _ERROR.fullmatch(error) else ""


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError("the response is not JSON") from None
    if not isinstance(found, dict):
        raise ValueError("the response is not an object")  # noqa: TRY004 (it is not our caller's)
    return found


def _expiry(token: str) -> float:
    """The time at which a JWT expires; brokers verify the rest of it.

    Raises:
        UselessError: it is not a JWT with the claim `exp`.
    """
    try:
        payload = token.split(".")[1]
        claims = _parsed(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError, OverflowError):
        raise UselessError("the token is not a JWT that expires") from None


def _reason(error: Exception) -> str:
    """A text without anything that was received."""
    if isinstance(error, HTTPException):
        return "the response is not HTTP"
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return str(error)
