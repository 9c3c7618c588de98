"""Delegation tokens as Kafka's `DelegationTokenManagerZk` stores them; the HMAC is never stored.

Principals are URL-encoded as a whole, colon included (`Sanitizer`).
"""

from urllib.parse import unquote

from sparkraft.metadata.image import DelegationToken
from sparkraft.zookeeper.znodes.entities import sanitized
from sparkraft.zookeeper.znodes.security import Token, decode_token, encode_token


def decode_delegation_token(path: str, data: bytes) -> DelegationToken:
    """The token in a znode.

    Raises:
        ZnodeError: malformed.
    """
    token = decode_token(path, data)
    return DelegationToken(
        owner=unquote(token.owner),
        requester=unquote(token.requester),
        renewers=tuple(map(unquote, token.renewers)),
        issue_timestamp=token.issued,
        max_timestamp=token.expires_at_most,
        expiration_timestamp=token.expires,
        token_id=token.id,
    )


def encode_delegation_token(token: DelegationToken) -> bytes:
    """The data of a token's znode."""
    return encode_token(
        Token(
            id=token.token_id,
            owner=sanitized(token.owner),
            requester=sanitized(token.requester),
            renewers=tuple(map(sanitized, token.renewers)),
            issued=token.issue_timestamp,
            expires=token.expiration_timestamp,
            expires_at_most=token.max_timestamp,
        )
    )
