"""Command lines of the tools for replicas and brokers that are rejected, without a cluster."""

import pytest

from sparkraft.cli import main as cli


@pytest.mark.parametrize(
    "argv",
    [
        ["reassign-partitions", "--bootstrap-server", "x:1"],
        ["reassign-partitions", "--bootstrap-server", "x:1", "--list", "--verify"],
        ["reassign-partitions", "--bootstrap-server", "x:1", "--execute"],
        ["reassign-partitions", "--bootstrap-server", "x:1", "--generate", "--broker-list", "1"],
        ["reassign-partitions", "--bootstrap-server", "x:1", "--list", "--throttle", "5"],
        ["reassign-partitions", "--bootstrap-server", "x:1", "--list", "--throttle", "0"],
        ["reassign-partitions", "--bootstrap-server", "x:1", "--list", "--at-offset", "-1"],
        ["reassign-partitions", "--bootstrap-server", "x:1", "--list", "--at-offset", "1",
         "--at-time", "1h"],
        ["reassign-partitions", "--bootstrap-server", "x:1", "--cancel",
         "--reassignment-json-file", "f", "--at-offset", "0"],
        ["reassign-partitions", "--bootstrap-controller", "x:1", "--verify",
         "--reassignment-json-file", "f"],
        ["leader-election", "--bootstrap-server", "x:1", "--all-topic-partitions"],
        ["leader-election", "--bootstrap-server", "x:1", "--election-type", "preferred"],
        ["leader-election", "--bootstrap-server", "x:1", "--election-type", "preferred",
         "--topic", "t"],
        ["leader-election", "--bootstrap-server", "x:1", "--election-type", "random",
         "--all-topic-partitions"],
        ["cluster", "unregister", "--bootstrap-server", "x:1"],
        ["cluster", "cluster-id", "--bootstrap-server", "x:1", "--id", "3"],
        ["cluster", "list-endpoints", "--bootstrap-controller", "x:1",
         "--include-fenced-brokers"],
    ],
)  # fmt: skip
def test_command_lines_that_make_no_sense(argv, capsys):
    assert cli.main(argv) == 2
    assert f"sparkraft {argv[0]}: " in capsys.readouterr().err
