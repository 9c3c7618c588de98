"""The small parts of the group core: timers, votes, states, subscriptions."""

from collections import Counter

import hypothesis.strategies as st
import pytest
from hypothesis import given

from sparkraft.base.errors import InvariantBroken
from sparkraft.base.ids import Millis
from sparkraft.base.steps import complete
from sparkraft.coordinator.group import election
from sparkraft.coordinator.group.classic_group import ClassicGroup, subscription_topics
from sparkraft.coordinator.group.journal import Journal, JournalEntry
from sparkraft.coordinator.group.states import NEXT_STATES, GroupState
from sparkraft.coordinator.timers import Timers

KEYS = st.sampled_from([("a",), ("b",), ("c",)])
STEPS = st.one_of(
    st.tuples(st.just("schedule"), KEYS, st.integers(0, 50)),
    st.tuples(st.just("cancel"), KEYS, st.just(0)),
    st.tuples(st.just("due"), st.just(("-",)), st.integers(0, 60)),
)


@given(st.lists(STEPS, max_size=40))
def test_timers_fire_each_deadline_once_and_in_order(
    steps: list[tuple[str, tuple[str], int]],
) -> None:
    timers = Timers()
    model: dict[tuple[str], int] = {}
    for what, key, at in steps:
        if what == "schedule":
            timers.schedule(key, Millis(at))
            model[key] = at
        elif what == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        else:
            fired = []
            while (one := timers.due(Millis(at))) is not None:
                fired.append((model.pop(one), one))
            assert fired == sorted(fired)
            assert all(deadline > at for deadline in model.values())
        assert timers.wake_at == min(model.values(), default=None)
        assert len(timers) == len(model)


def vote(*preferences: list[str]) -> election.Choice:
    """The choice of members `0`, `1`, … with these protocols."""
    supporters = Counter(name for names in preferences for name in names)
    members = [(str(at), names) for at, names in enumerate(preferences)]
    return complete(election.vote(members, supporters, len(members)))


def test_most_votes_win() -> None:
    choice = vote(["x", "y"], ["y", "x"], ["y", "x", "z"])
    assert choice.chosen == "y"
    assert choice.candidates == ("x", "y")
    assert choice.votes == {"0": "x", "1": "y", "2": "y"}
    assert choice.ruled_out == {"z": "supported by 1 of 3 members only"}


def test_a_tie_goes_to_the_longest_standing_voter() -> None:
    choice = vote(["x", "y"], ["y", "x"])
    assert choice.chosen == "x"
    assert "tied with y" in choice.reason


@given(st.lists(st.permutations(["x", "y", "z"]), min_size=1, max_size=6))
def test_the_vote_gives_a_protocol_with_as_many_votes_as_any(orders: list[list[str]]) -> None:
    choice = vote(*orders)
    firsts = [order[0] for order in orders]
    assert firsts.count(str(choice.chosen)) == max(firsts.count(one) for one in firsts)


def test_nobody_leads_where_nobody_rejoined() -> None:
    choice = complete(election.after_missed_join("a", [("a", False), ("b", False)]))
    assert choice.chosen is None
    assert set(choice.ruled_out) == {"a", "b"}


@pytest.mark.parametrize("start", GroupState)
@pytest.mark.parametrize("end", GroupState)
def test_only_the_table_of_states_is_walked(start: GroupState, end: GroupState) -> None:
    group = ClassicGroup("g", now_ms=Millis(0))
    group.state = start
    if end in NEXT_STATES[start]:
        group.transition_to(end, Millis(5))
        assert (group.state, group.previous_state, group.state_since_ms) == (end, start, 5)
    else:
        with pytest.raises(InvariantBroken):
            group.transition_to(end, Millis(5))
        assert group.state is start


@given(st.binary(max_size=40))
def test_any_bytes_are_a_subscription_or_not(metadata: bytes) -> None:
    topics = complete(subscription_topics(metadata))
    assert topics is None or all(isinstance(one, str) for one in topics)


def test_the_journal_forgets_the_oldest() -> None:
    journal = Journal(2)
    for generation in range(3):
        journal.add(
            JournalEntry(
                at_ms=Millis(0),
                group_id="g" if generation else "h",
                generation=generation,
                kind="leader",
                chosen=None,
                candidates=(),
                reason="",
            )
        )
    assert [one.generation for one in journal.entries()] == [1, 2]
    assert journal.entries("h") == []
    assert journal.counts["leader"] == 3
    assert Journal(2, earlier=journal.entries()).counts["leader"] == 0
