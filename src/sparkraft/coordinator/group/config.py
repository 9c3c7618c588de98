"""Configuration of the group coordinator, with Kafka's names and defaults."""

from collections.abc import Mapping
from dataclasses import dataclass, field

_MINUTE_MS = 60_000

OFFSET_COMMIT_VALUE_VERSION = 4
"""With topic ids, as Kafka 4.3 writes records of committed offsets."""

OFFSET_COMMIT_VALUE_VERSION_WITHOUT_IDS = 3
"""As Kafka 3.9 writes them (`GroupMetadataManager.offsetCommitValue`): older ones read no other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded:
    """A setting that a group may override within the bounds of the broker."""

    value: int
    lowest: int
    highest: int

    def of(self, overrides: Mapping[str, str], name: str) -> int:
        """The value for a group with these dynamic configs; out of bounds: the nearest bound."""
        text = overrides.get(name)
        if text is None:
            return self.value
        try:
            return min(max(int(text), self.lowest), self.highest)
        except ValueError:
            return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """The `group.consumer.*` settings of a broker; times in milliseconds."""

    session_timeout_ms: Bounded = Bounded(value=45_000, lowest=45_000, highest=60_000)
    heartbeat_interval_ms: Bounded = Bounded(value=5_000, lowest=5_000, highest=15_000)
    assignment_interval_ms: Bounded = Bounded(value=1_000, lowest=0, highest=15_000)
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    """The first is used by groups whose members prefer none."""
    allows_upgrade: bool = True
    """Whether classic groups are converted when a consumer member joins."""
    allows_downgrade: bool = True
    """Whether groups are converted to classic ones when the last consumer member leaves."""
    regex_refresh_interval_ms: int = 10 * _MINUTE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The group settings of a broker; times in milliseconds."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 30 * _MINUTE_MS
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 5 * _MINUTE_MS
    """Session timeout of a new member: it cannot send heartbeats while its JoinGroup is parked."""
    offset_metadata_max_chars: int = 4_096
    offset_commit_value_version: int = OFFSET_COMMIT_VALUE_VERSION
    """Version of the records of offsets without an expiry time."""
    needs_offsets: bool = False
    """Whether a group without a record of its own ends with its last offset, as in Kafka 3.9, which
    writes no tombstone for it (`GroupMetadataManager.cleanupGroupMetadata`). In Kafka 4 such a
    group is empty until offsets.retention.check.interval.ms has passed."""
    offsets_retention_ms: int = 7 * 24 * 60 * _MINUTE_MS
    offsets_retention_check_interval_ms: int = 10 * _MINUTE_MS
    foreign_session_timeout_ms: int = 45_000
    """When members of groups of other protocols, loaded from the log, expire."""
    journal_entries_max: int = 1_000
    consumer: ConsumerConfig = field(default_factory=ConsumerConfig)
