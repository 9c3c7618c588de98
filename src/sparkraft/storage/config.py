"""A log's settings; Kafka's topic configs with their units.

Not here: parsing and validating configs (`sparkraft.metadata.configs`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sparkraft.records.compression import Codec
from sparkraft.records.validate import Rules

INT64_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """One topic's settings; immutable, so logs share it."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    retention_bytes: int = -1
    """-1: no limit."""
    retention_ms: int = 604_800_000
    """-1: no limit."""
    file_delete_delay_ms: int = 60_000
    max_message_bytes: int = 1_048_588
    compression: Codec | None = None
    """`compression.type`; None is `producer`."""
    compression_level: int | None = None
    log_append_time: bool = False
    """`message.timestamp.type=LogAppendTime`."""
    timestamp_before_max_ms: int = INT64_MAX
    timestamp_after_max_ms: int = 3_600_000
    compact: bool = False
    delete: bool = True
    """Both may hold: `cleanup.policy=compact,delete`."""
    delete_retention_ms: int = 86_400_000
    """How long a cleaning keeps a tombstone, from the first one that meets it."""
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    record_validation: str = "header"
    """`sparkraft.record.validation`: `header` or `full`."""
    producer_id_expiration_ms: int = 86_400_000
    producer_ids_max: int = 100_000
    """`sparkraft.partition.producer.ids.max`."""

    @property
    def rules(self) -> Rules:
        """Rules that a leader's append must satisfy."""
        return Rules(
            max_message_bytes=self.max_message_bytes,
            codec=self.compression,
            level=self.compression_level,
            log_append_time=self.log_append_time,
            timestamp_before_max_ms=self.timestamp_before_max_ms,
            timestamp_after_max_ms=self.timestamp_after_max_ms,
            compacted=self.compact,
            walk_records=self.record_validation == "full",
            plain=self.compression is None and not (self.log_append_time or self.compact),
        )

    @property
    def segment_age_ms_max(self) -> int:
        """Age in ms at which a segment rolls.

        Records that must be compacted by a deadline must be in an inactive segment by then.
        """
        lag_ms = self.max_compaction_lag_ms
        return min(self.segment_ms, lag_ms) if self.compact and lag_ms > 0 else self.segment_ms

    @property
    def index_entries_max(self) -> int:
        """Entries an offset index may hold before the segment must roll."""
        return self.segment_index_bytes // 8

    @property
    def time_index_entries_max(self) -> int:
        """Entries a time index may hold; the last is kept for the roll itself."""
        return self.segment_index_bytes // 12 - 1


def config_from(values: Mapping[str, Any], base: LogConfig) -> LogConfig:
    """Build settings from a topic's parsed configs; `base` supplies all others."""
    codec = values["compression.type"]
    named = None if codec == "producer" else _CODECS[codec]
    policy = values["cleanup.policy"]
    return replace(
        base,
        segment_bytes=values.get("internal.segment.bytes") or values["segment.bytes"],
        segment_ms=values["segment.ms"],
        segment_jitter_ms=values["segment.jitter.ms"],
        segment_index_bytes=values["segment.index.bytes"],
        index_interval_bytes=values["index.interval.bytes"],
        flush_messages=values["flush.messages"],
        flush_ms=values["flush.ms"],
        retention_bytes=values["retention.bytes"],
        retention_ms=values["retention.ms"],
        file_delete_delay_ms=values["file.delete.delay.ms"],
        max_message_bytes=values["max.message.bytes"],
        compression=named,
        compression_level=values.get(f"compression.{codec}.level"),
        log_append_time=values["message.timestamp.type"] == "LogAppendTime",
        timestamp_before_max_ms=values["message.timestamp.before.max.ms"],
        timestamp_after_max_ms=values["message.timestamp.after.max.ms"],
        compact="compact" in policy,
        delete="delete" in policy,
        delete_retention_ms=values["delete.retention.ms"],
        min_cleanable_dirty_ratio=values["min.cleanable.dirty.ratio"],
        min_compaction_lag_ms=values["min.compaction.lag.ms"],
        max_compaction_lag_ms=values["max.compaction.lag.ms"],
    )


_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
