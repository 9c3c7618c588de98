"""DescribeHistory (key 10002): v0, flexible from v0. Ours; Kafka has no such request."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import (
    Message,
    array,
    boolean,
    int16,
    int32,
    int32s,
    int64,
    string,
    struct,
    uuid,
    uuids,
)


class HistoryTopic(Message):
    """A topic; all its partitions if none are named: `DescribeHistoryRequest.topics`."""

    name: str = string()
    partitions: list[int] | None = int32s(nullable=True, default=None)


class DescribeHistoryRequest(Message, key=10_002, versions="0", flexible="0+"):
    """Requests the history of partitions and brokers from one node's metadata log and journal.

    `at_offset` and `at_ms` (wall clock) select a past state, -1 the current one; at most the newest
    `events_max` changes of each are returned; `whole_log` reads everything that is kept;
    `journal_only` requests only the elections that this node decided.
    """

    topics: list[HistoryTopic] = array(HistoryTopic)
    broker_ids: list[int] = int32s()
    at_offset: int = int64(default=-1)
    at_ms: int = int64(default=-1)
    events_max: int = int32(default=20)
    whole_log: bool = boolean()
    journal_only: bool = boolean()


class PartitionState(Message):
    """A partition as one image has it."""

    leader: int = int32(default=-1)
    leader_epoch: int = int32()
    partition_epoch: int = int32()
    replicas: list[int] = int32s()
    isr: list[int] = int32s()
    elr: list[int] = int32s()
    last_known_elr: list[int] = int32s()
    adding: list[int] = int32s()
    removing: list[int] = int32s()
    leader_recovery_state: int = int32()
    directories: list[Uuid] = uuids()


class RuledOut(Message):
    """A candidate that could not lead: `ElectionReason.ruled_out`."""

    replica: int = int32()
    why: str = string()


class ElectionReason(Message):
    """The reason for a leader: `HistoryEvent.election`."""

    kind: str = string()
    chosen_by: str = string()
    candidates: list[int] = int32s()
    isr: list[int] = int32s()
    elr: list[int] = int32s()
    live: list[int] = int32s()
    ruled_out: list[RuledOut] = array(RuledOut)
    from_journal: bool = boolean()
    is_derived: bool = boolean(default=True)


class HistoryEvent(Message):
    """One change of a partition; `before` is null if it was created, `after` if it was deleted."""

    offset: int = int64()
    at_ms: int = int64()
    controller_epoch: int = int32(default=-1)
    topic: str = string()
    topic_id: Uuid = uuid()
    partition: int = int32()
    before: PartitionState | None = struct(PartitionState, nullable=True, default=None)
    after: PartitionState | None = struct(PartitionState, nullable=True, default=None)
    occasion: str = string()
    cause: str = string()
    election: ElectionReason | None = struct(ElectionReason, nullable=True, default=None)


class HistoryPartition(Message):
    """A partition: `DescribeHistoryResponse.partitions`; `state` is null if there is none."""

    topic: str = string()
    topic_id: Uuid = uuid()
    partition: int = int32()
    state: PartitionState | None = struct(PartitionState, nullable=True, default=None)
    offline_replicas: list[int] = int32s()
    events: list[HistoryEvent] = array(HistoryEvent)


class BrokerChange(Message):
    """One record about a broker: `HistoryBroker.changes`."""

    offset: int = int64()
    at_ms: int = int64()
    broker_epoch: int = int64()
    what: str = string()


class LaggingPartition(Message):
    """A partition that a broker keeps but is not in sync with: `HistoryBroker.out_of_sync`."""

    topic: str = string()
    partition: int = int32()


class HistoryBroker(Message):
    """A broker: `DescribeHistoryResponse.brokers`; counts are of partitions."""

    broker_id: int = int32()
    is_registered: bool = boolean()
    broker_epoch: int = int64(default=-1)
    is_fenced: bool = boolean()
    is_shutting_down: bool = boolean()
    rack: str | None = string(nullable=True)
    directories: list[Uuid] = uuids()
    cordoned_directories: list[Uuid] = uuids()
    leads: int = int32()
    preferred: int = int32()
    replicas: int = int32()
    in_sync: int = int32()
    eligible: int = int32()
    out_of_sync: list[LaggingPartition] = array(LaggingPartition)
    changes: list[BrokerChange] = array(BrokerChange)
    elections: list[HistoryEvent] = array(HistoryEvent)


class HistoryNote(Message):
    """An observation about a topic by the controller: `DescribeHistoryResponse.notes`."""

    at_ms: int = int64()
    topic: str = string()
    kind: str = string()
    text: str = string()


class DescribeHistoryResponse(Message, key=10_002, versions="0", flexible="0+"):
    """The cluster as of `offset`, and what led there as far as the log was read.

    `start_offset` is the offset at which reading began: earlier changes are not included. `at_ms`
    is when the batch of `offset` was appended, -1 if nothing but a snapshot was read.

    In ZooKeeper mode there are no offsets. `partitions` and `brokers` then have the changes that
    this node decided as the controller, and `notes` the progress of deletions and reassignments.
    """

    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    node_id: int = int32()
    is_controller: bool = boolean()
    start_offset: int = int64(default=-1)
    offset: int = int64(default=-1)
    at_ms: int = int64(default=-1)
    partitions: list[HistoryPartition] = array(HistoryPartition)
    brokers: list[HistoryBroker] = array(HistoryBroker)
    in_zookeeper_mode: bool = boolean(tag=0)
    notes: list[HistoryNote] = array(HistoryNote, tag=1)
