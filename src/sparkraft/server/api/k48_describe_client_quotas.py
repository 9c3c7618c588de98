"""DescribeClientQuotas: v0-1. Which quotas are set? (KIP-546)

Behaviour:
    * Filters by entity type: 0 exact name, 1 the type's default, 2 any name. `strict`: no other
      types. An entity type named twice, or none, or a match type unknown: INVALID_REQUEST; a type
      other than user, client-id and ip: UNSUPPORTED_VERSION.
    * Answers what the metadata log holds (quotas another node's tools may have written).
Versions: v1 flexible.    Not done: quotas are not enforced, and can't be set through this node.
"""

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k48_describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api, RequestContext

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices

_EXACT, _DEFAULT, _ANY = 0, 1, 2
_TYPES = frozenset({"user", "client-id", "ip"})


def handle(
    broker: "BrokerServices", context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Answer the entities that match every component."""
    wanted = _checked(request)
    response = DescribeClientQuotasResponse(entries=[])
    assert response.entries is not None
    quotas = broker.image.quotas
    for entity in sorted(quotas, key=repr):
        if _matches(dict(entity), wanted, strict=request.strict):
            response.entries.append(
                EntryData(
                    entity=[EntityData(entity_type=t, entity_name=n) for t, n in entity],
                    values=[
                        ValueData(key=k, value=quotas[entity][k]) for k in sorted(quotas[entity])
                    ],
                )
            )
    return response


def _checked(request: DescribeClientQuotasRequest) -> dict[str, tuple[int, str | None]]:
    wanted: dict[str, tuple[int, str | None]] = {}
    for part in request.components:
        if not part.entity_type or part.entity_type in wanted:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "an entity type is empty or stands twice in the filter"
            )
        if part.entity_type not in _TYPES:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Custom entity type '{part.entity_type}' not supported",
            )
        named = part.match is not None
        if part.match_type not in {_EXACT, _DEFAULT, _ANY} or named != (part.match_type == _EXACT):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"match type {part.match_type} is invalid")
        wanted[part.entity_type] = (part.match_type, part.match)
    if "ip" in wanted and len(wanted) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "an ip can't be joined with another entity")
    return wanted


def _matches(
    entity: dict[str, str | None], wanted: dict[str, tuple[int, str | None]], *, strict: bool
) -> bool:
    if strict and entity.keys() != wanted.keys():
        return False
    for entity_type, (match_type, name) in wanted.items():
        if entity_type not in entity:
            return False
        if match_type == _EXACT and entity[entity_type] != name:
            return False
        if match_type == _DEFAULT and entity[entity_type] is not None:
            return False
    return True


def refuse(_: type, request: Any, version: int, error: KafkaError) -> DescribeClientQuotasResponse:
    """The error, and null for the entries."""
    return DescribeClientQuotasResponse(
        error_code=error.code, error_message=error.detail or None, entries=None
    )


API = Api(
    key=ApiKey.DESCRIBE_CLIENT_QUOTAS,
    handle=handle,
    authorize=(on_cluster(AclOperation.DESCRIBE_CONFIGS),),
    refuse=refuse,
)
