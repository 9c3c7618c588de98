"""Heartbeat: v0-4. Renew a member's session. (KIP-345)

Behaviour:
    * Restarts the member's session; while a rebalance collects joins: REBALANCE_IN_PROGRESS.
    * Not a member: UNKNOWN_MEMBER_ID; of another generation: ILLEGAL_GENERATION; superseded as a
      static member: FENCED_INSTANCE_ID.
    * While the shard is loading: no error, as sessions start when it has finished.
Versions: v1 throttle; v3 static members; v4 flexible.    Not done: -
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_group
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.coordinator.requests import check_group_id
from sparkraft.server.coordinator.responses import Response

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices


def handle(
    broker: "BrokerServices", _: RequestContext, request: HeartbeatRequest
) -> Response[HeartbeatResponse]:
    """Let the group's shard decide."""
    check_group_id(request.group_id)
    try:
        runtime = broker.groups.shard_for(request.group_id)
    except KafkaError as error:
        if error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return HeartbeatResponse()
        raise
    return runtime.execute_write(lambda shard, now: shard.handle_heartbeat(request, now))


API = Api(
    key=ApiKey.HEARTBEAT,
    handle=handle,
    authorize=(on_group(AclOperation.READ),),
)
