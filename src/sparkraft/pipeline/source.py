"""Spark's side of the source: `format("sparkraft")` for batch and streaming reads.

Planner calls (`initialOffset`, `latestOffset`, `partitions`, `commit`) run in one Python process
on the driver; `read` runs in Spark's Python workers, which get a pickled copy of the reader.

Invariants:
    * A reader carries its options and nothing else from process to process.
    * `partitions` returns the same tasks for the same offsets, unless data was lost.

Not here: the sink (`sink`), reading itself (`fetch`), the choice of offsets (`offsets`).
"""

from __future__ import annotations

import gc
import logging
import os
import re
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sparkraft.pipeline import offsets as plan
from sparkraft.pipeline.fetch import DataLossError, RangeReader, data_loss
from sparkraft.pipeline.metadata_rows import table_schema
from sparkraft.pipeline.metadata_source import MetadataBatchReader, MetadataStreamReader
from sparkraft.pipeline.options import (
    COLUMNS,
    Isolation,
    SourceOptions,
    metadata_options,
    metadata_table,
    sink_options,
    source_columns,
    source_options,
)
from sparkraft.pipeline.places import EARLIEST, LATEST, Bound, ByOffset, ByTimestamp, OptionError
from sparkraft.pipeline.pushdown import Narrowing, narrowing
from sparkraft.pipeline.wire import shared_cluster
from sparkraft.pipeline.worker_python import PickledElsewhere

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from sparkraft.base.ids import TopicPartition
    from sparkraft.pipeline.offsets import Offsets, Range
    from sparkraft.pipeline.wire import Cluster

log = logging.getLogger(__name__)


def source_schema(columns: Sequence[str]) -> StructType:
    """The official connector's columns, or some of them, in its order."""
    return StructType([StructField(name, _TYPES[name]) for name in columns])


_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: Final[Mapping[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}


class SparkraftDataSource(PickledElsewhere, DataSource):
    """Kafka topics as a source and a sink; see `sparkraft.pipeline.options` for the options."""

    parallelism: int | None = None
    """How many tasks Spark runs at once; None if the session has not registered the source."""

    @classmethod
    def name(cls) -> str:
        """The name after `format(...)`."""
        return "sparkraft"

    def schema(self) -> StructType:
        """The official connector's, with `headers` if asked for, or those of `columns`.

        With `metadata`, those of that table.
        """
        table = metadata_table(self.options)
        if table is not None:
            return table_schema(table)
        return source_schema(source_columns(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        if (table := metadata_table(self.options)) is not None:
            _check_columns(schema, table_schema(table))
            return MetadataBatchReader(metadata_options(self.options, streaming=False))
        options = self._sized(source_options(self.options, streaming=False))
        _check_columns(schema, source_schema(options.columns))
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's)
        """For `spark.readStream`."""
        if (table := metadata_table(self.options)) is not None:
            _check_columns(schema, table_schema(table))
            return MetadataStreamReader(metadata_options(self.options, streaming=True))
        options = self._sized(source_options(self.options, streaming=True))
        _check_columns(schema, source_schema(options.columns))
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> Any:  # noqa: FBT001 (Spark's)
        """For `df.write`."""
        from sparkraft.pipeline.sink import BatchWriter

        if overwrite:
            raise OptionError('a topic can\'t be overwritten: use mode("append")')
        return BatchWriter(schema, sink_options(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802, FBT001 (Spark's)
        """For `df.writeStream`."""
        from sparkraft.pipeline.sink import StreamWriter

        del overwrite  # complete mode writes its rows again as new records, as officially
        return StreamWriter(schema, sink_options(self.options))

    def _sized(self, options: SourceOptions) -> SourceOptions:
        if options.partitions_max or not self.parallelism:
            return options
        return replace(options, partitions_max=max(self.parallelism, options.partitions_min or 1))


def sized_source(parallelism: int) -> type[SparkraftDataSource]:
    """The data source for a session that runs `parallelism` tasks at once.

    Spark pickles the class that a session registers, and each process makes an instance of it. The
    instances are of the class above, because a process without the package could not import this
    one.
    """

    class SizedDataSource(SparkraftDataSource):
        def __new__(cls, options: dict[str, str]) -> SparkraftDataSource:  # type: ignore[misc]
            made = SparkraftDataSource(options)
            made.parallelism = parallelism
            return made

    return SizedDataSource


def _check_columns(schema: StructType, own: StructType) -> None:
    if schema != own:
        raise OptionError("the source has a schema of its own: leave out .schema(...)")


class Task(InputPartition):
    """The ranges that one Spark task reads."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        """Of one or several topic partitions."""
        super().__init__(tuple(ranges))


def _read(options: SourceOptions, task: InputPartition) -> Iterator[pa.RecordBatch]:
    _freeze_once()
    if not task.value:
        return iter(())
    return RangeReader(shared_cluster(options.client), task.value, options).read()


_FROZEN: Final[set[int]] = set()


def _freeze_once() -> None:
    """Keep what is imported by now out of later collections.

    Spark's worker collects garbage after every task; with pyarrow and numpy loaded that alone
    costs 70 ms a task.
    """
    if os.getpid() not in _FROZEN:
        _FROZEN.add(os.getpid())
        gc.freeze()


class Lookup:
    """Questions a planner asks the cluster."""

    def __init__(self, options: SourceOptions) -> None:
        """About what `options` subscribe to."""
        self._options = options
        self._committed_only = options.client.isolation is Isolation.READ_COMMITTED

    @property
    def cluster(self) -> Cluster:
        """This process's connection to it."""
        return shared_cluster(self._options.client)

    def partitions(self) -> list[TopicPartition]:
        """Every partition that is subscribed to now."""
        wanted = self._options.subscription
        if wanted.assigned is not None:
            known = self.cluster.topics(sorted(wanted.assigned))
            listed = [(t, p) for t, numbers in sorted(wanted.assigned.items()) for p in numbers]
            for topic, number in listed:
                if topic not in known or number not in known[topic].leaders:
                    raise OptionError(f"assign names {topic}-{number}, which does not exist")
            return listed
        if wanted.topics is not None:
            known = self.cluster.topics(wanted.topics)
            missing = [topic for topic in wanted.topics if topic not in known]
            if missing:
                raise OptionError(f"topic {missing[0]}, which subscribe names, does not exist")
        else:
            pattern = re.compile(wanted.pattern or "")
            known = {
                name: each
                for name, each in self.cluster.topics(None).items()
                if not each.is_internal and pattern.fullmatch(name)
            }
        return [(t, number) for t in sorted(known) for number in sorted(known[t].leaders)]

    def earliest(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offsets there are."""
        return self.cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets after the last readable records."""
        return self.at(dict.fromkeys(partitions, LATEST))

    def at(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Offsets by constant or time."""
        return self.cluster.list_offsets(wanted, committed_only=self._committed_only)

    def since(self, time: int, start: Offsets, end: Offsets) -> dict[TopicPartition, int]:
        """Move start offsets up to the first record at `time`, ms since 1970, or later."""
        found = self.at(dict.fromkeys(start, time))
        first = {each: end[each] if offset < 0 else offset for each, offset in found.items()}
        return {each: min(max(start[each], first[each]), end[each]) for each in start}

    def resolve(
        self, bound: Bound, partitions: Sequence[TopicPartition], name: str
    ) -> dict[TopicPartition, int]:
        """A bound of the options as offsets."""
        places = plan.places(bound, partitions, name)
        found = self.at(places.lookups)
        late = [each for each, offset in found.items() if offset < 0]
        if late and isinstance(bound, ByTimestamp):
            if not bound.or_latest:
                topic, partition = min(late)
                raise OptionError(
                    f"{name}: {topic}-{partition} has no record that late; "
                    "startingOffsetsByTimestampStrategy=latest starts at its end then"
                )
            found |= self.latest(late)
        return places.fixed | found

    def present(
        self, start: Offsets, end: Offsets
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """The offsets cut to what is there; `DataLossError` if that is less and mustn't be."""
        keys = sorted(end)
        first = self.earliest(keys)
        begin = {each: start.get(each, first[each]) for each in keys}
        lost = [each for each in keys if begin[each] < min(first[each], end[each])]
        back = [each for each in keys if begin[each] > end[each]]
        gone = sorted(set(start) - set(end))
        if lost or back or gone:
            self._on_loss(lost, back, gone, (begin, end, first))
        # A partition that ends before its last read offset was recreated: all its records are new.
        begin |= {each: first[each] for each in back}
        kept = {each: min(max(begin[each], first[each]), end[each]) for each in keys}
        return kept, dict(end)

    def _on_loss(
        self,
        lost: Sequence[TopicPartition],
        back: Sequence[TopicPartition],
        gone: Sequence[TopicPartition],
        where: tuple[Offsets, Offsets, Offsets],
    ) -> None:
        begin, end, first = where
        if lost or back:
            key = (*lost, *back)[0]
            said = data_loss(key, begin[key], first[key], end[key])
        else:
            said = (
                f"{gone[0][0]}-{gone[0][1]} was read before and no longer exists; "
                "set failOnDataLoss=false to continue without it"
            )
        if self._options.fail_on_data_loss:
            raise DataLossError(said)
        log.warning("%s", said)

    def tasks(self, start: Offsets, end: Offsets) -> list[Task]:
        """Divide the records between two offsets into tasks."""
        options = self._options
        least = options.partitions_min or 1
        most = options.partitions_max or max(least, _cores())
        dealt = plan.deal(
            plan.ranges_of(start, end),
            tasks_max=most,
            tasks_min=least,
            records_per_task_max=options.records_per_partition_max,
        )
        return [Task(ranges) for ranges in dealt]


def _cores() -> int:
    """Cores of the driver, for a session that has not registered the source."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _PushFilters:
    """`BatchReader.pushFilters`.

    Spark refuses a reader that defines this method if push-down is off in the session, which is
    its default. It recognizes the method of its base class by `__func__`.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        if self._reader.options.push_down_filters:
            self._reader.narrowing = narrowing(filters)
        return filters


class BatchReader(PickledElsewhere, DataSourceReader):
    """Reads from one set of offsets to another.

    With `spark.sql.python.filterPushdown.enabled` and `pushDownFilters`, filters of topic,
    partition, offset and the earliest timestamp narrow the ranges; Spark applies all filters itself
    too. It is an option because Spark 4.3 keeps the plan of a relation whose filters were pushed
    down: a later query of the same DataFrame without filters would read the narrowed ranges.
    """

    def __init__(self, options: SourceOptions) -> None:
        """Resolve nothing yet: Spark asks for partitions when it plans."""
        self.options = options
        self.narrowing = Narrowing()

    @property
    def pushFilters(self) -> Callable[[list[Filter]], Iterable[Filter]]:  # noqa: N802 (Spark's)
        """Remember which records may match; Spark still applies all filters."""
        return _PushFilters(self)

    def partitions(self) -> Sequence[InputPartition]:
        """The ranges between start and end, dealt out to tasks."""
        lookup = Lookup(self.options)
        partitions = [each for each in lookup.partitions() if self.narrowing.keeps(each)]
        starting = self.options.starting or ByOffset(everywhere=EARLIEST)
        ending = self.options.ending or ByOffset(everywhere=LATEST)
        start = lookup.resolve(starting, partitions, "startingOffsets")
        end = lookup.resolve(ending, partitions, "endingOffsets")
        # An end beyond what is there would wait for records to come.
        last = lookup.latest(partitions)
        end = {each: min(offset, last[each]) for each, offset in end.items()}
        start = {each: min(offset, end[each]) for each, offset in start.items()}
        begin, until = self.narrowing.narrowed(*lookup.present(start, end))
        if self.narrowing.since is not None:
            begin = lookup.since(self.narrowing.since, begin, until)
        return lookup.tasks(begin, until)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's records."""
        return _read(self.options, partition)


class StreamReader(PickledElsewhere, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows topics batch by batch."""

    def __init__(self, options: SourceOptions) -> None:
        """Remember the options; state below is the planner's alone."""
        self.options = options
        self._latest: dict[TopicPartition, int] | None = None
        self._stop_at: dict[TopicPartition, int] | None = None
        self._first_waited_at: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Workers get the options only."""
        return {"options": self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """In a worker."""
        self.__init__(state["options"])  # type: ignore[misc]

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's)
        """Return the start of a new query: by default, the latest offsets."""
        lookup = Lookup(self.options)
        starting = self.options.starting or ByOffset(everywhere=LATEST)
        return plan.to_json(lookup.resolve(starting, lookup.partitions(), "startingOffsets"))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's)
        """A limit if one is set.

        Spark has no composite limit of our kinds, so this only states that there is one:
        `latestOffset` applies all limits in the options, unless Spark requests everything.
        """
        options = self.options
        if options.offsets_per_trigger_max:
            return ReadMaxRows(options.offsets_per_trigger_max)
        if options.bytes_per_trigger_max:
            return ReadMaxBytes(options.bytes_per_trigger_max)
        if options.offsets_per_trigger_min:
            return ReadMinRows(options.offsets_per_trigger_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's)
        """Read no further than what is there now."""
        lookup = Lookup(self.options)
        self._stop_at = lookup.latest(lookup.partitions())

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 (Spark's)
        """The end of the topics as last seen, for Spark's progress."""
        return None if self._latest is None else plan.to_json(self._latest)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 (Spark's)
        """Return the end of the next batch."""
        lookup = Lookup(self.options)
        begin = plan.from_json(start)
        partitions = lookup.partitions() if self._stop_at is None else sorted(self._stop_at)
        fresh = [each for each in partitions if each not in begin]
        if fresh:
            begin |= lookup.earliest(fresh)
        latest = self._stop_at or lookup.latest(partitions)
        self._latest = latest
        if isinstance(limit, ReadAllAvailable):
            return plan.to_json(latest)
        if self._waits_for_more(plan.count(begin, latest)):
            return start
        return plan.to_json(self._limited(lookup, begin, latest))

    def _waits_for_more(self, waiting: int) -> bool:
        """Whether `minOffsetsPerTrigger` is not reached and `maxTriggerDelay` not over."""
        least = self.options.offsets_per_trigger_min
        if not least or waiting >= least or self._stop_at is not None:
            self._first_waited_at = None
            return False
        now = time.monotonic()
        if self._first_waited_at is None:
            self._first_waited_at = now
        if (now - self._first_waited_at) * 1000 < self.options.trigger_delay_ms_max:
            return True
        self._first_waited_at = None
        return False

    def _limited(self, lookup: Lookup, begin: Offsets, latest: Offsets) -> Offsets:
        options = self.options
        end = latest
        if options.offsets_per_trigger_max:
            end = self._cut(lookup, begin, end, options.offsets_per_trigger_max, {})
        if options.bytes_per_trigger_max and plan.count(begin, end):
            sizes = _record_sizes(lookup.cluster, options, begin, end)
            end = self._cut(lookup, begin, end, options.bytes_per_trigger_max, sizes)
        return end

    def _cut(
        self,
        lookup: Lookup,
        begin: Offsets,
        end: Offsets,
        budget: int,
        weight: Mapping[TopicPartition, float],
    ) -> Offsets:
        if not self.options.align_timestamps:
            return plan.limited(begin, end, budget=budget, weight=weight)
        return plan.limited_by_time(
            begin,
            end,
            budget=budget,
            weight=weight,
            offsets_at=lambda ms: lookup.at(dict.fromkeys(end, ms)),
        )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch."""
        lookup = Lookup(self.options)
        begin, until = lookup.present(plan.from_json(start), plan.from_json(end))
        return lookup.tasks(begin, until)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's records."""
        return _read(self.options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark is done with what lies before `end`: show it to lag tools if asked to."""
        group = self.options.publish_group_id
        if group:
            Lookup(self.options).cluster.commit_group_offsets(group, plan.from_json(end))

    def stop(self) -> None:
        """The query ended."""
        shared_cluster(self.options.client).close()


def _record_sizes(
    cluster: Cluster, options: SourceOptions, begin: Offsets, end: Offsets
) -> dict[TopicPartition, float]:
    """Estimate uncompressed bytes per record at each start offset, from a small sample."""
    client = replace(options.client, partition_fetch_bytes_max=1 << 16)
    sample = replace(options, client=client, columns=COLUMNS)
    few = [
        each._replace(end=min(each.end, each.start + _SAMPLE_RECORDS))
        for each in plan.ranges_of(begin, end)
    ]
    rows: Counter[TopicPartition] = Counter()
    size: Counter[TopicPartition] = Counter()
    for piece in RangeReader(cluster, few, sample).read():
        key = piece.column("topic")[0].as_py(), piece.column("partition")[0].as_py()
        rows[key] += piece.num_rows
        size[key] += piece.nbytes
    return {key: max(1.0, size[key] / rows[key]) for key in rows}


_SAMPLE_RECORDS: Final = 100
"""Enough for a mean, few enough to cost a millisecond."""
