"""One transactional id: its state, its producer id and epoch, and requests to its coordinator.

    UNINITIALIZED → INITIALIZING → READY → IN_TRANSACTION → COMMITTING or ABORTING → READY

Each transaction uses one of two flows, by the finalized level of transaction.version at its start:

* Below 2, the client adds partitions and groups to the transaction (AddPartitionsToTxn,
  AddOffsetsToTxn) before it sends records or offsets. The epoch stays the same. After a batch was
  lost, the client raises the epoch (InitProducerId with the current one, KIP-360).
* From 2 (KIP-890), brokers add partitions themselves, and the response of EndTxn carries the
  producer id and epoch of the next transaction, in which sequences start at 0 again.

Invariants:
    * After a fatal error no request is sent.
    * EndTxn is sent only if the coordinator may know of the transaction.
    * A call that ran out of time leaves its state, so that the same call can be made again.

Not here: batches and sequences (`producer`, `transactional_producer`).
Not done: two-phase commit (KIP-939).
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client import transaction_requests as requests
from sparkraft.client.cluster import (
    GROUP_COORDINATOR,
    RETRY_BACKOFF_MS,
    TRANSACTION_COORDINATOR,
    Cluster,
    code_of,
    is_worth_retrying,
)
from sparkraft.client.errors import (
    AbortableTransactionError,
    FatalTransactionError,
    ProducerFencedError,
)
from sparkraft.client.transaction_requests import ADD_BACKOFF_MS, NO_PRODUCER, V1_MAX
from sparkraft.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from sparkraft.base.ids import TopicPartition
    from sparkraft.client.values import Committed, GroupMetadata

T = TypeVar("T")

FEATURE = "transaction.version"
BY_BROKERS = 2
"""The level of transaction.version from which brokers add partitions (KIP-890)."""

_RENEWED_BY_EPOCH = 3
"""The version of InitProducerId that can raise an epoch (KIP-360)."""

_V2_MAX = {ApiKey.INIT_PRODUCER_ID: 5}
"""v6 is not stable (KIP-939)."""


class TransactionState(Enum):
    """The state of a transactional id."""

    UNINITIALIZED = "uninitialized"
    """Before the first InitProducerId; ended by `init`."""
    INITIALIZING = "initializing"
    """InitProducerId is being answered; an `init` that ran out of time continues here."""
    READY = "ready"
    """No transaction is open; ended by `begin`."""
    IN_TRANSACTION = "in a transaction"
    """Records and offsets can be sent; ended by `start_end`."""
    COMMITTING = "committing"
    """EndTxn(commit) is being answered; a commit that ran out of time continues here."""
    ABORTING = "aborting"
    """EndTxn(abort) is being answered; an abort that ran out of time continues here."""
    ABORTABLE_ERROR = "waiting for an abort"
    """The transaction cannot be committed; ended by an abort."""
    FATAL_ERROR = "failed"
    """Final."""


_S = TransactionState
NEXT_STATES: Mapping[TransactionState, frozenset[TransactionState]] = {
    _S.UNINITIALIZED: frozenset({_S.INITIALIZING, _S.FATAL_ERROR}),
    _S.INITIALIZING: frozenset({_S.INITIALIZING, _S.READY, _S.FATAL_ERROR}),
    _S.READY: frozenset({_S.IN_TRANSACTION, _S.FATAL_ERROR}),
    _S.IN_TRANSACTION: frozenset({_S.COMMITTING, _S.ABORTING, _S.ABORTABLE_ERROR, _S.FATAL_ERROR}),
    _S.COMMITTING: frozenset({_S.COMMITTING, _S.READY, _S.ABORTABLE_ERROR, _S.FATAL_ERROR}),
    _S.ABORTING: frozenset({_S.ABORTING, _S.READY, _S.FATAL_ERROR}),
    _S.ABORTABLE_ERROR: frozenset({_S.ABORTABLE_ERROR, _S.ABORTING, _S.FATAL_ERROR}),
    _S.FATAL_ERROR: frozenset({_S.FATAL_ERROR}),
}

_FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})

_ABORTABLE = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    }
)
"""Errors of coordinators after which the transaction can be aborted and the next one begun."""

_FATAL_OF_PRODUCE = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""Errors of a batch after which the producer cannot continue. INVALID_PRODUCER_EPOCH is not one:
the abort finds out whether another producer has the id."""

_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class TransactionalId:
    """A transactional id of a producer over a `Cluster`, which stays the caller's to close."""

    def __init__(
        self, cluster: Cluster, name: str, *, timeout_ms: int = 60_000, max_block_ms: int = 60_000
    ) -> None:
        """Prepare; `init` is the first call.

        Args:
            cluster: the cluster of the coordinator.
            name: `transactional.id`.
            timeout_ms: `transaction.timeout.ms`: the coordinator aborts older transactions.
            max_block_ms: `max.block.ms`: each call with all its attempts.
        """
        self.cluster = cluster
        self.name = name
        self.timeout_ms = timeout_ms
        self.max_block_ms = max_block_ms
        self.state = TransactionState.UNINITIALIZED
        self.producer = NO_PRODUCER
        """Producer id and epoch of the next batch."""
        self.is_by_brokers = False
        """Whether the open transaction uses the flow of transaction.version 2."""
        self.error: KafkaError | None = None
        """Why the state is ABORTABLE_ERROR or FATAL_ERROR."""
        self._partitions: set[TopicPartition] = set()
        self._groups: set[str] = set()
        self._has_begun = False
        self._needs_new_epoch = False
        self._lock = asyncio.Lock()
        """One request of the transaction at a time: none may arrive after its EndTxn."""

    def max_version(self, key: ApiKey) -> int | None:
        """The highest version of a request that the flow of the open transaction allows."""
        return (_V2_MAX if self.is_by_brokers else V1_MAX).get(key)

    # the life of a transaction

    async def init(self) -> None:
        """Take the id over: fence its older producers, end their transaction.

        Raises:
            FatalTransactionError: the id or timeout is refused.
        """
        if self.state is TransactionState.READY:
            raise _misuse("the transactional id is initialized already")
        self._require({TransactionState.UNINITIALIZED, TransactionState.INITIALIZING}, "initialize")
        self._move(TransactionState.INITIALIZING)
        self.producer = await self._retrying(lambda: self._init_producer_id(NO_PRODUCER))
        self.is_by_brokers = self._level() >= BY_BROKERS
        self._move(TransactionState.READY)

    def begin(self) -> None:
        """Begin a transaction; nothing is sent."""
        self._require({TransactionState.READY}, "begin a transaction")
        self._move(TransactionState.IN_TRANSACTION)

    def require_open(self, what: str) -> None:
        """Raise unless records and offsets can be sent.

        Raises:
            AbortableTransactionError: the transaction has to be aborted.
            KafkaError: INVALID_TXN_STATE if no transaction is open.
        """
        self._require({TransactionState.IN_TRANSACTION}, what)

    async def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Make partitions part of the transaction before records are sent to them."""
        wanted = set(partitions)
        async with self._lock:
            new = wanted - self._partitions
            if not new:
                return
            self._require(
                {TransactionState.IN_TRANSACTION, TransactionState.COMMITTING}, "add partitions"
            )
            if not self.is_by_brokers:
                backoff_ms = RETRY_BACKOFF_MS if self._has_begun else ADD_BACKOFF_MS
                await self._within(lambda: self._add_partitions(new), backoff_ms=backoff_ms)
            self._partitions |= new
            self._has_begun = True

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, Committed], group: GroupMetadata
    ) -> None:
        """Make a group's offsets part of the transaction (KIP-447).

        Raises:
            AbortableTransactionError: the group has moved on without this member.
        """
        if not offsets:
            return
        async with self._lock:
            self.require_open("send offsets")
            if not self.is_by_brokers and group.group_id not in self._groups:
                await self._within(
                    lambda: self._add_offsets(group.group_id), backoff_ms=ADD_BACKOFF_MS
                )
                self._groups.add(group.group_id)
            self._has_begun = True
            left = dict(offsets)
            await self._within(lambda: self._commit_offsets(left, group), backoff_ms=ADD_BACKOFF_MS)

    def start_end(self, *, committed: bool) -> None:
        """Take no more records and offsets; `finish_end` follows when all records have ended."""
        if committed:
            self._require({TransactionState.IN_TRANSACTION, TransactionState.COMMITTING}, "commit")
            self._move(TransactionState.COMMITTING)
            return
        self._require(
            {
                TransactionState.IN_TRANSACTION,
                TransactionState.ABORTABLE_ERROR,
                TransactionState.ABORTING,
            },
            "abort",
        )
        self._move(TransactionState.ABORTING)

    async def finish_end(self) -> None:
        """Commit or abort, as `start_end` decided; the state is READY afterwards.

        Raises:
            KafkaError: a retriable one if the time ran out; the same calls may be made again.
        """
        async with self._lock:
            self._require({TransactionState.COMMITTING, TransactionState.ABORTING}, "commit")
            committed = self.state is TransactionState.COMMITTING
            if self._has_begun:
                await self._retrying(lambda: self._end_txn(committed=committed))
                self._has_begun = False
            level = self._level()
            if self._needs_new_epoch or (level >= BY_BROKERS and not self.is_by_brokers):
                current = self.producer
                self.producer = await self._retrying(lambda: self._init_producer_id(current))
                self._needs_new_epoch = False
            self.is_by_brokers = level >= BY_BROKERS
            self._partitions.clear()
            self._groups.clear()
            self.error = None
            self._move(TransactionState.READY)

    def on_lost_batch(self, error: KafkaError) -> None:
        """A batch was not written, or it is unknown whether it was."""
        if error.code in _FATAL_OF_PRODUCE:
            self._fail(error)
            return
        self._needs_new_epoch = not self.is_by_brokers
        if self.state in {
            TransactionState.IN_TRANSACTION,
            TransactionState.COMMITTING,
            TransactionState.ABORTABLE_ERROR,
        }:
            self._require_abort(error)

    # requests

    def _level(self) -> int:
        return self.cluster.finalized_level(FEATURE)

    async def _init_producer_id(self, current: tuple[int, int]) -> tuple[int, int]:
        request = requests.init_producer_id(self.name, timeout_ms=self.timeout_ms, current=current)
        at_least = 0 if current == NO_PRODUCER else _RENEWED_BY_EPOCH
        answer = await self._ask(ApiKey.INIT_PRODUCER_ID, request, at_least=at_least)
        self._check(answer.error_code, "InitProducerId")
        return answer.producer_id, answer.producer_epoch

    async def _add_partitions(self, partitions: set[TopicPartition]) -> None:
        request = requests.add_partitions(self.name, self.producer, partitions)
        answer = await self._ask(ApiKey.ADD_PARTITIONS_TO_TXN, request)
        for code, name in requests.added_partitions(answer):
            self._check(code, f"AddPartitionsToTxn: {name}")

    async def _add_offsets(self, group_id: str) -> None:
        request = requests.add_offsets(self.name, self.producer, group_id)
        answer = await self._ask(ApiKey.ADD_OFFSETS_TO_TXN, request)
        self._check(answer.error_code, f"AddOffsetsToTxn: group {group_id}")

    async def _commit_offsets(
        self, left: dict[TopicPartition, Committed], group: GroupMetadata
    ) -> None:
        """One attempt for the offsets in `left`; takes out those that are stored."""
        request = requests.commit_offsets(self.name, self.producer, left, group)
        answer = await self._ask(
            ApiKey.TXN_OFFSET_COMMIT, request, kind=GROUP_COORDINATOR, of=group.group_id
        )
        for topic in answer.topics:
            for entry in topic.partitions:
                if not entry.error_code:
                    left.pop((topic.name, entry.partition_index), None)
        for topic in answer.topics:
            for entry in topic.partitions:
                what = f"TxnOffsetCommit: group {group.group_id}, {topic.name}"
                self._check(
                    entry.error_code,
                    f"{what}-{entry.partition_index}",
                    kind=GROUP_COORDINATOR,
                    of=group.group_id,
                )

    async def _end_txn(self, *, committed: bool) -> None:
        request = requests.end(self.name, self.producer, committed=committed)
        answer = await self._ask(ApiKey.END_TXN, request)
        self._check(answer.error_code, "EndTxn")
        if answer.producer_id >= 0:
            self.producer = (answer.producer_id, answer.producer_epoch)

    async def _ask(
        self,
        key: ApiKey,
        request: Any,
        *,
        kind: int = TRANSACTION_COORDINATOR,
        of: str | None = None,
        at_least: int = 0,
    ) -> Any:
        """One attempt at the coordinator, in the highest version that the flow allows."""
        name = self.name if of is None else of
        node_id = await self.cluster.coordinator(name, kind=kind)
        try:
            connection = await self.cluster.connection(node_id)
            version = connection.version_for(key, at_most=self.max_version(key))
            _require_version(version, at_least)
        except KafkaError:
            self.cluster.forget_coordinator(name, kind=kind)
            raise
        return await self.cluster.ask_coordinator(name, request, version=version, kind=kind)

    def _check(
        self, number: int, what: str, *, kind: int = TRANSACTION_COORDINATOR, of: str | None = None
    ) -> None:
        if not number:
            return
        code = code_of(number)
        if code in _MOVED:
            self.cluster.forget_coordinator(self.name if of is None else of, kind=kind)
        if code is ErrorCode.UNKNOWN_PRODUCER_ID:
            self._needs_new_epoch = not self.is_by_brokers
        raise KafkaError(code, what)

    # errors and states

    async def _retrying(
        self, attempt: Callable[[], Awaitable[T]], *, backoff_ms: int = RETRY_BACKOFF_MS
    ) -> T:
        """The result of the attempt that works; other errors than retriable ones end the state."""
        try:
            return await self.cluster.retrying(
                attempt, timeout_ms=self.max_block_ms, backoff_ms=backoff_ms
            )
        except KafkaError as error:
            if is_worth_retrying(error):
                raise
            raise self._refusal(error) from error

    async def _within(
        self, attempt: Callable[[], Awaitable[None]], *, backoff_ms: int = RETRY_BACKOFF_MS
    ) -> None:
        """As `_retrying`, for a part without which the transaction must be aborted."""
        try:
            await self._retrying(attempt, backoff_ms=backoff_ms)
        except KafkaError as error:
            if not is_worth_retrying(error):
                raise
            # The coordinator may have done it: a new epoch ends what it may have begun.
            self._needs_new_epoch = True
            raise self._require_abort(error) from error

    def _refusal(self, error: KafkaError) -> KafkaError:
        can_abort = self.state in {TransactionState.IN_TRANSACTION, TransactionState.COMMITTING}
        if error.code in _ABORTABLE and can_abort:
            return self._require_abort(error)
        return self._fail(error)

    def _require_abort(self, error: KafkaError) -> KafkaError:
        self._move(TransactionState.ABORTABLE_ERROR)
        if self.error is None:
            self.error = AbortableTransactionError(
                error.code, f"abort the transaction of {self.name!r}: {_text(error)}"
            )
        return self.error

    def _fail(self, error: KafkaError) -> KafkaError:
        self._move(TransactionState.FATAL_ERROR)
        if error.code in _FENCED:
            self.error = ProducerFencedError(
                ErrorCode.PRODUCER_FENCED,
                f"another producer has taken transactional id {self.name!r}, or its transaction "
                f"timed out; close this producer ({_text(error)})",
            )
        else:
            self.error = FatalTransactionError(
                error.code, f"the producer of {self.name!r} cannot continue: {_text(error)}"
            )
        return self.error

    def _require(self, states: set[TransactionState], what: str) -> None:
        if self.state in states:
            return
        if self.error is not None:
            # A new one each time: an exception that is raised twice grows its traceback.
            raise type(self.error)(self.error.code, self.error.detail)
        raise _misuse(f"cannot {what}: the producer is {self.state.value}")

    def _move(self, state: TransactionState) -> None:
        assert state in NEXT_STATES[self.state], f"{self.state} → {state}"
        self.state = state


def _require_version(version: int, at_least: int) -> None:
    if version < at_least:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, "the node is too old to raise a producer's epoch"
        )


def _misuse(detail: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_TXN_STATE, detail)


def _text(error: KafkaError) -> str:
    return f"{error.detail}: {error.code.name}" if error.detail else error.code.name
