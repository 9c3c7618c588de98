"""The secrets of delegation tokens (KIP-48): all derive from one key, and none is stored.

    HMAC      HMAC-SHA512(delegation.token.secret.key, token id): the password of the token
    salt      of its SCRAM credential: derived from the same key, so that it is constant

A client logs in by SCRAM with the token's id as user, the HMAC in base64 as password, and the
extension `tokenauth=true`. It is then authenticated as the token's owner.

Not here: the tokens themselves (`metadata.image`) and who may change them
(`controller.delegation_tokens`).
"""

import hmac
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass

from sparkraft.security.scram import ITERATIONS_MIN, ScramMechanism, keys_of, salted_password
from sparkraft.security.secret import Secret

SECRET_KEY = "delegation.token.secret.key"
"""The config of the key; the same on every node. Unset or empty: there are no delegation tokens."""

_DIGEST = "sha512"
_SALT_BYTES = 20

CREDENTIALS_MAX = 10_000
"""Credentials kept for the next login, about 500 bytes each; each takes up to 5 ms to compute."""


REMOVED_MAX = 1_000
"""Removed tokens that an index keeps at least; the rest is removed once it is the larger part."""


class TokenKey:
    """`delegation.token.secret.key`."""

    __slots__ = ("_secret",)

    def __init__(self, secret: Secret) -> None:
        self._secret = secret

    def hmac_of(self, token_id: str) -> bytes:
        """The HMAC of a token, 64 bytes: enough to log in as the token's owner."""
        return self._digest(token_id)

    def salt_of(self, mechanism: ScramMechanism, token_id: str) -> bytes:
        """The salt of the token's credential; no token id begins with a space."""
        return self._digest(f" salt {mechanism.name} {token_id}")[:_SALT_BYTES]

    def _digest(self, text: str) -> bytes:
        return hmac.digest(self._secret.reveal().encode(), text.encode(), _DIGEST)


def token_key(secret: str | None) -> TokenKey | None:
    """The key with that value of `SECRET_KEY`; None if delegation tokens are off."""
    return TokenKey(Secret(secret)) if secret else None


@dataclass(frozen=True, slots=True, repr=False)
class TokenCredential:
    """The SCRAM credential of a token; see `scram.Credential`."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int = ITERATIONS_MIN


class TokenCredentials:
    """Computes SCRAM credentials of tokens at their first login, and keeps the latest.

    Kafka computes those of every token when it reads the metadata log: a second for 300 tokens.
    """

    def __init__(self, key: TokenKey, *, credentials_max: int = CREDENTIALS_MAX) -> None:
        self._key = key
        self._credentials_max = credentials_max
        self._known: OrderedDict[tuple[str, str], TokenCredential] = OrderedDict()

    def credential(self, mechanism: ScramMechanism, token_id: str) -> TokenCredential:
        """The credential of a token that exists."""
        place = mechanism.name, token_id
        known = self._known.get(place)
        if known is None:
            known = self._known[place] = self._computed(mechanism, token_id)
            if len(self._known) > self._credentials_max:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(place)
        return known

    def _computed(self, mechanism: ScramMechanism, token_id: str) -> TokenCredential:
        password = Secret(b64encode(self._key.hmac_of(token_id)).decode())
        salt = self._key.salt_of(mechanism, token_id)
        keys = keys_of(mechanism, salted_password(mechanism, password, salt, ITERATIONS_MIN))
        return TokenCredential(salt, keys.stored_key, keys.server_key)


class TokenIndex:
    """HMAC → token id, for requests that name a token by its HMAC.

    Entries of removed tokens may remain; callers look the id up in an image.
    """

    def __init__(self, key: TokenKey) -> None:
        self.key = key
        self._ids: dict[bytes, str] = {}
        self._known: set[str] = set()

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, token_id: str) -> None:
        """Find this token from now on: takes about 8 µs."""
        if token_id not in self._known:
            self._known.add(token_id)
            self._ids[self.key.hmac_of(token_id)] = token_id

    def replace(self, tokens: Collection[str]) -> None:
        """Find exactly the tokens with these ids."""
        self._forget_others(tokens)
        for token_id in tokens:
            self.add(token_id)

    def maybe_forget(self, tokens: Collection[str]) -> None:
        """Forget all but these tokens if most of the entries are of others."""
        if len(self._ids) > 2 * len(tokens) + REMOVED_MAX:
            self._forget_others(tokens)

    def _forget_others(self, tokens: Collection[str]) -> None:
        self._ids = {hmac: id_ for hmac, id_ in self._ids.items() if id_ in tokens}
        self._known = set(self._ids.values())

    def find(self, token_hmac: bytes) -> str | None:
        """The id of the token with that HMAC; None if none was added."""
        return self._ids.get(bytes(token_hmac))
