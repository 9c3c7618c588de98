"""SASL/PLAIN: `[authzid] NUL user NUL password`, one token and an empty response (RFC 4616).

Behavior as in Kafka's `PlainSaslServer`: an authorization id must be empty or equal the user. The
users of a listener are the options `user_NAME="PASSWORD"` of its login module.
"""

from collections.abc import Mapping

from sparkraft.security.jaas import LoginModule
from sparkraft.security.sasl import SaslError
from sparkraft.security.secret import Secret

_USER_PREFIX = "user_"

_NO_USER = Secret("no password matches an unknown user")
"""Compared for unknown users, so that they take as long as a wrong password."""

WILDCARD_USER = "*"
"""`User:*` stands for all users in access control lists, so logins with this name fail."""


def plain_users(module: LoginModule) -> dict[str, Secret]:
    """The users of a server's login module, by name."""
    return {
        name.removeprefix(_USER_PREFIX): password
        for name, password in module.options.items()
        if name.startswith(_USER_PREFIX)
    }


class PlainServer:
    """The server's side."""

    blocks = False

    def __init__(self, users: Mapping[str, Secret]) -> None:
        self._users = users
        self.user = ""
        self.expires_at_ms: int | None = None
        self.token_authenticated = False

    def respond(self, token: bytes) -> bytes:
        """Check the only token."""
        try:
            parts = token.decode().split("\0", 3)
        except UnicodeDecodeError:
            raise SaslError("the token is not UTF-8") from None
        if len(parts) != 3:  # noqa: PLR2004 (authorization id, user, password)
            count = len(parts)
            raise SaslError(
                f"Invalid SASL/PLAIN response: expected 3 tokens, got {count}", public=True
            )
        authorization_id, user, password = parts
        for name, value in (("username", user), ("password", password)):
            if not value:
                raise SaslError(f"Authentication failed: {name} not specified", public=True)
        known = self._users.get(user)
        matches = (known or _NO_USER).matches(password)
        if known is None or not matches or user == WILDCARD_USER:
            raise SaslError("Authentication failed: Invalid username or password", public=True)
        if authorization_id not in {"", user}:
            raise SaslError(
                "Authentication failed: Client requested an authorization id that is different "
                "from username",
                public=True,
            )
        self.user = user
        return b""


class PlainClient:
    """The client's side."""

    def __init__(self, user: str, password: Secret) -> None:
        self._user = user
        self._password = password

    def first(self) -> bytes:
        """Return the only token."""
        return f"\0{self._user}\0{self._password.reveal()}".encode()

    def respond(self, token: bytes) -> bytes | None:
        """Take the empty response."""
        return None
