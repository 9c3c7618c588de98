"""Heartbeat (key 12): v0-4, flexible from v4."""

from sparkraft.protocol.declare import Message, int16, int32, string


class HeartbeatRequest(Message, key=12, versions="0-4", flexible="4+"):
    """Keeps a member's session with a classic group's coordinator alive."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable=True, default=None)


class HeartbeatResponse(Message, key=12, versions="0-4", flexible="4+"):
    """Success, or that the member must rejoin."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
