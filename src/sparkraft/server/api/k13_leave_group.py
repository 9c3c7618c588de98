"""LeaveGroup: v0-5. Members leave, or an admin tool removes them. (KIP-345, KIP-800)

Behaviour:
    * v0-2 one member, its error at the top; from v3 several, each with its own error.
    * An admin tool identifies a static member by its instance id alone.
    * In a consumer group (KIP-848), members of either protocol.
    * The group rebalances at once, not only after a session timeout.
Versions: v1 throttle; v3 several members; v4 flexible; v5 reason.    Not done: -
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, cast

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import encode_parts
from sparkraft.protocol.messages.k13_leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_group
from sparkraft.server.api.encoded_array import encoded_in_pieces
from sparkraft.server.api.registry import Api, RequestContext, Steps
from sparkraft.server.coordinator.requests import check_group_id

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices

_MEMBERS_FROM = 3


def handle(broker: "BrokerServices", context: RequestContext, request: LeaveGroupRequest) -> Steps:
    """Let the group's shard decide; from v3 it returns the encoded response."""
    check_group_id(request.group_id)
    version = context.api_version
    if version < _MEMBERS_FROM:
        request.members = [MemberIdentity(member_id=request.member_id)]
    runtime = broker.groups.shard_for(request.group_id)
    members: Any
    try:
        left = runtime.execute_write(lambda shard, now: shard.handle_leave_group(request, now))
        response = (yield left) if isinstance(left, Awaitable) else left
        members = response.members
    except KafkaError as error:
        if error.code != ErrorCode.UNKNOWN_MEMBER_ID:
            raise
        response = LeaveGroupResponse()
        members = map(_unknown, request.members)  # The group does not exist.
    if version < _MEMBERS_FROM:
        (only,) = members
        return LeaveGroupResponse(error_code=response.error_code or only.error_code)
    encoded = yield from encoded_in_pieces(LeaveGroupResponse, version, members)
    response.members = cast("Any", encoded)
    return encode_parts(response, version)


def _unknown(one: MemberIdentity) -> MemberResponse:
    return MemberResponse(
        member_id=one.member_id,
        group_instance_id=one.group_instance_id,
        error_code=ErrorCode.UNKNOWN_MEMBER_ID,
    )


API = Api(
    key=ApiKey.LEAVE_GROUP,
    handle=handle,
    authorize=(on_group(AclOperation.READ),),
)
