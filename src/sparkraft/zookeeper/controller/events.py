"""Events of the controller, and the queue in which they wait for its only task.

The names of states are those of Kafka's ControllerState, which name its metrics.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from sparkraft.base.ids import TopicPartition
from sparkraft.zookeeper.controller import znodes
from sparkraft.zookeeper.controller.values import IsrChangeRequest
from sparkraft.zookeeper.exchange import EventType, WatchEvent


@dataclass(frozen=True, slots=True)
class Reelect:
    """Compete: at start, in a new session, and after /controller was deleted."""

    state: ClassVar = "ControllerChange"


@dataclass(frozen=True, slots=True)
class ControllerChanged:
    """/controller was created or has other data."""

    state: ClassVar = "ControllerChange"


@dataclass(frozen=True, slots=True)
class Expired:
    """The session has ended: resign before a new one starts."""

    state: ClassVar = "ControllerChange"


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """The children of /brokers/ids changed."""

    state: ClassVar = "BrokerChange"


@dataclass(frozen=True, slots=True)
class BrokerModified:
    """The registration of a broker has other data."""

    state: ClassVar = "BrokerChange"
    broker: int


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """The children of /brokers/topics changed."""

    state: ClassVar = "TopicChange"


@dataclass(frozen=True, slots=True)
class TopicModified:
    """The assignments of a topic changed."""

    state: ClassVar = "TopicChange"
    topic: str


@dataclass(frozen=True, slots=True)
class DeletionsChanged:
    """The children of /admin/delete_topics changed."""

    state: ClassVar = "TopicDeletion"


@dataclass(frozen=True, slots=True)
class LogDirEvents:
    """The children of /log_dir_event_notification changed."""

    state: ClassVar = "LogDirChange"


@dataclass(frozen=True, slots=True)
class IsrChanges:
    """The children of /isr_change_notification changed."""

    state: ClassVar = "IsrChange"


@dataclass(frozen=True, slots=True)
class ReassignmentsCreated:
    """/admin/reassign_partitions was created."""

    state: ClassVar = "AlterPartitionReassignment"


@dataclass(frozen=True, slots=True)
class ReassignedStateChanged:
    """The leader of a partition that is being reassigned has written its ISR (before KIP-497)."""

    state: ClassVar = "AlterPartitionReassignment"
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class PreferredElectionsCreated:
    """/admin/preferred_replica_election was created."""

    state: ClassVar = "ManualLeaderBalance"


@dataclass(frozen=True, slots=True)
class BalanceLeaders:
    """The periodic check for preferred leaders is due."""

    state: ClassVar = "AutoLeaderBalance"


@dataclass(frozen=True, slots=True)
class UncleanElectionEnabled:
    """Unclean elections were enabled, for a topic or by default."""

    state: ClassVar = "UncleanLeaderElectionEnable"
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class LeaderAndIsrResponded:
    """A broker responded; `errors` by partition."""

    state: ClassVar = "LeaderAndIsrResponseReceived"
    broker: int
    error: int
    errors: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class StopReplicaResponded:
    """A broker responded to a deletion; `errors` of the partitions to be deleted."""

    state: ClassVar = "TopicDeletion"
    broker: int
    error: int
    errors: Mapping[TopicPartition, int]


# Requests of brokers and clients; each is answered.


@dataclass(frozen=True, slots=True)
class AlterPartition:
    """A leader changes ISRs."""

    state: ClassVar = "IsrChange"
    request: IsrChangeRequest


@dataclass(frozen=True, slots=True)
class ControlledShutdown:
    """A broker is about to stop."""

    state: ClassVar = "ControlledShutdown"
    broker: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """A broker needs producer ids."""

    state: ClassVar = "Idle"  # Kafka gives it no state of its own
    broker: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """A client elects leaders of partitions, or of all."""

    state: ClassVar = "ManualLeaderBalance"
    partitions: Collection[TopicPartition] | None
    unclean: bool


@dataclass(frozen=True, slots=True)
class AlterReassignments:
    """A client starts or cancels reassignments."""

    state: ClassVar = "AlterPartitionReassignment"
    targets: Mapping[TopicPartition, tuple[int, ...] | None]


@dataclass(frozen=True, slots=True)
class ListReassignments:
    """A client lists reassignments of partitions, or of all."""

    state: ClassVar = "ListPartitionReassignment"
    partitions: Collection[TopicPartition] | None


RequestEvent = (
    AlterPartition
    | ControlledShutdown
    | AllocateProducerIds
    | ElectLeaders
    | AlterReassignments
    | ListReassignments
)
"""Events whose submitter is answered."""

ClusterEvent = (
    BrokersChanged
    | BrokerModified
    | TopicsChanged
    | TopicModified
    | DeletionsChanged
    | LogDirEvents
    | IsrChanges
    | ReassignmentsCreated
    | ReassignedStateChanged
    | PreferredElectionsCreated
    | BalanceLeaders
    | UncleanElectionEnabled
    | LeaderAndIsrResponded
    | StopReplicaResponded
)
"""Events that only the active controller handles."""

Event = Reelect | ControllerChanged | Expired | ClusterEvent | RequestEvent

_ON_CHILDREN: dict[str, Event] = {
    znodes.BROKER_IDS: BrokersChanged(),
    znodes.TOPICS: TopicsChanged(),
    znodes.DELETE_TOPICS: DeletionsChanged(),
    znodes.LOG_DIR_EVENTS: LogDirEvents(),
    znodes.ISR_CHANGES: IsrChanges(),
}

_ON_CREATION: dict[str, Event] = {
    znodes.CONTROLLER: ControllerChanged(),
    znodes.REASSIGN_PARTITIONS: ReassignmentsCreated(),
    znodes.PREFERRED_ELECTION: PreferredElectionsCreated(),
}


def event_of(watched: WatchEvent) -> Event | None:
    """Return the event of a watch that fired; None if the controller ignores it."""
    match watched.type:
        case EventType.NODE_CHILDREN_CHANGED:
            return _ON_CHILDREN.get(watched.path)
        case EventType.NODE_CREATED:
            return _ON_CREATION.get(watched.path)
        case EventType.NODE_DELETED:
            return Reelect() if watched.path == znodes.CONTROLLER else None
        case EventType.NODE_DATA_CHANGED:
            return _on_data(watched.path)


def _on_data(path: str) -> Event | None:
    parent, _, name = path.rpartition("/")
    at = znodes.partition_of_state(path)
    if at is not None:
        return ReassignedStateChanged(*at)
    if path == znodes.CONTROLLER:
        return ControllerChanged()
    if parent == znodes.BROKER_IDS:
        return BrokerModified(int(name))
    return TopicModified(name) if parent == znodes.TOPICS else None


class Waiting(NamedTuple):
    """An event in the queue."""

    event: Event
    queued_ms: int
    answer: Callable[[Any], None] | None = None
    """Called with the response, or a `KafkaError`; None if no one waits for it."""


class EventQueue:
    """Events in the order of their arrival; the controller handles one at a time.

    An event without parameters that waits already is not added again: its handler reads the
    present znodes, so handling it twice has no effect. Each request is added: it is answered.
    """

    def __init__(self) -> None:
        self._waiting: deque[Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, event: Event, now_ms: int, answer: Callable[[Any], None] | None = None) -> None:
        """Append an event; `answer` is called by its driver."""
        is_request = isinstance(event, RequestEvent)
        if is_request or all(each.event != event for each in self._waiting):
            self._waiting.append(Waiting(event, now_ms, answer))

    def clear_and_put(
        self, event: Event, now_ms: int, answer: Callable[[Any], None] | None = None
    ) -> list[Waiting]:
        """Replace all waiting events; return them, so that their submitters are answered."""
        preempted = list(self._waiting)
        self._waiting.clear()
        self._waiting.append(Waiting(event, now_ms, answer))
        return preempted

    def take(self) -> Waiting | None:
        """Remove and return the oldest event; None if the queue is empty."""
        return self._waiting.popleft() if self._waiting else None
