"""Client quotas: set and removed (KIP-55, KIP-546, KIP-599, KIP-612).

An entity is a user, a client id, both, or an IP address; a null name is the default of its type.
The checks are those of Kafka's ClientQuotaControlManager, with two differences: values must be
finite, and ip entities must be addresses, since Kafka resolves host names on every node.
"""

import math
from collections.abc import Iterable, Mapping
from ipaddress import ip_address

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.controller.call import Call
from sparkraft.controller.decision import Decision, VersionedRecord, check_room
from sparkraft.controller.decision_context import DecisionContext
from sparkraft.protocol.messages import k49_alter_client_quotas as k49
from sparkraft.protocol.messages.metadata_records import ClientQuotaRecord, EntityData
from sparkraft.security.quotas import (
    CLIENT_ID,
    INTEGRAL_MAX,
    IP,
    IP_KEYS,
    USER,
    USER_AND_CLIENT_KEYS,
    QuotaEntity,
    quota_entity,
)

_FRACTION_MAX = 1e-6
"""Kafka's tolerance for values that must be whole numbers."""


def alter_client_quotas(
    context: DecisionContext, call: Call[k49.AlterClientQuotasRequest]
) -> Decision:
    """Decide an AlterClientQuotas request: one result for each entity, in their order."""
    request = call.request
    records: list[VersionedRecord] = []
    results: dict[QuotaEntity, k49.AlterClientQuotasResponseEntryData] = {}
    for entry in request.entries:
        entity = quota_entity((part.entity_type, part.entity_name) for part in entry.entity)
        is_repeated = entity in results
        result = results[entity] = k49.AlterClientQuotasResponseEntryData(
            error_message=None,
            entity=[k49.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        )
        try:
            _check_unique(entry, entity, is_repeated=is_repeated)
            _check_entity(entity)
            made = _records(context, entity, entry.ops)
            check_room(records, made)
            records += made
        except KafkaError as error:
            result.error_code = error.code
            result.error_message = error.detail
    return Decision(
        records=() if request.validate_only else tuple(records),
        response=k49.AlterClientQuotasResponse(entries=list(results.values())),
    )


def _check_unique(
    entry: k49.AlterClientQuotasRequestEntryData, entity: QuotaEntity, *, is_repeated: bool
) -> None:
    keys = [op.key for op in entry.ops]
    if is_repeated or len(set(keys)) != len(keys):
        parts = ", ".join(f"{kind}={name}" for kind, name in entity)
        raise _invalid(f"Ignoring duplicate entity ClientQuotaEntity(entries={{{parts}}})")


def _check_entity(entity: QuotaEntity) -> None:
    names = dict(entity)
    for kind, name in entity:
        if kind not in {USER, CLIENT_ID, IP}:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if not names:
        raise _invalid("Invalid empty client quota entity")
    if IP not in names:
        return
    if len(names) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity should"
            "not be combined with User or ClientId"
        )
    if not _is_address(names[IP]):
        raise _invalid(f"{names[IP]} is not a valid IP or resolvable host.")


def _is_address(name: str | None) -> bool:
    if name is None:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _records(
    context: DecisionContext, entity: QuotaEntity, ops: Iterable[k49.OpData]
) -> list[VersionedRecord]:
    """The records of one entity; a value that is set already needs none."""
    current: Mapping[str, float] = context.image.quotas.get(entity, {})
    made: list[VersionedRecord] = []
    for op in ops:
        if not op.remove:
            _check_value(entity, op.key, op.value)
        if current.get(op.key) == (None if op.remove else op.value):
            continue
        parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        record = ClientQuotaRecord(entity=parts, key=op.key, remove=op.remove)
        if not op.remove:
            record.value = op.value
        made.append((record, 0))
    return made


def _check_value(entity: QuotaEntity, key: str, value: float) -> None:
    keys = IP_KEYS if IP in dict(entity) else USER_AND_CLIENT_KEYS
    if key not in keys:
        raise _invalid(f"Invalid configuration key {key}")
    if not value > 0:  # also if it is not a number
        raise _invalid(f"Quota {key} must be greater than 0")
    largest = INTEGRAL_MAX.get(key)
    if largest is None:
        if math.isinf(value):
            raise _invalid(f"Quota {key} must be finite")
        return
    if value > largest:
        kind = "INT" if key in IP_KEYS else "LONG"
        raise _invalid(f"Proposed value for {key} is too large for a {kind}.")
    if value % 1.0 > _FRACTION_MAX:
        raise _invalid(f"{key} cannot be a fractional value.")


def _invalid(detail: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, detail)
