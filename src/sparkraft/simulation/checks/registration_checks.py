"""C5 of whole nodes: broker registrations and broker epochs.

    new image                a broker epoch belongs to one incarnation; a broker's epochs increase
    registration request     a broker with a valid session keeps its id (KIP-631)
    committed registration   after an unclean stop the broker is in no ISR and no ELR (KIP-966);
                             checked with ELR only, otherwise it is treated like a fenced broker

Whether a machine stopped cleanly is read from its disk just before its node reads it.
"""

from typing import TYPE_CHECKING, Any

from sparkraft.metadata.features import elr_enabled
from sparkraft.metadata.image import ClusterImage
from sparkraft.server.broker.lifecycle import BrokerLifecycle
from sparkraft.simulation.checks.probe import Probe, Require
from sparkraft.simulation.world.machine import DIRECTORY
from sparkraft.storage.checkpoints import parse_clean_shutdown
from sparkraft.storage.names import CLEAN_SHUTDOWN

if TYPE_CHECKING:
    from sparkraft.simulation.world.machine import Machine

UNCLEAN = -1
"""Replaces the broker epoch after an unclean stop."""


class RegistrationChecks:
    """See the module docstring."""

    def __init__(self, probe: Probe, require: Require) -> None:
        self._probe = probe
        self._check = require
        self._newest: dict[int, tuple[int, int]] = {}
        """Broker → offset of the newest image checked, and its epoch in it."""
        self._owners: dict[int, tuple[int, bytes]] = {}
        """Broker epoch → broker id and incarnation id."""
        self._ended: dict[str, int] = {}
        """Machine → broker epoch of the clean shutdown before this incarnation, or `UNCLEAN`."""

    def _require(self, holds: object, text: str) -> None:
        self._check(holds, "C5", text)

    # ---- epochs

    def check_image(self, image: ClusterImage) -> None:
        """Check an image that no node had before."""
        for broker_id in sorted(image.brokers):
            broker = image.brokers[broker_id]
            who = (broker_id, bytes(broker.incarnation_id))
            owner = self._owners.setdefault(broker.epoch, who)
            self._require(owner == who, f"{owner} and {who} both have broker epoch {broker.epoch}")
            offset, epoch = self._newest.get(broker_id, (-1, -1))
            grew = broker.epoch >= epoch if image.offset >= offset else broker.epoch <= epoch
            self._require(grew, f"broker {broker_id}: epoch changes from {epoch} to {broker.epoch}")
            if image.offset >= offset:
                self._newest[broker_id] = (image.offset, broker.epoch)

    # ---- replaced incarnations

    def on_decided(self, core: Any, request: Any, silent_ms: int | None) -> None:
        """Check a registration that a controller accepts.

        `silent_ms` is the time since it last received a heartbeat of the registered incarnation;
        None if it received none.
        """
        known = core.latest.brokers.get(request.broker_id)
        if known is None or known.fenced or known.incarnation_id == request.incarnation_id:
            return
        self._require(
            silent_ms is None or silent_ms > core.sessions.timeout_ms,
            f"broker {known.id} is registered again {silent_ms} ms after a heartbeat in "
            f"epoch {known.epoch}",
        )

    # ---- unclean stops

    def on_start(self, machine: "Machine") -> None:
        """Read from disk how the machine's previous incarnation ended."""
        path = f"{DIRECTORY}/{CLEAN_SHUTDOWN}"
        there = machine.disk.size(path) >= 0
        epoch = parse_clean_shutdown(machine.disk.read(path)) if there else UNCLEAN
        self._ended[machine.name] = epoch

    def on_committed(self, before: ClusterImage, image: ClusterImage) -> None:
        """Check the registrations in a committed batch that changed `before` to `image`."""
        if image.brokers is before.brokers or not elr_enabled(image.features):
            return
        for machine in self._probe.brokers:
            old, new = before.brokers.get(machine.id), image.brokers.get(machine.id)
            if new is None or (old is not None and old.incarnation_id == new.incarnation_id):
                continue
            node = machine.live_node
            broker = None if node is None else node.broker
            lifecycle = None if broker is None else broker.lifecycle
            mine = None
            if isinstance(lifecycle, BrokerLifecycle):
                mine = lifecycle._incarnation  # noqa: SLF001
            if mine != new.incarnation_id:
                continue  # this incarnation has ended, so how it began is no longer known
            if old is None or self._ended[machine.name] != old.epoch:
                self._check_gone(machine, image)

    def _check_gone(self, machine: "Machine", image: ClusterImage) -> None:
        self._probe.counts["registered after an unclean stop"] += 1
        for topic in image.topics_in_order():
            for index, partition in topic.in_order():
                self._require(
                    machine.id not in {*partition.isr, *partition.elr},
                    f"{machine.name} is eligible for {topic.name}-{index} after an unclean stop: "
                    f"{partition}",
                )
