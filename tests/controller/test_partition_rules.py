"""The rules on plain states: no cluster image, no records; and the record that a change becomes."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sparkraft.base.ids import Uuid
from sparkraft.controller.leader_election import Cause, CauseKind, ElectionKind
from sparkraft.controller.partition_change import record_of
from sparkraft.controller.partition_rules import ClusterFacts, Target, next_state
from sparkraft.metadata.apply import merge
from sparkraft.metadata.features import METADATA_LEVEL_MAX
from sparkraft.metadata.partition_state import (
    NO_LEADER,
    RECOVERED,
    RECOVERING,
    PartitionState,
)

TOPIC_ID = Uuid((7).to_bytes(16, "big"))
CAUSE = Cause(CauseKind.ISR_CHANGED, "a test")


def directory(replica: int) -> Uuid:
    return Uuid((1000 + replica).to_bytes(16, "big"))


def state(*replicas: int, **fields: Any) -> PartitionState:
    given = {
        "replicas": replicas,
        "isr": replicas,
        "elr": (),
        "last_known_elr": (),
        "leader": replicas[0],
        "leader_epoch": 5,
        "partition_epoch": 9,
        "directories": tuple(map(directory, replicas)),
        "adding_replicas": (),
        "removing_replicas": (),
        "leader_recovery_state": RECOVERED,
    }
    return PartitionState(**{**given, **fields})


def facts(*live: int, **fields: Any) -> ClusterFacts:
    return ClusterFacts(
        why_not=lambda r: None if r in live else "fenced", directory_of_new=directory, **fields
    )


ELR = {"elr_enabled": True, "elr_stored": True, "min_isr": 2}


def test_nothing_changes_without_a_reason():
    transition = next_state(state(1, 2, 3), Target(cause=CAUSE), facts(1, 2, 3))
    assert not transition.changed
    assert transition.after == transition.before


def test_a_leader_that_leaves_the_isr_is_replaced_in_a_new_epoch():
    after = next_state(state(1, 2, 3), Target(isr=(2, 3), cause=CAUSE), facts(2, 3)).after
    assert (after.leader, after.leader_epoch, after.isr, after.partition_epoch) == (
        2,
        6,
        (2, 3),
        10,
    )


def test_who_leaves_a_small_isr_stays_eligible():
    target = Target(isr=(1,), cause=CAUSE)
    after = next_state(state(1, 2, 3, isr=(1, 2)), target, facts(1, **ELR)).after
    assert (after.isr, after.elr, after.leader_epoch) == ((1,), (2,), 5)


def test_an_unclean_shutdown_leaves_the_elr():
    target = Target(isr=(1,), unclean_shutdowns=(2,), cause=CAUSE)
    after = next_state(state(1, 2, isr=(1, 2)), target, facts(1, **ELR)).after
    assert (after.isr, after.elr) == ((1,), ())


def test_the_last_member_of_the_isr_stays_without_an_elr():
    after = next_state(state(1, isr=(1,)), Target(isr=(), cause=CAUSE), facts()).after
    assert (after.leader, after.isr) == (NO_LEADER, (1,))


def test_with_an_elr_the_last_leader_is_remembered():
    after = next_state(state(1, isr=(1,)), Target(isr=(), cause=CAUSE), facts(**ELR)).after
    assert (after.leader, after.isr, after.elr) == (NO_LEADER, (), (1,))
    assert after.last_known_elr == (1,)


def test_an_unclean_leader_is_alone_and_recovering():
    before = state(1, 2, isr=(1,), leader=NO_LEADER)
    transition = next_state(before, Target(kind=ElectionKind.UNCLEAN, cause=CAUSE), facts(2))
    after = transition.after
    assert transition.elected_uncleanly
    assert (after.leader, after.isr, after.leader_recovery_state) == (2, (2,), RECOVERING)


def test_a_reassignment_completes_with_the_isr_change_that_was_missing():
    before = state(1, 2, 3, isr=(1,), adding_replicas=(3,), removing_replicas=(1,))
    lags = Target(isr=(1, 2), cause=CAUSE)
    assert next_state(before, lags, facts(1, 2, 3)).after.replicas == (1, 2, 3)
    after = next_state(before, Target(isr=(1, 3), cause=CAUSE), facts(1, 2, 3)).after
    assert (after.replicas, after.isr, after.leader) == ((2, 3), (3,), 3)
    assert not after.is_reassigning


def test_new_replicas_get_a_directory():
    target = Target(replicas=(1, 2), adding=(2,), cause=CAUSE)
    after = next_state(state(1), target, facts(1)).after
    assert after.directories == (directory(1), directory(2))


IDS = st.lists(st.integers(1, 5), unique=True, max_size=4).map(tuple)


CASES = st.fixed_dictionaries(
    {
        "replicas": st.lists(st.integers(1, 5), unique=True, min_size=1, max_size=4).map(tuple),
        "live": IDS,
        "isr": IDS,
        "target": st.none() | IDS,
        "adding": st.none() | IDS,
        "removing": st.none() | IDS,
        "kind": st.sampled_from(ElectionKind),
        "elr": st.booleans(),
        "shrink": st.booleans(),
    }
)


@given(CASES)
def test_the_record_turns_one_state_into_the_other(case):
    replicas, wanted = case["replicas"], case["target"]
    isr = tuple(r for r in case["isr"] if r in replicas)
    before = state(*replicas, isr=isr, leader=isr[0] if isr else NO_LEADER)
    target = Target(
        isr=None if wanted is None else tuple(r for r in wanted if r in replicas),
        adding=case["adding"],
        removing=case["removing"],
        kind=case["kind"],
        cause=CAUSE,
    )
    rules = facts(
        *case["live"],
        shrink_bumps_leader_epoch=case["shrink"],
        **(ELR if case["elr"] else {}),
    )
    transition = next_state(before, target, rules)
    if transition.changed:
        assert (
            merge(before, record_of(transition, TOPIC_ID, 0, level=METADATA_LEVEL_MAX))
            == transition.after
        )
