"""AlterPartition: leaders change their ISR through the controller (KIP-497, KIP-841).

Rules of Kafka 3.9's processAlterPartition, for each partition the first that applies:
    * no leadership: UNKNOWN_TOPIC_OR_PARTITION
    * a partition or leader epoch above ours: NOT_CONTROLLER; this controller lags
    * a leader epoch below ours: FENCED_LEADER_EPOCH
    * the requested state is the present one: success, so that a repeated request succeeds
    * a partition epoch below ours: INVALID_UPDATE_VERSION
    * RECOVERING with more than one member, or from RECOVERED to RECOVERING: INVALID_REQUEST
    * a member that is not live: INELIGIBLE_REPLICA, up to v1 OPERATION_NOT_ATTEMPTED
    * the znode has another version: INVALID_UPDATE_VERSION

The leader epoch stays. UpdateMetadata is sent before the response, a reassignment that it completes
follows it.
"""

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import TopicPartition
from sparkraft.controller.leader_election import Cause, CauseKind
from sparkraft.metadata.partition_state import RECOVERED, RECOVERING
from sparkraft.zookeeper.controller import store
from sparkraft.zookeeper.controller.active import Active
from sparkraft.zookeeper.controller.brokers import check_broker_epoch, send_metadata
from sparkraft.zookeeper.controller.steps import Answer, ControllerMovedError, Steps
from sparkraft.zookeeper.controller.topics import complete_if_caught_up
from sparkraft.zookeeper.controller.values import IsrChangeRequest, LeaderAndIsr, Leadership

_FIRST_WITH_INELIGIBLE_REPLICA = 2

IsrResults = dict[TopicPartition, LeaderAndIsr | ErrorCode]
"""The new state of each partition, or an error."""


def alter(active: Active, request: IsrChangeRequest) -> Steps[None]:
    """Answer with `IsrResults`.

    Raises:
        KafkaError: STALE_BROKER_EPOCH.
    """
    check_broker_epoch(active, request.broker, request.broker_epoch)
    try:
        results = yield from _write(active, request)
    except ControllerMovedError as error:
        yield Answer(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
        raise
    yield Answer(results)
    for at, result in results.items():
        if at in active.context.being_reassigned and isinstance(result, LeaderAndIsr):
            yield from complete_if_caught_up(active, at)


def _write(active: Active, request: IsrChangeRequest) -> Steps[IsrResults]:
    context = active.context
    results: IsrResults = {}
    accepted: dict[TopicPartition, LeaderAndIsr] = {}
    for at, wanted in request.states.items():
        decided = _decide(active, at, wanted, request.version)
        if decided is None:
            accepted[at] = wanted
        else:
            results[at] = decided
    written = yield from store.update_states(accepted, context)
    for at, result in written.finished.items():
        results[at] = result if isinstance(result, LeaderAndIsr) else ErrorCode.UNKNOWN_SERVER_ERROR
    results |= dict.fromkeys(written.to_retry, ErrorCode.INVALID_UPDATE_VERSION)
    changed = [at for at in accepted if isinstance(results[at], LeaderAndIsr)]
    cause = Cause(CauseKind.ISR_CHANGED, f"broker {request.broker} leads it")
    for at, state in (yield from store.read_states(changed)).items():
        if isinstance(state, Leadership):
            before = context.leaderships[at].state
            active.journal.partitions.add(context, at, before, state.state, cause)
            context.leaderships[at] = state
    yield from send_metadata(active, context.live_or_shutting_down, request.states)
    return {at: results[at] for at in request.states}


def _decide(
    active: Active, at: TopicPartition, wanted: LeaderAndIsr, version: int
) -> LeaderAndIsr | ErrorCode | None:
    """Return the result without a write, or None if `wanted` has to be written."""
    leadership = active.context.leaderships.get(at)
    if leadership is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    present = leadership.state
    decided = _compare_epochs(wanted, present)
    if decided is not None:
        return decided
    if wanted.recovery_state == RECOVERING and (
        len(wanted.isr) > 1 or present.recovery_state == RECOVERED
    ):
        return ErrorCode.INVALID_REQUEST
    if set(wanted.isr) <= set(active.context.live_brokers):
        return None
    is_old = version < _FIRST_WITH_INELIGIBLE_REPLICA
    return ErrorCode.OPERATION_NOT_ATTEMPTED if is_old else ErrorCode.INELIGIBLE_REPLICA


def _compare_epochs(wanted: LeaderAndIsr, present: LeaderAndIsr) -> LeaderAndIsr | ErrorCode | None:
    """Decide by the epochs that the leader knows; None if they are the present ones."""
    is_newer = wanted.partition_epoch > present.partition_epoch
    if is_newer or wanted.leader_epoch > present.leader_epoch:
        return ErrorCode.NOT_CONTROLLER
    if wanted.leader_epoch < present.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if wanted._replace(partition_epoch=present.partition_epoch) == present:
        return present
    if wanted.partition_epoch < present.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    return None
