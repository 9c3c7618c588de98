"""The transaction coordinator's shard: all ids of one `__transaction_state` partition, without I/O.

Implements `CoordinatorShard[TransactionRecord]`; see `coordinator.runtime` for the order of calls.

    EndTxn → Prepare* appended and committed → markers written → Complete* appended

Invariants:
    * An id's metadata changes by replay alone. It equals its last record in the log, but for the
      last producer epoch, which records lack.
    * At most one transition of an id is not committed yet, its expiry included. Until it is, and
      while the id is prepared, requests get CONCURRENT_TRANSACTIONS.
    * Markers are written only for a committed Prepare* record, and Complete* only after all of
      them. Both are repeated after loading.

Not here: writing markers and waiting for commits (`server.coordinator`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, assert_never

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Millis, Offset, TopicPartition
from sparkraft.base.loop_work import LoopBound
from sparkraft.coordinator.runtime import (
    NO_PRODUCER_ID,
    AppendCallback,
    Decision,
    Effect,
    Instant,
    MetadataDelta,
    ReplyTo,
)
from sparkraft.coordinator.steps import Steps
from sparkraft.coordinator.timers import TimerKey, Timers
from sparkraft.coordinator.transaction import completion, listing, producer_ids
from sparkraft.coordinator.transaction.config import TransactionConfig
from sparkraft.coordinator.transaction.decision import (
    NOTHING,
    AllocateProducerId,
    IdsExpired,
    ProducerIdNeeded,
    TransactionDecision,
    TransitionAppended,
    WriteMarkers,
)
from sparkraft.coordinator.transaction.known_ids import KnownIds
from sparkraft.coordinator.transaction.metadata import TransactionMetadata
from sparkraft.coordinator.transaction.records import TransactionRecord
from sparkraft.coordinator.transaction.states import TransactionState
from sparkraft.metadata.features import TRANSACTION_VERSION
from sparkraft.metadata.image import ClusterImage
from sparkraft.protocol.messages import k65_describe_transactions as k65
from sparkraft.protocol.messages import k66_list_transactions as k66
from sparkraft.protocol.messages.k22_init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

IDS_PER_STEP: LoopBound = 1_000
"""Ids examined for timeout or expiry per event-loop iteration: well below a millisecond."""

STEP_MS = 5
"""Between two such steps."""

EXPIRED_PER_STEP: LoopBound = 200
"""Tombstones of one step: about 2 ms with their batch."""

EXPIRY_PAUSE_MS = 500
"""After a step with that many: fifty shards that expire at once leave the loop to clients."""

RETRY_MS = 500
"""Before a transition that could not be appended is tried again."""

_ABORTS: TimerKey = ("aborts",)
_EXPIRY: TimerKey = ("expiry",)

PartitionErrors = dict[TopicPartition, ErrorCode]


class TransactionShard:
    """All transactional ids that hash to one partition."""

    def __init__(self, config: TransactionConfig, leader_epoch: int) -> None:
        """Know no id yet; `leader_epoch` is the coordinator epoch of the markers."""
        self._config = config
        self._leader_epoch = leader_epoch
        self._timers = Timers()
        self._known = KnownIds()
        self._ongoing: dict[str, None] = {}
        """Ids with an open transaction, in the order in which the transactions began."""
        self._prepared: dict[str, None] = {}
        """Ids whose markers are being written."""
        self._pending: dict[str, TransitionAppended | IdsExpired] = {}
        """Transitions that are appended, but not committed."""
        self.counts: Counter[TransactionState] = Counter()
        """Ids in each state."""
        self._transaction_version = 0
        self._of_fast_clocks: dict[str, tuple[int, int]] = {}
        """Loaded transactions that began in the future, by the clock of an earlier coordinator:
        their start, and when they time out on the monotonic clock."""
        self._to_check: dict[TimerKey, Iterator[str]] = {}
        """Ids that a running search for timeouts or expiry has not reached yet."""

    # The log

    def replay(
        self, offset: Offset, record: TransactionRecord, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Apply one record: the last one of an id wins."""
        del offset, producer_id
        transactional_id, metadata = record.transactional_id, record.metadata
        self._ongoing.pop(transactional_id, None)
        self._prepared.pop(transactional_id, None)
        state = self._known.state_of(transactional_id)
        if state is not None:
            self.counts[state] -= 1
        if metadata is None or metadata.state is not TransactionState.ONGOING:
            self._of_fast_clocks.pop(transactional_id, None)
        if metadata is None:
            self._known.pop(transactional_id, None)
            return
        self._known[transactional_id] = metadata
        self.counts[metadata.state] += 1
        if metadata.state is TransactionState.ONGOING:
            self._ongoing[transactional_id] = None
        elif metadata.state.is_prepared:
            self._prepared[transactional_id] = None

    def replay_in_steps(
        self, offset: Offset, record: TransactionRecord, producer_id: int = NO_PRODUCER_ID
    ) -> Steps[None]:
        """The same, as one unit of work."""
        self.replay(offset, record, producer_id)
        yield 1

    def replay_end_of_transaction(self, producer_id: int, *, committed: bool) -> Steps[None]:
        """Ignore a marker: no producer writes transactionally to `__transaction_state`."""
        del producer_id, committed
        yield 1

    def loaded(self, image: ClusterImage, now: Instant) -> TransactionDecision[None]:
        """Start serving: write the markers of all decided transactions, again if need be."""
        self._transaction_version = image.features.get(TRANSACTION_VERSION, 0)
        self._schedule(_ABORTS, self._config.abort_interval_ms, now)
        self._schedule(_EXPIRY, self._config.expiry_interval_ms, now)
        for one in map(self._known.__getitem__, self._ongoing):
            if one.start_ms > now.wall_ms:
                deadline = now.mono_ms + one.timeout_ms
                self._of_fast_clocks[one.transactional_id] = one.start_ms, deadline
        effects = tuple(self._markers_of(self._known[one]) for one in self._prepared)
        return Decision(response=None, effects=effects)

    def unload(self, now: Instant) -> None:
        """Stop serving. No request is ever parked."""
        del now
        self._timers.clear()

    # Events

    def on_image(self, delta: MetadataDelta, now: Instant) -> TransactionDecision[None]:
        """Adopt the finalized transaction.version."""
        del now
        self._transaction_version = delta.image.features.get(TRANSACTION_VERSION, 0)
        return NOTHING

    def on_append_completed(
        self, callback: AppendCallback, error: ErrorCode | None, now: Instant
    ) -> TransactionDecision[None]:
        """Admit the next transition of the id; retry one of the coordinator's own that failed."""
        if isinstance(callback, IdsExpired):
            for one in callback.transactional_ids:
                del self._pending[one]
            return NOTHING
        assert isinstance(callback, TransitionAppended)
        transactional_id = callback.metadata.transactional_id
        if self._pending.get(transactional_id) is callback:
            del self._pending[transactional_id]
        if error is not None and transactional_id in self._prepared:
            self._schedule(("retry", transactional_id), RETRY_MS, now)
        return NOTHING

    def on_effect_completed(
        self, effect: Effect, result: Any | KafkaError, now: Instant
    ) -> TransactionDecision[None]:
        """Complete a transaction whose markers are written; abort with an allocated id."""
        assert isinstance(effect, WriteMarkers | AllocateProducerId)
        metadata = effect.metadata
        transactional_id = metadata.transactional_id
        if self._known.find(transactional_id) != metadata or transactional_id in self._pending:
            return NOTHING  # Repeated or outdated.
        match effect:
            case WriteMarkers():
                if isinstance(result, KafkaError):
                    return NOTHING  # Fenced: a newer coordinator completes it.
                return self._transition(metadata.completed(now.wall_ms))
            case AllocateProducerId():
                if isinstance(result, KafkaError):
                    return NOTHING  # The next search for timeouts tries again.
                return self._abort(metadata, result, now)
            case _:
                assert_never(effect)

    # Timers and replies

    @property
    def wake_at(self) -> Millis | None:
        """When to call `on_timers` next, on the monotonic clock; None for never."""
        return self._timers.wake_at

    def on_timers(self, now: Instant) -> Iterable[TransactionDecision[None]]:
        """Fire the timers that are due. Execute each decision before requesting the next."""
        while (key := self._timers.due(now.mono_ms)) is not None:
            match key[0]:
                case "aborts":
                    for one in self._step(key, self._ongoing, self._config.abort_interval_ms, now):
                        if self._must_abort(one, now):
                            yield self._abort_timed_out(self._known[one], now)
                case "expiry":
                    yield self._expire(self._expired(key, now))
                case _:
                    yield self._retry(key[1], now)

    def take_replies(self) -> list[tuple[ReplyTo, Any]]:
        """No request is ever parked."""
        return []

    def _schedule(self, key: TimerKey, delay_ms: int, now: Instant) -> None:
        self._timers.schedule(key, Millis(now.mono_ms + delay_ms))

    def _step(
        self, key: TimerKey, ids: Iterable[str], interval_ms: int, now: Instant
    ) -> Sequence[str]:
        """The next ids of a search, which starts again after `interval_ms`."""
        if key not in self._to_check:
            self._to_check[key] = iter(list(ids))
        step = list(islice(self._to_check[key], IDS_PER_STEP))
        if len(step) == IDS_PER_STEP:
            self._schedule(key, STEP_MS, now)
        else:
            del self._to_check[key]
            self._schedule(key, interval_ms, now)
        return step

    def _must_abort(self, transactional_id: str, now: Instant) -> bool:
        known = self._known.find(transactional_id)
        return (
            known is not None
            and transactional_id not in self._pending
            and (known.is_timed_out(now.wall_ms) or self._is_overdue(known, now))
        )

    def _is_overdue(self, known: TransactionMetadata, now: Instant) -> bool:
        """Whether a transaction of a fast clock has been open for its timeout since the load.

        By the wall clock it could hold back the last stable offset as long as the clocks differ.
        """
        start_ms, deadline = self._of_fast_clocks.get(known.transactional_id, (None, 0))
        is_open = known.state is TransactionState.ONGOING and start_ms == known.start_ms
        return is_open and now.mono_ms > deadline

    def _abort_timed_out(
        self, known: TransactionMetadata, now: Instant
    ) -> TransactionDecision[None]:
        try:
            return self._abort(known, None, now)
        except ProducerIdNeeded:
            return Decision(response=None, effects=(AllocateProducerId(metadata=known),))

    def _expired(self, key: TimerKey, now: Instant) -> list[str]:
        """Ids without a transaction for `transactional.id.expiration.ms`, among the next ones."""
        deadline = now.wall_ms - self._config.id_expiration_ms
        if key not in self._to_check:
            self._to_check[key] = iter(list(self._known))
        expired: list[str] = []
        for count, one in enumerate(self._to_check[key], 1):
            if one not in self._pending and self._known.has_ended_by(one, deadline):
                expired.append(one)
            if len(expired) == EXPIRED_PER_STEP or count == IDS_PER_STEP:
                is_full = len(expired) == EXPIRED_PER_STEP
                self._schedule(key, EXPIRY_PAUSE_MS if is_full else STEP_MS, now)
                return expired
        del self._to_check[key]
        self._schedule(key, self._config.expiry_interval_ms, now)
        return expired

    def _expire(self, expired: list[str]) -> TransactionDecision[None]:
        if not expired:
            return NOTHING
        callback = IdsExpired(transactional_ids=tuple(expired))
        self._pending.update(dict.fromkeys(expired, callback))
        return Decision(
            response=None,
            records=tuple(TransactionRecord(transactional_id=one) for one in expired),
            append_callback=callback,
        )

    def _retry(self, transactional_id: str, now: Instant) -> TransactionDecision[None]:
        """Append a decision again whose record, or whose completion, could not be committed."""
        known = self._known.find(transactional_id)
        if known is None or not known.state.is_prepared or transactional_id in self._pending:
            return NOTHING
        return self._transition(known, self._markers_of(known))

    # Requests

    def handle_init_producer_id(
        self, request: InitProducerIdRequest, new_producer_id: int | None, now: Instant
    ) -> TransactionDecision[InitProducerIdResponse]:
        """Give the transactional id its next epoch; abort its open transaction first.

        Args:
            request: with a transactional id and a timeout that `check_timeout` accepts.
            new_producer_id: None if none has been allocated yet.
            now: the current time.

        Raises:
            KafkaError: CONCURRENT_TRANSACTIONS, PRODUCER_FENCED.
            ProducerIdNeeded: repeat the call with a producer id.
        """
        transactional_id = str(request.transactional_id)
        self._check_settled(transactional_id)
        known = self._known.find(transactional_id)
        if known is not None:
            producer_ids.check_expected(known, request)
            if known.state is TransactionState.ONGOING:
                return self._abort(known, new_producer_id, now).with_response(
                    InitProducerIdResponse(
                        error_code=ErrorCode.CONCURRENT_TRANSACTIONS, producer_epoch=-1
                    )
                )
        initialized = producer_ids.initialize(known, request, new_producer_id, now)
        response = InitProducerIdResponse(
            producer_id=initialized.producer_id, producer_epoch=initialized.producer_epoch
        )
        return self._transition(initialized, response=response)

    def handle_add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[TopicPartition],
        *,
        client_version: int,
        now: Instant,
    ) -> TransactionDecision[None]:
        """Add partitions to a transaction, which begins with the first ones.

        Raises:
            KafkaError: INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS, PRODUCER_FENCED,
                UNSUPPORTED_VERSION.
        """
        known = self._get(transactional_id)
        self._check_settled(transactional_id)
        _check_producer(known, producer_id, producer_epoch)
        if known.state is TransactionState.ONGOING and partitions <= known.partitions:
            return NOTHING
        self._check_client_version(client_version)
        return self._transition(
            known.with_partitions(partitions, client_version=client_version, now_ms=now.wall_ms)
        )

    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
    ) -> PartitionErrors:
        """Whether partitions are part of the producer's transaction: an error for each.

        Raises:
            KafkaError: INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS, PRODUCER_FENCED.
        """
        known = self._get(transactional_id)
        _check_producer(known, producer_id, producer_epoch)
        if known.state.is_prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return {
            one: ErrorCode.NONE if one in known.partitions else ErrorCode.TRANSACTION_ABORTABLE
            for one in partitions
        }

    def is_part(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
    ) -> bool:
        """Whether `verify_partitions` has no error for a partition."""
        known = self._known.find(transactional_id)
        return (
            known is not None
            and known.producer_id == producer_id
            and known.producer_epoch == producer_epoch
            and known.state is TransactionState.ONGOING
            and partition in known.partitions
        )

    def handle_end_transaction(
        self,
        transactional_id: str,
        request: completion.Completion,
        new_producer_id: int | None,
        now: Instant,
    ) -> TransactionDecision[tuple[int, int]]:
        """Decide a transaction; the response is the producer id and epoch of the next one.

        Raises:
            KafkaError: INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS, PRODUCER_FENCED,
                INVALID_TXN_STATE, UNSUPPORTED_VERSION.
            ProducerIdNeeded: repeat the call with a producer id.
        """
        known = self._get(transactional_id)
        prepared = completion.complete(
            known,
            request,
            new_producer_id,
            now,
            is_pending=self._is_unsettled(transactional_id),
        )
        if prepared is None:
            return Decision(response=(known.producer_id, known.producer_epoch))
        self._check_client_version(request.client_version)
        response = (prepared.final_producer_id, prepared.final_epoch)
        return self._transition(prepared, self._markers_of(prepared), response=response)

    def describe(self, transactional_id: str) -> k65.TransactionState:
        """With TRANSACTIONAL_ID_NOT_FOUND for an unknown id."""
        return listing.described(transactional_id, self._known.find(transactional_id))

    def list_transactions(
        self, transactional_ids: Iterable[str], wanted: listing.ListFilter, now: Instant
    ) -> list[k66.TransactionState]:
        """Those of the ids that exist and pass the filter."""
        known = map(self._known.overview, transactional_ids)
        return [
            listing.listed(one)
            for one in known
            if one is not None and wanted.permits(one, now.wall_ms)
        ]

    # State

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        """The state of an id; None if it is unknown."""
        return self._known.find(transactional_id)

    @property
    def known(self) -> Mapping[str, TransactionMetadata]:
        """By transactional id; read only."""
        return self._known

    def transactional_ids(self) -> list[str]:
        """Every id, in the order of their first records."""
        return list(self._known)

    # Parts of decisions

    def _get(self, transactional_id: str) -> TransactionMetadata:
        known = self._known.find(transactional_id)
        if known is None:
            self._check_settled(transactional_id)  # It expires: Kafka's pending state Dead.
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return known

    def _check_settled(self, transactional_id: str) -> None:
        """Raise CONCURRENT_TRANSACTIONS until the id's last transition has ended.

        Before any check of the producer id and epoch, which the transition may change
        (KAFKA-18660).
        """
        if self._is_unsettled(transactional_id):
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)

    def _is_unsettled(self, transactional_id: str) -> bool:
        return transactional_id in self._pending or transactional_id in self._prepared

    def _check_client_version(self, client_version: int) -> None:
        """Raise UNSUPPORTED_VERSION for a client of transaction version 2 at version 0.

        Kafka's TransactionLog.valueToBytes fails so: the record of version 0 lacks the client's
        version, which is written from version 1 on.
        """
        if client_version and not self._transaction_version:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "the cluster's transaction.version is 0"
            )

    def _abort(
        self, known: TransactionMetadata, new_producer_id: int | None, now: Instant
    ) -> TransactionDecision[None]:
        prepared = completion.abort(
            known,
            transaction_version=self._transaction_version,
            new_producer_id=new_producer_id,
            now=now,
        )
        return self._transition(prepared, self._markers_of(prepared))

    def _transition(
        self, metadata: TransactionMetadata, *effects: WriteMarkers, response: Any = None
    ) -> TransactionDecision[Any]:
        callback = TransitionAppended(metadata=metadata)
        self._pending[metadata.transactional_id] = callback
        record = TransactionRecord(
            transactional_id=metadata.transactional_id,
            metadata=metadata,
            value_version=min(self._transaction_version, 1),
        )
        return Decision(
            response=response, records=(record,), append_callback=callback, effects=effects
        )

    def _markers_of(self, prepared: TransactionMetadata) -> WriteMarkers:
        return WriteMarkers(metadata=prepared, coordinator_epoch=self._leader_epoch)


def _check_producer(known: TransactionMetadata, producer_id: int, producer_epoch: int) -> None:
    if known.producer_id != producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if known.producer_epoch != producer_epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
