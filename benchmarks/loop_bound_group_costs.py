"""Costs at the bounds of work on groups and on journals.

Of groups, the longest pieces of whole decisions and replays.
"""

# ruff: noqa: SLF001 (pieces of work are mostly private)

from collections.abc import Callable

from benchmarks.loop_bound_costs import Costs, spent
from benchmarks.loop_bound_member_costs import rebalance_pieces
from benchmarks.loop_pieces import piece_times, without_collection
from sparkraft.base.ids import Millis, Offset, Uuid
from sparkraft.coordinator import steps
from sparkraft.coordinator.group import journal
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
from sparkraft.protocol.codec import encode_element_parts
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
from sparkraft.protocol.messages.k10000_describe_elections import DescribeElectionsResponse
from sparkraft.protocol.messages.k10004_describe_group_decisions import (
    DescribeGroupDecisionsResponse,
)
from sparkraft.protocol.messages.metadata_records import PartitionRecord, TopicRecord
from sparkraft.server.api import (
    encoded_array,
    k10000_describe_elections,
    k10004_describe_group_decisions,
)
from sparkraft.server.env import SystemEntropy
from sparkraft.server.raft.election_journal import Entry

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
        **rebalance_pieces(),
    }


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


# ---- journals


def describe_elections() -> Costs:
    """Elections of the quorum with nine ballots, described and encoded."""
    ballots = tuple((voter, True, "its log is as long as ours") for voter in range(9))
    entry = Entry(at=1, kind="candidate", epoch=7, reason="no majority in time", ballots=ballots)
    count = encoded_array.NESTED_CHUNK

    def work() -> None:
        entries = [k10000_describe_elections._entry(entry) for _ in range(count)]
        encode_element_parts(DescribeElectionsResponse, 0, entries)

    return {f"describe {count} elections": spent(work)}


def describe_decision() -> Costs:
    """The largest decision about a group, noted, described and encoded."""
    count = journal.LISTED_MAX
    names = [f"member-{number}-{'x' * 36}" for number in range(count)]
    entry = journal.JournalEntry(
        at_ms=Millis(1), group_id="g", generation=1, kind="generation", reason="why",
        candidates=tuple(names), votes=dict.fromkeys(names, "range"),
        ruled_out=dict.fromkeys(names, "why"),
        moves=tuple(journal.Move("a-topic", 1, name, name) for name in names),
    )  # fmt: skip

    def work() -> None:
        described = k10004_describe_group_decisions._decision(1, journal.bounded(entry))
        encode_element_parts(DescribeGroupDecisionsResponse, 0, [described])

    return {f"describe a decision with {count} moves": spent(work)}


COSTS: dict[str, Callable[[], Costs]] = {
    "coordinator.steps.PIECE_UNITS": group_pieces,
    "coordinator.group.journal.LISTED_MAX": describe_decision,
    "server.api.encoded_array.NESTED_CHUNK": describe_elections,
}
