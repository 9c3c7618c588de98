"""Invariants of replicated partitions: the controller's records, the leaders and the logs.

At every committed batch of the metadata log:
    C1  ISR and ELR are disjoint subsets of the replicas; no ELR while the ISR is large enough
    C2  the leader is in the ISR
    C3  no fenced broker is in an ISR, except as the last member without ELR
    C4  the partition epoch grows by one per change, the leader epoch with each new leader
    C8  topic names and ids match; replicas are distinct
    P5  a replica that joins an ISR has all acknowledged records
When a log is truncated:
    P10 an in-sync replica truncates neither its leader's committed nor any acknowledged records
Every simulated second, on every running node:
    P1  one leader per epoch, and only in epochs that the controller assigned
    P2  logs match below their high watermarks, and in batches of the same epoch
    P3  every replica in the controller's ISR has all records that its leader has committed
    P4  a leader waits for every replica that may become the next leader
    P5  every replica in the ISR has all acknowledged records
    P6  the high watermark does not advance while the ISR is below the minimum
    P9  the leader epoch cache is increasing and matches the batches
    P11 log start ≤ high watermark ≤ log end; the log start never decreases
"""

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sparkraft.metadata.apply import apply
from sparkraft.metadata.features import elr_enabled
from sparkraft.metadata.image import EMPTY_IMAGE, ClusterImage
from sparkraft.metadata.partition_state import PartitionState
from sparkraft.protocol.framing import decode_metadata_record
from sparkraft.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from sparkraft.records.record import decode_records
from sparkraft.simulation.checks.node_events import Batch
from sparkraft.simulation.checks.probe import Probe, Require

if TYPE_CHECKING:
    from sparkraft.simulation.world.machine import Machine

Where = tuple[bytes, int]
"""Topic id and partition index."""


class RecordChecks:
    """See the module docstring; `image` is the independently replayed committed metadata."""

    def __init__(self, probe: Probe, require: Require) -> None:
        self.probe = probe
        self.require = require
        self.image: ClusterImage = EMPTY_IMAGE
        self._before_transaction: ClusterImage | None = None
        self._leaders: dict[tuple[Where, int], str] = {}
        self._committed: dict[Where, dict[int, Batch]] = {}
        self._written: dict[tuple[Where, int, int], int] = {}
        self._logs: dict[tuple[str, int, Where], Any] = {}
        """The last log object of a partition in a process. A different object is a new replica: the
        partition was removed and assigned again."""
        self._looked: dict[tuple[str, int, Where], tuple[int, int]] = {}
        self._marks: dict[tuple[str, int, Where], tuple[int, int]] = {}
        self._starts: dict[tuple[str, int, Where], int] = {}
        self._kept_in_isr: dict[Where, PartitionState] = {}
        """States after fencing without ELR, which keeps the last member in the ISR."""
        self._acknowledged: dict[tuple[str, int], int] = {}
        """Topic-partition → offset after the last acknowledged record."""

    def on_acknowledged(self, topic: str, index: int, end: int) -> None:
        """A producer with acks=all received an acknowledgment for records below `end`."""
        known = self._acknowledged.get((topic, index), 0)
        self._acknowledged[topic, index] = max(known, end)

    @property
    def settled(self) -> ClusterImage | None:
        """The committed image; None within a metadata transaction."""
        return self.image if self._before_transaction is None else None

    # ---- the controller's records

    def on_committed(self, base: int, header: Any, view: memoryview) -> None:
        """Check a committed data batch of the metadata log. Called once per batch, in order."""
        before = self.image
        for record in decode_records(view):
            self._replay(decode_metadata_record(record.value or b"")[0])
        self.image = self.image.at(header.last_offset, header.partition_leader_epoch)
        if self._before_transaction is None:
            self._check_image(before, base)

    def _replay(self, message: Any) -> None:
        match message:
            case BeginTransactionRecord():
                self._before_transaction = self.image
            case EndTransactionRecord():
                self._before_transaction = None
            case AbortTransactionRecord():
                assert self._before_transaction is not None
                self.image, self._before_transaction = self._before_transaction, None
            case _:
                before = self.image
                self.image = apply(before, message)
                topic_id = getattr(message, "topic_id", None)
                if topic_id is not None and hasattr(message, "partition_id"):
                    self._check_change(before, topic_id, message.partition_id)

    def _check_change(self, before: ClusterImage, topic_id: Any, index: int) -> None:
        old = before.partition(topic_id, index)
        new = self.image.partition(topic_id, index)
        if old is None or new is None:
            return
        name = f"{topic_id}-{index}"
        topic = self.image.topics_by_id[topic_id]
        self.probe.note(f"{topic.name}-{index} {_tell_partition(new)}")
        self.require(
            new.partition_epoch == old.partition_epoch + 1,
            "C4",
            f"{name}: partition epoch changes from {old.partition_epoch} to {new.partition_epoch}",
        )
        if (old.adding_replicas or old.removing_replicas) and not (
            new.adding_replicas or new.removing_replicas
        ):
            back = set(new.replicas) == set(old.replicas) - set(old.adding_replicas)
            self.probe.counts[f"reassignments {'cancelled' if back else 'done'}"] += 1
        self._check_joined(topic_id, index, set(new.isr) - set(old.isr))
        moved = new.leader != old.leader
        rose = new.leader_epoch - old.leader_epoch
        self.require(
            rose == 1 if moved else rose in {0, 1},
            "C4",
            f"{name}: leader changes from {old.leader} in epoch {old.leader_epoch} "
            f"to {new.leader} in epoch {new.leader_epoch}",
        )

    def _check_joined(self, topic_id: Any, index: int, joined: set[int]) -> None:
        """Check that replicas joining the ISR have all acknowledged records."""
        topic = self.image.topics_by_id[topic_id]
        acknowledged = self._acknowledged.get((topic.name, index), 0)
        for machine in self.probe.brokers if joined and acknowledged else ():
            ends = [
                p.log.log_end_offset
                for p in _hosted(machine)
                if machine.id in joined and (p.topic, p.index) == (topic.name, index)
            ]
            self.require(
                not ends or ends[0] >= acknowledged,
                "P5",
                f"{machine.name} joins the ISR of {topic.name}-{index} with LEO={ends}, "
                f"acknowledged up to {acknowledged}",
            )

    def _check_image(self, before: ClusterImage, base: int) -> None:
        image = self.image
        if image.topics_by_id is before.topics_by_id and image.brokers is before.brokers:
            return
        for topic in image.topics_in_order():
            self.require(
                image.topics_by_name.get(topic.name) == topic.id,
                "C8",
                f"{topic.name} has id {topic.id}, by name {image.topics_by_name.get(topic.name)}",
            )
            for index, partition in topic.in_order():
                name, where = f"{topic.name}-{index} at {base}", (bytes(topic.id), index)
                self._check_partition(name, where, partition)

    def _check_partition(self, name: str, where: Where, partition: PartitionState) -> None:
        replicas, isr, elr = set(partition.replicas), set(partition.isr), set(partition.elr)
        self.require(len(replicas) == len(partition.replicas), "C8", f"{name}: {partition}")
        sound = isr <= replicas and elr <= replicas and not isr & elr
        self.require(sound, "C1", f"{name}: {partition}")
        led = partition.leader in isr if partition.leader >= 0 else True
        self.require(led, "C2", f"{name}: {partition}")
        enough = min(self.probe.layout.min_insync, len(partition.replicas))
        self.require(
            len(partition.last_known_elr) <= 1 and (not elr or len(isr) < enough),
            "C1",
            f"{name}: {partition}",
        )
        with_elr = elr_enabled(self.image.features)
        fenced = {r for r in isr if r not in self.image.brokers or self.image.brokers[r].fenced}
        if fenced and not with_elr:
            self._kept_in_isr[where] = partition
        # Enabling ELR changes no partition; the next change of this one does.
        without = not with_elr or self._kept_in_isr.get(where) == partition
        self.require(
            not fenced or (without and isr == fenced and partition.leader < 0),
            "C3",
            f"{name}: {sorted(fenced)} are fenced; {partition}",
        )

    # ---- truncation

    def on_truncate(self, machine: "Machine", log: Any, offset: int) -> None:
        """Check that an in-sync replica keeps the records its leader has committed."""
        topic_id = self.image.topics_by_name.get(log.topic)
        assigned = None if topic_id is None else self.image.partition(topic_id, log.partition)
        if assigned is None or machine.id not in assigned.isr or assigned.leader == machine.id:
            return
        leader = next((m for m in self.probe.brokers if m.id == assigned.leader), None)
        acknowledged = self._acknowledged.get((log.topic, log.partition), 0)
        self.require(
            offset >= acknowledged,
            "P10",
            f"in-sync {machine.name} truncates {log.name} to {offset}, "
            f"acknowledged up to {acknowledged}",
        )
        led = [p for p in _hosted(leader) if p.log.name == log.name] if leader is not None else []
        if not led or not led[0].is_leader or led[0].leader_epoch != assigned.leader_epoch:
            return
        theirs = led[0].log
        for header, _ in log.read_batches(offset, log.log_end_offset):
            if header.last_offset >= theirs.high_watermark:
                break
            if header.base_offset < theirs.log_start_offset or theirs.config.compact:
                continue  # the leader may have deleted or compacted it
            same, _ = next(theirs.read_batches(header.base_offset, header.last_offset + 1))
            self.require(
                same.crc != header.crc
                or same.partition_leader_epoch != header.partition_leader_epoch,
                "P10",
                f"in-sync {machine.name} truncates committed {header.base_offset} of {log.name}",
            )

    # ---- every second

    def every_second(self) -> None:
        """Check every hosted partition."""
        hosted = [
            (machine, partition)
            for machine in self.probe.brokers
            for partition in _hosted(machine)
            if partition.log.fault is None
        ]
        for machine, partition in hosted:
            where = (partition.topic_id, partition.index)
            self._check_log(machine, where, partition)
            if partition.is_leader:
                self._check_leader(machine, where, partition)
        by_machine = {(m.id, p.topic_id, p.index): (m, p) for m, p in hosted}
        for machine, partition in hosted:
            if partition.is_leader and len(partition.followers) > 0:
                self._check_isr(machine, partition, by_machine)

    def _check_leader(self, machine: "Machine", where: Where, partition: Any) -> None:
        epoch = partition.leader_epoch
        known = self._leaders.setdefault((where, epoch), machine.name)
        self.require(
            known == machine.name,
            "P1",
            f"{known} and {machine.name} both lead {partition} in epoch {epoch}",
        )
        assigned = self.image.partition(partition.topic_id, partition.index)
        self.require(
            assigned is None or epoch <= assigned.leader_epoch,
            "P1",
            f"{machine.name} leads {partition} in epoch {epoch}, the controller has {assigned}",
        )

    def _check_log(self, machine: "Machine", where: Where, partition: Any) -> None:
        log = partition.log
        start, mark, end = log.log_start_offset, log.high_watermark, log.log_end_offset
        self.require(
            start <= mark <= end, "P11", f"{machine.name} {partition}: not {start} ≤ {mark} ≤ {end}"
        )
        key = (machine.name, machine.life, where)
        if self._logs.setdefault(key, log) is not log:
            self._logs[key] = log
            for known in (self._looked, self._marks, self._starts):
                known.pop(key, None)
        self.require(
            start >= self._starts.get(key, 0),
            "P11",
            f"{machine.name} {partition}: log start decreases to {start}",
        )
        self._starts[key] = start
        entries = log.leader_epochs
        rising = all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(entries))
        self.require(rising, "P9", f"{machine.name} {partition}: epoch cache {entries}")
        if not log.config.compact:
            self._check_batches(machine, where, partition, key)

    def _check_batches(self, machine: "Machine", where: Where, partition: Any, key: Any) -> None:
        """Check batches that are newly below the high watermark, and all above it."""
        log = partition.log
        first = self._looked.get(key, (log.log_start_offset, 0))[0]
        committed = self._committed.setdefault(where, {})
        starts = {start: epoch for epoch, start in log.leader_epochs}
        for header, _ in log.read_batches(max(first, log.log_start_offset), log.log_end_offset):
            base, epoch = header.base_offset, header.partition_leader_epoch
            batch = Batch(epoch, header.crc, header.last_offset)
            crc = self._written.setdefault((where, base, epoch), header.crc)
            self.require(
                crc == header.crc,
                "P2",
                f"{machine.name} {partition}: other bytes at {base} in epoch {epoch}",
            )
            if base in starts:
                self.require(
                    starts[base] == epoch,
                    "P9",
                    f"{machine.name} {partition}: batch {base} of epoch {epoch}, in the cache "
                    f"{starts[base]}",
                )
            if header.last_offset < log.high_watermark:
                known = committed.setdefault(base, batch)
                self.require(
                    known == batch,
                    "P2",
                    f"{machine.name} {partition} commits {batch} at {base}, committed is {known}",
                )
                self._looked[key] = (header.last_offset + 1, 0)

    def _check_isr(self, machine: "Machine", partition: Any, by_machine: dict[Any, Any]) -> None:
        assigned = self.image.partition(partition.topic_id, partition.index)
        leading = partition.leading
        if assigned is None or leading is None or assigned.leader != machine.id:
            return
        current = assigned.leader_epoch == partition.leader_epoch
        mark = int(partition.log.high_watermark)
        for replica in assigned.isr if current else ():
            found = by_machine.get((replica, partition.topic_id, partition.index))
            if found is None or not self._is_registered(found[0]):
                continue
            end = found[1].log.log_end_offset
            acknowledged = self._acknowledged.get((partition.topic, partition.index), 0)
            self.require(
                end >= acknowledged,
                "P5",
                f"{found[0].name} is in sync in {partition} with LEO={end}, "
                f"acknowledged up to {acknowledged}",
            )
            self.require(
                end >= mark,
                "P3",
                f"{partition}: {found[0].name} has LEO={end}, leader HW={mark}",
            )
        for replica in assigned.elr if current else ():
            found = by_machine.get((replica, partition.topic_id, partition.index))
            if found is not None and self._is_registered(found[0], fenced=True):
                end = found[1].log.log_end_offset
                self.require(
                    end >= mark,
                    "P4",
                    f"{found[0].name} is eligible for {partition} with LEO={end}, HW={mark}",
                )
        if current and assigned.partition_epoch == leading.partition_epoch:
            counted = set(leading.in_sync.maximal_isr)
            self.require(
                counted >= set(assigned.isr),
                "P4",
                f"{partition}: {machine.name} waits for {sorted(counted)}, ISR {assigned.isr}",
            )
            self._check_standstill(machine, partition, assigned, mark)

    def _check_standstill(
        self, machine: "Machine", partition: Any, assigned: PartitionState, mark: int
    ) -> None:
        key = (machine.name, machine.life, (partition.topic_id, partition.index))
        epoch, before = self._marks.get(key, (-1, mark))
        enough = min(partition.min_insync, len(assigned.replicas))
        small = len(assigned.isr) < enough and epoch == assigned.partition_epoch
        self.require(
            not small or mark == before or len(partition.leading.in_sync.maximal_isr) >= enough,
            "P6",
            f"{partition}: HW advances from {before} to {mark} with ISR {assigned.isr}",
        )
        self._marks[key] = (assigned.partition_epoch, mark)

    def _is_registered(self, machine: "Machine", *, fenced: bool = False) -> bool:
        """Whether the running process is the registered incarnation."""
        node = machine.live_node
        broker = self.image.brokers.get(machine.id)
        epoch = node.broker.lifecycle.broker_epoch if node is not None and node.broker else -1
        current = broker is not None and broker.epoch == epoch
        return broker is not None and current and (fenced or not broker.fenced)


def _tell_partition(partition: PartitionState) -> str:
    """Format a partition for the trace."""
    leader = f"leader=n{partition.leader}" if partition.leader >= 0 else "no leader"
    elr = f" elr={list(partition.elr)}" if partition.elr else ""
    return f"{leader} e={partition.leader_epoch} isr={list(partition.isr)}{elr}"


def _hosted(machine: "Machine") -> list[Any]:
    node = machine.live_node
    if node is None or node.broker is None:
        return []
    return sorted(
        node.broker.replica_manager.all_hosted(), key=lambda each: (each.topic, each.index)
    )
