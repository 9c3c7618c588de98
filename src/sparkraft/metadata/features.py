"""Feature levels, and the record versions each metadata.version allows (KIP-584, 778, 1022).

A controller writes a record only in a version that the finalized metadata.version allows. A node
does not join a cluster whose levels it does not support. `kraft.version` is a feature of the quorum
and not stored in FeatureLevelRecords.
"""

from collections.abc import Mapping

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
ELR_VERSION = "eligible.leader.replicas.version"
TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"

METADATA_LEVEL_NAMES: dict[int, str] = {
    7: "3.3-IV3",
    8: "3.4-IV0",
    9: "3.5-IV0",
    10: "3.5-IV1",
    11: "3.5-IV2",
    12: "3.6-IV0",
    13: "3.6-IV1",
    14: "3.6-IV2",
    15: "3.7-IV0",
    16: "3.7-IV1",
    17: "3.7-IV2",
    18: "3.7-IV3",
    19: "3.7-IV4",
    20: "3.8-IV0",
    21: "3.9-IV0",
    22: "4.0-IV0",
    23: "4.0-IV1",
    24: "4.0-IV2",
    25: "4.0-IV3",
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
    30: "4.3-IV0",
}
"""Levels of metadata.version and their names."""

METADATA_LEVEL_MIN = 7
METADATA_LEVEL_MAX = 30

_METADATA_CHANGED = frozenset({7, 8, 11, 13, 14, 15, 17, 23, 30})
"""Levels that brought new records or fields: going back below one would lose data."""

CONTROLLER_REGISTRATION_LEVEL = 15
TRANSACTION_RECORDS_LEVEL = 13
DIRECTORIES_LEVEL = 17
ELR_LEVEL = 23
CORDONED_LEVEL = 30
SCRAM_LEVEL = 11
DELEGATION_TOKEN_LEVEL = 14
_ISR_SHRINK_WITHOUT_BUMP_LEVEL = 12
_MIGRATION_LEVEL = 8
_KRAFT_VERSION_LEVEL = 21
"""metadata.version from which new clusters have kraft.version 1 (3.9-IV0)."""

SUPPORTED_FEATURES: dict[str, tuple[int, int]] = {
    ELR_VERSION: (0, 1),
    GROUP_VERSION: (0, 1),
    KRAFT_VERSION: (0, 1),
    METADATA_VERSION: (METADATA_LEVEL_MIN, METADATA_LEVEL_MAX),
    SHARE_VERSION: (0, 1),
    STREAMS_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
}
"""Supported levels (inclusive) that a node registers with and returns in ApiVersions."""

DEFAULT_FINALIZED: dict[str, int] = {
    METADATA_VERSION: METADATA_LEVEL_MAX,
    ELR_VERSION: 1,
    GROUP_VERSION: 1,
    SHARE_VERSION: 1,
    STREAMS_VERSION: 1,
    TRANSACTION_VERSION: 2,
}
"""Feature levels of a newly formatted cluster, as in Kafka 4.3."""

FEATURE_BOOTSTRAP_LEVELS: dict[str, dict[int, int]] = {
    ELR_VERSION: {1: 26},
    GROUP_VERSION: {1: 22},
    SHARE_VERSION: {1: 28},
    STREAMS_VERSION: {1: 29},
    TRANSACTION_VERSION: {1: 24, 2: 24},
}
"""By feature and level: the lowest metadata.version at which it is the default."""

FEATURE_DEPENDENCIES: dict[tuple[str, int], dict[str, int]] = {
    (ELR_VERSION, 1): {METADATA_VERSION: ELR_LEVEL},
}
"""Levels of other features that a feature level requires."""


_RELEASE_ORDER = (
    METADATA_VERSION,
    KRAFT_VERSION,
    TRANSACTION_VERSION,
    GROUP_VERSION,
    ELR_VERSION,
    SHARE_VERSION,
    STREAMS_VERSION,
)
"""As Kafka's tools list the features of a release."""


def default_levels(metadata_level: int) -> dict[str, int]:
    """The feature levels of a new cluster with that metadata.version, which comes first."""
    levels = {METADATA_VERSION: metadata_level}
    for name, thresholds in sorted(FEATURE_BOOTSTRAP_LEVELS.items()):
        reached = [level for level, needed in thresholds.items() if metadata_level >= needed]
        if reached:
            levels[name] = max(reached)
    return levels


def release_levels(metadata_level: int) -> dict[str, int]:
    """All features at that metadata.version, which comes first; features it lacks are at 0."""
    known = default_levels(metadata_level)
    known[KRAFT_VERSION] = int(metadata_level >= _KRAFT_VERSION_LEVEL)
    return {name: known.get(name, 0) for name in _RELEASE_ORDER}


def level_of(release: str) -> int | None:
    """Parse a release (4.1), a full version (4.1.2) or the name of a metadata.version."""
    exact = {name: level for level, name in METADATA_LEVEL_NAMES.items()}
    if release in exact:
        return exact[release]
    short = ".".join(release.split("-", maxsplit=1)[0].split(".")[:2]) if "-" not in release else ""
    levels = [level for name, level in exact.items() if name.split("-")[0] == short]
    return max(levels, default=None)


def name_of(level: int) -> str:
    """The name of a metadata.version; its number if it is unknown."""
    return METADATA_LEVEL_NAMES.get(level, str(level))


def lowest_lossless_downgrade(level: int) -> int:
    """The lowest metadata.version that a cluster at `level` can be downgraded to."""
    return max(changed for changed in _METADATA_CHANGED if changed <= level)


def metadata_changed_between(one: int, other: int) -> bool:
    """Whether records differ between two metadata.versions, so that a downgrade loses data."""
    low, high = sorted((one, other))
    return any(low < level <= high for level in _METADATA_CHANGED)


def register_broker_version(level: int) -> int:
    """Version of RegisterBrokerRecord."""
    if level >= CORDONED_LEVEL:
        return 4
    if level >= DIRECTORIES_LEVEL:
        return 3
    return 2 if level >= _MIGRATION_LEVEL else 1


def broker_registration_change_version(level: int) -> int:
    """Version of BrokerRegistrationChangeRecord."""
    if level >= CORDONED_LEVEL:
        return 3
    return 2 if level >= DIRECTORIES_LEVEL else 1


def partition_version(level: int) -> int:
    """Version of PartitionRecord and of PartitionChangeRecord."""
    if level >= ELR_LEVEL:
        return 2
    return 1 if level >= DIRECTORIES_LEVEL else 0


def isr_shrink_bumps_leader_epoch(level: int) -> bool:
    """Whether brokers rely on a new leader epoch when the ISR shrinks (KAFKA-15021)."""
    return level < _ISR_SHRINK_WITHOUT_BUMP_LEVEL


def elr_enabled(features: Mapping[str, int]) -> bool:
    """Whether eligible leader replicas are kept (KIP-966)."""
    return features.get(ELR_VERSION, 0) >= 1
