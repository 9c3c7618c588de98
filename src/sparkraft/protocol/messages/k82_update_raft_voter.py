"""UpdateRaftVoter (key 82): v0, flexible from v0."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Message, array, int16, int32, string, struct, uint16, uuid


class Listener(Message):
    """How to reach the node: `UpdateRaftVoterRequest.listeners`."""

    name: str = string()
    host: str = string()
    port: int = uint16()


class KRaftVersionFeature(Message):
    """The range of `kraft.version` the voter knows."""

    min_supported_version: int = int16()
    max_supported_version: int = int16()


class UpdateRaftVoterRequest(Message, key=82, versions="0", flexible="0+"):
    """A voter sends its endpoints and versions to the leader after it starts (KIP-853)."""

    cluster_id: str | None = string(nullable=True)
    current_leader_epoch: int = int32()
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()
    listeners: list[Listener] = array(Listener)
    k_raft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature)


class CurrentLeader(Message):
    """The leader of the quorum: `UpdateRaftVoterResponse.current_leader`."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)
    host: str = string()
    port: int = int32()


class UpdateRaftVoterResponse(Message, key=82, versions="0", flexible="0+"):
    """An error, and the current leader."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    current_leader: CurrentLeader = struct(CurrentLeader, tag=0)
