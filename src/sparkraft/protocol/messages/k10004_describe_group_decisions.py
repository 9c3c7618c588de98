"""DescribeGroupDecisions (key 10004): v0, flexible from v0. Ours; Kafka has no such request."""

from sparkraft.protocol.declare import Message, array, int16, int32, int64, string, strings


class DescribeGroupDecisionsRequest(Message, key=10_004, versions="0", flexible="0+"):
    """Asks a broker for the decisions it noted about a group, a page at a time.

    `first` is the number of the first entry: 0, or `next` of the previous page.
    """

    group_id: str = string()
    first: int = int64()
    entries_max: int = int32(default=1_000)


class Vote(Message):
    """The protocol a member voted for: `GroupDecision.votes`."""

    member_id: str = string()
    protocol: str = string()


class RuledOut(Message):
    """A candidate that could not be chosen: `GroupDecision.ruled_out`."""

    candidate: str = string()
    reason: str = string()


class Move(Message):
    """A partition that moves between members: `GroupDecision.moves`; an empty id for none.

    `took_ms` is -1 if the new owner does not have it yet.
    """

    topic: str = string()
    partition: int = int32()
    from_member: str = string()
    to_member: str = string()
    took_ms: int = int64(default=-1)


class GroupDecision(Message):
    """One decision: `DescribeGroupDecisionsResponse.decisions`.

    `move_count` counts all moves, and `moves` lists the first; `took_ms` is -1 for no duration.
    """

    number: int = int64()
    at_ms: int = int64()
    epoch: int = int32()
    kind: str = string()
    member_id: str = string()
    chosen: str | None = string(nullable=True, default=None)
    reason: str = string()
    candidates: list[str] = strings()
    votes: list[Vote] = array(Vote)
    ruled_out: list[RuledOut] = array(RuledOut)
    moves: list[Move] = array(Move)
    move_count: int = int32()
    took_ms: int = int64(default=-1)


class DescribeGroupDecisionsResponse(Message, key=10_004, versions="0", flexible="0+"):
    """Decisions of this broker's journal, oldest first; `next` is -1 on the last page."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    node_id: int = int32()
    next: int = int64(default=-1)
    decisions: list[GroupDecision] = array(GroupDecision)
