"""LeaderAndIsr: v0-7, in ZooKeeper mode. Which partitions does this broker lead or follow?

Behaviour:
    * An old broker epoch: STALE_BROKER_EPOCH; an old controller epoch: STALE_CONTROLLER_EPOCH.
    * Each partition has a result; a leader epoch that is not newer: STALE_CONTROLLER_EPOCH.
    * A KRaft controller may repeat a leader epoch; its full request has all replicas (KIP-866).
    * The response leaves once the logs exist.
    * Topics without an id are known by name (inter.broker.protocol.version below 2.8).
Versions: v2 broker epoch; v5 topic ids, also in the response; v7 KRaft controllers.
Not done: -
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
from sparkraft.server.zookeeper.old_forms import normalize_leader_and_isr

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices
    from sparkraft.server.zookeeper.control import Results

_TOPIC_IDS_VERSION = 5


def handle(node: "BrokerServices", context: RequestContext, request: LeaderAndIsrRequest) -> Steps:
    """Host the partitions; a result for each, encoded in slices."""
    version = context.api_version
    normalize_leader_and_isr(request)
    results = yield node.controlled.lead_and_follow(request)
    if version < _TOPIC_IDS_VERSION:
        return (yield from _by_partition(results, version))
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


def _by_partition(results: "Results", version: int) -> Steps:
    """The response before v5, which names topics."""
    errors = (
        LeaderAndIsrPartitionError(topic_name=name, partition_index=index, error_code=code)
        for (name, index), code in results.items()
    )
    encoded = yield from encoded_in_pieces(LeaderAndIsrResponse, version, errors)
    return encode_parts(LeaderAndIsrResponse(partition_errors=encoded), version)


API = Api(
    key=ApiKey.LEADER_AND_ISR,
    handle=handle,
    authorize=(on_cluster(AclOperation.CLUSTER_ACTION),),
    broker=False,
    zookeeper=True,
)
