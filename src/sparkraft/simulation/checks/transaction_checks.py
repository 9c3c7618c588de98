"""Invariants of transactions, read from the bytes of `__transaction_state` and of data partitions.

Whenever a leader appends:
    T7  no batch follows a marker of a later epoch of its producer
    T10 the partition of a transactional batch is in a replicated Ongoing record already
    T11 a marker follows the replicated decision, and Complete* the markers of all partitions of the
        transaction
    T12 a transition of an id follows only one that is committed
Whenever a record of `__transaction_state` is committed:
    T2  a decision is never reversed
    T5  states follow each other as in KIP-98 and KIP-890; the epoch never decreases, and the
        producer id changes only when its epochs are used up
    T13 only ids without a transaction expire, and not early
At each response:
    T6  a producer is fenced only after another one got a later epoch of its transactional id
Every second:
    T15 the state of a coordinator equals a replay of its log
At the end:
    T1  all partitions of a transaction have the same marker, that of the coordinator's decision
    T8  no partition has an open transaction that its coordinator does not know

T3, T4, T6 as well, T14 and T16: `workload.transaction_ledger`; T9: `coordinator_scenarios`
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode
from sparkraft.metadata.image import ClusterImage
from sparkraft.protocol.messages.k26_end_txn import EndTxnRequest
from sparkraft.simulation.checks.committed_log import (
    CommittedLog,
    hosted_of,
    leader_of,
    led_by,
)
from sparkraft.simulation.checks.probe import Probe, Require
from sparkraft.simulation.checks.stored_log import StoredBatch, StoredLog
from sparkraft.simulation.checks.transaction_log import (
    ENDED,
    OFFSETS_TOPIC,
    STATE_TOPIC,
    SUCCESSORS,
    Partition,
    StateRecord,
    Status,
    marker_of,
    numbers_in,
    state_records,
    transactions_in,
)
from sparkraft.simulation.checks.watched_disk import DATA, partition_of

if TYPE_CHECKING:
    from sparkraft.simulation.world.machine import Machine

EXHAUSTED_EPOCH = 32_766
"""From this epoch on, the next one belongs to a new producer id."""

FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING})
"""The errors of EndTxn for a producer that has a successor."""

LogOf = Callable[["Machine", str], StoredLog | None]
"""Returns the recovered log in a directory of a machine."""

MarkerKey = tuple[int, int, bool]
"""Producer id, epoch and result of a marker."""


class TransactionChecks:
    """See the module docstring."""

    def __init__(
        self, probe: Probe, require: Require, log_of: LogOf, image: Callable[[], ClusterImage]
    ) -> None:
        """Check nothing yet; `image` is the committed metadata."""
        self.probe = probe
        self.require = require
        self._log_of = log_of
        self._image = image
        self._parsed: dict[tuple[int, int, int], list[StateRecord]] = {}
        self._markers: dict[Partition, dict[MarkerKey, set[str]]] = defaultdict(
            lambda: defaultdict(set)
        )
        """Partition → marker → machines that have written it."""
        self._registered: dict[tuple[int, int, Partition], set[str]] = defaultdict(set)
        """Producer id, epoch and partition → machines with an Ongoing record that has them."""
        self._prepared: dict[MarkerKey, set[str]] = defaultdict(set)
        """Marker → machines with the record that decides it."""
        self._newest: dict[tuple[str, str], tuple[int, int]] = {}
        """Machine and transactional id → the last producer id and epoch that it has written."""
        self._logs: dict[int, CommittedLog] = defaultdict(CommittedLog)
        self._last: dict[str, StateRecord] = {}
        """Transactional id → its last committed record."""
        self._decided: dict[tuple[int, int], set[bool]] = defaultdict(set)
        """Producer id and epoch of markers → the committed decisions."""
        self._id_of: dict[int, str] = {}

    # ---- appends

    def on_batches(self, machine: "Machine", directory: str, batches: list[StoredBatch]) -> None:
        """Check batches that were just appended to a file."""
        partition = partition_of(directory)
        for batch in batches:
            if partition[0] == STATE_TOPIC:
                self._on_state(machine, directory, partition[1], batch)
            elif batch.header.is_transactional:
                self._on_transactional(machine, directory, partition, batch)

    def _on_state(self, machine: "Machine", directory: str, index: int, batch: StoredBatch) -> None:
        self._logs[index].add(batch)
        led = led_by(machine, (STATE_TOPIC, index), batch)
        for record in self._records(index, batch):
            identity = (record.producer_id, record.epoch)
            self._newest[machine.name, record.transactional_id] = identity
            if record.status is Status.ONGOING:
                for partition in record.partitions:
                    key = (record.producer_id, record.epoch, partition)
                    self._registered[key].add(machine.name)
            elif record.status is not None and record.status.is_prepared:
                decided = (record.producer_id, record.epoch, record.status.commits)
                self._prepared[decided].add(machine.name)
            if led is not None:
                before = self._record_before(machine, directory, index, record)
                self._check_transition(record, before, led.log.high_watermark)

    def _check_transition(
        self, record: StateRecord, before: StateRecord | None, high_watermark: int
    ) -> None:
        if before is None:
            return
        same_leader = before.leader_epoch == record.leader_epoch
        self.require(
            not same_leader or before.offset < high_watermark,
            "T12",
            f"{record} follows {before}, HW={high_watermark}",
        )
        completes = record.status in {Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT}
        for partition in sorted(before.partitions) if completes else ():
            marker = (before.producer_id, before.epoch, before.status is Status.PREPARE_COMMIT)
            written = self._markers[partition][marker]
            self.require(
                len(written) >= self._enough or partition[0] not in self._image().topics_by_name,
                "T11",
                f"{record.transactional_id} completes {before}; the marker of {partition} is on "
                f"{sorted(written)}",
            )

    def _on_transactional(
        self, machine: "Machine", directory: str, partition: Partition, batch: StoredBatch
    ) -> None:
        header, marker = batch.header, marker_of(batch)
        if marker is not None:
            key = (marker.producer_id, marker.epoch, marker.committed)
            self._markers[partition][key].add(machine.name)
            decided = self._prepared[key]
            self.require(
                len(decided) >= self._enough or led_by(machine, partition, batch) is None,
                "T11",
                f"{machine.name} appends {marker} to {partition}, decided on {sorted(decided)}",
            )
            return
        if header.is_control or led_by(machine, partition, batch) is None:
            return
        registered = self._registered[header.producer_id, header.producer_epoch, partition]
        self.require(
            len(registered) >= self._enough,
            "T10",
            f"{machine.name} appends {header.base_offset} of producer {header.producer_id} epoch "
            f"{header.producer_epoch} to {partition}, registered on {sorted(registered)}",
        )
        last = self._last_marker_epoch(machine, directory, batch)
        self.require(
            header.producer_epoch >= last,
            "T7",
            f"{machine.name} appends {header.base_offset} of producer {header.producer_id} epoch "
            f"{header.producer_epoch} to {partition} after a marker of epoch {last}",
        )

    def on_answer(self, host: str, request: Any, response: Any) -> None:
        """Check that a producer is not fenced without a successor."""
        if not isinstance(request, EndTxnRequest) or response.error_code not in FENCED:
            return
        identity = (request.producer_id, request.producer_epoch)
        self.require(
            self._newest.get((host, request.transactional_id)) != identity,
            "T6",
            f"{host} fences producer {request.producer_id} epoch {request.producer_epoch} of "
            f"{request.transactional_id}, which is the last one in its log",
        )

    def _last_marker_epoch(self, machine: "Machine", directory: str, batch: StoredBatch) -> int:
        for known in self._before(machine, directory, batch.header.base_offset):
            if known.header.producer_id == batch.header.producer_id and known.header.is_control:
                return known.header.producer_epoch
        return -1

    def _record_before(
        self, machine: "Machine", directory: str, index: int, record: StateRecord
    ) -> StateRecord | None:
        """The record of the same id before this one in the machine's log."""
        for batch in self._before(machine, directory, record.offset):
            for known in reversed(self._records(index, batch)):
                if known.transactional_id == record.transactional_id:
                    return known
        return None

    def _before(self, machine: "Machine", directory: str, offset: int) -> Iterator[StoredBatch]:
        """Yield batches below `offset`, the last one first."""
        log = self._log_of(machine, directory)
        for segment in reversed(log.segments) if log is not None else ():
            for batch in reversed(segment.batches):
                if batch.header.last_offset < offset:
                    yield batch

    @property
    def _enough(self) -> int:
        return self.probe.layout.min_insync

    def _records(self, index: int, batch: StoredBatch) -> list[StateRecord]:
        key = (index, batch.header.base_offset, batch.header.crc)
        if key not in self._parsed:
            self._parsed[key] = list(state_records(batch))
        return self._parsed[key]

    # ---- committed records

    def every_second(self) -> None:
        """Check newly committed records and the state of the coordinators."""
        for index in self._indexes(STATE_TOPIC):
            machine = leader_of(self.probe, (STATE_TOPIC, index))
            if machine is not None:
                self._read_committed(machine, index)
                self._check_memory(machine, index)

    def _read_committed(self, machine: "Machine", index: int) -> None:
        log = self._log_of(machine, f"{DATA}/{STATE_TOPIC}-{index}")
        hosted = hosted_of(machine, (STATE_TOPIC, index))
        if log is None or hosted is None:
            return
        for batch in self._logs[index].advance(log, hosted.log.high_watermark):
            for record in self._records(index, batch):
                self._on_committed(record)

    def _on_committed(self, record: StateRecord) -> None:
        before = self._last.get(record.transactional_id)
        self.probe.note(f"{record.transactional_id}: {_tell(record)}")
        self.probe.counts["transitions committed"] += 1
        if record.status is None:
            self._check_expired(record, before)
            self._last.pop(record.transactional_id, None)
            return
        self._id_of[record.producer_id] = record.transactional_id
        if record.status.is_prepared:
            decided = self._decided[record.producer_id, record.epoch]
            decided.add(record.status is Status.PREPARE_COMMIT)
        if before is not None and before.status is not None:
            self._check_succession(record, before, record.status, before.status)
        self._last[record.transactional_id] = record

    def _check_expired(self, record: StateRecord, before: StateRecord | None) -> None:
        if before is None:
            return
        age_ms = record.timestamp - before.updated_ms
        self.require(
            before.status in ENDED and age_ms >= self.probe.layout.id_expiration_ms,
            "T13",
            f"{record.transactional_id} expires {age_ms} ms after {_tell(before)}",
        )

    def _check_succession(
        self, record: StateRecord, before: StateRecord, status: Status, earlier: Status
    ) -> None:
        where = f"{record.transactional_id}: {_tell(record)} follows {_tell(before)}"
        same = (record.producer_id, record.epoch) == (before.producer_id, before.epoch)
        is_reversed = (status.commits and earlier.aborts) or (status.aborts and earlier.commits)
        self.require(not is_reversed or not (same or earlier.is_prepared), "T2", where)
        self.require(status in SUCCESSORS[earlier], "T5", where)
        if record.producer_id == before.producer_id:
            self.require(0 <= record.epoch - before.epoch <= 1, "T5", where)
            return
        is_used_up = before.epoch >= EXHAUSTED_EPOCH
        self.require(is_used_up and record.epoch == 0, "T5", where)

    # ---- the state of coordinators

    def _check_memory(self, machine: "Machine", index: int) -> None:
        node = machine.live_node
        runtime = None if node is None or node.broker is None else (
            node.broker.transactions.runtimes.get(index)
        )  # fmt: skip
        log = self._log_of(machine, f"{DATA}/{STATE_TOPIC}-{index}")
        if runtime is None or not runtime.is_serving or log is None:
            return
        found: dict[str, StateRecord] = {}
        for batch in log.batches:
            for record in self._records(index, batch):
                if record.status is None:
                    found.pop(record.transactional_id, None)
                else:
                    found[record.transactional_id] = record
        shard = runtime.shard
        for name in sorted({*found, *shard.transactional_ids()}):
            live, replayed = _live(shard.get(name)), _replayed(found.get(name))
            self.require(
                live == replayed, "T15", f"{machine.name} has {name} as {live}, its log {replayed}"
            )

    # ---- at the end

    def at_end(self) -> None:
        """Check the healed cluster at rest."""
        self.every_second()
        self.check_hanging()
        results: dict[int, set[str]] = defaultdict(set)
        for partition, log in self._led_logs():
            for batch, marker in transactions_in(log.batches):
                result = "open"
                if marker is not None:
                    result = "committed" if marker.committed else "aborted"
                    decided = self._decided[marker.producer_id, marker.epoch]
                    self.require(
                        marker.committed in decided,
                        "T1",
                        f"{partition} has the marker {marker}, decided is {decided}",
                    )
                for number in numbers_in(partition[0], batch):
                    results[number].add(result)
        for number, found in sorted(results.items()):
            self.require(len(found) == 1, "T1", f"transaction {number} is {sorted(found)}")

    def check_hanging(self) -> None:
        """Check that the coordinator knows every open transaction of a partition."""
        for partition, log in self._led_logs():
            for batch, marker in transactions_in(log.batches):
                producer_id = batch.header.producer_id
                known = self._last.get(self._id_of.get(producer_id, ""))
                self.require(
                    marker is not None
                    or (
                        known is not None
                        and known.producer_id == producer_id
                        and partition in known.partitions
                    ),
                    "T8",
                    f"{partition} has an open transaction of producer {producer_id} epoch "
                    f"{batch.header.producer_epoch} at {batch.header.base_offset}, its id is "
                    f"{_tell(known) if known is not None else 'unknown'}",
                )

    def _led_logs(self) -> Iterator[tuple[Partition, StoredLog]]:
        """Yield the logs of the leaders of all partitions that transactions write to."""
        names = {topic for (_, _, (topic, _)) in self._registered} | {OFFSETS_TOPIC}
        for topic in sorted(names):
            for index in self._indexes(topic):
                machine = leader_of(self.probe, (topic, index))
                if machine is not None:
                    log = self._log_of(machine, f"{DATA}/{topic}-{index}")
                    if log is not None:
                        yield (topic, index), log

    def _indexes(self, topic: str) -> Iterable[int]:
        image = self._image()
        topic_id = image.topics_by_name.get(topic)
        return () if topic_id is None else sorted(image.topics_by_id[topic_id].partitions)


def _tell(record: StateRecord) -> str:
    status = "tombstone" if record.status is None else record.status.name
    partitions = " ".join(f"{topic}-{index}" for topic, index in sorted(record.partitions))
    return f"{status} producer={record.producer_id} epoch={record.epoch} {partitions}".rstrip()


def _live(known: Any) -> Any:
    """The state of an id in the memory of a coordinator, to compare with `_replayed`."""
    if known is None:
        return None
    return known.state.value, known.producer_id, known.producer_epoch, known.partitions


def _replayed(record: StateRecord | None) -> Any:
    if record is None:
        return None
    return record.status, record.producer_id, record.epoch, record.partitions
