"""`pipeline audit`: all replicas of topics, compared by offset and checksum.

A consumer may read any replica up to its high watermark (KIP-392), so each task reads a range of
offsets from one broker. Replicas have the same batches, byte for byte, except that each cleans a
compacted topic for itself: there the records that two replicas both have are compared.

Invariants:
    * A replica that cannot be read to the end of its range is a finding, never left out.
    * Checksums are computed from the bytes of the response, not taken from their headers.

Not here: damage that a replica has above its high watermark, or in a log of another directory.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.pipeline.places import EARLIEST, LATEST
from sparkraft.pipeline.wire import Cluster, check
from sparkraft.records.batch import iter_batches
from sparkraft.records.crc import crc32c
from sparkraft.records.record import decode_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from sparkraft.pipeline.options import ClientOptions

_TOPIC: Final = 2
"""DescribeConfigs' type of a topic."""

_VERSION_MAX: Final = 12
"""Fetch has topic ids from the next version on; from 11 on, followers serve consumers."""

_RANGE_OFFSETS: Final = 1_000_000
"""Offsets of one task."""

_FETCH_BYTES: Final = 8 << 20
_WAIT_MS: Final = 500
_PATIENCE_S: Final = 20.0
"""A follower may learn late that the last records are committed."""

_ROWS: Final = (
    "topic STRING, partition INT, replica INT, offset BIGINT, last BIGINT, checksum BIGINT, "
    "problem STRING"
)


class Row(NamedTuple):
    """A batch or record of a replica; or a problem from an offset on.

    Args:
        last: its last offset, including gaps; of a problem, the last one that cannot be compared.
        checksum: CRC-32C of a batch without its offset and leader epoch, which are compared
            themselves; of a record, its contents.
    """

    topic: str
    partition: int
    replica: int
    offset: int
    last: int
    checksum: int
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRange:
    """Offsets of a replica, from `start` to before `end`.

    Args:
        by_record: whether its batches may differ from those of other replicas.
    """

    client: ClientOptions
    topic: str
    partition: int
    replica: int
    start: int
    end: int
    by_record: bool

    def rows(self) -> Iterator[Row]:
        """Its batches or records, in the order of offsets."""
        cluster = Cluster(self.client)
        try:
            cluster.topics([self.topic])
            yield from self._read(cluster)
        except (KafkaError, OSError) as error:
            yield self._problem(self.start, self.end - 1, str(error))
        finally:
            cluster.close()

    def _read(self, cluster: Cluster) -> Iterator[Row]:
        position, until, size = self.start, time.monotonic() + _PATIENCE_S, _FETCH_BYTES
        while position < self.end:
            try:
                records = self._fetch(cluster, position, size)
            except KafkaError as error:
                if error.code is ErrorCode.CORRUPT_MESSAGE and size > 1:
                    # The batches before the damaged one, one at a time.
                    size = 1
                    continue
                yield self._problem(position, self.end - 1, f"cannot be read: {error}")
                return
            before = position
            for header, view in iter_batches(records):
                if header.base_offset >= self.end:
                    return
                # A range may begin within a batch.
                if header.last_offset >= position:
                    yield from self._rows_of(header, view)
                    position = header.next_offset
            if position > before:
                until = time.monotonic() + _PATIENCE_S
            elif time.monotonic() > until:
                problem = f"has no records from here to {self.end}"
                yield self._problem(position, self.end - 1, problem)
                return

    def _fetch(self, cluster: Cluster, position: int, size: int) -> memoryview:
        from sparkraft.protocol.messages import k01_fetch as message

        wanted = message.FetchPartition(
            partition=self.partition, fetch_offset=position, partition_max_bytes=size
        )
        request = message.FetchRequest(
            replica_id=-1,
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=size,
            topics=[message.FetchTopic(topic=self.topic, partitions=[wanted])],
        )
        answer = cluster.broker(self.replica).ask(request, version_max=_VERSION_MAX)
        check(answer.error_code, "fetch")
        (partition,) = answer.responses[0].partitions
        check(partition.error_code, f"fetch of {self.topic}-{self.partition}")
        return memoryview(partition.records or b"")

    def _rows_of(self, header: Any, view: memoryview) -> Iterator[Row]:
        place = self.topic, self.partition, self.replica
        checksum = crc32c(view[_AFTER_CRC:])
        if checksum != header.crc:
            problem = "does not have the checksum of its batch"
            yield self._problem(header.base_offset, header.last_offset, problem)
        elif not self.by_record:
            # The epoch is outside the checksum.
            whole = crc32c(header.partition_leader_epoch.to_bytes(4, "big", signed=True), checksum)
            yield Row(*place, header.base_offset, header.last_offset, whole)
        elif not header.is_control:
            for record in decode_records(view):
                if self.start <= record.offset < self.end:
                    content = repr((record.timestamp, *record[2:])).encode()
                    yield Row(*place, record.offset, record.offset, crc32c(content))

    def _problem(self, offset: int, last: int, problem: str) -> Row:
        return Row(self.topic, self.partition, self.replica, offset, last, 0, problem)


_AFTER_CRC: Final = 21


def plan(client: ClientOptions, topics: Sequence[str]) -> list[ReplicaRange]:
    """The tasks: every replica's offsets, from the leader's first to its high watermark.

    Raises:
        KafkaError: a topic does not exist, or a partition has no leader.
    """
    from sparkraft.protocol.messages.k32_describe_configs import (
        DescribeConfigsRequest,
        DescribeConfigsResource,
    )

    cluster = Cluster(client)
    try:
        known = cluster.topics(topics)
        missing = [name for name in topics if name not in known]
        if missing:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {missing[0]}")
        keys = [(name, number) for name in topics for number in known[name].leaders]
        first = cluster.list_offsets(dict.fromkeys(keys, EARLIEST))
        last = cluster.list_offsets(dict.fromkeys(keys, LATEST))
        asked = [
            DescribeConfigsResource(
                resource_type=_TOPIC, resource_name=name, configuration_keys=["cleanup.policy"]
            )
            for name in topics
        ]
        answer = cluster.any_broker().ask(DescribeConfigsRequest(resources=asked))
        policies = {
            each.resource_name: "".join(config.value or "" for config in each.configs)
            for each in answer.results
        }
    finally:
        cluster.close()
    return [
        ReplicaRange(
            client=client,
            topic=name,
            partition=number,
            replica=replica,
            start=start,
            end=min(start + _RANGE_OFFSETS, last[name, number]),
            by_record="compact" in policies.get(name, ""),
        )
        for name, number in keys
        for start in range(first[name, number], last[name, number], _RANGE_OFFSETS)
        for replica in known[name].replicas[number]
    ]


def differences(spark: SparkSession, tasks: Sequence[ReplicaRange]) -> DataFrame:
    """Offsets at which replicas differ, with what each of them has.

    Args:
        spark: a session.
        tasks: of `plan`.

    Returns:
        rows of `topic`, `partition`, `offset`, and `found`: an array of `replica`, `last`,
        `checksum` and `problem`. Empty if all replicas are equal.
    """
    from pyspark.sql import functions as f

    counts = {(each.topic, each.partition): 0 for each in tasks}
    for topic, partition in counts:
        of_partition = [e for e in tasks if (e.topic, e.partition) == (topic, partition)]
        is_whole = not of_partition[0].by_record
        counts[topic, partition] = len({e.replica for e in of_partition}) if is_whole else 0
    expected = spark.createDataFrame(
        [(*key, count) for key, count in counts.items()],
        "topic STRING, partition INT, replicas INT",
    )
    work = spark.sparkContext.parallelize(tasks, max(1, len(tasks)))
    rows = spark.createDataFrame(work.flatMap(lambda task: task.rows()), _ROWS)
    # A batch at the border of two ranges is read twice.
    rows = rows.dropDuplicates(["topic", "partition", "replica", "offset", "problem"])
    rows = rows.persist()
    is_problem = f.col("problem") != ""
    # A replica that cannot be read from some offset on is one finding, not one for each batch.
    gap = f.struct(f.col("offset").alias("first"), "last")
    broken = rows.where(is_problem).groupBy("topic", "partition")
    gaps = broken.agg(f.collect_list(gap).alias("gaps"))
    found = f.collect_list(f.struct("replica", "last", "checksum", "problem"))
    grouped = rows.groupBy("topic", "partition", "offset").agg(
        f.sort_array(found).alias("found"),
        f.count_distinct("last", "checksum").alias("kinds"),
        f.count_if(is_problem).alias("problems"),
    )
    grouped = grouped.join(f.broadcast(expected), ["topic", "partition"])
    grouped = grouped.join(f.broadcast(gaps), ["topic", "partition"], "left")
    offset = f.col("offset")
    within = f.filter("gaps", lambda gap: (offset > gap["first"]) & (offset <= gap["last"]))
    unread = f.when(f.col("gaps").isNull(), 0).otherwise(f.size(within))
    differs = (f.col("kinds") > 1) | (f.col("problems") > 0)
    differs |= f.size("found") + unread < f.col("replicas")
    return grouped.where(differs).select("topic", "partition", "offset", "found")
