"""DescribeQuorum: v0-2. The quorum's leader and replicas. (KIP-595, KIP-836, KIP-853)

Behaviour:
    * Only `__cluster_metadata-0`; another partition: UNKNOWN_TOPIC_OR_PARTITION.
    * Only the leader knows: NOT_LEADER_OR_FOLLOWER elsewhere, with a message that names the leader,
      or the epoch and the voters of a quorum without one. Kafka's message is the code's.
    * Brokers forward it: REQUEST_TIMED_OUT, and the same message, if no leader is found in 5 s.
    * On a controller it has no quota of time, as all that raft answers; on a broker it has.
    * Times are wall-clock ms, -1 if a replica never fetched; the leader's own are now.
Versions: v1 last fetch and caught-up times; v2 directory ids, endpoints, messages.    Not done: -
"""

from typing import Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k55_describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)
from sparkraft.raft.events import Description, ReplicaProgress
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.raft.leader_description import describe_leader
from sparkraft.storage.names import METADATA_TOPIC

_DIRECTORIES_VERSION = 2

_LEADER_MS_MAX = 5_000
"""How long a broker looks for the leader: longer than an election, shorter than clients wait, so
that they get an error that explains it."""


def handle(
    node: Any, context: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    """Describe the quorum as the leader sees it."""
    ours = (
        len(request.topics) == 1
        and request.topics[0].topic_name == METADATA_TOPIC
        and [p.partition_index for p in request.topics[0].partitions] == [0]
    )
    if not ours:
        unknown = KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        )
        return _refused(request, unknown, context.api_version)
    found = node.raft.describe()
    if found is None:
        elsewhere = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, describe_leader(node.raft))
        return _refused(request, elsewhere, context.api_version)
    return _described(found, context.api_version)


async def _forward(broker: Any, context: RequestContext, request: DescribeQuorumRequest) -> Any:
    return await broker.forwarding.forward(context, request, tries_ms=_LEADER_MS_MAX)


def _described(found: Description, version: int) -> DescribeQuorumResponse:
    newer = version >= _DIRECTORIES_VERSION
    partition = DescribeQuorumResponsePartitionData(
        partition_index=0,
        leader_id=found.leader_id,
        leader_epoch=found.epoch,
        high_watermark=found.high_watermark,
        current_voters=[_replica(voter, newer=newer) for voter in found.voters],
        observers=[_replica(observer, newer=newer) for observer in found.observers],
    )
    nodes = [
        Node(
            node_id=voter.key.id,
            listeners=[
                Listener(name=e.listener, host=e.host, port=e.port) for e in voter.endpoints
            ],
        )
        for voter in found.voters
    ]
    topic = DescribeQuorumResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return DescribeQuorumResponse(topics=[topic], nodes=nodes if newer else [])


def _replica(progress: ReplicaProgress, *, newer: bool) -> ReplicaState:
    directory = progress.key.directory_id if newer else None
    return ReplicaState(
        replica_id=progress.key.id,
        replica_directory_id=directory or Uuid.ZERO,
        log_end_offset=progress.log_end_offset,
        last_fetch_timestamp=progress.last_fetch_ms,
        last_caught_up_timestamp=progress.last_caught_up_ms,
    )


def _refused(
    request: DescribeQuorumRequest, error: KafkaError, version: int
) -> DescribeQuorumResponse:
    """The same error for every requested partition."""
    topics = [
        DescribeQuorumResponseTopicData(
            topic_name=topic.topic_name,
            partitions=[
                DescribeQuorumResponsePartitionData(
                    partition_index=partition.partition_index,
                    error_code=error.code,
                    error_message=error.detail if version >= _DIRECTORIES_VERSION else None,
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return DescribeQuorumResponse(topics=topics)


API = Api(
    key=ApiKey.DESCRIBE_QUORUM,
    handle=handle,
    zookeeper=False,
    authorize=(on_cluster(AclOperation.DESCRIBE),),
    controller=True,
    forward=True,
    forward_by=_forward,
    is_exempt_from_time=True,
)
