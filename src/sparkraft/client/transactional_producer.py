"""A producer whose records and consumed offsets become visible together, or not at all.

    await producer.init_transactions()
    async with producer.transaction():
        await producer.send("out", value)
        await producer.send_offsets_to_transaction({("in", 0): 42}, consumer.group_metadata)

A failed record makes the commit fail. The caller aborts, and begins again from its committed
offsets; `transaction` aborts by itself.

Invariants:
    * Records are sent only while a transaction is open.
    * EndTxn leaves after every record of the transaction is acknowledged or has failed.
    * Sequences start at 0 again when the producer id or epoch changes, and only then.

Not here: the requests to the coordinator (`transactional_id`).
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.producer import Producer, ProducerSettings
from sparkraft.client.transactional_id import TransactionalId, TransactionState
from sparkraft.client.values import Committed
from sparkraft.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from sparkraft.base.ids import TopicPartition
    from sparkraft.client.cluster import Cluster
    from sparkraft.client.outgoing import Batch
    from sparkraft.client.values import GroupMetadata

_ENDED_BY_ABORT = {TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE_ERROR}


class TransactionalProducer(Producer):
    """Sends records in transactions over a `Cluster`, which stays the caller's to close.

    Leaving it as a context manager aborts a transaction that is open.
    """

    def __init__(self, cluster: Cluster, settings: ProducerSettings) -> None:
        """Prepare; `init_transactions` is the first call.

        Args:
            cluster: where to send.
            settings: with a `transactional_id`; `ValueError` without one, or if batches would carry
                no producer id.
        """
        super().__init__(cluster, settings)
        if not settings.transactional_id or not settings.is_idempotent:
            raise ValueError("a transactional producer needs a transactional id and acks=all")
        self._transactional_id = settings.transactional_id
        self._transaction = TransactionalId(
            cluster,
            settings.transactional_id,
            timeout_ms=settings.transaction_timeout_ms,
            max_block_ms=settings.max_block_ms,
        )

    @property
    def state(self) -> TransactionState:
        """The state of the transactional id."""
        return self._transaction.state

    @property
    def producer_id_and_epoch(self) -> tuple[int, int]:
        """The producer id and epoch of the next batch; -1, -1 before `init_transactions`."""
        return self._transaction.producer

    async def init_transactions(self) -> None:
        """Fence older producers of the transactional id and end their transaction.

        Raises:
            FatalTransactionError: the id or the timeout is refused.
            KafkaError: a retriable one after `max_block_ms`; call it again.
        """
        await self._transaction.init()
        self._take_producer()

    def begin_transaction(self) -> None:
        """Begin a transaction."""
        self._transaction.begin()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, int | Committed], group: GroupMetadata
    ) -> None:
        """Commit a group's offsets with the transaction.

        Args:
            offsets: by partition, the offset of the record to read next.
            group: `Consumer.group_metadata` at the time of the poll that returned the records.

        Raises:
            AbortableTransactionError: the group has moved on without this member.
            ProducerFencedError: another producer has taken the transactional id.
        """
        await self._transaction.send_offsets(
            {
                tp: entry if isinstance(entry, Committed) else Committed(offset=entry)
                for tp, entry in offsets.items()
            },
            group,
        )

    async def commit_transaction(self) -> None:
        """Return when the transaction is committed.

        Raises:
            AbortableTransactionError: a record was refused or may be lost.
            ProducerFencedError: another producer has taken the transactional id.
            KafkaError: a retriable one after `max_block_ms`; call it again.
        """
        self._transaction.start_end(committed=True)
        await self._end()

    async def abort_transaction(self) -> None:
        """Return when the transaction is aborted; records that were not sent yet are dropped.

        Raises:
            ProducerFencedError: another producer has taken the transactional id.
            KafkaError: a retriable one after `max_block_ms`; call it again.
        """
        self._transaction.start_end(committed=False)
        detail = "the transaction was aborted before the record was sent"
        self._drop_unsealed(KafkaError(ErrorCode.TRANSACTION_ABORTABLE, detail))
        await self._end()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A transaction around a block: committed at its end, aborted if it or the commit fails."""
        self.begin_transaction()
        try:
            yield
            await self.commit_transaction()
        except BaseException:
            if self.state in _ENDED_BY_ABORT:
                await self.abort_transaction()
            raise

    async def close(self, *, flush: bool = True) -> None:
        """Abort the open transaction, then stop."""
        if not self._is_closed and self.state in _ENDED_BY_ABORT:
            try:
                await self.abort_transaction()
            except KafkaError:
                # The coordinator aborts it after transaction.timeout.ms.
                flush = False
        await super().close(flush=flush)

    async def _end(self) -> None:
        try:
            async with asyncio.timeout(self.settings.max_block_ms / 1000):
                await self.flush()
        except TimeoutError as error:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"records are still in flight after {self.settings.max_block_ms} ms",
            ) from error
        await self._transaction.finish_end()
        self._take_producer()

    def _take_producer(self) -> None:
        if self._producer != self._transaction.producer:
            self._producer = self._transaction.producer
            self._start_sequences_over()

    # steps of `Producer`

    def _require_open(self) -> None:
        super()._require_open()
        self._transaction.require_open("send a record")

    async def _prepare(self, partitions: list[TopicPartition]) -> None:
        await self._transaction.add_partitions(partitions)

    def _produce_version_max(self) -> int | None:
        return self._transaction.max_version(ApiKey.PRODUCE)

    def _on_lost(self, batch: Batch, error: KafkaError) -> None:
        self._transaction.on_lost_batch(error)
        if self.state is TransactionState.FATAL_ERROR:
            self._fail_all(self._transaction.error or error)
        elif self.state is TransactionState.ABORTABLE_ERROR:
            self._drop_unsealed(self._transaction.error or error)

    def _drop_unsealed(self, error: KafkaError) -> None:
        """Fail the records that no request has carried yet."""
        for lane in self._lanes.values():
            while lane.batches and lane.batches[-1].data is None:
                self._finish(lane.batches.pop(), error)
