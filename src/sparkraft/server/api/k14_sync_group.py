"""SyncGroup: v0-5. The leader sends the assignment, every member gets its part. (KIP-345, KIP-559)

Behaviour:
    * Parked until the leader's assignment is committed; not parked if the group is stable.
    * A rebalance has started: REBALANCE_IN_PROGRESS; an older generation: ILLEGAL_GENERATION.
    * Members that do not send it within the rebalance timeout are removed from the group.
    * From v5 protocol type and name are required and must match the group's:
      INCONSISTENT_GROUP_PROTOCOL.
Versions: v1 throttle; v3 static members; v4 flexible; v5 protocol type and name.    Not done: -
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Millis
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_group
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.coordinator.requests import check_group_id
from sparkraft.server.coordinator.responses import Response

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices

_PROTOCOL_FROM = 5


def handle(
    broker: "BrokerServices", context: RequestContext, request: SyncGroupRequest
) -> Response[SyncGroupResponse]:
    """Let the group's shard decide; the response waits for the leader's assignment."""
    if context.api_version >= _PROTOCOL_FROM and (
        request.protocol_type is None or request.protocol_name is None
    ):
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "protocol type and name are required"
        )
    check_group_id(request.group_id)
    size = sum(len(one.assignment) for one in request.assignments)
    broker.groups.member_memory.admit(size, Millis(context.received_ms))
    return broker.groups.shard_for(request.group_id).execute_parked(
        SyncGroupResponse,
        lambda shard, reply_to, now: shard.handle_sync_group(request, reply_to, now),
    )


API = Api(
    key=ApiKey.SYNC_GROUP,
    handle=handle,
    authorize=(on_group(AclOperation.READ),),
)
