"""A partition being read: its position, and the visible records of what was fetched."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import DecodeError
from sparkraft.client.errors import UnreadableBatchError
from sparkraft.records.batch import crc_ok, iter_batches
from sparkraft.records.control import ControlType, parse_control_key
from sparkraft.records.record import decode_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparkraft.base.ids import TopicPartition
    from sparkraft.records.batch import BatchHeader
    from sparkraft.records.record import Record


@dataclass(frozen=True, slots=True)
class ConsumedRecord:
    """A record and its place.

    Attributes:
        timestamp_type: 0 for create time, 1 for append time.
        batch: the header of its batch; None for a record that was not read from a log.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    leader_epoch: int
    batch: BatchHeader | None = field(default=None, repr=False, compare=False)


class Reading:
    """A partition being read."""

    __slots__ = (
        "epoch",
        "high_watermark",
        "is_paused",
        "pending",
        "position",
        "preferred",
        "preferred_until",
    )

    def __init__(self) -> None:
        self.position: int | None = None
        self.pending: Iterator[ConsumedRecord] | None = None
        self.is_paused = False
        self.high_watermark = -1
        self.epoch = 0
        """Counts seeks: a fetch of an older epoch is dropped."""
        self.preferred: int | None = None
        """The follower to read from, until the loop's time `preferred_until`."""
        self.preferred_until = 0.0


def visible_records(
    tp: TopicPartition, reading: Reading, entry: Any, *, read_committed: bool, check_crcs: bool
) -> Iterator[ConsumedRecord]:
    """The visible records of a fetched partition from the position on, decoded one by one.

    Moves the position past batches that show nothing, so that the next fetch starts there.

    Args:
        tp: the partition.
        reading: its position.
        entry: its part of the Fetch response.
        read_committed: leave out records of aborted transactions.
        check_crcs: whether a batch must pass its CRC.

    Raises:
        UnreadableBatchError: a batch fails its CRC, or its records cannot be decoded.
    """
    start = reading.position or 0
    aborted = sorted(
        ((a.first_offset, a.producer_id) for a in entry.aborted_transactions or ()),
    )
    hidden: set[int] = set()
    for header, batch in iter_batches(entry.records):
        if check_crcs and not crc_ok(batch):
            raise _unreadable(tp, header, "it fails its CRC")
        while aborted and aborted[0][0] <= header.last_offset:
            hidden.add(aborted.pop(0)[1])
        if header.is_control:
            _end_transaction(batch, header.producer_id, hidden)
        elif header.last_offset >= start and not (
            read_committed and header.is_transactional and header.producer_id in hidden
        ):
            for record in _decoded(tp, header, batch):
                if record.offset >= start:
                    yield ConsumedRecord(
                        tp[0],
                        tp[1],
                        record.offset,
                        record.timestamp,
                        header.timestamp_type,
                        record.key,
                        record.value,
                        record.headers,
                        header.partition_leader_epoch,
                        header,
                    )
        reading.position = max(reading.position or 0, header.next_offset)


def _decoded(tp: TopicPartition, header: BatchHeader, batch: memoryview) -> Iterator[Record]:
    try:
        yield from decode_records(batch)
    except DecodeError as error:
        raise _unreadable(tp, header, error) from error


def _unreadable(tp: TopicPartition, header: BatchHeader, reason: object) -> UnreadableBatchError:
    return UnreadableBatchError(
        tp[0], tp[1], int(header.base_offset), int(header.next_offset), reason
    )


def _end_transaction(batch: memoryview, producer_id: int, hidden: set[int]) -> None:
    """An abort marker ends the hiding of its producer's records."""
    for record in decode_records(batch):
        if parse_control_key(record.key) is ControlType.ABORT:
            hidden.discard(producer_id)


def is_unset(position: int | None) -> bool:
    """Whether it is not yet an offset: unknown, or the special timestamp of a beginning or end."""
    return position is None or position < 0
