"""DescribeGroups (key 15): v0-6, flexible from v5."""

from sparkraft.protocol.declare import Message, array, blob, boolean, int16, int32, string, strings


class DescribeGroupsRequest(Message, key=15, versions="0-6", flexible="5+"):
    """Asks for state and members of classic groups.

    v6 reports an unknown group as an error (KIP-1043).
    """

    groups: list[str] = strings()
    include_authorized_operations: bool = boolean("3+")


class DescribedGroupMember(Message):
    """One member: `DescribeGroupsResponse.groups.members`."""

    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable=True, default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = blob()
    member_assignment: bytes = blob()


class DescribedGroup(Message):
    """One group: `DescribeGroupsResponse.groups`."""

    error_code: int = int16()
    error_message: str | None = string("6+", nullable=True, default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-0x80000000)


class DescribeGroupsResponse(Message, key=15, versions="0-6", flexible="5+"):
    """State, protocol and members with their metadata and assignment."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)
