"""Requests of consumer groups that make no sense or ask for very much: the group is not harmed."""

import itertools
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Offset
from sparkraft.base.loop_work import LOOP_WORK_MAX
from sparkraft.coordinator.group.classic_group import ClassicGroup
from sparkraft.coordinator.group.config import ConsumerConfig
from sparkraft.coordinator.group.decision import Peer
from sparkraft.coordinator.group.records import (
    decode_record,
    decode_record_in_steps,
    encode_record,
    encode_record_in_steps,
)
from sparkraft.coordinator.steps import Steps
from sparkraft.protocol.messages.k11_join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from sparkraft.protocol.messages.k12_heartbeat import HeartbeatRequest
from sparkraft.protocol.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from sparkraft.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from tests.coordinator.consumer_world import AT_ONCE, Client, ConsumerWorld, topic_id, with_topic
from tests.coordinator.test_group_migration import check_shared, classic_group, converge

T = topic_id("t")
UNKNOWN_MEMBER = ErrorCode.UNKNOWN_MEMBER_ID
FENCED = ErrorCode.FENCED_MEMBER_EPOCH
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
TOPICS = 10_000


def shared() -> tuple[ConsumerWorld, Client, Client]:
    """A stable group of two members."""
    world = ConsumerWorld(AT_ONCE, t=2)
    a, b = Client("a"), Client("b")
    world.converge(a, b)
    return world, a, b


# Forged members


@pytest.mark.parametrize("epoch", [1, 2**31 - 1, -1, -2])
def test_a_forged_member_id_changes_nothing(epoch: int) -> None:
    world, a, b = shared()
    before = list(world.log)
    forged = Client("forged", epoch=epoch, owned={T: {0, 1}})
    forged.instance_id = "forged" if epoch == -2 else None
    send = world.leave if epoch < 0 else world.beat
    arguments = (forged, epoch) if epoch < 0 else (forged,)
    assert send(*arguments) is UNKNOWN_MEMBER
    assert world.commit(Client("forged", epoch=max(epoch, 0)), 0) is UNKNOWN_MEMBER
    in_transaction = world.commit_in_transaction(Client("forged", epoch=max(epoch, 0)), 0)
    assert in_transaction is UNKNOWN_MEMBER
    assert world.log == before
    world.converge(a, b, rounds=1)
    world.check(a, b)


@pytest.mark.parametrize("epoch", [1, 2**31 - 1])
def test_a_forged_epoch_of_a_member_is_fenced(epoch: int) -> None:
    """ConsumerGroup.throwIfConsumerGroupMemberEpochIsInvalid; the member itself continues."""
    world, a, b = shared()
    before = list(world.log)
    assert world.beat(Client("a", epoch=epoch, owned={T: {0, 1}})) is FENCED
    assert world.log == before
    assert world.beat(a) is ErrorCode.NONE
    world.check(a, b)


def test_an_instance_id_of_another_member_is_refused() -> None:
    world = ConsumerWorld(AT_ONCE, t=2)
    a = Client("a", instance_id="i")
    world.converge(a)
    thief = Client("b", instance_id="i")
    assert world.beat(thief) is ErrorCode.UNRELEASED_INSTANCE_ID
    thief.epoch = a.epoch
    assert world.beat(thief) is ErrorCode.FENCED_INSTANCE_ID
    for epoch in (-1, -2):
        assert world.leave(Client("b", instance_id="i"), epoch=epoch) is (
            ErrorCode.FENCED_INSTANCE_ID
        )
    assert world.beat(a) is ErrorCode.NONE
    world.check(a)


# Requests of the wrong protocol


def refused(world: ConsumerWorld, decide: Any) -> ErrorCode:
    try:
        response = world.do(decide())
    except KafkaError as error:
        return error.code
    return ErrorCode(response.error_code)


def test_classic_requests_of_a_consumer_member_are_refused() -> None:
    """GroupMetadataManager.throwIfMemberDoesNotUseClassicProtocol."""
    world, a, b = shared()
    before = list(world.log)
    heartbeat = HeartbeatRequest(group_id="g", generation_id=a.epoch, member_id="a")
    code = refused(world, lambda: world.shard.handle_heartbeat(heartbeat, world.now))
    assert code is UNKNOWN_MEMBER
    answers: list[SyncGroupResponse] = []
    sync = SyncGroupRequest(group_id="g", generation_id=a.epoch, member_id="a")
    world.ask(lambda to: world.shard.handle_sync_group(sync, to, world.now), answers.append)
    assert [one.error_code for one in answers] == [UNKNOWN_MEMBER]
    assert world.log == before
    stranger = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="forged")])
    left = world.do(world.shard.handle_leave_group(stranger, world.now))
    assert left.members[0].error_code == UNKNOWN_MEMBER
    world.check(a, b)


def test_another_protocol_type_does_not_join_a_consumer_group() -> None:
    world, a, b = shared()
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="connect",
        protocols=[JoinGroupRequestProtocol(name="sessioned", metadata=b"\0\0")],
    )
    peer = Peer(client_id="c", client_host="/h", version=9)
    answers: list[JoinGroupResponse] = []
    world.ask(
        lambda to: world.shard.handle_join_group(request, peer, to, world.now), answers.append
    )
    assert [one.error_code for one in answers] == [ErrorCode.INCONSISTENT_GROUP_PROTOCOL]
    world.check(a, b)


def test_consumer_heartbeats_to_a_classic_group_of_another_type_are_refused() -> None:
    """GROUP_ID_NOT_FOUND, as in GroupMetadataManager.validateOnlineUpgrade."""
    world = ConsumerWorld(AT_ONCE, t=4)
    members = classic_group(world, "a", "b")
    group = world.shard.group("g")
    assert isinstance(group, ClassicGroup)
    group.protocol_type = "connect"
    before = list(world.log)
    for epoch in (0, 5):
        assert world.beat(Client("c", epoch=epoch)) is NOT_FOUND
    for epoch in (-1, -2):
        assert world.leave(Client("c", instance_id="i"), epoch=epoch) is NOT_FOUND
    assert world.log == before
    group.protocol_type = "consumer"
    converge(world, *members)
    check_shared(*members)


# Very much at once


def test_a_flood_of_joins_ends_at_the_size_of_the_group() -> None:
    world = ConsumerWorld(ConsumerConfig(max_size=20), t=2)
    codes = [world.beat(Client(f"m{number}")) for number in range(200)]
    assert codes.count(ErrorCode.NONE) == 20
    assert set(codes[20:]) == {ErrorCode.GROUP_MAX_SIZE_REACHED}
    assert len(world.group) == 20
    assert world.beat(Client("m0")) is ErrorCode.NONE


def with_topics(count: int) -> ConsumerWorld:
    world = ConsumerWorld(AT_ONCE)
    image = world.image
    for number in range(count):
        image = with_topic(image, f"topic-{number:05d}", 1)
    world.set_image(image)
    return world


def given(*clients: Client) -> list[Any]:
    return sorted(itertools.chain.from_iterable(client.owned for client in clients))


@pytest.mark.parametrize("exist", [True, False])
def test_members_with_10000_topics(exist: bool) -> None:
    """Each partition has one owner, and names without a topic cost no assignment."""
    world = with_topics(TOPICS if exist else 0)
    names = tuple(f"topic-{number:05d}" for number in range(TOPICS))
    a, b = Client("a", topics=names), Client("b", topics=names)
    world.converge(a, b, rounds=3)
    expected = sorted(map(topic_id, names)) if exist else []
    assert given(a, b) == expected
    assert abs(len(a.owned) - len(b.owned)) <= 1
    assert world.group.state.value == "Stable"


@pytest.mark.parametrize("pattern", [".*", "(.*)*", "(topic|t.*|.*)+", "^.*$"])
def test_expressions_that_match_everything(pattern: str) -> None:
    """RE2 is linear in the length of a name, whatever the expression."""
    world = with_topics(500)
    a, b = Client("a", topics=(), regex=pattern), Client("b", topics=(), regex=pattern)
    world.beat(a)
    world.resolve()
    world.converge(a, b, rounds=4)
    assert len(given(a, b)) == 500
    world.check(a, b)
    world.leave(b)
    world.converge(a, rounds=2)
    assert len(a.owned) == 500


def largest_piece(deciding: Any, world: ConsumerWorld) -> tuple[int, int]:
    """Execute a decision in pieces; the units of the largest one, and of all."""
    found: list[int] = []

    def run(steps: Steps[Any]) -> Any:
        while True:
            try:
                found.append(next(steps))
            except StopIteration as end:
                return end.value

    decision = run(deciding)
    for record in decision.records:
        key, value = run(encode_record_in_steps(record))
        assert encode_record(record) == (key, value)
        assert value is None or run(decode_record_in_steps(key, value)) == decode_record(key, value)
        run(world.shard.replay_in_steps(Offset(len(world.log)), record))
        world.log.append((key, value))
    return max(found), sum(found)


def test_heartbeats_about_10000_topics_are_decided_in_small_pieces() -> None:
    """No piece of a join, a revocation or a leave does more than the event loop can bear."""
    world = with_topics(TOPICS)
    names = tuple(f"topic-{number:05d}" for number in range(TOPICS))
    a, b = Client("a", topics=names), Client("b", topics=names)
    pieces: list[tuple[int, int]] = []

    def do(deciding: Any) -> Any:
        response = None

        def noted() -> Steps[Any]:
            nonlocal response
            decision = yield from deciding
            response = decision.response
            return decision

        pieces.append(largest_piece(noted(), world))
        return response

    world.do = do  # type: ignore[method-assign]
    for client in (a, b, a, a, b):
        world.beat(client)
        client.settle()
    world.check(a, b)
    assert abs(len(a.owned) - len(b.owned)) <= 1
    world.leave(b)
    world.beat(a)
    a.settle()
    world.check(a)
    assert len(a.owned) == TOPICS
    assert max(largest for largest, _ in pieces) <= LOOP_WORK_MAX.partitions
    assert max(units for _, units in pieces) > 10 * TOPICS
