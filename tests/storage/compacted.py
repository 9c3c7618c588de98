"""Compacted logs as tests of the cleaner want them: small segments, and what is in them."""

from dataclasses import replace

from sparkraft.records.record import decode_records
from tests.storage.worlds import (
    SMALL,
)

DAY_MS = 86_400_000
COMPACT = replace(
    SMALL,
    segment_bytes=500,
    index_interval_bytes=100,
    compact=True,
    delete=False,
    min_cleanable_dirty_ratio=0.01,
    delete_retention_ms=DAY_MS,
)


def commit_all(log):
    """All so far is committed."""
    log.set_high_watermark(log.log_end_offset)


def settle(log):
    """All so far is inactive and committed."""
    log.roll()
    commit_all(log)


def records_of(log):
    """[(offset, key, value, timestamp)] of data records; as a reader meets them, in order."""
    found, offset = [], int(log.log_start_offset)
    for header, view in log.read_batches(offset, log.log_end_offset):
        assert header.base_offset >= offset
        offset = header.next_offset
        if header.is_control:
            continue
        found += [(r.offset, r.key, r.value, r.timestamp) for r in decode_records(view)]
    return found


def headers_of(log):
    """Of all batches."""
    return [header for header, _ in log.read_batches(log.log_start_offset, log.log_end_offset)]


def pairs(log):
    """[(offset, key, value)] of data records."""
    return [(offset, key, value) for offset, key, value, _ in records_of(log)]
