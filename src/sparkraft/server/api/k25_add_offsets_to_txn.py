"""AddOffsetsToTxn: v0-4. Add a group's offsets to a transaction. (KIP-98)

Behaviour:
    * As AddPartitionsToTxn from a client, for the group's partition of `__consumer_offsets`.
    * Before that topic exists: COORDINATOR_NOT_AVAILABLE, and the topic is created. Kafka adds the
      partition. Its coordinator, if its metadata is older than the topic when the transaction ends,
      then takes the partition for a deleted one and writes no marker to it.
Versions: v2 PRODUCER_FENCED, before it INVALID_PRODUCER_EPOCH; v3 flexible; v4
    TRANSACTION_ABORTABLE.    Not done: -
"""

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import TopicPartition
from sparkraft.coordinator.internal_topics import GROUP_METADATA_TOPIC
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k25_add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_group, on_transactional_id
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.coordinator.responses import Response, map_response

if TYPE_CHECKING:
    from sparkraft.coordinator.runtime import Instant
    from sparkraft.coordinator.transaction.decision import TransactionDecision
    from sparkraft.coordinator.transaction.shard import TransactionShard
    from sparkraft.server.broker_services import BrokerServices

_FENCED_FROM = 2


def handle(
    broker: "BrokerServices", _: RequestContext, request: AddOffsetsToTxnRequest
) -> Response[AddOffsetsToTxnResponse]:
    """Add the partition that the group's offsets are in."""
    if not request.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    partition = (GROUP_METADATA_TOPIC, broker.groups.partition_for(request.group_id))
    producer = (request.transactional_id, request.producer_id, request.producer_epoch)

    def add(shard: "TransactionShard", now: "Instant") -> "TransactionDecision[None]":
        if not _is_known(broker, partition):
            shard.verify_partitions(*producer, ())  # Its errors come first, as in Kafka.
            broker.auto_topic_creation.create([GROUP_METADATA_TOPIC])
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{GROUP_METADATA_TOPIC} is being created"
            )
        return shard.handle_add_partitions(
            *producer, frozenset({partition}), client_version=0, now=now
        )

    response = broker.transactions.shard_for(request.transactional_id).execute_write(add)
    return map_response(response, lambda _: AddOffsetsToTxnResponse())


def _is_known(broker: "BrokerServices", partition: TopicPartition) -> bool:
    topic = broker.image.topic(partition[0])
    return topic is not None and partition[1] in topic.partitions


def refuse(_: type, request: Any, version: int, error: KafkaError) -> AddOffsetsToTxnResponse:
    """The error, in the form that the version knows."""
    code = error.code
    if code is ErrorCode.PRODUCER_FENCED and version < _FENCED_FROM:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(error_code=code)


API = Api(
    key=ApiKey.ADD_OFFSETS_TO_TXN,
    handle=handle,
    authorize=(on_transactional_id(AclOperation.WRITE), on_group(AclOperation.READ)),
    refuse=refuse,
)
