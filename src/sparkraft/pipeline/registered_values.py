"""Avro values of records as Spark columns: with the framing of Confluent's registries, or bare.

A framed value is a zero byte, the id of its schema in four bytes, and the Avro value. It is read
with that schema as a value of the pipeline's own schema, which alone determines the columns.

Spark's Python workers decode them, in Arrow batches. A value that cannot be read has a reason in
place of a value; if the registry does not answer, the task fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from sparkraft.pipeline.avro_columns import arrow_type, schema_of
from sparkraft.pipeline.avro_encode import encode
from sparkraft.pipeline.avro_schema import AvroSchemaError, RecordType, name_of, parse
from sparkraft.pipeline.avro_values import decode, plan_of, scattered
from sparkraft.pipeline.schema_registry import Registry, schema_by_id
from sparkraft.pipeline.spec import SpecError
from sparkraft.pipeline.table_fit import TOMBSTONE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame

    from sparkraft.pipeline.avro_values import Plan
    from sparkraft.pipeline.spec import AvroValues, Source

VALUE: Final = "v"

_HEADER_BYTES: Final = 5
_PLANS_MAX: Final = 1000
"""Plans for writers' schemas that a process keeps for a column."""


class AvroReader:
    """Decodes the values of a column; tasks get a copy.

    Args:
        schema: the texts of the pipeline's schema and of those that it refers to.
        registry: the URL of the registry that knows the schemas of values; empty if all values are
            bare and of the pipeline's schema.
        reason: the name of the column for the reason of a damaged value.
    """

    def __init__(self, schema: tuple[str, ...], registry: str, reason: str) -> None:
        self._schema = schema
        self._registry = registry
        self._reason = reason
        self._type = parse(schema[-1], known=schema[:-1])
        self._kind = arrow_type(self._type)
        self._fields = [pa.field(VALUE, self._kind), pa.field(reason, pa.string())]
        self._plans: dict[int, Plan | str] = {}

    @property
    def type(self) -> pa.DataType:
        """The type of the column that `read` returns: the value, and the reason."""
        return pa.struct(self._fields)

    def __getstate__(self) -> tuple[tuple[str, ...], str, str]:
        return self._schema, self._registry, self._reason

    def __setstate__(self, state: tuple[tuple[str, ...], str, str]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def read(self, values: pa.Array[Any]) -> pa.Array[Any]:
        """Decode values; null for a null."""
        values = values.cast(pa.binary())
        present = np.flatnonzero(~values.is_null().to_numpy(zero_copy_only=False))
        parts: list[tuple[Any, Any]] = []
        reasons = np.full(len(values), None, object)
        for number, rows in self._by_schema(values, present, reasons):
            plan = self._plan(number)
            if isinstance(plan, str):
                reasons[rows] = plan
                continue
            chosen = values if len(rows) == len(values) else _taken(values, rows)
            found, wrong = decode(chosen, plan, skipped=_HEADER_BYTES if self._registry else 0)
            reasons[rows] = wrong
            sound = np.array([each is None for each in wrong], np.bool_)
            if sound.all():
                parts.append((rows, found))
            else:
                parts.append((rows[sound], found.filter(pa.array(sound))))
        value = scattered(len(values), parts, self._kind)
        return pa.StructArray.from_arrays(
            [value, pa.array(reasons, pa.string())], fields=self._fields
        )

    def _by_schema(self, values: Any, rows: Any, reasons: Any) -> Any:
        """The rows of each schema; a reason for those that name none."""
        if not self._registry:
            yield 0, rows
            return
        edges = np.frombuffer(values.buffers()[1], np.int32)
        edges = edges[values.offset : values.offset + len(values) + 1].astype(np.int64)
        data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
        start, size = edges[:-1][rows], np.diff(edges)[rows]
        framed = size >= _HEADER_BYTES
        framed[framed] = data[start[framed]] == 0
        reasons[rows[~framed]] = "the value does not begin with the id of a schema"
        rows, start = rows[framed], start[framed]
        numbers = np.zeros(len(rows), np.int64)
        for byte in range(1, _HEADER_BYTES):
            numbers = numbers << 8 | data[start + byte]
        for number in np.unique(numbers):
            yield int(number), rows[numbers == number]

    def _plan(self, number: int) -> Plan | str:
        """The plan for a schema, or why its values cannot be read."""
        known = self._plans.get(number)
        if known is not None:
            return known
        texts = schema_by_id(self._registry, number) if self._registry else self._schema
        if texts is None:
            # It may be registered later.
            return f"the registry has no schema {number}"
        found: Plan | str
        try:
            found = plan_of(parse(texts[-1], known=texts[:-1]), self._type)
        except AvroSchemaError as error:
            found = f"schema {number}: {error}"
        if len(self._plans) >= _PLANS_MAX:
            self._plans.clear()
        self._plans[number] = found
        return found


def _taken(values: Any, rows: Any) -> Any:
    return values.take(pa.array(rows))


class AvroWriter:
    """Encodes rows; tasks get a copy.

    Args:
        schema: of the rows, without references.
        head: written before each value.
    """

    def __init__(self, schema: str, head: bytes) -> None:
        self._schema = schema
        self._head = head
        self._type = parse(schema)

    def __reduce__(self) -> tuple[type[AvroWriter], tuple[str, bytes]]:
        return AvroWriter, (self._schema, self._head)

    def write(self, rows: Any) -> Any:
        """A value for each row; null for a null."""
        if not rows.null_count:
            return encode(rows, self._type, head=self._head)
        present = np.flatnonzero(rows.is_valid().to_numpy(zero_copy_only=False))
        found = encode(_taken(rows, present), self._type, head=self._head)
        return scattered(len(rows), [(present, found)], pa.binary())


def encoded_column(rows: DataFrame, names: Sequence[str], avro: AvroValues) -> Column:
    """Rows as Avro values; the schema is registered if the file names a registry.

    Args:
        rows: a batch.
        names: the columns to write.
        avro: of the sink.

    Raises:
        SpecError: the schema does not fit the columns, or the registry does not answer.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.pandas.types import to_arrow_schema

    columns = to_arrow_schema(rows.select(*names).schema, timezone="UTC")
    schema = avro.schema or schema_of(columns, avro.subject or "rows")
    read = parse(schema)
    if not isinstance(read, RecordType):
        raise SpecError(f"the Avro schema of a sink must be a record, not {name_of(read)}")
    wanted = [each.name for each in read.fields]
    alone = sorted({*wanted} ^ {*names})
    if alone:
        raise SpecError(f"{alone[0]} is a field of the Avro schema or a column, but not both")
    head = b""
    if avro.registry:
        number = Registry(avro.registry).register(avro.subject, schema)
        head = b"\0" + number.to_bytes(_HEADER_BYTES - 1, "big")
    writer = AvroWriter(schema, head)

    def avro_row(rows: pa.Array) -> pa.Array:  # type: ignore[type-arg]
        return writer.write(rows)  # type: ignore[no-any-return]

    make: Any = arrow_udf
    made: Callable[[Column], Column] = make(avro_row, "binary")
    row = f.struct(*wanted)
    if TOMBSTONE in rows.columns and TOMBSTONE not in names:
        row = f.when(~f.coalesce(f.col(TOMBSTONE), f.lit(False)), row)  # noqa: FBT003
    return made(row)


def reader_of(source: Source, reason: str) -> AvroReader:
    """The reader of a source's values; asks the registry for the schema if the file has none.

    Raises:
        SpecError: the schema is invalid or missing.
        RegistryError: the registry does not answer.
    """
    avro = source.avro
    assert avro is not None
    texts = (avro.schema,) if avro.schema else Registry(avro.registry).latest(avro.subject)
    return AvroReader(texts, avro.registry, reason)


def decoded_column(value: Column, reader: AvroReader) -> Column:
    """A column with the decoded value and the reason of a damaged one."""
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.pandas.types import from_arrow_type

    def avro_value(values: pa.Array) -> pa.Array:  # type: ignore[type-arg]
        return reader.read(values)

    kind: Any = from_arrow_type(reader.type, prefer_timestamp_ntz=True)
    make: Any = arrow_udf
    made: Callable[[Column], Column] = make(avro_value, kind)
    return made(value)
