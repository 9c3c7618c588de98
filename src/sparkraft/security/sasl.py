"""The interface of SASL mechanisms: both sides of an exchange of tokens (RFC 4422).

A mechanism is a small state machine per connection, without I/O. The server's `respond` takes the
client's next token and returns its own; the client's takes the server's.

Not here: how tokens travel (`authenticator` on the server, `sparkraft.client.wire_exchange` in a
client).
"""

from typing import Protocol

PLAIN = "PLAIN"

OAUTHBEARER = "OAUTHBEARER"

GSSAPI = "GSSAPI"

PASSWORD_MECHANISMS = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512")
"""The mechanisms with a user name and a password."""

MECHANISMS = (*PASSWORD_MECHANISMS, OAUTHBEARER, GSSAPI)
"""The mechanisms of listeners and clients."""


class SaslError(Exception):
    """Authentication failed.

    Attributes:
        public_text: sent to the client; None: a general text, which reveals nothing about users.
        is_retriable: the same credentials may succeed soon: the connection closes without a
            response, which would make clients give up.
    """

    def __init__(
        self,
        reason: str,
        *,
        public: bool = False,
        public_text: str | None = None,
        is_retriable: bool = False,
    ) -> None:
        """Fail for `reason`, which is logged, and sent to the client if `public`."""
        super().__init__(reason)
        self.public_text = reason if public else public_text
        self.is_retriable = is_retriable


class SaslServer(Protocol):
    """The server's side of one exchange.

    Attributes:
        user: the authenticated user; "" until the exchange is complete.
        expires_at_ms: wall-clock time at which the credentials of `user` expire; None: they do not.
        token_authenticated: whether they are a delegation token's (KIP-48).
        blocks: whether `respond` waits for files or the network, so that it needs a thread.
    """

    @property
    def blocks(self) -> bool: ...

    user: str
    expires_at_ms: int | None
    token_authenticated: bool

    def respond(self, token: bytes) -> bytes:
        """Take the client's token; return the server's.

        Raises:
            SaslError: the credentials or the token are invalid; the exchange has ended.
        """
        ...


class SaslClient(Protocol):
    """The client's side of one exchange."""

    def first(self) -> bytes:
        """Return the first token."""
        ...

    def respond(self, token: bytes) -> bytes | None:
        """Take the server's token; return the next one, or None if the exchange is complete.

        Raises:
            SaslError: the server does not know the credentials, or sent an invalid token.
        """
        ...
