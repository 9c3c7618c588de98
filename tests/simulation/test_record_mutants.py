"""Bugs planted in whole nodes whose clients write and read records while leaders come and go."""

import pytest

from tests.mutants.mutant_seeds import assert_seen, by_settings
from tests.mutants.registry import CASES, MutantCase


@pytest.mark.parametrize(
    "case",
    by_settings(
        case
        for case in CASES
        if case.mutant.workload == "produce-consume"
        and case.mutant.scenario == "leaders-come-and-go"
    ),
    ids=str,
)
def test_a_planted_bug_is_seen_among_records(case: MutantCase) -> None:
    assert_seen(case)
