"""Invariants of whole nodes: after every event (`node_events`), every second and at the end.

C6  all nodes have the same image at the same offset; an image survives its own snapshot
C7  a topic whose creation was acknowledged stays created
C9  topic ids and producer ids are unique
C10 after healing: brokers are unfenced, every partition has a leader, reassignments complete,
    controllers agree; preferred leaders lead again if leaders are rebalanced often enough

C1 to C4, C8 and P1 to P11: `record_checks`; C5: `registration_checks`
S1 to S9: `storage_checks`; S6: `compaction_clients`; S10: `folder_checks`
L1: work in one piece of an event loop: `loop_checks`
F1, G8: fencing and group coordinators: `process_checks`
E1  explanations of leaders and ISRs match what happened: `explanation_checks`
T1 to T16: transactions: `transaction_checks`
K1 to K15, R1, R2: groups of KIP-848: `group_checks`
R3, R4: the runtime of coordinators: `shard_checks`
A1 to A3: users, their rights and quotas: `principal_checks`
V1  records and requests between nodes respect the finalized metadata.version
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sparkraft.metadata.apply import apply
from sparkraft.metadata.image import EMPTY_IMAGE, ClusterImage
from sparkraft.metadata.snapshot import records_of
from sparkraft.records.batch import iter_batches
from sparkraft.simulation.checks import versions
from sparkraft.simulation.checks.append_checks import AppendChecks
from sparkraft.simulation.checks.explanation_checks import ExplanationChecks
from sparkraft.simulation.checks.folder_checks import FolderChecks, folders_watched
from sparkraft.simulation.checks.group_checks import GroupChecks
from sparkraft.simulation.checks.isr_oracle import listening
from sparkraft.simulation.checks.loop_checks import LoopChecks, work_watched
from sparkraft.simulation.checks.node_events import NodeEvents, watched
from sparkraft.simulation.checks.principal_checks import PrincipalChecks
from sparkraft.simulation.checks.probe import ConnectionEnd, Probe
from sparkraft.simulation.checks.process_checks import ProcessChecks
from sparkraft.simulation.checks.record_checks import RecordChecks
from sparkraft.simulation.checks.recovery_checks import storage_watched
from sparkraft.simulation.checks.registration_checks import RegistrationChecks
from sparkraft.simulation.checks.shard_checks import ShardChecks
from sparkraft.simulation.checks.snapshot_checks import SnapshotChecks
from sparkraft.simulation.checks.storage_checks import StorageChecks
from sparkraft.simulation.checks.stored_log import StoredBatch, StoredLog
from sparkraft.simulation.checks.transaction_checks import TransactionChecks
from sparkraft.simulation.world.machine import image_of
from sparkraft.simulation.world.violation import Violation

if TYPE_CHECKING:
    from sparkraft.base.ids import Uuid
    from sparkraft.simulation.world.machine import Machine

PORTS = {9092: True, 9093: False}
"""Listener port → whether brokers serve it."""


class NodeChecks:
    """The checkers of one world and their state."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.checks: Counter[str] = Counter()
        self.only: tuple[str, ...] = ()
        """Invariants to check; empty for all."""
        self.snapshots = SnapshotChecks(probe, self.require)
        self.events = NodeEvents(probe, self.require, self.snapshots)
        self.events.on_committed = self._on_committed
        self.records = RecordChecks(probe, self.require)
        self.registrations = RegistrationChecks(probe, self.require)
        self.storage = StorageChecks(probe, self.require)
        self.loops = LoopChecks(probe, self.require)
        self.appends = AppendChecks(probe, self.require)
        self.folders = FolderChecks(probe, self.require)
        self.processes = ProcessChecks(probe, self.require)
        self.explanations = ExplanationChecks(probe, self.require)
        self.transactions = TransactionChecks(
            probe, self.require, self._log_of, lambda: self.records.image
        )
        self.principals = PrincipalChecks(probe, self.require, lambda: self.records.image)
        self.groups = GroupChecks(
            probe,
            self.require,
            self._log_of,
            lambda: self.records.image,
            self.principals.may_find,
        )
        self.shards = ShardChecks(probe, self.require)
        self.storage.on_batches = self._on_batches
        self.storage.on_answer = self._on_answer
        self.storage.on_folders = self.loops.on_operation
        self.created: dict[str, Uuid] = {}
        """Topics whose creation was acknowledged."""
        self._created_below: dict[str, int] = {}
        """Topic name → committed end of the metadata log when its creation was acknowledged."""
        self._images: dict[int, list[Any]] = {}
        self._topic_ids: dict[bytes, str] = {}
        self._producer_ids: set[int] = set()
        self._level: int | None = None
        """Committed metadata.version."""

    def _log_of(self, machine: "Machine", directory: str) -> StoredLog | None:
        return self.storage.watched(machine).logs.get(directory)

    def _on_batches(self, machine: "Machine", directory: str, batches: list[StoredBatch]) -> None:
        self.transactions.on_batches(machine, directory, batches)
        self.groups.on_batches(machine, directory, batches)
        self.shards.on_batches(machine, directory, batches)

    def _on_answer(self, host: str, request: Any, response: Any) -> None:
        self.transactions.on_answer(host, request, response)
        self.groups.on_answer(host, request, response)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Observe cores, drivers, leaders, controllers and logs within this context."""
        oracle = self.explanations.isr_oracle
        with (
            watched(
                self.probe,
                self.events,
                on_truncate=self.records.on_truncate,
                on_fence_refused=self.processes.on_fence_refused,
                on_registration=self.registrations.on_decided,
                silent_ms=oracle.silent_ms,
            ),
            listening(self.probe, oracle),
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
        ):
            yield

    def require(self, holds: object, invariant: str, text: str) -> None:
        """Raise `Violation` unless the invariant holds or is not checked in this run."""
        self.checks[invariant] += 1
        if not holds and self.counts(invariant):
            raise Violation(invariant, text)

    def counts(self, invariant: str) -> bool:
        """Whether the invariant is checked in this run."""
        return not self.only or invariant in self.only

    def on_start(self, machine: "Machine") -> None:
        """A node starts; its committed records are checked again."""
        self.events.on_start(machine)
        self.registrations.on_start(machine)
        self.probe.check(lambda: self.storage.on_start(machine))

    # ---- acknowledged to clients

    def on_created(self, name: str, topic_id: "Uuid") -> None:
        """A client received a successful CreateTopics response."""
        self.probe.check(lambda: self._note_topic(name, topic_id))

    def _note_topic(self, name: str, topic_id: "Uuid") -> None:
        self.probe.counts["topics created"] += 1
        known = self._topic_ids.setdefault(topic_id, name)
        self.require(known == name, "C9", f"topics {known} and {name} have the same id {topic_id}")
        self.created[name] = topic_id
        self._created_below[name] = self.events.committed_end
        self._check_kept(name)

    def _check_created(self) -> None:
        for name in sorted(self.created):
            self._check_kept(name)

    def _check_kept(self, name: str) -> None:
        """Check that an acknowledged topic is committed and unchanged."""
        known = self.records.image.topics_by_name.get(name)
        self.require(
            known == self.created[name],
            "C7",
            f"{name} was created as {self.created[name]}, committed is {known}",
        )

    def on_producer_id(self, producer_id: int) -> None:
        """A client received a successful InitProducerId response."""
        self.probe.check(lambda: self._note_producer_id(producer_id))

    def _note_producer_id(self, producer_id: int) -> None:
        self.probe.counts["producer ids"] += 1
        fresh = producer_id not in self._producer_ids
        self.require(fresh, "C9", f"producer id {producer_id} is assigned twice")
        self._producer_ids.add(producer_id)

    # ---- versions

    def _on_committed(self, base: int, header: Any, view: memoryview) -> None:
        """Check a committed batch. Called once per batch, in order."""
        self.probe.counts["batches committed"] += 1
        self.explanations.on_committed(header, view)
        if header.is_control:
            self.snapshots.on_committed(header, view, self.records.settled)
            return
        for head in versions.written(view):
            if head.level is not None:
                self._level = head.level
            self._check_version(head, self._level, f"at {base}")
        before = self.records.image
        self.records.on_committed(base, header, view)
        self.registrations.on_committed(before, self.records.image)
        self.principals.on_committed(before, self.records.image)
        self.snapshots.on_committed(header, view, self.records.settled)

    def _check_version(self, head: versions.Written, level: int | None, where: str) -> None:
        self.require(
            level is None or versions.record_is_allowed(head.kind, head.version, level),
            "V1",
            f"record {head.kind} v{head.version} {where}, metadata.version is {level}",
        )

    def on_snapshot(self, machine: "Machine", path: str) -> None:
        """Check a metadata snapshot after it is renamed into place."""
        self.snapshots.on_snapshot(machine, path)
        raw = machine.disk.read(path)
        level: int | None = None
        for header, view in iter_batches(raw):
            if header.is_control:
                continue
            for head in versions.written(view):
                level = head.level if head.level is not None else level
                self._check_version(head, level, f"in {path} of {machine.name}")

    def on_bytes(self, end: ConnectionEnd, raw: bytes) -> None:
        """Check the versions of requests that a node writes to a connection."""
        to_broker = PORTS.get(end.far_port)
        machine = self.probe.machine(end.incarnation.name)
        if to_broker is None or machine is None:
            return
        image = image_of(machine)
        level = image.metadata_version if image is not None else 0
        at = 0
        while level and at + 8 <= len(raw):
            size = int.from_bytes(raw[at : at + 4], "big")
            key, version = (int.from_bytes(raw[at + n : at + n + 2], "big") for n in (4, 6))
            self.require(
                versions.request_is_allowed(key, version, level, to_broker=to_broker),
                "V1",
                f"{machine.name} sends API key {key} v{version}, metadata.version is {level}",
            )
            at += 4 + size

    # ---- every second

    def every_second(self) -> None:
        """Check every running node."""
        for machine in self.probe.machines:
            image = image_of(machine)
            if image is not None and image.offset >= 0:
                self._check_image(machine, image)
        self._check_created()
        self.events.every_second()
        self.snapshots.every_second()
        self.records.every_second()
        self.folders.every_second()
        self.processes.every_second()
        self.explanations.every_second()
        self.transactions.every_second()
        self.groups.every_second()

    def _check_image(self, machine: "Machine", image: ClusterImage) -> None:
        known = self._images.get(image.offset)
        if known is not None and known[0] is image:
            return
        records = list(records_of(image))
        if known is None:
            self._images[image.offset] = [image, records]
            self.registrations.check_image(image)
            self._check_reload(machine, records)
            return
        self.require(
            known[1] == records,
            "C6",
            f"the image of {machine.name} at {image.offset} differs from another node's",
        )

    # ---- at the end

    def at_end(self) -> None:
        """Check the healed cluster at rest."""
        for machine in self.probe.machines:
            if machine in self.probe.broken:
                continue
            image = image_of(machine)
            self.require(image is not None, "C10", f"{machine.name} is not running")
            if image is None:
                continue  # C10 may not be checked in this run
            for name in sorted(self.created):
                topic_id = image.topics_by_name.get(name)
                # Clients run until the end: a recent topic may not have reached this node.
                behind = image.offset + 1 < self._created_below[name]
                self.require(
                    topic_id == self.created[name] or behind,
                    "C7",
                    f"{name} was created as {self.created[name]}, {machine.name} has {topic_id}",
                )
        self.storage.at_end()
        self.folders.every_second()
        self.explanations.at_end()
        self.transactions.at_end()
        self.groups.at_end()
        self.principals.at_end()

    def _check_reload(self, machine: "Machine", records: list[Any]) -> None:
        again = EMPTY_IMAGE
        for record, _ in records:
            again = apply(again, record)
        self.require(
            list(records_of(again)) == records,
            "C6",
            f"the image of {machine.name} changes when reloaded from a snapshot",
        )

    def is_healthy(self) -> bool:
        """Whether every broker and partition that can recover has done so in every node's image."""
        self.checks["C10"] += 1
        broken = {machine.id for machine in self.probe.broken}
        wiped = {machine.id for machine in self.probe.machines if machine.disks}
        expected = {m.id for m in self.probe.brokers} - broken
        sizes = set()
        for machine in self.probe.machines:
            if machine in self.probe.broken:
                continue
            image = image_of(machine)
            if image is None:
                return False
            unfenced = {i for i in image.brokers if not image.brokers[i].fenced}
            lost = broken | wiped
            if not expected <= unfenced or not _all_led(image, lost) or _is_moving(image, lost):
                return False
            if self.probe.layout.balanced and not _is_balanced(image):
                return False
            sizes.add(len(image.topics_by_name))
        return len(sizes) == 1


def _all_led(image: ClusterImage, lost: set[int]) -> bool:
    """Whether every partition with a replica outside `lost` has a leader."""
    return all(
        partition.leader >= 0
        for topic in image.topics_in_order()
        for partition in topic.partitions.values()
        if set(partition.replicas) - lost
    )


def _is_balanced(image: ClusterImage) -> bool:
    """Whether the preferred leader leads every partition that it is in sync with."""
    return not any(
        partition.leader != partition.preferred_leader
        and partition.preferred_leader in partition.isr
        for topic in image.topics_in_order()
        for partition in topic.partitions.values()
    )


def _is_moving(image: ClusterImage, lost: set[int]) -> bool:
    """Whether a reassignment is in progress that does not involve a broker in `lost`."""
    return any(
        (partition.adding_replicas or partition.removing_replicas)
        and not lost & {*partition.replicas}
        for topic in image.topics_in_order()
        for partition in topic.partitions.values()
    )
