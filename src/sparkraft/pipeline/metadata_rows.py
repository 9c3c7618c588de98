"""Rows of the metadata tables, from the changes of partitions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sparkraft.client.explain.events import election_json, isr_change_json
from sparkraft.pipeline.options import MetadataTable
from sparkraft.pipeline.partition_history import is_election

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sparkraft.client.history import HistoryReport
    from sparkraft.pipeline.partition_history import History, PartitionHistory

    Row = dict[str, Any]

_IDS: Final = ArrayType(IntegerType())


def _columns(names: str, kind: DataType) -> list[StructField]:
    return [StructField(name, kind) for name in names.split()]


def _items(fields: list[StructField]) -> ArrayType:
    return ArrayType(StructType(fields))


_PLACE: Final = [
    *_columns("offset", LongType()),
    *_columns("timestamp", TimestampType()),
    *_columns("topic topicId", StringType()),
    *_columns("partition leader leaderEpoch", IntegerType()),
]

_SCHEMAS: Final[Mapping[MetadataTable, list[StructField]]] = {
    MetadataTable.ELECTIONS: [
        *_columns("previous", IntegerType()),
        *_columns("previousSince", TimestampType()),
        *_columns("previousMs", LongType()),
        *_columns("previousCause", StringType()),
        *_columns("controllerEpoch", IntegerType()),
        *_columns("kind cause chosenBy", StringType()),
        *_columns("candidates isr elr live", _IDS),
        *_columns(
            "ruledOut",
            _items([*_columns("replica", IntegerType()), *_columns("why", StringType())]),
        ),
        *_columns("source", StringType()),
    ],
    MetadataTable.ISR: [
        *_columns("partitionEpoch", IntegerType()),
        *_columns("before after joined left elr", _IDS),
        *_columns("cause", StringType()),
        *_columns(
            "lags",
            _items(
                [
                    *_columns("replica", IntegerType()),
                    *_columns("recordsBehind behindMs", LongType()),
                ]
            ),
        ),
    ],
    MetadataTable.PARTITIONS: [
        *_columns("change", StringType()),
        *_columns("partitionEpoch", IntegerType()),
        *_columns("replicas isr elr adding removing", _IDS),
        *_columns("cause", StringType()),
    ],
}

_RECORDS: Final = [
    *_columns("offset", LongType()),
    *_columns("timestamp", TimestampType()),
    *_columns("leaderEpoch", IntegerType()),
    *_columns("type record", StringType()),
]


def table_schema(table: MetadataTable) -> StructType:
    """The columns of a table."""
    if table is MetadataTable.RECORDS:
        return StructType(_RECORDS)
    return StructType([*_PLACE, *_SCHEMAS[table]])


def table_rows(table: MetadataTable, history: History, start: int) -> list[Row]:
    """Return the rows of the changes at `start` and later, in the order of the log."""
    make = _MAKERS[table]
    rows = [row for each in history.partitions for row in make(each, start)]
    return sorted(rows, key=lambda row: (row["offset"], row["topic"], row["partition"]))


def time_of(ms: int) -> datetime | None:
    """A time in milliseconds since 1970; None if it is unknown."""
    return None if ms < 0 else _EPOCH + timedelta(milliseconds=ms)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _place(each: PartitionHistory, event: Any, state: Any) -> Row:
    return {
        "offset": event.offset,
        "timestamp": time_of(event.at_ms),
        "topic": each.topic,
        "topicId": str(event.topic_id),
        "partition": each.partition,
        "leader": _known(state.leader),
        "leaderEpoch": state.leader_epoch,
    }


def _known(leader: int) -> int | None:
    return None if leader < 0 else leader


def _elections(each: PartitionHistory, start: int) -> Iterator[Row]:
    last: Any = None
    for event, _ in each.changes:
        if event.before is None:
            last = None
        if not is_election(event):
            continue
        if event.offset >= start:
            yield _election(each, event, last)
        last = event


def _election(each: PartitionHistory, event: Any, last: Any) -> Row:
    document = election_json(event)
    assert document is not None
    is_timed = last is not None and last.at_ms >= 0
    return {
        **_place(each, event, event.after),
        "previous": document["previous"],
        "previousSince": time_of(last.at_ms) if is_timed else None,
        "previousMs": event.at_ms - last.at_ms if is_timed else None,
        "previousCause": last.cause if last is not None else None,
        "controllerEpoch": event.controller_epoch,
        "kind": document["kind"],
        "cause": event.cause,
        "chosenBy": document.get("chosenBy"),
        **{name: document.get(name) for name in ("candidates", "isr", "elr", "live", "ruledOut")},
        "source": document["from"],
    }


def _isr_changes(each: PartitionHistory, start: int) -> Iterator[Row]:
    for event, report in each.changes:
        row = _isr_change(each, event, report) if event.offset >= start else None
        if row is not None:
            yield row


def _isr_change(each: PartitionHistory, event: Any, report: HistoryReport) -> Row | None:
    document = isr_change_json(event, report)
    if document is None:
        return None
    return {
        **_place(each, event, event.after),
        "partitionEpoch": event.after.partition_epoch,
        **{name: document[name] for name in ("before", "after", "joined", "left", "elr", "lags")},
        "cause": event.cause,
    }


def _states(each: PartitionHistory, start: int) -> Iterator[Row]:
    for event, _ in each.changes:
        if event.offset < start:
            continue
        state = event.before if event.after is None else event.after
        change = "created" if event.before is None else "changed"
        yield {
            **_place(each, event, state),
            "change": "deleted" if event.after is None else change,
            "partitionEpoch": state.partition_epoch,
            **{
                name: list(getattr(state, name))
                for name in ("replicas", "isr", "elr", "adding", "removing")
            },
            "cause": event.cause,
        }


_MAKERS: Final[Mapping[MetadataTable, Callable[[PartitionHistory, int], Iterator[Row]]]] = {
    MetadataTable.ELECTIONS: _elections,
    MetadataTable.ISR: _isr_changes,
    MetadataTable.PARTITIONS: _states,
}
