"""A classic group may have any number of members (`group.max.size`): its work comes in pieces."""

from collections.abc import Generator
from typing import Any

import pytest

from sparkraft.base.ids import Millis, Offset
from sparkraft.base.steps import complete
from sparkraft.coordinator.group.classic_group import TOPICS_AT_ONCE, ClassicGroup
from sparkraft.coordinator.group.config import GroupConfig
from sparkraft.coordinator.group.decision import Peer
from sparkraft.coordinator.group.journal import MOVES_MAX
from sparkraft.coordinator.group.rebalance import OWNERS_AT_ONCE
from sparkraft.coordinator.group.records import (
    GroupRecord,
    decode_record_in_steps,
    encode_record,
    encode_record_in_steps,
)
from sparkraft.coordinator.group.shard import GroupShard
from sparkraft.coordinator.group.states import GroupState
from sparkraft.coordinator.runtime import Decision, Instant
from sparkraft.coordinator.steps import PIECE_UNITS, fast
from sparkraft.coordinator.timers import SETTLED_AT_ONCE, Timers
from sparkraft.metadata.image import EMPTY_IMAGE
from sparkraft.protocol.framing import encode_versioned
from sparkraft.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from sparkraft.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from sparkraft.protocol.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from sparkraft.protocol.messages.k14_sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tests.coordinator.world import CountingEntropy

MEMBERS = 20 * PIECE_UNITS
SESSION_MS, REBALANCE_MS, INITIAL_DELAY_MS = 600_000, 300_000, 3_000
PEER = Peer(client_id="c", client_host="/127.0.0.1", version=3)


def subscription(*topics: str) -> bytes:
    return encode_versioned(ConsumerProtocolSubscription(topics=list(topics)), 3)


def assigned(*partitions: int) -> bytes:
    topic = ConsumerProtocolAssignmentTopicPartition(topic="t", partitions=list(partitions))
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=[topic]), 3)


class Shard:
    """A shard, its time, and what each piece of its last work counted."""

    def __init__(self) -> None:
        self.core = GroupShard(GroupConfig(), CountingEntropy())
        self.now_ms = 0
        self.units: list[int] = []
        self.replies: dict[int, Any] = {}
        self.result(self.core.loaded(EMPTY_IMAGE, self.now))

    @property
    def now(self) -> Instant:
        return Instant(Millis(self.now_ms), Millis(self.now_ms))

    @property
    def group(self) -> ClassicGroup:
        group = self.core.group("g")
        assert isinstance(group, ClassicGroup)
        return group

    def result(self, deciding: Any) -> Any:
        """Do the work; the result."""
        self.units = []
        while isinstance(deciding, Generator):
            try:
                self.units.append(next(deciding))
            except StopIteration as end:
                deciding = end.value
        self.replies.update(self.core.take_replies())
        return deciding

    def join(self, reply_to: int, member_id: str = "", **more: Any) -> Any:
        request = JoinGroupRequest(
            group_id="g", session_timeout_ms=SESSION_MS, rebalance_timeout_ms=REBALANCE_MS,
            member_id=member_id, protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription("t", "u"))],
            **more,
        )  # fmt: skip
        return self.result(self.core.handle_join_group(request, PEER, reply_to, self.now))

    def pass_time(self, ms: int) -> None:
        """Fire what is due then."""
        self.now_ms += ms
        units: list[int] = []
        while (wake_at := self.core.wake_at) is not None and wake_at <= self.now_ms:
            for deciding in self.core.on_timers(self.now):
                self.result(deciding)
                units += self.units
        self.units = units

    def sync(self, reply_to: int, member_id: str, **more: Any) -> Any:
        request = SyncGroupRequest(
            group_id="g", generation_id=self.group.generation_id, member_id=member_id, **more
        )
        return self.result(self.core.handle_sync_group(request, reply_to, self.now))

    def was_in_pieces(self, of: int = MEMBERS) -> None:
        """The last work was that of `of` members, in pieces."""
        assert len(self.units) >= of // PIECE_UNITS - 1
        assert max(self.units) <= PIECE_UNITS


@pytest.fixture
def shard() -> Shard:
    """All members have joined, and none has synced."""
    made = Shard()
    for number in range(MEMBERS):
        made.join(number)
    assert not made.replies
    made.pass_time(INITIAL_DELAY_MS)
    made.pass_time(INITIAL_DELAY_MS)
    made.was_in_pieces()
    assert made.group.state is GroupState.COMPLETING_REBALANCE
    return made


def sync_all(shard: Shard) -> Decision[GroupRecord, None]:
    """The leader comes last; its decision."""
    leader, *others = [one.member_id for one in shard.group.members()]
    for number, member_id in enumerate(others):
        shard.sync(number, member_id)
    assignments = [
        SyncGroupRequestAssignment(member_id=member_id, assignment=assigned(number))
        for number, member_id in enumerate([leader, *others])
    ]
    shard.replies.clear()
    decision: Decision[GroupRecord, None] = shard.sync(-1, leader, assignments=assignments)
    return decision


def appended(shard: Shard, decision: Decision[GroupRecord, None]) -> None:
    assert decision.append_callback is not None
    shard.result(shard.core.on_append_completed(decision.append_callback, None, shard.now))


def test_all_joins_are_completed_in_pieces(shard: Shard) -> None:
    assert len(shard.replies) == MEMBERS
    members = [len(one.members) for one in shard.replies.values()]
    assert sorted(members) == [0] * (MEMBERS - 1) + [MEMBERS]
    assert shard.group.subscribed_topics == {"t", "u"}
    (assignor,) = [one for one in shard.core.journal.entries() if one.kind == "assignor"]
    assert assignor.reason == f"{MEMBERS} of {MEMBERS} votes"


def test_an_assignment_is_written_committed_and_read_in_pieces(shard: Shard) -> None:
    decision = sync_all(shard)
    shard.was_in_pieces()
    (record,) = decision.records
    key, value = encode_record(record)
    assert shard.result(encode_record_in_steps(record)) == (key, value)
    shard.was_in_pieces()
    appended(shard, decision)
    shard.was_in_pieces()
    assert shard.group.state is GroupState.STABLE
    given = [(one.member_id, one.assignment) for one in shard.group.members()]
    assert [data for _, data in given] == [assigned(number) for number in range(MEMBERS)]
    assert len(shard.replies) == MEMBERS
    *_, entry = shard.core.journal.entries()
    assert (entry.kind, entry.move_count) == ("generation", MEMBERS)
    assert [move.partition for move in entry.moves] == list(range(MOVES_MAX))
    described = shard.result(shard.core.describe_group("g", 5))
    shard.was_in_pieces()
    assert [(one.member_id, one.member_assignment) for one in described.members] == given
    # Another broker reads the log and leads.
    other = Shard()
    read = complete(decode_record_in_steps(key, value))
    assert read is not None
    for _ in range(2):  # the second one replaces the group
        other.result(other.core.replay_in_steps(Offset(0), read))
        other.was_in_pieces()
    other.result(other.core.loaded(EMPTY_IMAGE, other.now))
    other.was_in_pieces()
    assert [(one.member_id, one.assignment) for one in other.group.members()] == given
    other.pass_time(SESSION_MS)
    assert len(other.group) == 0, "their sessions have expired"


def test_the_last_member_that_rejoins_completes_the_next_generation_in_pieces(
    shard: Shard,
) -> None:
    appended(shard, sync_all(shard))
    ids = [one.member_id for one in shard.group.members()]
    for number, member_id in enumerate(ids):
        shard.replies.clear()
        shard.join(number, member_id)
    shard.was_in_pieces()
    assert (shard.group.generation_id, len(shard.replies)) == (2, MEMBERS)


def test_members_that_do_not_sync_are_removed_in_pieces_with_one_other_leader(
    shard: Shard,
) -> None:
    *_, last = [one.member_id for one in shard.group.members()]
    shard.sync(-1, last)
    shard.pass_time(REBALANCE_MS)
    shard.was_in_pieces()
    assert [one.member_id for one in shard.group.members()] == [last]
    leaders = [one for one in shard.core.journal.entries() if one.kind == "leader"]
    assert [one.chosen for one in leaders] == [last], "the journal has dropped the first one"


def test_members_that_leave_together_are_removed_in_pieces(shard: Shard) -> None:
    members = [MemberIdentity(member_id=one.member_id) for one in shard.group.members()]
    request = LeaveGroupRequest(group_id="g", members=members)
    decision = shard.result(shard.core.handle_leave_group(request, shard.now))
    shard.was_in_pieces()
    assert {one.error_code for one in decision.response.members} == {0}
    assert shard.group.state is GroupState.EMPTY


def test_a_static_member_of_a_large_group_is_replaced_in_pieces(shard: Shard) -> None:
    appended(shard, sync_all(shard))
    shard.join(1, group_instance_id="i")
    ids = [one.member_id for one in shard.group.members()]
    for number, member_id in enumerate(ids[:-1]):
        shard.join(number, member_id)
    shard.group.pending_sync.clear()
    appended(shard, sync_all(shard))
    shard.join(7, group_instance_id="i")
    shard.was_in_pieces()
    assert [one.member_id for one in shard.group.members()][:-1] == ids[:-1]
    assert len(shard.group) == MEMBERS + 1


def test_a_coordinator_that_resigns_replies_in_pieces(shard: Shard) -> None:
    ids = [one.member_id for one in shard.group.members()]
    for number, member_id in enumerate(ids[1:]):
        shard.sync(number, member_id)
    shard.replies.clear()
    shard.result(shard.core.unload(shard.now))
    shard.was_in_pieces()
    assert len(shard.replies) == MEMBERS - 1


def test_a_subscription_to_many_topics_is_read_in_pieces() -> None:
    shard = Shard()
    count = 10 * TOPICS_AT_ONCE
    names = [f"t{number}" for number in range(count)]
    request = [JoinGroupRequestProtocol(name="range", metadata=subscription(*names))]
    join = JoinGroupRequest(
        group_id="g", session_timeout_ms=SESSION_MS, rebalance_timeout_ms=REBALANCE_MS,
        protocol_type="consumer", protocols=request,
    )  # fmt: skip
    shard.result(shard.core.handle_join_group(join, PEER, 1, shard.now))
    shard.pass_time(INITIAL_DELAY_MS)
    assert shard.group.subscribed_topics == set(names)
    assert len(shard.units) > 2 * 9
    member = next(shard.group.members())
    many = 10 * OWNERS_AT_ONCE
    data = assigned(*range(many))
    given = [SyncGroupRequestAssignment(member_id=member.member_id, assignment=data)]
    appended(shard, shard.sync(2, member.member_id, assignments=given))
    assert len(shard.units) > many // OWNERS_AT_ONCE
    assert max(shard.units) <= max(PIECE_UNITS, fast(OWNERS_AT_ONCE), 1 + fast(len(data)))


def test_many_obsolete_timers_are_dropped_over_several_calls() -> None:
    timers = Timers()
    count = 3 * SETTLED_AT_ONCE
    for number in range(count):
        timers.schedule(("heartbeat", str(number)), Millis(10))
    for number in range(count):
        timers.schedule(("heartbeat", str(number)), Millis(50))
    calls = 0
    while (wake_at := timers.wake_at) is not None and wake_at <= 20:
        assert timers.due(Millis(20)) is None
        calls += 1
    assert wake_at == 50
    assert calls >= 1
    found = set()
    while (wake_at := timers.wake_at) is not None and wake_at <= 50:
        while (key := timers.due(Millis(50))) is not None:
            found.add(key)
    assert len(found) == count
