"""RemoveRaftVoter (key 81): v0, flexible from v0."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Message, int16, int32, string, uuid


class RemoveRaftVoterRequest(Message, key=81, versions="0", flexible="0+"):
    """Removes a voter from a dynamic quorum (KIP-853)."""

    cluster_id: str | None = string(nullable=True)
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()


class RemoveRaftVoterResponse(Message, key=81, versions="0", flexible="0+"):
    """An error."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, ignorable=True)
