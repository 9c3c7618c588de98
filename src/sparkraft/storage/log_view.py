"""The reading side of a log: its bounds, its batches by offset, its offsets by time and epoch.

`PartitionLog` (`storage.log`) adds everything that changes a log; threads and faults are explained
there.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from sparkraft.base.env import Clock, Entropy
from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import LeaderEpoch, Offset, Uuid
from sparkraft.records.batch import BatchHeader, iter_batches
from sparkraft.records.errors import CorruptRecords
from sparkraft.storage.config import LogConfig
from sparkraft.storage.disk import Disk, FilePart, StorageFault
from sparkraft.storage.epochs import LeaderEpochs
from sparkraft.storage.index import AbortedTransaction
from sparkraft.storage.producers import Producers, ProducerState
from sparkraft.storage.segment import Segment
from sparkraft.storage.segments import Segments

if TYPE_CHECKING:
    from threading import Lock

    from sparkraft.records.validate import Rules

_SCAN_BYTES = 1 << 20
"""Read at a time by those who walk whole batches."""


class ReadResult(NamedTuple):
    """Bytes for a fetch; hand the pieces on without joining them."""

    pieces: Sequence[bytes | memoryview]
    size: int


class FoundOffset(NamedTuple):
    """Answer of a search by time."""

    timestamp: int
    offset: int
    leader_epoch: int
    """-1 if unknown."""


NOTHING = ReadResult([], 0)
"""A read of no bytes."""
_marker_offset = attrgetter("last_offset")
NO_HINT = (-1, -1, None)


def _ignore() -> None:
    """Take no note."""


class LogKeeper(Protocol):
    """Keeps checkpoints about a log."""

    def on_truncated(self, log: "ReadableLog") -> None:
        """Called when a log lost its tail: before files are deleted, and before an append."""
        ...

    def on_damaged(self, log: "ReadableLog", detail: str) -> None:
        """Called when a reader met bytes in the log that are not a valid batch."""
        ...


class ReadableLog:
    """See the module's docstring; made only as a `PartitionLog`."""

    __slots__ = (
        "_clock",
        "_disk",
        "_epochs",
        "_fault",
        "_flush_lock",
        "_flush_point",
        "_metadata_pending",
        "_metadata_unsynced",
        "_producers",
        "_rules",
        "_segments",
        "_tail_hint",
        "_truncations",
        "high_watermark",
        "keeper",
        "last_flush_ms",
        "log_dir",
        "log_end_offset",
        "log_start_offset",
        "on_start_moved",
        "partition",
        "recovery_point",
        "topic",
        "topic_id",
    )

    def __init__(  # noqa: PLR0913 (what a log is made of; only recovery calls it)
        self,
        *,
        disk: Disk,
        clock: Clock,
        entropy: Entropy,
        log_dir: str,
        directory: str,
        topic: str,
        partition: int,
        topic_id: Uuid | None,
        config: LogConfig,
        segments: list[Segment],
        epochs: LeaderEpochs,
        producers: Producers,
        snapshots: list[int],
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
    ) -> None:
        """Put the recovered parts together; at least one segment."""
        self._disk = disk
        self._clock = clock
        self.log_dir = log_dir
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self._rules = config.rules
        self._segments = Segments(
            disk, directory, segments, snapshots, config=config, entropy=entropy
        )
        self._epochs = epochs
        self._producers = producers
        self.log_start_offset = Offset(log_start_offset)
        self.log_end_offset = Offset(log_end_offset)
        self.high_watermark = Offset(log_start_offset)
        self.recovery_point = Offset(recovery_point)
        self.last_flush_ms = clock.wall_ms()
        self.keeper: LogKeeper | None = None
        """Keeps the checkpoints of the log's directory."""
        self.on_start_moved: Callable[[], None] = _ignore
        """Called on the log's thread after `log_start_offset` has advanced."""
        # Guards `recovery_point` between `flush` and truncation; made at the first of these,
        # because most of a node's logs are idle.
        self._flush_lock: Lock | None = None
        self._flush_point = log_end_offset
        self._fault: StorageFault | None = None
        self._metadata_pending = False
        # The run that wrote it may have stopped before there was a record to sync it with.
        self._metadata_unsynced = topic_id is not None
        # Position of the last read that reached the log's end: offset, position, segment.
        self._tail_hint: tuple[int, int, Segment | None] = NO_HINT
        self._truncations = 0

    # -- known values ----------------------------------------------------------------------------

    def __repr__(self) -> str:
        """Name and bounds."""
        return (
            f"PartitionLog({self.topic}-{self.partition} start={self.log_start_offset} "
            f"HW={self.high_watermark} LEO={self.log_end_offset})"
        )

    @property
    def config(self) -> LogConfig:
        """The topic's settings; assign to change them."""
        return self._segments.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._segments.config = config
        self._rules = config.rules

    def configure(self, config: LogConfig) -> None:
        """Use another config from now on."""
        self.config = config

    @property
    def directory(self) -> str:
        """The directory of its files."""
        return self._segments.directory

    @property
    def name(self) -> str:
        """`topic-partition`."""
        return f"{self.topic}-{self.partition}"

    @property
    def size_in_bytes(self) -> int:
        """Bytes of all batches."""
        return self._segments.size_in_bytes

    @property
    def segment_count(self) -> int:
        """Number of segments, at least one."""
        return len(self._segments)

    @property
    def segment_base_offsets(self) -> list[int]:
        """Base offsets of the segments, rising."""
        return self._segments.bases

    @property
    def active_base(self) -> int:
        """Base offset of the segment that takes appends."""
        return self._segments.active.base_offset

    @property
    def segments(self) -> list[Segment]:
        """The segments as they are now; the last one takes appends."""
        return list(self._segments)

    @property
    def latest_epoch(self) -> LeaderEpoch | None:
        """Return the newest leader epoch; None if none is known."""
        latest = self._epochs.latest
        return None if latest is None else LeaderEpoch(latest)

    @property
    def leader_epochs(self) -> list[tuple[int, int]]:
        """(epoch, start offset), rising."""
        return self._epochs.entries

    @property
    def last_stable_offset(self) -> Offset:
        """First offset of an unfinished transaction, at most the high watermark."""
        unstable = self._producers.first_unstable_offset
        if unstable is None or unstable > self.high_watermark:
            return self.high_watermark
        return Offset(max(unstable, self.log_start_offset))

    @property
    def fault(self) -> StorageFault | None:
        """The fault that made the log unusable, if any."""
        return self._fault

    @property
    def unflushed_messages(self) -> int:
        """Offsets from the recovery point to the log end offset."""
        return self.log_end_offset - self.recovery_point

    @property
    def needs_sync(self) -> bool:
        """Whether a power loss might take records, or bring back what was cut."""
        return self.unflushed_messages > 0 or self._segments.cut_unsynced

    def report_starts(self, report: Callable[[], None] | None) -> None:
        """Call `report` after each advance of the log start offset; None: no longer."""
        self.on_start_moved = report or _ignore

    @property
    def rules(self) -> "Rules":
        """The rules for a leader's appends, from the topic's configs."""
        return self._rules

    @property
    def truncations(self) -> int:
        """How often records were truncated: equal offsets before and after may differ."""
        return self._truncations

    def active_producers(self) -> list[ProducerState]:
        """The idempotent and transactional producers known here, by id (DescribeProducers)."""
        return list(self._producers)

    @property
    def producers(self) -> Producers:
        """All that is known of producers; for those who look at one before they append."""
        return self._producers

    def expire_producers(self, now_ms: int) -> None:
        """Forget producers idle for longer than `producer.id.expiration.ms`."""
        self._producers.expire(now_ms, self.config.producer_id_expiration_ms)

    # -- reading ---------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        up_to: int,
        min_one_batch: bool = True,
        to_send: bool = False,
    ) -> ReadResult:
        """Batches from the one that holds `offset`, of one segment.

        Args:
            offset: from the log start offset to the log end offset.
            max_bytes: most bytes to read; the last batch may be cut off, as in Kafka.
            up_to: only batches that end below it (high watermark, last stable or log end offset).
            min_one_batch: the first batch comes whole even if it is larger than `max_bytes`.
            to_send: the pieces are for a socket alone, and may be mapped (`Disk.view`).

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE; CORRUPT_MESSAGE if the file is damaged.
            StorageFault: the disk failed.
        """
        if self._fault is not None:
            raise self._refusal()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within [{self.log_start_offset}, {self.log_end_offset}]",
            )
        if offset >= up_to:
            return NOTHING
        try:
            return self._read(
                offset, max_bytes, up_to, min_one_batch=min_one_batch, to_send=to_send
            )
        except OSError as error:
            raise self._fail("read from", error) from error
        except CorruptRecords as error:
            self.report_damage(error.detail)
            raise

    def cold_part(
        self, offset: int, *, max_bytes: int, up_to: int, to_send: bool
    ) -> FilePart | None:
        """The part of a file to warm next (`Disk.warm`), so that `read` does not wait for a device.

        None if `read` does not wait with these arguments, or fails. Ask again when it is warm:
        places in a segment are known only once its indexes can be read.
        """
        if self._fault is not None or not self.log_start_offset <= offset < up_to:
            return None
        segments = self._segments
        hinted, position, segment = self._tail_hint
        try:
            if hinted == offset and segment is segments.active:
                return segment.cold_bytes(position, max_bytes, to_send=to_send, grows=True)
            return segments.cold_part(
                offset, up_to, self.log_end_offset, max_bytes, to_send=to_send
            )
        except (OSError, CorruptRecords):
            return None

    def _read(
        self, offset: int, max_bytes: int, up_to: int, *, min_one_batch: bool, to_send: bool
    ) -> ReadResult:
        if max_bytes <= 0 and not min_one_batch:
            return NOTHING
        segments = self._segments
        if self._tail_hint[0] == offset and self._tail_hint[2] is segments.active:
            index, position = len(segments) - 1, self._tail_hint[1]
            header = segments.active.header_at(position) if min_one_batch else None
            first_size = 0 if header is None else header.size_in_bytes
        else:
            found = segments.find(offset)
            if found is None:
                return NOTHING
            index, position, first_size = found
        limit = segments.limit(index, up_to, self.log_end_offset)
        wanted = max(max_bytes, first_size) if min_one_batch else max_bytes
        size = min(wanted, limit - position)
        if size <= 0:
            return NOTHING
        segment = segments.at(index)
        if to_send:
            pieces = segment.view(position, size, grows=segment is segments.active)
            result = ReadResult(pieces, sum(map(len, pieces)))
        else:
            data = segment.read(position, size)
            result = ReadResult([data], len(data))
        if segment is segments.active and position + size == segment.size:
            self._tail_hint = (self.log_end_offset, segment.size, segment)
        return result

    def read_batches(self, offset: int, up_to: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Whole batches from the one that holds `offset` to `up_to`, across segments."""
        while offset < up_to:
            pieces, size = self.read(offset, max_bytes=_SCAN_BYTES, up_to=up_to)
            if size == 0:
                return
            for header, view in iter_batches(pieces[0]):
                yield header, view
                offset = header.last_offset + 1

    def aborted_transactions(self, offset: int, up_to: int) -> list[AbortedTransaction]:
        """Aborted transactions that overlap [offset, up_to), for read_committed fetches."""
        found: list[AbortedTransaction] = []
        for segment in self._segments.from_offset(offset):
            aborted = segment.aborted
            first = bisect_left(aborted, offset, key=_marker_offset)
            for entry in islice(aborted, first, None):
                if entry.first_offset < up_to:
                    found.append(entry)
                if entry.last_stable_offset >= up_to:
                    return found
        return found

    def aborted_in(self, offset: int, size: int, up_to: int) -> list[AbortedTransaction]:
        """The same for the records that `read(offset)` gave, `size` bytes of them.

        May include some that begin slightly later, because the bound comes from the index (Kafka's
        fetchUpperBoundOffset).
        """
        if size == 0 or not any(segment.aborted for segment in self._segments.from_offset(offset)):
            return []
        return self.aborted_transactions(offset, min(up_to, self._segments.bound_of(offset, size)))

    # -- searching -------------------------------------------------------------------------------

    def offset_for_timestamp(
        self, timestamp: int, *, up_to: int | None = None
    ) -> FoundOffset | None:
        """The first record whose time is at or after `timestamp` (ListOffsets by time).

        Args:
            timestamp: ms since 1970, not negative.
            up_to: only records below it; None for all.
        """
        bound = self.log_end_offset if up_to is None else up_to
        try:
            found = self._segments.first_at_or_after(timestamp, self.log_start_offset, bound)
        except OSError as error:
            raise self._fail("search", error) from error
        return None if found is None else FoundOffset(*found)

    def offset_of_max_timestamp(self) -> FoundOffset | None:
        """The first record with the largest timestamp (KIP-734); None in an empty log."""
        try:
            found = self._segments.of_max_timestamp(self.log_start_offset)
        except OSError as error:
            raise self._fail("search", error) from error
        return None if found is None else FoundOffset(*found)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        """Return (largest epoch at or below `epoch`, its end offset); None if unknown."""
        return self._epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_of(self, offset: int) -> int | None:
        """The leader epoch in which `offset` was written."""
        return self._epochs.epoch_of(offset)

    def report_damage(self, detail: str) -> None:
        """Report damaged bytes to the log's keeper; nothing is truncated."""
        if self.keeper is not None:
            self.keeper.on_damaged(self, detail)

    # -- faults ----------------------------------------------------------------------------------

    def _fail(self, operation: str, error: OSError) -> StorageFault:
        self._fault = StorageFault(self.log_dir, f"{operation} {self.name}", error)
        return self._fault

    def take_offline(self, fault: StorageFault) -> None:
        """Refuse everything from now on: the log's directory failed elsewhere."""
        self._fault = self._fault or fault

    def _refusal(self) -> KafkaError:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(self._fault))
