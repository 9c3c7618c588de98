"""Voter changes, one at a time, and the upgrade from static to dynamic voters (KIP-853).

Invariants:
    * The next voter set is written only after the last one is committed and the leader has
      committed a record of its own epoch.
    * A leader that is no longer a voter leads until that change is committed, then resigns.
"""

from dataclasses import replace

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import BrokerId, Millis
from sparkraft.raft.events import (
    AddVoterRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    ControlRecord,
    KRaftVersionChange,
    QuorumEpochResponse,
    Refusal,
    RemoveVoterRequest,
    UpdateVoterRequest,
    UpgradeKRaftVersion,
    VotersChange,
)
from sparkraft.raft.replica import PendingVoterChange, Replica
from sparkraft.raft.states import Leader
from sparkraft.raft.voters import Voter, VoterSet, address

_OK = Refusal(error=ErrorCode.NONE)


def _refuse(error: ErrorCode, detail: str) -> Refusal:
    return Refusal(error=error, detail=detail)


def _check_change(replica: Replica, cluster_id: str | None) -> Refusal | None:
    """The reason to refuse any voter change now, if there is one."""
    if cluster_id is not None and cluster_id != replica.config.cluster_id:
        detail = f"cluster id {cluster_id} does not match {replica.config.cluster_id}"
        return _refuse(ErrorCode.INCONSISTENT_CLUSTER_ID, detail)
    state = replica.state
    leads = isinstance(state, Leader) and (state.resign_reason is None or replica.shutting_down)
    if not leads or replica.progress is None:
        return _refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER, "")
    if replica.shutting_down:
        return _refuse(ErrorCode.BROKER_NOT_AVAILABLE, "")
    if replica.pending is not None:
        return _refuse(ErrorCode.REQUEST_TIMED_OUT, "another voter change is in progress")
    if replica.progress.high_watermark is None:
        detail = "the leader has not committed a record of its epoch yet"
        return _refuse(ErrorCode.REQUEST_TIMED_OUT, detail)
    return None


def _check_dynamic(replica: Replica) -> Refusal | None:
    """The reason not to write a voter set to the log now, if there is one."""
    if replica.log.kraft_version == 0:
        detail = "kraft.version is 0, so the voters are those in controller.quorum.voters"
        return _refuse(ErrorCode.UNSUPPORTED_VERSION, detail)
    assert replica.progress is not None
    at, committed = replica.log.voters_offset, replica.progress.high_watermark
    if at is None or committed is None or at >= committed:
        detail = f"the voter set written at {at} is not committed yet"
        return _refuse(ErrorCode.REQUEST_TIMED_OUT, detail)
    return None


def on_add(replica: Replica, request_id: int, request: AddVoterRequest, now: Millis) -> None:
    """Start adding a voter: request its ApiVersions; `on_api_versions` continues."""
    refusal = _check_change(replica, request.cluster_id) or _check_add(replica, request)
    if refusal is not None:
        return replica.respond(request_id, refusal)
    node = replica.node(request.voter.id, request.endpoints)
    assert node is not None
    if replica.connections.ready_at(node.id, now) > now:
        detail = f"a request to voter {request.voter} is already in flight"
        return replica.respond(request_id, _refuse(ErrorCode.REQUEST_TIMED_OUT, detail))
    replica.send(node, ApiVersionsRequest(), now)
    replica.pending = PendingVoterChange(
        request_id=request_id,
        deadline=Millis(now + replica.config.request_timeout_ms),
        added=Voter(key=request.voter, endpoints=request.endpoints),
        ack_when_committed=request.ack_when_committed,
    )
    return None


def _check_add(replica: Replica, request: AddVoterRequest) -> Refusal | None:
    if request.voter.id < 0 or request.voter.directory_id is None:
        return _refuse(ErrorCode.INVALID_REQUEST, "a voter needs an id and a directory id")
    if address(request.endpoints, replica.config.listener) is None:
        detail = f"no endpoint for listener {replica.config.listener}"
        return _refuse(ErrorCode.INVALID_REQUEST, detail)
    refusal = _check_dynamic(replica)
    if refusal is not None:
        return refusal
    if request.voter.id in replica.log.voters.ids:
        return _refuse(ErrorCode.DUPLICATE_VOTER, f"{request.voter.id} is already a voter")
    return None


def on_api_versions(
    replica: Replica, voter_id: BrokerId, response: ApiVersionsResponse, now: Millis
) -> bool:
    """Continue adding a voter: write the new voter set, or refuse."""
    pending = replica.pending
    if pending is None or pending.added is None or pending.last_offset is not None:
        return True
    if pending.added.key.id != voter_id:
        return True
    if response.error is not ErrorCode.NONE:
        detail = f"ApiVersions request to the new voter failed: {response.error.name}"
        complete_change(replica, _refuse(ErrorCode.REQUEST_TIMED_OUT, detail))
        return False
    voter = replace(
        pending.added,
        min_kraft_version=response.min_kraft_version,
        max_kraft_version=response.max_kraft_version,
    )
    assert replica.progress is not None
    if not voter.supports(replica.log.kraft_version):
        detail = f"{voter.key} does not support kraft.version {replica.log.kraft_version}"
        complete_change(replica, _refuse(ErrorCode.INVALID_REQUEST, detail))
    elif not replica.progress.is_caught_up(voter.key, now):
        detail = f"{voter.key} has not caught up with the log"
        complete_change(replica, _refuse(ErrorCode.REQUEST_TIMED_OUT, detail))
    else:
        voters = replica.log.voters.add(voter)
        assert voters is not None
        _write(replica, pending, voters)
    return True


def _write(replica: Replica, pending: PendingVoterChange, voters: VoterSet) -> None:
    batch = replica.append_controls((VotersChange(voters=voters),))
    pending.last_offset = batch.last_offset
    if not pending.ack_when_committed and pending.request_id is not None:
        replica.respond(pending.request_id, _OK)
        pending.request_id = None


def on_remove(replica: Replica, request_id: int, request: RemoveVoterRequest, now: Millis) -> None:
    """Write the voter set without the voter; the commit completes the request."""
    refusal = _check_change(replica, request.cluster_id)
    if refusal is None and request.voter.directory_id is None:
        refusal = _refuse(ErrorCode.INVALID_REQUEST, "a voter needs an id and a directory id")
    refusal = refusal or _check_dynamic(replica)
    if refusal is not None:
        return replica.respond(request_id, refusal)
    voters = replica.log.voters.remove(request.voter)
    if voters is None:
        detail = f"{request.voter} is not a voter, or is the only voter"
        return replica.respond(request_id, _refuse(ErrorCode.VOTER_NOT_FOUND, detail))
    replica.pending = PendingVoterChange(
        request_id=request_id, deadline=Millis(now + replica.config.request_timeout_ms)
    )
    _write(replica, replica.pending, voters)
    return None


def on_update(replica: Replica, request: UpdateVoterRequest, now: Millis) -> QuorumEpochResponse:
    """Update a voter's endpoints and supported versions."""
    return QuorumEpochResponse(
        error=_update(replica, request, now),
        epoch=replica.epoch,
        leader_id=replica.leader_id,
        leader_endpoints=replica.leader_endpoints,
    )


def _update(replica: Replica, request: UpdateVoterRequest, now: Millis) -> ErrorCode:
    error = _check_update(replica, request)
    if error is not ErrorCode.NONE:
        return error
    voter = Voter(
        key=request.voter,
        endpoints=request.endpoints,
        min_kraft_version=request.min_kraft_version,
        max_kraft_version=request.max_kraft_version,
    )
    if replica.log.kraft_version == 0:
        # Nothing is written: the upgrade to kraft.version 1 uses the directory ids collected here.
        known = replica.volatile_voters
        updated = known.update_ignoring_directory(voter) if known is not None else None
        if updated is None:
            return ErrorCode.VOTER_NOT_FOUND
        replica.volatile_voters = updated
        return ErrorCode.NONE
    refusal = _check_dynamic(replica)
    if refusal is not None:
        return refusal.error
    updated = replica.log.voters.update(voter)
    if updated is None:
        return ErrorCode.VOTER_NOT_FOUND
    replica.pending = PendingVoterChange(
        request_id=None, deadline=Millis(now + replica.config.request_timeout_ms)
    )
    _write(replica, replica.pending, updated)
    return ErrorCode.NONE


def _check_update(replica: Replica, request: UpdateVoterRequest) -> ErrorCode:
    if request.epoch < replica.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if request.epoch > replica.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    refusal = _check_change(replica, request.cluster_id)
    if refusal is not None:
        return refusal.error
    low, high = request.min_kraft_version, request.max_kraft_version
    is_valid = (
        request.voter.id >= 0
        and request.voter.directory_id is not None
        and 0 <= low <= replica.log.kraft_version <= high
        and address(request.endpoints, replica.config.listener) is not None
    )
    return ErrorCode.NONE if is_valid else ErrorCode.INVALID_REQUEST


def on_upgrade(replica: Replica, request_id: int, request: UpgradeKRaftVersion) -> None:
    """Upgrade from static to dynamic voters, if the directory id of every voter is known."""
    replica.respond(request_id, _upgrade(replica, request))


def _upgrade(replica: Replica, request: UpgradeKRaftVersion) -> Refusal:
    refusal = _check_change(replica, None)
    if refusal is not None:
        return refusal
    if request.epoch != replica.epoch:
        return _refuse(ErrorCode.NOT_CONTROLLER, f"epoch {request.epoch} has ended")
    current = replica.log.kraft_version
    if request.kraft_version == current:
        return _OK
    if request.kraft_version < current or request.kraft_version != 1:
        detail = f"cannot change kraft.version from {current} to {request.kraft_version}"
        return _refuse(ErrorCode.INVALID_UPDATE_VERSION, detail)
    voters = replica.volatile_voters
    assert voters is not None
    unknown = [v.key.id for v in voters.voters if v.key.directory_id is None]
    old = [v.key.id for v in voters.voters if not v.supports(request.kraft_version)]
    if old or unknown:
        detail = f"voters {old} do not support it, or the directory ids of {unknown} are unknown"
        return _refuse(ErrorCode.INVALID_UPDATE_VERSION, detail)
    if not request.validate_only:
        controls: tuple[ControlRecord, ...] = (
            KRaftVersionChange(kraft_version=request.kraft_version),
            VotersChange(voters=voters),
        )
        replica.append_controls(controls)
        replica.volatile_voters = None
        replica.persist()
    return _OK


def on_commit(replica: Replica) -> None:
    """Complete the change that the new high watermark commits."""
    pending, progress = replica.pending, replica.progress
    assert progress is not None
    committed = progress.high_watermark
    assert committed is not None
    if pending is not None and pending.last_offset is not None and committed > pending.last_offset:
        complete_change(replica, _OK)
    at, state = replica.log.voters_offset, replica.state
    if not replica.is_voter and at is not None and at < committed and isinstance(state, Leader):
        replica.start_resigning("no longer a voter")


def complete_change(replica: Replica, response: Refusal) -> None:
    """Respond to the pending change, if its caller still waits, and clear it."""
    pending = replica.pending
    replica.pending = None
    if pending is not None and pending.request_id is not None:
        replica.respond(pending.request_id, response)


def maybe_expire(replica: Replica, now: Millis) -> None:
    """Time out a pending change; its record may still be committed later."""
    if replica.pending is not None and replica.pending.deadline <= now:
        complete_change(replica, Refusal(error=ErrorCode.REQUEST_TIMED_OUT))
