"""Committed offsets of all groups of a shard: hard state, changed by replay alone.

A commit inside a transaction is pending until the transaction's marker. If a partition has commits
of both kinds, the later one in the log wins.

Memory: one tuple per partition and group.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from sparkraft.base.ids import TopicPartition
from sparkraft.coordinator.runtime import NO_PRODUCER_ID
from sparkraft.coordinator.steps import Steps, pieces
from sparkraft.protocol.messages.classic_group_records import OffsetCommitKey, OffsetCommitValue


class CommittedOffset(NamedTuple):
    """A group's position in a partition.

    Attributes:
        offset: the next record to read.
        leader_epoch: of the last record read; -1 if unknown.
        commit_timestamp_ms: wall clock.
        expire_timestamp_ms: requested by clients of OffsetCommit v2-4; -1 for none.
        topic_id: zero if the commit identified the topic by name.
        record_offset: offset of the commit in `__consumer_offsets`.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    topic_id: bytes
    record_offset: int


_ByGroup = dict[str, dict[TopicPartition, CommittedOffset]]


class OffsetStore:
    """Offsets by group, topic and partition, and those pending in transactions."""

    def __init__(self) -> None:
        self._committed: _ByGroup = {}
        self._pending: dict[int, _ByGroup] = {}
        """By producer id. Invariant: holds the same commits as `_open`."""
        self._open: dict[str, dict[TopicPartition, set[int]]] = {}
        """Group → partition → producers with a pending commit. Use: require_stable, expiry."""

    @property
    def count(self) -> int:
        """How many offsets are committed."""
        return sum(map(len, self._committed.values()))

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self._committed.get(group_id, {}).get((topic, partition))

    def committed(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """The committed offsets of a group as they are now; they change with the next replay."""
        return self._committed.get(group_id, {})

    def pending(self, group_id: str) -> Collection[TopicPartition]:
        """The group's partitions with a commit in an open transaction, as they are now."""
        return self._open.get(group_id, {}).keys()

    def of_group(self, group_id: str) -> list[tuple[TopicPartition, CommittedOffset]]:
        """All committed offsets of a group, by topic and partition."""
        return sorted(self._committed.get(group_id, {}).items())

    def group_ids(self) -> list[str]:
        """Groups with a committed offset, sorted."""
        return sorted(self._committed)

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether the partition has a committed or pending offset."""
        committed = self._committed.get(group_id, {})
        return (topic, partition) in committed or self.is_pending(group_id, topic, partition)

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction holds a commit for the partition."""
        return (topic, partition) in self._open.get(group_id, {})

    def has_pending(self, group_id: str) -> bool:
        """Whether open transactions hold commits of the group."""
        return group_id in self._open

    def partitions(self, group_id: str) -> list[TopicPartition]:
        """Partitions with a committed or pending offset, sorted."""
        return sorted({*self._committed.get(group_id, {}), *self._open.get(group_id, {})})

    def all_group_ids(self) -> list[str]:
        """Groups with a committed or pending offset, sorted."""
        return sorted({*self._committed, *self._open})

    # Replay

    def replay(
        self,
        record_offset: int,
        key: OffsetCommitKey,
        value: OffsetCommitValue | None,
        producer_id: int = NO_PRODUCER_ID,
    ) -> None:
        """Apply a commit or, without a value, a tombstone."""
        topic_partition = (key.topic, key.partition)
        if value is None:
            self._remove(key.group, topic_partition)
            return
        committed = CommittedOffset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
            record_offset,
        )
        if producer_id == NO_PRODUCER_ID:
            self._committed.setdefault(key.group, {})[topic_partition] = committed
            return
        pending = self._pending.setdefault(producer_id, {}).setdefault(key.group, {})
        pending[topic_partition] = committed
        self._open.setdefault(key.group, {}).setdefault(topic_partition, set()).add(producer_id)

    def replay_end_of_transaction(self, producer_id: int, *, committed: bool) -> Steps[None]:
        """Apply a transaction marker: publish or drop the pending offsets."""
        for group_id, offsets in self._pending.pop(producer_id, {}).items():
            for piece in pieces(offsets.items()):
                for topic_partition, offset in piece:
                    self._close(group_id, topic_partition, producer_id)
                    if committed:
                        self._publish(group_id, topic_partition, offset)
                yield len(piece) >> 1
            yield 1

    def _publish(
        self, group_id: str, topic_partition: TopicPartition, offset: CommittedOffset
    ) -> None:
        current = self._committed.setdefault(group_id, {})
        before = current.get(topic_partition)
        if before is None or offset.record_offset > before.record_offset:
            current[topic_partition] = offset

    def _remove(self, group_id: str, topic_partition: TopicPartition) -> None:
        self._drop(self._committed, group_id, topic_partition)
        for producer_id in sorted(self._open.get(group_id, {}).get(topic_partition, ())):
            self._drop(self._pending[producer_id], group_id, topic_partition)
            self._close(group_id, topic_partition, producer_id)

    def _close(self, group_id: str, topic_partition: TopicPartition, producer_id: int) -> None:
        partitions = self._open.get(group_id, {})
        producers = partitions.get(topic_partition, set())
        producers.discard(producer_id)
        if not producers:
            partitions.pop(topic_partition, None)
        if not partitions:
            self._open.pop(group_id, None)

    @staticmethod
    def _drop(offsets: _ByGroup, group_id: str, topic_partition: TopicPartition) -> None:
        partitions = offsets.get(group_id, {})
        partitions.pop(topic_partition, None)
        if not partitions:
            offsets.pop(group_id, None)
