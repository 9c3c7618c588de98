"""The session of a connection: on whose behalf its requests run.

    Connection ──────── Session        one per accepted socket
    Envelope ────────── Session        the client's, rebuilt by the controller (KIP-590)
    the node itself ─── NodeSession    requests of this process to its own controller

Every request has one, whichever way it comes; handlers see it as `context.session`.
"""

from sparkraft.security.authorizer import AllowAll, Authorizer
from sparkraft.security.principal import ANONYMOUS, KafkaPrincipal
from sparkraft.security.protocols import SecurityProtocol


class Session:
    """The sender of a connection's requests, its address, and its limits.

    Attributes:
        principal: the authenticated user.
        listener_name: the listener the client connected to.
        security_protocol: of that listener.
        client_host: the client's IP address as text.
        authorizer: decides on this session's requests.
        expires_at_ms: monotonic time after which no request may be handled; None: never (KIP-368).
        is_forwarded: an Envelope brought the request: `security_protocol` is that of its broker.
        is_muted: a quota holds the client up; only `mute` and `unmute` assign it.
        is_unhindered: the session does not expire, and no quota holds it up: only its authorizer
            can refuse a request. Produce's fast path reads this one attribute.
        cache_tag: precedes keys of caches, so that sessions of two principals share no entry.
    """

    __slots__ = (
        "authorizer",
        "cache_tag",
        "client_host",
        "expires_at_ms",
        "is_forwarded",
        "is_muted",
        "is_unhindered",
        "listener_name",
        "principal",
        "security_protocol",
    )

    def __init__(  # noqa: PLR0913 (one for each attribute)
        self,
        principal: KafkaPrincipal,
        *,
        listener_name: str,
        security_protocol: SecurityProtocol,
        client_host: str,
        authorizer: Authorizer,
        expires_at_ms: int | None = None,
        is_forwarded: bool = False,
    ) -> None:
        self.principal = principal
        self.listener_name = listener_name
        self.security_protocol = security_protocol
        self.client_host = client_host
        self.authorizer = authorizer
        self.expires_at_ms = expires_at_ms
        self.is_forwarded = is_forwarded
        self.is_muted = False
        self.cache_tag = f"{principal}\n".encode()
        self._refresh()

    def mute(self) -> None:
        """Hold the client up: a quota was exceeded."""
        self.is_muted = True
        self._refresh()

    def unmute(self) -> None:
        """Handle the client's requests again."""
        self.is_muted = False
        self._refresh()

    def _refresh(self) -> None:
        self.is_unhindered = self.expires_at_ms is None and not self.is_muted


class NodeSession(Session):
    """A request that this process makes to itself: allowed everything.

    Only code of this node makes one. Nothing read from a socket does, Envelope included.
    """

    __slots__ = ()

    def __init__(self, listener_name: str) -> None:
        super().__init__(
            ANONYMOUS,
            listener_name=listener_name,
            security_protocol=SecurityProtocol.PLAINTEXT,
            client_host="127.0.0.1",
            authorizer=AllowAll(),
        )
