"""Control records of logs and snapshots, and what `quorum-state` holds (KIP-595, KIP-630, KIP-853).

A control record has a `ControlRecordTypeSchema` as key, preceded by its version as an int16, and
one of these as value.
"""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import (
    Message,
    array,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
    uuid,
)


class LeaderChangeMessageVoter(Message):
    """One voter: `LeaderChangeMessage.voters`."""

    voter_id: int = int32()
    voter_directory_id: Uuid = uuid("1+")


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    """The first record of a KRaft leader epoch: the leader and its voters (KIP-595)."""

    version: int = int16()
    leader_id: int = int32()
    voters: list[LeaderChangeMessageVoter] = array(LeaderChangeMessageVoter)
    granting_voters: list[LeaderChangeMessageVoter] = array(LeaderChangeMessageVoter)


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    """The first record of a snapshot: when its last record was written (KIP-630)."""

    version: int = int16()
    last_contained_log_timestamp: int = int64()


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    """The last record of a snapshot; without it the snapshot is incomplete (KIP-630)."""

    version: int = int16()


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    """The finalized `kraft.version`; 1 means a dynamic quorum (KIP-853)."""

    version: int = int16()
    k_raft_version: int = int16()


class Endpoint(Message):
    """A host and a port: `VotersRecord.voters.endpoints`."""

    name: str = string()
    host: str = string()
    port: int = uint16()


class KRaftVersionFeature(Message):
    """The range of `kraft.version` the voter knows."""

    min_supported_version: int = int16()
    max_supported_version: int = int16()


class VotersRecordVoter(Message):
    """One voter: `VotersRecord.voters`."""

    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()
    endpoints: list[Endpoint] = array(Endpoint)
    k_raft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature)


class VotersRecord(Message, versions="0", flexible="0+"):
    """The voters of a dynamic quorum from here on (KIP-853)."""

    version: int = int16()
    voters: list[VotersRecordVoter] = array(VotersRecordVoter)


class QuorumStateDataVoter(Message):
    """One voter: `QuorumStateData.current_voters`."""

    voter_id: int = int32("0")


class QuorumStateData(Message, versions="0-1", flexible="0+"):
    """The file `quorum-state`: epoch, leader and vote that survive a restart (KIP-595).

    v1 the directory of the vote (KIP-853).
    """

    cluster_id: str = string("0")
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)
    voted_id: int = int32(default=-1)
    voted_directory_id: Uuid = uuid("1+")
    applied_offset: int = int64("0")
    current_voters: list[QuorumStateDataVoter] | None = array(
        QuorumStateDataVoter, "0", nullable=True
    )


class ControlRecordTypeSchema(Message, versions="0"):
    """Key of a control record.

    0 abort, 1 commit, 2 leader change, 3 and 4 snapshot, 5 and 6 quorum.
    """

    type: int = int16()


class EndTxnMarker(Message, versions="0"):
    """Value of a commit or abort marker: the epoch of the coordinator that sent it (KIP-98)."""

    coordinator_epoch: int = int32()
