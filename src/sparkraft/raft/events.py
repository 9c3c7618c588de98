"""Input and output of the quorum core: events, requests and responses, and `Ready`.

Requests and responses carry what the core needs for its decisions, not the wire format, which
`server.raft` translates both ways. The same classes serve both directions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import BrokerId, LeaderEpoch, Millis, Offset
from sparkraft.raft.voters import Endpoint, Node, ReplicaKey, VoterSet

LATEST_OFFSET = Offset(2**63 - 1)
"""The high watermark of a Fetch below version 18: a new one alone does not complete the Fetch."""


@dataclass(frozen=True, slots=True, order=True)
class EpochAndOffset:
    """A point in the log, ordered as logs are compared: by epoch, then by length.

    As the id of a snapshot, it holds everything below `offset`, the last record of `epoch`.
    """

    epoch: LeaderEpoch
    offset: Offset


NO_OFFSET = Offset(-1)
"""Unknown."""

FIRST_EPOCH = LeaderEpoch(0)
"""Before any election."""

BOOTSTRAP_SNAPSHOT = EpochAndOffset(LeaderEpoch(0), Offset(0))
"""The zero checkpoint of a dynamic quorum: voters only, never replicated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionState:
    """State that must survive a restart: the `quorum-state` file."""

    epoch: LeaderEpoch = FIRST_EPOCH
    leader_id: BrokerId | None = None
    voted: ReplicaKey | None = None
    voter_ids: tuple[BrokerId, ...] = ()
    kraft_version: int = 0


# ---- log contents


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChange:
    """Control record at the start of an epoch (KIP-595)."""

    leader_id: BrokerId
    voter_ids: tuple[BrokerId, ...]
    granting_voter_ids: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KRaftVersionChange:
    """Control record: the protocol between voters from here on (KIP-853)."""

    kraft_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VotersChange:
    """Control record: the voter set from here on, before it is committed (KIP-853)."""

    voters: VoterSet


ControlRecord = LeaderChange | KRaftVersionChange | VotersChange


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBatch:
    """A batch of the log: offsets, its control records, and the driver's own `payload`.

    `last_offset` is inclusive. `controls` are by position in the batch; None stands for a control
    record that the core does not use. The core never reads `payload`: it is the bytes to append for
    a batch fetched from a leader, and the payload of `Append` for one of our own.
    """

    base_offset: Offset
    last_offset: Offset
    epoch: LeaderEpoch
    controls: tuple[ControlRecord | None, ...] = ()
    payload: object = None

    @property
    def next_offset(self) -> Offset:
        """The first offset after the batch."""
        return Offset(self.last_offset + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """Bytes to read from the log for a response; `up_to` is exclusive."""

    start: Offset
    up_to: Offset
    max_bytes: int


# ---- requests and responses


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest:
    """Vote v0-2; `voter` is the intended receiver (KIP-595, KIP-996)."""

    cluster_id: str | None
    voter: ReplicaKey | None
    candidate: ReplicaKey
    epoch: LeaderEpoch
    last_epoch: LeaderEpoch
    last_offset: Offset
    pre_vote: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponse:
    """Response to `VoteRequest`, with the leader if the voter knows one."""

    error: ErrorCode
    epoch: LeaderEpoch
    leader_id: BrokerId | None = None
    leader_endpoints: tuple[Endpoint, ...] = ()
    granted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginQuorumEpochRequest:
    """A new leader announces itself to a voter."""

    cluster_id: str | None
    voter: ReplicaKey | None
    leader_id: BrokerId
    epoch: LeaderEpoch
    leader_endpoints: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndQuorumEpochRequest:
    """A leader has resigned; names its preferred successors, best first."""

    cluster_id: str | None
    leader_id: BrokerId
    epoch: LeaderEpoch
    preferred_successors: tuple[ReplicaKey, ...] = ()
    leader_endpoints: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumEpochResponse:
    """Response to BeginQuorumEpoch, EndQuorumEpoch and UpdateRaftVoter."""

    error: ErrorCode
    epoch: LeaderEpoch
    leader_id: BrokerId | None = None
    leader_endpoints: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    """Replication, liveness and acknowledgement in one: all below `fetch_offset` is on disk."""

    cluster_id: str | None
    replica: ReplicaKey
    epoch: LeaderEpoch
    fetch_offset: Offset
    last_fetched_epoch: LeaderEpoch
    high_watermark: Offset = LATEST_OFFSET
    max_wait_ms: int = 0
    max_bytes: int = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponse:
    """Response to `FetchRequest`: at most one of records, `diverging` and `snapshot`.

    On the way out `read` names the bytes to send; on the way in `batches` are their content.
    """

    error: ErrorCode
    epoch: LeaderEpoch
    leader_id: BrokerId | None = None
    leader_endpoints: tuple[Endpoint, ...] = ()
    high_watermark: Offset = NO_OFFSET
    log_start_offset: Offset = NO_OFFSET
    diverging: EpochAndOffset | None = None
    snapshot: EpochAndOffset | None = None
    read: LogRange | None = None
    batches: tuple[LogBatch, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotRequest:
    """A chunk of a snapshot from byte `position` on (KIP-630)."""

    cluster_id: str | None
    replica: ReplicaKey
    epoch: LeaderEpoch
    snapshot: EpochAndOffset
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotResponse:
    """Response to `FetchSnapshotRequest`.

    On the way out `chunk` is empty: the driver reads it, at most `max_bytes` from `position`.
    """

    error: ErrorCode
    epoch: LeaderEpoch
    leader_id: BrokerId | None = None
    leader_endpoints: tuple[Endpoint, ...] = ()
    snapshot: EpochAndOffset | None = None
    size: int = 0
    position: int = 0
    max_bytes: int = 0
    chunk: bytes | memoryview = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddVoterRequest:
    """AddRaftVoter (KIP-853); if `ack_when_committed` is False, the append completes it."""

    cluster_id: str | None
    voter: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    ack_when_committed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveVoterRequest:
    """RemoveRaftVoter (KIP-853)."""

    cluster_id: str | None
    voter: ReplicaKey


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateVoterRequest:
    """UpdateRaftVoter (KIP-853): a voter's endpoints and the kraft versions it supports."""

    cluster_id: str | None
    epoch: LeaderEpoch
    voter: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    min_kraft_version: int
    max_kraft_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsRequest:
    """Which kraft versions does a prospective voter support?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsResponse:
    """Response to `ApiVersionsRequest`; versions are an inclusive range, 0..0 if absent."""

    error: ErrorCode
    min_kraft_version: int = 0
    max_kraft_version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeKRaftVersion:
    """Raise kraft.version in `epoch`; completed once the records are appended."""

    epoch: LeaderEpoch
    kraft_version: int
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Append `count` records of the leader in `epoch` as one atomic batch."""

    epoch: LeaderEpoch
    count: int
    payload: object = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An error response; `detail` is a message for people."""

    error: ErrorCode
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """Response to `Append`: the offset of its last record, not yet committed."""

    last_offset: Offset


PeerRequest = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | AddVoterRequest
    | RemoveVoterRequest
    | UpdateVoterRequest
    | ApiVersionsRequest
)
PeerResponse = (
    VoteResponse
    | QuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
    | ApiVersionsResponse
    | Refusal
)
Request = PeerRequest | UpgradeKRaftVersion | Append
Response = PeerResponse | Appended


# ---- events


class Failure(Enum):
    """Why a request got no response."""

    TIMED_OUT = "timed out"
    DISCONNECTED = "disconnected"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
    """`Ready.wake_at` has passed; a spurious one is harmless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestReceived:
    """A request of a peer, a client or this node; `Respond` carries the same `request_id`."""

    request_id: int
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDropped:
    """The caller stopped waiting: a parked request needs no response."""

    request_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseReceived:
    """A peer responded to the `Send` of this `correlation_id`."""

    correlation_id: int
    response: PeerResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFailed:
    """The `Send` of this `correlation_id` gets no response."""

    correlation_id: int
    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFlushed:
    """Everything below `up_to` is on disk, after a `Flush` of this `generation`."""

    up_to: Offset
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotCreated:
    """This node has written a snapshot of committed state, `size` bytes."""

    snapshot: EpochAndOffset
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotInstalled:
    """The fetched snapshot is complete on disk and the log starts at its end."""

    snapshot: EpochAndOffset
    size: int
    kraft_version: int = 0
    voters: VoterSet | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotDiscarded:
    """The fetched snapshot was damaged: fetch again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCleaned:
    """Records below `log_start_offset` and the snapshots before it were deleted."""

    log_start_offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class ResignRequested:
    """Give up the leadership of `epoch`."""

    epoch: LeaderEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownRequested:
    """The node is stopping: hand leadership over, start no election."""


Event = (
    TimerFired
    | RequestReceived
    | RequestDropped
    | ResponseReceived
    | RequestFailed
    | LogFlushed
    | SnapshotCreated
    | SnapshotInstalled
    | SnapshotDiscarded
    | LogCleaned
    | ResignRequested
    | ShutdownRequested
)


# ---- effects


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Send a request to a peer; `ResponseReceived` or `RequestFailed` follows."""

    correlation_id: int
    to: Node
    request: PeerRequest
    timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Respond:
    """The response to a `RequestReceived`."""

    request_id: int
    response: Response


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendBatch:
    """Write `batch` at the end of the log."""

    batch: LogBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateTo:
    """Truncate the log so that it ends at `offset`."""

    offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSnapshotChunk:
    """Write `chunk` at `position` of the snapshot being fetched; position 0 starts over."""

    snapshot: EpochAndOffset
    position: int
    chunk: bytes | memoryview = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallSnapshot:
    """The fetched snapshot is complete: start the log at it, then report `SnapshotInstalled`."""

    snapshot: EpochAndOffset


LogEffect = AppendBatch | TruncateTo | WriteSnapshotChunk | InstallSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush:
    """Bring everything below `up_to` to disk, then report `LogFlushed` of this `generation`."""

    up_to: Offset
    generation: int


class LeaderAndEpoch(NamedTuple):
    """The leader this replica knows; None if it knows none, or has itself resigned."""

    leader_id: BrokerId | None
    epoch: LeaderEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Work for the driver, carried out in the order of the fields (`ReadyQueue` keeps it).

    * `persist`: on disk (fsync) before anything else of this or a later `Ready`.
    * `log`: in order; the page cache is enough, as long as later reads see it.
    * `flush`: start it; nothing below waits for it. One at a time: a newer one replaces an
      older one that has not started.
    * `send`, `respond`: the reads they need see `log` done.
    * `leader`, `high_watermark`: None if unchanged; report them to the listeners.
    * `wake_at`: when to feed `TimerFired`; replaces the last one, None for never.
    """

    persist: ElectionState | None = None
    log: Sequence[LogEffect] = ()
    flush: Flush | None = None
    send: Sequence[Send] = ()
    respond: Sequence[Respond] = ()
    leader: LeaderAndEpoch | None = None
    high_watermark: Offset | None = None
    wake_at: Millis | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaProgress:
    """A replica as its leader sees it; times are -1 if it never fetched."""

    key: ReplicaKey
    log_end_offset: Offset
    last_fetch_ms: Millis
    last_caught_up_ms: Millis
    endpoints: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """The content of DescribeQuorum; -1 if unknown."""

    leader_id: BrokerId
    epoch: LeaderEpoch
    high_watermark: Offset
    voters: tuple[ReplicaProgress, ...]
    observers: tuple[ReplicaProgress, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumConfig:
    """Settings of the quorum, under Kafka's names without their `controller.quorum.` prefix."""

    cluster_id: str
    local: ReplicaKey
    listener: str
    endpoints: tuple[Endpoint, ...] = ()
    bootstrap: tuple[Node, ...] = ()
    can_become_voter: bool = True
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    auto_join: bool = False
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 8 * 1024 * 1024
    min_kraft_version: int = 0
    max_kraft_version: int = 1
