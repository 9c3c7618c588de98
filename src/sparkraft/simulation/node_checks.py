"""What must hold among whole nodes: looked at every simulated second, and at the end.

Q1  one leader an epoch        Q5  committed records are the same bytes everywhere, for ever
C5  broker epochs are unique, and rise with each registration
C6  one image at one offset, on every node; an image survives its own snapshot
C7  what a client was told is created stays created
C9  topic ids and producer ids are never given twice
C10 once healed: brokers unfenced, every partition led, controllers agree
"""

from collections import Counter
from typing import TYPE_CHECKING, Any

from sparkraft.metadata.apply import apply
from sparkraft.metadata.image import EMPTY_IMAGE, ClusterImage
from sparkraft.metadata.snapshot import records_of
from sparkraft.simulation.invariants import Violation

if TYPE_CHECKING:
    from sparkraft.base.ids import Uuid
    from sparkraft.simulation.nodes import Machine, NodesWorld


class NodeChecks:
    """The checkers of one world, and what they remember."""

    def __init__(self, world: "NodesWorld") -> None:
        """Nothing has happened yet."""
        self.world = world
        self.checks: Counter[str] = Counter()
        self.created: dict[str, Uuid] = {}
        """Topics whose creation was acknowledged."""
        self._leaders: dict[int, str] = {}
        self._committed: dict[int, tuple[int, int]] = {}
        self._checked_to: dict[str, int] = {}
        self._images: dict[int, list[Any]] = {}
        self._broker_epochs: dict[int, int] = {}
        self._topic_ids: dict[bytes, str] = {}
        self._producer_ids: set[int] = set()

    def require(self, holds: object, invariant: str, text: str) -> None:
        """Raise where the invariant does not hold."""
        self.checks[invariant] += 1
        if not holds:
            raise Violation(invariant, text)

    def on_start(self, machine: "Machine") -> None:
        """A node starts: all it has committed is looked at again."""
        self._checked_to[machine.name] = 0

    # ---- what clients were told

    def on_created(self, name: str, topic_id: "Uuid") -> None:
        """CreateTopics was answered without error."""
        self.world.counts["topics created"] += 1
        known = self._topic_ids.setdefault(topic_id, name)
        self.require(known == name, "C9", f"{topic_id} names both {known} and {name}")
        self.created[name] = topic_id

    def on_producer_id(self, producer_id: int) -> None:
        """InitProducerId was answered without error."""
        self.world.counts["producer ids"] += 1
        fresh = producer_id not in self._producer_ids
        self.require(fresh, "C9", f"producer id {producer_id} is given twice")
        self._producer_ids.add(producer_id)

    # ---- every second

    def every_second(self) -> None:
        """Look at every node that runs."""
        for machine in self.world.machines:
            node = machine.live_node
            if node is None or node.raft is None:
                continue
            self._check_leader(machine, node.raft)
            if node.failure is None:  # a failed disk answers nobody; its node is about to stop
                self._check_committed(machine, node.raft)
            image = image_of(machine)
            if image is not None and image.offset >= 0:
                self._check_image(machine, image)

    def _check_leader(self, machine: "Machine", raft: Any) -> None:
        if not raft.is_leader:
            return
        epoch = raft.leader_and_epoch.epoch
        if epoch not in self._leaders:
            self.world.counts["elections won"] += 1
            self.world.note(f"{machine.name}* e={epoch} HW={raft.high_watermark}")
        known = self._leaders.setdefault(epoch, machine.name)
        self.require(known == machine.name, "Q1", f"{known} and {machine.name} lead epoch {epoch}")

    def _check_committed(self, machine: "Machine", raft: Any) -> None:
        log = raft._log  # noqa: SLF001 (a checker looks inside)
        first = max(self._checked_to[machine.name], log.start)
        up_to = min(raft.high_watermark, log.end)
        if up_to <= first:
            return
        for header, _ in log.batches(first, up_to):
            if header.last_offset >= up_to:
                break
            told = (header.partition_leader_epoch, header.crc)
            known = self._committed.setdefault(header.base_offset, told)
            self.require(
                known == told,
                "Q5",
                f"{machine.name} has committed {told} at {header.base_offset}, known {known}",
            )
            self._checked_to[machine.name] = header.last_offset + 1

    def _check_image(self, machine: "Machine", image: ClusterImage) -> None:
        told = list(records_of(image))
        known = self._images.setdefault(image.offset, told)
        self.require(
            known == told, "C6", f"the image of {machine.name} at {image.offset} is another's not"
        )
        for broker_id in sorted(image.brokers):
            epoch = image.brokers[broker_id].epoch
            before = self._broker_epochs.get(broker_id, -1)
            self._broker_epochs[broker_id] = max(epoch, before)
        epochs = [broker.epoch for broker in image.brokers.values()]
        self.require(len(set(epochs)) == len(epochs), "C5", f"broker epochs {sorted(epochs)}")

    # ---- at the end

    def at_end(self) -> None:
        """All is healed and has come to rest."""
        for machine in self.world.machines:
            image = image_of(machine)
            assert image is not None
            for name in sorted(self.created):
                topic_id = image.topics_by_name.get(name)
                self.require(
                    topic_id == self.created[name],
                    "C7",
                    f"{name} was created as {self.created[name]}; {machine.name} has {topic_id}",
                )
            self._check_reload(machine, image)

    def _check_reload(self, machine: "Machine", image: ClusterImage) -> None:
        again = EMPTY_IMAGE
        records = list(records_of(image))
        for record, _ in records:
            again = apply(again, record)
        self.require(
            list(records_of(again)) == records,
            "C6",
            f"the image of {machine.name} is another once it went through a snapshot",
        )

    def is_healthy(self) -> bool:
        """Whether every broker is unfenced and every partition led, on every node's image."""
        self.checks["C10"] += 1
        offsets = set()
        for machine in self.world.machines:
            image = image_of(machine)
            if image is None:
                return False
            brokers = image.brokers
            if len(brokers) < len(self.world.ids) or any(b.fenced for b in brokers.values()):
                return False
            if any(
                partition.leader < 0
                for topic in image.topics_in_order()
                for partition in topic.partitions.values()
            ):
                return False
            offsets.add(len(image.topics_by_name))
        return len(offsets) == 1


def image_of(machine: "Machine") -> ClusterImage | None:
    """What a node that runs knows of the cluster."""
    node = machine.live_node
    publisher = node._publisher if node is not None else None  # noqa: SLF001 (a checker)
    return None if publisher is None else publisher.image
