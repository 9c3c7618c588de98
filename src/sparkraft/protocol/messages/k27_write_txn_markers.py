"""WriteTxnMarkers (key 27): v0-2, flexible from v1. Kafka 4 removed v0.

KIP-98.
"""

from sparkraft.protocol.declare import (
    Message,
    array,
    boolean,
    int8,
    int16,
    int32,
    int32s,
    int64,
    string,
)


class WritableTxnMarkerTopic(Message):
    """Partitions that get it: `WriteTxnMarkersRequest.markers.topics`."""

    name: str = string()
    partition_indexes: list[int] = int32s()


class WritableTxnMarker(Message):
    """A marker to write: `WriteTxnMarkersRequest.markers`."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8("2+", ignorable=True)


class WriteTxnMarkersRequest(Message, key=27, versions="0-2", flexible="1+"):
    """Has a broker write commit or abort markers; sent by the transaction coordinator.

    v2 has the transaction version (KIP-1228).
    """

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


class WritableTxnMarkerPartitionResult(Message):
    """Result for a partition: `WriteTxnMarkersResponse.markers.topics.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()


class WritableTxnMarkerTopicResult(Message):
    """Partitions: `WriteTxnMarkersResponse.markers.topics`."""

    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


class WritableTxnMarkerResult(Message):
    """Result for a marker: `WriteTxnMarkersResponse.markers`."""

    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


class WriteTxnMarkersResponse(Message, key=27, versions="0-2", flexible="1+"):
    """An error code for each partition of each marker."""

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
