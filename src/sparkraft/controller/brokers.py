"""Brokers: registration, heartbeats, fencing, controlled shutdown, leaving (KIP-631, KIP-858).

A broker's states and what ends them:
    fenced               it caught up with its own registration and wants to serve -> unfenced
    unfenced             no heartbeat for a session, or it asks -> fenced; shutting down with
                         leaderships -> controlled shutdown; without -> may stop at once
    controlled shutdown  its leaderships are gone and every active broker has seen that -> may stop

Broker epochs grow: each is the offset at which its registration could be written first. Sessions
are soft state: a new controller gives every unfenced broker a whole session. A broker that was let
go has none, so its next life may register at once (Kafka has it wait until the old session ends).
"""

from dataclasses import dataclass, field

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Millis, Offset, Uuid
from sparkraft.controller.cluster import OFFLINE_DIRECTORY, Cluster, ControllerConfig
from sparkraft.controller.leader_election import Occasion, Trigger
from sparkraft.controller.outcome import Outcome, VersionedRecord
from sparkraft.controller.replication import (
    Changes,
    Departure,
    elect_for_returning_broker,
    in_directory,
    in_elr,
    in_isr,
    leave_isrs,
)
from sparkraft.metadata import features
from sparkraft.metadata.image import (
    RESERVED_DIRECTORIES,
    BrokerRegistration,
    ClusterImage,
)
from sparkraft.protocol.messages import k62_broker_registration as k62
from sparkraft.protocol.messages import k63_broker_heartbeat as k63
from sparkraft.protocol.messages import k64_unregister_broker as k64
from sparkraft.protocol.messages import k67_allocate_producer_ids as k67
from sparkraft.protocol.messages import k70_controller_registration as k70
from sparkraft.protocol.messages.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)

PRODUCER_ID_BLOCK_SIZE = 1000
_PRODUCER_ID_MAX = (1 << 63) - 1

FENCE = 1
UNFENCE = -1


@dataclass(slots=True)
class Sessions:
    """When each broker was last heard of, and how far it had read the metadata.

    Soft state of the active controller: hard state never depends on it, only decisions do.
    """

    timeout_ms: int
    contact_ms: dict[tuple[int, int], Millis] = field(default_factory=dict)
    metadata_offset: dict[int, int] = field(default_factory=dict)
    registered_at: dict[int, Offset] = field(default_factory=dict)
    shutdown_offset: dict[int, int] = field(default_factory=dict)

    def activate(self, image: ClusterImage, config: ControllerConfig, now: Millis) -> None:
        """A new term: every unfenced broker has a whole session to be heard of.

        Not the broker of this very process: an earlier incarnation of it is certainly dead, and
        waiting for its session would only delay the restart.
        """
        self.contact_ms.clear()
        self.metadata_offset.clear()
        self.shutdown_offset.clear()
        for broker_id in sorted(image.brokers):
            broker = image.brokers[broker_id]
            own = config.is_broker and broker_id == config.node_id
            if not broker.fenced and not own:
                self.contact_ms[broker_id, broker.epoch] = now

    def touch(self, broker_id: int, epoch: int, now: Millis) -> None:
        """The broker was heard of."""
        self.contact_ms[broker_id, epoch] = now

    def valid(self, broker_id: int, epoch: int, now: Millis) -> bool:
        """Whether it was heard of lately."""
        last = self.contact_ms.get((broker_id, epoch))
        return last is not None and now - last <= self.timeout_ms

    def heard_of_at(self, broker_id: int, epoch: int) -> Millis | None:
        """When it was heard of last; a new controller counts as hearing of everybody."""
        return self.contact_ms.get((broker_id, epoch))

    def expired(self, now: Millis) -> list[tuple[int, int]]:
        """Brokers and epochs that were not heard of for a session, the most silent first."""
        silent = sorted(
            (last, key) for key, last in self.contact_ms.items() if now - last > self.timeout_ms
        )
        return [key for _, key in silent]

    def next_expiry(self) -> Millis | None:
        """When the next session would lapse."""
        oldest = min(self.contact_ms.values(), default=None)
        return None if oldest is None else Millis(oldest + self.timeout_ms + 1)

    def forget(self, broker_id: int) -> None:
        """Drop every session of a broker."""
        for key in [key for key in self.contact_ms if key[0] == broker_id]:
            del self.contact_ms[key]
        self.shutdown_offset.pop(broker_id, None)

    def lowest_active_offset(self, image: ClusterImage) -> int:
        """How far the slowest active broker has read the metadata; huge where there is none."""
        return min(
            (
                self.metadata_offset.get(broker_id, -1)
                for broker_id in sorted(image.brokers)
                if image.brokers[broker_id].active
            ),
            default=_PRODUCER_ID_MAX,
        )


def register_broker(
    cluster: Cluster,
    sessions: Sessions,
    request: k62.BrokerRegistrationRequest,
    *,
    next_offset: Offset,
    version: int,
    now: Millis,
) -> Outcome:
    """Decide a BrokerRegistration request; its broker epoch becomes `next_offset`."""
    if request.cluster_id != cluster.config.cluster_id:
        wrong = (
            f"Expected cluster ID {cluster.config.cluster_id}, "
            f"but got cluster ID {request.cluster_id}"
        )
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, wrong)
    existing = cluster.image.brokers.get(request.broker_id)
    same = existing is not None and existing.incarnation_id == request.incarnation_id
    alive = existing is not None and sessions.valid(existing.id, existing.epoch, now)
    if alive and not same:
        wrong = "Another broker is registered with that broker id, and its session is alive."
        raise KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, wrong)
    if request.is_migrating_zk_broker:
        wrong = "Controller does not support registering ZK brokers."
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, wrong)
    _check_directories(cluster, request)
    _check_features(cluster, request)
    changes = Changes(cluster)
    record = _registration_record(cluster, request)
    if same and existing is not None:
        record.fenced = existing.fenced
        record.in_controlled_shutdown = existing.in_controlled_shutdown
        record.broker_epoch = existing.epoch
    else:
        _clean_up_after(changes, request, existing, version)
        record.broker_epoch = next_offset
    # The registration comes last: a controller that dies before it has promised nothing.
    versioned = (record, features.register_broker_version(cluster.metadata_level))
    return Outcome(
        records=(*changes.records, versioned),
        response=k62.BrokerRegistrationResponse(broker_epoch=record.broker_epoch),
        atomic=False,
        elections=tuple(changes.elections),
    )


def _check_directories(cluster: Cluster, request: k62.BrokerRegistrationRequest) -> None:
    if not cluster.directories_supported:
        return
    wrong = ""
    directories = [Uuid(d) for d in request.log_dirs]
    if not directories:
        wrong = "No directories specified in request"
    elif any(int.from_bytes(d, "big") < RESERVED_DIRECTORIES for d in directories):
        wrong = "Reserved directory ID in request"
    elif len(set(directories)) != len(directories):
        wrong = "Duplicate directory ID in request"
    for broker_id in sorted(cluster.image.brokers):
        taken = cluster.image.brokers[broker_id].directories
        shared = [d for d in directories if d in taken]
        if shared and broker_id != request.broker_id and not wrong:
            wrong = f"Broker {broker_id} is already registered with directory {shared[0]}"
    if wrong:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, wrong)


def _check_features(cluster: Cluster, request: k62.BrokerRegistrationRequest) -> None:
    ranges = {f.name: (f.min_supported_version, f.max_supported_version) for f in request.features}
    if features.METADATA_VERSION not in ranges:
        wrong = "Request features do not contain 'metadata.version'"
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, wrong)
    finalized = cluster.image.features
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
    cluster: Cluster, request: k62.BrokerRegistrationRequest
) -> RegisterBrokerRecord:
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
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
    if cluster.directories_supported:
        record.log_dirs = list(request.log_dirs)
    return record


CLEAN_SHUTDOWN_VERSION = 3
"""From this version of BrokerRegistration on, a broker tells whether it stopped cleanly."""


def _clean_up_after(
    changes: Changes,
    request: k62.BrokerRegistrationRequest,
    existing: BrokerRegistration | None,
    version: int,
) -> None:
    """Take the earlier incarnation out of ISRs, and after an unclean stop out of ELRs (KIP-966)."""
    broker_id = request.broker_id
    told = version >= CLEAN_SHUTDOWN_VERSION
    clean = told and existing is not None and existing.epoch == request.previous_broker_epoch
    # An unknown broker can be in no ISR but that of a registration since removed: nothing to lose.
    unclean = changes.cluster.elr_enabled and not clean
    how = "after an unclean stop" if unclean else "again"
    gone = Departure(broker_id, "restarted", unclean=unclean)
    trigger = Trigger(Occasion.RESTARTED, f"broker {broker_id} registered {how}")
    leave_isrs(changes, in_isr(changes.cluster, broker_id), gone, trigger=trigger)
    if unclean:
        leave_isrs(changes, in_elr(changes.cluster, broker_id), gone, trigger=trigger)


def broker_heartbeat(
    cluster: Cluster,
    sessions: Sessions,
    request: k63.BrokerHeartbeatRequest,
    *,
    now: Millis,
) -> Outcome:
    """Decide a BrokerHeartbeat request: state changes, offline and cordoned directories."""
    broker = cluster.check_broker_epoch(request.broker_id, request.broker_epoch)
    sessions.touch(broker.id, broker.epoch, now)
    registered_at = sessions.registered_at.get(broker.id, Offset(broker.epoch))
    caught_up = request.current_metadata_offset >= registered_at
    changes = Changes(cluster)
    response = k63.BrokerHeartbeatResponse(is_caught_up=caught_up)
    if broker.fenced:
        _while_fenced(sessions, changes, broker, request, response)
    elif broker.in_controlled_shutdown:
        _while_shutting_down(sessions, changes, broker, response)
    else:
        _while_unfenced(sessions, changes, broker, request, response)
    sessions.metadata_offset[broker.id] = request.current_metadata_offset
    if cluster.directories_supported:
        _directories_offline(changes, broker, request.offline_log_dirs)
    if cluster.metadata_level >= features.CORDONED_LEVEL:
        _directories_cordoned(changes, broker, request.cordoned_log_dirs)
    return Outcome(
        records=tuple(changes.records),
        response=response,
        atomic=False,
        elections=tuple(changes.elections),
    )


def _while_fenced(
    sessions: Sessions,
    changes: Changes,
    broker: BrokerRegistration,
    request: k63.BrokerHeartbeatRequest,
    response: k63.BrokerHeartbeatResponse,
) -> None:
    response.is_fenced = True
    if request.want_shut_down:
        sessions.forget(broker.id)
        response.should_shut_down = True
    elif not request.want_fence and response.is_caught_up:
        changes.add(_registration_change(broker, fenced=UNFENCE))
        elect_for_returning_broker(changes, broker.id)
        response.is_fenced = False


def _while_unfenced(
    sessions: Sessions,
    changes: Changes,
    broker: BrokerRegistration,
    request: k63.BrokerHeartbeatRequest,
    response: k63.BrokerHeartbeatResponse,
) -> None:
    response.is_fenced = False
    leads = changes.cluster.has_leaderships(broker.id)
    if request.want_shut_down and not request.want_fence and leads:
        changes.add(_registration_change(broker, shutting_down=True))
        leave_isrs(
            changes,
            in_isr(changes.cluster, broker.id),
            Departure(broker.id, "shutting down"),
            trigger=Trigger(Occasion.SHUTDOWN, f"controlled shutdown of broker {broker.id}"),
        )
    elif request.want_fence or request.want_shut_down:
        fence(changes, broker, trigger=_fenced(f"broker {broker.id} asked to be fenced"))
        response.is_fenced = True
        if request.want_shut_down:
            sessions.forget(broker.id)
            response.should_shut_down = True


def _while_shutting_down(
    sessions: Sessions,
    changes: Changes,
    broker: BrokerRegistration,
    response: k63.BrokerHeartbeatResponse,
) -> None:
    response.is_fenced = False
    image = changes.cluster.image
    if changes.cluster.has_leaderships(broker.id):
        return
    left_at = sessions.shutdown_offset.setdefault(broker.id, image.offset)
    if left_at <= sessions.lowest_active_offset(image):
        fence(changes, broker, trigger=_fenced(f"broker {broker.id} has shut down"))
        sessions.forget(broker.id)
        response.is_fenced = True
        response.should_shut_down = True


def _fenced(text: str) -> Trigger:
    return Trigger(Occasion.FENCED, text)


def fence(changes: Changes, broker: BrokerRegistration, *, trigger: Trigger) -> None:
    """Take a broker out of every ISR, then mark it fenced."""
    gone = Departure(broker.id, "fenced")
    leave_isrs(changes, in_isr(changes.cluster, broker.id), gone, trigger=trigger)
    changes.add(_registration_change(broker, fenced=FENCE))


def fence_one_stale(cluster: Cluster, sessions: Sessions, now: Millis) -> Outcome | None:
    """Fence the broker that has been silent longest, if any has for a whole session.

    One at a time, so that the next decision sees the effects of this one.
    """
    for broker_id, epoch in sessions.expired(now):
        broker = cluster.image.brokers.get(broker_id)
        del sessions.contact_ms[broker_id, epoch]
        if broker is None or broker.epoch != epoch or broker.fenced:
            continue
        changes = Changes(cluster)
        trigger = _fenced(f"broker {broker_id} sent no heartbeat for {sessions.timeout_ms} ms")
        fence(changes, broker, trigger=trigger)
        return Outcome(
            records=tuple(changes.records), atomic=False, elections=tuple(changes.elections)
        )
    return None


def fence_refused(cluster: Cluster, sessions: Sessions, broker_id: int) -> Outcome | None:
    """Fence a broker whose process is certainly gone; None where it is fenced or unknown.

    Its session ends with it: the next life of that broker need not wait.
    """
    broker = cluster.image.brokers.get(broker_id)
    if broker is None or broker.fenced:
        return None
    sessions.forget(broker_id)
    changes = Changes(cluster)
    why = f"broker {broker_id}'s connection closed and its listener refuses connections"
    fence(changes, broker, trigger=_fenced(why))
    return Outcome(records=tuple(changes.records), atomic=False, elections=tuple(changes.elections))


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
    # Each record in the oldest version that holds its fields, as Kafka writes it.
    return record, 1 if shutting_down else 0


def _directories_offline(changes: Changes, broker: BrokerRegistration, offline: list[Uuid]) -> None:
    newly = [d for d in broker.directories if d in offline]
    if not newly:
        return
    for directory in newly:
        leave_isrs(
            changes,
            in_directory(changes.cluster, broker.id, directory),
            Departure(broker.id, OFFLINE_DIRECTORY),
            trigger=Trigger(
                Occasion.DIRECTORY_OFFLINE,
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
    level = changes.cluster.metadata_level
    changes.add((record, features.broker_registration_change_version(level)))


def unregister_broker(cluster: Cluster, request: k64.UnregisterBrokerRequest) -> Outcome:
    """Decide an UnregisterBroker request: the broker leaves every ISR and ELR, then the cluster."""
    broker = cluster.image.brokers.get(request.broker_id)
    if broker is None:
        wrong = f"Broker ID {request.broker_id} is not currently registered"
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, wrong)
    changes = Changes(cluster)
    gone = Departure(broker.id, "unregistered", unclean=True)
    trigger = Trigger(Occasion.UNREGISTERED, f"broker {broker.id} was unregistered")
    leave_isrs(changes, in_isr(changes.cluster, broker.id), gone, trigger=trigger)
    leave_isrs(changes, in_elr(changes.cluster, broker.id), gone, trigger=trigger)
    record = UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)
    return Outcome(
        records=(*changes.records, (record, 0)),
        response=k64.UnregisterBrokerResponse(error_message=None),
        atomic=False,
        elections=tuple(changes.elections),
    )


def allocate_producer_ids(cluster: Cluster, request: k67.AllocateProducerIdsRequest) -> Outcome:
    """Decide an AllocateProducerIds request: the next thousand, never given out twice."""
    cluster.check_broker_epoch(request.broker_id, request.broker_epoch)
    first = max(0, cluster.image.next_producer_id)
    if first > _PRODUCER_ID_MAX - PRODUCER_ID_BLOCK_SIZE:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been given out.")
    record = ProducerIdsRecord(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        next_producer_id=first + PRODUCER_ID_BLOCK_SIZE,
    )
    response = k67.AllocateProducerIdsResponse(
        producer_id_start=first, producer_id_len=PRODUCER_ID_BLOCK_SIZE
    )
    return Outcome(records=((record, 0),), response=response)


def register_controller(cluster: Cluster, request: k70.ControllerRegistrationRequest) -> Outcome:
    """Decide a ControllerRegistration request (KIP-919)."""
    if cluster.metadata_level < features.CONTROLLER_REGISTRATION_LEVEL:
        wrong = "The current metadata.version is too old for controller registrations."
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, wrong)
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=False,
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
    return Outcome(
        records=((record, 0),), response=k70.ControllerRegistrationResponse(error_message=None)
    )
