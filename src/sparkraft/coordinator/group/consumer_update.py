"""Update a member of a consumer group and its group, step by step (KIP-848).

    1. `update_subscription`  create or update the member
    2. `update_epoch`         raise the group epoch if its subscription, or a topic, changed
    3. `update_target`        compute the target, at most once per assignment interval
    4. `reconcile`            move the member's current assignment towards its target

Each step may add records. Nothing changes before they are replayed. Sessions and rebalance timeouts
are soft state: after loading, every member has a whole one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sparkraft.base.errors import KafkaError
from sparkraft.base.ids import Millis
from sparkraft.coordinator.group.config import ConsumerConfig
from sparkraft.coordinator.group.consumer_group import ConsumerGroup
from sparkraft.coordinator.group.consumer_member import (
    ConsumerMember,
    MemberState,
    Partitions,
)
from sparkraft.coordinator.group.consumer_notes import (
    HandOvers,
    about,
    noted,
    topic_name,
    with_moves,
)
from sparkraft.coordinator.group.consumer_reconciliation import Target, reconcile
from sparkraft.coordinator.group.consumer_records import (
    ResolvedRegex,
    current_record,
    group_epoch_record,
    legacy_metadata_tombstone,
    member_record,
    regex_record,
    regex_tombstone,
)
from sparkraft.coordinator.group.consumer_regex import (
    MatchingTopics,
    Resolutions,
    ResolveRegexes,
    compiled_regex,
)
from sparkraft.coordinator.group.consumer_targets import NewTarget, new_target, subscribed_ids
from sparkraft.coordinator.group.decision import NOTHING, GroupDecision, GroupNoted
from sparkraft.coordinator.group.journal import MOVES_MAX, Journal, JournalEntry, Kind, Move
from sparkraft.coordinator.group.records import GroupRecord
from sparkraft.coordinator.group.topic_hash import TopicHashes
from sparkraft.coordinator.runtime import Decision, Effect, Instant
from sparkraft.coordinator.steps import Steps, fast
from sparkraft.coordinator.timers import TimerKey, Timers
from sparkraft.metadata.image import EMPTY_IMAGE, ClusterImage, ResourceType

SESSION = "session"
REBALANCE = "rebalance"
JOIN = "classic-join"
SYNC = "classic-sync"
"""Kinds of timers, with group and member id as their owner."""

REPEAT_MS = 500
"""Before a member is fenced again whose removal could not be appended, as in Kafka."""

CONSUMER_TIMERS = frozenset({SESSION, REBALANCE, JOIN, SYNC})
"""One may outlive its group if a conversion to a consumer group could not be appended."""


@dataclass(slots=True, kw_only=True)
class MemberUpdate:
    """An update of a member while it is decided.

    Attributes:
        member: as it was; not part of the group yet if it joins.
        updated: as it will be.
        epoch: the group epoch.
        records: so far.
        subscription_changed: whether the member names other topics or another expression.
        notes: for the journal.
        topics_changed: whether that changes the topics known to be subscribed.
    """

    group: ConsumerGroup
    member: ConsumerMember
    updated: ConsumerMember
    owned: Partitions | None
    epoch: int
    records: list[GroupRecord]
    subscription_changed: bool = False
    topics_changed: bool = False
    notes: list[JournalEntry] = field(default_factory=list)


class MemberUpdates:
    """The steps, for all consumer groups of a shard."""

    def __init__(self, config: ConsumerConfig, timers: Timers, journal: Journal) -> None:
        """Share `timers` and `journal` with the shard that owns them."""
        self._journal = journal
        self._config = config
        self._timers = timers
        self._hashes = TopicHashes(EMPTY_IMAGE)
        self._resolutions = Resolutions(config.regex_refresh_interval_ms)
        self._topics_version = 0
        """Counts images with new topics."""
        self._hand_overs = HandOvers()
        self._revoking: dict[tuple[str, str], int] = {}
        """(group, member) → the epoch it has to leave within its rebalance timeout."""

    @property
    def image(self) -> ClusterImage:
        """The newest image."""
        return self._hashes.image

    def loaded(self, image: ClusterImage) -> None:
        """Start with this image."""
        self._hashes = TopicHashes(image)

    def on_image(self, image: ClusterImage, *, has_new_topics: bool) -> None:
        """Use a newer image."""
        self._hashes.set_image(image)
        self._topics_version += has_new_topics

    def advance(self, update: MemberUpdate, now: Instant) -> Steps[None]:
        """Take all steps, and restart the member's session."""
        yield from self.update_subscription(update, now)
        yield from self.update_epoch(update, now)
        target = yield from self.update_target(update, now)
        yield from self.reconcile(update, target, now)
        self.schedule_session(update.group, update.updated, now)

    # Step 1: the subscription

    def update_subscription(self, update: MemberUpdate, now: Instant) -> Steps[None]:
        member, updated = update.member, update.updated
        if updated == member:
            return
        update.records.append((yield from member_record(update.group.group_id, updated)))
        if member.member_id not in update.group:
            self.note(update, "joined", about(updated), now)
        update.topics_changed = updated.subscribed_topics != member.subscribed_topics
        if updated.subscribed_regex != member.subscribed_regex:
            self._update_regex(update)
        update.subscription_changed = (
            update.topics_changed or updated.subscribed_regex != member.subscribed_regex
        )

    def _update_regex(self, update: MemberUpdate) -> None:
        group = update.group
        before, after = update.member.subscribed_regex, update.updated.subscribed_regex
        if before in group.regexes and group.regex_subscribers(before) == 1:
            update.records.append(regex_tombstone(group.group_id, before))
        if after and not group.regex_subscribers(after):
            compiled_regex(after)
        elif not after or after in group.regexes:
            update.topics_changed = True

    def resolve_regexes(
        self, update: MemberUpdate, may_describe: Callable[[str], bool], now: Instant
    ) -> tuple[Effect, ...]:
        group = update.group
        patterns = set(group.patterns())
        if update.updated.subscribed_regex:
            patterns.add(update.updated.subscribed_regex)
        if not patterns:
            return ()
        version = self._topics_version
        if not self._resolutions.is_due(
            group.group_id,
            patterns,
            group.regexes,
            topics_version=version,
            now_ms=now.mono_ms,
        ):
            return ()
        self._resolutions.start(group.group_id, topics_version=version, now_ms=now.mono_ms)
        return (
            ResolveRegexes(
                group_id=group.group_id,
                patterns=tuple(sorted(patterns)),
                may_describe=may_describe,
            ),
        )

    def on_regexes_resolved(
        self,
        effect: ResolveRegexes,
        group: ConsumerGroup | None,
        found: MatchingTopics | KafkaError,
        now: Instant,
    ) -> Steps[GroupDecision[None]]:
        """Store the topics of expressions that are still in use; raise the epoch if they differ."""
        self._resolutions.end(effect.group_id, now.mono_ms)
        if group is None or isinstance(found, KafkaError):
            return NOTHING
        changed = {
            pattern: ResolvedRegex(topics, found.version, now.wall_ms)
            for pattern, topics in sorted(found.topics.items())
            if group.regex_subscribers(pattern)
            and (pattern not in group.regexes or group.regexes[pattern].topics != topics)
        }
        records: list[GroupRecord] = []
        for pattern, resolved in changed.items():
            records.append((yield from regex_record(group.group_id, pattern, resolved)))
        if any(changed[one].topics or one in group.regexes for one in changed):
            regexes = {**group.regexes, **changed}
            topics = yield from group.subscribed_topics(regexes=regexes)
            epoch = group.group_epoch + 1
            self._journal.epochs_raised += 1
            metadata_hash = yield from self._hashes.of_group(topics)
            records += self.epoch_records(group, epoch, metadata_hash)
            group.refresh_epoch = epoch
            reason = "a regular expression matches other topics"
            entry = noted(group.group_id, epoch, "epoch", reason, now.wall_ms)
            return Decision(
                response=None,
                records=tuple(records),
                append_callback=GroupNoted(entries=(entry,)),
            )
        return Decision(response=None, records=tuple(records))

    # Step 2: the group epoch

    def update_epoch(self, update: MemberUpdate, now: Instant) -> Steps[None]:
        group = update.group
        if not update.topics_changed and not group.needs_refresh:
            return
        topics = yield from group.subscribed_topics(update.updated)
        metadata_hash = yield from self._hashes.of_group(topics)
        if update.topics_changed or metadata_hash != group.metadata_hash:
            update.epoch = group.group_epoch + 1
            self._journal.epochs_raised += 1
            if not update.topics_changed:
                self.note(update, "epoch", "a subscribed topic changed", now)
            elif update.member.member_id in group:
                reason = f"member {update.member.member_id} changed its subscription"
                self.note(update, "epoch", reason, now)
            update.records += self.epoch_records(group, update.epoch, metadata_hash)
        group.refresh_epoch = update.epoch

    def epoch_records(
        self, group: ConsumerGroup, epoch: int, metadata_hash: int
    ) -> list[GroupRecord]:
        records = [group_epoch_record(group.group_id, epoch, metadata_hash)]
        if group.has_legacy_metadata:
            records.append(legacy_metadata_tombstone(group.group_id))
        return records

    # Step 3: the target assignment

    def update_target(self, update: MemberUpdate, now: Instant) -> Steps[Target]:
        group = update.group
        epoch, partitions = group.target_epoch, group.target_of(update.updated)
        if group.target_epoch < update.epoch and self._is_due(group, now):
            found = yield from new_target(
                group,
                update.updated,
                update.epoch,
                self.image,
                self._config.assignors,
                now.wall_ms,
            )
            update.records += found.records
            yield from self._note_target(update, found, now)
            epoch, partitions = update.epoch, found.of_member
        return Target(
            epoch=epoch,
            partitions=partitions,
            subscribed=lambda: subscribed_ids(group.topics_of(update.updated), self.image),
            is_free=group.is_free,
        )

    def _note_target(self, update: MemberUpdate, found: NewTarget, now: Instant) -> Steps[None]:
        group_id = update.group.group_id
        yield from self._hand_overs.start(group_id, found.moves, now.wall_ms)
        moves = [
            Move(topic_name(topic_id, self.image), partition, source, to)
            for topic_id, partition, source, to in found.moves[:MOVES_MAX]
        ]
        count = len(found.moves)
        reason = f"assignor {found.assignor}; {count} partitions get another owner"
        entry = noted(group_id, update.epoch, "target", reason, now.wall_ms)
        update.notes.append(with_moves(entry, moves, count, chosen=found.assignor))

    def note(self, update: MemberUpdate, kind: Kind, reason: str, now: Instant) -> None:
        """Add a journal entry about the member."""
        update.notes.append(
            noted(
                update.group.group_id,
                update.epoch,
                kind,
                reason,
                now.wall_ms,
                update.updated.member_id,
            )
        )

    def _is_due(self, group: ConsumerGroup, now: Instant) -> bool:
        """Whether the assignment interval has passed since the last target assignment."""
        interval_ms = self._config.assignment_interval_ms.of(
            self.overrides(group.group_id), "consumer.assignment.interval.ms"
        )
        return (
            not group.target_at_ms
            or not interval_ms
            or not 0 <= now.wall_ms - group.target_at_ms < interval_ms
        )

    # Step 4: the current assignment

    def reconcile(self, update: MemberUpdate, target: Target, now: Instant) -> Steps[None]:
        group, before = update.group, update.updated
        after = yield from reconcile(
            before,
            target,
            owned=update.owned,
            subscription_changed=update.subscription_changed,
        )
        if after is before:
            return
        yield fast(len(after.assigned))
        if after == before:
            return
        update.updated = after
        update.records.append((yield from current_record(group.group_id, after)))
        moves = yield from self._hand_overs.finished(
            group.group_id, before, after, self.image, now.wall_ms
        )
        if moves:
            entry = noted(
                group.group_id,
                after.member_epoch,
                "moved",
                "the previous owners released them",
                now.wall_ms,
                after.member_id,
            )
            took_ms = max(move.took_ms for move in moves)
            update.notes.append(with_moves(entry, moves, len(moves), took_ms=took_ms))
        self._limit_revocation(group, after, now)

    def _limit_revocation(self, group: ConsumerGroup, member: ConsumerMember, now: Instant) -> None:
        """Start or end the rebalance timeout of a member.

        Members of the classic protocol have those to rejoin and to send SyncGroup instead (Kafka's
        GroupMetadataManager.maybeReconcile).
        """
        if member.uses_classic_protocol:
            return
        if member.state is MemberState.UNREVOKED:
            self.schedule_revocation(group, member, now)
        else:
            self.cancel_revocation(group.group_id, member.member_id)

    def schedule_session(self, group: ConsumerGroup, member: ConsumerMember, now: Instant) -> None:
        """A member of the classic protocol chose its session timeout itself."""
        timeout_ms = self._config.session_timeout_ms.of(
            self.overrides(group.group_id), "consumer.session.timeout.ms"
        )
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        key = (SESSION, group.group_id, member.member_id)
        self._timers.schedule(key, Millis(now.mono_ms + timeout_ms))

    def schedule_revocation(
        self, group: ConsumerGroup, member: ConsumerMember, now: Instant
    ) -> None:
        self._revoking[group.group_id, member.member_id] = member.member_epoch
        key = (REBALANCE, group.group_id, member.member_id)
        self._timers.schedule(key, Millis(now.mono_ms + member.rebalance_timeout_ms))

    def cancel_revocation(self, group_id: str, member_id: str) -> None:
        self._revoking.pop((group_id, member_id), None)
        self._timers.cancel((REBALANCE, group_id, member_id))

    def expect_rejoin(self, group: ConsumerGroup, member: ConsumerMember, now: Instant) -> None:
        """A classic member was asked to rejoin: it has its rebalance timeout for that."""
        key = (JOIN, group.group_id, member.member_id)
        if not self._timers.is_scheduled(key):
            self._timers.schedule(key, Millis(now.mono_ms + member.rebalance_timeout_ms))

    def on_classic_joined(
        self, group_id: str, member_id: str, rebalance_timeout_ms: int, now: Instant
    ) -> None:
        """A classic member has joined: it has its rebalance timeout for SyncGroup."""
        self._timers.cancel((JOIN, group_id, member_id))
        self._timers.schedule(
            (SYNC, group_id, member_id), Millis(now.mono_ms + rebalance_timeout_ms)
        )

    def on_classic_synced(self, group: ConsumerGroup, member: ConsumerMember, now: Instant) -> None:
        """A classic member has its assignment."""
        self._timers.cancel((SYNC, group.group_id, member.member_id))
        self.schedule_session(group, member, now)

    @property
    def hashes(self) -> TopicHashes:
        """Of the topics in the newest image."""
        return self._hashes

    def is_revocation_late(self, group: ConsumerGroup, member_id: str) -> bool:
        """Whether the rebalance timeout that fired is of the member's present epoch."""
        epoch = self._revoking.pop((group.group_id, member_id), None)
        return epoch == group.member(member_id).member_epoch

    def repeat_timer(self, key: TimerKey, member: ConsumerMember, now: Instant) -> None:
        """Fire a timer of the member once more."""
        if key[0] == REBALANCE:
            self._revoking[key[1], key[2]] = member.member_epoch
        self._timers.schedule(key, Millis(now.mono_ms + REPEAT_MS))

    def cancel(self, group: ConsumerGroup, member_id: str) -> None:
        for kind in (SESSION, JOIN, SYNC):
            self._timers.cancel((kind, group.group_id, member_id))
        self.cancel_revocation(group.group_id, member_id)

    def forget(self, group: ConsumerGroup) -> None:
        """Cancel the timers of a group."""
        for member in group.members():
            self.cancel(group, member.member_id)
        self._resolutions.forget(group.group_id)
        self._hand_overs.forget(group.group_id)

    def overrides(self, group_id: str) -> Mapping[str, str]:
        """The dynamic configs of a group."""
        return self.image.config(ResourceType.GROUP, group_id)
