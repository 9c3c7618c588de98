"""Our requests to peers as Kafka's messages, and their responses in the core's form.

Not here: requests from peers (`wire`), connections (`peers`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import BrokerId, LeaderEpoch, Offset, Uuid
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import (
    k01_fetch,
    k18_api_versions,
    k52_vote,
    k53_begin_quorum_epoch,
    k54_end_quorum_epoch,
    k59_fetch_snapshot,
    k80_add_raft_voter,
    k81_remove_raft_voter,
    k82_update_raft_voter,
)
from sparkraft.raft import events
from sparkraft.raft.voters import Endpoint
from sparkraft.records.errors import CorruptRecords
from sparkraft.server.raft.records import parse_batches
from sparkraft.server.raft.wire import PARTITION, only_partition
from sparkraft.storage.names import METADATA_TOPIC
from sparkraft.storage.raft_log import METADATA_TOPIC_ID

_FETCH_VERSION_MIN = 12
_PRE_VOTE_VERSION = 2


def _leader(leader_id: int) -> BrokerId | None:
    return BrokerId(leader_id) if leader_id >= 0 else None


def _endpoints_of(response: Any, leader_id: int, listener: str) -> tuple[Endpoint, ...]:
    """The leader's endpoints in the response's `node_endpoints`, on the listener of the request."""
    return tuple(
        Endpoint(listener, node.host, node.port)
        for node in response.node_endpoints
        if node.node_id == leader_id
    )


class Call(NamedTuple):
    """A request as a message, its minimum version, and the decoder of its response."""

    key: ApiKey
    version_min: int
    message: Any
    read: Callable[[Any], events.PeerResponse]


def write_call(request: events.PeerRequest, listener: str) -> Call:
    """The message for a request of the core; `listener` is the controller listener."""
    match request:
        case events.VoteRequest():
            minimum = _PRE_VOTE_VERSION if request.pre_vote else 0
            return Call(ApiKey.VOTE, minimum, _vote(request), lambda r: _read_vote(r, listener))
        case events.BeginQuorumEpochRequest():
            message = _begin(request)
            return Call(ApiKey.BEGIN_QUORUM_EPOCH, 0, message, lambda r: _read_epoch(r, listener))
        case events.EndQuorumEpochRequest():
            return Call(
                ApiKey.END_QUORUM_EPOCH, 0, _end(request), lambda r: _read_epoch(r, listener)
            )
        case events.FetchRequest():
            return Call(
                ApiKey.FETCH,
                _FETCH_VERSION_MIN,
                _fetch(request),
                lambda r: _read_fetch(r, listener),
            )
        case events.FetchSnapshotRequest():
            message_ = _fetch_snapshot(request)
            return Call(
                ApiKey.FETCH_SNAPSHOT, 0, message_, lambda r: _read_fetch_snapshot(r, listener)
            )
        case _:
            return _write_voter_call(request, listener)


def _write_voter_call(request: events.PeerRequest, listener: str) -> Call:
    match request:
        case events.AddVoterRequest():
            return Call(ApiKey.ADD_RAFT_VOTER, 1, _add_voter(request), _read_refusal)
        case events.RemoveVoterRequest():
            return Call(ApiKey.REMOVE_RAFT_VOTER, 0, _remove_voter(request), _read_refusal)
        case events.UpdateVoterRequest():
            message = _update_voter(request)
            return Call(
                ApiKey.UPDATE_RAFT_VOTER, 0, message, lambda r: _read_update_voter(r, listener)
            )
        case _:
            versions = k18_api_versions.ApiVersionsRequest(
                client_software_name="sparkraft", client_software_version="0.1.0"
            )
            return Call(ApiKey.API_VERSIONS, 3, versions, _read_api_versions)


def _vote(request: events.VoteRequest) -> k52_vote.VoteRequest:
    voter = request.voter
    data = k52_vote.VoteRequestPartitionData(
        partition_index=PARTITION,
        replica_epoch=request.epoch,
        replica_id=request.candidate.id,
        replica_directory_id=request.candidate.directory_id or Uuid.ZERO,
        voter_directory_id=(voter.directory_id if voter else None) or Uuid.ZERO,
        last_offset_epoch=request.last_epoch,
        last_offset=request.last_offset,
        pre_vote=request.pre_vote,
    )
    topic = k52_vote.VoteRequestTopicData(topic_name=METADATA_TOPIC, partitions=[data])
    return k52_vote.VoteRequest(
        cluster_id=request.cluster_id, voter_id=voter.id if voter else -1, topics=[topic]
    )


def _begin(
    request: events.BeginQuorumEpochRequest,
) -> k53_begin_quorum_epoch.BeginQuorumEpochRequest:
    voter, wire = request.voter, k53_begin_quorum_epoch
    data = wire.BeginQuorumEpochRequestPartitionData(
        partition_index=PARTITION,
        voter_directory_id=(voter.directory_id if voter else None) or Uuid.ZERO,
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
    )
    topic = wire.BeginQuorumEpochRequestTopicData(topic_name=METADATA_TOPIC, partitions=[data])
    return wire.BeginQuorumEpochRequest(
        cluster_id=request.cluster_id,
        voter_id=voter.id if voter else -1,
        topics=[topic],
        leader_endpoints=[
            wire.LeaderEndpoint(name=e.listener, host=e.host, port=e.port)
            for e in request.leader_endpoints
        ],
    )


def _end(request: events.EndQuorumEpochRequest) -> k54_end_quorum_epoch.EndQuorumEpochRequest:
    wire = k54_end_quorum_epoch
    data = wire.EndQuorumEpochRequestPartitionData(
        partition_index=PARTITION,
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
        preferred_successors=[int(key.id) for key in request.preferred_successors],
        preferred_candidates=[
            wire.ReplicaInfo(
                candidate_id=key.id, candidate_directory_id=key.directory_id or Uuid.ZERO
            )
            for key in request.preferred_successors
        ],
    )
    topic = wire.EndQuorumEpochRequestTopicData(topic_name=METADATA_TOPIC, partitions=[data])
    return wire.EndQuorumEpochRequest(
        cluster_id=request.cluster_id,
        topics=[topic],
        leader_endpoints=[
            wire.LeaderEndpoint(name=e.listener, host=e.host, port=e.port)
            for e in request.leader_endpoints
        ],
    )


def _fetch(request: events.FetchRequest) -> k01_fetch.FetchRequest:
    data = k01_fetch.FetchPartition(
        partition=PARTITION,
        current_leader_epoch=request.epoch,
        fetch_offset=request.fetch_offset,
        last_fetched_epoch=request.last_fetched_epoch,
        replica_directory_id=request.replica.directory_id or Uuid.ZERO,
        high_watermark=request.high_watermark,
        partition_max_bytes=request.max_bytes,
    )
    topic = k01_fetch.FetchTopic(
        topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[data]
    )
    return k01_fetch.FetchRequest(
        cluster_id=request.cluster_id,
        replica_state=k01_fetch.ReplicaState(replica_id=request.replica.id),
        max_wait_ms=request.max_wait_ms,
        max_bytes=request.max_bytes,
        topics=[topic],
    )


def _fetch_snapshot(
    request: events.FetchSnapshotRequest,
) -> k59_fetch_snapshot.FetchSnapshotRequest:
    wire = k59_fetch_snapshot
    data = wire.FetchSnapshotRequestPartitionSnapshot(
        partition=PARTITION,
        current_leader_epoch=request.epoch,
        snapshot_id=wire.SnapshotId(
            end_offset=request.snapshot.offset, epoch=request.snapshot.epoch
        ),
        position=request.position,
        replica_directory_id=request.replica.directory_id or Uuid.ZERO,
    )
    topic = wire.FetchSnapshotRequestTopicSnapshot(name=METADATA_TOPIC, partitions=[data])
    return wire.FetchSnapshotRequest(
        cluster_id=request.cluster_id,
        replica_id=request.replica.id,
        max_bytes=request.max_bytes,
        topics=[topic],
    )


def _add_voter(request: events.AddVoterRequest) -> k80_add_raft_voter.AddRaftVoterRequest:
    return k80_add_raft_voter.AddRaftVoterRequest(
        cluster_id=request.cluster_id,
        voter_id=request.voter.id,
        voter_directory_id=request.voter.directory_id or Uuid.ZERO,
        listeners=[
            k80_add_raft_voter.Listener(name=e.listener, host=e.host, port=e.port)
            for e in request.endpoints
        ],
        ack_when_committed=request.ack_when_committed,
    )


def _remove_voter(
    request: events.RemoveVoterRequest,
) -> k81_remove_raft_voter.RemoveRaftVoterRequest:
    return k81_remove_raft_voter.RemoveRaftVoterRequest(
        cluster_id=request.cluster_id,
        voter_id=request.voter.id,
        voter_directory_id=request.voter.directory_id or Uuid.ZERO,
    )


def _update_voter(
    request: events.UpdateVoterRequest,
) -> k82_update_raft_voter.UpdateRaftVoterRequest:
    wire = k82_update_raft_voter
    return wire.UpdateRaftVoterRequest(
        cluster_id=request.cluster_id,
        current_leader_epoch=request.epoch,
        voter_id=request.voter.id,
        voter_directory_id=request.voter.directory_id or Uuid.ZERO,
        listeners=[
            wire.Listener(name=e.listener, host=e.host, port=e.port) for e in request.endpoints
        ],
        k_raft_version_feature=wire.KRaftVersionFeature(
            min_supported_version=request.min_kraft_version,
            max_supported_version=request.max_kraft_version,
        ),
    )


def error_code(number: int) -> ErrorCode:
    """A peer's error code; UNKNOWN_SERVER_ERROR for an unknown number."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _refused(response: Any, data: Any) -> events.Refusal | None:
    """The refusal for a top-level error, or for a response about another partition."""
    if response.error_code != 0:
        return events.Refusal(error=error_code(response.error_code))
    if data is None:
        detail = "the response is for another partition"
        return events.Refusal(error=ErrorCode.INVALID_REQUEST, detail=detail)
    return None


def _read_vote(response: k52_vote.VoteResponse, listener: str) -> events.PeerResponse:
    data = only_partition(response.topics)
    return _refused(response, data) or events.VoteResponse(
        error=error_code(data.error_code),
        epoch=LeaderEpoch(data.leader_epoch),
        leader_id=_leader(data.leader_id),
        leader_endpoints=_endpoints_of(response, data.leader_id, listener),
        granted=data.vote_granted,
    )


def _read_epoch(response: Any, listener: str) -> events.PeerResponse:
    data = only_partition(response.topics)
    return _refused(response, data) or events.QuorumEpochResponse(
        error=error_code(data.error_code),
        epoch=LeaderEpoch(data.leader_epoch),
        leader_id=_leader(data.leader_id),
        leader_endpoints=_endpoints_of(response, data.leader_id, listener),
    )


def _read_fetch(response: k01_fetch.FetchResponse, listener: str) -> events.PeerResponse:
    topics = response.responses
    one = len(topics) == 1 and len(topics[0].partitions) == 1
    ours = one and (topics[0].topic == METADATA_TOPIC or topics[0].topic_id == METADATA_TOPIC_ID)
    data: Any = topics[0].partitions[0] if ours else None
    refusal = _refused(response, data)
    if refusal is not None:
        return refusal
    raw = data.records
    try:
        batches = parse_batches([memoryview(raw)] if raw else [])
    except CorruptRecords as error:
        return events.Refusal(error=ErrorCode.CORRUPT_MESSAGE, detail=error.detail)
    leader_id = data.current_leader.leader_id
    return events.FetchResponse(
        error=error_code(data.error_code),
        epoch=LeaderEpoch(data.current_leader.leader_epoch),
        leader_id=_leader(leader_id),
        leader_endpoints=_endpoints_of(response, leader_id, listener),
        high_watermark=Offset(data.high_watermark),
        log_start_offset=Offset(data.log_start_offset),
        diverging=_point(data.diverging_epoch),
        snapshot=_point(data.snapshot_id),
        batches=batches,
    )


def _point(point: Any) -> events.EpochAndOffset | None:
    """A diverging epoch or snapshot id; None if either part is unset."""
    if point.epoch < 0 or point.end_offset < 0:
        return None
    return events.EpochAndOffset(LeaderEpoch(point.epoch), Offset(point.end_offset))


def _read_fetch_snapshot(
    response: k59_fetch_snapshot.FetchSnapshotResponse, listener: str
) -> events.PeerResponse:
    data = only_partition(response.topics, lambda topic: topic.name, lambda data: data.index)
    refusal = _refused(response, data)
    if refusal is not None:
        return refusal
    error = error_code(data.error_code)
    leader_id = data.current_leader.leader_id
    return events.FetchSnapshotResponse(
        error=error,
        epoch=LeaderEpoch(data.current_leader.leader_epoch),
        leader_id=_leader(leader_id),
        leader_endpoints=_endpoints_of(response, leader_id, listener),
        snapshot=_point(data.snapshot_id) if error is ErrorCode.NONE else None,
        size=data.size,
        position=data.position,
        chunk=data.unaligned_records or b"",
    )


def _read_update_voter(
    response: k82_update_raft_voter.UpdateRaftVoterResponse, listener: str
) -> events.PeerResponse:
    leader = response.current_leader
    endpoints = (Endpoint(listener, leader.host, leader.port),) if leader.host else ()
    return events.QuorumEpochResponse(
        error=error_code(response.error_code),
        epoch=LeaderEpoch(leader.leader_epoch),
        leader_id=_leader(leader.leader_id),
        leader_endpoints=endpoints,
    )


def _read_refusal(response: Any) -> events.PeerResponse:
    detail = response.error_message or ""
    return events.Refusal(error=error_code(response.error_code), detail=detail)


def _read_api_versions(response: k18_api_versions.ApiVersionsResponse) -> events.PeerResponse:
    features = {feature.name: feature for feature in response.supported_features}
    found = features.get("kraft.version")
    return events.ApiVersionsResponse(
        error=error_code(response.error_code),
        min_kraft_version=found.min_version if found else 0,
        max_kraft_version=found.max_version if found else 0,
    )
