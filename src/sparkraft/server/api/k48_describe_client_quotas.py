"""DescribeClientQuotas: v0-1. Which quotas are set? (KIP-546)

Behaviour:
    * Filters by entity type: 0 exact name, 1 the type's default, 2 any name. `strict`: no other
      types. An entity type named twice, or none, or a match type unknown: INVALID_REQUEST; a type
      other than user, client-id and ip: UNSUPPORTED_VERSION.
Versions: v1 flexible.    Not done: -
"""

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ordering import in_order
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import encode_parts
from sparkraft.protocol.messages.k48_describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from sparkraft.security.acls import AclOperation
from sparkraft.security.quotas import CLIENT_ID, IP, USER
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.encoded_array import EncodedArray
from sparkraft.server.api.registry import Api, RequestContext, Steps

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices

_EXACT, _DEFAULT, _ANY = 0, 1, 2
_MATCH_TYPES = {
    _EXACT: "MATCH_TYPE_EXACT",
    _DEFAULT: "MATCH_TYPE_DEFAULT",
    _ANY: "MATCH_TYPE_SPECIFIED",
}
_TYPES = frozenset({USER, CLIENT_ID, IP})

UNITS_OF_ENTITY = 2
"""Units of work of an entity that is compared, described and encoded."""


def handle(
    broker: "BrokerServices", context: RequestContext, request: DescribeClientQuotasRequest
) -> Steps:
    """Answer the entities that match every component, in slices."""
    wanted = _checked(request)
    version = context.api_version
    quotas = broker.image.quotas
    entries = EncodedArray(DescribeClientQuotasResponse, version)
    ordered = yield from in_order((repr(entity), entity) for entity in quotas)
    for _, entity in ordered:
        yield UNITS_OF_ENTITY
        if _matches(dict(entity), wanted, strict=request.strict):
            entries.add(
                EntryData(
                    entity=[EntityData(entity_type=t, entity_name=n) for t, n in entity],
                    values=[
                        ValueData(key=k, value=quotas[entity][k]) for k in sorted(quotas[entity])
                    ],
                )
            )
    return encode_parts(DescribeClientQuotasResponse(entries=entries.encoded()), version)


def _checked(request: DescribeClientQuotasRequest) -> dict[str, tuple[int, str | None]]:
    wanted: dict[str, tuple[int, str | None]] = {}
    for part in request.components:
        kind = part.entity_type
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in wanted:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in _TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        _check_match(part)
        wanted[kind] = (part.match_type, part.match)
    if IP in wanted and len(wanted) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )
    return wanted


def _check_match(part: ComponentData) -> None:
    if part.match_type not in _MATCH_TYPES:
        raise _invalid(f"Unknown match type {part.match_type}")
    name = _MATCH_TYPES[part.match_type]
    if part.match_type == _EXACT and part.match is None:
        raise _invalid(f"Request specified {name}, but set match string to null.")
    if part.match_type != _EXACT and part.match is not None:
        raise _invalid(f"Request specified {name}, but also specified a match string.")


def _invalid(detail: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, detail)


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
