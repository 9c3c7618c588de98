"""Requests from peers and clients of the quorum, and our responses: Kafka's messages, core's form.

Every message is for one partition, `__cluster_metadata-0`. For any other partition, or for none or
several, the readers return None, and the sender gets INVALID_REQUEST.

Not here: our requests to peers (`calls`), records and voters in log and snapshots (`records`).
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

_Response = (
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
"""The version of Vote, BeginQuorumEpoch, EndQuorumEpoch and FetchSnapshot with endpoints."""
_TOP_LEVEL = frozenset({ErrorCode.INCONSISTENT_CLUSTER_ID})


def _named(listeners: Iterable[Any]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(entry.name, entry.host, entry.port) for entry in listeners)


def _nodes(
    make: Callable[..., Any], response: _Response, listener: str, *, include: bool
) -> list[Any]:
    """The leader as `node_endpoints`, with its address on `listener`; empty unless `include`."""
    if response.leader_id is None or not include:
        return []
    return [
        make(node_id=response.leader_id, host=e.host, port=e.port)
        for e in response.leader_endpoints
        if e.listener == listener
    ]


def _leader_id(response: _Response) -> int:
    return -1 if response.leader_id is None else response.leader_id


def _epoch_fields(response: events.VoteResponse | events.QuorumEpochResponse) -> dict[str, Any]:
    """The partition's fields that Vote, BeginQuorumEpoch and EndQuorumEpoch responses share."""
    return {
        "partition_index": PARTITION,
        "error_code": response.error,
        "leader_id": _leader_id(response),
        "leader_epoch": response.epoch,
    }


def only_partition(
    topics: list[Any],
    name_of: Callable[[Any], str] = lambda topic: topic.topic_name,
    index_of: Callable[[Any], int] = lambda partition: partition.partition_index,
) -> Any:
    """The metadata partition, if the message has exactly that one; otherwise None."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    partition = topics[0].partitions[0]
    if name_of(topics[0]) != METADATA_TOPIC or index_of(partition) != PARTITION:
        return None
    return partition


# ---- incoming requests


def read_vote(request: k52_vote.VoteRequest) -> events.VoteRequest | None:
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
    """Version 0 names successors by id only."""
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
    """Topics are named up to version 12, and have ids from 13 on."""
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
    data = only_partition(
        request.topics, lambda topic: topic.name, lambda partition: partition.partition
    )
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


def _voter(request: Any) -> ReplicaKey:
    """The voter that a request to change the voters names."""
    return ReplicaKey(BrokerId(request.voter_id), directory_or_none(request.voter_directory_id))


def read_add_voter(request: k80_add_raft_voter.AddRaftVoterRequest) -> events.AddVoterRequest:
    return events.AddVoterRequest(
        cluster_id=request.cluster_id,
        voter=_voter(request),
        endpoints=_named(request.listeners),
        ack_when_committed=request.ack_when_committed,
    )


def read_remove_voter(
    request: k81_remove_raft_voter.RemoveRaftVoterRequest,
) -> events.RemoveVoterRequest:
    return events.RemoveVoterRequest(
        cluster_id=request.cluster_id,
        voter=_voter(request),
    )


def read_update_voter(
    request: k82_update_raft_voter.UpdateRaftVoterRequest,
) -> events.UpdateVoterRequest:
    return events.UpdateVoterRequest(
        cluster_id=request.cluster_id,
        epoch=LeaderEpoch(request.current_leader_epoch),
        voter=_voter(request),
        endpoints=_named(request.listeners),
        min_kraft_version=request.k_raft_version_feature.min_supported_version,
        max_kraft_version=request.k_raft_version_feature.max_supported_version,
    )


# ---- outgoing responses


def write_vote_response(
    response: events.VoteResponse, listener: str, version: int
) -> k52_vote.VoteResponse:
    """`listener` is the one that the request arrived on."""
    if response.error in _TOP_LEVEL:
        return k52_vote.VoteResponse(error_code=response.error)
    partition = k52_vote.VoteResponsePartitionData(
        **_epoch_fields(response), vote_granted=response.granted
    )
    topic = k52_vote.VoteResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    nodes = _nodes(k52_vote.NodeEndpoint, response, listener, include=version >= _ENDPOINTS_VERSION)
    return k52_vote.VoteResponse(topics=[topic], node_endpoints=nodes)


def write_begin_response(
    response: events.QuorumEpochResponse, listener: str, version: int
) -> k53_begin_quorum_epoch.BeginQuorumEpochResponse:
    """A response to BeginQuorumEpoch."""
    wire = k53_begin_quorum_epoch
    if response.error in _TOP_LEVEL:
        return wire.BeginQuorumEpochResponse(error_code=response.error)
    partition = wire.BeginQuorumEpochResponsePartitionData(**_epoch_fields(response))
    topic = wire.BeginQuorumEpochResponseTopicData(
        topic_name=METADATA_TOPIC, partitions=[partition]
    )
    nodes = _nodes(wire.NodeEndpoint, response, listener, include=version >= _ENDPOINTS_VERSION)
    return wire.BeginQuorumEpochResponse(topics=[topic], node_endpoints=nodes)


def write_end_response(
    response: events.QuorumEpochResponse, listener: str, version: int
) -> k54_end_quorum_epoch.EndQuorumEpochResponse:
    """A response to EndQuorumEpoch."""
    wire = k54_end_quorum_epoch
    if response.error in _TOP_LEVEL:
        return wire.EndQuorumEpochResponse(error_code=response.error)
    partition = wire.EndQuorumEpochResponsePartitionData(**_epoch_fields(response))
    topic = wire.EndQuorumEpochResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    nodes = _nodes(wire.NodeEndpoint, response, listener, include=version >= _ENDPOINTS_VERSION)
    return wire.EndQuorumEpochResponse(topics=[topic], node_endpoints=nodes)


def write_fetch_response(
    response: events.FetchResponse, listener: str, version: int, pieces: list[bytes]
) -> k01_fetch.FetchResponse:
    """`pieces` are the bytes of the records."""
    if response.error in _TOP_LEVEL:
        return k01_fetch.FetchResponse(error_code=response.error)
    partition = k01_fetch.PartitionData(
        partition_index=PARTITION,
        error_code=response.error,
        high_watermark=response.high_watermark,
        log_start_offset=response.log_start_offset,
        records=pieces,
        aborted_transactions=[],
    )
    if version >= _FETCH_QUORUM_VERSION:
        _add_quorum_fields(partition, response)
    by_name = version <= _NAMES_UNTIL_FETCH_VERSION
    topic = k01_fetch.FetchableTopicResponse(
        topic=METADATA_TOPIC if by_name else "",
        topic_id=Uuid.ZERO if by_name else METADATA_TOPIC_ID,
        partitions=[partition],
    )
    nodes = _nodes(
        k01_fetch.NodeEndpoint, response, listener, include=version >= _FETCH_ENDPOINTS_VERSION
    )
    return k01_fetch.FetchResponse(responses=[topic], node_endpoints=nodes)


def _add_quorum_fields(partition: k01_fetch.PartitionData, response: events.FetchResponse) -> None:
    partition.current_leader = k01_fetch.LeaderIdAndEpoch(
        leader_id=_leader_id(response), leader_epoch=response.epoch
    )
    if response.diverging is not None:
        partition.diverging_epoch = k01_fetch.EpochEndOffset(
            epoch=response.diverging.epoch, end_offset=response.diverging.offset
        )
    if response.snapshot is not None:
        partition.snapshot_id = k01_fetch.SnapshotId(
            epoch=response.snapshot.epoch, end_offset=response.snapshot.offset
        )


def write_fetch_snapshot_response(
    response: events.FetchSnapshotResponse, listener: str, version: int
) -> k59_fetch_snapshot.FetchSnapshotResponse:
    """`response.chunk` has the bytes, unless there is an error."""
    if response.error in _TOP_LEVEL:
        return k59_fetch_snapshot.FetchSnapshotResponse(error_code=response.error)
    known = response.snapshot
    partition = k59_fetch_snapshot.FetchSnapshotResponsePartitionSnapshot(
        index=PARTITION,
        error_code=response.error,
        snapshot_id=k59_fetch_snapshot.SnapshotId(
            end_offset=known.offset if known else 0, epoch=known.epoch if known else 0
        ),
        current_leader=k59_fetch_snapshot.LeaderIdAndEpoch(
            leader_id=_leader_id(response),
            leader_epoch=response.epoch,
        ),
        size=response.size,
        position=response.position,
        unaligned_records=response.chunk,
    )
    topic = k59_fetch_snapshot.FetchSnapshotResponseTopicSnapshot(
        name=METADATA_TOPIC, partitions=[partition]
    )
    nodes = _nodes(
        k59_fetch_snapshot.NodeEndpoint, response, listener, include=version >= _ENDPOINTS_VERSION
    )
    return k59_fetch_snapshot.FetchSnapshotResponse(topics=[topic], node_endpoints=nodes)


def write_update_voter_response(
    response: events.QuorumEpochResponse, listener: str
) -> k82_update_raft_voter.UpdateRaftVoterResponse:
    """A response to UpdateRaftVoter, with the leader."""
    found = [e for e in response.leader_endpoints if e.listener == listener]
    leader = k82_update_raft_voter.CurrentLeader(
        leader_id=_leader_id(response),
        leader_epoch=response.epoch,
        host=found[0].host if found else "",
        port=found[0].port if found else 0,
    )
    return k82_update_raft_voter.UpdateRaftVoterResponse(
        error_code=response.error, current_leader=leader
    )
