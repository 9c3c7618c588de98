"""Plain values that the calls of `admin` take and return."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkraft.base.errors import ErrorCode
    from sparkraft.base.ids import Uuid
    from sparkraft.client.cluster import Node


LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
"""Special timestamps of ListOffsets."""


class ResourceType(IntEnum):
    """The kind of resource a config belongs to; the protocol's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """The source of a config's value; the protocol's numbers and Kafka's names."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigOperation(IntEnum):
    """How a config is changed; the protocol's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


Resource = tuple[ResourceType, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create; -1 leaves a number to the cluster's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignment: Mapping[int, list[int]] = field(default_factory=dict)
    """Partition → broker ids; replaces the two numbers."""
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """Result for a new topic."""

    name: str
    id: Uuid
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSynonym:
    """A place that a config's value could come from, and the value there."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """A config as described by DescribeConfigs; `value` is None if it is sensitive."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    documentation: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedOffset:
    """An answer of ListOffsets; -1 if there is none."""

    offset: int
    timestamp: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A committed offset."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """A member of a consumer group at one moment; a transaction's offsets are checked against it.

    (KIP-447)
    """

    group_id: str
    generation: int = -1
    """The generation of a classic member, or the member epoch (KIP-848); -1 outside a group."""
    member_id: str = ""
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDir:
    """A replica in a log dir; sizes in bytes, `offset_lag` in records."""

    topic: str
    partition: int
    size: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDir:
    """A log dir of a broker."""

    path: str
    error: ErrorCode
    replicas: tuple[ReplicaDir, ...]
    total_bytes: int
    usable_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """A partition being reassigned: all its replicas, those being added and those being removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumReplica:
    """A voter or observer as the leader sees it; times in ms since 1970, -1 if unknown."""

    id: int
    directory_id: Uuid
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumInfo:
    """The state of the metadata quorum."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    endpoints: Mapping[int, tuple[tuple[str, str, int], ...]]
    """Node → its controller listeners as (name, host, port)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Feature levels: name → (lowest, highest) this node can, name → level the cluster has."""

    supported: Mapping[str, tuple[int, int]]
    finalized: Mapping[str, int]
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInfo:
    """The nodes of the cluster."""

    cluster_id: str
    controller_id: int
    nodes: tuple[Node, ...]
