"""Heartbeat: v0-4. I am still here. (KIP-345)

Behaviour:
    * Starts the member's session anew; while a rebalance gathers members: REBALANCE_IN_PROGRESS.
    * Not a member: UNKNOWN_MEMBER_ID; of another generation: ILLEGAL_GENERATION; superseded as a
      static member: FENCED_INSTANCE_ID.
    * While the shard is loading: no error, as the member's session starts with the end of it.
Versions: v1 throttle; v3 static members; v4 flexible.    Not done: -
"""

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_group
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.coordinator.requests import check_group_id

if TYPE_CHECKING:
    from sparkraft.server.broker.services import BrokerServices


def handle(broker: "BrokerServices", _: RequestContext, request: HeartbeatRequest) -> Any:
    """Let the group's shard decide."""
    check_group_id(request.group_id)
    try:
        shard = broker.groups.shard_of(request.group_id)
    except KafkaError as error:
        if error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return HeartbeatResponse()
        raise
    return shard.ask(lambda core, now: core.handle_heartbeat(request, now))


API = Api(
    key=ApiKey.HEARTBEAT,
    handle=handle,
    authorize=(on_group(AclOperation.READ),),
)
