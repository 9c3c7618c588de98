"""Costs at the bounds of work on groups: the longest pieces of whole decisions and replays."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.loop_bound_costs import Costs, spent
from sparkraft.base.ids import Millis, Offset, Uuid
from sparkraft.coordinator import steps
from sparkraft.coordinator.group.config import GroupConfig
from sparkraft.coordinator.group.consumer_regex import matching
from sparkraft.coordinator.group.decision import Peer
from sparkraft.coordinator.group.records import (
    GroupRecord,
    decode_record_in_steps,
    encode_record_in_steps,
)
from sparkraft.coordinator.group.shard import GroupShard
from sparkraft.coordinator.runtime import Instant, MetadataDelta
from sparkraft.metadata.apply import apply
from sparkraft.metadata.image import EMPTY_IMAGE
from sparkraft.protocol.messages.classic_group_records import OffsetCommitKey, OffsetCommitValue
from sparkraft.protocol.messages.consumer_group_records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
)
from sparkraft.protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from sparkraft.protocol.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from sparkraft.protocol.messages.metadata_records import PartitionRecord, TopicRecord
from sparkraft.server.env import SystemEntropy

TOPICS = 10_000
"""Of a member that subscribes to very many."""

OFFSETS = 20_000
"""Of one group."""

GROUPS = 20_000
"""Of one shard."""


def group_pieces() -> Costs:
    """The names of one piece, and the longest pieces of whole decisions and replays."""
    count = steps.PIECE_UNITS
    names = [f"topic-of-some-length-{index}" for index in range(count)]
    return {
        f"match {count:,} names": spent(lambda: matching(".*(length|long)-[0-9]+", names)),
        f"longest piece of a join with {TOPICS:,} topics": min(longest_of_join() for _ in range(3)),
        f"longest piece of a marker for {OFFSETS:,} offsets": min(
            longest_of_marker() for _ in range(3)
        ),
        f"longest piece of new metadata for {GROUPS:,} groups": min(
            longest_of_image() for _ in range(3)
        ),
        f"longest piece of a deletion of {OFFSETS:,} offsets": min(
            longest_of_deletion() for _ in range(3)
        ),
    }


def piece_times(work: Any, times: list[float]) -> Any:
    """Add the CPU ms of each piece; the result of the work."""
    while True:
        begun = time.thread_time()
        try:
            next(work)
        except StopIteration as end:
            return end.value
        finally:
            times.append((time.thread_time() - begun) * 1000)


@contextmanager
def without_collection() -> Iterator[None]:
    """A node collects in small steps (`garbage`)."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def shard_with_offsets(producer_id: int = -1) -> GroupShard:
    """A group with many committed or pending offsets."""
    shard = GroupShard(GroupConfig(), SystemEntropy())
    for index in range(OFFSETS):
        key = OffsetCommitKey(group="g", topic="a-topic", partition=index)
        value = OffsetCommitValue(offset=index)
        record = GroupRecord(key=key, value=value, value_version=3)
        shard.replay(Offset(index), record, producer_id)
    return shard


def longest_of_marker() -> float:
    """Of the end of a transaction."""
    shard = shard_with_offsets(producer_id=1)
    times: list[float] = []
    with without_collection():
        piece_times(shard.replay_end_of_transaction(1, committed=True), times)
    return max(times)


def longest_of_image() -> float:
    """Of an image in which every topic may have changed."""
    shard = GroupShard(GroupConfig(), SystemEntropy())
    for index in range(GROUPS):
        key = ConsumerGroupMetadataKey(group_id=f"group-{index}")
        shard.replay(Offset(0), GroupRecord(key=key, value=ConsumerGroupMetadataValue(epoch=1)))
    image = EMPTY_IMAGE
    for index in range(TOPICS):
        topic_id = Uuid(index.to_bytes(16, "big"))
        image = apply(image, TopicRecord(name=f"topic-{index:05d}", topic_id=topic_id))
    times: list[float] = []
    with without_collection():
        delta = MetadataDelta(EMPTY_IMAGE, image, None)
        piece_times(shard.on_image(delta, Instant(Millis(0), Millis(0))), times)
    return max(times)


def longest_of_deletion() -> float:
    """Of OffsetDelete."""
    shard = shard_with_offsets()
    indexes = [OffsetDeleteRequestPartition(partition_index=index) for index in range(OFFSETS)]
    topic = OffsetDeleteRequestTopic(name="a-topic", partitions=indexes)
    times: list[float] = []
    with without_collection():
        request = OffsetDeleteRequest(group_id="g", topics=[topic])
        piece_times(shard.handle_offset_delete(request), times)
    return max(times)


def longest_of_join() -> float:
    """CPU ms of the longest piece in which a heartbeat is decided, encoded and replayed."""
    image = EMPTY_IMAGE
    names = [f"topic-{index:05d}" for index in range(TOPICS)]
    for index, name in enumerate(names):
        topic_id = Uuid(index.to_bytes(16, "big"))
        image = apply(image, TopicRecord(name=name, topic_id=topic_id))
        image = apply(image, PartitionRecord(topic_id=topic_id, replicas=[1], isr=[1], leader=1))
    shard = GroupShard(GroupConfig(), SystemEntropy())
    now = Instant(Millis(0), Millis(0))
    shard.loaded(image, now)
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", rebalance_timeout_ms=1, topic_partitions=[],
        subscribed_topic_names=names,
    )  # fmt: skip
    times: list[float] = []
    peer = Peer(client_id="", client_host="", version=1)
    with without_collection():
        heartbeat = shard.handle_consumer_heartbeat(request, peer, lambda _: True, now)
        for record in piece_times(heartbeat, times).records:
            key, value = piece_times(encode_record_in_steps(record), times)
            decoded = piece_times(decode_record_in_steps(key, value), times)
            piece_times(shard.replay_in_steps(Offset(0), decoded), times)
    return max(times)


COSTS: dict[str, Callable[[], Costs]] = {"coordinator.steps.PIECE_UNITS": group_pieces}
