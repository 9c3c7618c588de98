"""The transaction coordinator of this broker: transactional ids and their transactions."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.coordinator.internal_topics import TRANSACTION_STATE_TOPIC
from sparkraft.server.coordinator.coordinator_service import CoordinatorService, HostFactory
from sparkraft.server.coordinator.responses import Response, catch_error, map_response
from sparkraft.server.coordinator.shard_spec import ShardSpec

if TYPE_CHECKING:
    from typing import TypeAlias

    from sparkraft.base.ids import TopicPartition
    from sparkraft.coordinator.runtime import Instant
    from sparkraft.coordinator.transaction.config import TransactionConfig
    from sparkraft.coordinator.transaction.decision import (
        AllocateProducerId,
        TransactionDecision,
        WriteMarkers,
    )
    from sparkraft.coordinator.transaction.records import TransactionRecord
    from sparkraft.coordinator.transaction.shard import TransactionShard
    from sparkraft.protocol.messages.k19_create_topics import CreatableTopic
    from sparkraft.server.broker.producer_ids import ProducerIds
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.coordinator.host import ImageSource
    from sparkraft.server.coordinator.marker_sender import MarkerSender
    from sparkraft.server.coordinator.partition_check import AddPartitionsCheck
    from sparkraft.server.coordinator.shard_runtime import ShardRuntime

    TransactionShardRuntime: TypeAlias = ShardRuntime[TransactionShard, TransactionRecord]

T = TypeVar("T")


class TransactionCoordinatorService(CoordinatorService["TransactionShard", "TransactionRecord"]):
    """The transactional ids whose partitions of `__transaction_state` this broker leads."""

    def __init__(
        self,
        config: "NodeConfig",
        *,
        metadata: "ImageSource",
        host_of: HostFactory,
        producer_ids: "ProducerIds",
        markers: "MarkerSender",
    ) -> None:
        """Lead no partition yet; see `CoordinatorService`."""
        super().__init__(
            TRANSACTION_STATE_TOPIC,
            metadata=metadata,
            host_of=host_of,
            partition_count=config.number("transaction.state.log.num.partitions"),
        )
        self._config = config
        self._producer_ids = producer_ids
        self._markers = markers

    def new_spec(self) -> "ShardSpec[TransactionShard, TransactionRecord]":
        """The core and its messages are imported with the first partition led."""
        from sparkraft.coordinator.transaction.decision import AllocateProducerId, WriteMarkers
        from sparkraft.coordinator.transaction.records import (
            decode_record,
            decode_record_in_steps,
            encode_record,
            encode_record_in_steps,
            is_long,
        )
        from sparkraft.coordinator.transaction.shard import TransactionShard

        return ShardSpec(
            topic=TRANSACTION_STATE_TOPIC,
            new_shard=partial(TransactionShard, transaction_config_of(self._config)),
            encode=encode_record,
            decode=decode_record,
            encode_in_steps=encode_record_in_steps,
            decode_in_steps=decode_record_in_steps,
            is_long=is_long,
            translate_error=as_transaction_error,
            write_timeout_ms=self._config.number("request.timeout.ms"),
            compression=0,
            executors={
                WriteMarkers: self._write_markers,
                AllocateProducerId: self._allocate_producer_id,
            },
        )

    def execute(
        self,
        transactional_id: str,
        handle: "Callable[[TransactionShard, int | None, Instant], TransactionDecision[T]]",
    ) -> Response[T]:
        """Let the shard of an id decide, with a new producer id if it needs one.

        Args:
            transactional_id: not empty.
            handle: (shard, new producer id or None, now) → the decision.

        Raises:
            KafkaError: see `shard_for` and `ShardRuntime.execute_write`.
        """
        from sparkraft.coordinator.transaction.decision import ProducerIdNeeded

        runtime = self.shard_for(transactional_id)
        waits = runtime.is_busy
        try:
            response = runtime.execute_write(lambda shard, now: handle(shard, None, now))
        except ProducerIdNeeded:
            return self._execute_with_producer_id(transactional_id, handle)
        return self._executed_later(transactional_id, handle, response) if waits else response

    async def _executed_later(
        self,
        transactional_id: str,
        handle: "Callable[[TransactionShard, int | None, Instant], TransactionDecision[T]]",
        response: Response[T],
    ) -> T:
        """The response of a call that waited for the shard."""
        from sparkraft.coordinator.transaction.decision import ProducerIdNeeded

        try:
            return await response if isinstance(response, Awaitable) else response
        except ProducerIdNeeded:
            return await self._execute_with_producer_id(transactional_id, handle)

    async def _execute_with_producer_id(
        self,
        transactional_id: str,
        handle: "Callable[[TransactionShard, int | None, Instant], TransactionDecision[T]]",
    ) -> T:
        producer_id = await self._new_producer_id()
        runtime = self.shard_for(transactional_id)
        response = runtime.execute_write(lambda shard, now: handle(shard, producer_id, now))
        return await response if isinstance(response, Awaitable) else response

    async def _new_producer_id(self) -> int:
        ready = self._producer_ids.take()
        return await self._producer_ids.take_from_next_block() if ready is None else ready

    def is_part(
        self, transactional_id: str, producer_id: int, epoch: int, partition: "TopicPartition"
    ) -> bool:
        """Whether a partition is part of the producer's transaction; False if that is unknown."""
        runtime = self.runtimes.get(self.partition_for(transactional_id))
        return (
            runtime is not None
            and runtime.is_readable
            and runtime.shard.is_part(transactional_id, producer_id, epoch, partition)
        )

    def start_check(
        self, check: "AddPartitionsCheck"
    ) -> "Response[dict[TopicPartition, ErrorCode]]":
        """The result of each partition: whether it is part of the transaction, or was added.

        An awaitable if something has to be committed first.
        """
        every = check.partitions
        producer = (check.producer_id, check.producer_epoch)

        def verify(shard: "TransactionShard", _: "Instant") -> "dict[TopicPartition, ErrorCode]":
            return shard.verify_partitions(check.transactional_id, *producer, every)

        def run() -> "Response[dict[TopicPartition, ErrorCode]]":
            transactional_id = check.transactional_id
            if check.adds:
                added = self.add_partitions(
                    transactional_id, *producer, frozenset(every), client_version=2
                )
                return map_response(added, lambda code: dict.fromkeys(every, code))
            return self._shard_of(transactional_id).execute_read(verify)

        return catch_error(run, lambda error: dict.fromkeys(every, error.code))

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: "frozenset[TopicPartition]",
        *,
        client_version: int,
    ) -> Response[ErrorCode]:
        """Add partitions to a transaction; NONE once they are committed.

        Raises:
            KafkaError: see `TransactionShard.handle_add_partitions`; INVALID_REQUEST without an id.
        """

        def add(shard: "TransactionShard", now: "Instant") -> "TransactionDecision[None]":
            return shard.handle_add_partitions(
                transactional_id,
                producer_id,
                producer_epoch,
                partitions,
                client_version=client_version,
                now=now,
            )

        response = self._shard_of(transactional_id).execute_write(add)
        return map_response(response, lambda _: ErrorCode.NONE)

    def _shard_of(self, transactional_id: str) -> "TransactionShardRuntime":
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        return self.shard_for(transactional_id)

    # Effects

    def _write_markers(self, effect: "WriteMarkers") -> Response[None]:
        return self._markers.write(effect, self._is_current)

    def _is_current(self, effect: "WriteMarkers") -> bool:
        runtime = self.runtimes.get(self.partition_for(effect.metadata.transactional_id))
        return runtime is not None and runtime.leader_epoch == effect.coordinator_epoch

    async def _allocate_producer_id(self, _: "AllocateProducerId") -> int:
        return await self._new_producer_id()

    def topic_to_create(self) -> "CreatableTopic":
        """The transaction state topic for a CreateTopics request."""
        from sparkraft.protocol.messages.k19_create_topics import (
            CreatableTopic,
            CreatableTopicConfig,
        )

        config = self._config
        topic_configs = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config.number("transaction.state.log.min.isr")),
            "segment.bytes": str(config.number("transaction.state.log.segment.bytes")),
            "unclean.leader.election.enable": "false",
        }
        return CreatableTopic(
            name=TRANSACTION_STATE_TOPIC,
            num_partitions=config.number("transaction.state.log.num.partitions"),
            replication_factor=config.number("transaction.state.log.replication.factor"),
            configs=[
                CreatableTopicConfig(name=name, value=value)
                for name, value in topic_configs.items()
            ],
        )


def transaction_config_of(config: "NodeConfig") -> "TransactionConfig":
    """The transaction settings of `server.properties`."""
    from sparkraft.coordinator.transaction.config import TransactionConfig

    return TransactionConfig(
        id_expiration_ms=config.number("transactional.id.expiration.ms"),
        abort_interval_ms=config.number(
            "transaction.abort.timed.out.transaction.cleanup.interval.ms"
        ),
        expiry_interval_ms=config.number(
            "transaction.remove.expired.transaction.cleanup.interval.ms"
        ),
    )


def as_transaction_error(error: ErrorCode) -> ErrorCode:
    """Translate the error of a failed append to one that transactional producers handle."""
    match error:
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.NOT_ENOUGH_REPLICAS
            | ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            | ErrorCode.REQUEST_TIMED_OUT
        ):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.NOT_COORDINATOR
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case _:
            return error
