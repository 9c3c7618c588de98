"""DescribeElections (key 10000): v0, flexible from v0. Ours; Kafka has no such request."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Message, array, boolean, int16, int32, int64, string, uuid


class DescribeElectionsRequest(Message, key=10_000, versions="0", flexible="0+"):
    """Asks one node what it saw of the quorum's elections; `since_ms` is wall-clock time."""

    since_ms: int = int64(default=-1)


class Ballot(Message):
    """A vote that this node gave or refused, or got: `DescribeElectionsResponse.entries`."""

    voter_id: int = int32()
    is_granted: bool = boolean()
    reason: str = string()


class ElectionEntry(Message):
    """One change of this node's state, or a vote it gave: `DescribeElectionsResponse.entries`."""

    at_ms: int = int64()
    kind: str = string()
    epoch: int = int32()
    leader_id: int = int32(default=-1)
    candidate_id: int = int32(default=-1)
    reason: str = string()
    lasted_ms: int = int64(default=-1)
    ballots: list[Ballot] = array(Ballot)


class DescribeElectionsResponse(Message, key=10_000, versions="0", flexible="0+"):
    """This node's id, the leader it follows, and its journal from the oldest entry on."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    node_id: int = int32()
    directory_id: Uuid = uuid()
    is_voter: bool = boolean()
    state: str = string()
    leader_id: int = int32(default=-1)
    epoch: int = int32()
    high_watermark: int = int64(default=-1)
    dropped: int = int64()
    entries: list[ElectionEntry] = array(ElectionEntry)
