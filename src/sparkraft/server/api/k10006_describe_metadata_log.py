"""DescribeMetadataLog: v0, ours. Committed records of the metadata log, with offsets and times.

Behaviour:
    * Every node responds from its own copy of the log, with record batches as Fetch returns them.
      Batches that change nothing are left out.
    * Without secrets: passwords, SCRAM keys, delegation tokens. A record that the session may not
      see is replaced by a NoOpRecord; see `metadata_visibility`.
    * An offset that is not retained, or not committed: OFFSET_OUT_OF_RANGE. If the record before
      `from_offset` has another epoch than the request names, the response has no records but a
      diverging epoch and its end offset, as for followers of the quorum (KIP-595).
    * A response has up to 1 MiB, and at least one batch if there is one.
Versions: v0 only; not advertised.    Not done: -
"""

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Millis, Offset
from sparkraft.base.loop_work import LoopBound
from sparkraft.metadata.redaction import SECRET_TYPES
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.framing import (
    METADATA_FRAME_VERSION,
    decode_metadata_record,
    encode_metadata_record,
)
from sparkraft.protocol.messages import k10006_describe_metadata_log as k10006
from sparkraft.protocol.messages.metadata_records import NoOpRecord
from sparkraft.records.record import BatchBuilder, decode_records
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_cluster, on_each
from sparkraft.server.api.metadata_visibility import MetadataVisibility
from sparkraft.server.api.registry import Api, RequestContext, Steps
from sparkraft.server.raft.committed_log import committed_batches, committed_end, is_idle

if TYPE_CHECKING:
    from sparkraft.records.batch import BatchHeader
    from sparkraft.storage.raft_log import RaftLog

RESPONSE_BYTES_MAX = 1 << 20

BATCHES_MAX = 20_000
"""Batches read for one response: an idle log has many that are left out."""

RECORD_UNITS = 8
"""Units of work of a record that is decoded, checked and encoded."""

SEARCH_BYTES: LoopBound = 1 << 17

SEARCH_UNITS = 50
"""Units of work of a search in that many bytes; most batches have a hundred."""

_SECRET_FRAMES = [bytes((METADATA_FRAME_VERSION, key)) for key in sorted(SECRET_TYPES)]
"""The first bytes of records that may contain secrets. Other batches are returned as they are."""

_FRAME_BYTES = len(_SECRET_FRAMES[0])

SKIP_UNITS = 2
"""Units of work of a record that is not decoded: the session may see it, and it has no secrets."""

_NO_OP = encode_metadata_record(NoOpRecord(), 0)


def handle(
    node: Any,
    context: RequestContext,
    request: k10006.DescribeMetadataLogRequest,
) -> Steps:
    raft, log = node.raft, node.raft.log
    committed = committed_end(raft)
    response = k10006.DescribeMetadataLogResponse(
        error_message=None,
        cluster_id=node.cluster_id,
        node_id=node.node_id,
        start_offset=log.start,
        high_watermark=committed,
    )
    first = _first_offset(log, request, committed)
    diverging = _diverging(log, first, request.last_fetched_epoch)
    if diverging is not None:
        response.diverging_epoch, response.diverging_end_offset = diverging
        return response
    if not log.start <= first <= committed:
        wrong = f"offset {first} is not within [{log.start}, {committed}]"
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, wrong)
    end = committed if request.to_offset < 0 else min(Offset(request.to_offset), committed)
    names = (yield from raft.past_topic_names.names()) if _is_restricted(context) else {}
    page = _Page(first, MetadataVisibility(context, names))
    size_max = min(max(1, request.max_bytes), RESPONSE_BYTES_MAX)
    yield from page.fill(log, end, committed, size_max)
    response.from_offset, response.next_offset = first, page.next_offset
    response.next_epoch, response.next_ms = page.next_epoch, page.next_ms
    response.records = page.batches
    return response


def _is_restricted(context: RequestContext) -> bool:
    return not context.session.authorizer.allows_all


def _first_offset(
    log: "RaftLog", request: k10006.DescribeMetadataLogRequest, committed: Offset
) -> Offset:
    if request.from_ms >= 0:
        return log.offset_at(Millis(request.from_ms), up_to=committed)
    return log.start if request.from_offset < 0 else Offset(request.from_offset)


def _diverging(log: "RaftLog", first: Offset, epoch: int) -> tuple[int, int] | None:
    """The epoch and end offset that this log has instead of the client's, as in KIP-595."""
    if epoch < 0 or first <= log.start:
        return None
    # An epoch above all known ones: everything in this log may be the same.
    found, end = log.end_offset_for_epoch(epoch) or (log.epoch_of(Offset(log.end - 1)), log.end)
    return None if found == epoch and end >= first else (found, end)


class _Page:
    """The batches of one response, and the position that they reach."""

    def __init__(self, first: Offset, visibility: MetadataVisibility) -> None:
        self.next_offset = first
        self.next_epoch = -1
        self.next_ms = -1
        self.batches: list[bytes | memoryview] = []
        self._visibility = visibility

    def fill(
        self, log: "RaftLog", end: Offset, committed: Offset, size_max: int
    ) -> Generator[int, None, None]:
        """Take batches below `end`, exclusive, up to `size_max` bytes; at least one."""
        size = 0
        # Read up to `committed`: a batch that contains `end` would not be read otherwise.
        for count, (header, view) in enumerate(committed_batches(log, self.next_offset, committed)):
            full = size and size + len(view) > size_max
            if header.base_offset >= end or full or count == BATCHES_MAX:
                return
            batch = yield from self._shown(header, view)
            if batch is not None:
                self.batches.append(batch)
                size += len(batch)
            self.next_offset = header.next_offset
            self.next_epoch = header.partition_leader_epoch
            self.next_ms = header.max_timestamp

    def _shown(
        self, header: "BatchHeader", view: memoryview
    ) -> Generator[int, None, bytes | memoryview | None]:
        """The batch as the session may see it; None if it would change nothing."""
        yield 1
        if is_idle(header, view):
            return None
        if header.is_control:
            return view
        if self._visibility.is_unrestricted and not (yield from _may_contain_secrets(view)):
            return view
        shown: list[tuple[int, bytes]] = []
        is_changed, is_empty = False, True
        for record in decode_records(view):
            value = after = record.value or b""
            # The bytes of a frame may also be within a record, as they are in a change of a leader.
            is_decoded = not self._visibility.is_unrestricted or (
                value[:_FRAME_BYTES] in _SECRET_FRAMES
            )
            if is_decoded:
                after = self._shown_value(value)
            is_changed = is_changed or after != value
            is_empty = is_empty and after == _NO_OP
            shown.append((record.timestamp, after))
            yield RECORD_UNITS if is_decoded else SKIP_UNITS
        if is_empty:
            return None
        return (yield from _built(header, shown)) if is_changed else view

    def _shown_value(self, value: bytes) -> bytes:
        record, _ = decode_metadata_record(value)
        shown: Any = self._visibility.shown(record)
        if shown is None:
            return _NO_OP
        # Records with secrets have only one version.
        return value if shown is record else encode_metadata_record(shown, 0)


def _built(header: "BatchHeader", records: list[tuple[int, bytes]]) -> Generator[int, None, bytes]:
    builder = BatchBuilder(
        base_offset=header.base_offset, leader_epoch=header.partition_leader_epoch
    )
    for timestamp, value in records:
        builder.append(timestamp, None, value)
        yield SKIP_UNITS
    return builder.build()


def _may_contain_secrets(view: memoryview) -> Generator[int, None, bool]:
    for at in range(0, len(view), SEARCH_BYTES):
        # One more byte: a frame may begin with the last one.
        content = bytes(view[at : at + SEARCH_BYTES + 1])
        if any(frame in content for frame in _SECRET_FRAMES):
            return True
        yield len(content) // SEARCH_BYTES * SEARCH_UNITS
    return False


API = Api(
    key=ApiKey.DESCRIBE_METADATA_LOG,
    handle=handle,
    zookeeper=False,
    authorize=(
        on_cluster(AclOperation.DESCRIBE),
        on_each(AclOperation.DESCRIBE, AclResourceType.TOPIC),
    ),
    controller=True,
)
