"""LeaveGroup (key 13): v0-5, flexible from v4."""

from sparkraft.protocol.declare import Message, array, int16, int32, string


class MemberIdentity(Message):
    """A member by id or instance id: `LeaveGroupRequest.members`."""

    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable=True, default=None)
    reason: str | None = string("5+", nullable=True, default=None, ignorable=True)


class LeaveGroupRequest(Message, key=13, versions="0-5", flexible="4+"):
    """Takes members out of a classic group: one, or several from v3 (KIP-345).

    v5 has a reason (KIP-800).
    """

    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


class MemberResponse(Message):
    """Result for a member: `LeaveGroupResponse.members`."""

    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable=True)
    error_code: int = int16("3+")


class LeaveGroupResponse(Message, key=13, versions="0-5", flexible="4+"):
    """An error code for the request and, from v3, for each member."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+")
