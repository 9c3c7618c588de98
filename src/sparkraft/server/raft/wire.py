"""What peers and clients ask of the quorum, and our answers: messages and the core's terms.

Every message is for one partition, `__cluster_metadata-0`; one for anything else, or for none or
many, is None here and INVALID_REQUEST to its sender, before anything is indexed.

Not here: what we ask our peers (`calls`), records and voters in log and snapshots (`records`).
"""

from collections.abc import Callable, Iterable
from typing import Any

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import BrokerId, LeaderEpoch, Offset, Uuid
from sparkraft.protocol.messages import (
    k01_fetch,
    k52_vote,
    k53_begin_quorum_epoch,
    k54_end_quorum_epoch,
    k59_fetch_snapshot,
    k80_add_raft_voter,
    k81_remove_raft_voter,
    k82_update_raft_voter,
)
from sparkraft.raft import events
from sparkraft.raft.voters import Endpoint, ReplicaKey
from sparkraft.server.raft.records import directory_or_none
from sparkraft.storage.names import METADATA_TOPIC
from sparkraft.storage.raft_log import METADATA_TOPIC_ID

_Answer = (
    events.VoteResponse
    | events.QuorumEpochResponse
    | events.FetchResponse
    | events.FetchSnapshotResponse
)

PARTITION = 0
_NAMES_UNTIL_FETCH_VERSION = 12
_FETCH_QUORUM_VERSION = 12
_FETCH_ENDPOINTS_VERSION = 16
_ENDPOINTS_VERSION = 1
"""Of Vote, Begin- and EndQuorumEpoch and FetchSnapshot."""
_TOP_LEVEL = frozenset({ErrorCode.INCONSISTENT_CLUSTER_ID})


def _named(listeners: Iterable[Any]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(entry.name, entry.host, entry.port) for entry in listeners)


def _nodes(make: Callable[..., Any], answer: _Answer, listener: str, *, told: bool) -> list[Any]:
    """The leader as `node_endpoints`, by its address on `listener`, if they are told."""
    if answer.leader_id is None or not told:
        return []
    return [
        make(node_id=answer.leader_id, host=e.host, port=e.port)
        for e in answer.leader_endpoints
        if e.listener == listener
    ]


def _leader_id(answer: _Answer) -> int:
    return -1 if answer.leader_id is None else answer.leader_id


def only_partition(
    topics: list[Any], name_field: str = "topic_name", index: str = "partition_index"
) -> Any:
    """The one partition there must be; None for any other shape."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    partition = topics[0].partitions[0]
    if getattr(topics[0], name_field) != METADATA_TOPIC or getattr(partition, index) != PARTITION:
        return None
    return partition


# ---- requests that come in


def read_vote(request: k52_vote.VoteRequest) -> events.VoteRequest | None:
    """A candidate asks."""
    data = only_partition(request.topics)
    if data is None:
        return None
    voter = None
    if request.voter_id >= 0:
        voter = ReplicaKey(BrokerId(request.voter_id), directory_or_none(data.voter_directory_id))
    return events.VoteRequest(
        cluster_id=request.cluster_id,
        voter=voter,
        candidate=ReplicaKey(
            BrokerId(data.replica_id), directory_or_none(data.replica_directory_id)
        ),
        epoch=LeaderEpoch(data.replica_epoch),
        last_epoch=LeaderEpoch(data.last_offset_epoch),
        last_offset=Offset(data.last_offset),
        pre_vote=data.pre_vote,
    )


def read_begin(
    request: k53_begin_quorum_epoch.BeginQuorumEpochRequest,
) -> events.BeginQuorumEpochRequest | None:
    """A leader makes itself known."""
    data = only_partition(request.topics)
    if data is None:
        return None
    voter = None
    if request.voter_id >= 0:
        voter = ReplicaKey(BrokerId(request.voter_id), directory_or_none(data.voter_directory_id))
    return events.BeginQuorumEpochRequest(
        cluster_id=request.cluster_id,
        voter=voter,
        leader_id=BrokerId(data.leader_id),
        epoch=LeaderEpoch(data.leader_epoch),
        leader_endpoints=_named(request.leader_endpoints),
    )


def read_end(
    request: k54_end_quorum_epoch.EndQuorumEpochRequest,
) -> events.EndQuorumEpochRequest | None:
    """A leader resigned; version 0 names successors by id only."""
    data = only_partition(request.topics)
    if data is None:
        return None
    successors = [
        ReplicaKey(BrokerId(info.candidate_id), directory_or_none(info.candidate_directory_id))
        for info in data.preferred_candidates
    ] or [ReplicaKey(BrokerId(node_id)) for node_id in data.preferred_successors]
    return events.EndQuorumEpochRequest(
        cluster_id=request.cluster_id,
        leader_id=BrokerId(data.leader_id),
        epoch=LeaderEpoch(data.leader_epoch),
        preferred_successors=tuple(successors),
        leader_endpoints=_named(request.leader_endpoints),
    )


def read_fetch(request: k01_fetch.FetchRequest, version: int) -> events.FetchRequest | None:
    """A replica fetches; by name up to version 12, by id from 13 on."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    topic, data = request.topics[0], request.topics[0].partitions[0]
    by_name = version <= _NAMES_UNTIL_FETCH_VERSION
    ours = topic.topic == METADATA_TOPIC if by_name else topic.topic_id == METADATA_TOPIC_ID
    if not ours or data.partition != PARTITION:
        return None
    replica_id = max(request.replica_id, request.replica_state.replica_id)
    return events.FetchRequest(
        cluster_id=request.cluster_id,
        replica=ReplicaKey(BrokerId(replica_id), directory_or_none(data.replica_directory_id)),
        epoch=LeaderEpoch(data.current_leader_epoch),
        fetch_offset=Offset(data.fetch_offset),
        last_fetched_epoch=LeaderEpoch(data.last_fetched_epoch),
        high_watermark=Offset(data.high_watermark),
        max_wait_ms=request.max_wait_ms,
        max_bytes=max(0, request.max_bytes),
    )


def read_fetch_snapshot(
    request: k59_fetch_snapshot.FetchSnapshotRequest,
) -> events.FetchSnapshotRequest | None:
    """A replica fetches a piece of a snapshot."""
    data = only_partition(request.topics, "name", "partition")
    if data is None:
        return None
    return events.FetchSnapshotRequest(
        cluster_id=request.cluster_id,
        replica=ReplicaKey(
            BrokerId(request.replica_id), directory_or_none(data.replica_directory_id)
        ),
        epoch=LeaderEpoch(data.current_leader_epoch),
        snapshot=events.EpochAndOffset(
            LeaderEpoch(data.snapshot_id.epoch), Offset(data.snapshot_id.end_offset)
        ),
        position=data.position,
        max_bytes=max(0, request.max_bytes),
    )


def read_add_voter(request: k80_add_raft_voter.AddRaftVoterRequest) -> events.AddVoterRequest:
    """Someone is to join the voters."""
    return events.AddVoterRequest(
        cluster_id=request.cluster_id,
        voter=ReplicaKey(BrokerId(request.voter_id), directory_or_none(request.voter_directory_id)),
        endpoints=_named(request.listeners),
        ack_when_committed=request.ack_when_committed,
    )


def read_remove_voter(
    request: k81_remove_raft_voter.RemoveRaftVoterRequest,
) -> events.RemoveVoterRequest:
    """Someone is to leave the voters."""
    return events.RemoveVoterRequest(
        cluster_id=request.cluster_id,
        voter=ReplicaKey(BrokerId(request.voter_id), directory_or_none(request.voter_directory_id)),
    )


def read_update_voter(
    request: k82_update_raft_voter.UpdateRaftVoterRequest,
) -> events.UpdateVoterRequest:
    """A voter tells where it is."""
    return events.UpdateVoterRequest(
        cluster_id=request.cluster_id,
        epoch=LeaderEpoch(request.current_leader_epoch),
        voter=ReplicaKey(BrokerId(request.voter_id), directory_or_none(request.voter_directory_id)),
        endpoints=_named(request.listeners),
        min_kraft_version=request.k_raft_version_feature.min_supported_version,
        max_kraft_version=request.k_raft_version_feature.max_supported_version,
    )


# ---- answers that go out


def write_vote_response(
    answer: events.VoteResponse, listener: str, version: int
) -> k52_vote.VoteResponse:
    """Our vote; `listener` is the one the request came in on."""
    if answer.error in _TOP_LEVEL:
        return k52_vote.VoteResponse(error_code=answer.error)
    partition = k52_vote.VoteResponsePartitionData(
        partition_index=PARTITION,
        error_code=answer.error,
        leader_id=_leader_id(answer),
        leader_epoch=answer.epoch,
        vote_granted=answer.granted,
    )
    topic = k52_vote.VoteResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    nodes = _nodes(k52_vote.NodeEndpoint, answer, listener, told=version >= _ENDPOINTS_VERSION)
    return k52_vote.VoteResponse(topics=[topic], node_endpoints=nodes)


def write_epoch_response(
    answer: events.QuorumEpochResponse, listener: str, version: int, module: Any
) -> Any:
    """Our answer to Begin- or EndQuorumEpoch, whose messages `module` holds."""
    name = "Begin" if module is k53_begin_quorum_epoch else "End"
    response = getattr(module, f"{name}QuorumEpochResponse")
    if answer.error in _TOP_LEVEL:
        return response(error_code=answer.error)
    partition = getattr(module, f"{name}QuorumEpochResponsePartitionData")(
        partition_index=PARTITION,
        error_code=answer.error,
        leader_id=_leader_id(answer),
        leader_epoch=answer.epoch,
    )
    topic = getattr(module, f"{name}QuorumEpochResponseTopicData")(
        topic_name=METADATA_TOPIC, partitions=[partition]
    )
    nodes = _nodes(module.NodeEndpoint, answer, listener, told=version >= _ENDPOINTS_VERSION)
    return response(topics=[topic], node_endpoints=nodes)


def write_fetch_response(
    answer: events.FetchResponse, listener: str, version: int, pieces: list[bytes]
) -> k01_fetch.FetchResponse:
    """Records as `pieces`, or what else the core has to say."""
    if answer.error in _TOP_LEVEL:
        return k01_fetch.FetchResponse(error_code=answer.error)
    partition = k01_fetch.PartitionData(
        partition_index=PARTITION,
        error_code=answer.error,
        high_watermark=answer.high_watermark,
        log_start_offset=answer.log_start_offset,
        records=pieces,
        aborted_transactions=[],
    )
    if version >= _FETCH_QUORUM_VERSION:
        _tell_quorum(partition, answer)
    by_name = version <= _NAMES_UNTIL_FETCH_VERSION
    topic = k01_fetch.FetchableTopicResponse(
        topic=METADATA_TOPIC if by_name else "",
        topic_id=Uuid.ZERO if by_name else METADATA_TOPIC_ID,
        partitions=[partition],
    )
    nodes = _nodes(
        k01_fetch.NodeEndpoint, answer, listener, told=version >= _FETCH_ENDPOINTS_VERSION
    )
    return k01_fetch.FetchResponse(responses=[topic], node_endpoints=nodes)


def _tell_quorum(partition: k01_fetch.PartitionData, answer: events.FetchResponse) -> None:
    partition.current_leader = k01_fetch.LeaderIdAndEpoch(
        leader_id=_leader_id(answer), leader_epoch=answer.epoch
    )
    if answer.diverging is not None:
        partition.diverging_epoch = k01_fetch.EpochEndOffset(
            epoch=answer.diverging.epoch, end_offset=answer.diverging.offset
        )
    if answer.snapshot is not None:
        partition.snapshot_id = k01_fetch.SnapshotId(
            epoch=answer.snapshot.epoch, end_offset=answer.snapshot.offset
        )


def write_fetch_snapshot_response(
    answer: events.FetchSnapshotResponse, listener: str, version: int
) -> k59_fetch_snapshot.FetchSnapshotResponse:
    """A piece of a snapshot in `answer.chunk`, or an error."""
    if answer.error in _TOP_LEVEL:
        return k59_fetch_snapshot.FetchSnapshotResponse(error_code=answer.error)
    known = answer.snapshot
    partition = k59_fetch_snapshot.FetchSnapshotResponsePartitionSnapshot(
        index=PARTITION,
        error_code=answer.error,
        snapshot_id=k59_fetch_snapshot.SnapshotId(
            end_offset=known.offset if known else 0, epoch=known.epoch if known else 0
        ),
        current_leader=k59_fetch_snapshot.LeaderIdAndEpoch(
            leader_id=_leader_id(answer),
            leader_epoch=answer.epoch,
        ),
        size=answer.size,
        position=answer.position,
        unaligned_records=answer.chunk,
    )
    topic = k59_fetch_snapshot.FetchSnapshotResponseTopicSnapshot(
        name=METADATA_TOPIC, partitions=[partition]
    )
    nodes = _nodes(
        k59_fetch_snapshot.NodeEndpoint, answer, listener, told=version >= _ENDPOINTS_VERSION
    )
    return k59_fetch_snapshot.FetchSnapshotResponse(topics=[topic], node_endpoints=nodes)


def write_update_voter_response(
    answer: events.QuorumEpochResponse, listener: str
) -> k82_update_raft_voter.UpdateRaftVoterResponse:
    """Our answer to UpdateRaftVoter, with the leader."""
    found = [e for e in answer.leader_endpoints if e.listener == listener]
    leader = k82_update_raft_voter.CurrentLeader(
        leader_id=_leader_id(answer),
        leader_epoch=answer.epoch,
        host=found[0].host if found else "",
        port=found[0].port if found else 0,
    )
    return k82_update_raft_voter.UpdateRaftVoterResponse(
        error_code=answer.error, current_leader=leader
    )
