"""Work of a group shard that grows with its groups comes in pieces (`coordinator.steps`)."""

from typing import Any

import pytest

from sparkraft.base.ids import Millis, Offset, Uuid
from sparkraft.base.steps import complete
from sparkraft.coordinator.group.consumer_group import ConsumerGroup, ResolvedRegex
from sparkraft.coordinator.group.offsets import OffsetStore
from sparkraft.coordinator.group.records import GroupRecord
from sparkraft.coordinator.group.shard import GroupShard
from sparkraft.coordinator.runtime import Instant, MetadataDelta
from sparkraft.coordinator.steps import PIECE_UNITS, Steps
from sparkraft.metadata.image import EMPTY_IMAGE
from sparkraft.protocol.messages.classic_group_records import OffsetCommitKey, OffsetCommitValue
from sparkraft.protocol.messages.consumer_group_records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
)
from sparkraft.protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from sparkraft.protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.coordinator.consumer_world import topic_id, with_topic
from tests.coordinator.world import World

NOW = Instant(Millis(0), Millis(0))
PARTITIONS = 20 * PIECE_UNITS
GROUPS = 20 * PIECE_UNITS
PRODUCER = 77


def units_of(steps: Steps[Any]) -> tuple[list[int], Any]:
    """What each piece counted, and the result."""
    found: list[int] = []
    while True:
        try:
            found.append(next(steps))
        except StopIteration as end:
            return found, end.value


def committed(shard: GroupShard, count: int, producer_id: int = -1) -> None:
    for index in range(count):
        key = OffsetCommitKey(group="g", topic="t", partition=index)
        value = OffsetCommitValue(offset=index)
        record = GroupRecord(key=key, value=value, value_version=3)
        shard.replay(Offset(index), record, producer_id)


@pytest.mark.parametrize("is_committed", [True, False])
def test_the_end_of_a_transaction_with_many_offsets_is_replayed_in_pieces(
    is_committed: bool,
) -> None:
    shard = World().shard
    committed(shard, PARTITIONS, PRODUCER)
    units, _ = units_of(shard.replay_end_of_transaction(PRODUCER, committed=is_committed))
    assert max(units) <= PIECE_UNITS
    assert len(units) > PARTITIONS // PIECE_UNITS
    assert len(shard.offsets.committed("g")) == (PARTITIONS if is_committed else 0)
    assert not shard.offsets.has_pending("g")


def test_a_large_commit_in_a_transaction_is_decided_in_pieces() -> None:
    shard = World().shard
    partitions = [
        TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=1)
        for index in range(PARTITIONS)
    ]
    request = TxnOffsetCommitRequest(
        group_id="g", topics=[TxnOffsetCommitRequestTopic(name="t", partitions=partitions)]
    )
    deciding = shard.handle_txn_offset_commit(request, {"t": topic_id("t")}, NOW)
    units, decision = units_of(deciding)  # type: ignore[arg-type]
    assert max(units) <= PIECE_UNITS
    assert sum(units) >= PARTITIONS
    assert len(decision.records) == PARTITIONS


def test_offsets_of_many_topics_are_deleted_in_pieces_without_listing_the_group_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shard = World().shard
    committed(shard, PARTITIONS)
    named = [OffsetDeleteRequestPartition(partition_index=index) for index in range(PARTITIONS)]
    request = OffsetDeleteRequest(
        group_id="g",
        topics=[OffsetDeleteRequestTopic(name=name, partitions=named) for name in ("t", "u")],
    )

    def listed(*_: Any) -> Any:
        raise AssertionError("all offsets of the group were listed")

    for name in ("partitions", "of_group"):
        monkeypatch.setattr(OffsetStore, name, listed)
    units, decision = units_of(shard.handle_offset_delete(request))
    assert max(units) <= PIECE_UNITS
    assert sum(units) >= 2 * PARTITIONS
    assert len(decision.records) == PARTITIONS


def consumer_group(shard: GroupShard, group_id: str) -> ConsumerGroup:
    key = ConsumerGroupMetadataKey(group_id=group_id)
    shard.replay(Offset(0), GroupRecord(key=key, value=ConsumerGroupMetadataValue(epoch=1)))
    group = shard.group(group_id)
    assert isinstance(group, ConsumerGroup)
    group.refresh_epoch = 1
    return group


def test_new_metadata_reaches_many_groups_in_pieces() -> None:
    shard = World().shard
    groups = [consumer_group(shard, f"g{number}") for number in range(GROUPS)]
    image = with_topic(EMPTY_IMAGE, "t", 1)
    units, decision = units_of(shard.on_image(MetadataDelta(EMPTY_IMAGE, image, None), NOW))
    assert len(units) > GROUPS // PIECE_UNITS
    assert max(units) <= PIECE_UNITS
    assert decision.records == ()
    assert all(group.refresh_epoch is None for group in groups)


def test_only_groups_that_subscribe_to_a_changed_topic_compare_their_topics_again() -> None:
    shard = World().shard
    by_name, by_pattern, other = (consumer_group(shard, one) for one in "abc")
    by_name._subscribers["t"] = 1
    by_pattern._regex_subscribers["t.*"] = 1
    by_pattern.regexes["t.*"] = ResolvedRegex(frozenset({"t"}), 1, 0)
    other._subscribers["u"] = 1
    image = with_topic(EMPTY_IMAGE, "t", 1)
    delta = MetadataDelta(EMPTY_IMAGE, image, [image.topics_by_name["t"]])
    complete(shard.on_image(delta, NOW))
    assert [one.refresh_epoch for one in (by_name, by_pattern, other)] == [None, None, 1]


def test_the_changes_of_topics_are_found_once_for_all_shards_in_pieces() -> None:
    before = after = EMPTY_IMAGE
    for number in range(3 * PIECE_UNITS):
        before = with_topic(before, f"gone-{number}", 1)
        after = with_topic(after, f"new-{number}", 1)
    delta = MetadataDelta(before, after, None)
    units, changes = units_of(delta.topics())
    assert max(units) <= PIECE_UNITS
    assert len(units) >= 6
    assert changes.has_new
    assert changes.deleted == set(before.topics_by_name) == delta.deleted_topics
    assert changes.names == {*before.topics_by_name, *after.topics_by_name}
    assert units_of(delta.topics()) == ([], changes)


def test_a_change_that_names_unknown_topics_changes_none() -> None:
    delta = MetadataDelta(EMPTY_IMAGE, EMPTY_IMAGE, [Uuid(bytes(16))])
    changes = complete(delta.topics())
    assert not changes.names
    assert not changes.deleted
    assert not changes.has_new
