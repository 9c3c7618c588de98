"""The checks of transactional clients' observations report what they are made for."""

from collections.abc import Callable

import pytest

from sparkraft.simulation.workload.history import Poll
from tests.support.transaction_history import (
    FINAL,
    Observed,
    Outcome,
    Polls,
    Transaction,
    anomalies,
)

RECORDS = [(0, "w.0"), (1, "w.1"), (5, "w.4"), (6, "w.5")]
"""Of partition 0 with read_committed; offset 2 has a marker, 3 an aborted value, 4 its marker."""

ABORTED = (3, "w.3")


def polls(*records: tuple[int, str]) -> Polls:
    return {0: [Poll(tuple(records))]} if records else {}


def correct() -> Observed:
    transactions = [
        Transaction("w", [(0, "w.0"), (0, "w.1")], Outcome.COMMITTED, {"w.0": 0, "w.1": 1}),
        Transaction("w", [(0, "w.3")], Outcome.ABORTED, {"w.3": 3}),
        Transaction("w", [(0, "w.4"), (0, "w.5")], Outcome.UNKNOWN, {}),
    ]
    everything = sorted([*RECORDS, ABORTED])
    copies = [(n, value) for n, (_, value) in enumerate(RECORDS)]
    return Observed(
        transactions,
        {FINAL: polls(*RECORDS), "live": polls(*RECORDS)},
        {FINAL: polls(*everything)},
        {"copied": {FINAL: polls(*copies)}},
    )


def an_aborted_value_is_read(seen: Observed) -> None:
    seen.committed["live"] = polls(*sorted([*RECORDS, ABORTED]))


def an_abandoned_transaction_is_committed(seen: Observed) -> None:
    seen.transactions[0].outcome = Outcome.ABORTED


def a_committed_value_is_lost(seen: Observed) -> None:
    for readers in (seen.committed, seen.uncommitted):
        readers[FINAL] = polls(*(one for one in RECORDS if one[1] != "w.1"))
    seen.committed.pop("live")


def a_committed_value_is_doubled(seen: Observed) -> None:
    seen.committed[FINAL] = polls(*RECORDS, (9, "w.0"))


def a_transaction_is_torn(seen: Observed) -> None:
    seen.committed[FINAL] = polls(*RECORDS[:-1])


def a_value_is_hidden_from_read_uncommitted(seen: Observed) -> None:
    seen.uncommitted[FINAL] = polls(*RECORDS[:2], ABORTED)


def an_offset_moves_without_its_transaction(seen: Observed) -> None:
    seen.copies["copied"][FINAL] = polls((0, "w.0"), (1, "w.4"), (2, "w.5"))


def a_transaction_is_committed_without_its_offset(seen: Observed) -> None:
    copies = [value for _, value in (*RECORDS, *RECORDS[-1:])]
    seen.copies["copied"][FINAL] = polls(*enumerate(copies))


def copies_change_their_order(seen: Observed) -> None:
    seen.copies["copied"][FINAL] = polls((0, "w.1"), (1, "w.0"), (2, "w.4"), (3, "w.5"))


def test_a_correct_cluster_has_no_anomaly() -> None:
    assert anomalies(correct()) == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (an_aborted_value_is_read, "read_committed: aborted-read"),
        (an_abandoned_transaction_is_committed, "read_committed: aborted-read"),
        (a_committed_value_is_lost, "read_committed: lost-write"),
        (a_committed_value_is_doubled, "read_committed: duplicate"),
        (a_transaction_is_torn, "torn: "),
        (a_value_is_hidden_from_read_uncommitted, "isolation: "),
        (an_offset_moves_without_its_transaction, "missing ['w.1']"),
        (a_transaction_is_committed_without_its_offset, "more than once ['w.5']"),
        (copies_change_their_order, "first difference at 0"),
    ],
)
def test_an_anomaly_is_reported(change: Callable[[Observed], None], found: str) -> None:
    observed = correct()
    change(observed)
    assert any(found in one for one in anomalies(observed)), anomalies(observed)
