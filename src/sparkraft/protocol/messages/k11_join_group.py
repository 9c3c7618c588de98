"""JoinGroup (key 11): v0-9, flexible from v6."""

from sparkraft.protocol.declare import Message, array, blob, boolean, int16, int32, string


class JoinGroupRequestProtocol(Message):
    """A protocol and the metadata of the member: `JoinGroupRequest.protocols`."""

    name: str = string()
    metadata: bytes = blob()


class JoinGroupRequest(Message, key=11, versions="0-9", flexible="6+"):
    """Enters or re-enters a classic group.

    v4 requests a member id first (KIP-394); v5 static members (KIP-345); v8 has a reason (KIP-800).
    """

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable=True, default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", nullable=True, default=None, ignorable=True)


class JoinGroupResponseMember(Message):
    """A member and its metadata: `JoinGroupResponse.members`."""

    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable=True, default=None, ignorable=True)
    metadata: bytes = blob()


class JoinGroupResponse(Message, key=11, versions="0-9", flexible="6+"):
    """The generation, the leader, the protocol chosen by vote, and for the leader all members.

    v9 lets a returning static leader skip the assignment (KIP-814).
    """

    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable=True, default=None, ignorable=True)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
