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
from sparkraft.protocol.messages.k23_offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.item_errors import PartitionErrors, check_topic
from sparkraft.server.api.registry import Api, RequestContext

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices


def handle(
    broker: "BrokerServices", context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Look each epoch up in its partition's log."""
    response = OffsetForLeaderEpochResponse()
    is_replica = context.is_allowed(
        AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, logs=False
    )
    for topic in request.topics:
        answers = []
        for part in topic.partitions:
            answer = EpochEndOffset(partition=part.partition)
            try:
                if not is_replica:
                    check_topic(context, AclOperation.DESCRIBE, topic.topic)
                partition = broker.replica_manager.leader(topic.topic, part.partition)
                partition.check_epoch(part.current_leader_epoch)
                found = partition.log.end_offset_for_epoch(part.leader_epoch)
                if found is not None:
                    answer.leader_epoch, answer.end_offset = found
            except KafkaError as error:
                answer.error_code = int(error.code)
            answers.append(answer)
        response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
    return response


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
