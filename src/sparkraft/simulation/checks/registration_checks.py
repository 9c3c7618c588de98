"""C5 among whole nodes: who is registered as a broker, in which epoch, and after what.

    every new image        a broker epoch has one owner for ever, and a broker's epochs rise
    a registration asked   whoever was heard of within a session keeps its id (KIP-631)
    a registration         who did not stop cleanly before is in no ISR and no ELR then (KIP-966):
                           where ELR is on, for else it is treated as one that was fenced

Whether a machine stopped cleanly is read from its disk, where its node is just about to read it.
"""

from typing import TYPE_CHECKING, Any

from sparkraft.metadata.features import elr_enabled
from sparkraft.metadata.image import ClusterImage
from sparkraft.simulation.world.machine import DIRECTORY
from sparkraft.storage.checkpoints import parse_clean_shutdown
from sparkraft.storage.names import CLEAN_SHUTDOWN

if TYPE_CHECKING:
    from sparkraft.simulation.world.machine import Machine
    from sparkraft.simulation.world.nodes import NodesWorld

UNCLEAN = -1
"""In place of the epoch of a life that ended cleanly."""


class RegistrationChecks:
    """See the module docstring."""

    def __init__(self, world: "NodesWorld") -> None:
        self._world = world
        self._newest: dict[int, tuple[int, int]] = {}
        """Broker → the newest offset at which it was looked at, and its epoch there."""
        self._owners: dict[int, tuple[int, bytes]] = {}
        """Broker epoch → who has it: id and incarnation."""
        self._ended: dict[str, int] = {}
        """Machine → the broker epoch that its life before left in good order, or `UNCLEAN`."""

    def _require(self, holds: object, text: str) -> None:
        self._world.checks.require(holds, "C5", text)

    # ---- epochs

    def check_image(self, image: ClusterImage) -> None:
        """An image that no node had before."""
        for broker_id in sorted(image.brokers):
            broker = image.brokers[broker_id]
            who = (broker_id, bytes(broker.incarnation_id))
            owner = self._owners.setdefault(broker.epoch, who)
            self._require(owner == who, f"{owner} and {who} have broker epoch {broker.epoch}")
            offset, epoch = self._newest.get(broker_id, (-1, -1))
            grew = broker.epoch >= epoch if image.offset >= offset else broker.epoch <= epoch
            self._require(grew, f"broker {broker_id} goes from epoch {epoch} to {broker.epoch}")
            if image.offset >= offset:
                self._newest[broker_id] = (image.offset, broker.epoch)

    # ---- whose place is taken

    def on_decided(self, core: Any, request: Any, silent_ms: int | None) -> None:
        """A controller lets a broker register.

        `silent_ms`: since the last heartbeat it took of the one that is registered; None: it took
        none.
        """
        known = core.latest.brokers.get(request.broker_id)
        if known is None or known.fenced or known.incarnation_id == request.incarnation_id:
            return
        self._require(
            silent_ms is None or silent_ms > core.sessions.timeout_ms,
            f"broker {known.id} is registered anew, {silent_ms} ms after a heartbeat of its "
            f"epoch {known.epoch}",
        )

    # ---- what an unclean stop costs

    def on_start(self, machine: "Machine") -> None:
        """A node is about to read how its last life ended."""
        path = f"{DIRECTORY}/{CLEAN_SHUTDOWN}"
        there = machine.disk.size(path) >= 0
        epoch = parse_clean_shutdown(machine.disk.read(path)) if there else UNCLEAN
        self._ended[machine.name] = epoch

    def on_committed(self, before: ClusterImage, image: ClusterImage) -> None:
        """A batch is committed that made `image` of `before`."""
        if image.brokers is before.brokers or not elr_enabled(image.features):
            return
        for machine in self._world.brokers:
            old, new = before.brokers.get(machine.id), image.brokers.get(machine.id)
            if new is None or (old is not None and old.incarnation_id == new.incarnation_id):
                continue
            node = machine.live_node
            broker = None if node is None else node.broker
            mine = None if broker is None else broker.lifecycle._incarnation  # noqa: SLF001
            if mine != new.incarnation_id:
                continue  # a life that has ended since: how it began is not known any more
            if old is None or self._ended[machine.name] != old.epoch:
                self._check_gone(machine, image)

    def _check_gone(self, machine: "Machine", image: ClusterImage) -> None:
        self._world.counts["registered after an unclean stop"] += 1
        for topic in image.topics_in_order():
            for index, partition in topic.in_order():
                self._require(
                    machine.id not in {*partition.isr, *partition.elr},
                    f"{machine.name} comes back from an unclean stop and may lead "
                    f"{topic.name}-{index}: {partition}",
                )
