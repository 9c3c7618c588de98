"""WriteTxnMarkers (key 27): v1-2, flexible from v1."""

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
    """In `WriteTxnMarkersRequest.markers.topics`."""

    name: str = string()
    partition_indexes: list[int] = int32s()


class WritableTxnMarker(Message):
    """In `WriteTxnMarkersRequest.markers`."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8("2+", ignorable=True)


class WriteTxnMarkersRequest(Message, key=27, versions="1-2", flexible="1+"):
    """Asks for WriteTxnMarkers."""

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


class WritableTxnMarkerPartitionResult(Message):
    """In `WriteTxnMarkersResponse.markers.topics.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()


class WritableTxnMarkerTopicResult(Message):
    """In `WriteTxnMarkersResponse.markers.topics`."""

    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


class WritableTxnMarkerResult(Message):
    """In `WriteTxnMarkersResponse.markers`."""

    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


class WriteTxnMarkersResponse(Message, key=27, versions="1-2", flexible="1+"):
    """Answers WriteTxnMarkersRequest."""

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
