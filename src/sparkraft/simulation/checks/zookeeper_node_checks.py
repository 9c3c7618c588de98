"""The checkers of whole brokers in ZooKeeper mode.

Z1 to Z11: `zookeeper_checks`. Partitions, disks, coordinators and clients (P, S, L1, G8, R3, R4,
C7, C9): as in KRaft mode, with an image of the znodes in place of the committed metadata. Not here:
the quorum, the metadata log, and explanations that are read from it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sparkraft.simulation.checks.folder_checks import folders_watched
from sparkraft.simulation.checks.loop_checks import work_watched
from sparkraft.simulation.checks.node_checks import NodeChecks
from sparkraft.simulation.checks.node_events import truncations_watched
from sparkraft.simulation.checks.probe import Probe
from sparkraft.simulation.checks.recovery_checks import storage_watched
from sparkraft.simulation.checks.zookeeper_checks import ZooKeeperChecks
from sparkraft.simulation.world.znodes import Znodes

if TYPE_CHECKING:
    from sparkraft.simulation.world.machine import Machine


class ZooKeeperNodeChecks(NodeChecks):
    """See the module docstring.

    Attributes:
        zookeeper: the checker of znodes; it needs those of the ensemble before the first start.
    """

    def __init__(self, probe: Probe) -> None:
        super().__init__(probe)
        self.zookeeper = ZooKeeperChecks(probe, self.require, Znodes())

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Observe brokers, leaders and logs within this context."""
        with (
            truncations_watched(self.probe, self._on_truncate),
            storage_watched(
                self.probe,
                self.storage.recoveries,
                on_retention=self.storage.on_retention,
                on_expired=self.storage.on_expired,
            ),
            work_watched(self.loops),
            self.appends.watching(),
            folders_watched(self.folders),
            self.shards.watching(),
            self.zookeeper.watching(),
        ):
            yield

    def on_start(self, machine: "Machine") -> None:
        """A node starts."""
        self.probe.check(lambda: self.storage.on_start(machine))

    def _check_kept(self, name: str) -> None:
        self._read_znodes()
        super()._check_kept(name)

    def _on_truncate(self, machine: "Machine", log: Any, offset: int) -> None:
        self._read_znodes()
        self.records.on_truncate(machine, log, offset)

    def _read_znodes(self) -> None:
        self.records.image = self.zookeeper.image

    def every_second(self) -> None:
        """Check every running node."""
        self._read_znodes()
        self._check_created()
        self.records.every_second()
        self.processes.every_second()

    def at_end(self) -> None:
        """Check the healed cluster at rest."""
        self._check_created()
        self.storage.at_end()
        self.zookeeper.check_end()

    def is_healthy(self) -> bool:
        """Whether nothing is in progress, and ZooKeeper and all brokers agree."""
        self.checks["Z8"] += 1
        return next(self.zookeeper.differences(), None) is None
