"""LeaderAndIsr: v5-7, in ZooKeeper mode. Which partitions does this broker lead or follow?

Behaviour:
    * An old broker epoch: STALE_BROKER_EPOCH; an old controller epoch: STALE_CONTROLLER_EPOCH.
    * Each partition has a result; a leader epoch that is not newer: STALE_CONTROLLER_EPOCH.
    * The response leaves once the logs exist.
Versions: v2 broker epoch; v5 topic ids; v7 KRaft controllers.
Not done: v0-4, which have no topic ids (inter.broker.protocol.version below 2.8); full requests of
a KRaft controller (KIP-866).
"""

from typing import TYPE_CHECKING

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import encode_parts
from sparkraft.protocol.messages.k04_leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.encoded_array import EncodedArray, encoded_in_pieces
from sparkraft.server.api.registry import Api, RequestContext, Steps

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices

_TOPIC_IDS_VERSION = 5


def handle(node: "BrokerServices", context: RequestContext, request: LeaderAndIsrRequest) -> Steps:
    """Host the partitions; a result for each, encoded in slices."""
    version = context.api_version
    results = yield node.controlled.lead_and_follow(request)
    topics = EncodedArray(LeaderAndIsrResponse, version)
    for topic in request.topic_states:
        errors = (
            LeaderAndIsrPartitionError(
                partition_index=state.partition_index,
                error_code=results[topic.topic_name, state.partition_index],
            )
            for state in topic.partition_states
        )
        encoded = yield from encoded_in_pieces(LeaderAndIsrResponse, version, errors)
        topics.add(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=encoded))
        yield 1
    return encode_parts(LeaderAndIsrResponse(topics=topics.encoded()), version)


API = Api(
    key=ApiKey.LEADER_AND_ISR,
    handle=handle,
    authorize=(on_cluster(AclOperation.CLUSTER_ACTION),),
    versions=(_TOPIC_IDS_VERSION, 7),
    broker=False,
    zookeeper=True,
)
