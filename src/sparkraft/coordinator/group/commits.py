"""Handle OffsetCommit, OffsetFetch and OffsetDelete, and expire offsets.

KIPs: 211 (expiry), 447 (require_stable), 496 (OffsetDelete), 848 (topic ids). Offsets with an
explicit expiry time (OffsetCommit v2-4) expire then. All others expire
`offsets.retention.minutes` after the group became empty or, if it never had members, after the
commit.

Not here: whether topics and partitions exist (the API files); TxnOffsetCommit
(`transactional_commits.py`).
"""

from collections.abc import Collection, Mapping

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.coordinator.group.config import GroupConfig
from sparkraft.coordinator.group.consumer_group import ConsumerGroup
from sparkraft.coordinator.group.decision import GroupDecision, Peer
from sparkraft.coordinator.group.group import Group
from sparkraft.coordinator.group.offsets import CommittedOffset, OffsetStore
from sparkraft.coordinator.group.rebalance import Rebalancer
from sparkraft.coordinator.group.records import (
    OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY,
    GroupRecord,
)
from sparkraft.coordinator.runtime import Decision, Instant
from sparkraft.coordinator.steps import Steps, fast, in_pieces, pieces
from sparkraft.protocol.messages.classic_group_records import OffsetCommitKey, OffsetCommitValue
from sparkraft.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from sparkraft.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from sparkraft.protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

_GROUP_ID_NOT_FOUND_FROM = 9
_LAST_MS = (1 << 63) - 1
_NO_EXPIRY = -1


class Commits:
    """Commits, fetches and deletions of offsets for all groups of a shard."""

    def __init__(
        self,
        config: GroupConfig,
        rebalancer: Rebalancer,
        groups: Mapping[str, Group],
        offsets: OffsetStore,
    ) -> None:
        """Read `groups` and `offsets`, which only replay changes."""
        self._config = config
        self._rebalancer = rebalancer
        self._groups = groups
        self._offsets = offsets

    # OffsetCommit

    def commit(
        self, request: OffsetCommitRequest, peer: Peer, now: Instant
    ) -> Steps[GroupDecision[OffsetCommitResponse]]:
        """Write one record for each accepted partition.

        Raises:
            KafkaError: the whole commit is rejected.
        """
        yield from self._check_commit(request, peer, now)
        records: list[GroupRecord] = []
        topics: list[OffsetCommitResponseTopic] = []
        for topic in request.topics:
            committed = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
            topics.append(committed)
            for partition in topic.partitions:
                error = ErrorCode.NONE
                if len(partition.committed_metadata or "") > self._config.offset_metadata_max_chars:
                    error = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    records.append(self._commit_record(request, topic, partition, now))
                committed.partitions.append(
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=error
                    )
                )
                yield 1
        return Decision(records=tuple(records), response=OffsetCommitResponse(topics=topics))

    def _check_commit(self, request: OffsetCommitRequest, peer: Peer, now: Instant) -> Steps[None]:
        group = self._groups.get(request.group_id)
        generation_id = request.generation_id_or_member_epoch
        if group is None:
            if generation_id < 0:
                return  # A simple group is created by its first offset commit.
            if peer.version >= _GROUP_ID_NOT_FOUND_FROM:
                raise KafkaError(
                    ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found."
                )
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        group.check_commit(
            request.member_id,
            request.group_instance_id,
            generation_id,
            now,
            version=peer.version,
        )
        if isinstance(group, ConsumerGroup):
            yield from _check_partitions(group, request, self._config.offset_metadata_max_chars)
        member = group.committing_member(request.member_id)
        if member is not None:
            self._rebalancer.schedule_session(
                request.group_id, member.member_id, now, member.session_timeout_ms
            )

    def _commit_record(
        self,
        request: OffsetCommitRequest,
        topic: OffsetCommitRequestTopic,
        partition: OffsetCommitRequestPartition,
        now: Instant,
    ) -> GroupRecord:
        expires = request.retention_time_ms != _NO_EXPIRY
        return GroupRecord(
            key=OffsetCommitKey(
                group=request.group_id, topic=topic.name, partition=partition.partition_index
            ),
            value=OffsetCommitValue(
                offset=partition.committed_offset,
                leader_epoch=partition.committed_leader_epoch,
                metadata=partition.committed_metadata or "",
                commit_timestamp=now.wall_ms,
                expire_timestamp=_expiry(request.retention_time_ms, now) if expires else _NO_EXPIRY,
                topic_id=topic.topic_id,
            ),
            value_version=OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY
            if expires
            else self._config.offset_commit_value_version,
        )

    # OffsetFetch

    def fetch(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        """Offsets of the requested partitions, or of all; -1 without a committed offset.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH for a member of a consumer group;
                ILLEGAL_GENERATION if it uses the classic protocol.
        """
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            group.check_fetch(request.member_id, request.member_epoch)
        if request.topics is None:
            topics = self._all_topics(request.group_id, require_stable=require_stable)
            return OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)
        topics = []
        for topic in request.topics:
            fetched = OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id)
            topics.append(fetched)
            for partition in topic.partition_indexes:
                found = self._offsets.get(request.group_id, topic.name, partition)
                if found is not None and _is_other_topic(found.topic_id, topic.topic_id):
                    found = None
                unstable = require_stable and self._offsets.is_pending(
                    request.group_id, topic.name, partition
                )
                fetched.partitions.append(_fetched(partition, found, unstable=unstable))
        return OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)

    def _all_topics(
        self, group_id: str, *, require_stable: bool
    ) -> list[OffsetFetchResponseTopics]:
        topics: dict[str, OffsetFetchResponseTopics] = {}
        for (topic, partition), found in self._offsets.of_group(group_id):
            fetched = topics.setdefault(topic, OffsetFetchResponseTopics(name=topic))
            unstable = require_stable and self._offsets.is_pending(group_id, topic, partition)
            fetched.partitions.append(_fetched(partition, found, unstable=unstable))
        return list(topics.values())

    # OffsetDelete

    def delete(self, request: OffsetDeleteRequest) -> Steps[GroupDecision[OffsetDeleteResponse]]:
        """Delete offsets of topics that no member is subscribed to."""
        group = self._groups.get(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
        group.check_offset_delete()
        records: list[GroupRecord] = []
        topics = []
        for topic in request.topics:
            deleted = yield from self._delete_topic(group, topic, records)
            topics.append(deleted)
        return Decision(records=tuple(records), response=OffsetDeleteResponse(topics=topics))

    def _delete_topic(
        self, group: Group, topic: OffsetDeleteRequestTopic, records: list[GroupRecord]
    ) -> Steps[OffsetDeleteResponseTopic]:
        subscribed = group.is_subscribed_to(topic.name)
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
        deleted = OffsetDeleteResponseTopic(name=topic.name)
        for piece in pieces(topic.partitions):
            for partition in piece:
                index = partition.partition_index
                if not subscribed and self._offsets.has(group.group_id, topic.name, index):
                    records.append(offset_tombstone(group.group_id, topic.name, index))
                deleted.partitions.append(
                    OffsetDeleteResponsePartition(partition_index=index, error_code=error)
                )
            yield len(piece)
        yield 1
        return deleted

    # Removal

    def delete_all(self, group_id: str) -> Steps[list[GroupRecord]]:
        """Tombstones for all offsets of a group."""
        return (
            yield from in_pieces(
                self._offsets.partitions(group_id), lambda one: offset_tombstone(group_id, *one)
            )
        )

    def delete_topics(self, topics: Collection[str]) -> Steps[list[GroupRecord]]:
        """Tombstones for all offsets of deleted topics."""
        records: list[GroupRecord] = []
        for group_id in self._offsets.all_group_ids():
            partitions = self._offsets.partitions(group_id)
            records += [offset_tombstone(group_id, *one) for one in partitions if one[0] in topics]
            yield 1 + fast(len(partitions)) * 2
        return records

    def expire(self, group: Group, now: Instant) -> Steps[tuple[list[GroupRecord], bool]]:
        """Tombstones for expired offsets, and whether no offset is left."""
        offsets = self._offsets.committed(group.group_id)
        base_ms = group.offset_expiry_base(now)
        if offsets and base_ms is None:
            return [], False
        records: list[GroupRecord] = []
        for piece in pieces(offsets.items()):
            for (topic, partition), committed in piece:
                if (
                    not group.is_subscribed_to(topic)
                    and self._has_expired(committed, base_ms, now)
                    and not self._offsets.is_pending(group.group_id, topic, partition)
                ):
                    records.append(offset_tombstone(group.group_id, topic, partition))
            yield len(piece) // 2
        empty = len(records) == len(offsets) and not self._offsets.has_pending(group.group_id)
        return records, empty

    def _has_expired(self, committed: CommittedOffset, base_ms: int | None, now: Instant) -> bool:
        if committed.expire_timestamp_ms != _NO_EXPIRY:
            return now.wall_ms >= committed.expire_timestamp_ms
        since_ms = base_ms or committed.commit_timestamp_ms
        return now.wall_ms - since_ms >= self._config.offsets_retention_ms


def _check_partitions(
    group: ConsumerGroup, request: OffsetCommitRequest, metadata_max_chars: int
) -> Steps[None]:
    """A partition that the member did not hold in its epoch fails the whole commit, as in Kafka.

    OffsetMetadataManager.commitOffset does not check one whose metadata is too long.
    """
    for topic in request.topics:
        for partition in topic.partitions:
            if len(partition.committed_metadata or "") > metadata_max_chars:
                continue
            group.check_partition(
                request.member_id,
                request.generation_id_or_member_epoch,
                topic.topic_id,
                partition.partition_index,
            )
        yield fast(len(topic.partitions))


def _expiry(retention_ms: int, now: Instant) -> int:
    """The expiry time for a requested retention, ms since 1970, at most the largest int64.

    Kafka's sum overflows to a negative number instead, so that such an offset expires at once.
    """
    return min(now.wall_ms + retention_ms, _LAST_MS)


def offset_tombstone(group_id: str, topic: str, partition: int) -> GroupRecord:
    """The record that removes a committed offset."""
    return GroupRecord(key=OffsetCommitKey(group=group_id, topic=topic, partition=partition))


def _fetched(
    partition: int, found: CommittedOffset | None, *, unstable: bool
) -> OffsetFetchResponsePartitions:
    if found is None or unstable:
        error = ErrorCode.UNSTABLE_OFFSET_COMMIT if unstable else ErrorCode.NONE
        return OffsetFetchResponsePartitions(
            partition_index=partition, committed_offset=-1, metadata="", error_code=error
        )
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=found.offset,
        committed_leader_epoch=found.leader_epoch,
        metadata=found.metadata,
    )


def _is_other_topic(committed: bytes, requested: bytes) -> bool:
    """Whether the offset was committed to a deleted topic of the same name."""
    return any(committed) and any(requested) and committed != requested
