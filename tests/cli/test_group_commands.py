"""Text of the commands about groups that needs no node."""

import pytest

from sparkraft.cli import group_describe
from sparkraft.cli import main as cli
from sparkraft.client.groups import GroupInfo, GroupMember


def member(name: str, *, is_upgraded: bool, instance: str | None = None) -> GroupMember:
    return GroupMember(
        id=name,
        instance_id=instance,
        client_id="client",
        host="/127.0.0.1",
        assignment=(("t", 1), ("t", 0), ("a", 3)),
        target=(("t", 0),),
        epoch=4,
        is_upgraded=is_upgraded,
    )


def group(*members: GroupMember) -> GroupInfo:
    return GroupInfo(
        id="g",
        kind="consumer",
        state="Reconciling",
        protocol_type="consumer",
        assignor="uniform",
        coordinator=1,
        members=members,
        group_epoch=6,
        target_epoch=5,
    )


def test_members_of_a_new_group_are_printed_with_epochs_and_targets(capsys):
    group_describe._print_members(group(member("m", is_upgraded=True)), is_verbose=True)
    assert capsys.readouterr().out == (
        "\n"
        "GROUP           CONSUMER-ID     HOST            CLIENT-ID       #PARTITIONS     "
        "CURRENT-EPOCH   CURRENT-ASSIGNMENT   TARGET-EPOCH    TARGET-ASSIGNMENT   \n"
        "g               m               /127.0.0.1      client          3               "
        "4               a:3;t:0,1            5               t:0                 \n"
    )


def test_a_group_that_migrates_says_which_members_are_upgraded(capsys):
    mixed = group(member("new", is_upgraded=True), member("old", is_upgraded=False))
    group_describe._print_members(mixed, is_verbose=True)
    header, *rows = capsys.readouterr().out.splitlines()[1:]
    assert header.endswith("TARGET-ASSIGNMENT    UPGRADED")
    assert [row.split()[-1] for row in rows] == ["true", "false"]


def test_a_group_without_members_is_a_header_alone_as_in_kafka(capsys):
    group_describe._print_members(group(), is_verbose=False)
    assert capsys.readouterr().out == (
        "\nGROUP           CONSUMER-ID     HOST            CLIENT-ID       #PARTITIONS     \n"
    )


@pytest.mark.parametrize(
    ("pattern", "code", "text"),
    [
        ("orders-.*", 0, "is valid"),
        ("(orders", 1, "is invalid: missing )"),
        ("a(?=b)", 1, "is invalid: invalid perl operator"),  # Python's re would take it
    ],
)
def test_a_pattern_is_judged_as_coordinators_judge_it(pattern, code, text, capsys):
    assert cli.main(["consumer-groups", "--validate-regex", pattern]) == code
    assert text in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ([], "give --list"),
        (["--list", "--group-type", "other"], "--group-type is one of"),
        (["--list", "--share", "--streams"], "--share goes with no other filter"),
    ],
)
def test_misuse_of_groups_is_explained(argv, sentence, capsys):
    assert cli.main(["groups", "--bootstrap-server", "127.0.0.1:1", *argv]) == 2
    assert sentence in capsys.readouterr().err
