"""Check fencing and group coordinators from outside the deciding node.

F1  a broker that still serves is never fenced on a refused connection: a false fence could lose
    records that only their leader has acknowledged (acks=1)
G8  groups are served only by the leader of their partition, one per epoch
"""

from typing import TYPE_CHECKING, Any

from sparkraft.coordinator.internal_topics import GROUP_METADATA_TOPIC
from sparkraft.simulation.checks.probe import Probe, Require

if TYPE_CHECKING:
    from sparkraft.simulation.world.machine import Machine


class ProcessChecks:
    """See the module docstring."""

    def __init__(self, probe: Probe, require: Require) -> None:
        self.probe = probe
        self.require = require
        self._coordinators: dict[tuple[int, int], str] = {}

    def on_fence_refused(self, broker_id: int, registered: Any) -> None:
        """Check that a broker about to be fenced for refusing connections does not serve."""
        self.probe.counts["fenced on refusal"] += 1
        machine = next((m for m in self.probe.brokers if m.id == broker_id), None)
        node = None if machine is None else machine.node
        if machine is None or node is None or node.broker is None or registered is None:
            return
        serving = any(
            self.probe.network.listens(endpoint.host, endpoint.port) is machine.incarnation
            for endpoint in registered.endpoints
        )
        self.require(
            not serving or node.broker.lifecycle.broker_epoch != registered.epoch,
            "F1",
            f"{machine.name} is fenced for a refused connection but serves in epoch "
            f"{registered.epoch}",
        )

    def every_second(self) -> None:
        """Check every active group coordinator."""
        for machine in self.probe.brokers:
            node = machine.live_node
            if node is None or node.broker is None:
                continue
            runtimes = node.broker.groups.runtimes
            for index in sorted(runtimes):
                self._check_shard(machine, node.broker.replica_manager, index, runtimes[index])

    def _check_shard(self, machine: "Machine", replicas: Any, index: int, runtime: Any) -> None:
        if not runtime.is_serving:
            return
        epoch = runtime.leader_epoch
        hosted = next(
            (
                p
                for p in replicas.all_hosted()
                if (p.topic, p.index) == (GROUP_METADATA_TOPIC, index)
            ),
            None,
        )
        self.require(
            hosted is not None and hosted.is_leader and hosted.leader_epoch == epoch,
            "G8",
            f"{machine.name} coordinates partition {index} in epoch {epoch} with replica {hosted}",
        )
        known = self._coordinators.setdefault((index, epoch), machine.name)
        self.require(
            known == machine.name,
            "G8",
            f"{known} and {machine.name} both coordinate partition {index} in epoch {epoch}",
        )
