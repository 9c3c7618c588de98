"""Leaders: respond to Fetch and FetchSnapshot, append, advance the high watermark.

Behaviour:
    * A Fetch in an older epoch: FENCED_LEADER_EPOCH; in a newer one: UNKNOWN_LEADER_EPOCH; at a
      replica that does not lead: NOT_LEADER_OR_FOLLOWER. Impossible offsets: INVALID_REQUEST.
    * If the fetcher's log diverges, the response names the end of its last epoch in our log. If its
      offset is below our log start, or its log is empty, the response names the latest snapshot.
    * A Fetch without news is parked; it acknowledges everything below its offset immediately.
"""

from dataclasses import replace

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import LeaderEpoch, Millis, Offset
from sparkraft.raft import reconfiguration
from sparkraft.raft.events import (
    BOOTSTRAP_SNAPSHOT,
    Append,
    Appended,
    Description,
    EpochAndOffset,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LogBatch,
    LogRange,
    Refusal,
)
from sparkraft.raft.replica import CHECK_QUORUM_FACTOR, ParkedFetch, Replica
from sparkraft.raft.states import Leader
from sparkraft.raft.voters import ReplicaKey
from sparkraft.raft.votes import wrong_cluster

PARKED_MAX = 20_000
"""Limit of parked Fetches, twice that of observers; beyond it responses are empty."""

MAX_WAIT_MS = 60_000
"""Upper bound of the wait of a Fetch."""


def check_leader_request(replica: Replica, epoch: LeaderEpoch) -> ErrorCode:
    """The error for a request that only the leader of `epoch` may serve; NONE if that is us."""
    if epoch < replica.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > replica.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if not isinstance(replica.state, Leader):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if replica.shutting_down and replica.state.resign_reason is None:
        return ErrorCode.BROKER_NOT_AVAILABLE
    return ErrorCode.NONE


# ---- Fetch


def on_fetch(replica: Replica, request_id: int, request: FetchRequest, now: Millis) -> None:
    """Respond to a Fetch, or park it."""
    if wrong_cluster(replica, request.cluster_id):
        return replica.respond(request_id, _empty(replica, ErrorCode.INCONSISTENT_CLUSTER_ID))
    error = _check_fetch(replica, request)
    if error is not ErrorCode.NONE:
        return replica.respond(request_id, _empty(replica, error))
    response = _build(replica, request)
    if response.diverging is None and response.snapshot is None:
        _acknowledge(replica, request, now)
        response = _build(replica, request)
    if _is_news(request, response) or request.max_wait_ms == 0 or _is_full(replica):
        return replica.respond(request_id, response)
    deadline = Millis(now + min(request.max_wait_ms, MAX_WAIT_MS))
    replica.parked[request_id] = ParkedFetch(request=request, deadline=deadline)
    return None


def _is_full(replica: Replica) -> bool:
    return len(replica.parked) >= PARKED_MAX


def _check_fetch(replica: Replica, request: FetchRequest) -> ErrorCode:
    invalid = (
        request.max_wait_ms < 0
        or request.fetch_offset < 0
        or request.last_fetched_epoch < 0
        or request.last_fetched_epoch > request.epoch
        or (request.replica.id == replica.local.id and request.replica.id >= 0)
    )
    if invalid:
        return ErrorCode.INVALID_REQUEST
    return check_leader_request(replica, request.epoch)


def _acknowledge(replica: Replica, request: FetchRequest, now: Millis) -> None:
    progress = replica.progress
    assert progress is not None
    moved = progress.on_fetch(request.replica, request.fetch_offset, replica.log.end, now)
    on_voter_alive(replica, request.replica, now)
    if moved:
        on_high_watermark(replica)


def on_voter_alive(replica: Replica, key: ReplicaKey, now: Millis) -> None:
    """Check-quorum: restart its timeout once a majority has fetched."""
    state, progress = replica.state, replica.progress
    if isinstance(state, Leader) and progress is not None and progress.on_alive(key):
        wait = int(replica.config.fetch_timeout_ms * CHECK_QUORUM_FACTOR)
        replica.update(replace(state, check_quorum_deadline=Millis(now + wait)))


def _build(replica: Replica, request: FetchRequest) -> FetchResponse:
    log = replica.log
    response = _empty(replica, ErrorCode.NONE)
    latest = log.latest_snapshot
    if request.fetch_offset == 0 and latest is not None and latest != BOOTSTRAP_SNAPSHOT:
        return replace(response, snapshot=latest)
    if not (log.start == 0 and request.fetch_offset == 0):
        point = EpochAndOffset(request.last_fetched_epoch, request.fetch_offset)
        if latest is not None and _is_before_snapshots(replica, point):
            return replace(response, snapshot=latest)
        end = log.end_of_epoch(point.epoch)
        if end.epoch != point.epoch or end.offset < point.offset:
            return replace(response, diverging=end)
    if request.fetch_offset >= log.end:
        return response
    read = LogRange(start=request.fetch_offset, up_to=log.end, max_bytes=request.max_bytes)
    return replace(response, read=read)


def _is_before_snapshots(replica: Replica, point: EpochAndOffset) -> bool:
    earliest = replica.log.earliest_snapshot
    assert earliest is not None
    start = replica.log.start
    return (
        point.offset < start
        or (point.offset == start and point.epoch != earliest.epoch)
        or point.epoch < earliest.epoch
    )


def _is_news(request: FetchRequest, response: FetchResponse) -> bool:
    return (
        response.error is not ErrorCode.NONE
        or response.read is not None
        or response.diverging is not None
        or response.snapshot is not None
        or request.high_watermark < response.high_watermark
    )


def _empty(replica: Replica, error: ErrorCode) -> FetchResponse:
    known = replica.progress.high_watermark if replica.progress is not None else None
    if error is not ErrorCode.NONE:
        known = None
    return FetchResponse(
        error=error,
        epoch=replica.epoch,
        leader_id=replica.leader_id,
        leader_endpoints=replica.leader_endpoints,
        high_watermark=known if known is not None else Offset(-1),
        log_start_offset=replica.log.start,
    )


def complete_parked_fetches(replica: Replica, now: Millis) -> None:
    """Respond to the parked Fetches that have news or whose wait is over."""
    for request_id, parked in list(replica.parked.items()):
        error = check_leader_request(replica, parked.request.epoch)
        if error is not ErrorCode.NONE:
            response = _empty(replica, error)
        else:
            response = _build(replica, parked.request)
        if _is_news(parked.request, response) or parked.deadline <= now:
            del replica.parked[request_id]
            replica.respond(request_id, response)


# ---- FetchSnapshot


def on_fetch_snapshot(
    replica: Replica, request: FetchSnapshotRequest, now: Millis
) -> FetchSnapshotResponse:
    """Select the chunk to read, or an error."""
    error = _check_fetch_snapshot(replica, request)
    if error is not ErrorCode.NONE:
        return _snapshot_response(replica, error)
    on_voter_alive(replica, request.replica, now)
    return replace(
        _snapshot_response(replica, ErrorCode.NONE),
        snapshot=request.snapshot,
        size=replica.log.snapshots[request.snapshot],
        position=request.position,
        max_bytes=request.max_bytes,
    )


def _check_fetch_snapshot(replica: Replica, request: FetchSnapshotRequest) -> ErrorCode:
    if wrong_cluster(replica, request.cluster_id):
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    error = check_leader_request(replica, request.epoch)
    if error is not ErrorCode.NONE:
        return error
    size = replica.log.snapshots.get(request.snapshot)
    # The zero checkpoint is never replicated: the first leader writes its content to the log.
    if size is None or request.snapshot == BOOTSTRAP_SNAPSHOT:
        return ErrorCode.SNAPSHOT_NOT_FOUND
    if not 0 <= request.position < size:
        return ErrorCode.POSITION_OUT_OF_RANGE
    return ErrorCode.NONE


def _snapshot_response(replica: Replica, error: ErrorCode) -> FetchSnapshotResponse:
    return FetchSnapshotResponse(
        error=error,
        epoch=replica.epoch,
        leader_id=replica.leader_id,
        leader_endpoints=replica.leader_endpoints,
    )


# ---- appends and the high watermark


def on_append(replica: Replica, request_id: int, append: Append) -> None:
    """Append our own records as one batch."""
    state = replica.state
    if (
        not isinstance(state, Leader)
        or append.epoch != state.epoch
        or state.resign_reason is not None
    ):
        detail = f"not the leader of epoch {append.epoch}"
        refusal = Refusal(error=ErrorCode.NOT_CONTROLLER, detail=detail)
        return replica.respond(request_id, refusal)
    base = replica.log.end
    batch = LogBatch(
        base_offset=base,
        last_offset=Offset(base + append.count - 1),
        epoch=state.epoch,
        payload=append.payload,
    )
    replica.append(batch)
    return replica.respond(request_id, Appended(last_offset=batch.last_offset))


def on_local_flush(replica: Replica) -> None:
    """Process an fsync of our own log."""
    progress = replica.progress
    if progress is not None and progress.on_local_flush(replica.log.durable_end):
        on_high_watermark(replica)


def on_high_watermark(replica: Replica) -> None:
    """Process a new high watermark: complete what waited for a commit."""
    assert replica.progress is not None
    assert replica.progress.high_watermark is not None
    replica.log.advance_high_watermark(replica.progress.high_watermark)
    reconfiguration.on_commit(replica)


def describe(replica: Replica, now: Millis) -> Description | None:
    """The content of DescribeQuorum; None if this replica does not lead."""
    progress = replica.progress
    if progress is None or not isinstance(replica.state, Leader):
        return None
    progress.forget_idle_observers(now)
    voters, observers = progress.describe(replica.log.end)
    known = progress.high_watermark
    return Description(
        leader_id=replica.local.id,
        epoch=replica.epoch,
        high_watermark=known if known is not None else Offset(-1),
        voters=tuple(voters),
        observers=tuple(observers),
    )
