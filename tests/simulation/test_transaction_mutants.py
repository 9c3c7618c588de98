"""Bugs planted in coordinators and in transactions on the leaders of partitions."""

import pytest

from tests.mutants.mutant_seeds import assert_seen, by_settings
from tests.mutants.registry import CASES, MutantCase

TRANSACTION_CASES = [case for case in CASES if case.mutant.workload == "transactions"]


@pytest.mark.parametrize("case", by_settings(TRANSACTION_CASES), ids=str)
def test_a_planted_bug_is_seen_among_transactions(case: MutantCase) -> None:
    assert_seen(case)


def test_every_invariant_of_transactions_alone_reports_a_bug() -> None:
    reporters = {case.mutant.seen_by[0] for case in TRANSACTION_CASES}
    assert {f"T{number}" for number in range(1, 17)} <= reporters
