"""An operator that gives brokers in ZooKeeper mode other addresses while they run.

    a host name more leads to the broker ─► advertised.listeners names it ─► acknowledged
    ─► ZooKeeper does not have the former name any more ─► that is withdrawn, with its connections

The config is also deleted, so that the broker returns to server.properties. A broker or a client
that uses a withdrawn name fails until it learns the new one. The name of a change without a
response is never withdrawn: the change may still be applied.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode
from sparkraft.client.values import ConfigOperation
from sparkraft.metadata.configs.broker import ADVERTISED_LISTENERS
from sparkraft.metadata.image import ResourceType
from sparkraft.protocol.messages import k44_incremental_alter_configs as k44
from sparkraft.simulation.workload.node_clients import BROKER_PORT, FAILURES
from sparkraft.simulation.workload.record_clients import Client
from sparkraft.simulation.world.nodes import advertised_host

if TYPE_CHECKING:
    from sparkraft.simulation.world.machine import Machine
    from sparkraft.simulation.world.nodes import NodesWorld

PAUSE_S = (0.2, 1.5)
"""Between two changes."""

BACK_SHARE = 0.2
"""The share of changes that delete the config."""

WITHDRAW_S = (0.3, 3)
"""From the response to a change to the withdrawal of the former name."""

AGAIN_S = 1
"""Between two looks whether ZooKeeper still has a name."""


def listeners_at(host: str) -> str:
    """Return the advertised.listeners of a broker with this host name."""
    return f"PLAINTEXT://{host}:{BROKER_PORT}"


class AddressAdmin(Client):
    """See the module docstring."""

    def __init__(
        self,
        world: "NodesWorld",
        stored: Callable[[int], set[str]],
        on_possible: Callable[[int, set[str]], None],
    ) -> None:
        """Do nothing yet.

        Args:
            world: the cluster.
            stored: returns the advertised listeners that ZooKeeper has for a broker: those of its
                registration and of its configs.
            on_possible: called with a broker and the values that its config may have from now on.
        """
        super().__init__(world)
        self._nodes = world
        self._stored = stored
        self._on_possible = on_possible
        self._numbers: Counter[str] = Counter()
        self._present = {each.id: advertised_host(each) for each in world.brokers}
        """Broker → the name of the last acknowledged change."""
        self._unknown: dict[int, set[str]] = {each.id: set() for each in world.brokers}
        """Broker → names of changes without a response."""

    async def run(self) -> None:
        """Work until the world is healed."""
        while not self._nodes.is_healed:
            await self.pause(*PAUSE_S)
            try:
                await self._move(self.world.dice.choice(self._nodes.brokers))
            except FAILURES:
                self.world.counts["requests failed"] += 1

    async def _move(self, machine: "Machine") -> None:
        number = 0
        if self.world.dice.random() >= BACK_SHARE:
            self._numbers[machine.name] += 1
            number = self._numbers[machine.name]
        host, unknown = advertised_host(machine, number), self._unknown[machine.id]
        self._nodes.network.add_host(host, machine.name)
        was_unknown = host in unknown
        unknown.add(host)
        self._report(machine)
        answer = await self.ask(machine.name, _change(machine, host if number else None))
        if answer.responses[0].error_code != ErrorCode.NONE:
            return
        self.world.counts["advertised listeners changed"] += 1
        former, self._present[machine.id] = self._present[machine.id], host
        if not was_unknown:
            unknown.discard(host)
        self._report(machine)
        self._nodes.note(f"-- {machine.name} is at {host}", "fault")
        self._nodes.after(
            self.world.dice.uniform(*WITHDRAW_S), partial(self._leave, machine, former)
        )

    def _report(self, machine: "Machine") -> None:
        possible = {self._present[machine.id], *self._unknown[machine.id]}
        self._on_possible(machine.id, {listeners_at(host) for host in possible})

    def _leave(self, machine: "Machine", host: str) -> None:
        """Withdraw a former name, unless it is in use again; wait while ZooKeeper has it."""
        if host == self._present[machine.id] or host in self._unknown[machine.id]:
            return
        if listeners_at(host) in self._stored(machine.id):
            self._nodes.after(AGAIN_S, partial(self._leave, machine, host))
            return
        self.world.counts["addresses withdrawn"] += 1
        self._nodes.note(f"-- {host} is withdrawn", "fault")
        self._nodes.network.withdraw_host(host)


def _change(machine: "Machine", host: str | None) -> k44.IncrementalAlterConfigsRequest:
    kind = ConfigOperation.DELETE if host is None else ConfigOperation.SET
    value = None if host is None else listeners_at(host)
    config = k44.AlterableConfig(name=ADVERTISED_LISTENERS, config_operation=kind, value=value)
    resource = k44.AlterConfigsResource(
        resource_type=ResourceType.BROKER, resource_name=str(machine.id), configs=[config]
    )
    return k44.IncrementalAlterConfigsRequest(resources=[resource])
