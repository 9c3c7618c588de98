"""Access control lists and delegation tokens, which migrations copy (KIP-866).

/kafka-acl/TYPE/NAME, /kafka-acl-extended/prefixed/TYPE/NAME    version 1
/kafka-acl-changes/acl_changes_N                                TYPE:NAME, no JSON
/kafka-acl-extended-changes/acl_changes_N                       version 1
/delegation_token/tokens/ID                                     versions 1 to 3
/delegation_token/token_changes/token_change_N                  the token's id, no JSON
"""

from typing import NamedTuple

from sparkraft.zookeeper.znodes.json_form import LONG_MAX, Fields, ZnodeError, encode

LITERAL_ACLS = "/kafka-acl"
PREFIXED_ACLS = "/kafka-acl-extended/prefixed"
TOKENS = "/delegation_token/tokens"

_TOKEN_VERSION = 3


class AclEntry(NamedTuple):
    """One entry of the list of a resource, in Kafka's words."""

    principal: str
    permission_type: str
    host: str
    operation: str


class ChangedResource(NamedTuple):
    """A resource whose list changed."""

    type: str
    name: str
    pattern_type: str = "LITERAL"


class Token(NamedTuple):
    """A delegation token; names are URL-encoded, times in milliseconds since 1970."""

    id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued: int
    expires: int
    expires_at_most: int


def encode_acl(entries: list[AclEntry]) -> bytes:
    named = [
        {
            "principal": entry.principal,
            "permissionType": entry.permission_type,
            "host": entry.host,
            "operation": entry.operation,
        }
        for entry in entries
    ]
    return encode({"acls": named, "version": 1})


def decode_acl(path: str, data: bytes) -> list[AclEntry]:
    """Decode the entries of a resource; none without data (`AclEntry.fromBytes`)."""
    if not data:
        return []
    fields = Fields.decode(path, data)
    fields.check_version(1, 1)
    names = ("principal", "permissionType", "host", "operation")
    return [AclEntry(*map(each.text, names)) for each in fields.objects("acls")]


def encode_acl_change(resource: ChangedResource) -> bytes:
    """Encode a notification; one of a literal name is plain text."""
    if resource.pattern_type == "LITERAL":
        return f"{resource.type}:{resource.name}".encode()
    return encode(
        {
            "version": 1,
            "resourceType": resource.type,
            "name": resource.name,
            "patternType": resource.pattern_type,
        }
    )


def decode_acl_change(path: str, data: bytes) -> ChangedResource:
    """Decode the notification of a literal name."""
    kind, colon, name = data.decode(errors="replace").partition(":")
    if not colon:
        raise ZnodeError(path, f"expected TYPE:NAME, got {kind[:60]!r}")
    return ChangedResource(kind, name)


def decode_extended_acl_change(path: str, data: bytes) -> ChangedResource:
    """Decode the notification of a pattern."""
    fields = Fields.decode(path, data)
    fields.check_version(0, 1)
    return ChangedResource(*map(fields.text, ("resourceType", "name", "patternType")))


def encode_token(token: Token) -> bytes:
    return encode(
        {
            "issueTimestamp": token.issued,
            "renewers": token.renewers,
            "tokenRequester": token.requester,
            "tokenId": token.id,
            "owner": token.owner,
            "expiryTimestamp": token.expires,
            "maxTimestamp": token.expires_at_most,
            "version": _TOKEN_VERSION,
        }
    )


def decode_token(path: str, data: bytes) -> Token:
    fields = Fields.decode(path, data)
    version = fields.check_version(1, _TOKEN_VERSION)
    owner = fields.text("owner")
    return Token(
        id=fields.text("tokenId"),
        owner=owner,
        requester=fields.text("tokenRequester") if version >= _TOKEN_VERSION else owner,
        renewers=fields.texts("renewers"),
        issued=fields.integer("issueTimestamp", maximum=LONG_MAX),
        expires=fields.integer("expiryTimestamp", maximum=LONG_MAX),
        expires_at_most=fields.integer("maxTimestamp", maximum=LONG_MAX),
    )
