"""The highest versions of requests between brokers, which all brokers of the cluster support.

metadata.version selects them in KRaft mode, inter.broker.protocol.version in ZooKeeper mode. The
versions that both sides of a connection serve limit them further.
"""

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sparkraft.zookeeper.controller.protocol_version import ProtocolVersion

TRUNCATION_VERSION = 12
"""First Fetch version whose response has the epoch that logs diverge in (KIP-595)."""

TOPIC_IDS_VERSION = 13
"""First Fetch version that names topics by id (KIP-516)."""


class InterBrokerVersions(NamedTuple):
    """Highest versions, by request."""

    fetch: int
    list_offsets: int
    offset_for_leader_epoch: int
    """Of followers, which send it only if Fetch does not show that logs diverge."""
    write_txn_markers: int
    """Of transaction coordinators."""

    @property
    def truncates_on_fetch(self) -> bool:
        """Whether the response to a Fetch shows that logs diverge."""
        return self.fetch >= TRUNCATION_VERSION


_FETCH = ((27, 18), (21, 17), (19, 16), (10, 15), (9, 14), (0, 13))
"""(lowest metadata.version, Fetch version): Kafka's `MetadataVersion.fetchRequestVersion`."""

_LIST_OFFSETS = ((29, 11), (25, 10), (21, 9), (9, 8), (0, 7))

_OFFSET_FOR_LEADER_EPOCH, _WRITE_TXN_MARKERS = 4, 2


@cache
def at_metadata_version(level: int) -> InterBrokerVersions:
    """Return the versions in KRaft mode."""
    return InterBrokerVersions(
        fetch=next(version for lowest, version in _FETCH if level >= lowest),
        list_offsets=next(version for lowest, version in _LIST_OFFSETS if level >= lowest),
        offset_for_leader_epoch=_OFFSET_FOR_LEADER_EPOCH,
        write_txn_markers=_WRITE_TXN_MARKERS,
    )


def at_protocol_version(protocol: "ProtocolVersion") -> InterBrokerVersions:
    """Return the versions in ZooKeeper mode."""
    return InterBrokerVersions(
        fetch=protocol.fetch,
        list_offsets=protocol.list_offsets,
        offset_for_leader_epoch=protocol.offset_for_leader_epoch,
        write_txn_markers=protocol.write_txn_markers,
    )
