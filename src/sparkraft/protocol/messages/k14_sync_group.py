"""SyncGroup (key 14): v0-5, flexible from v4."""

from sparkraft.protocol.declare import Message, array, blob, int16, int32, string


class SyncGroupRequestAssignment(Message):
    """The assignment for a member: `SyncGroupRequest.assignments`."""

    member_id: str = string()
    assignment: bytes = blob()


class SyncGroupRequest(Message, key=14, versions="0-5", flexible="4+"):
    """Requests the member's assignment in a classic group; the leader sends all assignments.

    v5 repeats the protocol for a check (KIP-559).
    """

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable=True, default=None)
    protocol_type: str | None = string("5+", nullable=True, default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable=True, default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Message, key=14, versions="0-5", flexible="4+"):
    """The bytes that the group's leader assigned to the member."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable=True, default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable=True, default=None, ignorable=True)
    assignment: bytes = blob()
