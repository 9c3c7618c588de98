"""Followers and observers: fetch, append, truncate, fetch snapshots.

Behaviour:
    * A Fetch acknowledges everything below its offset, so voters and prospective voters send it
      only once that is on disk. The high watermark does not advance earlier, either.
    * A truncation below our high watermark is refused.
    * While its leader does not respond, a replica fetches from bootstrap servers to find a leader.
"""

from dataclasses import replace

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import Millis, Offset
from sparkraft.raft.events import (
    AddVoterRequest,
    EpochAndOffset,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    InstallSnapshot,
    LogBatch,
    PeerRequest,
    QuorumEpochResponse,
    Refusal,
    RemoveVoterRequest,
    SnapshotInstalled,
    UpdateVoterRequest,
    WriteSnapshotChunk,
)
from sparkraft.raft.replica import FetchingSnapshot, Replica
from sparkraft.raft.states import NO_RESPONSE, Follower
from sparkraft.raft.voters import Node
from sparkraft.raft.votes import on_common_response


def build_fetch(replica: Replica) -> FetchRequest:
    """A Fetch for the records after our log end."""
    log = replica.log
    known = log.high_watermark
    return FetchRequest(
        cluster_id=replica.config.cluster_id,
        replica=replica.local,
        epoch=replica.epoch,
        fetch_offset=log.end,
        last_fetched_epoch=log.last_epoch,
        high_watermark=known if known is not None else Offset(-1),
        max_wait_ms=replica.config.fetch_max_wait_ms,
        max_bytes=replica.config.fetch_max_bytes,
    )


def may_fetch(replica: Replica) -> bool:
    """Whether everything a Fetch acknowledges is on disk, and no snapshot is being installed."""
    fetching = replica.fetching_snapshot
    if fetching is not None and fetching.installing:
        return False
    return not replica.flushes or replica.log.durable_end == replica.log.end


def next_request(replica: Replica, state: Follower, now: Millis) -> PeerRequest:
    """The next request to the leader: our voter change, a snapshot chunk, or a Fetch."""
    if now >= state.update_voter_at and not replica.shutting_down:
        change = _voter_request(replica, state)
        wait = Millis(now + replica.config.fetch_timeout_ms)
        replica.update(replace(state, update_voter_at=wait))
        if change is not None:
            return change
    fetching = replica.fetching_snapshot
    if fetching is None:
        return build_fetch(replica)
    return FetchSnapshotRequest(
        cluster_id=replica.config.cluster_id,
        replica=replica.local,
        epoch=replica.epoch,
        snapshot=fetching.snapshot,
        position=fetching.position,
        max_bytes=replica.config.fetch_max_bytes,
    )


def _voter_request(replica: Replica, state: Follower) -> PeerRequest | None:
    """Report our endpoints to the leader, or join the voters if auto-join is enabled (KIP-853)."""
    config, voters = replica.config, replica.log.voters
    dynamic = replica.log.kraft_version >= 1
    if replica.is_voter:
        stale = (
            voters.needs_update(replica.local_voter) if dynamic else not state.has_updated_leader
        )
        if not stale or config.max_kraft_version == 0:
            return None
        return UpdateVoterRequest(
            cluster_id=config.cluster_id,
            epoch=replica.epoch,
            voter=replica.local,
            endpoints=config.endpoints,
            min_kraft_version=config.min_kraft_version,
            max_kraft_version=config.max_kraft_version,
        )
    if not (dynamic and config.auto_join and config.can_become_voter):
        return None
    old = voters.get(replica.local.id)
    if old is not None:
        # The same node with another disk: remove its old directory before adding the new one.
        return RemoveVoterRequest(cluster_id=config.cluster_id, voter=old.key)
    return AddVoterRequest(
        cluster_id=config.cluster_id,
        voter=replica.local,
        endpoints=config.endpoints,
        ack_when_committed=False,
    )


# ---- responses


def on_fetch_response(replica: Replica, response: FetchResponse, now: Millis) -> bool:
    """Append, truncate, or start a snapshot fetch; False if the peer needs a backoff."""
    handled = on_common_response(replica, response.error, response, now)
    if handled is not None:
        return handled
    state = replica.state
    if response.error is not ErrorCode.NONE or not isinstance(state, Follower):
        return False
    if response.leader_id != state.leader_id:
        return False
    if response.diverging is not None:
        if not _truncate(replica, response.diverging):
            return False
    elif response.snapshot is not None:
        _start_snapshot(replica, response.snapshot)
    else:
        _append(replica, response.batches)
        _follow_high_watermark(replica, response.high_watermark)
    _on_leader_responded(replica, now)
    return True


def _on_leader_responded(replica: Replica, now: Millis) -> None:
    state = replica.state
    assert isinstance(state, Follower)
    if state.leader_resigned:
        return
    deadline = Millis(now + replica.config.fetch_timeout_ms)
    replica.update(
        replace(state, fetch_deadline=deadline, deadline_reason=NO_RESPONSE, has_fetched=True)
    )


def _truncate(replica: Replica, diverging: EpochAndOffset) -> bool:
    log = replica.log
    if diverging.offset < 0 or diverging.epoch < 0:
        return False
    at = log.truncation_point(diverging)
    if at < max(log.high_watermark or 0, log.start):
        return False
    replica.truncate_to(at)
    return True


def _append(replica: Replica, batches: tuple[LogBatch, ...]) -> None:
    """Append batches that continue our log, up to the first that this leader cannot have."""
    for batch in batches:
        fits = batch.base_offset == replica.log.end and batch.last_offset >= batch.base_offset
        if not fits or not replica.log.last_epoch <= batch.epoch <= replica.epoch:
            break
        replica.append(batch)


def _follow_high_watermark(replica: Replica, high_watermark: Offset) -> None:
    if high_watermark < 0:
        return
    replica.leader_high_watermark = max(replica.leader_high_watermark, high_watermark)
    advance_from_leader(replica)


def advance_from_leader(replica: Replica) -> None:
    """Advance the high watermark to the leader's, as far as our own disk has the records."""
    reached = min(replica.leader_high_watermark, replica.log.durable_end)
    if reached > 0 or replica.leader_high_watermark == 0:
        replica.log.advance_high_watermark(reached)


def _start_snapshot(replica: Replica, snapshot: EpochAndOffset) -> None:
    """Start fetching `snapshot`, unless it is invalid or not ahead of our high watermark."""
    log = replica.log
    known = snapshot in log.snapshots or snapshot.offset <= (log.high_watermark or 0)
    if known or snapshot.epoch > replica.epoch:
        return
    fetching = replica.fetching_snapshot
    if fetching is None or fetching.snapshot != snapshot:
        replica.fetching_snapshot = FetchingSnapshot(snapshot=snapshot)


def on_fetch_snapshot_response(
    replica: Replica, response: FetchSnapshotResponse, now: Millis
) -> bool:
    """Write a chunk of the snapshot; False if the peer needs a backoff."""
    handled = on_common_response(replica, response.error, response, now)
    if handled is not None:
        return handled
    fetching = replica.fetching_snapshot
    if not isinstance(replica.state, Follower) or fetching is None:
        return False
    if response.error is ErrorCode.SNAPSHOT_NOT_FOUND or response.snapshot is None:
        # The leader has deleted it since; the next Fetch names a newer one.
        replica.fetching_snapshot = None
        if response.error in (ErrorCode.NONE, ErrorCode.SNAPSHOT_NOT_FOUND):
            _on_leader_responded(replica, now)
        return response.error is ErrorCode.SNAPSHOT_NOT_FOUND
    if response.error is not ErrorCode.NONE or not _fits(fetching, response):
        replica.fetching_snapshot = None
        return False
    chunk = response.chunk
    replica.outbox.log.append(
        WriteSnapshotChunk(snapshot=fetching.snapshot, position=fetching.position, chunk=chunk)
    )
    fetching.position += len(chunk)
    if fetching.position == response.size:
        fetching.installing = True
        replica.outbox.log.append(InstallSnapshot(snapshot=fetching.snapshot))
    _on_leader_responded(replica, now)
    return True


def _fits(fetching: FetchingSnapshot, response: FetchSnapshotResponse) -> bool:
    return (
        response.snapshot == fetching.snapshot
        and response.position == fetching.position
        and 0 < len(response.chunk) <= response.size - response.position
        and not fetching.installing
    )


def on_snapshot_installed(replica: Replica, event: SnapshotInstalled) -> None:
    """The log now starts at the snapshot."""
    replica.fetching_snapshot = None
    replica.log.install(event.snapshot, event.size, event.kraft_version, event.voters)
    replica.outbox.flush = None


def on_voter_change_response(
    replica: Replica, request: PeerRequest, response: QuorumEpochResponse | Refusal, now: Millis
) -> bool:
    """Process a response to our own AddRaftVoter, RemoveRaftVoter or UpdateRaftVoter."""
    if isinstance(response, QuorumEpochResponse):
        handled = on_common_response(replica, response.error, response, now)
        if handled is not None:
            return handled
    state = replica.state
    done = response.error in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION)
    if isinstance(request, UpdateVoterRequest) and done and isinstance(state, Follower):
        replica.update(replace(state, has_updated_leader=True))
    return done


# ---- finding a leader


def bootstrap_nodes(replica: Replica) -> list[Node]:
    """Servers that may know the leader: the configured ones, else the voters, without this node."""
    own = {(endpoint.host, endpoint.port) for endpoint in replica.config.endpoints}
    nodes = list(replica.config.bootstrap)
    if not nodes:
        found = [replica.voter_node(voter) for voter in replica.log.voters.voters]
        nodes = [node for node in found if node is not None]
    return [
        node for node in nodes if node.id != replica.local.id and (node.host, node.port) not in own
    ]


def fetch_from_bootstrap(replica: Replica, now: Millis) -> Millis | None:
    """Fetch from a random ready server; returns when to try again, None if there is no server."""
    nodes = bootstrap_nodes(replica)
    connections = replica.connections
    waiting = connections.waits_until(now)
    if waiting is not None:
        return waiting
    ready = [node for node in nodes if connections.ready_at(node.id, now) <= now]
    if ready:
        node = ready[replica.entropy.below(len(ready))]
        replica.send(node, build_fetch(replica), now)
        return connections.ready_at(node.id, now)
    return min((connections.ready_at(node.id, now) for node in nodes), default=None)
