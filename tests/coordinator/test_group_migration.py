"""Groups that change between the classic and the consumer protocol while members are in them."""

import struct
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.coordinator.group.classic_group import ClassicGroup
from sparkraft.coordinator.group.config import ConsumerConfig
from sparkraft.coordinator.group.consumer_protocol_data import read_assignment
from sparkraft.coordinator.group.decision import Peer
from sparkraft.coordinator.group.states import GroupState
from sparkraft.protocol.framing import encode_versioned
from sparkraft.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from sparkraft.protocol.messages.k11_join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from sparkraft.protocol.messages.k12_heartbeat import HeartbeatRequest
from sparkraft.protocol.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from sparkraft.protocol.messages.k14_sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.coordinator.consumer_world import AT_ONCE, Client, ConsumerWorld, topic_id

T = topic_id("t")


class Classic:
    """A classic consumer, which rejoins when it is asked to."""

    def __init__(self, world: ConsumerWorld, name: str, instance_id: str | None = None) -> None:
        self.world, self.name, self.instance_id = world, name, instance_id
        self.member_id, self.generation, self.protocol = "", -1, ""
        self.owned: set[int] = set()
        self.topics = ["t"]
        self.last_error = ErrorCode.NONE
        self.leads = False

    def join(self) -> None:
        owned = [
            ConsumerProtocolSubscriptionTopicPartition(topic="t", partitions=sorted(self.owned))
        ]
        subscription = ConsumerProtocolSubscription(
            topics=self.topics, owned_partitions=owned if self.owned else []
        )
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name="range", metadata=encode_versioned(subscription, 2))
            ],
        )
        peer = Peer(client_id=self.name, client_host="/10.0.0.2", version=9)
        world = self.world
        world.ask(
            lambda to: world.shard.handle_join_group(request, peer, to, world.now), self.on_join
        )

    def on_join(self, response: JoinGroupResponse) -> None:
        self.last_error = ErrorCode(response.error_code)
        if self.last_error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self.join()
        elif self.last_error is ErrorCode.NONE:
            self.member_id, self.generation = response.member_id, response.generation_id
            self.leads = bool(response.members)
            self.sync(response)

    def sync(self, joined: JoinGroupResponse) -> None:
        assignments = []
        for at, member in enumerate(joined.members):
            partitions = [one for one in range(4) if one % len(joined.members) == at]
            assignment = ConsumerProtocolAssignment(
                assigned_partitions=[
                    ConsumerProtocolAssignmentTopicPartition(topic="t", partitions=partitions)
                ]
            )
            assignments.append(
                SyncGroupRequestAssignment(
                    member_id=member.member_id, assignment=encode_versioned(assignment, 2)
                )
            )
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        world = self.world
        world.ask(lambda to: world.shard.handle_sync_group(request, to, world.now), self.on_sync)

    def on_sync(self, response: SyncGroupResponse) -> None:
        self.last_error = ErrorCode(response.error_code)
        if self.last_error is ErrorCode.NONE:
            found = read_assignment(bytes(response.assignment)).assigned_partitions
            self.owned = {one for topic in found for one in topic.partitions}

    def beat(self) -> ErrorCode:
        """Rejoin if asked to, or after the group has changed."""
        world = self.world
        request = HeartbeatRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        try:
            response = world.do(world.shard.handle_heartbeat(request, world.now))
            error = ErrorCode(response.error_code)
        except KafkaError as refused:
            error = refused.code
        world.send_replies()
        if error in {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}:
            self.join()
        return error

    def leave(self) -> ErrorCode:
        world = self.world
        request = LeaveGroupRequest(
            group_id="g",
            members=[MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)],
        )
        response = world.do(world.shard.handle_leave_group(request, world.now))
        world.send_replies()
        return ErrorCode(response.members[0].error_code)


def classic_group(world: ConsumerWorld, *names: str) -> list[Classic]:
    members = [Classic(world, name) for name in names]
    for member in members:
        member.join()
    world.pass_time(10_000)
    for _ in range(3):
        for member in members:
            member.beat()
    assert set().union(*(one.owned for one in members)) == {0, 1, 2, 3}
    return members


def converge(world: ConsumerWorld, *members: Any) -> None:
    for _ in range(12):
        for member in members:
            if isinstance(member, Classic):
                member.beat()
            else:
                world.beat(member)
                member.settle()
        world.pass_time(100)


def owned(member: Any) -> set[int]:
    return member.owned if isinstance(member, Classic) else set(member.owned.get(T, set()))


def check_shared(*members: Any) -> None:
    """K1, K3."""
    all_of_them = [one for member in members for one in owned(member)]
    assert sorted(all_of_them) == [0, 1, 2, 3]


@pytest.fixture
def world() -> ConsumerWorld:
    return ConsumerWorld(AT_ONCE, t=4)


def test_a_classic_group_is_upgraded_by_a_consumer_member(world: ConsumerWorld) -> None:
    """K14: nobody loses a partition that it does not have to."""
    a, b = classic_group(world, "a", "b")
    before = world.replayed().group("g")
    assert isinstance(before, ClassicGroup)
    held = {one.member_id: owned(one) for one in (a, b)}
    c = Client("c")
    assert world.beat(c) is ErrorCode.NONE
    group = world.group
    assert group.group_epoch == before.generation_id + 1
    assert "converted" in [one.kind for one in world.shard.journal.entries("g")]
    for member_id, partitions in held.items():
        assert set(group.member(member_id).assigned[T]) == partitions
        assert group.member(member_id).uses_classic_protocol
    world.check()
    converge(world, a, b, c)
    check_shared(a, b, c)
    assert world.group.state.value == "Stable"
    world.check(c)


def test_the_last_consumer_member_leaves_a_classic_group(world: ConsumerWorld) -> None:
    a, b = classic_group(world, "a", "b")
    c = Client("c")
    converge(world, a, b, c)
    epoch = world.group.group_epoch
    assert world.leave(c) is ErrorCode.NONE
    group = world.shard.group("g")
    assert isinstance(group, ClassicGroup)
    assert (group.generation_id, group.state) == (epoch, GroupState.PREPARING_REBALANCE)
    loaded = world.replayed().group("g")
    assert isinstance(loaded, ClassicGroup)
    assert (loaded.state, loaded.generation_id) == (GroupState.STABLE, epoch)
    for _ in range(3):
        a.beat()
        b.beat()
    check_shared(a, b)
    assert group.generation_id == epoch + 1
    assert {"left", "converted"} <= {one.kind for one in world.shard.journal.entries("g")}


def test_a_silent_consumer_member_ends_in_a_downgrade_too(world: ConsumerWorld) -> None:
    (a,) = classic_group(world, "a")
    c = Client("c")
    converge(world, a, c)
    for _ in range(10):
        world.pass_time(5_000)
        a.beat()
    assert isinstance(world.shard.group("g"), ClassicGroup)
    check_shared(a)


def test_a_failed_downgrade_leaves_the_consumer_group(world: ConsumerWorld) -> None:
    (a,) = classic_group(world, "a")
    c = Client("c")
    converge(world, a, c)
    world.fail_next = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.leave(c) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert "c" in world.group
    world.check()
    world.pass_time(60_000)
    assert isinstance(world.shard.group("g"), ClassicGroup | type(None)) or not len(world.group)


@pytest.mark.parametrize(
    ("config", "error"),
    [
        (ConsumerConfig(allows_upgrade=False), ErrorCode.GROUP_ID_NOT_FOUND),
        (ConsumerConfig(max_size=1), ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_an_upgrade_may_be_refused(config: ConsumerConfig, error: ErrorCode) -> None:
    world = ConsumerWorld(config, t=4)
    members = classic_group(world, "a", "b")
    assert world.beat(Client("c")) is error
    assert isinstance(world.shard.group("g"), ClassicGroup)
    converge(world, *members)
    check_shared(*members)


def test_without_migration_classic_members_stay_out_of_a_consumer_group() -> None:
    world = ConsumerWorld(ConsumerConfig(allows_upgrade=False, allows_downgrade=False), t=4)
    world.beat(Client("c"))
    a = Classic(world, "a")
    a.join()
    assert a.last_error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_classic_member_joins_a_consumer_group(world: ConsumerWorld) -> None:
    c = Client("c")
    converge(world, c)
    a = Classic(world, "a")
    a.join()
    assert a.last_error is ErrorCode.NONE
    assert not a.leads
    converge(world, a, c)
    check_shared(a, c)
    assert a.leave() is ErrorCode.NONE
    converge(world, c)
    check_shared(c)
    world.check(c)


def test_a_classic_member_that_does_not_rejoin_is_fenced(world: ConsumerWorld) -> None:
    (a,) = classic_group(world, "a")
    c = Client("c")
    world.beat(c)
    request = HeartbeatRequest(group_id="g", generation_id=a.generation, member_id=a.member_id)
    for _ in range(4):
        response = world.do(world.shard.handle_heartbeat(request, world.now))
        assert response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
        world.beat(c)
        world.pass_time(5_000)
    assert a.member_id not in world.group


def test_a_classic_member_that_rejoins_may_take_longer_to_revoke(world: ConsumerWorld) -> None:
    """Kafka's maybeReconcile: its timeouts are those to rejoin and to send SyncGroup."""
    (a,) = classic_group(world, "a")
    c = Client("c")
    world.beat(c)
    for _ in range(8):
        a.owned = {0, 1, 2, 3}
        assert a.beat() is ErrorCode.REBALANCE_IN_PROGRESS
        assert a.last_error is ErrorCode.NONE
        world.beat(c)
        world.pass_time(5_000)
    assert a.member_id in world.group
    converge(world, a, c)
    check_shared(a, c)


def test_a_static_classic_member_replaces_the_last_consumer_member(world: ConsumerWorld) -> None:
    """KAFKA-17228, KAFKA-19546: with the same subscription no rebalance follows."""
    c = Client("c", instance_id="one")
    converge(world, c)
    again = Classic(world, "a", instance_id="one")
    again.join()
    group = world.shard.group("g")
    assert isinstance(group, ClassicGroup)
    assert group.state is GroupState.STABLE
    assert again.last_error is ErrorCode.NONE
    assert owned(again) == {0, 1, 2, 3}
    assert world.replayed().group("g").is_empty(world.now) is False


def test_a_consumer_member_replaces_a_static_classic_one(world: ConsumerWorld) -> None:
    a = Classic(world, "a", instance_id="one")
    a.join()
    world.pass_time(10_000)
    assert owned(a) == {0, 1, 2, 3}
    c = Client("c", instance_id="one")
    assert world.beat(c) is ErrorCode.NONE
    converge(world, c)
    check_shared(c)
    assert a.beat() is ErrorCode.FENCED_INSTANCE_ID
    world.check(c)


def test_a_tool_removes_a_consumer_member_by_its_id(world: ConsumerWorld) -> None:
    """LeaveGroup of both protocols, as `kafka-consumer-groups` sends it (KAFKA-18188)."""
    a, b = Client("a"), Client("b")
    converge(world, a, b)
    request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="b")])
    response = world.do(world.shard.handle_leave_group(request, world.now))
    assert response.members[0].error_code == ErrorCode.NONE
    assert "b" not in world.group
    converge(world, a)
    check_shared(a)


def test_a_malformed_subscription_prevents_the_upgrade(world: ConsumerWorld) -> None:
    (a,) = classic_group(world, "a")
    group = world.shard.group("g")
    assert isinstance(group, ClassicGroup)
    group.member(a.member_id).protocols = (("range", struct.pack(">h", 0)),)
    assert world.beat(Client("c")) is ErrorCode.GROUP_ID_NOT_FOUND
    assert isinstance(world.shard.group("g"), ClassicGroup)


def test_commits_of_classic_members_follow_their_generation(world: ConsumerWorld) -> None:
    (a,) = classic_group(world, "a")
    converge(world, a, Client("c"))
    kept = min(owned(a))
    client = Client(a.member_id, epoch=a.generation)
    assert world.commit(client, kept, version=8) is ErrorCode.NONE
    assert world.commit(client, kept, epoch=a.generation + 1) is ErrorCode.ILLEGAL_GENERATION
    with pytest.raises(KafkaError) as refused:  # ConsumerGroup.validateMemberEpoch
        world.group.check_fetch(a.member_id, a.generation + 1)
    assert refused.value.code is ErrorCode.ILLEGAL_GENERATION
