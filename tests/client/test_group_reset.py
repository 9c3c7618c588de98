"""Plans of offset resets as data, without a cluster."""

import asyncio

import pytest

from sparkraft.client.errors import PlanError
from sparkraft.client.group_reset import Moved, csv_of, offsets_from_csv, within_logs
from sparkraft.client.values import EARLIEST, LATEST, ListedOffset

ENDS = {EARLIEST: 10, LATEST: 20}


class Logs:
    """Answers ListOffsets: every log holds offsets 10 to 19."""

    async def list_offsets(self, wanted):
        return {
            tp: ListedOffset(offset=ENDS[at], timestamp=-1, leader_epoch=-1)
            for tp, at in wanted.items()
        }


def test_offsets_outside_a_log_are_moved_to_its_nearer_end():
    wanted = {("t", 0): 3, ("t", 1): 15, ("t", 2): 99}
    plan = asyncio.run(within_logs(Logs(), wanted))
    assert plan.offsets == {("t", 0): 10, ("t", 1): 15, ("t", 2): 20}
    assert plan.moved == (Moved(("t", 0), 3, 10), Moved(("t", 2), 99, 20))


@pytest.mark.parametrize("with_group", [True, False])
def test_exported_plans_can_be_read_back(with_group):
    offsets = {("b", 1): 7, ("a", 0): 5}
    text = csv_of({"g": offsets}, with_group=with_group)
    assert text.splitlines()[0] == ("g,a,0,5" if with_group else "a,0,5")
    assert offsets_from_csv(text.splitlines(), "g", source="plan.csv") == offsets


def test_a_plan_of_another_group_is_no_plan():
    with pytest.raises(PlanError, match="has no plan for group g"):
        offsets_from_csv(["other,a,0,5"], "g", source="plan.csv")


def test_a_line_that_is_not_understood_is_named():
    with pytest.raises(PlanError, match="line 2 is not"):
        offsets_from_csv(["a,0,5", "a,zero,5"], "g", source="plan.csv")
