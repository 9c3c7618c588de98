"""Values as columns: those that fit their schema, tombstones, and damaged ones.

Spark's own `from_json` returns nulls for a value that it cannot read, ignores everything after the
first object, and uses the first object of an array. A record is damaged here if its value is not
exactly one JSON object whose fields fit the schema, or is not UTF-8. A null value is a tombstone.

With `envelope = "debezium"`, a value is a change event, with or without Connect's schema around it.
The row is its `after`, or `before` if `op` is `d`. Then `tombstone` is true, and for a null value,
whose row is the record's key. An event with another `op`, or without its row, is damaged.

Values and keys that have a schema (Avro, Protobuf, JSON Schema) are decoded by `registered_values`,
which also finds the damaged ones. A record with a damaged key is damaged.

With `framing = "confluent"`, a value begins with a zero byte and the four bytes of a schema's id,
as Confluent's JSON Schema serializers write it. The registry is not asked: the file has the
columns.

Damaged records are counted, and collected as dead letters, by an observed metric: Spark merges no
projection or filter of the query past it. So each value is parsed once, and nothing that the
query filters out hides a damaged record.
"""

from __future__ import annotations

import base64
import json
import re
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final, cast

from sparkraft.pipeline.dead_letters import DeadLetter
from sparkraft.pipeline.registered_values import decoded_column, reader_of
from sparkraft.pipeline.spec import SpecError
from sparkraft.pipeline.table_fit import TOMBSTONE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from sparkraft.pipeline.spec import Source

READ: Final = "read"
DAMAGED: Final = "damaged"
BYTES: Final = "bytes"
LETTERS: Final = "letters"

COMPLAINT: Final = re.compile(
    r"\[source\.[a-z_.]+\]: the (?:value|key) of .+? leaves such records out"
)
"""The sentence about a damaged record, within the text of Spark's exception."""

_OBSERVED: Final = "sparkraft.json."
_PARSED: Final = "__sparkraft_parsed"
_PARSED_KEY: Final = "__sparkraft_parsed_key"
_KEY: Final = "__sparkraft_key"
_VALUE: Final = "__sparkraft_value"
_SIZE: Final = "__sparkraft_size"
_CORRUPT: Final = "_corrupt_record"
_KEY_DAMAGED: Final = "the value is null, and the key is not the JSON object of a row"
_DELETES: Final = "deletes"
_VALUES: Final = "values"
_VALUES_COUNT: Final = 2
"""A value, and the empty object that ends its array."""

_VALUE_BYTES_MAX: Final = (1 << 31) - 1
_FRAME: Final = "frame"
_FRAME_BYTES: Final = 5
_NOT_FRAMED: Final = "the value does not begin with the id of a schema"
_REASON: Final = "reason"
"""Of a damaged value or key with a schema; that of others is found later."""

_UPSERTS: Final = ("c", "r", "u")
"""Debezium's operations create, read (of a snapshot) and update."""


def observed(source_name: str) -> str:
    """The name of a source's metrics in Spark's progress: `READ`, `DAMAGED`, `BYTES`, `LETTERS`."""
    return _OBSERVED + source_name


def damaged_in(observed_metrics: Mapping[str, Mapping[str, Any] | None]) -> int:
    """The damaged records of all sources, from the metrics in Spark's progress."""
    ours = [each for name, each in observed_metrics.items() if name.startswith(_OBSERVED)]
    return sum(int((each or {}).get(DAMAGED) or 0) for each in ours)


def bytes_in(observed_metrics: Mapping[str, Mapping[str, Any] | None]) -> int | None:
    """The bytes of keys and values of all sources with a format; None without such a source."""
    found = [each for name, each in observed_metrics.items() if name.startswith(_OBSERVED)]
    return sum(int((each or {}).get(BYTES) or 0) for each in found) if found else None


def decoded(records: DataFrame, source: Source) -> DataFrame:
    """Replace `value` and `key` by columns of their formats, and add the column `tombstone`.

    A key without a format is text; a value without one stays bytes.

    Args:
        records: in the source's columns.
        source: with a format of values or keys. `on_error`: `stop` fails the query at a damaged
            record and names its offset; `drop` leaves damaged records out and counts them;
            `dead_letter` also collects them in the metrics.
    """
    from pyspark.sql import functions as f

    keeps = source.on_error == "dead_letter"
    parsed = _parsed(records, source, keeps_record=keeps)
    damaged = _is_damaged(source)
    counted = f.lit(1)
    if source.on_error == "stop":
        counted = f.raise_error(_complaint(source))
    metrics = [
        f.count(f.lit(1)).alias(READ),
        f.count(f.when(damaged, counted)).alias(DAMAGED),
        f.sum(_SIZE).alias(BYTES),
    ]
    if keeps:
        metrics.append(f.collect_list(f.when(damaged, _letter(source))).alias(LETTERS))
    kept = parsed.observe(observed(source.name), *metrics)
    if source.on_error != "stop":
        kept = kept.where(~damaged)
    others = [name for name in records.columns if name not in {"key", "value"}]
    value = _value(source).alias("value") if source.has_values else f.col("value")
    key = f.col(f"{_PARSED_KEY}.v").alias("key") if source.key_format else f.col("key")
    deleted = f.col(f"{_PARSED}.{_DELETES}") if source.is_envelope else f.col(TOMBSTONE)
    return kept.select(key, value, *others, deleted.alias(TOMBSTONE))


def damaged_records(records: DataFrame, source: Source) -> list[DeadLetter]:
    """The damaged records of a batch query, which has no metrics to collect them."""
    parsed = _parsed(records, source, keeps_record=True)
    rows = parsed.where(_is_damaged(source)).select(_letter(source).alias("letter")).collect()
    letters = sorted((row.letter for row in rows), key=lambda each: (each[0], each[1], each[2]))
    return [
        _as_letter(each.asDict(), _plain_bytes(each.key), _plain_bytes(each.value))
        for each in letters
    ]


def dead_letters(metrics: str) -> list[DeadLetter]:
    """The dead letters in the metrics of a batch, which are a JSON object; each record once.

    Spark adds the metrics of a task again if it repeats a stage.
    """
    read = json.loads(metrics)[LETTERS]
    letters = {(each["topic"], each["partition"], each["offset"]): each for each in read}
    found = [letters[each] for each in sorted(letters)]
    return [_as_letter(each, _decoded(each["key"]), _decoded(each["value"])) for each in found]


def _plain_bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _as_letter(read: Mapping[str, Any], key: bytes | None, value: bytes | None) -> DeadLetter:
    why = read.get(_REASON)
    if why is None:
        why = _KEY_DAMAGED if value is None else why_damaged(value, framed=_FRAME in read)
    return DeadLetter(
        read["topic"],
        read["partition"],
        read["offset"],
        read["timestamp"],
        key,
        value,
        why,
    )


def why_damaged(value: bytes, *, framed: bool = False) -> str:
    """A sentence about a value that is damaged."""
    if framed:
        if len(value) < _FRAME_BYTES or value[0]:
            return _NOT_FRAMED
        value = value[_FRAME_BYTES:]
    try:
        read = json.loads(value.decode())
    except UnicodeDecodeError as error:
        return f"the value is not UTF-8: byte {error.start} is invalid"
    except ValueError as error:
        return f"the value is not one JSON object: {error}"
    except RecursionError:
        return "the value has too many nested arrays and objects"
    if not isinstance(read, dict):
        return "the value is not a JSON object"
    return "a field of the value does not fit the schema"


def value_type(schema: str) -> StructType:
    """The type that a DDL text names; `SpecError` if it names none."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        return cast("StructType", StructType.fromDDL(schema))
    except PySparkException as error:
        why = (error.getMessage() or str(error)).strip().splitlines()[0]
        raise SpecError(f"[source.json] schema: {why}") from None


def _parsed(records: DataFrame, source: Source, *, keeps_record: bool) -> DataFrame:
    """Each record with its parsed value in one column, without the value's bytes.

    Every further operator copies the columns. With `keeps_record`, key and value are among them.
    """
    from pyspark.sql import functions as f

    key = f.col("key")
    others = [name for name in records.columns if name not in {"key", "value"}]
    record = [key.alias(_KEY), f.col("value").alias(_VALUE)] if keeps_record else []
    parsed = [
        decoded_column(key, reader_of(source.key_format, _CORRUPT)).alias(_PARSED_KEY)
        if source.key_format
        else key.cast("string").alias("key"),
        _parsed_column(source).alias(_PARSED) if source.has_values else f.col("value"),
    ]
    sizes = [f.coalesce(f.octet_length(each), f.lit(0)) for each in ("key", "value")]
    return records.select(
        *others,
        *record,
        (sizes[0] + sizes[1]).alias(_SIZE),
        # The row of a tombstone in an envelope can be damaged.
        (f.lit(False) if source.is_envelope else f.col("value").isNull()).alias(TOMBSTONE),  # noqa: FBT003
        *parsed,
    )


def _parsed_column(source: Source) -> Column:
    """The parsed value `v`, and the reason if it is damaged; or `_VALUES` (see `_parsed_value`)."""
    from pyspark.sql import functions as f

    if source.format:
        return decoded_column(f.col("value"), reader_of(source.format, _CORRUPT))
    row = value_type(source.json_schema or "")
    if source.is_envelope:
        return _row_of_event(row)
    return _parsed_value(_unframed() if source.is_framed else f.col("value"), row)


def _row_of_event(row: StructType) -> Column:
    """The row of a change event, and whether it deletes the row; null if the event is damaged."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructType

    event = StructType().add("before", row).add("after", row).add("op", StringType())
    value = _parsed_value(f.col("value"), StructType([*event.fields]).add("payload", event))
    key = _parsed_value(f.col("key"), StructType([*row.fields]).add("payload", row))
    known, given = f.get(value[_VALUES], 0), f.get(key[_VALUES], 0)
    named = f.struct(*(given[name].alias(name) for name in row.names))
    of_key = f.coalesce(given["payload"], named)
    # An object without a column of the row names no row.
    has_key = reduce(or_, (of_key[name].isNotNull() for name in row.names))

    def part(name: str) -> Column:
        return f.coalesce(known["payload"][name], known[name])

    op, is_tombstone = part("op"), f.col("value").isNull()
    found = (
        f.when(is_tombstone & _is_one(key) & has_key, of_key)
        .when(_is_one(value) & op.isin(*_UPSERTS), part("after"))
        .when(_is_one(value) & (op == "d"), part("before"))
    )
    deletes = is_tombstone | f.coalesce(op == "d", f.lit(False))  # noqa: FBT003
    return f.struct(
        found.alias("v"), deletes.alias(_DELETES), f.lit(None).cast("string").alias(_CORRUPT)
    )


def _unframed() -> Column:
    """The value without its frame; no UTF-8, and so damaged, if it has none."""
    from pyspark.sql import functions as f

    value = f.col("value")
    is_framed = (f.length(value) >= _FRAME_BYTES) & (f.substring(value, 1, 1) == f.lit(b"\0"))
    rest = f.substring(value, _FRAME_BYTES + 1, _VALUE_BYTES_MAX)
    return f.when(is_framed, rest).when(value.isNotNull(), f.lit(b"\xff"))


def _parsed_value(value: Column, kind: StructType) -> Column:
    """The value as the first of two in an array, so that anything after it counts.

    A text after the value is an error in the array, another value in it, or ends it. Null for a
    tombstone and for bytes that are not UTF-8.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, StringType, StructType

    whole = StructType().add(_VALUES, ArrayType(kind)).add(_CORRUPT, StringType())
    text = value.cast("string")
    text = f.concat(f.lit(f'{{"{_VALUES}":['), f.when(f.is_valid_utf8(text), text), f.lit(",{}]}"))
    # With options Spark reads all fields, also if the query needs only some of them.
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return f.from_json(text, whole, options)


def _is_one(parsed: Column) -> Column:
    """Whether a value that `_parsed_value` has parsed is exactly one object."""
    from pyspark.sql import functions as f

    values = parsed[_VALUES]
    is_alone = f.coalesce(f.size(values) == _VALUES_COUNT, f.lit(False))  # noqa: FBT003
    return is_alone & f.get(values, 0).isNotNull() & parsed[_CORRUPT].isNull()


def _is_plain(source: Source) -> bool:
    """Whether values are parsed by `_parsed_value` alone."""
    return source.json_schema is not None and not source.is_envelope


def _value(source: Source) -> Column:
    from pyspark.sql import functions as f

    if _is_plain(source):
        return f.get(f.col(f"{_PARSED}.{_VALUES}"), 0)
    return f.col(f"{_PARSED}.v")


def _is_damaged(source: Source) -> Column:
    from pyspark.sql import functions as f

    damaged = f.lit(False)  # noqa: FBT003
    if source.has_values:
        is_whole = f.col(f"{_PARSED}.v").isNotNull() & f.col(f"{_PARSED}.{_CORRUPT}").isNull()
        damaged = ~f.col(TOMBSTONE) & ~(_is_one(f.col(_PARSED)) if _is_plain(source) else is_whole)
    if source.key_format:
        damaged |= f.col(f"{_PARSED_KEY}.{_CORRUPT}").isNotNull()
    return damaged


def _reason(source: Source, of_key: str = "") -> Column | None:
    """The reason of a damaged key or value that has a schema; None for a source without any.

    Args:
        source: of the record.
        of_key: before the reason of a key.
    """
    from pyspark.sql import functions as f

    reasons = []
    if source.key_format:
        reasons.append(f.concat(f.lit(of_key), f.col(f"{_PARSED_KEY}.{_CORRUPT}")))
    if source.format:
        reasons.append(f.col(f"{_PARSED}.{_CORRUPT}"))
    return f.coalesce(*reasons) if reasons else None


def _letter(source: Source) -> Column:
    from pyspark.sql import functions as f

    timestamp = f.unix_millis("timestamp").alias("timestamp")
    record = f.col(_KEY).alias("key"), f.col(_VALUE).alias("value")
    more = []
    reason = _reason(source, of_key="the key: ")
    if reason is not None:
        more.append(reason.alias(_REASON))
    if source.is_framed:
        more.append(f.lit(_FRAME_BYTES).alias(_FRAME))
    return f.struct("topic", "partition", "offset", timestamp, *record, *more)


def _complaint(source: Source) -> Column:
    from pyspark.sql import functions as f

    place = source.format.place if source.format else "[source.json]"
    what = f.lit(f"{place}: the value of ")
    if source.key_format:
        is_key = f.col(f"{_PARSED_KEY}.{_CORRUPT}").isNotNull()
        what = f.when(is_key, f.lit(f"{source.key_format.place}: the key of ")).otherwise(what)
    reason = _reason(source)
    why = [] if reason is None else [f.coalesce(f.concat(f.lit(": "), reason), f.lit(""))]
    return f.concat(
        what,
        f.col("topic"),
        f.lit("-"),
        f.col("partition").cast("string"),
        f.lit(" at offset "),
        f.col("offset").cast("string"),
        f.lit(" does not fit the schema"),
        *why,
        f.lit('; on_error = "drop" leaves such records out'),
    )
