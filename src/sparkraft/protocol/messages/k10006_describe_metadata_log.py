"""DescribeMetadataLog (key 10006): v0, flexible from v0. Ours; Kafka has no such request."""

from sparkraft.protocol.declare import Message, Records, int16, int32, int64, records, string


class DescribeMetadataLogRequest(Message, key=10_006, versions="0", flexible="0+"):
    """Requests committed records of the metadata log, a page at a time.

    `from_offset` is inclusive, -1 for the log start; `from_ms` (wall clock), if not negative, is
    used instead and selects the first batch appended at or after that time. `to_offset` is
    exclusive, -1 for everything committed. `last_fetched_epoch` is the epoch of the record before
    `from_offset` as the client knows it, -1 if it knows none (KIP-595).
    """

    from_offset: int = int64(default=-1)
    from_ms: int = int64(default=-1)
    to_offset: int = int64(default=-1)
    last_fetched_epoch: int = int32(default=-1)
    max_bytes: int = int32(default=1_048_576)


class DescribeMetadataLogResponse(Message, key=10_006, versions="0", flexible="0+"):
    """Batches of the log from `from_offset` up to `next_offset`, exclusive.

    Batches are whole, so the first and the last one may have records outside of the range. Those
    that change nothing are left out; `next_offset` includes them, and `next_epoch` and
    `next_ms` are the epoch and append time of the record before it (-1 if none was read). If the
    log has another epoch before `from_offset`, `diverging_epoch` and `diverging_end_offset` are
    set, as in a Fetch response of the quorum: the client's records from that end offset on are not
    in this log.
    """

    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    cluster_id: str = string()
    node_id: int = int32()
    start_offset: int = int64(default=-1)
    high_watermark: int = int64(default=-1)
    diverging_epoch: int = int32(default=-1)
    diverging_end_offset: int = int64(default=-1)
    from_offset: int = int64(default=-1)
    next_offset: int = int64(default=-1)
    next_epoch: int = int32(default=-1)
    next_ms: int = int64(default=-1)
    records: Records | None = records(nullable=True)
