"""DescribeImage: v0, ours. The cluster's metadata as of an earlier offset or time.

Behaviour:
    * Every node responds from its own copy of the log. The image is returned as the records of a
      snapshot (KIP-630), in pages; cluster id, offset and epoch identify it.
    * Without secrets: passwords, SCRAM keys, delegation tokens. Records that the session may not
      see are left out; see `metadata_visibility`.
    * A time or offset that is not retained, or not committed: OFFSET_OUT_OF_RANGE. Another epoch
      at that offset than the request names: SNAPSHOT_NOT_FOUND. A cursor past the last record:
      POSITION_OUT_OF_RANGE. Four images are made at a time; more requests: REQUEST_TIMED_OUT.
Versions: v0 only; not advertised.    Not done: -
"""

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.framing import encode_metadata_record
from sparkraft.protocol.messages import k10005_describe_image as k10005
from sparkraft.records.record import BatchBuilder
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_cluster, on_each
from sparkraft.server.api.metadata_visibility import MetadataVisibility
from sparkraft.server.api.registry import Api, RequestContext, Steps
from sparkraft.server.raft.committed_log import committed_end, leader_of_epoch
from sparkraft.server.raft.past_images import END

if TYPE_CHECKING:
    from sparkraft.base.ids import Uuid
    from sparkraft.metadata.snapshot import Pieces
    from sparkraft.server.raft.past_images import PastImage

RECORDS_MAX = 5_000
"""Records in one response: about half a megabyte."""

RESPONSE_BYTES_MAX = 1 << 20

BATCH_RECORDS = 500

RECORD_UNITS = 8
"""Units of work of a record that is made, checked and encoded."""


def handle(
    node: Any,
    context: RequestContext,
    request: k10005.DescribeImageRequest,
) -> Steps:
    raft = node.raft
    past: PastImage = yield from raft.past_images.image_at(
        at_offset=request.at_offset, at_ms=request.at_ms, current=node.image
    )
    image = past.image
    if request.epoch >= 0 and request.epoch != image.epoch:
        wrong = f"offset {image.offset} has epoch {image.epoch}, not {request.epoch}"
        raise KafkaError(ErrorCode.SNAPSHOT_NOT_FOUND, wrong)
    response = k10005.DescribeImageResponse(
        error_message=None,
        cluster_id=node.cluster_id,
        node_id=node.node_id,
        start_offset=raft.log.start,
        high_watermark=committed_end(raft),
        offset=image.offset,
        epoch=image.epoch,
        at_ms=past.at_ms,
        leader_id=leader_of_epoch(raft.log, image.epoch),
    )
    names: dict[Uuid, str] = {}
    if not context.session.authorizer.allows_all:
        for topic_id, topic in image.topics_by_id.items():
            names[topic_id] = topic.name
            yield 1
    visibility = MetadataVisibility(context, names)
    cursor = max(0, request.cursor)
    records = yield from past.take_records(cursor)
    page = _Page(cursor)
    yield from page.fill(records, visibility, min(max(1, request.records_max), RECORDS_MAX))
    response.records = page.batches
    if not page.is_last:
        response.next_cursor = page.cursor
        past.return_records(records, page.cursor)
    return response


class _Page:
    """The batches of one response.

    Attributes:
        cursor: the number of the next record.
        is_last: whether the image has no more records.
    """

    def __init__(self, cursor: int) -> None:
        self.cursor = cursor
        self.batches: list[bytes | memoryview] = []
        self.is_last = False

    def fill(
        self, records: "Pieces", visibility: MetadataVisibility, limit: int
    ) -> Generator[int, None, None]:
        """Take up to `limit` records, or `RESPONSE_BYTES_MAX`."""
        end, size = self.cursor + limit, 0
        while self.cursor < end and size < RESPONSE_BYTES_MAX and not self.is_last:
            batch_end = min(end, self.cursor + BATCH_RECORDS)
            batch = yield from self._batch(records, visibility, batch_end)
            if batch:
                self.batches.append(batch)
                size += len(batch)

    def _batch(
        self, records: "Pieces", visibility: MetadataVisibility, end: int
    ) -> Generator[int, None, bytes]:
        first = self.cursor
        builder = BatchBuilder(base_offset=first)
        while self.cursor < end:
            found: Any = next(records, END)
            if found is END:
                self.is_last = True
                break
            if found is None:
                yield RECORD_UNITS
                continue
            record, version = found
            shown = visibility.shown(record)
            if shown is not None:
                # Records with secrets have only one version.
                value = encode_metadata_record(shown, version if shown is record else 0)
                builder.append(0, None, value, offset_delta=self.cursor - first)
            self.cursor += 1
            yield RECORD_UNITS
        return builder.build()


API = Api(
    key=ApiKey.DESCRIBE_IMAGE,
    handle=handle,
    zookeeper=False,
    authorize=(
        on_cluster(AclOperation.DESCRIBE),
        on_each(AclOperation.DESCRIBE, AclResourceType.TOPIC),
    ),
    controller=True,
)
