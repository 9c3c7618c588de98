"""Configuration of the group coordinator, with Kafka's names and defaults."""

from dataclasses import dataclass

_MINUTE_MS = 60_000


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
    offsets_retention_ms: int = 7 * 24 * 60 * _MINUTE_MS
    offsets_retention_check_interval_ms: int = 10 * _MINUTE_MS
    foreign_session_timeout_ms: int = 45_000
    """When members of groups of other protocols, loaded from the log, expire."""
    journal_entries_max: int = 1_000
