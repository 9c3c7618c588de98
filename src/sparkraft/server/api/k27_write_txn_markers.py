"""WriteTxnMarkers: v1-2. End a transaction in partitions led here. (KIP-98, KIP-890, KIP-1228)

Sent by transaction coordinators on other brokers, Kafka's or ours.

Behaviour:
    * A marker is appended like a record of acks=all; answered once it is below the high watermark.
    * A coordinator epoch below the newest seen: TRANSACTION_COORDINATOR_FENCED. A producer epoch
      below the producer's: INVALID_PRODUCER_EPOCH; from transaction version 2 on also an equal one
      while a transaction is open.
    * A negative producer id or epoch: INVALID_REQUEST.
    * In `__consumer_offsets` the group coordinator publishes or drops what was pending.
    * Not hosted here: UNKNOWN_TOPIC_OR_PARTITION. Hosted, but led elsewhere or loading:
      NOT_LEADER_OR_FOLLOWER; the coordinator tries again.
    * Markers of one producer share an answer; one without partitions gets none.
Versions: v2 transaction version.    Not done: -
"""

import asyncio
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.coordinator.marker_log import Marker

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices

_Answers = dict[tuple[str, int], WritableTxnMarkerPartitionResult]


async def handle(
    broker: "BrokerServices", context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Append every marker, then wait for all of them together."""
    answers: dict[int, _Answers] = {}
    waits = []
    for marker in request.markers:
        for topic in marker.topics:
            for index in topic.partition_indexes:
                answer = WritableTxnMarkerPartitionResult(partition_index=index)
                answers.setdefault(marker.producer_id, {})[topic.name, index] = answer
                waits.append(_write(broker, marker, topic.name, answer))
    await asyncio.gather(*waits)
    return WriteTxnMarkersResponse(
        markers=[_result(producer_id, found) for producer_id, found in answers.items()]
    )


async def _write(
    broker: "BrokerServices",
    marker: WritableTxnMarker,
    topic: str,
    answer: WritableTxnMarkerPartitionResult,
) -> None:
    written = Marker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        committed=marker.transaction_result,
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )
    answer.error_code = int(await broker.marker_log.write(written, topic, answer.partition_index))


def _result(producer_id: int, answers: _Answers) -> WritableTxnMarkerResult:
    result = WritableTxnMarkerResult(producer_id=producer_id)
    topics: dict[str, WritableTxnMarkerTopicResult] = {}
    for (name, _), answer in answers.items():
        if name not in topics:
            topics[name] = WritableTxnMarkerTopicResult(name=name)
            result.topics.append(topics[name])
        topics[name].partitions.append(answer)
    return result


def refuse(_: type, request: Any, version: int, error: KafkaError) -> WriteTxnMarkersResponse:
    """Every partition with the request's error."""
    answers: dict[int, _Answers] = {}
    for marker in request.markers:
        for topic in marker.topics:
            for index in topic.partition_indexes:
                answers.setdefault(marker.producer_id, {})[topic.name, index] = (
                    WritableTxnMarkerPartitionResult(
                        partition_index=index, error_code=int(error.code)
                    )
                )
    return WriteTxnMarkersResponse(
        markers=[_result(producer_id, found) for producer_id, found in answers.items()]
    )


API = Api(
    key=ApiKey.WRITE_TXN_MARKERS,
    handle=handle,
    authorize=(on_cluster(AclOperation.ALTER, AclOperation.CLUSTER_ACTION),),
    refuse=refuse,
)
