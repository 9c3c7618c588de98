"""Committed offsets of all groups of a shard: hard state, changed by replay alone.

A commit inside a transaction is pending until the transaction's marker; where commits of both
kinds meet, the one later in the log wins (G4, G6).

Memory: one tuple a partition and group.
"""

from collections.abc import Iterator
from typing import NamedTuple

from sparkraft.base.ids import TopicPartition
from sparkraft.protocol.messages.classic_group_records import OffsetCommitKey, OffsetCommitValue

NO_PRODUCER_ID = -1


class CommittedOffset(NamedTuple):
    """A group's place in a partition.

    Args:
        offset: the next record to read.
        leader_epoch: of the last record read; -1 where unknown.
        commit_timestamp_ms: wall clock.
        expire_timestamp_ms: asked for by clients of OffsetCommit v2-4; -1 for none.
        topic_id: zero where the commit named the topic.
        record_offset: where the commit stands in `__consumer_offsets`.
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
        """No offset."""
        self._committed: _ByGroup = {}
        self._pending: dict[int, _ByGroup] = {}
        self._open: dict[str, dict[TopicPartition, set[int]]] = {}

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """The committed offset, if there is one."""
        return self._committed.get(group_id, {}).get((topic, partition))

    def of_group(self, group_id: str) -> list[tuple[TopicPartition, CommittedOffset]]:
        """All committed offsets of a group, by topic and partition."""
        return sorted(self._committed.get(group_id, {}).items())

    def group_ids(self) -> list[str]:
        """Groups with a committed offset, sorted."""
        return sorted(self._committed)

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction holds a commit for the partition."""
        return (topic, partition) in self._open.get(group_id, {})

    def has_pending(self, group_id: str) -> bool:
        """Whether open transactions hold commits of the group."""
        return group_id in self._open

    def places(self, group_id: str) -> list[TopicPartition]:
        """Partitions with a committed or pending offset, sorted."""
        return sorted({*self._committed.get(group_id, {}), *self._open.get(group_id, {})})

    def places_of_topic(self, topic: str) -> Iterator[tuple[str, TopicPartition]]:
        """(group, place) of every committed or pending offset in a topic, sorted."""
        for group_id in sorted({*self._committed, *self._open}):
            for place in self.places(group_id):
                if place[0] == topic:
                    yield group_id, place

    # Replay

    def replay(
        self,
        record_offset: int,
        key: OffsetCommitKey,
        value: OffsetCommitValue | None,
        producer_id: int = NO_PRODUCER_ID,
    ) -> None:
        """Apply a commit or, without a value, a tombstone."""
        place = (key.topic, key.partition)
        if value is None:
            self._remove(key.group, place)
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
            self._committed.setdefault(key.group, {})[place] = committed
            return
        self._pending.setdefault(producer_id, {}).setdefault(key.group, {})[place] = committed
        self._open.setdefault(key.group, {}).setdefault(place, set()).add(producer_id)

    def replay_end_of_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply a transaction marker: publish or forget what is pending."""
        for group_id, offsets in self._pending.pop(producer_id, {}).items():
            for place, offset in offsets.items():
                self._close(group_id, place, producer_id)
                if not committed:
                    continue
                current = self._committed.setdefault(group_id, {})
                if place not in current or offset.record_offset > current[place].record_offset:
                    current[place] = offset

    def _remove(self, group_id: str, place: TopicPartition) -> None:
        self._drop(self._committed, group_id, place)
        for producer_id in sorted(self._open.get(group_id, {}).get(place, ())):
            self._drop(self._pending[producer_id], group_id, place)
            self._close(group_id, place, producer_id)

    def _close(self, group_id: str, place: TopicPartition, producer_id: int) -> None:
        places = self._open.get(group_id, {})
        producers = places.get(place, set())
        producers.discard(producer_id)
        if not producers:
            places.pop(place, None)
        if not places:
            self._open.pop(group_id, None)

    @staticmethod
    def _drop(offsets: _ByGroup, group_id: str, place: TopicPartition) -> None:
        places = offsets.get(group_id, {})
        places.pop(place, None)
        if not places:
            offsets.pop(group_id, None)
