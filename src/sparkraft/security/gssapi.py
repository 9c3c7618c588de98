"""SASL/GSSAPI: Kerberos, both sides (RFC 4752).

    client   the tokens of a security context (RFC 2743)   server   its own, the last may be empty
                                                                    wrap(layers u8 | size u24)
             wrap(layer u8 | size u24 | authorization id)           empty

As in Kafka, the only layer is 1: authentication, and messages as they are. The server ignores the
authorization id: the user is always that of the authenticated principal. Sessions do not end with
the ticket, as `connections.max.reauth.ms` decides.

The steps of a context wait for files and, on the client, for the network: run them in a thread.

Not here: contexts, keys and tickets (`sparkraft.kerberos`).
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

from sparkraft.security.kerberos_names import PrincipalError, ShortNames
from sparkraft.security.sasl import SaslError

_NO_LAYER = bytes([1, 0, 0, 0])
"""The layer of authentication only; without another one, the size is 0."""

_WILDCARD_USER = "*"


class GssContext(Protocol):
    """One side of a security context.

    Each method may raise `SaslError`.
    """

    @property
    def is_complete(self) -> bool:
        """Whether both sides are authenticated; the last token may still have to be sent."""
        ...

    @property
    def client(self) -> str:
        """The client's principal, when the context is complete."""
        ...

    def step(self, token: bytes | None) -> bytes:
        """Take a token of the other side, None at the start of a client; return the next one."""
        ...

    def wrap(self, message: bytes) -> bytes:
        """Protect a message against changes."""
        ...

    def unwrap(self, token: bytes) -> bytes:
        """The message that the other side protected."""
        ...


class _Stage(Enum):
    CONTEXT = auto()
    """Tokens of the context are exchanged."""
    LAYERS = auto()
    """It is complete: the server offers its layers next."""
    CHOICE = auto()
    """The client chooses one next."""
    END = auto()
    """It has chosen."""


class GssapiServer:
    """The server's side."""

    blocks = True

    def __init__(self, begin: Callable[[], GssContext], names: ShortNames) -> None:
        """Begin a context with the first token; `names` gives the users of principals."""
        self._begin = begin
        self._names = names
        self._context: GssContext | None = None
        self._stage = _Stage.CONTEXT
        self.user = ""
        self.expires_at_ms: int | None = None
        self.token_authenticated = False

    def respond(self, token: bytes) -> bytes:
        """Take a token of the context, the empty one after it, or the choice of a layer."""
        if self._context is None:
            self._context = self._begin()
        context = self._context
        if self._stage is _Stage.CONTEXT:
            answer = context.step(token)
            if context.is_complete:
                self._stage = _Stage.LAYERS
            if answer or self._stage is _Stage.CONTEXT:
                return answer
            token = b""
        if self._stage is _Stage.LAYERS:
            if token:
                raise SaslError("a token after the security context was complete")
            self._stage = _Stage.CHOICE
            return context.wrap(_NO_LAYER)
        self._choose(context, token)
        return b""

    def _choose(self, context: GssContext, token: bytes) -> None:
        choice = context.unwrap(token)
        if len(choice) < len(_NO_LAYER) or choice[0] != _NO_LAYER[0]:
            raise SaslError("the client chose a security layer that was not offered")
        try:
            user = self._names.user_of(context.client)
        except PrincipalError as error:
            raise SaslError(str(error)) from None
        if not user or user == _WILDCARD_USER:
            raise SaslError(f"the principal {context.client!r} has the user name {user!r}")
        self._stage, self.user = _Stage.END, user


class GssapiClient:
    """The client's side."""

    def __init__(self, context: GssContext) -> None:
        self._context = context
        self._stage = _Stage.CONTEXT

    def first(self) -> bytes:
        """Return the first token of the context."""
        return self._step(None)

    def respond(self, token: bytes) -> bytes | None:
        """Take a token of the context, the offer of layers, or the empty response at the end."""
        if self._stage is _Stage.CONTEXT:
            return self._step(token)
        if self._stage is _Stage.END:
            return None
        offer = self._context.unwrap(token)
        if len(offer) != len(_NO_LAYER) or not offer[0] & _NO_LAYER[0]:
            raise SaslError("the server requires a security layer, which Kafka does not have")
        self._stage = _Stage.END
        return self._context.wrap(_NO_LAYER)

    def _step(self, token: bytes | None) -> bytes:
        answer = self._context.step(token)
        if self._context.is_complete:
            self._stage = _Stage.CHOICE
        return answer
