"""Who is taken for dead, and who serves a group: looked at from outside the node that decides.

F1  fenced on a refused connection is nobody who still serves: a false fence is what could lose
records that were acknowledged by their leader alone (acks=1)
G8  groups are served by the leader of their partition alone, one in an epoch
"""

from typing import TYPE_CHECKING, Any

from sparkraft.coordinator.internal_topics import GROUP_METADATA_TOPIC

if TYPE_CHECKING:
    from sparkraft.simulation.world.machine import Machine
    from sparkraft.simulation.world.nodes import NodesWorld


class ProcessChecks:
    """See the module docstring."""

    def __init__(self, world: "NodesWorld") -> None:
        self.world = world
        self._coordinators: dict[tuple[int, int], str] = {}

    def on_fence_refused(self, broker_id: int, registered: Any) -> None:
        """A controller is about to fence a broker whose listener refuses connections."""
        self.world.counts["fenced on refusal"] += 1
        machine = next((m for m in self.world.brokers if m.id == broker_id), None)
        node = None if machine is None else machine.node
        if machine is None or node is None or node.broker is None or registered is None:
            return
        serving = any(
            self.world.network.listens(endpoint.host, endpoint.port) is machine.incarnation
            for endpoint in registered.endpoints
        )
        self.world.checks.require(
            not serving or node.broker.lifecycle.broker_epoch != registered.epoch,
            "F1",
            f"{machine.name} is fenced for a refused connection, and serves in {registered.epoch}",
        )

    def every_second(self) -> None:
        """Look at every coordinator that serves."""
        for machine in self.world.brokers:
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
        self.world.checks.require(
            hosted is not None and hosted.is_leader and hosted.leader_epoch == epoch,
            "G8",
            f"{machine.name} serves the groups of {index} in {epoch}, and its replica is {hosted}",
        )
        known = self._coordinators.setdefault((index, epoch), machine.name)
        self.world.checks.require(
            known == machine.name,
            "G8",
            f"{known} and {machine.name} serve the groups of {index} in {epoch}",
        )
