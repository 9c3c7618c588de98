"""Messages as JSON, in the shape that Kafka's tools print and read.

Field names are Kafka's; bytes are base64, Uuids their 22 characters; a tagged field appears only if
it differs from its default. Record batches are shown by their size (KIP-673).
"""

from base64 import b64encode
from typing import Any

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Field, Message
from sparkraft.protocol.errors import UnsupportedFieldError


def to_json(message: Message, version: int) -> dict[str, Any]:
    """`message` in `version` as what `json.dumps` takes."""
    made: dict[str, Any] = {}
    for field in message.SCHEMA.fields:
        value = getattr(message, field.name)
        if version not in field.versions:
            if not field.ignorable and not field.is_default(value):
                raise UnsupportedFieldError(f"version {version} has no such field", path=field.name)
        elif field.kind == "records":
            made[f"{field.json_name}SizeInBytes"] = _size(value)
        elif field.tag < 0 or not field.is_default(value):
            made[field.json_name] = _value(field.kind, field, value, version)
    return made


def _size(records: Any) -> int:
    if records is None:
        return 0
    if isinstance(records, bytes | bytearray | memoryview):
        return len(records)
    return sum(len(piece) for piece in records)


def _value(kind: str, field: Field, value: Any, version: int) -> Any:
    if value is None:
        return None
    if kind == "array":
        element = field.element if isinstance(field.element, str) else "struct"
        return [_value(element, field, each, version) for each in value]
    if kind == "struct":
        return to_json(value, version)
    if kind == "uuid":
        return str(Uuid(value))
    if kind == "blob":
        return b64encode(value).decode()
    return value
