"""DescribeClientQuotas (key 48): v0-1, flexible from v1."""

from sparkraft.protocol.declare import Message, array, boolean, float64, int8, int16, int32, string


class ComponentData(Message):
    """One part of the filter: `DescribeClientQuotasRequest.components`."""

    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable=True)


class DescribeClientQuotasRequest(Message, key=48, versions="0-1", flexible="1+"):
    """Asks for quotas whose entities match (KIP-546)."""

    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


class EntityData(Message):
    """Part of an entity: `DescribeClientQuotasResponse.entries.entity`."""

    entity_type: str = string()
    entity_name: str | None = string(nullable=True)


class ValueData(Message):
    """A quota: `DescribeClientQuotasResponse.entries.values`."""

    key: str = string()
    value: float = float64()


class EntryData(Message):
    """An entity and its quotas: `DescribeClientQuotasResponse.entries`."""

    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


class DescribeClientQuotasResponse(Message, key=48, versions="0-1", flexible="1+"):
    """Entities with their quotas."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    entries: list[EntryData] | None = array(EntryData, nullable=True)
