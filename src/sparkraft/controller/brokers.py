"""Brokers: registration, heartbeats, fencing, controlled shutdown (KIP-631, KIP-858).

States of a broker and what ends them:
    fenced               it has read its own registration and requests to be unfenced -> unfenced
    unfenced             its session expires, or it requests to be fenced -> fenced;
                         requests to shut down and leads partitions -> controlled shutdown;
                         requests to shut down and leads none -> may stop at once
    controlled shutdown  it leads nothing, and every active broker has read that -> may stop

Broker epochs grow: each is the first offset at which the registration could be written. A broker
that shut down in a controlled way has no session, so its next incarnation may register at once.
(Kafka rejects it until the old session expires.)
"""

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Millis, Offset, Uuid
from sparkraft.controller.call import Call
from sparkraft.controller.decision import Decision, VersionedRecord
from sparkraft.controller.decision_context import OFFLINE_DIRECTORY, DecisionContext
from sparkraft.controller.leader_election import Cause, CauseKind
from sparkraft.controller.replication import (
    Changes,
    IsrRemoval,
    elect_for_returning_broker,
    leads_partitions,
    partitions_in_directory,
    partitions_with_elr_member,
    partitions_with_isr_member,
    remove_from_isrs,
)
from sparkraft.controller.steps import Steps
from sparkraft.metadata import features
from sparkraft.metadata.image import RESERVED_DIRECTORIES, BrokerRegistration, MigrationState
from sparkraft.protocol.messages import k62_broker_registration as k62
from sparkraft.protocol.messages import k63_broker_heartbeat as k63
from sparkraft.protocol.messages import k64_unregister_broker as k64
from sparkraft.protocol.messages import k70_controller_registration as k70
from sparkraft.protocol.messages.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)

FENCE = 1
UNFENCE = -1


def register_broker(
    context: DecisionContext, call: Call[k62.BrokerRegistrationRequest]
) -> Steps[Decision]:
    """Decide a BrokerRegistration request; the call's `next_offset` becomes the broker epoch."""
    request = call.request
    if request.cluster_id != context.config.cluster_id:
        wrong = (
            f"Expected cluster ID {context.config.cluster_id}, "
            f"but got cluster ID {request.cluster_id}"
        )
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, wrong)
    existing = context.image.brokers.get(request.broker_id)
    same = existing is not None and existing.incarnation_id == request.incarnation_id
    has_session = existing is not None and context.sessions.valid(
        existing.id, existing.epoch, call.now
    )
    if has_session and not same:
        wrong = "Another broker is registered with that broker id, and its session has not expired."
        raise KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, wrong)
    _check_mode(context, request)
    _check_directories(context, request)
    _check_features(context, request)
    changes = Changes(context)
    record = _registration_record(context, request)
    if same and existing is not None:
        record.fenced = existing.fenced
        record.in_controlled_shutdown = existing.in_controlled_shutdown
        record.broker_epoch = existing.epoch
    else:
        yield from _clean_up_after(changes, request, existing, call.version)
        record.broker_epoch = call.next_offset
    # The registration is last: if the controller stops before it, the broker got no epoch.
    versioned = (record, features.register_broker_version(context.metadata_level))
    return Decision(
        records=(*changes.records, versioned),
        response=k62.BrokerRegistrationResponse(broker_epoch=record.broker_epoch),
        atomic=False,
        elections=tuple(changes.elections),
    )


def _check_mode(context: DecisionContext, request: k62.BrokerRegistrationRequest) -> None:
    """Brokers in ZooKeeper mode register during a migration, others after its copy (KIP-866)."""
    wrong = ""
    if request.is_migrating_zk_broker:
        if not context.is_migrating:
            wrong = "Controller does not support registering ZK brokers."
        elif context.config.inter_broker_listener not in {e.name for e in request.listeners}:
            wrong = (
                "Broker does not have the current inter.broker.listener "
                f"{context.config.inter_broker_listener}"
            )
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, wrong)
    elif context.image.migration == MigrationState.PRE_MIGRATION:
        wrong = (
            "Controller is in pre-migration mode and cannot register KRaft brokers until the "
            "metadata migration is complete."
        )
    if wrong:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, wrong)


def _check_directories(context: DecisionContext, request: k62.BrokerRegistrationRequest) -> None:
    if not context.directories_supported:
        return
    wrong = ""
    directories = [Uuid(d) for d in request.log_dirs]
    if not directories:
        wrong = "No directories specified in request"
    elif any(int.from_bytes(d, "big") < RESERVED_DIRECTORIES for d in directories):
        wrong = "Reserved directory ID in request"
    elif len(set(directories)) != len(directories):
        wrong = "Duplicate directory ID in request"
    for broker_id in sorted(context.image.brokers):
        taken = context.image.brokers[broker_id].directories
        shared = [d for d in directories if d in taken]
        if shared and broker_id != request.broker_id and not wrong:
            wrong = f"Broker {broker_id} is already registered with directory {shared[0]}"
    if wrong:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, wrong)


def _check_features(context: DecisionContext, request: k62.BrokerRegistrationRequest) -> None:
    ranges = {f.name: (f.min_supported_version, f.max_supported_version) for f in request.features}
    if features.METADATA_VERSION not in ranges:
        wrong = "Request features do not contain 'metadata.version'"
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, wrong)
    finalized = context.image.features
    for name in sorted(set(ranges) | set(finalized)):
        if name == features.KRAFT_VERSION:
            continue  # The quorum's own; its level is not among the records.
        low, high = ranges.get(name, (0, 0))
        level = finalized.get(name, 0)
        if not low <= level <= high:
            wrong = (
                "Unable to register because the broker does not support finalized version "
                f"{level} of {name}. The broker wants a version between {low} and {high}, "
                "inclusive."
            )
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, wrong)


def _registration_record(
    context: DecisionContext, request: k62.BrokerRegistrationRequest
) -> RegisterBrokerRecord:
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        is_migrating_zk_broker=request.is_migrating_zk_broker,
        incarnation_id=request.incarnation_id,
        rack=request.rack,
        end_points=[
            BrokerEndpoint(
                name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol
            )
            for e in request.listeners
        ],
        features=[
            BrokerFeature(
                name=f.name,
                min_supported_version=f.min_supported_version,
                max_supported_version=f.max_supported_version,
            )
            for f in request.features
        ],
    )
    if context.directories_supported:
        record.log_dirs = list(request.log_dirs)
    return record


CLEAN_SHUTDOWN_VERSION = 3
"""First version of BrokerRegistration that reports a clean shutdown, by the previous epoch."""


def _clean_up_after(
    changes: Changes,
    request: k62.BrokerRegistrationRequest,
    existing: BrokerRegistration | None,
    version: int,
) -> Steps[None]:
    """Remove the previous incarnation from ISRs; after an unclean stop also from ELRs."""
    broker_id = request.broker_id
    reported = version >= CLEAN_SHUTDOWN_VERSION
    clean = reported and existing is not None and existing.epoch == request.previous_broker_epoch
    # An unregistered broker counts as unclean. That loses nothing: it is in no ISR or ELR any more.
    unclean = changes.context.elr_enabled and not clean
    how = "after an unclean stop" if unclean else "again"
    removal = IsrRemoval(broker_id, "restarted", unclean=unclean)
    cause = Cause(CauseKind.RESTARTED, f"broker {broker_id} registered {how}")
    found = yield from partitions_with_isr_member(changes.context, broker_id)
    yield from remove_from_isrs(changes, found, removal, cause=cause)
    if unclean:
        found = yield from partitions_with_elr_member(changes.context, broker_id)
        yield from remove_from_isrs(changes, found, removal, cause=cause)


def broker_heartbeat(
    context: DecisionContext, call: Call[k63.BrokerHeartbeatRequest]
) -> Steps[Decision]:
    """Decide a BrokerHeartbeat request: state changes, offline and cordoned directories."""
    request, sessions = call.request, context.sessions
    broker = context.check_broker_epoch(request.broker_id, request.broker_epoch)
    sessions.touch(broker.id, broker.epoch, call.now)
    registered_at = sessions.registered_at.get(broker.id, Offset(broker.epoch))
    caught_up = request.current_metadata_offset >= registered_at
    changes = Changes(context)
    response = k63.BrokerHeartbeatResponse(is_caught_up=caught_up)
    if broker.fenced:
        yield from _while_fenced(changes, broker, request, response)
    elif broker.in_controlled_shutdown:
        yield from _while_shutting_down(changes, broker, response)
    else:
        yield from _while_unfenced(changes, broker, request, response)
    sessions.metadata_offset[broker.id] = request.current_metadata_offset
    if context.directories_supported:
        yield from _directories_offline(changes, broker, request.offline_log_dirs)
    if context.metadata_level >= features.CORDONED_LEVEL:
        _directories_cordoned(changes, broker, request.cordoned_log_dirs)
    return Decision(
        records=tuple(changes.records),
        response=response,
        atomic=False,
        elections=tuple(changes.elections),
    )


def _while_fenced(
    changes: Changes,
    broker: BrokerRegistration,
    request: k63.BrokerHeartbeatRequest,
    response: k63.BrokerHeartbeatResponse,
) -> Steps[None]:
    response.is_fenced = True
    if request.want_shut_down:
        changes.context.sessions.end(broker.id)
        response.should_shut_down = True
    elif not request.want_fence and response.is_caught_up:
        changes.add(_registration_change(broker, fenced=UNFENCE))
        yield from elect_for_returning_broker(changes, broker.id)
        response.is_fenced = False


def _while_unfenced(
    changes: Changes,
    broker: BrokerRegistration,
    request: k63.BrokerHeartbeatRequest,
    response: k63.BrokerHeartbeatResponse,
) -> Steps[None]:
    response.is_fenced = False
    shuts_down = request.want_shut_down and not request.want_fence
    if shuts_down and (yield from leads_partitions(changes.context, broker.id)):
        changes.add(_registration_change(broker, shutting_down=True))
        found = yield from partitions_with_isr_member(changes.context, broker.id)
        yield from remove_from_isrs(
            changes,
            found,
            IsrRemoval(broker.id, "shutting down"),
            cause=Cause(CauseKind.SHUTDOWN, f"controlled shutdown of broker {broker.id}"),
        )
    elif request.want_fence or request.want_shut_down:
        yield from fence(changes, broker, cause=_fenced(f"broker {broker.id} asked to be fenced"))
        response.is_fenced = True
        if request.want_shut_down:
            changes.context.sessions.end(broker.id)
            response.should_shut_down = True


def _while_shutting_down(
    changes: Changes,
    broker: BrokerRegistration,
    response: k63.BrokerHeartbeatResponse,
) -> Steps[None]:
    response.is_fenced = False
    image, sessions = changes.context.image, changes.context.sessions
    if (yield from leads_partitions(changes.context, broker.id)):
        return
    left_at = sessions.shutdown_offset.setdefault(broker.id, image.offset)
    if left_at <= sessions.lowest_active_offset(image):
        yield from fence(changes, broker, cause=_fenced(f"broker {broker.id} has shut down"))
        changes.context.sessions.end(broker.id)
        response.is_fenced = True
        response.should_shut_down = True


def _fenced(text: str) -> Cause:
    return Cause(CauseKind.FENCED, text)


def fence(changes: Changes, broker: BrokerRegistration, *, cause: Cause) -> Steps[None]:
    """Remove a broker from every ISR, then fence it."""
    removal = IsrRemoval(broker.id, "fenced")
    found = yield from partitions_with_isr_member(changes.context, broker.id)
    yield from remove_from_isrs(changes, found, removal, cause=cause)
    changes.add(_registration_change(broker, fenced=FENCE))


def fence_one_stale(context: DecisionContext, now: Millis) -> Steps[Decision | None]:
    """Fence the broker whose session expired first; None if no session has expired.

    One broker per decision, so that the next decision sees the effects of this one.
    """
    sessions = context.sessions
    for broker_id, epoch in sessions.expired(now):
        broker = context.image.brokers.get(broker_id)
        del sessions.contact_ms[broker_id, epoch]
        if broker is None or broker.epoch != epoch or broker.fenced:
            continue
        changes = Changes(context)
        cause = _fenced(f"broker {broker_id} sent no heartbeat for {sessions.timeout_ms} ms")
        yield from fence(changes, broker, cause=cause)
        return Decision(
            records=tuple(changes.records), atomic=False, elections=tuple(changes.elections)
        )
    return None


def fence_refused(context: DecisionContext, broker_id: int) -> Steps[Decision | None]:
    """Fence a broker whose process has certainly stopped; None if it is fenced or unregistered.

    This also ends its session, so its next incarnation may register at once.
    """
    broker = context.image.brokers.get(broker_id)
    if broker is None or broker.fenced:
        return None
    context.sessions.end(broker_id)
    changes = Changes(context)
    why = f"broker {broker_id}'s connection closed and its listener refuses connections"
    yield from fence(changes, broker, cause=_fenced(why))
    return Decision(
        records=tuple(changes.records), atomic=False, elections=tuple(changes.elections)
    )


def _registration_change(
    broker: BrokerRegistration,
    *,
    fenced: int = 0,
    shutting_down: bool = False,
) -> VersionedRecord:
    record = BrokerRegistrationChangeRecord(
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        fenced=fenced,
        in_controlled_shutdown=int(shutting_down),
    )
    # As in Kafka, the lowest record version that has the fields.
    return record, 1 if shutting_down else 0


def _directories_offline(
    changes: Changes, broker: BrokerRegistration, offline: list[Uuid]
) -> Steps[None]:
    newly = [d for d in broker.directories if d in offline]
    if not newly:
        return
    for directory in newly:
        found = yield from partitions_in_directory(changes.context, broker.id, directory)
        yield from remove_from_isrs(
            changes,
            found,
            IsrRemoval(broker.id, OFFLINE_DIRECTORY),
            cause=Cause(
                CauseKind.DIRECTORY_OFFLINE,
                f"directory {directory} of broker {broker.id} went offline",
            ),
        )
    record = BrokerRegistrationChangeRecord(
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        log_dirs=[d for d in broker.directories if d not in offline],
    )
    changes.add((record, 2))


def _directories_cordoned(
    changes: Changes,
    broker: BrokerRegistration,
    cordoned: list[Uuid] | None,
) -> None:
    known = broker.cordoned_directories
    if cordoned is None or (known is not None and set(known) == set(cordoned)):
        return
    record = BrokerRegistrationChangeRecord(
        broker_id=broker.id, broker_epoch=broker.epoch, cordoned_log_dirs=list(cordoned)
    )
    level = changes.context.metadata_level
    changes.add((record, features.broker_registration_change_version(level)))


def unregister_broker(
    context: DecisionContext, call: Call[k64.UnregisterBrokerRequest]
) -> Steps[Decision]:
    """Decide an UnregisterBroker request: also remove the broker from all ISRs and ELRs."""
    request = call.request
    broker = context.image.brokers.get(request.broker_id)
    if broker is None:
        wrong = f"Broker ID {request.broker_id} is not currently registered"
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, wrong)
    changes = Changes(context)
    removal = IsrRemoval(broker.id, "unregistered", unclean=True)
    cause = Cause(CauseKind.UNREGISTERED, f"broker {broker.id} was unregistered")
    found = yield from partitions_with_isr_member(changes.context, broker.id)
    yield from remove_from_isrs(changes, found, removal, cause=cause)
    found = yield from partitions_with_elr_member(changes.context, broker.id)
    yield from remove_from_isrs(changes, found, removal, cause=cause)
    record = UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)
    return Decision(
        records=(*changes.records, (record, 0)),
        response=k64.UnregisterBrokerResponse(error_message=None),
        atomic=False,
        elections=tuple(changes.elections),
    )


def register_controller(
    context: DecisionContext, call: Call[k70.ControllerRegistrationRequest]
) -> Decision:
    """Decide a ControllerRegistration request (KIP-919)."""
    request = call.request
    if context.metadata_level < features.CONTROLLER_REGISTRATION_LEVEL:
        wrong = "The current metadata.version is too old for controller registrations."
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, wrong)
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=request.zk_migration_ready,
        end_points=[
            ControllerEndpoint(
                name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol
            )
            for e in request.listeners
        ],
        features=[
            ControllerFeature(
                name=f.name,
                min_supported_version=f.min_supported_version,
                max_supported_version=f.max_supported_version,
            )
            for f in request.features
        ],
    )
    return Decision(
        records=((record, 0),), response=k70.ControllerRegistrationResponse(error_message=None)
    )
