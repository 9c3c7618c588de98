"""Names of files and directories in a log directory.

A partition's directory is `<topic>-<partition>`; a segment's files carry its base offset in 20
digits. While being removed or moved a directory is `<topic>-<partition>.<32 hex>-delete`, `-future`
or `-stray`.
"""

from typing import Final, NamedTuple

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANED_OFFSETS: Final = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
META_PROPERTIES: Final = "meta.properties"
BOOTSTRAP_CHECKPOINT: Final = "bootstrap.checkpoint"
LOCK: Final = ".lock"

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_DIR: Final = f"{METADATA_TOPIC}-0"
"""The quorum's own log; not a topic of the brokers."""

DELETE_MARK: Final = "-delete"
FUTURE_MARK: Final = "-future"
STRAY_MARK: Final = "-stray"

_DIGITS = 20
_NAME_MAX = 255


class PartitionDir(NamedTuple):
    """A directory's name, parsed."""

    topic: str
    partition: int
    mark: str
    """`-delete`, `-future`, `-stray`, or empty for a live log."""


def offset_name(offset: int, suffix: str) -> str:
    """`00000000000000000042.log` and its like."""
    return f"{offset:0{_DIGITS}d}{suffix}"


def parse_offset_name(name: str, suffix: str) -> int | None:
    """Return the offset in a file's name; None if the file is of another kind."""
    stem = name[: -len(suffix)]
    if not name.endswith(suffix) or not (stem.isascii() and stem.isdigit()):
        return None
    return int(stem)


def partition_dir(topic: str, partition: int) -> str:
    """The directory of a live log."""
    return f"{topic}-{partition}"


def marked_dir(topic: str, partition: int, unique: bytes, mark: str) -> str:
    """The directory's name once marked; the topic is cut to fit 255 characters, as Kafka does."""
    tail = f"-{partition}.{unique.hex()}{mark}"
    return topic[: _NAME_MAX - len(tail)] + tail


def parse_partition_dir(name: str) -> PartitionDir | None:
    """Parse a directory's name; None if it is not a partition's."""
    mark = ""
    for known in (DELETE_MARK, FUTURE_MARK, STRAY_MARK):
        if name.endswith(known):
            mark = known
            name, dot, _ = name[: -len(known)].rpartition(".")
            if not dot:
                return None
    topic, dash, partition = name.rpartition("-")
    if not (dash and topic and partition.isascii() and partition.isdigit()):
        return None
    return PartitionDir(topic, int(partition), mark)
