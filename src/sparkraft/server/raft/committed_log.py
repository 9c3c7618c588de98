"""Reads committed batches of the metadata log from disk, in pieces of bounded size.

Not here: the readers (`past_reader`, `past_images`, `past_topic_names`).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Offset
from sparkraft.base.loop_work import LoopBound
from sparkraft.protocol.codec import decode
from sparkraft.protocol.messages.raft_records import LeaderChangeMessage
from sparkraft.records.batch import BatchHeader, iter_batches
from sparkraft.records.control import ControlType
from sparkraft.storage.raft_log import control_records

if TYPE_CHECKING:
    from sparkraft.storage.raft_log import RaftLog

READ_BYTES: LoopBound = 1 << 18
"""Read at once: less than a millisecond from the page cache, and 3,000 batches of one record."""

NO_OP_END = b"\x08\x01\x14\x00\x00\x00"
"""The end of a batch with one NoOpRecord: value length 4 as a varint, the value, no headers. An
idle log has two per second; decoding them would dominate a read."""


class LogReader(Protocol):
    """The committed log to read from."""

    @property
    def log(self) -> "RaftLog":
        """Its files."""
        ...

    @property
    def high_watermark(self) -> Offset:
        """The first offset not known to be committed; -1 until one is known."""
        ...


def committed_end(reader: LogReader) -> Offset:
    """The end of the committed log on disk, exclusive; 0 if nothing is known to be committed.

    Committed records may not be written here yet, after a vote on a slow disk.
    """
    return Offset(max(0, min(reader.high_watermark, reader.log.end)))


def is_idle(header: BatchHeader, batch: memoryview) -> bool:
    """Whether a batch is a single NoOpRecord."""
    return header.records_count == 1 and batch[-len(NO_OP_END) :] == NO_OP_END


def committed_batches(
    log: "RaftLog", position: Offset, end: Offset
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Batches from the one that holds `position` to `end`, exclusive; each piece is read lazily.

    Raises:
        KafkaError: OFFSET_OUT_OF_RANGE if the log was cleaned during the read.
    """
    while position < end:
        before = position
        if position < log.start:
            raise cleaned()
        try:
            pieces = log.read(position, up_to=end, max_bytes=READ_BYTES)
        except FileNotFoundError as error:
            raise cleaned() from error
        for piece in pieces:
            for header, view in iter_batches(piece):
                yield header, view
                position = header.next_offset
        if position == before:
            return


def leader_of_epoch(log: "RaftLog", epoch: int) -> int:
    """The leader of an epoch, by the first record of that epoch; -1 if it is deleted."""
    first = next((offset for known, offset in log.epochs if known == epoch), -1)
    if first < log.start:
        return -1
    for header, view in log.batches(Offset(first), log.end):
        if header.is_control:
            for _, kind, value in control_records(view):
                if kind is ControlType.LEADER_CHANGE:
                    return decode(LeaderChangeMessage, value[1], value).leader_id
        break
    return -1


def cleaned() -> KafkaError:
    """The error of a read that the deletion of old segments overtook."""
    wrong = "the metadata log was cleaned during the read; retry"
    return KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, wrong)
