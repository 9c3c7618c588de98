"""Values and keys of records as Spark columns: by the schemas of Confluent's registries, or bare.

A framed value begins with a zero byte and the id of its schema in four bytes. It is read with that
schema as a value of the pipeline's own schema, which alone determines the columns.

Spark's Python workers decode them, in Arrow batches. A value that cannot be read has a reason in
place of a value; if the registry does not answer, the task fails.

Not here: the formats (`value_codecs`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from sparkraft.pipeline.array_parts import scattered, taken
from sparkraft.pipeline.file_fields import SpecError
from sparkraft.pipeline.table_fit import TOMBSTONE
from sparkraft.pipeline.value_codecs import KINDS, TITLES, codec_of, schema_for
from sparkraft.schemas.errors import SchemaError
from sparkraft.schemas.registry import HEADER_BYTES, RegisteredSchema, Registry, schema_by_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import Column, DataFrame

    from sparkraft.pipeline.value_codecs import Codec, Decode
    from sparkraft.pipeline.value_cursor import Ints
    from sparkraft.pipeline.value_formats import ValueFormat

VALUE: Final = "v"

_DECODERS_MAX: Final = 1000
"""Decoders for writers' schemas that a process keeps for a column."""


class ValueReader:
    """Decodes the values of a column; tasks get a copy.

    Args:
        form: the format; with a registry that knows the schemas of values, or without one, if all
            values are bare and of the pipeline's schema.
        schema: of the columns.
        reason: the name of the column for the reason of a damaged value.
    """

    def __init__(self, form: ValueFormat, schema: RegisteredSchema, reason: str) -> None:
        self._form = form
        self._schema = schema
        self._reason = reason
        self._codec: Codec = codec_of(form.kind, schema, form.message)
        self._fields = [pa.field(VALUE, self._codec.kind), pa.field(reason, pa.string())]
        self._decoders: dict[int, Decode | str] = {}

    @property
    def type(self) -> pa.DataType:
        """The type of the column that `read` returns: the value, and the reason."""
        return pa.struct(self._fields)

    def __reduce__(self) -> tuple[Any, ...]:
        return ValueReader, (self._form, self._schema, self._reason)

    def read(self, values: pa.Array[Any]) -> pa.Array[Any]:
        """Decode values; null for a null."""
        values = values.cast(pa.binary())
        present = np.flatnonzero(~values.is_null().to_numpy(zero_copy_only=False))
        parts: list[tuple[Any, Any]] = []
        reasons = np.full(len(values), None, object)
        for number, rows in self._by_schema(values, present, reasons):
            decode = self._decoder(number)
            if isinstance(decode, str):
                reasons[rows] = decode
                continue
            found, wrong = decode(values if len(rows) == len(values) else taken(values, rows))
            reasons[rows] = wrong
            sound = np.array([each is None for each in wrong], np.bool_)
            if sound.all():
                parts.append((rows, found))
            else:
                parts.append((rows[sound], found.filter(pa.array(sound))))
        value = scattered(len(values), parts, self._codec.kind)
        return pa.StructArray.from_arrays(
            [value, pa.array(reasons, pa.string())], fields=self._fields
        )

    def _by_schema(self, values: Any, rows: Ints, reasons: Any) -> Iterator[tuple[int, Ints]]:
        """The rows of each schema; a reason for those that name none."""
        if not self._form.registry:
            yield 0, rows
            return
        edges = np.frombuffer(values.buffers()[1], np.int32)
        edges = edges[values.offset : values.offset + len(values) + 1].astype(np.int64)
        data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
        start, size = edges[:-1][rows], np.diff(edges)[rows]
        framed = size >= HEADER_BYTES
        framed[framed] = data[start[framed]] == 0
        reasons[rows[~framed]] = "the value does not begin with the id of a schema"
        rows, start = rows[framed], start[framed]
        numbers = np.zeros(len(rows), np.int64)
        for byte in range(1, HEADER_BYTES):
            numbers = numbers << 8 | data[start + byte]
        for number in np.unique(numbers):
            yield int(number), rows[numbers == number]

    def _decoder(self, number: int) -> Decode | str:
        """The decoder for a schema, or why its values cannot be read."""
        known = self._decoders.get(number)
        if known is not None:
            return known
        written = None
        if self._form.registry:
            written = schema_by_id(self._form.registry, number)
            if written is None:
                # It may be registered later.
                return f"the registry has no schema {number}"
        found: Decode | str
        try:
            if written is not None:
                check_kind(written, self._form, "the schema")
            found = self._codec.decoder(written)
        except SchemaError as error:
            found = f"schema {number}: {error}"
        if len(self._decoders) >= _DECODERS_MAX:
            self._decoders.clear()
        self._decoders[number] = found
        return found


class ValueWriter:
    """Encodes rows; tasks get a copy.

    Args:
        form: the format.
        schema: of the rows.
        frame: the zero byte and the id of the schema; empty for bare values.
    """

    def __init__(self, form: ValueFormat, schema: RegisteredSchema, frame: bytes) -> None:
        self._form = form
        self._schema = schema
        self._frame = frame
        self._codec = codec_of(form.kind, schema, form.message)

    def __reduce__(self) -> tuple[Any, ...]:
        return ValueWriter, (self._form, self._schema, self._frame)

    def write(self, rows: Any) -> Any:
        """A value for each row; null for a null."""
        if not rows.null_count:
            return self._codec.encode(rows, self._frame)
        present = np.flatnonzero(rows.is_valid().to_numpy(zero_copy_only=False))
        found = self._codec.encode(taken(rows, present), self._frame)
        return scattered(len(rows), [(present, found)], pa.binary())

    def write_fitting(self, rows: Any) -> Any:
        """A struct for each row: its value `v`, or the `reason` if the schema refuses it."""
        reasons: list[str | None] = []
        values: list[Any] = list(self._parts(rows, reasons))
        fields: list[Any] = [pa.field("v", pa.binary()), pa.field("reason", pa.string())]
        value = pa.concat_arrays(values) if values else pa.array([], pa.binary())
        return pa.StructArray.from_arrays([value, pa.array(reasons, pa.string())], fields=fields)

    def _parts(self, rows: Any, reasons: list[str | None]) -> Iterator[Any]:
        """The values in parts, by cutting rows in halves until a part has no wrong one."""
        try:
            found = self.write(rows)
        except SpecError as error:
            if len(rows) == 1:
                reasons.append(str(error))
                yield pa.nulls(1, pa.binary())
                return
        else:
            reasons += [None] * len(rows)
            yield found
            return
        half = len(rows) // 2
        for start, end in ((0, half), (half, len(rows))):
            yield from self._parts(taken(rows, np.arange(start, end)), reasons)


def encoded_column(
    rows: DataFrame, names: Sequence[str], form: ValueFormat, *, with_reasons: bool = False
) -> Column:
    """Columns as one of encoded values; the schema is registered if the file names a registry.

    Args:
        rows: a batch.
        names: the columns to write.
        form: of the sink's values or keys.
        with_reasons: whether a row that the schema refuses fails the batch, or has a reason: then
            the column is a struct of the value `v` and the `reason`.

    Raises:
        SpecError: the schema does not fit the columns.
        SchemaError: the schema is invalid, or the registry does not answer.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.pandas.types import to_arrow_schema

    columns = to_arrow_schema(rows.select(*names).schema, timezone="UTC")
    text = form.schema or schema_for(form.kind, columns, form.subject or "rows")
    schema = RegisteredSchema(kind=KINDS[form.kind], text=text, references=form.imports)
    row = _row(codec_of(form.kind, schema, form.message), names, form)
    if TOMBSTONE in rows.columns and TOMBSTONE not in names and not form.is_key:
        row = f.when(~f.coalesce(f.col(TOMBSTONE), f.lit(False)), row)  # noqa: FBT003
    frame = b""
    if form.registry:
        number = Registry(form.registry).register(form.subject, schema)
        frame = b"\0" + number.to_bytes(HEADER_BYTES - 1, "big")
    writer = ValueWriter(form, schema, frame)

    def encoded(rows: pa.Array) -> pa.Array:  # type: ignore[type-arg]
        return (writer.write_fitting if with_reasons else writer.write)(rows)  # type: ignore[no-any-return]

    make: Any = arrow_udf
    kind = "v BINARY, reason STRING" if with_reasons else "binary"
    made: Callable[[Column], Column] = make(encoded, kind)
    return made(row)


def _row(codec: Codec, names: Sequence[str], form: ValueFormat) -> Column:
    """The column to encode: all columns in the order of the schema, or the only one."""
    from pyspark.sql import functions as f

    title = TITLES[form.kind]
    if codec.fields is None:
        if not form.is_key:
            raise SpecError(
                f"the {title} schema of a sink's values must have the columns as fields"
            )
        if len(names) > 1:
            raise SpecError(f"the {title} schema of keys has one value, and keys {len(names)}")
        return f.col(names[0])
    alone = sorted({*codec.fields} ^ {*names})
    if alone:
        raise SpecError(f"{alone[0]} is a field of the {title} schema or a column, but not both")
    return f.struct(*codec.fields)


def reader_of(form: ValueFormat, reason: str) -> ValueReader:
    """The reader of a source's values or keys; asks the registry if the file has no schema.

    Raises:
        SchemaError: the schema is invalid or missing, or the registry does not answer.
    """
    if form.schema:
        kind = KINDS[form.kind]
        schema = RegisteredSchema(kind=kind, text=form.schema, references=form.imports)
    else:
        schema = Registry(form.registry).latest(form.subject)
        check_kind(schema, form, f"subject {form.subject}")
    return ValueReader(form, schema, reason)


def check_sink(form: ValueFormat) -> None:
    """Check the schema of a sink, if the file has one, and whether its registry answers.

    Raises:
        SchemaError: the schema is invalid, or the registry does not answer.
    """
    if form.schema:
        kind = KINDS[form.kind]
        schema = RegisteredSchema(kind=kind, text=form.schema, references=form.imports)
        codec_of(form.kind, schema, form.message)
    if form.registry:
        Registry(form.registry).ask(form.subject)


def check_kind(schema: RegisteredSchema, form: ValueFormat, what: str) -> None:
    """Refuse a schema of another format; the message names it as `what`.

    Raises:
        SchemaError: it is of another format.
    """
    wanted = KINDS[form.kind]
    if schema.kind != wanted:
        raise SchemaError(f"{what} of the registry is of type {schema.kind}, not {wanted}")


def decoded_column(value: Column, reader: ValueReader) -> Column:
    """A column with the decoded value and the reason of a damaged one."""
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.pandas.types import from_arrow_type

    def decoded(values: pa.Array) -> pa.Array:  # type: ignore[type-arg]
        return reader.read(values)

    kind: Any = from_arrow_type(reader.type, prefer_timestamp_ntz=True)
    make: Any = arrow_udf
    made: Callable[[Column], Column] = make(decoded, kind)
    return made(value)
