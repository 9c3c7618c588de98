"""A transaction shard with a log in memory: each decision is appended, replayed and committed.

`hold` keeps appends uncommitted until `commit`; `refuse` fails them at once. `wall_offset_ms` sets
the wall clock without the monotonic one.
"""

from typing import Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Millis, Offset
from sparkraft.coordinator.runtime import Instant, MetadataDelta
from sparkraft.coordinator.transaction.completion import Completion
from sparkraft.coordinator.transaction.config import TransactionConfig
from sparkraft.coordinator.transaction.decision import (
    AllocateProducerId,
    ProducerIdNeeded,
    TransactionDecision,
    WriteMarkers,
)
from sparkraft.coordinator.transaction.records import decode_record, encode_record
from sparkraft.coordinator.transaction.shard import TransactionShard
from sparkraft.metadata.image import EMPTY_IMAGE
from sparkraft.protocol.messages.k22_init_producer_id import InitProducerIdRequest

NAME = "tx"
P0, P1 = ("t", 0), ("t", 1)
TIMEOUT_MS = 60_000


def image_at(transaction_version: int) -> Any:
    features = EMPTY_IMAGE.features.set("transaction.version", transaction_version)
    return EMPTY_IMAGE._replace(features=features)


class World:
    """One shard; `effects` are those started and not completed."""

    def __init__(self, transaction_version: int = 2, config: TransactionConfig | None = None):
        self.now_ms = 1_000_000
        self.wall_offset_ms = 0
        self.version = transaction_version
        self.config = config or TransactionConfig()
        self.log: list[tuple[bytes, bytes | None]] = []
        self.effects: list[Any] = []
        self.hold = False
        self.refuse: ErrorCode | None = None
        self.uncommitted: list[TransactionDecision[Any]] = []
        self.next_producer_id = 1000
        self.leader_epoch = 0
        self.shard = TransactionShard(self.config, self.leader_epoch)
        self.run(self.shard.loaded(image_at(self.version), self.now))

    @property
    def now(self) -> Instant:
        return Instant(Millis(self.now_ms), Millis(self.now_ms + self.wall_offset_ms))

    @property
    def client(self) -> int:
        """The transaction version of a Java client."""
        return 2 if self.version >= 2 else 0

    # The runtime

    def run(self, decision: TransactionDecision[Any]) -> Any:
        if decision.records and self.refuse is not None:
            assert decision.append_callback is not None
            self.run(
                self.shard.on_append_completed(decision.append_callback, self.refuse, self.now)
            )
            raise KafkaError(self.refuse)
        for record in decision.records:
            self.log.append(encode_record(record))
            self.shard.replay(Offset(len(self.log) - 1), record)
        if self.hold:
            self.uncommitted.append(decision)
        else:
            self._commit(decision, None)
        return decision.response

    def commit(self, error: ErrorCode | None = None) -> None:
        held, self.uncommitted, self.hold = self.uncommitted, [], False
        for decision in held:
            self._commit(decision, error)

    def _commit(self, decision: TransactionDecision[Any], error: ErrorCode | None) -> None:
        if decision.append_callback is not None:
            self.run(self.shard.on_append_completed(decision.append_callback, error, self.now))
        if error is None:
            self.effects += decision.effects

    def with_id(self, handle: Any) -> Any:
        """Run a handler that may need a producer id."""
        try:
            return self.run(handle(None))
        except ProducerIdNeeded:
            self.next_producer_id += 1
            return self.run(handle(self.next_producer_id))

    def mark(self) -> WriteMarkers:
        """Complete the oldest effect, which writes markers."""
        effect = self.effects.pop(0)
        assert isinstance(effect, WriteMarkers)
        self.run(self.shard.on_effect_completed(effect, None, self.now))
        return effect

    def allocate(self) -> None:
        """Complete the oldest effect, which allocates a producer id."""
        effect = self.effects.pop(0)
        assert isinstance(effect, AllocateProducerId)
        self.next_producer_id += 1
        self.run(self.shard.on_effect_completed(effect, self.next_producer_id, self.now))

    def advance(self, ms: int) -> None:
        self.now_ms += ms
        for decision in self.shard.on_timers(self.now):
            self.run(decision)

    def set_version(self, version: int) -> None:
        before, self.version = image_at(self.version), version
        self.run(self.shard.on_image(MetadataDelta(before, image_at(version), []), self.now))

    def reload(self) -> None:
        """Move to a new leader that has the whole log."""
        self.effects, self.uncommitted, self.hold = [], [], False
        self.leader_epoch += 1
        self.shard = TransactionShard(self.config, self.leader_epoch)
        for offset, (key, value) in enumerate(self.log):
            record = decode_record(key, value)
            assert record is not None
            self.shard.replay(Offset(offset), record)
        self.run(self.shard.loaded(image_at(self.version), self.now))

    # Requests

    def init(self, producer_id: int = -1, epoch: int = -1, timeout_ms: int = TIMEOUT_MS) -> Any:
        """(producer id, epoch), or the error code."""
        request = InitProducerIdRequest(
            transactional_id=NAME,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        try:
            response = self.with_id(
                lambda new: self.shard.handle_init_producer_id(request, new, self.now)
            )
        except KafkaError as error:
            return error.code
        if response.error_code:
            return ErrorCode(response.error_code)
        return response.producer_id, response.producer_epoch

    def add(self, producer: tuple[int, int], *partitions: Any, client: int | None = None) -> Any:
        version = self.client if client is None else client
        return self.code(
            lambda: self.shard.handle_add_partitions(
                NAME, *producer, frozenset(partitions), client_version=version, now=self.now
            )
        )

    def end(self, producer: tuple[int, int], *, commit: bool, client: int | None = None) -> Any:
        """The next (producer id, epoch), or the error code."""
        request = Completion(
            producer_id=producer[0],
            producer_epoch=producer[1],
            commit=commit,
            client_version=self.client if client is None else client,
        )
        try:
            return self.with_id(
                lambda new: self.shard.handle_end_transaction(NAME, request, new, self.now)
            )
        except KafkaError as error:
            return error.code

    def verify(self, producer: tuple[int, int], *partitions: Any) -> Any:
        found: Any = {}
        try:
            found = self.shard.verify_partitions(NAME, *producer, partitions)
        except KafkaError as error:
            return error.code
        finally:
            for one in partitions:
                is_verified = found.get(one) is ErrorCode.NONE
                assert self.shard.is_part(NAME, *producer, one) is is_verified
        return found

    def code(self, handle: Any) -> ErrorCode:
        try:
            self.run(handle())
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    @property
    def state(self) -> str:
        found = self.shard.get(NAME)
        return "" if found is None else found.state.label

    def set_epoch(self, epoch: int) -> None:
        """Continue from an id with that epoch, as a log from long ago would have it."""
        from sparkraft.coordinator.transaction.records import TransactionRecord

        known = self.shard.get(NAME)
        assert known is not None
        record = TransactionRecord(
            transactional_id=NAME, metadata=known._replace(producer_epoch=epoch)
        )
        self.log.append(encode_record(record))
        self.shard.replay(Offset(len(self.log) - 1), record)
