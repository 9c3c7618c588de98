"""S10: the folders of hosted partitions, read from the simulated disks.

Whenever a partition gets a role:
    its folder exists, and `partition.metadata` in it has the id of its topic
Each second and at the end, on brokers whose work on folders has ended:
    the logs in use are those of the partitions that the broker's image assigns to it; each of
    these is hosted, unless its disk failed or its log is damaged, and has its folder

For brokers in ZooKeeper mode, which follow requests and not an image, only the first is checked.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from sparkraft.server.broker.partition import HostedPartition
from sparkraft.simulation.checks.probe import Probe, Require, current_machine
from sparkraft.storage.checkpoints import format_partition_metadata
from sparkraft.storage.names import PARTITION_METADATA

if TYPE_CHECKING:
    from sparkraft.simulation.world.machine import Machine


class FolderChecks:
    """See the module docstring."""

    def __init__(self, probe: Probe, require: Require) -> None:
        self._probe = probe
        self._require = require

    def on_role(self, hosted: HostedPartition) -> None:
        """A broker leads or follows a partition from now on."""
        machine = current_machine(self._probe)
        if machine is not None:
            self._probe.check(lambda: self._check_folder(machine, hosted))

    def _check_folder(self, machine: "Machine", hosted: Any) -> None:
        if hosted.log.fault is not None:
            return
        directory = hosted.log.directory
        self._require(
            machine.disk.is_dir(directory),
            "S10",
            f"{machine.name} hosts {hosted}, whose folder {directory} does not exist",
        )
        found = machine.disk.stored(f"{directory}/{PARTITION_METADATA}")
        self._require(
            found == format_partition_metadata(hosted.topic_id),
            "S10",
            f"{machine.name} hosts {hosted} of topic {hosted.topic_id} in {directory}: {found!r}",
        )

    def every_second(self) -> None:
        """Check every broker at rest."""
        for machine in self._probe.brokers:
            node = machine.live_node
            broker = node.broker if node is not None else None
            if broker is not None and broker.lifecycle.settled.is_set():
                replicas = broker.replica_manager
                if replicas.is_settled:
                    self._check_at_rest(machine, replicas)

    def _check_at_rest(self, machine: "Machine", replicas: Any) -> None:
        image = replicas.image
        assigned = {
            (topic.name, index): topic.id
            for topic in image.topics_by_id.values()
            for index, partition in topic.partitions.items()
            if machine.id in partition.replicas
        }
        for log in replicas.log_manager.logs():
            topic_id = assigned.get((log.topic, log.partition))
            self._require(
                log.fault is not None or (topic_id is not None and log.topic_id == topic_id),
                "S10",
                f"{machine.name} has the log {log.name} of topic {log.topic_id}; assigned is "
                f"{topic_id}",
            )
        for (topic, index), topic_id in sorted(assigned.items()):
            hosted = replicas.hosted(topic, index)
            if hosted is not None:
                self._check_folder(machine, hosted)
                continue
            self._require(
                replicas.is_lost(topic_id, index),
                "S10",
                f"{machine.name} does not host {topic}-{index}, which its image assigns to it",
            )


@contextmanager
def folders_watched(checks: FolderChecks) -> Iterator[None]:
    """Check the folder of each partition that gets a role within this context."""
    original = HostedPartition.apply

    @wraps(original)
    def apply(self: HostedPartition, *arguments: Any, **more: Any) -> bool:
        changed = original(self, *arguments, **more)
        if changed:
            checks.on_role(self)
        return changed

    with patch.object(HostedPartition, "apply", apply):
        yield
