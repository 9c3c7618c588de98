"""StopReplica: v0-4, in ZooKeeper mode. Which partitions shall this broker stop, or delete?

Behaviour:
    * An old broker epoch: STALE_BROKER_EPOCH; an old controller epoch: STALE_CONTROLLER_EPOCH.
    * Each partition has a result, also one that is not here; the controller waits for all of them.
    * An old leader epoch: FENCED_LEADER_EPOCH; -2 (topic deletion) and -1 are newer than all.
Versions: v1 broker epoch; v3 leader epoch and deletion of each; v4 KRaft controllers.
Not done: -
"""

from typing import TYPE_CHECKING

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k05_stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api, RequestContext

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices


async def handle(
    node: "BrokerServices", _: RequestContext, request: StopReplicaRequest
) -> StopReplicaResponse:
    """Stop the partitions; a result for each."""
    results = await node.controlled.stop(request)
    return StopReplicaResponse(
        partition_errors=[
            StopReplicaPartitionError(topic_name=topic, partition_index=index, error_code=code)
            for (topic, index), code in results.items()
        ]
    )


API = Api(
    key=ApiKey.STOP_REPLICA,
    handle=handle,
    authorize=(on_cluster(AclOperation.CLUSTER_ACTION),),
    broker=False,
    zookeeper=True,
)
