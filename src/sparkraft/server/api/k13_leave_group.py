"""LeaveGroup: v0-5. Members leave, or an admin tool removes them. (KIP-345, KIP-800)

Behaviour:
    * v0-2 one member, its error at the top; from v3 several, each with its own error.
    * An admin tool identifies a static member by its instance id alone.
    * In a consumer group (KIP-848), members of either protocol.
    * The group rebalances at once, not only after a session timeout.
Versions: v1 throttle; v3 several members; v4 flexible; v5 reason.    Not done: -
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k13_leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_group
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.coordinator.requests import check_group_id
from sparkraft.server.coordinator.responses import Response, catch_error, map_response

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices

_MEMBERS_FROM = 3


def handle(
    broker: "BrokerServices", context: RequestContext, request: LeaveGroupRequest
) -> Response[LeaveGroupResponse]:
    """Let the group's shard decide."""
    check_group_id(request.group_id)
    version = context.api_version
    if version < _MEMBERS_FROM:
        request.members = [MemberIdentity(member_id=request.member_id)]
    runtime = broker.groups.shard_for(request.group_id)

    def respond(error: KafkaError) -> LeaveGroupResponse:
        if error.code != ErrorCode.UNKNOWN_MEMBER_ID:
            raise error
        return _all_unknown(request)  # The group does not exist.

    response: Response[LeaveGroupResponse] = catch_error(
        lambda: runtime.execute_write(lambda shard, now: shard.handle_leave_group(request, now)),
        respond,
    )
    return response if version >= _MEMBERS_FROM else map_response(response, _flat)


def _all_unknown(request: LeaveGroupRequest) -> LeaveGroupResponse:
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=one.member_id,
                group_instance_id=one.group_instance_id,
                error_code=ErrorCode.UNKNOWN_MEMBER_ID,
            )
            for one in request.members
        ]
    )


def _flat(response: LeaveGroupResponse) -> LeaveGroupResponse:
    """The response of v0-2: the error of the only member."""
    return LeaveGroupResponse(error_code=response.error_code or response.members[0].error_code)


API = Api(
    key=ApiKey.LEAVE_GROUP,
    handle=handle,
    authorize=(on_group(AclOperation.READ),),
)
