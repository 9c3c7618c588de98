"""What can happen to a member of the quorum, and what it asks of its driver.

Requests and responses carry what the core needs to decide, not what the wire looks like:
`server.raft` translates both ways. The same classes serve both directions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import BrokerId, LeaderEpoch, Millis, Offset, Uuid
from sparkraft.raft.voters import Endpoint, Node, ReplicaKey, VoterSet

LATEST_OFFSET = Offset(2**63 - 1)
"""What a Fetch below version 18 says its high watermark is: don't answer for its sake."""


@dataclass(frozen=True, slots=True, order=True)
class EpochAndOffset:
    """A point in the log, ordered as logs are compared: by epoch, then by length.

    As the id of a snapshot, it holds everything below `offset`, the last record of `epoch`.
    """

    epoch: LeaderEpoch
    offset: Offset


NO_OFFSET = Offset(-1)
"""Not known."""

FIRST_EPOCH = LeaderEpoch(0)
"""Before any election."""

BOOTSTRAP_SNAPSHOT = EpochAndOffset(LeaderEpoch(0), Offset(0))
"""The zero checkpoint of a dynamic quorum: voters only, never replicated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionState:
    """What must survive a restart: the `quorum-state` file."""

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
    """A batch of the log: offsets, the control records in it, and the driver's own `payload`.

    `last_offset` is inclusive. `controls` are by place, None where the core has no use for one.
    The core never looks into `payload`: for a batch from a leader it is the bytes to append, for
    one of our own appends what `Append` brought.
    """

    base_offset: Offset
    last_offset: Offset
    epoch: LeaderEpoch
    controls: tuple[ControlRecord | None, ...] = ()
    payload: object = None

    @property
    def next_offset(self) -> Offset:
        """The first offset behind the batch."""
        return Offset(self.last_offset + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """Bytes to read from the log for an answer; `up_to` is exclusive."""

    start: Offset
    up_to: Offset
    max_bytes: int


# ---- requests and responses


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest:
    """Vote v0-2: `voter` is whom the candidate means to ask (KIP-595, KIP-996)."""

    cluster_id: str | None
    voter: ReplicaKey | None
    candidate: ReplicaKey
    epoch: LeaderEpoch
    last_epoch: LeaderEpoch
    last_offset: Offset
    pre_vote: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponse:
    """Answer to `VoteRequest`, with the leader where the voter knows one."""

    error: ErrorCode
    epoch: LeaderEpoch
    leader_id: BrokerId | None = None
    leader_endpoints: tuple[Endpoint, ...] = ()
    granted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginQuorumEpochRequest:
    """A leader makes itself known to a voter."""

    cluster_id: str | None
    voter: ReplicaKey | None
    leader_id: BrokerId
    epoch: LeaderEpoch
    leader_endpoints: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndQuorumEpochRequest:
    """A leader has resigned and names who should follow, best first."""

    cluster_id: str | None
    leader_id: BrokerId
    epoch: LeaderEpoch
    preferred_successors: tuple[ReplicaKey, ...] = ()
    leader_endpoints: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumEpochResponse:
    """Answer to BeginQuorumEpoch, EndQuorumEpoch and UpdateRaftVoter."""

    error: ErrorCode
    epoch: LeaderEpoch
    leader_id: BrokerId | None = None
    leader_endpoints: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    """Replication, liveness and acknowledgement at once: all below `fetch_offset` is on disk."""

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
    """Answer to `FetchRequest`: at most one of records, `diverging` and `snapshot`.

    Going out, `read` names the bytes to send; coming in, `batches` are what they held.
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
    """A piece of a snapshot from `position` on (KIP-630)."""

    cluster_id: str | None
    replica: ReplicaKey
    epoch: LeaderEpoch
    snapshot: EpochAndOffset
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotResponse:
    """Answer to `FetchSnapshotRequest`.

    Going out, the driver fills in at most `max_bytes` from `position`; coming in, `chunk` is set.
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
    """AddRaftVoter (KIP-853); `ack_when_committed` False answers when the record is appended."""

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
    """Which kraft versions does a voter to be support?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsResponse:
    """Answer to `ApiVersionsRequest`; versions are an inclusive range, 0..0 where not named."""

    error: ErrorCode
    min_kraft_version: int = 0
    max_kraft_version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeKRaftVersion:
    """Raise kraft.version in `epoch`; the answer comes when the records are appended."""

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
    """An answer that is only an error, with a sentence for people."""

    error: ErrorCode
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """Answer to `Append`: the offset of its last record, not yet committed."""

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
    """Why a request got no answer."""

    TIMED_OUT = "timed out"
    DISCONNECTED = "disconnected"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
    """`Ready.wake_at` has come, or the driver looks in for another reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestReceived:
    """A peer, a client or this node itself asks; `Respond` carries the same `request_id`."""

    request_id: int
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDropped:
    """Who asked has gone: a parked answer is no longer wanted."""

    request_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseReceived:
    """A peer answered the `Send` of this `correlation_id`."""

    correlation_id: int
    response: PeerResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFailed:
    """The `Send` of this `correlation_id` gets no answer."""

    correlation_id: int
    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFlushed:
    """Everything below `up_to` is on disk, as asked for by a `Flush` of this `generation`."""

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
    """Records below `log_start_offset` and the snapshots before it are gone."""

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
    """Ask a peer; answer with `ResponseReceived` or `RequestFailed`."""

    correlation_id: int
    to: Node
    request: PeerRequest
    timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Respond:
    """The answer to a `RequestReceived`."""

    request_id: int
    response: Response


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendBatch:
    """Write `batch` at the end of the log."""

    batch: LogBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateTo:
    """Cut the log so that it ends at `offset`."""

    offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSnapshotChunk:
    """Write `chunk` at `position` of the snapshot being fetched; position 0 starts it anew."""

    snapshot: EpochAndOffset
    position: int
    chunk: bytes | memoryview = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallSnapshot:
    """The fetched snapshot is complete: freeze it, empty the log to it, say `SnapshotInstalled`."""

    snapshot: EpochAndOffset


LogEffect = AppendBatch | TruncateTo | WriteSnapshotChunk | InstallSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush:
    """Bring everything below `up_to` to disk, then say `LogFlushed` with the same `generation`."""

    up_to: Offset
    generation: int


class LeaderAndEpoch(NamedTuple):
    """Who leads, as far as this replica knows; None while no one does or the leader resigned."""

    leader_id: BrokerId | None
    epoch: LeaderEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Work for the driver, to be done in the order of the fields.

    * `persist`: on disk (fsync) before anything else of this or a later `Ready`.
    * `log`: in order; page cache is enough, so long as later reads see it.
    * `flush`: begin it; nothing below waits for it. One at a time: a newer one replaces an
      older one that has not begun.
    * `send`, `respond`: reads they ask for see `log` done.
    * `leader`, `high_watermark`: set where they changed; tell the listeners.
    * `wake_at`: when to say `TimerFired`; always set anew, None for never.
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
    """A replica as its leader sees it; times are -1 where it never fetched."""

    key: ReplicaKey
    log_end_offset: Offset
    last_fetch_ms: Millis
    last_caught_up_ms: Millis
    endpoints: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What DescribeQuorum tells; -1 where unknown."""

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


ZERO_DIRECTORY = Uuid.ZERO
"""On the wire: directory id not known."""
