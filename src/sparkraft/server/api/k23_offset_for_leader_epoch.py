"""OffsetForLeaderEpoch: v2-4. The end offset of a leader epoch. (KIP-101, KIP-279, KIP-320)

Behaviour:
    * `current_leader_epoch` below ours: FENCED_LEADER_EPOCH; above: UNKNOWN_LEADER_EPOCH.
    * The current epoch: the log's end for replicas, the high watermark for consumers is not asked.
    * An epoch never seen: the end of the largest one below it, else -1/-1.
Versions: v3 replica_id; v4 flexible (KIP-482).    Not done: -
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import encode_parts
from sparkraft.protocol.messages.k23_offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.encoded_array import EncodedArray, encoded_in_pieces
from sparkraft.server.api.item_errors import PartitionErrors, check_topic
from sparkraft.server.api.registry import Api, RequestContext, Steps

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices


def handle(
    broker: "BrokerServices", context: RequestContext, request: OffsetForLeaderEpochRequest
) -> Steps:
    """Look each epoch up in its partition's log, in slices; returns the encoded response."""
    cls, version = OffsetForLeaderEpochResponse, context.api_version
    topics = EncodedArray(cls, version)
    is_replica = context.is_allowed(
        AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, logs=False
    )
    for topic in request.topics:
        answers = (
            _answer(broker, context, topic.topic, part, is_replica=is_replica)
            for part in topic.partitions
        )
        encoded = yield from encoded_in_pieces(cls, version, answers)
        topics.add(OffsetForLeaderTopicResult(topic=topic.topic, partitions=encoded))
        yield 1
    return encode_parts(OffsetForLeaderEpochResponse(topics=topics.encoded()), version)


def _answer(
    broker: "BrokerServices",
    context: RequestContext,
    topic: str,
    part: OffsetForLeaderPartition,
    *,
    is_replica: bool,
) -> EpochEndOffset:
    answer = EpochEndOffset(partition=part.partition)
    try:
        if not is_replica:
            check_topic(context, AclOperation.DESCRIBE, topic)
        partition = broker.replica_manager.leader(topic, part.partition)
        partition.check_epoch(part.current_leader_epoch)
        found = partition.log.end_offset_for_epoch(part.leader_epoch)
        if found is not None:
            answer.leader_epoch, answer.end_offset = found
    except KafkaError as error:
        answer.error_code = int(error.code)
    return answer


_ERRORS = PartitionErrors(
    partition=lambda one, code: EpochEndOffset(partition=one.partition, error_code=code),
    topic=lambda topic, found: OffsetForLeaderTopicResult(topic=topic.topic, partitions=found),
    response=lambda topics: OffsetForLeaderEpochResponse(topics=topics),
)


API = Api(
    key=ApiKey.OFFSET_FOR_LEADER_EPOCH,
    handle=handle,
    authorize=(
        on_each(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, when="a replica asks"),
        on_each(
            AclOperation.DESCRIBE,
            AclResourceType.TOPIC,
            when="CLUSTER_ACTION on the cluster is denied",
        ),
    ),
    refuse=_ERRORS.refuse,
)
