"""The active controller as a pure core: `handle_*` decides, `replay` applies (D6, D7).

How a driver uses it:
    1. Committed batches of the log go through `replay_committed`, snapshots through `load`.
    2. On leadership: `activate`, whose outcome is carried out like any other.
    3. A request: `handle_x(request, now) -> Outcome`; append its records; `replay_appended` with
       the offset they got; let the response go once that offset is committed.
    4. On losing leadership: `deactivate` goes back to the stable image.

Invariant: no `handle_*` changes the image; the only other thing one may touch is `Sessions`.
"""

from collections.abc import Sequence
from typing import Any

from sparkraft.base.env import Entropy
from sparkraft.base.ids import LeaderEpoch, Millis, Offset
from sparkraft.controller import (
    activation,
    brokers,
    configs,
    feature_updates,
    reassignment,
    replication,
    topics,
)
from sparkraft.controller.cluster import Cluster, ControllerConfig
from sparkraft.controller.journal import ElectionJournal
from sparkraft.controller.leader_election import Election
from sparkraft.controller.outcome import Outcome, VersionedRecord
from sparkraft.metadata.image import ClusterImage
from sparkraft.metadata.replay import Replay
from sparkraft.protocol.messages.metadata_records import NoOpRecord, RegisterBrokerRecord


class Controller:
    """One node's controller: the images of the metadata log, and decisions on the newest."""

    def __init__(self, config: ControllerConfig, entropy: Entropy) -> None:
        """A standby that knows nothing yet."""
        self.config = config
        self.journal = ElectionJournal()
        self.sessions = brokers.Sessions(config.session_timeout_ms)
        self._entropy = entropy
        self._replay = Replay()

    @property
    def latest(self) -> ClusterImage:
        """What the next decision sees."""
        return self._replay.latest

    @property
    def stable(self) -> ClusterImage:
        """The newest committed image outside a transaction."""
        return self._replay.stable

    @property
    def cluster(self) -> Cluster:
        """The latest image with its questions."""
        return Cluster(self._replay.latest, self.config, self._entropy)

    @property
    def in_transaction(self) -> bool:
        """Whether a metadata transaction is open in the latest image."""
        return self._replay.in_transaction

    # Replaying.

    def replay_committed(
        self, records: Sequence[Any], *, base_offset: int, last_offset: int, epoch: int
    ) -> bool:
        """Replay a committed batch of another controller; whether `stable` moved."""
        self._note_registrations(records, base_offset)
        self._replay.replay_batch(records, last_offset=last_offset, epoch=epoch)
        return self._replay.commit(last_offset)

    def replay_appended(
        self,
        records: Sequence[Any],
        *,
        last_offset: int,
        epoch: int,
        elections: Sequence[Election] = (),
        wall_ms: int = 0,
    ) -> None:
        """Replay a batch of our own that was appended and is not committed yet."""
        self._note_registrations(records, last_offset - len(records) + 1)
        self._replay.replay_batch(records, last_offset=last_offset, epoch=epoch)
        for election in elections:
            self.journal.add(election, wall_ms=wall_ms, offset=last_offset, epoch=epoch)

    def commit(self, offset: int) -> bool:
        """Our own appends up to `offset` are committed; whether `stable` moved."""
        return self._replay.commit(offset)

    def load(self, image: ClusterImage) -> None:
        """Start over from a snapshot."""
        self._replay.load(image)
        self.sessions.registered_at.clear()

    def _note_registrations(self, records: Sequence[Any], base_offset: int) -> None:
        for number, record in enumerate(records):
            if type(record) is RegisterBrokerRecord:
                self.sessions.registered_at[record.broker_id] = Offset(base_offset + number)

    # Leadership.

    def activate(
        self, bootstrap: Sequence[VersionedRecord], epoch: LeaderEpoch, now: Millis
    ) -> Outcome:
        """Take over in `epoch`; the outcome's records come before any other."""
        del epoch  # The log's records carry it.
        self.sessions.activate(self.latest, self.config, now)
        return activation.activation_records(
            Cluster(self._replay.after_abort, self.config, self._entropy),
            bootstrap,
            in_transaction=self.in_transaction,
        )

    def deactivate(self) -> None:
        """Leadership is lost: what was not committed may never be."""
        self._replay.revert()
        self.sessions.contact_ms.clear()

    # Decisions. `version` is the API version of the request, where the answer depends on it.

    def handle_create_topics(self, request: Any, now: Millis, *, version: int = 7) -> Outcome:
        """CreateTopics."""
        del now, version
        return topics.create_topics(self.cluster, request)

    def handle_delete_topics(self, request: Any, now: Millis, *, version: int = 6) -> Outcome:
        """DeleteTopics."""
        del now
        return topics.delete_topics(self.cluster, request, version=version)

    def handle_create_partitions(self, request: Any, now: Millis, *, version: int = 3) -> Outcome:
        """CreatePartitions."""
        del now, version
        return topics.create_partitions(self.cluster, request)

    def handle_alter_configs(self, request: Any, now: Millis, *, version: int = 2) -> Outcome:
        """AlterConfigs, the older kind that replaces whole maps."""
        del now, version
        return configs.alter_configs(self.cluster, request)

    def handle_incremental_alter_configs(
        self, request: Any, now: Millis, *, version: int = 1
    ) -> Outcome:
        """IncrementalAlterConfigs."""
        del now, version
        return configs.incremental_alter_configs(self.cluster, request)

    def handle_update_features(self, request: Any, now: Millis, *, version: int = 2) -> Outcome:
        """UpdateFeatures."""
        del now
        return feature_updates.update_features(self.cluster, request, version=version)

    def handle_broker_registration(
        self, request: Any, now: Millis, *, version: int = 4, next_offset: int | None = None
    ) -> Outcome:
        """BrokerRegistration; `next_offset` is where the next record goes, if it is known."""
        offset = self.latest.offset + 1 if next_offset is None else next_offset
        return brokers.register_broker(
            self.cluster,
            self.sessions,
            request,
            next_offset=Offset(offset),
            version=version,
            now=now,
        )

    def handle_broker_heartbeat(self, request: Any, now: Millis, *, version: int = 2) -> Outcome:
        """BrokerHeartbeat."""
        del version
        return brokers.broker_heartbeat(self.cluster, self.sessions, request, now=now)

    def handle_unregister_broker(self, request: Any, now: Millis, *, version: int = 0) -> Outcome:
        """UnregisterBroker."""
        del now, version
        return brokers.unregister_broker(self.cluster, request)

    def handle_allocate_producer_ids(
        self, request: Any, now: Millis, *, version: int = 0
    ) -> Outcome:
        """AllocateProducerIds."""
        del now, version
        return brokers.allocate_producer_ids(self.cluster, request)

    def handle_controller_registration(
        self, request: Any, now: Millis, *, version: int = 0
    ) -> Outcome:
        """ControllerRegistration."""
        del now, version
        return brokers.register_controller(self.cluster, request)

    def handle_assign_replicas_to_dirs(
        self, request: Any, now: Millis, *, version: int = 0
    ) -> Outcome:
        """AssignReplicasToDirs."""
        del now, version
        return replication.assign_replicas_to_dirs(self.cluster, request)

    def handle_alter_partition(self, request: Any, now: Millis, *, version: int = 3) -> Outcome:
        """AlterPartition."""
        del now, version
        return replication.alter_partition(self.cluster, request)

    def handle_elect_leaders(self, request: Any, now: Millis, *, version: int = 2) -> Outcome:
        """ElectLeaders."""
        del now, version
        return replication.elect_leaders(self.cluster, request)

    def handle_alter_partition_reassignments(
        self, request: Any, now: Millis, *, version: int = 1
    ) -> Outcome:
        """AlterPartitionReassignments."""
        del now, version
        return reassignment.alter_reassignments(self.cluster, request)

    def handle_list_partition_reassignments(
        self, request: Any, now: Millis, *, version: int = 0
    ) -> Outcome:
        """ListPartitionReassignments, from the latest image."""
        del now, version
        return Outcome(response=reassignment.list_reassignments(self.cluster, request))

    # Periodic decisions.

    def fence_one_stale_broker(self, now: Millis) -> Outcome | None:
        """Fence the longest silent broker whose session lapsed; None where there is none."""
        return brokers.fence_one_stale(self.cluster, self.sessions, now)

    def fence_refused_broker(self, broker_id: int) -> Outcome | None:
        """Fence a broker whose process is certainly gone; None where it is not active."""
        return brokers.fence_refused(self.cluster, self.sessions, broker_id)

    def balance_leaders(self) -> Outcome:
        """Elect preferred leaders; the response is True where more remain."""
        return replication.balance_leaders(self.cluster)

    def elect_uncleanly_where_allowed(self) -> Outcome:
        """Elect leaders where nobody leads and losses are allowed; True where more remain."""
        return replication.elect_uncleanly_where_allowed(self.cluster)

    def no_op(self) -> Outcome:
        """A record that changes nothing and shows that the log is alive."""
        return Outcome(records=((NoOpRecord(), 0),))
