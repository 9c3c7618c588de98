"""Requests images and pages of the metadata log from one node, and replays them.

Only sparkraft's nodes serve these requests; Apache Kafka's close the connection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.cluster import check
from sparkraft.client.past.changes import leader_of
from sparkraft.client.past.decoding import metadata_record
from sparkraft.client.past.state import PastState
from sparkraft.client.quorum_admin import describes_quorum
from sparkraft.protocol.messages.k10005_describe_image import DescribeImageRequest
from sparkraft.protocol.messages.k10006_describe_metadata_log import DescribeMetadataLogRequest
from sparkraft.records.batch import iter_batches
from sparkraft.records.record import decode_records

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from sparkraft.client.cluster import Cluster
    from sparkraft.client.connection import Connection
    from sparkraft.records.batch import BatchHeader

REQUEST_MS_MAX = 120_000
"""Timeout of a request: a node may have to replay a long log for an image."""

PAGE_BYTES = 1 << 20

NO_METADATA_LOG = "a cluster in ZooKeeper mode has no metadata log"
NOT_SERVED = "the node closed the connection: only sparkraft's nodes serve earlier metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """The range of offsets that a node can describe.

    Attributes:
        cluster_id: the cluster's id.
        start_offset: the first offset in the log.
        high_watermark: the first offset that is not committed.
    """

    cluster_id: str
    start_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPage:
    """Batches of the log; `DescribeMetadataLogResponse` describes the fields.

    `diverging_end_offset` is -1 unless the log has other records than the client.
    """

    range: LogRange
    from_offset: int
    next_offset: int
    next_epoch: int
    next_ms: int
    diverging_end_offset: int
    records: bytes | memoryview

    def batches(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """The batches, each with its header."""
        return iter_batches(self.records, partial_tail=False)


class LogRecord(NamedTuple):
    """A record of the log, and the state it changes; a million are made in a row.

    Attributes:
        offset: of the record.
        epoch: its leader epoch.
        at_ms: when it was appended.
        record: the metadata record; None for a new leader epoch.
        leader_id: the new leader; -1 if `record` is set.
    """

    offset: int
    epoch: int
    at_ms: int
    record: Any = None
    leader_id: int = -1


_new = tuple.__new__
"""A named tuple without the call of its `__new__`."""


class PastReader:
    """Requests to one node, which keeps images between the pages of a request."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._connection: Connection | None = None

    async def image(self, *, at_offset: int = -1, at_ms: int = -1) -> tuple[PastState, LogRange]:
        """The cluster as of an offset and a time, -1 for the last committed.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE if the offset or time is deleted or not committed.
        """
        state = PastState()
        request = DescribeImageRequest(at_offset=at_offset, at_ms=at_ms)
        while True:
            answer = await self._send(request)
            for _, view in iter_batches(answer.records or b"", partial_tail=False):
                for record in decode_records(view):
                    state.apply(metadata_record(record.value or b""))
            if answer.next_cursor < 0:
                break
            request = DescribeImageRequest(
                at_offset=answer.offset, epoch=answer.epoch, cursor=answer.next_cursor
            )
        state.move_to(answer.offset, answer.epoch, answer.at_ms)
        state.leader_id = answer.leader_id
        return state, _range_of(answer)

    async def page(
        self,
        *,
        from_offset: int = -1,
        from_ms: int = -1,
        to_offset: int = -1,
        last_fetched_epoch: int = -1,
        max_bytes: int = PAGE_BYTES,
    ) -> LogPage:
        """A page of the log; `DescribeMetadataLogRequest` describes the arguments.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE if the offset is deleted or not committed.
        """
        request = DescribeMetadataLogRequest(
            from_offset=from_offset,
            from_ms=from_ms,
            to_offset=to_offset,
            last_fetched_epoch=last_fetched_epoch,
            max_bytes=max_bytes,
        )
        answer = await self._send(request)
        return LogPage(
            range=_range_of(answer),
            from_offset=answer.from_offset,
            next_offset=answer.next_offset,
            next_epoch=answer.next_epoch,
            next_ms=answer.next_ms,
            diverging_end_offset=answer.diverging_end_offset,
            records=answer.records or b"",
        )

    async def records(
        self, state: PastState, *, from_offset: int, to_offset: int = -1
    ) -> AsyncIterator[LogRecord]:
        """Each record from `from_offset` to `to_offset`, exclusive, -1 for all that is committed.

        `state` must be the one before `from_offset`; each record is applied after it was yielded.
        """
        position = from_offset
        while to_offset < 0 or position < to_offset:
            page = await self.page(from_offset=position, to_offset=to_offset)
            for header, view in page.batches():
                for each in records_of(header, view, range(position, _end_of(to_offset))):
                    yield each
                    apply_to(state, each)
            if page.next_offset <= position:
                return
            position = page.next_offset
            if position >= page.range.high_watermark:
                return

    async def _send(self, request: Any) -> Any:
        if self._connection is None or self._connection.is_closed:
            self._connection = await self._cluster.any_connection()
        if not describes_quorum(self._connection):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, NO_METADATA_LOG)
        try:
            answer = await self._connection.send(request, timeout_ms=REQUEST_MS_MAX)
        except KafkaError as error:
            if error.code is not ErrorCode.NETWORK_EXCEPTION:
                raise
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, NOT_SERVED) from error
        check(answer.error_code, answer.error_message)
        return answer


def _end_of(to_offset: int) -> int:
    return to_offset if to_offset >= 0 else 1 << 62


def _range_of(answer: Any) -> LogRange:
    return LogRange(
        cluster_id=answer.cluster_id,
        start_offset=answer.start_offset,
        high_watermark=answer.high_watermark,
    )


def records_of(header: BatchHeader, view: memoryview, wanted: range) -> Iterator[LogRecord]:
    """The records of a batch whose offsets are in `wanted`."""
    epoch, at_ms, is_control = (
        header.partition_leader_epoch,
        header.max_timestamp,
        header.is_control,
    )
    for offset, _, key, value, _ in decode_records(view):
        if offset not in wanted:
            continue
        if not is_control:
            yield _new(LogRecord, (offset, epoch, at_ms, metadata_record(value or b""), -1))
            continue
        leader_id = leader_of(key, value)
        if leader_id is not None:
            yield LogRecord(offset=offset, epoch=epoch, at_ms=at_ms, leader_id=leader_id)


def apply_to(state: PastState, each: LogRecord) -> None:
    """Apply a record of the log to the state before it."""
    if each.record is not None:
        state.apply(each.record)
    else:
        state.leader_id = each.leader_id
    state.move_to(each.offset, each.epoch, each.at_ms)
