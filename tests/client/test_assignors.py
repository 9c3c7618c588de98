"""The assignors: examples as Kafka documents them, and what must always hold."""

from hypothesis import given
from hypothesis import strategies as st

from sparkraft.client.assignors import (
    ASSIGNORS,
    Subscriber,
    assign_range,
    assign_round_robin,
    assign_sticky,
    decode_sticky_user_data,
    encode_sticky_user_data,
)


def members(**topics: str) -> dict[str, Subscriber]:
    return {name: Subscriber(topics=frozenset(read)) for name, read in topics.items()}


def test_range_gives_neighbours_and_the_first_one_more():
    assert assign_range(members(c1="ab", c2="ab"), {"a": 3, "b": 3}) == {
        "c1": [("a", 0), ("a", 1), ("b", 0), ("b", 1)],
        "c2": [("a", 2), ("b", 2)],
    }


def test_range_orders_static_members_by_instance():
    static = {
        "zz": Subscriber(topics=frozenset("a"), instance_id="1"),
        "aa": Subscriber(topics=frozenset("a"), instance_id="2"),
    }
    assert assign_range(static, {"a": 2}) == {"zz": [("a", 0)], "aa": [("a", 1)]}


def test_round_robin_deals_all_topics_in_turn():
    assert assign_round_robin(members(c1="ab", c2="ab"), {"a": 3, "b": 3}) == {
        "c1": [("a", 0), ("a", 2), ("b", 1)],
        "c2": [("a", 1), ("b", 0), ("b", 2)],
    }


def test_round_robin_passes_over_members_that_do_not_read_a_topic():
    found = assign_round_robin(members(c1="a", c2="ab", c3="abc"), {"a": 1, "b": 2, "c": 3})
    assert found == {
        "c1": [("a", 0)],
        "c2": [("b", 0)],
        "c3": [("b", 1), ("c", 0), ("c", 1), ("c", 2)],
    }


def test_sticky_keeps_everything_while_it_is_balanced():
    before = {
        "c1": Subscriber(topics=frozenset("a"), owned=(("a", 2), ("a", 3)), generation=4),
        "c2": Subscriber(topics=frozenset("a"), owned=(("a", 0), ("a", 1)), generation=4),
    }
    found = assign_sticky(before, {"a": 4})
    assert found == {"c1": [("a", 2), ("a", 3)], "c2": [("a", 0), ("a", 1)]}


def test_sticky_moves_only_what_a_newcomer_needs():
    before = {
        "c1": Subscriber(topics=frozenset("a"), owned=(("a", 0), ("a", 1), ("a", 2)), generation=1),
        "c2": Subscriber(topics=frozenset("a"), owned=(("a", 3), ("a", 4), ("a", 5)), generation=1),
        "c3": Subscriber(topics=frozenset("a")),
    }
    found = assign_sticky(before, {"a": 6})
    assert sorted(map(len, found.values())) == [2, 2, 2]
    assert set(found["c1"]) < set(before["c1"].owned)
    assert set(found["c2"]) < set(before["c2"].owned)


def test_of_two_claims_to_a_partition_the_newer_counts():
    before = {
        "old": Subscriber(topics=frozenset("a"), owned=(("a", 0),), generation=1),
        "new": Subscriber(topics=frozenset("a"), owned=(("a", 0),), generation=2),
    }
    assert assign_sticky(before, {"a": 1})["new"] == [("a", 0)]


TOPICS = ["a", "b", "c"]
PARTITION = st.tuples(st.sampled_from(TOPICS), st.integers(0, 6))
MEMBERS = st.dictionaries(
    st.text("mnop", min_size=1, max_size=3),
    st.builds(
        Subscriber,
        topics=st.frozensets(st.sampled_from(TOPICS), min_size=1),
        owned=st.lists(PARTITION, max_size=6, unique=True).map(tuple),
        generation=st.integers(-1, 5),
    ),
    min_size=1,
    max_size=6,
)
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 6))


@given(MEMBERS, COUNTS, st.sampled_from(sorted(ASSIGNORS)))
def test_every_partition_goes_to_exactly_one_reader(group, counts, name):
    shares = ASSIGNORS[name](group, counts)
    assert set(shares) == set(group)
    given_out = sorted(tp for share in shares.values() for tp in share)
    read = {topic for member in group.values() for topic in member.topics}
    assert given_out == sorted((t, i) for t, n in counts.items() if t in read for i in range(n))
    for member, share in shares.items():
        assert {topic for topic, _ in share} <= group[member].topics


@given(MEMBERS, COUNTS)
def test_sticky_leaves_no_move_that_would_even_it_out(group, counts):
    shares = assign_sticky(group, counts)
    for giver, share in shares.items():
        for taker in shares:
            if len(share) > len(shares[taker]) + 1:
                assert not {topic for topic, _ in share} & group[taker].topics, (giver, taker)


@given(MEMBERS, COUNTS)
def test_sticky_applied_to_its_own_result_changes_nothing(group, counts):
    first = assign_sticky(group, counts)
    again = {
        name: Subscriber(topics=member.topics, owned=tuple(first[name]), generation=9)
        for name, member in group.items()
    }
    assert assign_sticky(again, counts) == first


@given(st.dictionaries(st.text(min_size=1), st.lists(st.integers(0, 99))), st.integers(-1, 99))
def test_what_a_sticky_member_tells_is_read_back(owned, generation):
    partitions, read = decode_sticky_user_data(encode_sticky_user_data(owned, generation))
    assert read == generation
    assert sorted(partitions) == sorted((t, i) for t, many in owned.items() for i in many)


@given(st.binary(max_size=40))
def test_user_data_that_makes_no_sense_is_nothing_owned(data):
    partitions, generation = decode_sticky_user_data(data)
    assert isinstance(partitions, tuple)
    assert isinstance(generation, int)
