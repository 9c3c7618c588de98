"""Planted bugs in transactions: those of Kafka's history among them, by their issues' numbers.

Each is looked for by one invariant alone (`transaction_checks`, `transaction_ledger`).
"""

from dataclasses import replace
from typing import Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Millis
from sparkraft.coordinator.group.offsets import OffsetStore
from sparkraft.coordinator.steps import Steps
from sparkraft.coordinator.transaction import completion, producer_ids, records
from sparkraft.coordinator.transaction.metadata import TransactionMetadata
from sparkraft.coordinator.transaction.shard import TransactionShard
from sparkraft.coordinator.transaction.states import TransactionState
from sparkraft.server.broker.partition import HostedPartition
from sparkraft.server.coordinator import marker_sender
from sparkraft.server.coordinator.guarded_appends import GuardedAppends
from sparkraft.server.coordinator.marker_log import Marker, MarkerLog
from sparkraft.server.coordinator.uncommitted_writes import UncommittedWrites
from sparkraft.storage.log_view import ReadableLog
from sparkraft.storage.producers import Producers
from tests.mutants.mutant import NODES, Mutant, Patches, registrar

TRANSACTION_MUTANTS: dict[str, Mutant] = {}

_plant = registrar(TRANSACTION_MUTANTS, tiers=NODES, workload="transactions", isolated=True)


@_plant("one partition gets the marker of the other result", "T1")
def _a_marker_of_the_other_result() -> Patches:
    original = MarkerLog.write

    def write(self: MarkerLog, marker: Marker, topic: str, index: int) -> Any:
        if (topic, index) == ("records", 1):
            marker = marker._replace(committed=not marker.committed)
        return original(self, marker, topic, index)

    return [(MarkerLog, "write", write)]


@_plant("a new coordinator aborts what its predecessor has decided to commit", "T2")
def _a_new_coordinator_aborts_commits() -> Patches:
    original = TransactionShard.loaded

    def loaded(self: TransactionShard, image: Any, now: Any) -> Any:
        for name in self._prepared:
            aborted = self._known[name]._replace(state=TransactionState.PREPARE_ABORT)
            self._known[name] = aborted
        return original(self, image, now)

    return [(TransactionShard, "loaded", loaded)]


@_plant("a fetch lists committed transactions as aborted", "T3")
def _committed_transactions_listed_as_aborted() -> Patches:
    original = Producers._apply_marker

    def apply_marker(self: Producers, header: Any, batch: Any, base_offset: int) -> Any:
        done = original(self, header, batch, base_offset)
        return done if done is None else done._replace(aborted=True)

    return [(Producers, "_apply_marker", apply_marker)]


@_plant("a fetch does not list the aborted transactions", "T4")
def _no_aborted_transactions_in_a_fetch() -> Patches:
    return [(ReadableLog, "aborted_in", lambda _self, _offset, _size, _up_to: [])]


@_plant("read_committed consumers read to the high watermark", "T4")
def _the_last_stable_offset_is_ignored() -> Patches:
    original = HostedPartition.visible_end

    def visible_end(self: HostedPartition, *, isolation: int, replica: bool) -> int:
        return original(self, isolation=0, replica=replica)

    return [(HostedPartition, "visible_end", visible_end)]


# ---- the coordinator's log


@_plant("an abort raises the epoch twice (KAFKA-19367)", "T5")
def _kafka_19367_an_abort_raises_the_epoch_twice() -> Patches:
    original = TransactionMetadata.prepared

    def prepared(self: TransactionMetadata, **given: Any) -> TransactionMetadata:
        if not given["commit"] and given["epoch"] > self.producer_epoch:
            given["epoch"] += 1
        return original(self, **given)

    return [(TransactionMetadata, "prepared", prepared)]


@_plant("InitProducerId does not raise the epoch", "T6")
def _a_producer_without_a_new_epoch() -> Patches:
    original = producer_ids._next

    def next_epoch(known: Any, request: Any, new_producer_id: Any) -> tuple[int, int, int]:
        found = original(known, request, new_producer_id)
        return found if known.producer_epoch < 0 else (found[0], known.producer_epoch, -1)

    return [(producer_ids, "_next", next_epoch)]


@_plant("the next transition does not wait for the one before (KAFKA-5416)", "T12")
def _kafka_5416_transitions_overtake_each_other() -> Patches:
    def check_settled(self: TransactionShard, transactional_id: str) -> None:
        if transactional_id in self._prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)

    return [(TransactionShard, "_check_settled", check_settled)]


@_plant("transactional ids expire at once", "T13")
def _ids_expire_at_once() -> Patches:
    original = TransactionShard._expired

    def expired(self: TransactionShard, key: Any, now: Any) -> Any:
        later = Millis(now.wall_ms + self._config.id_expiration_ms)
        return original(self, key, now._replace(wall_ms=later))

    return [(TransactionShard, "_expired", expired)]


@_plant("records lack the offsets topic among the partitions", "T15")
def _records_without_the_offsets_topic() -> Patches:
    original = records._partitions_of

    def partitions_of(metadata: TransactionMetadata) -> Any:
        found = original(metadata)
        return found and [each for each in found if each.topic != "__consumer_offsets"]

    return [(records, "_partitions_of", partitions_of)]


@_plant("a repeated EndTxn is an invalid transition", "T16")
def _a_repeated_end_is_invalid() -> Patches:
    original = completion._is_repeated

    def is_repeated(known: Any, request: Any) -> bool:
        if original(known, request):
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        return False

    return [(completion, "_is_repeated", is_repeated)]


@_plant("a repeated EndTxn returns another epoch", "T16")
def _a_repeated_end_returns_another_epoch() -> Patches:
    original = TransactionShard.handle_end_transaction

    def end(self: TransactionShard, *given: Any) -> Any:
        decision = original(self, *given)
        if decision.records:
            return decision
        producer_id, epoch = decision.response
        return decision.with_response((producer_id, epoch + 1))

    return [(TransactionShard, "handle_end_transaction", end)]


# ---- markers and partitions


@_plant("a marker that a broker did not write counts as written (KAFKA-16352)", "T11")
def _kafka_16352_complete_without_all_markers() -> Patches:
    lost = {ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_LEADER_OR_FOLLOWER}
    return [(marker_sender, "_DONE", marker_sender._DONE | lost)]


@_plant("no leader asks the coordinator about a batch (before KIP-890)", "T8")
def _kip_890_batches_are_not_verified() -> Patches:
    return _unverified()


@_plant("no leader asks the coordinator, and the partition is not registered", "T10")
def _batches_in_unregistered_partitions() -> Patches:
    return _unverified()


def _unverified() -> Patches:
    return [
        (GuardedAppends, "_begin", lambda *_: False),
        (GuardedAppends, "check", lambda *_arguments, **_more: None),
    ]


@_plant("partitions are added without waiting for the commit", "T10")
def _partitions_added_before_the_commit() -> Patches:
    original = UncommittedWrites.when_committed

    def when_committed(self: Any, response: Any) -> Any:
        return response if response is None else original(self, response)

    return [(UncommittedWrites, "when_committed", when_committed)]


@_plant("a leader accepts batches of a fenced epoch", "T7")
def _fenced_epochs_write() -> Patches:
    def check(_self: Producers, _header: Any, *, is_client: bool) -> None:
        del is_client

    return [(Producers, "check", check), *_unverified()]


@_plant("transactions do not time out", "T9")
def _transactions_never_time_out() -> Patches:
    return [(TransactionShard, "_must_abort", lambda *_: False)]


@_plant("a new coordinator does not repeat the markers of its predecessor", "T9")
def _markers_are_not_repeated() -> Patches:
    original = TransactionShard.loaded

    def loaded(self: TransactionShard, image: Any, now: Any) -> Any:
        return replace(original(self, image, now), effects=())

    return [(TransactionShard, "loaded", loaded)]


# ---- offsets


@_plant("offsets of a transaction count before it is committed", "T14")
def _offsets_count_at_once() -> Patches:
    original = OffsetStore.replay

    def replay(
        self: OffsetStore, offset: int, key: Any, value: Any, _producer_id: int = -1
    ) -> None:
        original(self, offset, key, value)

    return [(OffsetStore, "replay", replay)]


@_plant("an abort publishes the offsets of its transaction", "T14")
def _aborted_offsets_count() -> Patches:
    original = OffsetStore.replay_end_of_transaction

    def end(self: OffsetStore, producer_id: int, *, committed: bool) -> Steps[None]:
        del committed
        return original(self, producer_id, committed=True)

    return [(OffsetStore, "replay_end_of_transaction", end)]
