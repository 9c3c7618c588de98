"""The controller of one node: events in, decisions out (KafkaController.process).

Events of a node that is not the controller have no effect, but for those that may change that. A
guarded write that finds another epoch ends the event, and the node resigns.
"""

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.controller.leader_election import Cause, CauseKind
from sparkraft.zookeeper.controller import (
    admin,
    brokers,
    election,
    elections,
    isr,
    partitions,
    topics,
)
from sparkraft.zookeeper.controller.active import NO_CONTROLLER, Active
from sparkraft.zookeeper.controller.events import (
    AllocateProducerIds,
    AlterPartition,
    AlterReassignments,
    BalanceLeaders,
    BrokerModified,
    BrokersChanged,
    ClusterEvent,
    ControlledShutdown,
    ControllerChanged,
    DeletionsChanged,
    ElectLeaders,
    Event,
    Expired,
    IsrChanges,
    LeaderAndIsrResponded,
    ListReassignments,
    LogDirEvents,
    PreferredElectionsCreated,
    ReassignedStateChanged,
    ReassignmentsCreated,
    Reelect,
    RequestEvent,
    StopReplicaResponded,
    TopicModified,
    TopicsChanged,
    UncleanElectionEnabled,
)
from sparkraft.zookeeper.controller.reassignment import reassign_by_znode
from sparkraft.zookeeper.controller.steps import Answer, ControllerMovedError, Steps

UNCLEAN = Cause(CauseKind.UNCLEAN, "unclean elections were enabled")


class Controller:
    """Decides one event at a time; the driver executes the decision to its end.

    Attributes:
        active: the state.
        state: of the running event, for the metric ControllerState.
    """

    def __init__(self, active: Active) -> None:
        self.active = active
        self.state = "Idle"

    def handle(self, event: Event, now_ms: int) -> Steps[None]:
        """Decide an event. `now_ms` is wall-clock time."""
        self.state = event.state
        try:
            yield from self._handle(event, now_ms)
        except ControllerMovedError as error:
            self.active.batch.clear()
            yield from election.maybe_resign(self.active, str(error))
        finally:
            self.state = "Idle"

    def _handle(self, event: Event, now_ms: int) -> Steps[None]:
        active = self.active
        if isinstance(event, RequestEvent):
            yield from self._serve(event)
            return
        match event:
            case Reelect():
                yield from election.maybe_resign(active, "/controller was deleted")
                if not active.is_active:
                    yield from election.compete(active, now_ms)
            case ControllerChanged():
                yield from election.maybe_resign(active, "another controller was elected")
            case Expired():
                if active.is_active:
                    election.resign(active, "the session has expired")
                active.controller_id = NO_CONTROLLER
            case _:
                if active.is_active:
                    yield from self._handle_active(event)

    def _serve(self, event: RequestEvent) -> Steps[None]:
        """Serve a request; a node that is not the controller, or no longer, refuses it."""
        code = ErrorCode.NOT_CONTROLLER
        if isinstance(event, ControlledShutdown):
            code = ErrorCode.STALE_CONTROLLER_EPOCH
        if not self.active.is_active:
            yield Answer(KafkaError(code, f"the controller is {self.active.controller_id}"))
            return
        decision = self._serve_active(event)
        answered = False
        try:
            effect = next(decision)
            while True:
                answered |= isinstance(effect, Answer)
                effect = decision.send((yield effect))
        except StopIteration:
            return
        except KafkaError as error:
            yield Answer(error)
        except ControllerMovedError as error:
            if not answered:
                yield Answer(KafkaError(code, str(error)))
            raise

    def _serve_active(self, event: RequestEvent) -> Steps[None]:
        active = self.active
        match event:
            case AlterPartition(request=request):
                yield from isr.alter(active, request)
            case ControlledShutdown(broker=broker, broker_epoch=epoch):
                yield from admin.shut_down(active, broker, epoch)
            case AllocateProducerIds(broker=broker, broker_epoch=epoch):
                yield from admin.allocate_producer_ids(active, broker, epoch)
            case ElectLeaders(partitions=wanted, unclean=unclean):
                yield from admin.elect_leaders(active, wanted, unclean=unclean)
            case AlterReassignments(targets=targets):
                yield from admin.alter_reassignments(active, targets)
            case ListReassignments(partitions=wanted):
                yield from admin.list_reassignments(active, wanted)

    def _handle_active(self, event: ClusterEvent) -> Steps[None]:  # noqa: C901, PLR0912 (one case each)
        active = self.active
        match event:
            case BrokersChanged():
                yield from brokers.on_brokers_changed(active)
            case BrokerModified(broker=broker):
                yield from brokers.on_broker_modified(active, broker)
            case TopicsChanged():
                yield from topics.on_topics_changed(active)
            case TopicModified(topic=topic):
                yield from topics.on_topic_modified(active, topic)
            case DeletionsChanged():
                yield from topics.on_deletions_changed(active)
            case LogDirEvents():
                yield from brokers.on_log_dir_events(active)
            case IsrChanges():
                yield from topics.on_isr_changes(active)
            case ReassignedStateChanged(topic=topic, partition=partition):
                if (topic, partition) in active.context.being_reassigned:
                    yield from topics.complete_if_caught_up(active, (topic, partition))
            case ReassignmentsCreated():
                yield from reassign_by_znode(active)
            case PreferredElectionsCreated():
                yield from elections.elect_by_znode(active)
            case BalanceLeaders():
                yield from elections.balance(active)
            case UncleanElectionEnabled(topic=topic):
                yield from partitions.bring_online(active, UNCLEAN, topic and [topic])
            case LeaderAndIsrResponded(broker=broker, error=error, errors=errors):
                yield from brokers.on_leader_and_isr_response(active, broker, error, errors)
            case StopReplicaResponded(broker=broker, error=error, errors=errors):
                yield from topics.on_stop_replica_response(active, broker, error, errors)
