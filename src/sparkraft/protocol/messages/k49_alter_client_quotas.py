"""AlterClientQuotas (key 49): v0-1, flexible from v1.

Structs that Kafka names alike in request and response bear the name of their message in front.
"""

from sparkraft.protocol.declare import Message, array, boolean, float64, int16, int32, string


class EntityData(Message):
    """Part of an entity: `AlterClientQuotasRequest.entries.entity`."""

    entity_type: str = string()
    entity_name: str | None = string(nullable=True)


class OpData(Message):
    """A quota to set or remove: `AlterClientQuotasRequest.entries.ops`."""

    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class AlterClientQuotasRequestEntryData(Message):
    """An entity and its quotas: `AlterClientQuotasRequest.entries`."""

    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


class AlterClientQuotasRequest(Message, key=49, versions="0-1", flexible="1+"):
    """Sets and removes quotas of users, client ids and addresses (KIP-546)."""

    entries: list[AlterClientQuotasRequestEntryData] = array(AlterClientQuotasRequestEntryData)
    validate_only: bool = boolean()


class AlterClientQuotasResponseEntryData(Message):
    """An entity and its quotas: `AlterClientQuotasResponse.entries`."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    entity: list[EntityData] = array(EntityData)


class AlterClientQuotasResponse(Message, key=49, versions="0-1", flexible="1+"):
    """An error for each entity."""

    throttle_time_ms: int = int32()
    entries: list[AlterClientQuotasResponseEntryData] = array(AlterClientQuotasResponseEntryData)
