"""Consumer groups (KIP-848): joining, reconciliation, fencing, leaving, static members, commits."""

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.base.steps import complete
from sparkraft.coordinator.group.config import ConsumerConfig
from sparkraft.coordinator.group.consumer_member import ConsumerMember, MemberState
from sparkraft.coordinator.group.consumer_records import member_record, subscription_of
from sparkraft.coordinator.group.consumer_regex import matching
from sparkraft.coordinator.group.records import decode_record, encode_record
from sparkraft.coordinator.runtime import MetadataDelta
from sparkraft.protocol.messages.classic_group_records import OffsetCommitKey
from sparkraft.protocol.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
)
from tests.coordinator.consumer_world import (
    Client,
    ConsumerWorld,
    topic_id,
    with_topic,
    without_topic,
)

T = topic_id("t")


def written(world: ConsumerWorld) -> list[str]:
    """The records of the log by their type and tombstones as `-type`."""
    found = []
    for key, value in world.log:
        number = int.from_bytes(key[:2], "big")
        found.append(str(number) if value is not None else f"-{number}")
    return found


def test_the_first_member_gets_everything_in_its_first_response() -> None:
    world = ConsumerWorld(t=3)
    client = Client("a")
    assert world.beat(client) is ErrorCode.NONE
    assert (client.epoch, client.wanted) == (2, {T: {0, 1, 2}})
    assert written(world) == ["5", "3", "7", "6", "8"]
    assert (world.group.group_epoch, world.group.target_epoch) == (2, 2)


def test_a_partition_moves_only_after_its_owner_confirmed() -> None:
    world = ConsumerWorld(t=2)
    a, b = Client("a"), Client("b")
    world.beat(a)
    a.settle()
    world.beat(b)
    assert (b.epoch, b.wanted) == (3, {})
    assert world.group.member("b").state is MemberState.UNRELEASED
    world.beat(a)
    assert (a.epoch, a.wanted) == (2, {T: {0}})
    assert world.group.member("a").state is MemberState.UNREVOKED
    world.beat(b)
    assert b.wanted == {}
    a.settle()
    world.beat(a)
    assert a.epoch == 3
    world.beat(b)
    assert b.wanted == {T: {1}}
    assert world.group.state.value == "Stable"
    world.check(a, b)


def test_the_second_target_waits_for_the_assignment_interval() -> None:
    world = ConsumerWorld(ConsumerConfig(), t=2)
    a, b = Client("a"), Client("b")
    world.beat(a)
    a.settle()
    world.beat(b)
    assert (b.epoch, world.group.target_epoch, world.group.group_epoch) == (2, 2, 3)
    assert world.group.state.value == "Assigning"
    world.pass_time(1_000)
    world.beat(b)
    assert (b.epoch, world.group.target_epoch) == (3, 3)
    world.converge(a, b)
    assert world.group.state.value == "Stable"


def test_a_lost_response_does_not_fence_a_member() -> None:
    world = ConsumerWorld(t=2)
    a, b = Client("a"), Client("b")
    world.converge(a)
    world.beat(b)
    before = a.epoch
    world.beat(a)
    a.settle()
    world.beat(a)  # its epoch is 3 now, but it does not learn of that
    assert a.epoch == before + 1
    a.epoch = before
    assert world.beat(a) is ErrorCode.NONE
    a.epoch = before - 1
    assert world.beat(a) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_previous_epoch_with_partitions_of_others_is_fenced() -> None:
    world = ConsumerWorld(t=2)
    a, b = Client("a"), Client("b")
    world.converge(a)
    world.beat(b)
    world.converge(a, b)
    a.epoch = world.group.member("a").previous_member_epoch
    if a.epoch == world.group.member("a").member_epoch:
        a.epoch -= 1
    a.owned = {T: {0, 1}}
    assert world.beat(a) is ErrorCode.FENCED_MEMBER_EPOCH


def test_epochs_and_ids_that_do_not_fit() -> None:
    world = ConsumerWorld(t=1)
    assert world.beat(Client("a", epoch=5)) is ErrorCode.GROUP_ID_NOT_FOUND
    world.beat(Client("a"))
    assert world.beat(Client("b", epoch=5)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.beat(Client("a", epoch=9)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert world.leave(Client("b")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.beat(Client("a", epoch=2, instance_id="i")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_raises_the_epoch_and_the_next_heartbeat_assigns() -> None:
    world = ConsumerWorld(t=4)
    a, b = Client("a"), Client("b")
    world.converge(a, b)
    world.check(a, b)
    del world.log[:]
    world.shard = world.shard  # the log was only shortened for the assertion below
    assert world.leave(a) is ErrorCode.NONE
    assert written(world) == ["-8", "-7", "-5", "3"]
    assert world.group.state.value == "Assigning"
    world.beat(b)
    assert b.wanted == {T: {0, 1, 2, 3}}


def test_a_silent_member_is_fenced_after_its_session() -> None:
    world = ConsumerWorld(t=2)
    a, b = Client("a"), Client("b")
    world.converge(a, b)
    world.pass_time(30_000)
    world.beat(b)
    world.pass_time(20_000)
    assert "a" not in world.group
    world.converge(b)
    assert b.owned == {T: {0, 1}}
    assert world.beat(a) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_revoke_in_time_is_fenced() -> None:
    world = ConsumerWorld(t=2)
    a, b = Client("a"), Client("b")
    world.converge(a)
    world.beat(b)
    for _ in range(5):
        world.beat(a)  # alive, but still reads both partitions
        world.pass_time(5_000)
    assert "a" not in world.group


def test_a_member_that_could_not_be_fenced_is_fenced_soon_after() -> None:
    world = ConsumerWorld(t=2)
    a, b = Client("a"), Client("b")
    world.converge(a, b)
    world.pass_time(30_000)
    world.beat(b)
    world.fail_next = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(KafkaError):
        world.pass_time(20_000)
    assert "a" in world.group
    world.pass_time(500)
    assert "a" not in world.group
    assert "b" in world.group


def test_a_revocation_that_could_not_be_ended_is_ended_soon_after() -> None:
    world = ConsumerWorld(t=2)
    a, b = Client("a"), Client("b")
    world.converge(a)
    world.beat(b)
    for _ in range(3):
        world.beat(a)  # alive, but still reads both partitions
        world.pass_time(5_000)
    world.beat(a)
    world.fail_next = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(KafkaError):
        world.pass_time(5_000)
    world.beat(a)
    assert "a" in world.group
    world.pass_time(500)
    assert "a" not in world.group


@pytest.mark.parametrize("leaves", [True, False])
def test_a_member_keeps_its_session_if_its_removal_fails(leaves: bool) -> None:
    world = ConsumerWorld(t=2)
    a = Client("a", instance_id="i")
    world.converge(a)
    if not leaves:
        world.leave(a, epoch=-2)
    world.fail_next = ErrorCode.NOT_ENOUGH_REPLICAS
    if leaves:
        assert world.leave(a) is ErrorCode.NOT_ENOUGH_REPLICAS
    else:
        assert world.beat(Client("b", instance_id="i")) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert "a" in world.group
    world.pass_time(45_000)
    assert "a" not in world.group


def test_a_failover_gives_each_member_a_whole_session() -> None:
    world = ConsumerWorld(t=2)
    a = Client("a")
    world.converge(a)
    world.pass_time(44_000)
    world.reload()
    world.pass_time(44_000)
    assert "a" in world.group
    world.pass_time(2_000)
    assert "a" not in world.group


def test_a_topic_that_appears_grows_or_is_deleted_is_assigned_again() -> None:
    world = ConsumerWorld()
    a = Client("a")
    world.converge(a)
    assert a.owned == {}
    epoch = world.group.group_epoch
    world.set_image(with_topic(world.image, "t", 2))
    world.converge(a)
    assert a.owned == {T: {0, 1}}
    assert world.group.group_epoch == epoch + 1
    world.set_image(with_topic(world.image, "other", 2))
    world.converge(a)
    assert world.group.group_epoch == epoch + 1  # K9
    world.set_image(with_topic(world.image, "t", 3))
    world.converge(a)
    assert a.owned == {T: {0, 1, 2}}
    world.set_image(without_topic(world.image, "t"))
    world.converge(a)
    assert a.owned == {}
    world.check(a)


def test_an_unsubscribed_topic_is_taken_away_at_once() -> None:
    world = ConsumerWorld(t=2, u=2)
    a, b = Client("a", topics=("t", "u")), Client("b", topics=("t", "u"))
    world.converge(a, b)
    a.topics = ("u",)
    world.beat(a, full=True)
    a.settle()
    world.converge(a, b)
    assert T not in a.owned
    assert b.owned[T] == {0, 1}
    world.check(a, b)


@pytest.mark.parametrize("was_static_leave", [True, False])
def test_a_static_member_keeps_its_partitions_over_a_restart(was_static_leave: bool) -> None:
    world = ConsumerWorld(t=4)
    a, b = Client("a1", instance_id="a"), Client("b1", instance_id="b")
    world.converge(a, b)
    owned, epoch = a.owned, world.group.group_epoch
    again = Client("a2", instance_id="a")
    if not was_static_leave:
        assert world.beat(again) is ErrorCode.UNRELEASED_INSTANCE_ID
        return
    assert world.leave(a, epoch=-2) is ErrorCode.NONE
    assert world.beat(again) is ErrorCode.NONE
    assert (again.wanted, world.group.group_epoch) == (owned, epoch)
    assert again.epoch == epoch
    assert world.beat(Client("a1", instance_id="a", epoch=epoch)) is ErrorCode.FENCED_INSTANCE_ID
    assert world.leave(Client("a1", instance_id="a")) is ErrorCode.FENCED_INSTANCE_ID
    world.check(again, b)
    held = world.group.member("a2").assigned[T]
    assert set(held.values()) == {0}
    assert world.commit(again, min(held), epoch=0) is ErrorCode.NONE


def test_a_known_member_may_join_again_at_epoch_zero() -> None:
    """KAFKA-19233."""
    world = ConsumerWorld(t=2)
    a = Client("a")
    world.converge(a)
    epoch = a.epoch
    a.reset()
    assert world.beat(a) is ErrorCode.NONE
    assert (a.epoch, a.wanted) == (epoch, {T: {0, 1}})


def test_a_full_heartbeat_gets_the_assignment_again() -> None:
    """KAFKA-16367."""
    world = ConsumerWorld(t=2)
    a = Client("a")
    world.converge(a)
    a.wanted = {}
    world.beat(a)
    assert a.wanted == {}
    world.beat(a, full=True)
    assert a.wanted == {T: {0, 1}}


def test_the_group_is_full() -> None:
    world = ConsumerWorld(ConsumerConfig(max_size=1), t=2)
    assert world.beat(Client("a")) is ErrorCode.NONE
    assert world.beat(Client("b")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.beat(Client("a")) is ErrorCode.NONE


@pytest.mark.parametrize(
    "fields",
    [
        {"member_id": ""},
        {"group_id": " "},
        {"instance_id": ""},
        {"rack_id": ""},
        {"rebalance_timeout_ms": -1},
        {"topic_partitions": None},
        {"subscribed_topic_names": None},
        {"member_epoch": -2},
        {"member_epoch": -3},
    ],
)
def test_malformed_heartbeats_are_refused(fields: dict[str, Any]) -> None:
    world = ConsumerWorld(t=1)
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="a",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    for name, value in fields.items():
        setattr(request, name, value)
    with pytest.raises(KafkaError) as raised:
        world.send(request)
    assert raised.value.code is ErrorCode.INVALID_REQUEST
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=3)
    request.server_assignor = "sticky"
    with pytest.raises(KafkaError) as raised:
        world.send(request)
    assert raised.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR


def test_an_old_client_gets_its_member_id() -> None:
    world = ConsumerWorld(t=1)
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    assert world.send(request, version=0).member_id


def test_a_commit_needs_the_epoch_in_which_the_partition_was_assigned() -> None:
    """KIP-1251."""
    world = ConsumerWorld(t=2)
    a, b = Client("a"), Client("b")
    world.converge(a)
    old = a.epoch
    world.converge(b, a)
    world.converge(a, b)
    assert a.epoch > old
    kept = next(iter(a.owned[T]))
    assert world.commit(a, kept) is ErrorCode.NONE
    assert world.commit(a, kept, epoch=old) is ErrorCode.NONE
    assert world.commit(a, 1 - kept, epoch=old) is ErrorCode.STALE_MEMBER_EPOCH
    assert world.commit(a, kept, epoch=old - 1) is ErrorCode.STALE_MEMBER_EPOCH
    too_large = world.commit(a, 1 - kept, epoch=old, metadata="x" * 5_000)
    assert too_large is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert world.commit(a, kept, epoch=a.epoch + 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert world.commit(a, kept, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert world.commit(Client("c", epoch=1), kept) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.commit(Client("", epoch=-1), kept) is ErrorCode.UNKNOWN_MEMBER_ID
    world.leave(a)
    world.leave(b)
    assert world.commit(Client("", epoch=-1), kept) is ErrorCode.NONE


def test_in_its_current_epoch_a_member_may_commit_for_a_partition_that_it_has_lost() -> None:
    """ConsumerGroup.validateOffsetCommit: partitions are checked for earlier epochs only."""
    world = ConsumerWorld(ConsumerConfig(), t=1, u=1)
    a, b = Client("a", topics=("t", "u")), Client("b", topics=("t",))
    world.converge(a)
    held, a.topics = a.epoch, ("u",)
    world.beat(a, full=True)  # the next target waits for the assignment interval
    a.settle()
    assert (a.epoch, T in a.owned) == (held, False)
    world.beat(a)
    world.pass_time(1_000)
    world.beat(b)
    assert b.wanted == {T: {0}}
    assert a.epoch == held < b.epoch
    assert world.commit(a, 0) is ErrorCode.NONE
    world.beat(a)
    assert a.epoch > held
    assert world.commit(a, 0, epoch=held) is ErrorCode.STALE_MEMBER_EPOCH


def test_a_partition_that_a_member_gets_again_has_a_new_epoch() -> None:
    """In the meantime another member had it: no commit from before may overwrite its offset."""
    world = ConsumerWorld(t=2)
    a, b = Client("a"), Client("b")
    world.converge(a)
    first = a.epoch
    world.beat(b)
    world.converge(a, b)
    again = ({0, 1} - a.owned[T]).pop()
    world.leave(b)
    world.converge(a)
    assert a.owned == {T: {0, 1}}
    assert world.commit(a, again) is ErrorCode.NONE
    assert world.commit(a, again, epoch=first) is ErrorCode.STALE_MEMBER_EPOCH
    assert world.commit(a, 1 - again, epoch=first) is ErrorCode.NONE


def test_a_commit_in_a_transaction_needs_it_as_well() -> None:
    """KIP-1251; a request without a member is not checked (KIP-447)."""
    world = ConsumerWorld(t=2)
    a, b = Client("a"), Client("b")
    world.converge(a)
    old = a.epoch
    world.converge(b, a)
    world.converge(a, b)
    kept = next(iter(a.owned[T]))
    assert world.commit_in_transaction(a, kept) is ErrorCode.NONE
    assert world.commit_in_transaction(a, kept, epoch=old) is ErrorCode.NONE
    assert world.commit_in_transaction(a, 1 - kept, epoch=old) is ErrorCode.ILLEGAL_GENERATION
    assert world.commit_in_transaction(a, kept, epoch=old - 1) is ErrorCode.ILLEGAL_GENERATION
    too_large = world.commit_in_transaction(a, 1 - kept, epoch=old, metadata="x" * 5_000)
    assert too_large is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert world.commit_in_transaction(a, kept, epoch=a.epoch + 1) is ErrorCode.ILLEGAL_GENERATION
    assert world.commit_in_transaction(Client("", epoch=-1), kept) is ErrorCode.NONE
    unknown = Client("c", epoch=1)
    assert world.commit_in_transaction(unknown, kept) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_in_a_transaction_is_stored_without_a_topic_id() -> None:
    """As in Kafka; one outside of a transaction has it."""
    world = ConsumerWorld(t=1)
    a = Client("a")
    world.converge(a)
    assert world.commit(a, 0) is ErrorCode.NONE
    assert world.commit_in_transaction(a, 0) is ErrorCode.NONE
    records = [decode_record(*entry) for entry in world.log]
    values = [one.value for one in records if one and isinstance(one.key, OffsetCommitKey)]
    assert [one.topic_id for one in values] == [T, Uuid.ZERO]


def test_a_group_without_members_is_empty_although_its_target_is_of_an_earlier_epoch() -> None:
    """KAFKA-20442: up to 4.3.1 no target is written when the last member leaves."""
    world = ConsumerWorld(t=2)
    a = Client("a")
    world.converge(a)
    world.leave(a)
    assert (world.group.group_epoch, world.group.target_epoch) == (3, 2)
    described = complete(world.shard.describe_consumer_group("g"))
    assert (described.group_state, described.assignment_epoch) == ("Empty", 2)
    b = Client("b")
    world.beat(b)
    assert (b.epoch, b.wanted) == (4, {T: {0, 1}})
    world.leave(b)
    assert world.do(world.shard.handle_delete_group("g", world.now)).error_code == 0


def test_an_empty_group_can_be_deleted_and_leaves_no_record() -> None:
    world = ConsumerWorld(t=2)
    a = Client("a")
    world.converge(a)
    refused = world.do(world.shard.handle_delete_group("g", world.now))
    assert refused.error_code == ErrorCode.NON_EMPTY_GROUP
    world.leave(a)
    assert world.do(world.shard.handle_delete_group("g", world.now)).error_code == 0
    assert world.shard.group_ids() == []
    latest = dict(world.log)
    assert [key for key, value in latest.items() if value is not None] == []
    assert written(world)[-3:] == ["-6", "-4", "-3"]


def test_a_regular_expression_finds_topics_of_today_and_of_tomorrow() -> None:
    world = ConsumerWorld(t=2, u=1, hidden_t=1)
    world.hidden = {"hidden_t"}
    a = Client("a", topics=(), regex=".*t|new")
    assert world.beat(a) is ErrorCode.NONE
    assert (a.epoch, a.wanted) == (1, {})
    world.resolve()
    world.converge(a)
    assert a.owned == {T: {0, 1}}
    assert world.group.group_epoch == 2
    world.set_image(with_topic(world.image, "new", 1))
    world.converge(a)
    world.resolve()
    assert topic_id("new") not in a.owned, "within ten seconds of the last resolution"
    world.pass_time(10_001)
    world.converge(a)
    world.resolve()
    world.converge(a)
    assert a.owned == {T: {0, 1}, topic_id("new"): {0}}
    world.check(a)
    epoch = world.group.group_epoch
    world.pass_time(20_000)
    world.converge(a)
    assert not world.effects
    assert world.group.group_epoch == epoch  # K9


def test_a_topic_that_an_expression_has_found_grows() -> None:
    """KAFKA-18916: the group is in the index of the topics that its expressions have found."""
    world = ConsumerWorld(t=2)
    a = Client("a", topics=(), regex="t")
    world.beat(a)
    world.resolve()
    world.converge(a)
    before, world.image = world.image, with_topic(world.image, "t", 3)
    delta = MetadataDelta(before, world.image, frozenset({T}))
    world.do(world.shard.on_image(delta, world.now))
    world.converge(a)
    assert a.owned == {T: {0, 1, 2}}
    world.check(a)


def test_a_second_member_with_the_same_expression_shares_its_topics() -> None:
    world = ConsumerWorld(t=2)
    a, b = Client("a", topics=(), regex="t"), Client("b", topics=(), regex="t")
    world.beat(a)
    world.resolve()
    world.converge(a, b)
    assert (a.owned, b.owned) in [({T: {0}}, {T: {1}}), ({T: {1}}, {T: {0}})]
    world.leave(a)
    assert "t" in world.group.regexes
    world.leave(b)
    assert world.group.regexes == {}
    world.check()


def test_an_expression_that_is_dropped_takes_its_topics_along() -> None:
    world = ConsumerWorld(t=2, u=1)
    a, b = Client("a", topics=("u",), regex="t"), Client("b", topics=("t",))
    world.beat(a)
    world.resolve()
    world.converge(a, b)
    a.regex = ""
    world.beat(a, full=True)
    a.settle()
    world.converge(a, b)
    assert (a.owned, b.owned) == ({topic_id("u"): {0}}, {T: {0, 1}})
    world.check(a, b)


def test_a_result_for_an_expression_that_nobody_uses_is_dropped() -> None:
    world = ConsumerWorld(t=2)
    a = Client("a", topics=(), regex="t")
    world.beat(a)
    world.leave(a)
    world.resolve()
    assert world.group.regexes == {}


def test_an_expression_that_is_not_re2_is_refused() -> None:
    world = ConsumerWorld(t=2)
    repeated = ("(x{1000}){1000}", "(x{100}){100}", "x{1001}")
    for pattern in ("(", "(?=t)", r"(t)\1", r"t\C", r"\Qt\E\C", *repeated):
        a = Client("a", topics=(), regex=pattern)
        assert world.beat(a) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert world.log == []


def test_quoted_text_is_no_escape() -> None:
    assert matching(r"\QC\C\E.*", ["C\\C", "C"]) == ["C\\C"]
    assert matching(r"t\\C", ["t\\C"]) == ["t\\C"]


def test_an_expression_that_would_backtrack_matches_in_linear_time() -> None:
    assert matching("(a*)*b", ["a" * 200, "aab"]) == ["aab"]


STEPS = st.one_of(
    st.tuples(st.just("beat"), st.integers(0, 3)),
    st.tuples(st.just("beat"), st.integers(0, 3)),
    st.tuples(st.just("settle"), st.integers(0, 3)),
    st.tuples(st.just("leave"), st.integers(0, 3)),
    st.tuples(st.just("lost"), st.integers(0, 3)),
    st.tuples(st.just("subscribe"), st.integers(0, 3)),
    st.tuples(st.just("pass"), st.sampled_from([100, 5_000, 25_000])),
    st.tuples(st.just("grow"), st.integers(1, 5)),
    st.tuples(st.just("reload"), st.just(0)),
    st.tuples(st.just("fail"), st.integers(0, 3)),
)


def _take(  # noqa: C901 (one branch per step)
    world: ConsumerWorld, clients: list[Client], what: str, value: int
) -> None:
    client = clients[value % 4]
    match what:
        case "beat":
            world.beat(client)
        case "settle":
            client.settle()
        case "leave":
            if client.is_member:
                world.leave(client)
        case "lost":
            epoch, wanted = client.epoch, client.wanted
            if world.beat(client) is ErrorCode.NONE:
                client.epoch, client.wanted, client.sends_all = epoch, wanted, True
        case "subscribe":
            client.topics = ("t", "u") if client.topics == ("t",) else ("t",)
            world.beat(client, full=True)
        case "pass":
            world.pass_time(value)
        case "grow":
            world.set_image(with_topic(world.image, "t", 3 + value))
        case "reload":
            world.reload()
        case _:
            world.fail_next = ErrorCode.NOT_ENOUGH_REPLICAS
            world.beat(client)
            world.fail_next = None


@pytest.mark.parametrize("assignor", ["uniform", "range"])
@settings(max_examples=80, deadline=None)
@given(steps=st.lists(STEPS, min_size=5, max_size=40))
def test_no_partition_ever_has_two_owners(assignor: str, steps: list[tuple[str, int]]) -> None:
    """K1, K2, K3, K4, K11, K12 after every step; K5 at the end."""
    world = ConsumerWorld(t=3, u=2)
    clients = [Client(f"m{at}", assignor=assignor) for at in range(4)]
    clients[3].instance_id = "s"
    for what, value in steps:
        _take(world, clients, what, value)
        world.check(*clients)
    world.converge(*clients, rounds=10)
    assert world.group.state.value == "Stable", "K5"
    world.check(*clients)


def test_a_member_without_classic_metadata_has_kafkas_bytes() -> None:
    """Written by Kafka 4.3.1. A missing tag would make Kafka take it for a classic member."""
    member = ConsumerMember(
        member_id="r",
        client_id="differential",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=60_000,
    )
    key, value = encode_record(complete(member_record("g", member)))
    assert value is not None
    assert value.hex() == (
        "000000000d646966666572656e7469616c0b2f3132372e302e302e3101010000ea60000100" + "0100"
    )
    for written in (value, value[:-4] + b"\0"):  # the second one by versions before
        record = decode_record(key, written)
        assert record is not None
        assert subscription_of("r", record.value) == member


def test_values_of_every_record_survive_a_round_trip() -> None:
    world = ConsumerWorld(t=2)
    world.converge(Client("a", instance_id="i"), Client("b"))
    assert all(decode_record(key, value) is not None for key, value in world.log)


def test_groups_are_counted_once_a_minute() -> None:
    """GroupMetadataManager.updateGroupSizeCounter."""
    world = ConsumerWorld(t=2)
    a = Client("a")
    world.converge(a)
    assert world.commit(a, 0) is ErrorCode.NONE
    for _ in range(4):
        assert not world.shard.counts
        world.pass_time(15_000)
        world.beat(a)
    assert world.shard.counts == {("consumer", "Stable"): 1}
    assert world.shard.offset_count == 1
    world.leave(a)
    world.pass_time(60_000)
    assert world.shard.counts == {("consumer", "Empty"): 1}
