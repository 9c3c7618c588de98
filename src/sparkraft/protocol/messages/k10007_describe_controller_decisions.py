"""DescribeControllerDecisions (10007): v0, flexible from v0. Ours; Kafka has no such request."""

from sparkraft.protocol.declare import Message, array, boolean, int16, int32, int64, string


class DescribeControllerDecisionsRequest(Message, key=10_007, versions="0", flexible="0+"):
    """Asks a broker in ZooKeeper mode for its journal of the controller, a page at a time.

    `first` is the number of the first entry: 0, or `next` of the previous page.
    """

    first: int = int64()
    entries_max: int = int32(default=1_000)


class ControllerDecision(Message):
    """A decision or an observation: `DescribeControllerDecisionsResponse.decisions`."""

    number: int = int64()
    at_ms: int = int64()
    kind: str = string()
    text: str = string()


class DescribeControllerDecisionsResponse(Message, key=10_007, versions="0", flexible="0+"):
    """The broker's journal, oldest first; `next` is -1 on the last page.

    `controller_id` is -1 if the broker knows no controller; `epoch` is that of the requests of the
    controller, or -1. `stands` is whether the broker may become the controller. `is_kraft` is
    whether the controller is one of KRaft, which migrates the cluster (KIP-866).
    """

    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    node_id: int = int32()
    controller_id: int = int32()
    epoch: int = int32()
    stands: bool = boolean()
    next: int = int64(default=-1)
    decisions: list[ControllerDecision] = array(ControllerDecision)
    is_kraft: bool = boolean(tag=0)
