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

from collections import deque
from typing import TYPE_CHECKING, Any, cast

from sparkraft.base.errors import KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import encode_parts
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
from sparkraft.server.api.encoded_array import CHUNK, encoded_and_released, encoded_in_pieces
from sparkraft.server.api.registry import Api, RequestContext, Steps
from sparkraft.server.coordinator.marker_log import Marker, MarkerWrite

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from sparkraft.server.broker_services import BrokerServices

_Answers = dict[str, dict[int, WritableTxnMarkerPartitionResult]]
"""By topic and partition."""


def handle(
    broker: "BrokerServices", context: RequestContext, request: WriteTxnMarkersRequest
) -> Steps:
    """Append every marker, then wait for all of them together; returns the encoded response."""
    answers: dict[int, _Answers] = {}
    writes: deque[MarkerWrite] = deque()
    results: deque[WritableTxnMarkerPartitionResult] = deque()
    for sent in request.markers:
        marker = _marker(sent)
        for topic in sent.topics:
            if not topic.partition_indexes:
                continue
            by_index = answers.setdefault(sent.producer_id, {}).setdefault(topic.name, {})
            for index in topic.partition_indexes:
                answer = by_index[index] = WritableTxnMarkerPartitionResult(partition_index=index)
                writes.append(MarkerWrite(marker, topic.name, index))
                results.append(answer)
                yield 1
        yield 1
    codes = yield broker.marker_log.write_all(_taken(writes))
    for at in range(0, len(codes), CHUNK):
        for code in codes[at : at + CHUNK]:
            results.popleft().error_code = int(code)
        yield CHUNK // 8
    response = yield from _response(answers, context.api_version)
    return encode_parts(response, context.api_version)


def _taken(writes: deque[MarkerWrite]) -> "Iterator[MarkerWrite]":
    while writes:
        yield writes.popleft()


def _marker(sent: WritableTxnMarker) -> Marker:
    return Marker(
        producer_id=sent.producer_id,
        producer_epoch=sent.producer_epoch,
        committed=sent.transaction_result,
        coordinator_epoch=sent.coordinator_epoch,
        transaction_version=sent.transaction_version,
    )


def _response(
    answers: dict[int, _Answers], version: int
) -> "Generator[int, None, WriteTxnMarkersResponse]":
    """The response, with one encoded result for each producer."""
    markers: list[WritableTxnMarkerResult] = []
    for producer_id, found in answers.items():
        result = WritableTxnMarkerResult(producer_id=producer_id)
        markers.append(result)
        for name, by_index in found.items():
            partitions = list(by_index.values())
            by_index.clear()
            encoded = yield from encoded_and_released(WriteTxnMarkersResponse, version, partitions)
            result.topics.append(WritableTxnMarkerTopicResult(name=name, partitions=encoded))
            yield 1
        topics_encoded = yield from encoded_in_pieces(
            WriteTxnMarkersResponse, version, result.topics
        )
        result.topics = cast("Any", topics_encoded)
    encoded = yield from encoded_in_pieces(WriteTxnMarkersResponse, version, markers)
    return WriteTxnMarkersResponse(markers=encoded)


def refuse(_: type, request: WriteTxnMarkersRequest, version: int, error: KafkaError) -> Steps:
    """Every partition with the request's error."""
    answers: dict[int, _Answers] = {}
    code = int(error.code)
    for marker in request.markers:
        for topic in marker.topics:
            if not topic.partition_indexes:
                continue
            by_index = answers.setdefault(marker.producer_id, {}).setdefault(topic.name, {})
            for index in topic.partition_indexes:
                by_index[index] = WritableTxnMarkerPartitionResult(
                    partition_index=index, error_code=code
                )
                yield 1
        yield 1
    return (yield from _response(answers, version))


API = Api(
    key=ApiKey.WRITE_TXN_MARKERS,
    handle=handle,
    authorize=(on_cluster(AclOperation.ALTER, AclOperation.CLUSTER_ACTION),),
    refuse=refuse,
)
