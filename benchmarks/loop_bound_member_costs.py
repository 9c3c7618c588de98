"""Costs at the bounds of work on the members of classic groups, and of their timers."""

from collections.abc import Callable, Generator
from typing import Any

from benchmarks.loop_bound_costs import Costs, spent
from benchmarks.loop_pieces import piece_times, without_collection
from sparkraft.base.ids import Millis, Offset
from sparkraft.base.steps import complete
from sparkraft.coordinator import timers
from sparkraft.coordinator.group import classic_group, rebalance
from sparkraft.coordinator.group.classic_group import ClassicGroup, subscription_topics
from sparkraft.coordinator.group.config import GroupConfig
from sparkraft.coordinator.group.decision import Peer
from sparkraft.coordinator.group.records import decode_record_in_steps, encode_record_in_steps
from sparkraft.coordinator.group.shard import GroupShard
from sparkraft.coordinator.runtime import Decision, Instant
from sparkraft.coordinator.timers import Timers
from sparkraft.metadata.image import EMPTY_IMAGE
from sparkraft.protocol.framing import encode_versioned
from sparkraft.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from sparkraft.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from sparkraft.protocol.messages.k14_sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from sparkraft.server.env import SystemEntropy

MEMBERS = 10_000
"""Of a group; `group.max.size` has no bound by default."""

TIMES = ("joins", "assignment", "record", "commit", "replay", "missing SyncGroup")


def subscription(topics: int) -> bytes:
    """Of a consumer."""
    names = [f"topic-{number:06d}" for number in range(topics)]
    return encode_versioned(ConsumerProtocolSubscription(topics=names), 3)


def assignment(first: int, count: int = 1) -> bytes:
    """Partitions of one topic."""
    partitions = list(range(first, first + count))
    topic = ConsumerProtocolAssignmentTopicPartition(topic="a-topic", partitions=partitions)
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=[topic]), 3)


def at(ms: int) -> Instant:
    """The time on both clocks."""
    return Instant(Millis(ms), Millis(ms))


class Pieces:
    """Does work of a shard, and keeps the CPU ms of each piece."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def do(self, deciding: Any) -> Any:
        """The result of a decision, or of the steps to it."""
        return piece_times(deciding, self.times) if isinstance(deciding, Generator) else deciding

    def fire(self, shard: GroupShard, now: Instant) -> None:
        """Fire the timers that are due."""
        while (wake_at := shard.wake_at) is not None and wake_at <= now.mono_ms:
            for deciding in shard.on_timers(now):
                self.do(deciding)


def joined_group() -> GroupShard:
    """A shard with one group, whose members have joined."""
    shard = GroupShard(GroupConfig(), SystemEntropy())
    shard.loaded(EMPTY_IMAGE, at(0))
    peer = Peer(client_id="consumer", client_host="/127.0.0.1", version=3)
    metadata = subscription(2)
    protocols = [
        JoinGroupRequestProtocol(name=name, metadata=metadata)
        for name in ("range", "cooperative-sticky")
    ]
    request = JoinGroupRequest(
        group_id="g", session_timeout_ms=900_000, rebalance_timeout_ms=300_000, member_id="",
        protocol_type="consumer", protocols=protocols,
    )  # fmt: skip
    for number in range(MEMBERS):
        deciding = shard.handle_join_group(request, peer, number, at(0))
        assert isinstance(deciding, Decision)
    return shard


def rebalance_pieces() -> Costs:
    """The longest pieces of a whole generation of a large group, and of the next one's failure."""
    shard = joined_group()
    steps = {name: Pieces() for name in TIMES}
    with without_collection():
        for ms in (3_000, 6_000):
            steps["joins"].fire(shard, at(ms))
        group = shard.group("g")
        assert isinstance(group, ClassicGroup)
        ids = [member.member_id for member in group.members()]
        for number, member_id in enumerate(ids[1:]):
            sync = SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id)
            complete_or_keep(shard.handle_sync_group(sync, number, at(6_000)))
        sync = SyncGroupRequest(
            group_id="g", generation_id=1, member_id=ids[0],
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment(number))
                for number, member_id in enumerate(ids)
            ],
        )  # fmt: skip
        decision = steps["assignment"].do(shard.handle_sync_group(sync, -1, at(6_000)))
        key, value = steps["record"].do(encode_record_in_steps(decision.records[0]))
        callback = decision.append_callback
        steps["commit"].do(shard.on_append_completed(callback, None, at(6_000)))
        record = steps["replay"].do(decode_record_in_steps(key, value))
        other = GroupShard(GroupConfig(), SystemEntropy())
        for _ in range(2):
            steps["replay"].do(other.replay_in_steps(Offset(0), record))
        steps["replay"].do(other.loaded(EMPTY_IMAGE, at(0)))
        silent = joined_group()
        for ms in (3_000, 6_000, 306_001):
            steps["missing SyncGroup"].fire(silent, at(ms))
    return {
        f"longest piece of {name} of {MEMBERS:,} members": max(pieces.times)
        for name, pieces in steps.items()
    }


def complete_or_keep(deciding: Any) -> Any:
    """The decision of steps that need not be measured."""
    return complete(deciding) if isinstance(deciding, Generator) else deciding


def settle_timers() -> Costs:
    """Entries of members whose sessions were all renewed."""
    count = timers.SETTLED_AT_ONCE

    def renewed() -> Timers:
        made = Timers()
        for ms in (1, 2):
            for number in range(2 * count):
                made.schedule(("heartbeat", "a-group", f"a-member-{number}"), Millis(ms))
        return made

    return {f"replace {count:,} deadlines": spent(lambda made: made.wake_at, renewed)}


def read_topics() -> Costs:
    """The topics of a subscription."""
    count = classic_group.TOPICS_AT_ONCE
    metadata = subscription(count)

    def work() -> None:
        topics = complete(subscription_topics(metadata))
        assert topics is not None
        set(topics)

    return {f"read {count:,} topics": spent(work)}


def note_owners() -> Costs:
    """The partitions of a member, and those that move."""
    count = rebalance.OWNERS_AT_ONCE
    group = ClassicGroup("g", now_ms=None)
    data = assignment(0, count)
    return {
        f"note {count:,} owners": spent(
            lambda: complete(rebalance.assignment_moves(group, {"m": data}))
        )
    }


COSTS: dict[str, Callable[[], Costs]] = {
    "coordinator.timers.SETTLED_AT_ONCE": settle_timers,
    "coordinator.group.classic_group.TOPICS_AT_ONCE": read_topics,
    "coordinator.group.rebalance.OWNERS_AT_ONCE": note_owners,
}
