"""The active controller as a pure core: `decide` decides, `replay_*` changes the image.

How a driver uses it:
    1. Pass committed batches of the log to `replay_committed`, snapshots to `prepare` and `load`.
    2. On becoming leader: carry out the decision of `activate`.
    3. For a request: `decide(key, call)`, in pieces; append the decision's records;
       `replay_appended` with the offset of the last one; send the response once that offset is
       committed. Begin no other decision before that of the last request is replayed.
    4. On losing leadership: `deactivate` reverts to the stable image.

Invariant: a decision changes no image; the only state it may write is `Sessions`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from sparkraft.base.env import Entropy
from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import LeaderEpoch, Millis, Offset
from sparkraft.base.loop_work import LoopBound
from sparkraft.controller import activation, brokers, delegation_tokens, replication
from sparkraft.controller.call import Call
from sparkraft.controller.decision import Decision, VersionedRecord
from sparkraft.controller.decision_context import ControllerConfig, DecisionContext
from sparkraft.controller.decisions import DECISIONS
from sparkraft.controller.journal import ElectionJournal
from sparkraft.controller.leader_election import Election
from sparkraft.controller.sessions import Sessions
from sparkraft.controller.steps import Steps
from sparkraft.metadata.image import ClusterImage, MigrationState
from sparkraft.metadata.replay import Replay
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from sparkraft.protocol.messages.metadata_records import (
    DelegationTokenRecord,
    NoOpRecord,
    RegisterBrokerRecord,
)
from sparkraft.security.delegation_token import TokenIndex

BEFORE_MIGRATION = frozenset(
    {
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
    }
)
"""Requests that are decided before the metadata is copied (`RUNS_IN_PREMIGRATION`)."""

TOKENS_PER_ITERATION: LoopBound = 300
"""Tokens of a snapshot whose HMACs are computed in one event-loop iteration: a few milliseconds."""


class Controller:
    """One node's controller: the images of the metadata log, and decisions on the latest."""

    def __init__(self, config: ControllerConfig, entropy: Entropy) -> None:
        self.config = config
        self.journal = ElectionJournal()
        self.sessions = Sessions(config.session_timeout_ms)
        self._entropy = entropy
        self._replay = Replay()
        self._tokens = None if config.token_key is None else TokenIndex(config.token_key)

    def set_voter_ids(self, voter_ids: tuple[int, ...]) -> None:
        """Replace the ids of the quorum's voters, which UpdateFeatures checks."""
        self.config = replace(self.config, voter_ids=voter_ids)

    @property
    def latest(self) -> ClusterImage:
        """The image that the next decision reads."""
        return self._replay.latest

    @property
    def stable(self) -> ClusterImage:
        """The latest committed image outside a transaction."""
        return self._replay.stable

    @property
    def context(self) -> DecisionContext:
        """The context of decisions on the latest image."""
        return self._context(self._replay.latest)

    def _context(self, image: ClusterImage) -> DecisionContext:
        return DecisionContext(image, self.config, self._entropy, self.sessions, self._tokens)

    @property
    def in_transaction(self) -> bool:
        """Whether a metadata transaction is open in the latest image."""
        return self._replay.in_transaction

    # Replaying.

    def prepare_batch(self, records: Sequence[Any]) -> Iterator[int]:
        """Do the work of `replay_committed` or `replay_appended` in pieces, without an effect."""
        return self._replay.prepare(records)

    def replay_committed(
        self, records: Sequence[Any], *, base_offset: int, last_offset: int, epoch: int
    ) -> bool:
        """Replay a committed batch of another controller; return whether `stable` changed."""
        self._note(records, base_offset)
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
        """Replay a batch that this controller appended and that is not committed yet."""
        self._note(records, last_offset - len(records) + 1)
        self._replay.replay_batch(records, last_offset=last_offset, epoch=epoch)
        for election in elections:
            self.journal.add(election, wall_ms=wall_ms, offset=last_offset, epoch=epoch)

    def commit(self, offset: int) -> bool:
        """Commit own appends up to `offset`, inclusive; return whether `stable` changed."""
        return self._replay.commit(offset)

    def prepare(self, image: ClusterImage) -> Iterator[None]:
        """Compute what `load` needs, in pieces. Until then it has no effect."""
        if self._tokens is None:
            return
        for count, token_id in enumerate(image.delegation_tokens, 1):
            self._tokens.add(token_id)
            if not count % TOKENS_PER_ITERATION:
                yield

    def load(self, image: ClusterImage) -> None:
        """Replace all images by that of a snapshot, after `prepare`."""
        self._replay.load(image)
        self.sessions.registered_at.clear()
        if self._tokens is not None:
            self._tokens.replace(image.delegation_tokens)

    def _note(self, records: Sequence[Any], base_offset: int) -> None:
        """Remember the offsets of registrations, and the HMACs of tokens."""
        for number, record in enumerate(records):
            if type(record) is RegisterBrokerRecord:
                self.sessions.registered_at[record.broker_id] = Offset(base_offset + number)
            elif type(record) is DelegationTokenRecord and self._tokens is not None:
                self._tokens.add(record.token_id)

    # Leadership.

    def activate(
        self, bootstrap: Sequence[VersionedRecord], epoch: LeaderEpoch, now: Millis
    ) -> Decision:
        """Become active in `epoch`; carry out this decision before any other."""
        del epoch  # The log's records carry it.
        local_broker = self.config.node_id if self.config.is_broker else None
        self.sessions.activate(self.latest, now, local_broker=local_broker)
        return activation.activation_records(
            self._context(self._replay.after_abort),
            bootstrap,
            in_transaction=self.in_transaction,
        )

    def deactivate(self) -> None:
        """Stop being active: discard uncommitted changes, which may never be committed."""
        self._replay.revert()
        self.sessions.contact_ms.clear()

    # Decisions on requests.

    def decide(self, key: ApiKey, call: Call[Any]) -> Steps[Decision]:
        """Decide a request of an API in `DECISIONS` on the latest image.

        The image must stay the latest until the decision is made.

        Raises:
            KafkaError: the whole request is rejected.
        """
        if self._is_before_migration and key not in BEFORE_MIGRATION:
            wrong = "The controller is in pre-migration mode."
            raise KafkaError(ErrorCode.NOT_CONTROLLER, wrong)
        made = DECISIONS[key](self.context, call)
        return made if isinstance(made, Decision) else (yield from made)

    def track_heartbeat(self, request: BrokerHeartbeatRequest, now: Millis) -> None:
        """Renew the session of a broker whose heartbeat waits for a decision in progress.

        As Kafka does in `ClusterControlManager.trackBrokerHeartbeat`.
        """
        broker = self.latest.brokers.get(request.broker_id)
        if broker is not None and broker.epoch == request.broker_epoch:
            self.sessions.touch(broker.id, broker.epoch, now)

    @property
    def _is_before_migration(self) -> bool:
        """Whether nothing may change, because ZooKeeper's controller still rules (KIP-866)."""
        return self.latest.migration == MigrationState.PRE_MIGRATION

    # Periodic decisions.

    def fence_one_stale_broker(self, now: Millis) -> Steps[Decision | None]:
        """Fence the broker whose session expired first; None if no session has expired."""
        if self._is_before_migration:
            return None
        return (yield from brokers.fence_one_stale(self.context, now))

    def fence_refused_broker(self, broker_id: int) -> Steps[Decision | None]:
        """Fence a broker whose process has certainly stopped; None if it is fenced already."""
        if self._is_before_migration:
            return None
        return (yield from brokers.fence_refused(self.context, broker_id))

    def balance_leaders(self) -> Steps[Decision]:
        """Elect preferred leaders; the response is True if more partitions may need it."""
        if self._is_before_migration:
            return Decision(response=False)
        return (yield from replication.balance_leaders(self.context))

    def elect_uncleanly_where_allowed(self) -> Steps[Decision]:
        """Elect leaders uncleanly if allowed; the response is True if more may need it."""
        if self._is_before_migration:
            return Decision(response=False)
        return (yield from replication.elect_uncleanly_where_allowed(self.context))

    def elect_after_copy(self) -> Steps[Decision]:
        """Elect leaders of copied partitions; the response is True if more may need it."""
        return replication.elect_after_copy(self.context)

    def remove_expired_tokens(self, wall_ms: int) -> Decision:
        """Remove delegation tokens that have expired; the response is True if more may have."""
        if self._tokens is not None:
            self._tokens.maybe_forget(self.stable.delegation_tokens)
        return delegation_tokens.remove_expired_tokens(self.context, wall_ms)

    def no_op(self) -> Decision:
        """Write a record that changes nothing and shows that the controller can still write."""
        return Decision(records=((NoOpRecord(), 0),))
