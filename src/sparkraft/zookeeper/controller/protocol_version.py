"""`inter.broker.protocol.version`: versions of requests between brokers, and what they may use.

The controller does not ask brokers for their ApiVersions (Kafka 3.9's ControllerChannelManager).
The names and the limits are those of Kafka 3.9.2's MetadataVersion, from 2.6 on.
"""

from typing import NamedTuple

_LAST_CHANGE = {
    (2, 6): 0,
    (2, 7): 2,
    (2, 8): 1,
    (3, 0): 1,
    (3, 1): 0,
    (3, 2): 0,
    (3, 3): 3,
    (3, 4): 0,
    (3, 5): 2,
    (3, 6): 2,
    (3, 7): 4,
    (3, 8): 0,
    (3, 9): 0,
}
"""The last change (`IV`) of each release."""

_KEY_PARTS = 2

_FETCH = (
    ((3, 9, 0), 17),
    ((3, 7, 4), 16),
    ((3, 5, 1), 15),
    ((3, 5, 0), 14),
    ((3, 1, 0), 13),
    ((2, 7, 1), 12),
    ((2, 6, 0), 11),
)
"""Protocol version → Fetch (`MetadataVersion.fetchRequestVersion`)."""

_LIST_OFFSETS = (((3, 9, 0), 9), ((3, 5, 0), 8), ((3, 0, 1), 7), ((2, 8, 0), 6), ((2, 6, 0), 5))
"""Protocol version → ListOffsets (`MetadataVersion.listOffsetRequestVersion`)."""


class ProtocolVersion(NamedTuple):
    """A protocol version: a release, and one of its changes."""

    major: int
    minor: int
    change: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}-IV{self.change}"

    @property
    def leader_and_isr(self) -> int:
        """Version of LeaderAndIsr: 4 without topic ids, 5 with them, 6 from KIP-704, 7 KIP-866."""
        if self >= (3, 4, 0):
            return 7
        if self >= (3, 2, 0):
            return 6
        return 5 if self >= (2, 8, 1) else 4

    @property
    def update_metadata(self) -> int:
        """Version of UpdateMetadata: 6 without topic ids, 7 with them, 8 from KIP-866 on."""
        if self >= (3, 4, 0):
            return 8
        return 7 if self >= (2, 8, 1) else 6

    @property
    def stop_replica(self) -> int:
        """Version of StopReplica: 3, or 4 from KIP-866 on."""
        return 4 if self >= (3, 4, 0) else 3

    @property
    def fetch(self) -> int:
        """Version of a follower's Fetch: 12 from KIP-595, 13 with topic ids."""
        return self._newest(_FETCH)

    @property
    def list_offsets(self) -> int:
        """Version of a follower's ListOffsets."""
        return self._newest(_LIST_OFFSETS)

    @property
    def offset_for_leader_epoch(self) -> int:
        """Version of a follower's OffsetForLeaderEpoch: 3, or 4 from 2.8 on."""
        return 4 if self >= (2, 8, 0) else 3

    @property
    def write_txn_markers(self) -> int:
        """Version of a coordinator's WriteTxnMarkers: 0, or 1 from 2.8 on."""
        return 1 if self >= (2, 8, 0) else 0

    @property
    def registration(self) -> int:
        """Version of /brokers/ids/N: 4, or 5 with features (KIP-584)."""
        return 5 if self.has_features else 4

    def _newest(self, versions: tuple[tuple[tuple[int, int, int], int], ...]) -> int:
        return next(version for since, version in versions if self >= since)

    @property
    def has_features(self) -> bool:
        """Whether /feature is enabled (KIP-584)."""
        return self >= (2, 7, 0)

    @property
    def has_alter_partition(self) -> bool:
        """Whether leaders change ISRs by AlterPartition (KIP-497), not in ZooKeeper."""
        return self >= (2, 7, 2)

    @property
    def has_topic_ids(self) -> bool:
        """Whether topics have ids in ZooKeeper (KIP-516)."""
        return self >= (2, 8, 0)

    @property
    def has_allocated_producer_ids(self) -> bool:
        """Whether the controller allocates producer ids (KIP-730); before, each broker does."""
        return self >= (3, 0, 0)

    @property
    def features(self) -> int:
        """Version of /feature: 1, or 2 from 3.3 on, without lowest levels."""
        return 2 if self >= (3, 3, 0) else 1

    @property
    def has_recovery_state(self) -> bool:
        """Whether LeaderAndIsr contains the recovery state of a leader (KIP-704)."""
        return self >= (3, 2, 0)


def parse_protocol_version(text: str) -> ProtocolVersion:
    """Parse a name such as `3.9`, `3.9.2` or `2.8-IV0`; a release means its last change.

    As MetadataVersion.fromVersionString does, ignore what follows the second dot.

    Raises:
        ValueError: the version is unknown, or older than 2.6.
    """
    key = ".".join(text.split(".")[:_KEY_PARTS])
    for (major, minor), last in _LAST_CHANGE.items():
        release = f"{major}.{minor}"
        if key == release:
            return ProtocolVersion(major, minor, last)
        for change in range(last + 1):
            if key == f"{release}-IV{change}":
                return ProtocolVersion(major, minor, change)
    raise ValueError(f"{text!r} is not an inter.broker.protocol.version from 2.6 to 3.9")
