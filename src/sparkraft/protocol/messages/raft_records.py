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
    """In `LeaderChangeMessage.voters`."""

    voter_id: int = int32()
    voter_directory_id: Uuid = uuid("1+")


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    """The record LeaderChangeMessage."""

    version: int = int16()
    leader_id: int = int32()
    voters: list[LeaderChangeMessageVoter] = array(LeaderChangeMessageVoter)
    granting_voters: list[LeaderChangeMessageVoter] = array(LeaderChangeMessageVoter)


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    """The record SnapshotHeaderRecord."""

    version: int = int16()
    last_contained_log_timestamp: int = int64()


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    """The record SnapshotFooterRecord."""

    version: int = int16()


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    """The record KRaftVersionRecord."""

    version: int = int16()
    k_raft_version: int = int16()


class Endpoint(Message):
    """In `VotersRecord.voters.endpoints`."""

    name: str = string()
    host: str = string()
    port: int = uint16()


class KRaftVersionFeature(Message):
    """In `VotersRecord.voters.k_raft_version_feature`."""

    min_supported_version: int = int16()
    max_supported_version: int = int16()


class VotersRecordVoter(Message):
    """In `VotersRecord.voters`."""

    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()
    endpoints: list[Endpoint] = array(Endpoint)
    k_raft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature)


class VotersRecord(Message, versions="0", flexible="0+"):
    """The record VotersRecord."""

    version: int = int16()
    voters: list[VotersRecordVoter] = array(VotersRecordVoter)


class QuorumStateDataVoter(Message):
    """In `QuorumStateData.current_voters`."""

    voter_id: int = int32("0")


class QuorumStateData(Message, versions="0-1", flexible="0+"):
    """The record QuorumStateData."""

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
    """The record ControlRecordTypeSchema."""

    type: int = int16()


class EndTxnMarker(Message, versions="0"):
    """The record EndTxnMarker."""

    coordinator_epoch: int = int32()
