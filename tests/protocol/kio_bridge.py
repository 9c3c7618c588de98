"""Our messages as entities of `kio`, the oracle whose bytes ours must equal.

Fields are paired by position: both sides follow the order of Kafka's schemas. kio has richer
types (enums, datetimes), which narrow what can be compared; `limits` says by how much.
"""

import datetime
import functools
import io
from collections.abc import Callable
from dataclasses import fields
from pkgutil import resolve_name
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial._introspect import classify_field, is_optional

from sparkraft.protocol.declare import Field, Message

_KIND_OF_NAME = {"Request": "request", "Response": "response", "Header": "header"}

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LAST_DATETIME_MS = 2**31 * 1000
"""kio reads datetimes through a float, which is exact to the millisecond up to 2038."""
_TIMEDELTA_I64_MS_MAX = 10**14


def kio_class(cls: type[Message], version: int) -> Any:
    """kio's class for a message that has an API key, or for one of its loose schemas."""
    name = cls.__name__
    kind = next((k for suffix, k in _KIND_OF_NAME.items() if name.endswith(suffix)), "data")
    if kind in ("request", "response"):
        schema = api_key_map[cls.SCHEMA.key]
    else:
        snake = "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")
        schema = snake
    entities = schema_name_map[schema][version]
    path = next(path for entity, path in entities.items() if entity.name == kind)
    return resolve_name(path)


@functools.cache
def pairs(cls: type[Message], entity: Any, version: int) -> list[tuple[Field, Any]]:
    """Our fields of the version beside kio's."""
    ours = [field for field in cls.SCHEMA.fields if version in field.versions]
    theirs = fields(entity)
    assert len(ours) == len(theirs), (cls, version, ours, theirs)
    return list(zip(ours, theirs, strict=True))


def limits(cls: type[Message], entity: Any, version: int) -> dict[tuple[str, str], Any]:
    """Strategies for the fields in which kio can hold less than the wire."""
    found: dict[tuple[str, str], Any] = {}
    for ours, theirs in pairs(cls, entity, version):
        kind = theirs.metadata.get("kafka_type", "")
        if kind in _LIMITS:
            found[cls.__name__, ours.name] = _LIMITS[kind]
            if kind == "datetime_i64" and is_optional(theirs):
                found[cls.__name__, ours.name] = st.one_of(st.just(-1), _LIMITS[kind])
        if ours.kind in ("struct", "array") and not isinstance(ours.element, str):
            found |= limits(ours.struct, classify_field(theirs).type_, version)
    return found


_LIMITS: dict[str, st.SearchStrategy[int]] = {
    "error_code": st.sampled_from(sorted(code.value for code in KioErrorCode)),
    "timedelta_i32": st.integers(-(2**31), 2**31 - 1),
    "timedelta_i64": st.integers(-_TIMEDELTA_I64_MS_MAX, _TIMEDELTA_I64_MS_MAX),
    "datetime_i64": st.integers(0, _LAST_DATETIME_MS),
}


def to_kio(message: Message, entity: Any, version: int) -> Any:
    """The entity that says the same as `message`."""
    values = {}
    for ours, theirs in pairs(type(message), entity, version):
        values[theirs.name] = _convert(ours, theirs, getattr(message, ours.name), version)
    return entity(**values)


def _convert(ours: Field, theirs: Any, value: Any, version: int) -> Any:
    if value is None:
        return None
    inner = classify_field(theirs).type_
    if ours.kind == "struct":
        return to_kio(value, inner, version)
    if ours.kind == "array" and not isinstance(ours.element, str):
        return tuple(to_kio(each, inner, version) for each in value)
    convert = _CONVERTERS.get(theirs.metadata["kafka_type"], lambda plain: plain)
    if ours.kind == "array":
        return tuple(convert(each) for each in value)
    return convert(value)


def _datetime(value: int) -> datetime.datetime | None:
    return None if value == -1 else _EPOCH + datetime.timedelta(milliseconds=value)


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "error_code": KioErrorCode,
    "timedelta_i32": lambda value: datetime.timedelta(milliseconds=value),
    "timedelta_i64": lambda value: datetime.timedelta(milliseconds=value),
    "datetime_i64": _datetime,
    "uuid": lambda value: None if not any(value) else UUID(bytes=bytes(value)),
}


def kio_bytes(entity: Any) -> bytes:
    """What kio writes."""
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def kio_entity(entity: Any, data: bytes) -> Any:
    """What kio reads."""
    value, size = entity_reader(entity)(data, 0)
    assert size == len(data)
    return value
