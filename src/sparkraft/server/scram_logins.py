"""The server's side of SCRAM on this node: credentials come from the image.

A client can also log in by a delegation token of the image (KIP-48), whose credential derives from
the key of this node. A token that has expired does not exist, even if the controller has not
removed it yet: in Kafka such a login succeeds, and the first request then closes the connection.
"""

from base64 import b64encode
from functools import cached_property
from typing import TYPE_CHECKING

from sparkraft.security.delegation_token import TokenCredentials, TokenKey
from sparkraft.security.plain import WILDCARD_USER
from sparkraft.security.principal import USER
from sparkraft.security.scram import ScramMechanism, ScramServer, TokenLogin

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.base.env import Clock, Entropy
    from sparkraft.metadata.image import ClusterImage

NONCE_BYTES = 24
"""Random bytes of a nonce; Kafka's have 130 bits."""


class ScramLogins:
    """Begins exchanges. A user removed from the image cannot log in; its connections stay open."""

    def __init__(
        self,
        image: "Callable[[], ClusterImage]",
        entropy: "Entropy",
        clock: "Clock",
        token_key: TokenKey | None = None,
    ) -> None:
        """Begin.

        Args:
            image: the metadata that this node has replayed.
            entropy: of nonces.
            clock: the wall clock, for the expiry of tokens.
            token_key: of delegation tokens; None: no client can log in by a token.
        """
        self._image = image
        self._entropy = entropy
        self._clock = clock
        self._tokens = None if token_key is None else TokenCredentials(token_key)

    @cached_property
    def _unknown_user_key(self) -> bytes:
        return self._entropy.random_bytes(32)

    def begin(self, mechanism: ScramMechanism) -> ScramServer:
        """The server's side of an exchange."""
        return ScramServer(
            mechanism,
            lambda user: self._image().scram.get((mechanism.type, user)),
            nonce=b64encode(self._entropy.random_bytes(NONCE_BYTES)).decode(),
            unknown_user_key=self._unknown_user_key,
            lookup_token=lambda token_id: self._token_login(mechanism, token_id),
        )

    def _token_login(self, mechanism: ScramMechanism, token_id: str) -> TokenLogin | None:
        token = self._image().delegation_tokens.get(token_id)
        if self._tokens is None or token is None or token.has_expired(self._clock.wall_ms()):
            return None
        kind, _, owner = token.owner.partition(":")
        if kind != USER or owner in {"", WILDCARD_USER}:
            return None  # Kafka would authenticate the owner Group:bob as User:bob
        credential = self._tokens.credential(mechanism, token_id)
        return TokenLogin(credential, owner, token.expiration_timestamp)
