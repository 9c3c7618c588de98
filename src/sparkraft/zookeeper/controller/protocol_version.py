"""`inter.broker.protocol.version`, which selects the versions of the control requests.

The controller does not ask brokers for their ApiVersions (Kafka 3.9's ControllerChannelManager).
The names are those of Kafka 3.9.2's MetadataVersion, from 2.6 on.
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
