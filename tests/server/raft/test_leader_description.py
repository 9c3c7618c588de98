"""The sentence that those get who ask about the quorum where nobody leads, or another one does."""

from types import SimpleNamespace
from typing import Any

from sparkraft.base.ids import BrokerId, LeaderEpoch
from sparkraft.raft.events import LeaderAndEpoch
from sparkraft.server.raft.leader_description import describe_leader


def raft(leader: int | None, *, leaderless_ms: int, place: Any = None, ids: Any = (1, 2, 3)) -> Any:
    leader_id = None if leader is None else BrokerId(leader)
    return SimpleNamespace(
        node_id=1,
        leader_and_epoch=LeaderAndEpoch(leader_id, LeaderEpoch(7)),
        leader_node=place,
        leaderless_ms=leaderless_ms,
        voters=SimpleNamespace(ids=ids),
    )


def test_a_leader_is_named_with_its_epoch_and_place() -> None:
    place = SimpleNamespace(host="h", port=9093)
    told = describe_leader(raft(2, leaderless_ms=0, place=place))
    assert told == "Controller 2 at h:9093 leads the quorum in epoch 7"


def test_a_leader_whose_place_is_not_known_is_named() -> None:
    assert describe_leader(raft(2, leaderless_ms=0)) == "Controller 2 leads the quorum in epoch 7"


def test_without_a_leader_the_epoch_and_the_voters_are_told() -> None:
    assert describe_leader(raft(None, leaderless_ms=50)) == (
        "Node 1 knows no leader of the quorum in epoch 7; the voters are 1, 2, 3"
    )


def test_a_leader_that_is_gone_is_no_leader() -> None:
    assert describe_leader(raft(2, leaderless_ms=50)) == (
        "Node 1 knows no leader of the quorum in epoch 7 (controller 2 does not respond); "
        "the voters are 1, 2, 3"
    )


def test_voters_that_are_not_known_yet_are_not_made_up() -> None:
    assert describe_leader(raft(None, leaderless_ms=50, ids=())).endswith(
        "the voters are unknown here"
    )
