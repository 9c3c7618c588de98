"""Bugs planted in consumer groups and in the runtime of their coordinators."""

import pytest

from tests.mutants.mutant_seeds import assert_seen, by_settings
from tests.mutants.registry import CASES, MutantCase

GROUP_CASES = [case for case in CASES if case.mutant.workload == "groups"]
COORDINATOR_CASES = [case for case in CASES if case.mutant.workload in {"groups", "transactions"}]
FIRST = list({case.mutant.seen_by: case for case in reversed(GROUP_CASES)}.values())
"""One bug for each invariant; the others take longer than `./test` may."""


@pytest.mark.parametrize("case", by_settings(FIRST), ids=str)
def test_a_planted_bug_is_seen_among_groups(case: MutantCase) -> None:
    assert_seen(case)


@pytest.mark.long
@pytest.mark.parametrize(
    "case", by_settings(case for case in GROUP_CASES if case not in FIRST), ids=str
)
def test_another_planted_bug_is_seen_among_groups(case: MutantCase) -> None:
    assert_seen(case)


def test_every_invariant_of_coordinators_alone_reports_a_bug() -> None:
    reporters = {
        case.mutant.seen_by[0] for case in COORDINATOR_CASES if len(case.mutant.seen_by) == 1
    }
    wanted = {f"T{number}" for number in range(1, 17)}
    wanted |= {f"K{number}" for number in range(1, 16)} | {"R1", "R2", "R3", "R4"}
    assert wanted <= reporters


def test_forty_bugs_are_planted_in_coordinators() -> None:
    assert len(COORDINATOR_CASES) >= 40
