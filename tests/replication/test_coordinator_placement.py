"""Who should lead where only some brokers serve what the leader has to serve."""

from dataclasses import dataclass

import pytest

from sparkraft.replication.coordinator_placement import ElectPreferred, Reassign, next_reassignment

OURS, OTHER_OF_OURS, K1, K2 = 1, 2, 11, 12
ABLE = (K1, K2)


@dataclass(frozen=True)
class PlacedPartition:
    replicas: tuple[int, ...]
    leader: int
    isr: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()


def step(
    replicas: tuple[int, ...],
    leader: int,
    isr: tuple[int, ...] | None = None,
    *,
    able: tuple[int, ...] = ABLE,
    local_id: int = OURS,
    index: int = 0,
) -> Reassign | ElectPreferred | None:
    placed = PlacedPartition(replicas, leader, replicas if isr is None else isr)
    return next_reassignment(placed, index, able=able, local_id=local_id)


def test_one_that_cannot_serve_goes_last_and_gives_way() -> None:
    assert step((OURS, K1, K2), OURS) == Reassign((K1, K2, OURS))
    assert step((K1, K2, OURS), OURS) == ElectPreferred()
    assert step((K1, K2, OURS), K1) is None


def test_the_order_is_right_before_it_is_needed() -> None:
    assert step((K1, OURS, K2), K1) == Reassign((K1, K2, OURS))


def test_a_leader_gives_way_to_one_that_is_in_sync() -> None:
    assert step((K1, K2, OURS), OURS, (K2, OURS)) == Reassign((K2, K1, OURS))
    assert step((K2, K1, OURS), OURS, (K2, OURS)) == ElectPreferred()


def test_it_leads_while_no_other_is_in_sync() -> None:
    assert step((K1, K2, OURS), OURS, (OURS,)) is None


def test_where_nobody_could_serve_it_moves_to_somebody_who_does() -> None:
    assert step((OURS,), OURS) == Reassign((K1,))
    assert step((OURS,), OURS, index=3) == Reassign((K2,))
    assert step((OURS, OTHER_OF_OURS), OURS) == Reassign((K1, OURS))


@pytest.mark.parametrize("leader", [OURS, OTHER_OF_OURS, -1])
def test_one_of_several_speaks(leader: int) -> None:
    replicas = (OURS, OTHER_OF_OURS, K1)
    said = [step(replicas, leader, local_id=broker) for broker in (OURS, OTHER_OF_OURS)]
    assert sorted(each is not None for each in said) == [False, True]
    assert said[leader == OTHER_OF_OURS] == Reassign((K1, OURS, OTHER_OF_OURS))


def test_nothing_is_done_where_nobody_is_able_or_all_are_or_a_move_is_under_way() -> None:
    assert step((OURS, K1), OURS, able=()) is None
    assert step((K1, K2), K1) is None
    moving = PlacedPartition((OURS, K1), OURS, (OURS,), adding_replicas=(K1,))
    assert next_reassignment(moving, 0, able=ABLE, local_id=OURS) is None


def test_asking_again_and_again_ends_with_an_able_leader() -> None:
    for replicas in ((OURS,), (OURS, K1), (OURS, OTHER_OF_OURS, K2), (K2, OURS, OTHER_OF_OURS)):
        placed = PlacedPartition(replicas, replicas[0], replicas)
        for _ in range(5):
            for broker in (OURS, OTHER_OF_OURS):
                told = next_reassignment(placed, 0, able=ABLE, local_id=broker)
                if isinstance(told, Reassign):
                    leader = placed.leader if placed.leader in told.replicas else told.replicas[0]
                    placed = PlacedPartition(told.replicas, leader, told.replicas)
                elif told is not None:
                    placed = PlacedPartition(placed.replicas, placed.replicas[0], placed.isr)
        assert placed.leader in ABLE
        assert len(placed.replicas) == len(replicas)
