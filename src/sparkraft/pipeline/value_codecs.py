"""Avro, Protobuf and JSON Schema alike: the columns of a schema, and its values to and from them.

A codec is made of the schema of the pipeline's columns. It reads values that were written with the
same schema or another one, and gives a reason if those of another one do not fit.

    framed value = 0 (1 byte), id of the schema (4), of Protobuf the place of the message, the value

The place of a Protobuf message is the number of its indexes, and the index of the message among
those of its file, then of its outer message; all in zigzag encoding. The first one has a single 0.

Not here: which schema a value has (`registered_values`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa

from sparkraft.pipeline import (
    avro_columns,
    avro_encode,
    avro_values,
    json_schema_columns,
    json_schema_encode,
    json_schema_values,
    protobuf_columns,
    protobuf_encode,
    protobuf_values,
)
from sparkraft.pipeline.value_cursor import Cursor
from sparkraft.schemas import avro_schema, json_schema
from sparkraft.schemas.errors import SchemaError
from sparkraft.schemas.protobuf_schema import parse_protobuf
from sparkraft.schemas.protobuf_value import INDEXES_MAX
from sparkraft.schemas.registry import HEADER_BYTES, RegisteredSchema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparkraft.pipeline.value_cursor import Ints
    from sparkraft.schemas.protobuf_schema import ProtobufSchema

Decode = Callable[["pa.Array[Any]"], "tuple[pa.Array[Any], list[str | None]]"]
"""Values without nulls to a column, and for each damaged one the reason."""

KINDS: Final[Mapping[str, str]] = {"avro": "AVRO", "protobuf": "PROTOBUF", "json_schema": "JSON"}
"""The names of formats in registries."""

TITLES: Final[Mapping[str, str]] = {
    "avro": "Avro",
    "protobuf": "Protobuf",
    "json_schema": "JSON",
}
"""The names of formats in messages."""


class Codec(Protocol):
    """A schema whose values are columns."""

    @property
    def kind(self) -> pa.DataType:
        """The type of the column."""
        ...

    @property
    def fields(self) -> tuple[str, ...] | None:
        """The names of the columns of a value; None if it is a single one."""
        ...

    def decoder(self, written: RegisteredSchema | None) -> Decode:
        """How to decode values.

        Args:
            written: the schema that they were written with, and whose id they begin with; None for
                bare values of the codec's own.

        Raises:
            SchemaError: such values cannot be read as those of the codec.
        """
        ...

    def encode(self, values: pa.Array[Any], frame: bytes) -> pa.Array[Any]:
        """Values, each after its frame.

        Args:
            values: none is null.
            frame: the zero byte and the id; empty for bare values.

        Raises:
            SpecError: the schema cannot have a value.
        """
        ...


def codec_of(form: str, schema: RegisteredSchema, message: str = "") -> Codec:
    """The codec of a schema.

    Args:
        form: the format, one of `value_formats.FORMATS`.
        schema: its text and those that it refers to.
        message: of Protobuf; empty for the first one.

    Raises:
        SchemaError: the schema is invalid, or has no columns.
    """
    if form == "avro":
        return AvroCodec(schema)
    if form == "protobuf":
        return ProtobufCodec(schema, message)
    return JsonSchemaCodec(schema)


def schema_for(form: str, columns: pa.Schema, name: str) -> str:
    """The text of a schema for columns.

    Raises:
        SchemaError: the format has no type for a column.
    """
    makers = {
        "avro": avro_columns.schema_of,
        "protobuf": protobuf_columns.schema_for,
        "json_schema": json_schema_columns.schema_for,
    }
    return makers[form](columns, name)


class AvroCodec:
    """Avro."""

    def __init__(self, schema: RegisteredSchema) -> None:
        self._type = _avro_type(schema)
        self.kind: pa.DataType = avro_columns.arrow_type(self._type)

    @property
    def fields(self) -> tuple[str, ...] | None:
        """See `Codec`."""
        if not isinstance(self._type, avro_schema.RecordType):
            return None
        return tuple(each.name for each in self._type.fields)

    def decoder(self, written: RegisteredSchema | None) -> Decode:
        """See `Codec`."""
        own = self._type if written is None else _avro_type(written)
        plan = avro_values.plan_of(own, self._type)
        skipped = HEADER_BYTES if written else 0
        return lambda values: avro_values.decode(values, plan, skipped=skipped)

    def encode(self, values: pa.Array[Any], frame: bytes) -> pa.Array[Any]:
        """See `Codec`."""
        return avro_encode.encode(values, self._type, head=frame)


def _avro_type(schema: RegisteredSchema) -> avro_schema.Type:
    return avro_schema.parse(schema.text, known=[text for _, text in schema.references])


class ProtobufCodec:
    """Protobuf."""

    def __init__(self, schema: RegisteredSchema, message: str) -> None:
        parsed = _protobuf_schema(schema)
        name = parsed.message_named(message)
        self._shape = protobuf_columns.shape_of(parsed, name)
        self._message = protobuf_values.Message(self._shape)
        self._indexes = parsed.place_of(name)
        self.kind: pa.DataType = protobuf_columns.arrow_type(self._shape)
        if not pa.types.is_struct(self.kind):
            raise SchemaError(f"{name} is a single value to a pipeline, not a message with fields")

    @property
    def fields(self) -> tuple[str, ...] | None:
        """See `Codec`."""
        return tuple(each.name for each in self._shape.fields)

    def decoder(self, written: RegisteredSchema | None) -> Decode:
        """See `Codec`."""
        schema = None if written is None else _protobuf_schema(written)

        def decode(values: pa.Array[Any]) -> tuple[pa.Array[Any], list[str | None]]:
            cursor = Cursor.of(values, HEADER_BYTES if schema else 0)
            if schema is not None:
                self._check_messages(cursor, schema)
            found = self._message.read(cursor)
            return found, [cursor.reasons[each] or None for each in cursor.reason]

        return decode

    def _check_messages(self, cursor: Cursor, schema: ProtobufSchema) -> None:
        """Read the places of messages; those of other messages are damaged."""
        for indexes, rows in _message_places(cursor):
            reason = self._misfit(schema, indexes)
            if reason:
                cursor.damage(rows, reason)

    def _misfit(self, schema: ProtobufSchema, indexes: Sequence[int]) -> str | None:
        try:
            name = schema.message_at(indexes)
        except SchemaError as error:
            return str(error)
        own = self._shape.name
        if name.rpartition(".")[2] != own.rpartition(".")[2]:
            return f"the value is {name}, not {own}"
        return protobuf_columns.misfit(self._shape, schema, name)

    def encode(self, values: pa.Array[Any], frame: bytes) -> pa.Array[Any]:
        """See `Codec`."""
        head = frame + message_place(self._indexes) if frame else b""
        return protobuf_encode.encode(values, self._shape, head=head)


def _protobuf_schema(schema: RegisteredSchema) -> ProtobufSchema:
    return parse_protobuf(schema.text, imported=schema.references)


def message_place(indexes: Sequence[int]) -> bytes:
    """The place of a message after the id of its schema."""
    if list(indexes) == [0]:
        return b"\0"
    found = bytearray()
    for number in (len(indexes), *indexes):
        left = number << 1
        while left >= 1 << 7:
            found.append(left & 0x7F | 1 << 7)
            left >>= 7
        found.append(left)
    return bytes(found)


def _message_places(cursor: Cursor) -> list[tuple[tuple[int, ...], Ints]]:
    """Read the places of messages; the rows of each."""
    place = "the place of its message"
    rows = np.arange(len(cursor.at))
    counts = cursor.longs(rows, place)
    wrong = (counts < 0) | (counts > INDEXES_MAX)
    cursor.damage(rows[wrong], f"a message has more than {INDEXES_MAX} indexes")
    found: list[tuple[tuple[int, ...], Ints]] = []
    for count in np.unique(counts[~wrong]):
        chosen = cursor.sound(rows[counts == count])
        if count == 0:
            found.append(((0,), chosen))
            continue
        path = np.stack([cursor.longs(chosen, place) for _ in range(count)], axis=1)
        paths, numbers = np.unique(path, axis=0, return_inverse=True)
        for number, each in enumerate(paths):
            whole = cursor.sound(chosen[numbers.reshape(-1) == number])
            found.append((tuple(each.tolist()), whole))
    return found


class JsonSchemaCodec:
    """JSON Schema."""

    def __init__(self, schema: RegisteredSchema) -> None:
        self._type = json_schema.parse_json_schema(schema.text, references=schema.references)
        self.kind: pa.DataType = json_schema_columns.arrow_type(self._type)

    @property
    def fields(self) -> tuple[str, ...] | None:
        """See `Codec`."""
        if not isinstance(self._type, json_schema.JsonObject):
            return None
        return tuple(each.name for each in self._type.properties)

    def decoder(self, written: RegisteredSchema | None) -> Decode:
        """See `Codec`; a value fits by its own types, whatever schema it was written with."""
        skipped = HEADER_BYTES if written else 0
        return lambda values: json_schema_values.decode(values, self._type, skipped=skipped)

    def encode(self, values: pa.Array[Any], frame: bytes) -> pa.Array[Any]:
        """See `Codec`."""
        return json_schema_encode.encode(values, self._type, head=frame)
