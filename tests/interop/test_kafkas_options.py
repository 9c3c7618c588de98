"""Every option of Kafka's command-line tools is one of our command of that name.

Both are asked for `--help`; what we leave out is named here, and in docs/beyond-apis.md why.
"""

import re
from contextlib import suppress
from pathlib import Path

import pytest

from sparkraft.cli import main as cli
from tests.support.kafka_tools import run_kafka_tool

pytestmark = [pytest.mark.real_clients, pytest.mark.java]

TOOLS = {
    "server-start": "kafka.Kafka",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "acls": "org.apache.kafka.tools.AclCommand",
    "delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "configs": "kafka.admin.ConfigCommand",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "storage": "kafka.tools.StorageTool",
    "groups": "org.apache.kafka.tools.GroupsCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
}
ACTIONS = {
    "cluster": ["cluster-id", "unregister", "list-endpoints"],
    "metadata-quorum": ["describe", "add-controller", "remove-controller"],
    "features": [
        "describe", "upgrade", "downgrade", "disable", "version-mapping", "feature-dependencies",
    ],
    "transactions": [
        "list", "describe", "describe-producers", "abort", "forceTerminateTransaction",
        "find-hanging",
    ],
    "storage": ["format", "info", "version-mapping", "feature-dependencies", "random-uuid"],
}  # fmt: skip
"""Tools whose actions have options of their own."""
LEFT_OUT = {"dump-log": {"--remote-log-metadata-decoder"}}

_LINE_OF_OPTION = re.compile(r"^ {0,2}(-.*?)(?: {2,}|\t|$)")
_OPTION = re.compile(r"(?<![\w.-])--?[A-Za-z][\w.-]*")

_CASES = [(tool, action) for tool in TOOLS for action in ("", *ACTIONS.get(tool, ()))]


def options(text: str) -> set[str]:
    """The options that a help text has lines for."""
    found = (_LINE_OF_OPTION.match(line) for line in text.splitlines())
    return {name for line in found if line for name in _OPTION.findall(line[1])}


def our_options(command: str, action: str, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """What our command's help tells of, as its own line or in its usage."""
    argv = [action] if action and command == "storage" else []
    with suppress(SystemExit):  # argparse's way to end
        cli.main([command, *argv, "--help"])
    return set(_OPTION.findall(capsys.readouterr().out))


def test_every_kafka_command_is_compared() -> None:
    of_kafka_3 = {"zookeeper-shell", "zookeeper-security-migration"}  # until 3.9
    assert set(TOOLS) == set(cli._KAFKA_COMMANDS) - of_kafka_3


@pytest.mark.parametrize(("command", "action"), _CASES, ids=lambda value: value)
def test_we_take_every_option_of_kafkas_tool(
    command: str, action: str, kafka_jars: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [action] if action else []
    done = run_kafka_tool(kafka_jars, TOOLS[command], *asked, "--help")
    theirs = options(done.stdout + done.stderr)
    assert theirs, done.stderr
    left_out = LEFT_OUT.get(command, set())
    known = our_options(command, action, capsys) | {"-h"}  # everywhere, if not always told
    assert theirs - known == left_out
