"""Who leads, and the reasons given."""

from sparkraft.controller.leader_election import (
    Candidacy,
    ChosenBy,
    ElectionKind,
    choose_leader,
)


def choose(*, replicas=(1, 2, 3), isr=(), elr=(), dead=(), leader=1, last=None, elr_on=True,
           kind=ElectionKind.ONLINE):  # fmt: skip
    return choose_leader(
        Candidacy(
            kind=kind,
            replicas=replicas,
            isr=isr,
            elr=elr,
            current_leader=leader,
            last_known_leader=last,
            elr_enabled=elr_on,
            why_not=lambda replica: "fenced" if replica in dead else None,
        )
    )


def result(choice):
    return choice.leader, choice.reason.chosen_by, choice.unclean


def test_the_leader_stays_while_it_can():
    assert result(choose(isr=(2, 1), leader=2)) == (2, ChosenBy.CURRENT_LEADER, False)


def test_the_first_live_replica_in_sync_follows_in_order_of_assignment():
    choice = choose(replicas=(3, 1, 2), isr=(2, 1, 3), dead=(3,), leader=3)
    assert result(choice) == (1, ChosenBy.IN_SYNC_REPLICA, False)
    assert choice.reason.candidates == (3, 1, 2)
    assert choice.reason.live == (1, 2)
    assert choice.reason.ruled_out == ((3, "fenced"),)


def test_a_replica_out_of_sync_does_not_lead():
    choice = choose(isr=(1,), dead=(1,))
    assert result(choice) == (-1, ChosenBy.NOBODY, False)
    assert choice.reason.ruled_out == (
        (1, "fenced"),
        (2, "not in the ISR"),
        (3, "not in the ISR"),
    )


def test_preferred_goes_back_to_the_first_replica():
    kind = ElectionKind.PREFERRED
    assert result(choose(isr=(1, 2), leader=2, kind=kind)) == (
        1, ChosenBy.PREFERRED_REPLICA, False,
    )  # fmt: skip
    assert result(choose(isr=(2,), leader=2, kind=kind)) == (2, ChosenBy.CURRENT_LEADER, False)


def test_the_elr_counts_only_while_the_isr_is_empty():
    assert result(choose(elr=(2, 3), dead=(2,), leader=-1)) == (
        3, ChosenBy.ELIGIBLE_LEADER_REPLICA, False,
    )  # fmt: skip
    assert result(choose(isr=(1,), elr=(2,), dead=(1,))) == (-1, ChosenBy.NOBODY, False)


def test_the_last_known_leader_leads_uncleanly_when_nobody_is_left():
    assert result(choose(leader=-1, last=3)) == (3, ChosenBy.LAST_KNOWN_LEADER, True)
    assert result(choose(leader=-1, last=3, elr_on=False)) == (-1, ChosenBy.NOBODY, False)
    assert result(choose(leader=-1, last=3, dead=(3,))) == (-1, ChosenBy.NOBODY, False)
    assert result(choose(leader=-1, last=3, elr=(2,), dead=(2,))) == (-1, ChosenBy.NOBODY, False)


def test_an_unclean_election_takes_any_live_replica():
    choice = choose(isr=(1,), dead=(1,), kind=ElectionKind.UNCLEAN)
    assert result(choice) == (2, ChosenBy.ANY_LIVE_REPLICA, True)
    clean = choose(isr=(1, 3), dead=(1,), kind=ElectionKind.UNCLEAN)
    assert result(clean) == (3, ChosenBy.IN_SYNC_REPLICA, False)


def test_nobody_alive_nobody_leads():
    choice = choose(isr=(1,), dead=(1, 2, 3), kind=ElectionKind.UNCLEAN)
    assert result(choice) == (-1, ChosenBy.NOBODY, False)
