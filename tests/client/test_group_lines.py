"""Decisions about a group in words."""

from typing import Any

from sparkraft.client.explain.group import add_ownership, group_lines


def test_a_group_without_members_has_no_leader():
    decision = {
        "atMs": 0, "epoch": 2, "kind": "leader", "member": "", "chosen": None, "moveCount": 0,
        "reason": "leader m was removed and no member remains", "moves": [], "tookMs": -1,
        "ruledOut": {},
    }  # fmt: skip
    _, line = group_lines([decision])
    assert line.endswith("leader none: leader m was removed and no member remains")


def decided(kind: str, *moves: tuple[int, str, str], member: str = "", more: int = 0) -> Any:
    """A decision with moves of partitions of topic t: (partition, from, to), "" for no member."""
    return {
        "atMs": 0, "epoch": 1, "kind": kind, "member": member, "chosen": None, "reason": "r",
        "moves": [
            {"topic": "t", "partition": at, "from": source or None, "to": to or None, "tookMs": 1}
            for at, source, to in moves
        ],
        "moveCount": len(moves) + more, "tookMs": -1, "ruledOut": {},
    }  # fmt: skip


def owned(*entries: Any) -> list[dict[str, int]]:
    add_ownership(entries)
    return [one["owned"] for one in entries]


def test_members_own_partitions_once_they_have_taken_them_over() -> None:
    numbers = owned(
        decided("target", (0, "", "a"), (1, "", "a"), (2, "", "a")),
        decided("moved", (0, "", "a"), (1, "", "a"), (2, "", "a"), member="a"),
        decided("target", (1, "a", "b"), (2, "a", "")),
        decided("moved", (1, "a", "b"), member="b"),
        decided("left", member="a"),
        decided("generation", (0, "a", "b"), (1, "b", "c")),
    )
    assert numbers == [{}, {"a": 3}, {"a": 2}, {"a": 1, "b": 1}, {"a": 0}, {"c": 1}]


def test_a_partition_has_the_owner_that_its_first_move_names() -> None:
    """The journal begins after the group did."""
    numbers = owned(
        decided("joined", member="b"),
        decided("moved", (0, "a", "b"), member="b"),
        decided("moved", (1, "a", "b"), member="b"),
    )
    assert numbers == [{"a": 2}, {"a": 1, "b": 1}, {"a": 0, "b": 2}]


def test_numbers_are_not_exact_after_moves_that_the_journal_does_not_list() -> None:
    entries = [
        decided("moved", (0, "", "a"), member="a"),
        decided("moved", (1, "", "b"), member="b", more=150),
    ]
    assert owned(*entries) == [{"a": 1}, {"b": 151}]
    assert [one["ownedIsExact"] for one in entries] == [True, False]
    lines = list(group_lines(entries))
    assert "    partitions owned now: a 1" in lines
    assert "    partitions owned now: b about 151" in lines
