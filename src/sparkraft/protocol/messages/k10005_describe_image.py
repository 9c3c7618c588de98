"""DescribeImage (key 10005): v0, flexible from v0. Ours; Kafka has no such request."""

from sparkraft.protocol.declare import Message, Records, int16, int32, int64, records, string


class DescribeImageRequest(Message, key=10_005, versions="0", flexible="0+"):
    """Requests the cluster's metadata as of an offset or a time, a page at a time.

    `at_offset` is the last record that counts, `at_ms` (wall clock) excludes batches appended
    later; -1 for everything committed. Later pages name the `offset` and `epoch` of the first
    response, and the `next_cursor` of the previous one.
    """

    at_offset: int = int64(default=-1)
    at_ms: int = int64(default=-1)
    epoch: int = int32(default=-1)
    cursor: int = int64()
    records_max: int = int32(default=5_000)


class DescribeImageResponse(Message, key=10_005, versions="0", flexible="0+"):
    """A page of the image: the metadata records of a snapshot, in batches.

    The cluster id, `offset` and `epoch` together identify the image: a log that was truncated has
    another epoch at the same offset. `at_ms` is the append time of that offset, `leader_id` the
    active controller of that epoch; both are -1 if unknown. Any offset from `start_offset` - 1 up
    to `high_watermark`, exclusive, can be requested. The base offset of the first batch is the
    cursor; `next_cursor` is -1 on the last page.
    """

    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    cluster_id: str = string()
    node_id: int = int32()
    start_offset: int = int64(default=-1)
    high_watermark: int = int64(default=-1)
    offset: int = int64(default=-1)
    epoch: int = int32(default=-1)
    at_ms: int = int64(default=-1)
    leader_id: int = int32(default=-1)
    next_cursor: int = int64(default=-1)
    records: Records | None = records(nullable=True)
