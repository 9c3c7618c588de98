"""Between Kafka's quorum messages and the core's requests and responses, both ways.

Every message is for one partition, `__cluster_metadata-0`; one for anything else, or for none or
many, is None here and INVALID_REQUEST to its sender, before anything is indexed.

Not here: records and voters in log and snapshots (`records`).
"""

from collections.abc import Callable, Iterable
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
from sparkraft.raft.voters import Endpoint, ReplicaKey
from sparkraft.records.errors import CorruptRecords
from sparkraft.server.raft.records import directory_or_none, parse_batches
from sparkraft.storage.raft_log import METADATA_TOPIC, METADATA_TOPIC_ID

PARTITION = 0
_NAMES_UNTIL_FETCH_VERSION = 12
_PRE_VOTE_VERSION = 2
_TOP_LEVEL = frozenset({ErrorCode.INCONSISTENT_CLUSTER_ID})


def _leader(leader_id: int) -> BrokerId | None:
    return BrokerId(leader_id) if leader_id >= 0 else None


def _endpoints_of(response: Any, leader_id: int, listener: str) -> tuple[Endpoint, ...]:
    """Where the response's `node_endpoints` say the leader is, on the listener we asked on."""
    return tuple(
        Endpoint(listener, node.host, node.port)
        for node in response.node_endpoints
        if node.node_id == leader_id
    )


def _named(listeners: Iterable[Any]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(entry.name, entry.host, entry.port) for entry in listeners)


def _nodes(
    make: Callable[..., Any], leader_id: BrokerId | None, endpoints: tuple[Endpoint, ...], name: str
) -> list[Any]:
    """The leader as `node_endpoints`, by its address on the listener `name`."""
    if leader_id is None:
        return []
    return [
        make(node_id=leader_id, host=e.host, port=e.port) for e in endpoints if e.listener == name
    ]


def _only(topics: list[Any], name_field: str = "topic_name", index: str = "partition_index") -> Any:
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
    data = _only(request.topics)
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
    data = _only(request.topics)
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
    data = _only(request.topics)
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
    data = _only(request.topics, "name", "partition")
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


def write_vote_response(answer: events.VoteResponse, listener: str) -> k52_vote.VoteResponse:
    """Our vote; `listener` is the one the request came in on."""
    if answer.error in _TOP_LEVEL:
        return k52_vote.VoteResponse(error_code=answer.error)
    partition = k52_vote.VoteResponsePartitionData(
        partition_index=PARTITION,
        error_code=answer.error,
        leader_id=-1 if answer.leader_id is None else answer.leader_id,
        leader_epoch=answer.epoch,
        vote_granted=answer.granted,
    )
    topic = k52_vote.VoteResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    nodes = _nodes(k52_vote.NodeEndpoint, answer.leader_id, answer.leader_endpoints, listener)
    return k52_vote.VoteResponse(topics=[topic], node_endpoints=nodes)


def write_epoch_response(answer: events.QuorumEpochResponse, listener: str, module: Any) -> Any:
    """Our answer to Begin- or EndQuorumEpoch, whose messages `module` holds."""
    name = "Begin" if module is k53_begin_quorum_epoch else "End"
    response = getattr(module, f"{name}QuorumEpochResponse")
    if answer.error in _TOP_LEVEL:
        return response(error_code=answer.error)
    partition = getattr(module, f"{name}QuorumEpochResponsePartitionData")(
        partition_index=PARTITION,
        error_code=answer.error,
        leader_id=-1 if answer.leader_id is None else answer.leader_id,
        leader_epoch=answer.epoch,
    )
    topic = getattr(module, f"{name}QuorumEpochResponseTopicData")(
        topic_name=METADATA_TOPIC, partitions=[partition]
    )
    nodes = _nodes(module.NodeEndpoint, answer.leader_id, answer.leader_endpoints, listener)
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
        current_leader=k01_fetch.LeaderIdAndEpoch(
            leader_id=-1 if answer.leader_id is None else answer.leader_id,
            leader_epoch=answer.epoch,
        ),
        records=pieces,
        aborted_transactions=[],
    )
    if answer.diverging is not None:
        partition.diverging_epoch = k01_fetch.EpochEndOffset(
            epoch=answer.diverging.epoch, end_offset=answer.diverging.offset
        )
    if answer.snapshot is not None:
        partition.snapshot_id = k01_fetch.SnapshotId(
            epoch=answer.snapshot.epoch, end_offset=answer.snapshot.offset
        )
    by_name = version <= _NAMES_UNTIL_FETCH_VERSION
    topic = k01_fetch.FetchableTopicResponse(
        topic=METADATA_TOPIC if by_name else "",
        topic_id=Uuid.ZERO if by_name else METADATA_TOPIC_ID,
        partitions=[partition],
    )
    nodes = _nodes(k01_fetch.NodeEndpoint, answer.leader_id, answer.leader_endpoints, listener)
    return k01_fetch.FetchResponse(responses=[topic], node_endpoints=nodes)


def write_fetch_snapshot_response(
    answer: events.FetchSnapshotResponse, listener: str
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
            leader_id=-1 if answer.leader_id is None else answer.leader_id,
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
        k59_fetch_snapshot.NodeEndpoint, answer.leader_id, answer.leader_endpoints, listener
    )
    return k59_fetch_snapshot.FetchSnapshotResponse(topics=[topic], node_endpoints=nodes)


def write_update_voter_response(
    answer: events.QuorumEpochResponse, listener: str
) -> k82_update_raft_voter.UpdateRaftVoterResponse:
    """Our answer to UpdateRaftVoter, with the leader."""
    found = [e for e in answer.leader_endpoints if e.listener == listener]
    leader = k82_update_raft_voter.CurrentLeader(
        leader_id=-1 if answer.leader_id is None else answer.leader_id,
        leader_epoch=answer.epoch,
        host=found[0].host if found else "",
        port=found[0].port if found else 0,
    )
    return k82_update_raft_voter.UpdateRaftVoterResponse(
        error_code=answer.error, current_leader=leader
    )


# ---- our own requests and their answers


class Call(NamedTuple):
    """A request of ours as a message, the least version it goes in, how to read its answer."""

    key: ApiKey
    version_min: int
    message: Any
    read: Callable[[Any], events.PeerResponse]


def write_call(request: events.PeerRequest, listener: str) -> Call:
    """What to send for a request of the core; `listener` is the controllers' one."""
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
            return Call(ApiKey.FETCH, 12, _fetch(request), lambda r: _read_fetch(r, listener))
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
            ask = k18_api_versions.ApiVersionsRequest(
                client_software_name="sparkraft", client_software_version="0.1.0"
            )
            return Call(ApiKey.API_VERSIONS, 3, ask, _read_api_versions)


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
    """A peer's error; a number nobody knows is UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _refused(response: Any, data: Any) -> events.Refusal | None:
    """A top-level error, or an answer that is not about our partition."""
    if response.error_code != 0:
        return events.Refusal(error=error_code(response.error_code))
    if data is None:
        return events.Refusal(error=ErrorCode.INVALID_REQUEST, detail="not about our partition")
    return None


def _read_vote(response: k52_vote.VoteResponse, listener: str) -> events.PeerResponse:
    data = _only(response.topics)
    return _refused(response, data) or events.VoteResponse(
        error=error_code(data.error_code),
        epoch=LeaderEpoch(data.leader_epoch),
        leader_id=_leader(data.leader_id),
        leader_endpoints=_endpoints_of(response, data.leader_id, listener),
        granted=data.vote_granted,
    )


def _read_epoch(response: Any, listener: str) -> events.PeerResponse:
    data = _only(response.topics)
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
    """A diverging epoch or snapshot id; half of one is none."""
    if point.epoch < 0 or point.end_offset < 0:
        return None
    return events.EpochAndOffset(LeaderEpoch(point.epoch), Offset(point.end_offset))


def _read_fetch_snapshot(
    response: k59_fetch_snapshot.FetchSnapshotResponse, listener: str
) -> events.PeerResponse:
    data = _only(response.topics, "name", "index")
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
