"""Spark's side of the metadata tables: elections, ISR changes and states of partitions.

An offset is one of the metadata log, in Spark's JSON as `{"__cluster_metadata": {"0": 17}}`. A
batch is read by one task, because a partition's history is one sequence.

Invariants:
    * A batch is named by its start and end offsets alone. The causes come from the nodes' journals
      while these have them, and from the log otherwise.

Not here: topics (`source`), requests (`partition_history`), rows (`metadata_rows`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)

from sparkraft.pipeline.fetch import DataLossError
from sparkraft.pipeline.metadata_records import first_offset, pages_of_rows
from sparkraft.pipeline.metadata_rows import table_rows, table_schema
from sparkraft.pipeline.options import MetadataTable
from sparkraft.pipeline.partition_history import committed_end, connected, read_history
from sparkraft.pipeline.places import LATEST
from sparkraft.pipeline.worker_python import PickledElsewhere

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from sparkraft.pipeline.options import MetadataOptions

log = logging.getLogger(__name__)

_LOG: Final = "__cluster_metadata"

_ROWS_MAX: Final = 10_000
"""Rows of one Arrow batch."""


class LogRange(InputPartition):
    """Offsets of the metadata log: from the first to before the second."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__((start, end))


def _end(options: MetadataOptions) -> int:
    async def ask() -> int:
        async with connected(options.client) as cluster:
            return await committed_end(cluster)

    return asyncio.run(ask())


def _read(options: MetadataOptions, task: InputPartition) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    start, end = task.value
    if start == end:
        return
    schema = to_arrow_schema(table_schema(options.table), timezone="UTC")
    if options.table is MetadataTable.RECORDS:
        for page in _pages(options, start, end):
            yield pa.RecordBatch.from_pylist(page, schema=schema)
        return
    rows = asyncio.run(_rows(options, start, end))
    for first in range(0, len(rows), _ROWS_MAX):
        yield pa.RecordBatch.from_pylist(rows[first : first + _ROWS_MAX], schema=schema)


def _pages(options: MetadataOptions, start: int, end: int) -> Iterator[list[dict[str, Any]]]:
    first = first_offset(options.client)
    _check_loss(options, start, first)
    yield from pages_of_rows(options.client, max(start, first), end)


async def _rows(options: MetadataOptions, start: int, end: int) -> list[dict[str, Any]]:
    async with connected(options.client) as cluster:
        history = await read_history(cluster, options.subscription, max(start, 0), end)
    _check_loss(options, start, history.first)
    return table_rows(options.table, history, max(start, 0))


def _check_loss(options: MetadataOptions, start: int, first: int) -> None:
    # EARLIEST is below every offset: a log that has been cleaned loses nothing then.
    if not 0 <= start < first:
        return
    lost = (
        f"offset {start} of the metadata log is required, but the log starts at "
        f"{first}: earlier records are in a snapshot. Set failOnDataLoss=false to skip them"
    )
    if options.fail_on_data_loss:
        raise DataLossError(lost)
    log.warning("%s", lost)


class MetadataBatchReader(PickledElsewhere, DataSourceReader):
    """Reads a table between two offsets of the metadata log."""

    def __init__(self, options: MetadataOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        """One task."""
        last = _end(self.options)
        end = last if self.options.ending is None else min(self.options.ending, last)
        # EARLIEST is below every offset: a log that has been cleaned loses nothing then.
        start = end if self.options.starting == LATEST else min(self.options.starting, end)
        return [LogRange(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows."""
        return _read(self.options, partition)


class MetadataStreamReader(PickledElsewhere, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a table. An idle log has two records per second, so choose a trigger interval."""

    def __init__(self, options: MetadataOptions) -> None:
        self.options = options
        self._stop_at: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's)
        """Return the start of a new query: by default, the end of the log."""
        start = self.options.starting
        return _to_json(_end(self.options) if start == LATEST else start)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's)
        """Everything: a batch is as long as its trigger interval."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's)
        """Read no further than what is there now."""
        self._stop_at = _end(self.options)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 (Spark's)
        """Return the end of the next batch."""
        del limit
        end = _end(self.options) if self._stop_at is None else self._stop_at
        # After a change of the leader, the new one may not know yet what is committed.
        return _to_json(max(end, _from_json(start)))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One task."""
        return [LogRange(_from_json(start), _from_json(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a batch."""
        return _read(self.options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is kept outside Spark's checkpoint."""

    def stop(self) -> None:
        """Nothing stays open between requests."""


def _to_json(offset: int) -> dict[str, Any]:
    return {_LOG: {"0": offset}}


def _from_json(offsets: dict[str, Any]) -> int:
    return int(offsets[_LOG]["0"])
