"""`pipeline test`: the tests of a pipeline file, on rows instead of topics.

The sources' rows are given, everything up to the sinks runs as a batch query, and its rows are
compared with the expected ones. So records are never late, and rows of aggregations are final.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from sparkraft.pipeline import json_values, query
from sparkraft.pipeline.options import source_columns
from sparkraft.pipeline.spec import SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from sparkraft.pipeline.spec import Case, Pipeline, Source

_SCHEMA: Final = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset LONG, timestamp TIMESTAMP, "
    "timestampType INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
_START: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""The timestamp of a record that names none."""


def failure(pipeline: Pipeline, case: Case, spark: SparkSession, cause_of: Any) -> str | None:
    """Return the differences from the expected result, in lines; None if there are none.

    Args:
        pipeline: of the file.
        case: one of its tests.
        spark: a session.
        cause_of: turns an exception of Spark into a sentence.
    """
    frames = {each.name: records_of(case, each, spark) for each in pipeline.sources}
    damaged = sum(
        len(json_values.damaged_records(frames[source.name], source))
        for source in pipeline.sources
        if source.is_decoded
    )
    decoded = {each.name: query.decoded(each, frames[each.name]) for each in pipeline.sources}
    try:
        rows = query.transformed(pipeline, decoded, spark).collect()
    except Exception as error:  # anything that Spark or the user's function raises
        return _wrong_error(case, cause_of(error))
    if case.error is not None:
        return f"it should stop with {case.error!r}, and returns {len(rows)} rows"
    if damaged != case.damaged:
        return f"{damaged} records are damaged, expected {case.damaged}"
    return difference([row.asDict(recursive=True) for row in rows], case.expected)


def _wrong_error(case: Case, said: str) -> str | None:
    if case.error is None:
        return said
    return None if case.error in said else f"it stops with {said!r}, expected {case.error!r}"


def records_of(case: Case, source: Source, spark: SparkSession) -> DataFrame:
    """The records that a test gives for a source, in the source's columns."""
    records = [
        _record(each, number) for number, each in enumerate(case.inputs.get(source.name, ()))
    ]
    return spark.createDataFrame(records, _SCHEMA).select(*source_columns(source.options))


def _record(given: Mapping[str, Any], number: int) -> tuple[Any, ...]:
    known = {"key", "value", "topic", "partition", "offset", "timestamp", "headers"}
    for name in given:
        if name not in known:
            raise SpecError(f"a record of a test has no {name}, only {', '.join(sorted(known))}")
    key, value = (_bytes(given.get(name)) for name in ("key", "value"))
    headers = [(name, _bytes(text)) for name, text in given.get("headers", {}).items()]
    return (
        key, value, given.get("topic", "test"), given.get("partition", 0),
        given.get("offset", number), given.get("timestamp", _START), 0, headers or None,
    )  # fmt: skip


def _bytes(text: str | None) -> bytearray | None:
    return None if text is None else bytearray(text.encode())


def difference(rows: list[dict[str, Any]], expected: Any) -> str | None:
    """Rows that are missing and rows that should not be there; None if there are none."""
    found = Counter(_comparable(row) for row in rows)
    wanted = Counter(_comparable(row) for row in expected)
    lines = [f"missing:    {_shown(row)}" for row in (wanted - found).elements()]
    lines += [f"unexpected: {_shown(row)}" for row in (found - wanted).elements()]
    return "\n".join(lines) or None


def _comparable(value: Any) -> Any:
    """Values that are equal in TOML and in Spark become equal and hashable; nulls are left out."""
    if isinstance(value, dict):
        pairs = [(name, _comparable(each)) for name, each in value.items() if each is not None]
        return tuple(sorted(pairs))
    if isinstance(value, list | tuple):
        return tuple(_comparable(each) for each in value)
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="replace")
    if isinstance(value, datetime):
        # Spark returns timestamps in the session's zone, which is UTC.
        return (value if value.tzinfo is None else value.astimezone(UTC)).replace(tzinfo=None)
    if isinstance(value, Decimal | float):
        return round(float(value), 9)
    return value


def _shown(row: tuple[tuple[str, Any], ...]) -> str:
    return ", ".join(
        f"{name} = {value.isoformat() if isinstance(value, date) else value!r}"
        for name, value in row
    )
