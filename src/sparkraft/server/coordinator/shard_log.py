"""The log of one shard: its decisions become batches, and batches are replayed.

    decision → encoded → one batch appended → replayed by the shard → future of the commit
    loading  → batches read → decoded       → replayed by the shard

The shard replays what it has decided when that is appended, not when it is committed. A decision is
one batch, unless it is large and not atomic.

Not here: when decisions are made and what follows from them (`shard_runtime`).
"""

import logging
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Offset
from sparkraft.base.loop_work import LoopBound
from sparkraft.coordinator.runtime import (
    NO_PRODUCER_ID,
    CoordinatorShard,
    Decision,
    ProducerEpoch,
)
from sparkraft.coordinator.steps import Steps
from sparkraft.records.batch import BatchHeader, iter_batches
from sparkraft.records.control import parse_end_transaction
from sparkraft.records.record import BatchBuilder, decode_records

if TYPE_CHECKING:
    import asyncio

    from sparkraft.server.coordinator.host import Appended, ShardHost
    from sparkraft.server.coordinator.shard_spec import ShardSpec
    from sparkraft.server.coordinator.uncommitted_writes import UncommittedWrites

log = logging.getLogger(__name__)

LOAD_STEP_BYTES = 256 * 1024
"""Bytes read from the log at once."""

SPLIT_BYTES = 256 * 1024
"""Size of the batches of a decision that is not atomic: well below max.message.bytes."""

WHOLE_VALUE_BYTES_MAX: LoopBound = 4096
"""Longer values are decoded in steps: some hundred microseconds."""

R = TypeVar("R")


class ShardLog(Generic[R]):
    """See the module docstring.

    Attributes:
        is_closed: whether the shard has resigned: nothing is appended or loaded.
    """

    def __init__(
        self,
        name: str,
        spec: "ShardSpec[Any, R]",
        host: "ShardHost",
        shard: CoordinatorShard[R],
        uncommitted: "UncommittedWrites",
    ) -> None:
        self.is_closed = False
        self._name = name
        self._spec = spec
        self._host = host
        self._shard = shard
        self._uncommitted = uncommitted

    def close(self) -> None:
        """Append nothing: the shard resigns."""
        self.is_closed = True

    def check_open(self) -> None:
        """Raise KafkaError (NOT_COORDINATOR) if the shard has resigned."""
        if self.is_closed:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)

    # Appending

    def append(self, decision: Decision[R, Any]) -> "asyncio.Future[None] | None":
        """Append and replay the records of a decision; a future of their commit, None if it is.

        Raises:
            KafkaError: they could not be appended.
        """
        self.check_open()
        batch = self._new_batch(decision.producer)
        for record in decision.records:
            self._add(batch, *self._spec.encode(record))
        appended = self._host.append(batch.build())
        if decision.replay:
            producer_id = _producer_id_of(decision)
            for at, record in enumerate(decision.records):
                self._shard.replay(Offset(appended.base_offset + at), record, producer_id)
        return self._commit_of(appended)

    def append_in_steps(self, decision: Decision[R, Any]) -> "Steps[asyncio.Future[None] | None]":
        """The same in pieces: one batch, or several if the decision is not atomic."""
        future = None
        left = decision.records
        while left:
            self.check_open()
            batch = self._new_batch(decision.producer)
            size = count = 0
            for record in left:
                key, value = yield from self._encode_in_steps(record)
                self._add(batch, key, value)
                size += len(key) + len(value or b"")
                count += 1
                yield 1
                if size >= SPLIT_BYTES and not decision.is_atomic:
                    break
            self.check_open()
            appended = self._host.append(batch.build())
            if decision.replay:
                producer_id = _producer_id_of(decision)
                for at, record in enumerate(left[:count]):
                    offset = Offset(appended.base_offset + at)
                    yield from self._shard.replay_in_steps(offset, record, producer_id)
                    yield 1
            future = self._commit_of(appended)
            left = left[count:]
        return future

    def append_marker(self, marker: bytes) -> "asyncio.Future[None] | None":
        """Append the end of a transaction, which the caller replays.

        Raises:
            KafkaError: it could not be appended.
        """
        return self._commit_of(self._host.append(marker))

    def _commit_of(self, appended: "Appended") -> "asyncio.Future[None] | None":
        future = self._host.committed(appended)
        if future is not None:
            self._uncommitted.note(future)
        return future

    def _new_batch(self, producer: ProducerEpoch | None) -> BatchBuilder:
        if producer is None:
            return BatchBuilder(codec=self._spec.compression)
        return BatchBuilder(
            codec=self._spec.compression,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
            transactional=True,
        )

    def _add(self, batch: BatchBuilder, key: bytes, value: bytes | None) -> None:
        batch.append(self._host.clock.wall_ms(), key, value)

    def _encode_in_steps(self, record: R) -> Steps[tuple[bytes, bytes | None]]:
        if self._spec.encode_in_steps is None:
            return self._spec.encode(record)
        return (yield from self._spec.encode_in_steps(record))

    # Loading

    @property
    def is_empty(self) -> bool:
        """Whether it has no records to load."""
        start, end = self._host.log_range()
        return end <= start

    async def replay(self) -> int:
        """Replay the whole log, committed or not, in slices; returns its end.

        Raises:
            KafkaError: it cannot be read, or the shard has resigned meanwhile.
            DecodeError: it has a record that cannot be read.
        """
        at, end = self._host.log_range()
        turn = self._host.turn()
        while at < end and not self.is_closed:
            batches = self._host.read(at, end=end, max_bytes=LOAD_STEP_BYTES)
            if not batches:
                break
            for header, batch in iter_batches(batches):
                for units in self._replay_batch(header, batch):
                    if turn.is_over(units):
                        await turn.next()
                        self.check_open()
                at = header.next_offset
        return int(end)

    def _replay_batch(self, header: BatchHeader, batch: memoryview) -> Steps[None]:
        yield 1
        if header.is_control:
            end = parse_end_transaction(batch)
            if end is not None:
                committed = not end.aborted
                yield from self._shard.replay_end_of_transaction(
                    header.producer_id, committed=committed
                )
            return
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        for record in decode_records(batch):
            if record.key is None:
                continue
            decoded = yield from self._decode_in_steps(record.key, record.value)
            if decoded is None:
                log.warning("Skipped a record of unknown type in %s", self._name)
                continue
            offset = Offset(record.offset)
            yield from self._shard.replay_in_steps(offset, decoded, producer_id)
            yield 2

    def _decode_in_steps(self, key: bytes, value: bytes | None) -> Steps[R | None]:
        decode = self._spec.decode_in_steps
        if decode is None or len(value or b"") <= WHOLE_VALUE_BYTES_MAX:
            return self._spec.decode(key, value)
        return (yield from decode(key, value))


def _producer_id_of(decision: Decision[Any, Any]) -> int:
    return NO_PRODUCER_ID if decision.producer is None else decision.producer.producer_id
