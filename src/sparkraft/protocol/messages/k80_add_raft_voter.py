"""AddRaftVoter (key 80): v0-1, flexible from v0."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Message, array, boolean, int16, int32, string, uint16, uuid


class Listener(Message):
    """How to reach the node: `AddRaftVoterRequest.listeners`."""

    name: str = string()
    host: str = string()
    port: int = uint16()


class AddRaftVoterRequest(Message, key=80, versions="0-1", flexible="0+"):
    """Adds a voter to a dynamic quorum (KIP-853).

    v1 may answer before the change is committed (KIP-1186).
    """

    cluster_id: str | None = string(nullable=True)
    timeout_ms: int = int32()
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()
    listeners: list[Listener] = array(Listener)
    ack_when_committed: bool = boolean("1+", default=True)


class AddRaftVoterResponse(Message, key=80, versions="0-1", flexible="0+"):
    """An error."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, ignorable=True)
