"""Requests for an access token: Kafka's `HttpRequestFormatter`s.

client secret       RFC 6749, 4.4   Authorization: Basic base64(client id:client secret)
grant_type=client_credentials[&scope=]
client assertion    RFC 7523, 2.2   client_assertion_type=&client_assertion=JWT
&grant_type=client_credentials[&client_id=][&scope=]
assertion as grant  RFC 7523, 2.1   grant_type=urn:ietf:params:oauth:grant-type:jwt-bearer
&assertion=JWT[&scope=]
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import quote_plus

if TYPE_CHECKING:
    from sparkraft.client.assertions import Assertions
    from sparkraft.security.secret import Secret

GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class TokenRequest(Protocol):
    """Makes the form of each request."""

    def headers(self) -> dict[str, str]:
        """The headers that authenticate the client, if headers do."""
        ...

    def body(self, now_s: int) -> str:
        """The form; may read files. `now_s` is the wall-clock time.

        Raises:
            AssertionFailureError: it needs an assertion, which cannot be made or read.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRequest:
    """The client has a secret (`ClientSecretRequestFormatter`).

    Attributes:
        client_id: of the account.
        client_secret: its password.
        scope: requested; None: the endpoint's default.
        url_encodes: whether id, secret and scope are URL-encoded (RFC 6749, 2.3.1).
    """

    client_id: str
    client_secret: Secret
    scope: str | None = None
    url_encodes: bool = False

    def headers(self) -> dict[str, str]:
        """See `TokenRequest`."""
        account = f"{self._encoded(self.client_id)}:{self._encoded(self.client_secret.reveal())}"
        return {"Authorization": f"Basic {b64encode(account.encode()).decode()}"}

    def body(self, now_s: int) -> str:
        """See `TokenRequest`."""
        scope = "" if self.scope is None else f"&scope={self._encoded(self.scope)}"
        return f"grant_type=client_credentials{scope}"

    def _encoded(self, text: str) -> str:
        return quote_plus(text) if self.url_encodes else text


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertionRequest:
    """The client proves its identity by an assertion (`ClientAssertionRequestFormatter`).

    Attributes:
        assertions: their source.
        client_id: None: it is in the assertion.
        scope: see `SecretRequest`.
    """

    assertions: Assertions
    client_id: str | None = None
    scope: str | None = None

    def headers(self) -> dict[str, str]:
        """See `TokenRequest`."""
        return {}

    def body(self, now_s: int) -> str:
        """See `TokenRequest`."""
        return _form(
            ("client_assertion_type", ASSERTION_TYPE),
            ("client_assertion", self.assertions.next(now_s)),
            ("grant_type", "client_credentials"),
            ("client_id", self.client_id),
            ("scope", self.scope),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BearerRequest:
    """An assertion is exchanged for a token (`JwtBearerRequestFormatter`).

    The attributes are those of `AssertionRequest`.
    """

    assertions: Assertions
    scope: str | None = None

    def headers(self) -> dict[str, str]:
        """See `TokenRequest`."""
        return {}

    def body(self, now_s: int) -> str:
        """See `TokenRequest`."""
        assertion = self.assertions.next(now_s)
        return _form(("grant_type", GRANT), ("assertion", assertion), ("scope", self.scope))


def _form(*fields: tuple[str, str | None]) -> str:
    return "&".join(f"{name}={quote_plus(value)}" for name, value in fields if value)
