"""EndQuorumEpoch: v0-1. The leader of the quorum has resigned. (KIP-595, KIP-853)

Behaviour:
    * A follower stands for election: at once if it comes first among the preferred successors,
      later the further down it is.
    * An older epoch: FENCED_LEADER_EPOCH; another cluster: INCONSISTENT_CLUSTER_ID.
Versions: v1 flexible, directory ids, endpoints.    Not done: -
"""

from typing import Any

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import k54_end_quorum_epoch as messages
from sparkraft.raft import events
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.raft import wire


async def handle(
    node: Any, context: RequestContext, request: messages.EndQuorumEpochRequest
) -> messages.EndQuorumEpochResponse:
    """Get ready to succeed."""
    asked = wire.read_end(request)
    if asked is None:
        return messages.EndQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST)
    response = await node.raft.handle_request(asked)
    assert isinstance(response, events.QuorumEpochResponse)
    return wire.write_end_response(response, context.listener_name, context.api_version)


API = Api(
    key=ApiKey.END_QUORUM_EPOCH,
    handle=handle,
    authorize=(on_cluster(AclOperation.CLUSTER_ACTION),),
    broker=False,
    controller=True,
)
