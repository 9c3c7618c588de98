"""The parts of consumer groups: assignors, the hash of topics, the settings of a group."""

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from sparkraft.base.errors import KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.base.steps import complete
from sparkraft.coordinator.group.config import Bounded
from sparkraft.coordinator.group.consumer_assignors import (
    ASSIGNORS,
    MemberSpec,
    assign_range,
    assign_uniform,
)
from sparkraft.coordinator.group.consumer_group import ConsumerGroup
from sparkraft.coordinator.group.consumer_member import ConsumerMember, MemberState, Partitions
from sparkraft.coordinator.group.consumer_reconciliation import Target, reconcile
from sparkraft.coordinator.group.topic_hash import NO_TOPICS, TopicHashes
from sparkraft.coordinator.group.xxh3 import xxh3_64
from sparkraft.coordinator.steps import Steps
from sparkraft.metadata.image import EMPTY_IMAGE
from tests.coordinator.consumer_world import topic_id, with_topic

TOPICS = [topic_id(name) for name in "tuv"]
COUNTS = st.fixed_dictionaries({topic: st.integers(1, 7) for topic in TOPICS})
SUBSCRIPTIONS = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d", "e"]),
    st.frozensets(st.sampled_from(TOPICS)),
    min_size=1,
)


def members_of(
    subscriptions: dict[str, frozenset[Uuid]], targets: dict[str, Partitions] | None = None
) -> dict[str, MemberSpec]:
    targets = targets or {}
    return {
        member_id: MemberSpec(topics=topics, target=targets.get(member_id, {}))
        for member_id, topics in subscriptions.items()
    }


def size(target: Partitions) -> int:
    return sum(len(partitions) for partitions in target.values())


def owned(target: Partitions) -> set[tuple[Uuid, int]]:
    return {(topic, one) for topic, partitions in target.items() for one in partitions}


@pytest.mark.parametrize("name", ASSIGNORS)
@settings(max_examples=100, deadline=None)
@given(subscriptions=SUBSCRIPTIONS, counts=COUNTS)
def test_every_partition_goes_to_one_subscriber(
    name: str, subscriptions: dict[str, frozenset[Uuid]], counts: dict[Uuid, int]
) -> None:
    """K3, K4."""
    targets = complete(ASSIGNORS[name](members_of(subscriptions), counts))
    assert targets.keys() == subscriptions.keys()
    given = [one for target in targets.values() for one in owned(target)]
    subscribed = set().union(*subscriptions.values())
    assert len(given) == len(set(given))
    assert set(given) == {(topic, at) for topic in subscribed for at in range(counts[topic])}
    for member_id, target in targets.items():
        assert target.keys() <= subscriptions[member_id]


@settings(max_examples=200, deadline=None)
@given(
    before=st.sets(st.sampled_from("abcdef"), min_size=1),
    after=st.sets(st.sampled_from("abcdef"), min_size=1),
    count=st.integers(0, 20),
    grown=st.integers(0, 5),
)
def test_uniform_balances_and_moves_as_few_as_possible(
    before: set[str], after: set[str], count: int, grown: int
) -> None:
    """K6, K7."""
    topic = TOPICS[0]
    members = members_of(dict.fromkeys(before, frozenset({topic})))
    first = complete(assign_uniform(members, {topic: count}))
    sizes = [size(target) for target in first.values()]
    assert max(sizes) - min(sizes) <= 1
    total = count + grown
    members = members_of(dict.fromkeys(after, frozenset({topic})), first)
    again = complete(assign_uniform(members, {topic: total}))
    sizes = [size(target) for target in again.values()]
    assert max(sizes) - min(sizes) <= 1
    quota, extras = divmod(total, len(after))
    stayed = sorted((size(first[one]) for one in before & after), reverse=True)
    kept_at_most = sum(min(held, quota + (at < extras)) for at, held in enumerate(stayed))
    kept = sum(len(owned(first[one]) & owned(again[one])) for one in before & after)
    assert kept == kept_at_most


@pytest.mark.parametrize("name", ASSIGNORS)
@settings(max_examples=50, deadline=None)
@given(subscriptions=SUBSCRIPTIONS, counts=COUNTS)
def test_an_assignment_without_a_cause_changes_nothing(
    name: str, subscriptions: dict[str, frozenset[Uuid]], counts: dict[Uuid, int]
) -> None:
    """KAFKA-18688."""
    first = complete(ASSIGNORS[name](members_of(subscriptions), counts))
    assert complete(ASSIGNORS[name](members_of(subscriptions, first), counts)) == first


@settings(max_examples=100, deadline=None)
@given(subscriptions=SUBSCRIPTIONS, counts=COUNTS)
def test_uniform_leaves_no_move_that_narrows_a_difference(
    subscriptions: dict[str, frozenset[Uuid]], counts: dict[Uuid, int]
) -> None:
    targets = complete(assign_uniform(members_of(subscriptions), counts))
    for target in targets.values():
        for topic in target:
            for other, topics in subscriptions.items():
                if topic in topics:
                    assert size(target) - size(targets[other]) <= 1


def test_range_gives_topics_with_equal_subscribers_the_same_ranges() -> None:
    subscriptions = dict.fromkeys("cab", frozenset(TOPICS[:2]))
    targets = complete(assign_range(members_of(subscriptions), {TOPICS[0]: 4, TOPICS[1]: 4}))
    for topic in TOPICS[:2]:
        assert [sorted(targets[one][topic]) for one in "abc"] == [[0, 1], [2], [3]]


def test_range_sorts_static_members_first_by_their_instance() -> None:
    topic = TOPICS[0]
    topics = frozenset({topic})
    members = {
        "a": MemberSpec(topics=topics, target={}),
        "b": MemberSpec(instance_id="2", topics=topics, target={}),
        "c": MemberSpec(instance_id="1", topics=topics, target={}),
    }
    targets = complete(assign_range(members, {topic: 3}))
    assert [targets[one][topic] for one in "cba"] == [{0}, {1}, {2}]


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, 0x2D06800538D394C2),
        (3, 0xC3489259E968AD9E),
        (8, 0xB88DEE77F6BF6980),
        (16, 0x9DA23836ADF2BE1E),
        (64, 0xFAECD52EFFBB854F),
        (200, 0xD12016B53C9565BA),
        (300, 0x21869F12772EC1B4),
        (5_000, 0xCE29A19460EE1BFC),
    ],
)
def test_xxh3_has_the_values_of_its_reference(length: int, expected: int) -> None:
    assert xxh3_64(bytes(at * 7 % 251 for at in range(length))) == expected


def test_the_hash_covers_partitions_and_ids_but_no_missing_topic() -> None:
    image = with_topic(EMPTY_IMAGE, "t", 1)
    hashes = TopicHashes(image)
    one = complete(hashes.of_group(["t"]))
    assert complete(hashes.of_group(["t", "missing"])) == one
    assert complete(hashes.of_group(["missing"])) == NO_TOPICS
    hashes.set_image(with_topic(image, "t", 2))
    assert complete(hashes.of_group(["t"])) != one


def test_a_group_setting_is_kept_within_the_bounds_of_the_broker() -> None:
    setting = Bounded(value=5, lowest=2, highest=8)
    values = [setting.of({"x": text}, "x") for text in ("1", "3", "9", "word")]
    assert (values, setting.of({}, "x")) == ([2, 3, 8, 5], 5)


def test_states_have_the_numbers_of_kafkas_records() -> None:
    numbers = {state.name: state.value for state in MemberState}
    assert numbers == {"STABLE": 0, "UNREVOKED": 1, "UNRELEASED": 2, "UNKNOWN": 127}


def test_a_subscription_does_not_take_back_what_its_member_has_lost() -> None:
    """K11 after a load in which the record that gave up the partition is compacted away, as when
    a cleaner replaces segments meanwhile (KAFKA-16147)."""
    group, topic = ConsumerGroup("g"), TOPICS[0]
    first, second = (ConsumerMember(member_id=one, member_epoch=1) for one in ("a", "b"))
    complete(group.replay_subscription(first))
    complete(group.replay_subscription(second))
    complete(group.replay_current(replace(first, assigned={topic: {0: 1, 1: 1}})))
    complete(group.replay_current(replace(second, member_epoch=2, assigned={topic: {0: 2}})))
    complete(group.replay_subscription(replace(first, subscribed_topics=frozenset({"u"}))))
    assert group.holder(topic, 0) == "b"
    complete(group.replay_current(replace(first, member_epoch=3, assigned={topic: {1: 1}})))
    assert (group.holder(topic, 0), group.holder(topic, 1)) == ("b", "a")


def test_a_member_in_a_state_of_a_newer_version_starts_without_partitions() -> None:
    """CurrentAssignmentBuilder: it is fenced until it reports that it owns nothing."""
    group, topic = ConsumerGroup("g"), TOPICS[0]
    member = ConsumerMember(member_id="a", member_epoch=2, state=MemberState.UNKNOWN)

    def subscribed() -> Steps[frozenset[Uuid]]:
        yield 0
        return frozenset({topic})

    partitions = {topic: frozenset({0})}
    target = Target(epoch=3, partitions=partitions, subscribed=subscribed, is_free=group.is_free)
    for owned in (None, {topic: frozenset({0})}):
        with pytest.raises(KafkaError, match="FENCED_MEMBER_EPOCH"):
            complete(reconcile(member, target, owned=owned, subscription_changed=False))
    after = complete(reconcile(member, target, owned={}, subscription_changed=False))
    assert (after.state, after.member_epoch) == (MemberState.STABLE, 3)
    assert after.assigned == {topic: {0: 3}}


def test_a_member_may_take_what_it_has_just_given_up() -> None:
    """Its new target has a partition again that it was asked to give up."""
    group, topic = ConsumerGroup("g"), TOPICS[0]
    member = ConsumerMember(
        member_id="a",
        member_epoch=2,
        state=MemberState.UNREVOKED,
        pending_revocation={topic: {0: 2}},
    )
    complete(group.replay_current(member))

    def subscribed() -> Steps[frozenset[Uuid]]:
        yield 0
        return frozenset({topic})

    partitions = {topic: frozenset({0})}
    target = Target(epoch=3, partitions=partitions, subscribed=subscribed, is_free=group.is_free)
    after = complete(reconcile(member, target, owned={}, subscription_changed=False))
    assert (after.state, after.member_epoch) == (MemberState.STABLE, 3)
    assert after.assigned == {topic: {0: 3}}
