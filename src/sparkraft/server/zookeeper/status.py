"""The parts of a node in ZooKeeper mode that /health and /metrics show."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sparkraft.server.zookeeper.own_controller import OwnController
    from sparkraft.server.zookeeper.session import EnsembleSession


class ZooKeeperStatus(NamedTuple):
    """The parts of a node that only ZooKeeper mode has."""

    session: "EnsembleSession"
    controller: "OwnController"
    controller_id: int
    """Of the cluster, as this broker knows it; -1 before the first UpdateMetadata."""
