"""The server's side of SCRAM on this node: credentials come from the image."""

from base64 import b64encode
from functools import cached_property
from typing import TYPE_CHECKING

from sparkraft.security.scram import ScramMechanism, ScramServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.base.env import Entropy
    from sparkraft.metadata.image import ClusterImage

NONCE_BYTES = 24
"""Random bytes of a nonce; Kafka's have 130 bits."""


class ScramLogins:
    """Begins exchanges. A user removed from the image cannot log in; its connections stay open."""

    def __init__(self, image: "Callable[[], ClusterImage]", entropy: "Entropy") -> None:
        self._image = image
        self._entropy = entropy

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
        )
