"""`explain quorum` without a cluster: what nodes saw, as one account, and what can't all be true.

The nodes' word of who leads is checked against the LeaderChange records of the log, and both
against each other; a journal that lies, or a log that differs, is called a contradiction.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from sparkraft.client.explain.quorum import Epoch, epochs_of
from sparkraft.protocol.messages.k10000_describe_elections import (
    Ballot,
    DescribeElectionsResponse,
    ElectionEntry,
)

LOGGED = "confirmed by the log"
UNLOGGED = "not confirmed: no node has the record"


def entry(kind: str, epoch: int, leader: int = -1, **fields: Any) -> ElectionEntry:
    granted, refused = fields.pop("granted", ()), fields.pop("refused", {})
    ballots = [Ballot(voter_id=voter, is_granted=True) for voter in granted]
    ballots += [Ballot(voter_id=n, is_granted=False, reason=why) for n, why in refused.items()]
    return ElectionEntry(
        **{"at_ms": 1_000 * epoch, "kind": kind, "epoch": epoch, "leader_id": leader, **fields},
        ballots=ballots,
    )


def witness(node: int, *entries: ElectionEntry) -> DescribeElectionsResponse:
    return DescribeElectionsResponse(
        error_message=None, node_id=node, is_voter=True, state="Follower", entries=list(entries)
    )


def won(leader: int, voters: Sequence[int], epoch: int = 4) -> ElectionEntry:
    """What the winner notes of itself."""
    return entry("leader", epoch, leader, granted=voters, reason=f"votes of {voters}")


def follows(leader: int, epoch: int = 4) -> ElectionEntry:
    return entry("follower", epoch, leader, reason=f"{leader} leads")


def record(leader: int, voters: Sequence[int], epoch: int = 4) -> ElectionEntry:
    """What any node notes of the log's LeaderChange record."""
    return entry("log", epoch, leader, granted=voters)


def the_epoch(*witnesses: DescribeElectionsResponse) -> Epoch:
    (epoch,) = epochs_of(witnesses)
    return epoch


def test_an_epoch_that_all_agree_about_is_confirmed() -> None:
    epoch = the_epoch(
        witness(1, won(1, [1, 3]), record(1, [3, 1])),
        witness(2, follows(1), record(1, [1, 3])),
        witness(11, follows(1), record(1, [1, 3])),
    )
    assert (epoch.leader, epoch.verdict) == (1, LOGGED)
    assert epoch.as_json()["log"] == [{"leader": 1, "grantingVoters": [1, 3]}]


@pytest.mark.parametrize(
    "witnesses",
    [
        pytest.param(
            [witness(1, won(1, [1, 3])), witness(2, won(2, [2, 3]))],
            id="two won it, each by its own journal",
        ),
        pytest.param(
            [witness(2, follows(1)), witness(3, follows(3))],
            id="two follow different leaders, and nobody has the record",
        ),
        pytest.param(
            [witness(1, won(1, [1, 2])), witness(2, record(2, [1, 2]))],
            id="the log names another winner than the one that says so",
        ),
        pytest.param(
            [witness(2, follows(1), record(1, [1, 2])), witness(3, follows(3))],
            id="one follows another leader than the log names",
        ),
        pytest.param(
            [witness(1, won(1, [1, 2]), record(1, [1, 3]))],
            id="the winner counted other votes than its record has",
        ),
        pytest.param(
            [witness(2, record(1, [1, 2])), witness(3, record(1, [1, 3]))],
            id="two logs have the record with different voters",
        ),
        pytest.param(
            [witness(2, record(1, [1, 2])), witness(3, record(3, [1, 2]))],
            id="two logs have records of different winners",
        ),
    ],
)
def test_what_cannot_all_be_true_is_a_contradiction(
    witnesses: list[DescribeElectionsResponse],
) -> None:
    epoch = the_epoch(*witnesses)
    assert epoch.verdict == "CONTRADICTION"
    assert epoch.as_json()["verdict"] == "CONTRADICTION"
    assert "(CONTRADICTION)" in next(iter(epoch.as_text()))


def test_a_contradiction_of_one_epoch_is_none_of_the_others() -> None:
    told = epochs_of(
        [
            witness(1, won(1, [1, 2], 3), record(1, [1, 2], 3), won(1, [1, 2], 5)),
            witness(2, follows(1, 3), follows(2, 4), record(3, [2, 3], 4), follows(1, 5)),
        ]
    )
    assert [(epoch.epoch, epoch.verdict) for epoch in told] == [
        (3, LOGGED),
        (4, "CONTRADICTION"),
        (5, UNLOGGED),
    ]


def test_one_who_stood_in_vain_won_nothing() -> None:
    refusal = {2: "we follow 3 in this epoch"}
    asked = entry("pre-vote", 4, candidate_id=1, refused=refusal)
    epoch = the_epoch(
        witness(1, entry("prospective", 4, 3, reason="no answer", refused={2: ""})),
        witness(2, asked),
    )
    assert (epoch.leader, epoch.verdict) == (None, "nobody won")
    assert [ballot["reason"] for ballot in epoch.asked] == ["we follow 3 in this epoch"]
    said = "\n".join(epoch.as_text())
    assert "epoch 4: no leader (nobody won)" in said
    assert "2 was asked by 1 for its pre-vote: refused: we follow 3 in this epoch" in said
