"""ControlledShutdown (key 7): v0-3, flexible from v3. Only in ZooKeeper mode (Kafka 3.9).

The header of v0 lacks the client id (`sparkraft.protocol.headers`); brokers since 0.9 send v1.
"""

from sparkraft.protocol.declare import Message, array, int16, int32, int64, string


class ControlledShutdownRequest(Message, key=7, versions="0-3", flexible="3+"):
    """A broker asks the ZooKeeper controller to move its leaders away before it stops.

    v2 broker epoch (KIP-380).
    """

    broker_id: int = int32()
    broker_epoch: int = int64("2+", default=-1, ignorable=True)


class RemainingPartition(Message):
    """A partition that it still leads: `ControlledShutdownResponse.remaining_partitions`."""

    topic_name: str = string()
    partition_index: int = int32()


class ControlledShutdownResponse(Message, key=7, versions="0-3", flexible="3+"):
    """The partitions that could not be moved; the broker asks again while there are any."""

    error_code: int = int16()
    remaining_partitions: list[RemainingPartition] = array(RemainingPartition)
