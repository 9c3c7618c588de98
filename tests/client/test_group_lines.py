"""Decisions about a group in words."""

from sparkraft.client.explain.group import group_lines


def test_a_group_without_members_has_no_leader():
    decision = {
        "atMs": 0, "epoch": 2, "kind": "leader", "member": "", "chosen": None, "moveCount": 0,
        "reason": "leader m was removed and no member remains", "moves": [], "tookMs": -1,
        "ruledOut": {},
    }  # fmt: skip
    _, line = group_lines([decision])
    assert line.endswith("leader none: leader m was removed and no member remains")
