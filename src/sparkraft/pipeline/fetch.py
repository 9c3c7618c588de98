"""Reads ranges of offsets from the brokers that lead them, as Arrow batches.

One fetch is always on its way while the answer before it is decoded: its offsets are known from
batch headers alone. A fetch is sized to what is left of its range, so ten records don't cost
megabytes.

Invariants:
    * Within a range, records come in order of offset, each once.
    * A range is read to its end, or fails; it ends early only if `failOnDataLoss` is false, and
      then a warning is logged.

Not here: planning (`offsets`), the bytes (`decode`), sockets (`wire`).
"""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.pipeline import decode
from sparkraft.pipeline.options import Isolation
from sparkraft.pipeline.places import EARLIEST, LATEST
from sparkraft.pipeline.wire import PEER_GONE, check
from sparkraft.records.errors import CorruptRecords

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from sparkraft.base.ids import TopicPartition
    from sparkraft.pipeline.offsets import Range
    from sparkraft.pipeline.options import SourceOptions
    from sparkraft.pipeline.wire import Cluster, Connection

log = logging.getLogger(__name__)

_NAMES_VERSION_MAX: Final = 12
"""Fetch names topics up to this version and uses topic ids from the next one."""

_FIRST_GUESS_BYTES: Final = 1100
"""Assumed bytes a record before the first answer shows what they are."""

_FETCH_BYTES_MIN: Final = 16 << 10
"""Below this a fetch costs the same whatever its size."""

_SLACK: Final = 1.1
"""Ask for a little more than the estimate, so that the end of a range needs no second fetch."""

_NO_TOPIC: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


@dataclass(slots=True)
class _Cursor:
    """How far a range is read."""

    range: Range
    position: int
    decoder: decode.PartitionDecoder
    bytes_per_offset: float = _FIRST_GUESS_BYTES

    @property
    def is_done(self) -> bool:
        return self.position >= self.range.end

    @property
    def topic_partition(self) -> TopicPartition:
        return self.range.topic, self.range.partition

    def fetch_bytes(self, most: int) -> int:
        """How much to ask for."""
        left = (self.range.end - self.position) * self.bytes_per_offset * _SLACK
        return min(most, max(_FETCH_BYTES_MIN, int(left)))

    def advance(self, batches: Sequence[decode.Batch]) -> None:
        """Move past the last complete batch, and update the estimated record size."""
        covered = batches[-1].last_offset + 1 - batches[0].base_offset
        self.bytes_per_offset = (batches[-1].end - batches[0].at) / max(1, covered)
        self.position = batches[-1].last_offset + 1


class RangeReader:
    """Reads a task's ranges; `read` may be called once."""

    def __init__(self, cluster: Cluster, ranges: Sequence[Range], options: SourceOptions) -> None:
        """Prepare to read `ranges`."""
        self._cluster = cluster
        self._options = options
        self._committed_only = options.client.isolation is Isolation.READ_COMMITTED
        # Ranges of one partition are read one after the other: a fetch may name it only once.
        self._queued: dict[TopicPartition, deque[_Cursor]] = {}
        for each in ranges:
            decoder = decode.PartitionDecoder(
                each.topic,
                each.partition,
                columns=options.columns,
                aborted_hidden=self._committed_only,
            )
            queue = self._queued.setdefault((each.topic, each.partition), deque())
            queue.append(_Cursor(each, each.start, decoder))
        self._lost: _Cursor | None = None
        self._failures = 0
        self._progress_at = time.monotonic()

    def read(self) -> Iterator[pa.RecordBatch]:
        """All records of all ranges."""
        try:
            while self._queued:
                try:
                    yield from self._round()
                except KafkaError as error:
                    self._on_failure(error)
        finally:
            # A query may stop early: the response in flight will not be read.
            self._cluster.drop_half_used()

    def _round(self) -> Iterator[pa.RecordBatch]:
        """Read until every leader's partitions are done, or metadata must be refreshed."""
        led = self._cluster.by_leader(self._queued)
        sent: deque[tuple[Connection, list[TopicPartition]]] = deque()
        for leader, partitions in sorted(led.items()):
            connection = self._cluster.broker(leader)
            connection.send(self._request(partitions), version_max=_NAMES_VERSION_MAX)
            sent.append((connection, partitions))
        while sent:
            connection, partitions = sent.popleft()
            answer = connection.receive()
            check(answer.error_code, f"fetch from {connection.host}:{connection.port}")
            taken, failed = self._take(answer)
            partitions = [each for each in partitions if each in self._queued]
            if partitions and not failed:
                # Those that were last in this answer come first in the next: its size is bounded.
                partitions = partitions[1:] + partitions[:1]
                connection.send(self._request(partitions), version_max=_NAMES_VERSION_MAX)
                sent.append((connection, partitions))
            for cursor, start, records, batches, aborted in taken:
                found = decode.AbortedTransactions.of(aborted) if self._committed_only else None
                yield from cursor.decoder.decode(
                    records, batches, start=start, end=cursor.range.end, aborted=found
                )
            if failed:
                raise failed

    def _request(self, partitions: Sequence[TopicPartition]) -> Any:
        from sparkraft.protocol.messages import k01_fetch as message

        client = self._options.client
        topics = [
            message.FetchTopic(
                topic=topic,
                partitions=[
                    message.FetchPartition(
                        partition=number,
                        fetch_offset=self._queued[topic, number][0].position,
                        partition_max_bytes=self._queued[topic, number][0].fetch_bytes(
                            client.partition_fetch_bytes_max
                        ),
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in _in_turn(partitions)
        ]
        return message.FetchRequest(
            replica_id=-1,
            max_wait_ms=client.fetch_wait_ms_max,
            min_bytes=1,
            max_bytes=client.fetch_bytes_max,
            isolation_level=client.isolation.value,
            topics=topics,
        )

    def _take(self, answer: Any) -> tuple[list[Any], KafkaError | None]:
        """Advance the cursors; return the batches to decode, and an error to handle afterwards."""
        taken: list[Any] = []
        failed: KafkaError | None = None
        for topic in answer.responses:
            for partition in topic.partitions:
                key = topic.topic, partition.partition_index
                cursor = self._queued[key][0]
                try:
                    check(partition.error_code, f"fetch of {topic.topic}-{key[1]}")
                except KafkaError as error:
                    failed = error
                    self._lost = cursor
                    continue
                records = memoryview(partition.records or b"")
                batches = decode.scan(records)
                if batches:
                    start = cursor.position
                    cursor.advance(batches)
                    taken.append((cursor, start, records, batches, partition.aborted_transactions))
                    self._on_progress()
                self._finish(key)
        self._check_patience()
        return taken, failed

    def _finish(self, key: TopicPartition) -> None:
        """Drop a range that is done; the partition with its last one."""
        queue = self._queued[key]
        if queue[0].is_done:
            queue.popleft()
        if not queue:
            del self._queued[key]

    def _on_progress(self) -> None:
        self._failures = 0
        self._progress_at = time.monotonic()

    def _check_patience(self) -> None:
        waited_ms = (time.monotonic() - self._progress_at) * 1000
        if waited_ms < self._options.no_data_timeout_ms:
            return
        cursor = next(iter(self._queued.values()))[0]
        topic, partition = cursor.topic_partition
        raise TimeoutError(
            f"no data for {topic}-{partition} from offset {cursor.position} within "
            f"{self._options.no_data_timeout_ms} ms (kafkaConsumer.pollTimeoutMs)"
        )

    def _on_failure(self, error: KafkaError) -> None:
        """Try again after an error that may pass, unless it came too often without progress."""
        self._cluster.forget()
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and self._lost is not None:
            self._on_lost(self._lost)
            return
        if isinstance(error, CorruptRecords) or not error.code.is_retriable:
            raise error
        self._failures += 1
        if self._failures > self._options.client.retries_max:
            if error.code not in _NO_TOPIC or self._options.fail_on_data_loss:
                raise error
            log.warning("left out, failOnDataLoss is false: %s", error)
            self._queued.clear()
            return
        if error.code not in PEER_GONE:
            log.info("looking up leaders again: %s", error)
        time.sleep(self._options.client.retry_pause_ms / 1000)

    def _on_lost(self, cursor: _Cursor) -> None:
        """Handle a deleted offset: fail, or continue with the next one available."""
        key = cursor.topic_partition
        first = self._cluster.list_offsets({key: EARLIEST})[key]
        last = self._cluster.list_offsets({key: LATEST})[key]
        lost = data_loss(key, cursor.position, first, last)
        if self._options.fail_on_data_loss:
            raise DataLossError(lost)
        log.warning("%s", lost)
        cursor.position = first if cursor.position < first else cursor.range.end
        self._on_progress()
        self._finish(key)


class DataLossError(RuntimeError):
    """Records between the offsets of a batch were deleted."""


def data_loss(key: TopicPartition, wanted: int, first: int, last: int) -> str:
    """Return the message for missing offsets."""
    return (
        f"{key[0]}-{key[1]}: offset {wanted} is required, but the partition has {first} to {last}; "
        "records were deleted or the topic was recreated. Set failOnDataLoss=false to skip them"
    )


def _in_turn(partitions: Sequence[TopicPartition]) -> Iterator[tuple[str, list[int]]]:
    """Partitions under their topics; the first topic and partition stay the first."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return iter(grouped.items())
