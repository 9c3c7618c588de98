"""Races of consumer groups: lost responses, timeouts, replaced members and topics, conversions.

Each test plays one interleaving of heartbeats, appends and timers, and its counterpart in the other
order.
"""

from collections.abc import Callable, Generator
from typing import Any

import pytest
from immutables import Map

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.base.steps import complete
from sparkraft.coordinator.group.classic_group import ClassicGroup
from sparkraft.coordinator.group.config import ConsumerConfig
from sparkraft.coordinator.group.consumer_group import ConsumerGroup
from sparkraft.coordinator.group.consumer_member import MemberState
from sparkraft.metadata.image import ClusterImage, Topic
from sparkraft.metadata.partition_state import PartitionState
from sparkraft.protocol.messages.k11_join_group import JoinGroupResponse
from sparkraft.protocol.messages.k14_sync_group import SyncGroupResponse
from tests.coordinator.consumer_world import (
    AT_ONCE,
    Client,
    ConsumerWorld,
    topic_id,
    without_topic,
)
from tests.coordinator.test_group_migration import (
    Classic,
    check_shared,
    classic_group,
    converge,
    owned,
)

T = topic_id("t")
REBALANCE_MS = 20_000


def revoking(world: ConsumerWorld) -> tuple[Client, Client]:
    """`a` is asked to give up a partition, for which `b` waits; `a` has not confirmed it yet."""
    a, b = Client("a"), Client("b")
    world.converge(a)
    world.beat(b)
    world.beat(a)
    assert world.group.member("a").state is MemberState.UNREVOKED
    a.settle()
    return a, b


# Responses that are lost


@pytest.mark.parametrize("moves", [False, True])
def test_a_lost_response_to_the_confirmation_of_a_revocation(moves: bool) -> None:
    """The member repeats its earlier epoch with what it owns now, also to a new coordinator."""
    world = ConsumerWorld(AT_ONCE, t=2)
    a, b = revoking(world)
    before = a.epoch
    world.beat(a)
    assert world.group.member("a").member_epoch == before + 1
    a.epoch = before  # the response is lost
    if moves:
        world.reload()
    assert world.beat(a) is ErrorCode.NONE
    assert a.epoch == before + 1
    world.converge(a, b)
    assert sorted([*a.owned[T], *b.owned[T]]) == [0, 1]
    world.check(a, b)


def test_a_repeated_epoch_after_the_next_owner_has_the_partition_is_fenced() -> None:
    """ConsumerGroup.throwIfConsumerGroupMemberEpochIsInvalid: owned must be part of assigned."""
    world = ConsumerWorld(AT_ONCE, t=2)
    a, b = revoking(world)
    before, given_up = a.epoch, ({0, 1} - a.owned[T]).pop()
    world.beat(a)
    world.beat(b)
    b.settle()
    assert b.owned == {T: {given_up}}
    a.epoch, a.owned = before, {T: {0, 1}}
    assert world.beat(a) is ErrorCode.FENCED_MEMBER_EPOCH
    world.check(b)


# The rebalance timeout


@pytest.mark.parametrize("moves", [False, True])
def test_a_revocation_that_is_confirmed_right_before_its_timeout(moves: bool) -> None:
    world = ConsumerWorld(AT_ONCE, t=2)
    a, b = revoking(world)
    if moves:  # A new coordinator knows no timeout until the next heartbeat, as in Kafka.
        world.reload()
    world.now_ms += REBALANCE_MS
    assert world.beat(a) is ErrorCode.NONE
    world.pass_time(0)
    assert "a" in world.group
    world.converge(b, a)
    world.check(a, b)
    assert len(a.owned[T]) == len(b.owned[T]) == 1


def test_a_revocation_that_is_confirmed_right_after_its_timeout() -> None:
    world = ConsumerWorld(AT_ONCE, t=2)
    a, b = revoking(world)
    world.pass_time(REBALANCE_MS - 1)
    assert "a" in world.group
    world.pass_time(1)
    assert "a" not in world.group
    assert world.beat(a) is ErrorCode.UNKNOWN_MEMBER_ID
    world.converge(b)
    assert b.owned == {T: {0, 1}}
    world.converge(a, b)
    world.check(a, b)


# Static members


@pytest.mark.parametrize("moves", [False, True])
def test_a_replaced_static_member_still_sends_heartbeats(moves: bool) -> None:
    """Before its replacement it has epoch -2, below its own; later its instance has another id."""
    world = ConsumerWorld(AT_ONCE, t=4)
    a, b = Client("a1", instance_id="a"), Client("b1", instance_id="b")
    world.converge(a, b)
    epoch, owned = a.epoch, a.owned
    world.leave(a, epoch=-2)
    zombie = Client("a1", instance_id="a", epoch=epoch, owned=owned)
    assert world.beat(zombie) is ErrorCode.FENCED_MEMBER_EPOCH
    again = Client("a2", instance_id="a")
    assert world.beat(again) is ErrorCode.NONE
    again.settle()
    if moves:
        world.reload()
    for late in (-1, -2):
        zombie = Client("a1", instance_id="a", epoch=epoch, owned=owned)
        assert world.beat(zombie) is ErrorCode.FENCED_INSTANCE_ID
        assert world.leave(zombie, epoch=late) is ErrorCode.FENCED_INSTANCE_ID
    assert world.beat(Client("a1", epoch=epoch)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert again.owned == owned
    world.check(again, b)


def test_a_session_of_a_replaced_static_member_fences_nobody() -> None:
    world = ConsumerWorld(AT_ONCE, t=2)
    a = Client("a1", instance_id="a")
    world.converge(a)
    world.pass_time(30_000)
    world.leave(a, epoch=-2)
    again = Client("a2", instance_id="a")
    world.beat(again)
    again.settle()
    world.pass_time(20_000)
    assert world.beat(again) is ErrorCode.NONE
    assert again.owned == {T: {0, 1}}
    world.check(again)


# Topics


def created_again(image: ClusterImage, name: str, number: int, partitions: int) -> ClusterImage:
    """The image with another topic of that name."""
    if name in image.topics_by_name:
        image = without_topic(image, name)
    states = {
        index: PartitionState((1,), (1,), (), (), 1, 0, 0, (Uuid.ZERO,), (), (), 0)
        for index in range(partitions)
    }
    topic = Topic(name, Uuid(bytes([number]) * 16), Map(states))
    return image._replace(
        topics_by_id=image.topics_by_id.set(topic.id, topic),
        topics_by_name=image.topics_by_name.set(name, topic.id),
    )


@pytest.mark.parametrize("seen_missing", [False, True])
def test_a_topic_is_created_again_while_its_partitions_move(seen_missing: bool) -> None:
    """Targets name topic ids, so partitions of the deleted topic are given to no member."""
    world = ConsumerWorld(AT_ONCE, t=2)
    a, b = revoking(world)
    if seen_missing:
        world.set_image(without_topic(world.image, "t"))
    world.set_image(created_again(world.image, "t", 9, 3))
    world.beat(b)
    assert T not in b.wanted
    world.converge(a, b)
    assert set(a.owned) == set(b.owned) == {Uuid(bytes([9]) * 16)}
    assert sorted(one for client in (a, b) for one in next(iter(client.owned.values()))) == [
        0,
        1,
        2,
    ]
    world.check(a, b)
    world.reload()
    world.converge(a, b)
    world.check(a, b)


@pytest.mark.parametrize("ends", ["leaves", "is deleted", "subscribes to another"])
def test_a_regular_expression_is_resolved_after_its_last_subscriber_is_gone(ends: str) -> None:
    """The result of the expression is dropped; that of the next one counts."""
    world = ConsumerWorld(AT_ONCE, t=2, u=1)
    a = Client("a", topics=(), regex="t")
    world.beat(a)
    assert world.effects
    if ends == "subscribes to another":
        a.regex = "u"
        world.beat(a, full=True)
    else:
        world.leave(a)
    if ends == "is deleted":
        world.do(world.shard.handle_delete_group("g", world.now))
    before = len(world.log)
    world.resolve()
    assert len(world.log) == before
    if ends == "is deleted":
        assert world.shard.group_ids() == []
        return
    assert world.group.regexes == {}
    world.pass_time(10_001)
    world.converge(a)
    world.resolve()
    world.converge(a)
    assert set(world.group.regexes) == {a.regex}
    assert set(a.owned) == {topic_id(str(a.regex))}
    world.check(a)


# Conversions


class Recorded(Classic):
    """A classic consumer whose responses are kept; it may leave out SyncGroup."""

    def __init__(self, world: ConsumerWorld, name: str) -> None:
        super().__init__(world, name)
        self.syncs = True
        self.joined: list[ErrorCode] = []
        self.synced: list[ErrorCode] = []

    def on_join(self, response: JoinGroupResponse) -> None:
        self.joined.append(ErrorCode(response.error_code))
        super().on_join(response)

    def sync(self, joined: JoinGroupResponse) -> None:
        if self.syncs:
            super().sync(joined)

    def on_sync(self, response: SyncGroupResponse) -> None:
        self.synced.append(ErrorCode(response.error_code))
        super().on_sync(response)


@pytest.mark.parametrize("parked", ["join", "sync"])
def test_a_classic_member_waits_for_a_response_while_the_group_is_upgraded(parked: str) -> None:
    """GroupMetadataManager.convertToConsumerGroup completes joins and syncs with an error.

    Members keep the assignment of their last generation, also in the next one (K14).
    """
    world = ConsumerWorld(AT_ONCE, t=4)
    members = [Recorded(world, name) for name in ("a", "b")]
    for one in members:
        one.join()
    world.pass_time(10_000)
    converge(world, *members)
    check_shared(*members)
    leader, follower = sorted(members, key=lambda one: not one.leads)
    held = {one.member_id: owned(one) for one in members}
    leader.syncs = False
    for one in members:
        one.joined, one.synced = [], []
    leader.join()
    if parked == "sync":
        assert follower.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert (follower.synced, leader.synced) == ([], [])
    before = len(leader.joined)
    c = Client("c")
    assert world.beat(c) is ErrorCode.NONE
    world.send_replies()
    refused = [ErrorCode.REBALANCE_IN_PROGRESS]
    if parked == "sync":
        assert (follower.synced, leader.joined[before:]) == (refused, [])
    else:
        assert (follower.synced, leader.joined[before:]) == ([], refused)
    for member_id, partitions in held.items():
        assert set(world.group.member(member_id).assigned[T]) == partitions
    leader.syncs = True
    converge(world, leader, follower, c)
    check_shared(leader, follower, c)
    world.check(c)


def test_a_member_with_an_expression_upgrades_a_group_before_its_first_generation() -> None:
    """Its epoch is 0, like that of the group: no current assignment is written for it (seed 123).

    The group leaves the epoch once the regular expression is resolved.
    """
    world = ConsumerWorld(AT_ONCE, t=4)
    a = Recorded(world, "a")
    a.join()
    c = Client("c", topics=(), regex="t")
    assert world.beat(c) is ErrorCode.NONE
    world.send_replies()
    assert (world.group.group_epoch, world.group.target_epoch, c.epoch) == (0, 0, 0)
    assert c.member_id in world.group
    world.check(c)
    world.resolve()
    converge(world, a, c)
    check_shared(a, c)
    world.check(c)


@pytest.mark.parametrize("moves", [False, True])
def test_the_leaders_sync_is_being_appended_while_the_group_is_upgraded(moves: bool) -> None:
    """Its assignment was given to no member: the consumer group starts without it."""
    world = ConsumerWorld(AT_ONCE, t=4)
    a = Classic(world, "a")
    a.join()
    world.hold = True
    world.pass_time(10_000)  # completes the join, and `a` syncs
    assert (a.last_error, a.owned) == (ErrorCode.NONE, set())
    c = Client("c")
    assert world.beat(c) is ErrorCode.NONE
    if moves:
        world.reload()
        world.hold = False
    else:
        world.commit_held()
        assert a.last_error is ErrorCode.REBALANCE_IN_PROGRESS
    assert isinstance(world.shard.group("g"), ConsumerGroup)
    assert world.group.member(a.member_id).assigned == {}
    converge(world, a, c)
    check_shared(a, c)
    world.check(c)


def empty_classic_group(world: ConsumerWorld) -> None:
    (a,) = classic_group(world, "a")
    a.leave()
    world.pass_time(10_000)
    group = world.shard.group("g")
    assert isinstance(group, ClassicGroup)
    assert group.is_empty(world.now)


def empty_consumer_group(world: ConsumerWorld) -> None:
    a = Client("a")
    world.converge(a)
    world.leave(a)
    assert len(world.group) == 0


def join_consumer(world: ConsumerWorld) -> ErrorCode:
    return world.beat(Client("c"))


def join_classic(world: ConsumerWorld) -> ErrorCode:
    try:
        Classic(world, "c").join()
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


@pytest.mark.parametrize(
    ("prepare", "join", "type_"),
    [
        (empty_classic_group, join_consumer, ConsumerGroup),
        (empty_consumer_group, join_classic, ClassicGroup),
    ],
)
def test_a_group_id_changes_its_type_in_one_batch(
    prepare: Callable[[ConsumerWorld], None],
    join: Callable[[ConsumerWorld], ErrorCode],
    type_: type,
) -> None:
    """K13: tombstones and new records are one decision; without its append the old group stays."""
    world = ConsumerWorld(AT_ONCE, t=4)
    prepare(world)
    before = type(world.shard.group("g"))
    world.fail_next = ErrorCode.NOT_ENOUGH_REPLICAS
    assert join(world) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert type(world.shard.group("g")) is before
    at = len(world.log)
    decisions: list[int] = []
    do = world.do

    def counted(deciding: Any) -> object:
        decision = complete(deciding) if isinstance(deciding, Generator) else deciding
        decisions.append(len(decision.records))
        return do(decision)

    world.do = counted  # type: ignore[method-assign, assignment]
    assert join(world) is ErrorCode.NONE
    assert type(world.shard.group("g")) is type_
    assert len(world.log) - at in decisions
    assert type(world.replayed().group("g")) is type_
    compacted = dict(world.log)
    kinds = {int.from_bytes(key[:2], "big") for key, value in compacted.items() if value}
    assert kinds == ({2} if type_ is ClassicGroup else {3, 5, 6, 7, 8})


# Clocks


def test_a_wall_clock_that_is_set_back_does_not_stop_assignments() -> None:
    """Timers are monotonic; the time of the last target in the log is of the wall clock."""
    world = ConsumerWorld(ConsumerConfig(), t=2)
    a, b = Client("a"), Client("b")
    world.beat(a)
    a.settle()
    world.wall_offset_ms = -3_600_000
    world.beat(b)
    assert world.group.target_epoch == world.group.group_epoch
    world.converge(a, b)
    assert len(a.owned[T]) == len(b.owned[T]) == 1
    world.pass_time(46_000)
    assert len(world.group) == 0
