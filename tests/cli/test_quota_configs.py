"""`configs` of users, clients and ips; Kafka's tool prints the same of the same node."""

import json

import pytest

from sparkraft.cli import main as cli
from sparkraft.cli.quota_configs import java_double
from tests.support.kafka_tools import run_kafka_tool
from tests.support.nodes import SparkraftNode


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1024.0, "1024.0"), (0.5, "0.5"), (1e6, "1000000.0"), (1e7, "1.0E7"),
        (12345678.0, "1.2345678E7"), (0.0001, "1.0E-4"), (9.2e18, "9.2E18"),
        (123456789.5, "1.234567895E8"),
    ],
)  # fmt: skip
def test_a_number_is_written_as_java_does(value, text):
    assert java_double(value) == text


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with SparkraftNode(tmp_path_factory.mktemp("quotas")) as made:
        yield made


@pytest.fixture
def configs(node, capsys):
    def run(*argv: str, code: int = 0) -> str:
        assert cli.main(["configs", "--bootstrap-server", node.bootstrap, *argv]) == code
        out = capsys.readouterr()
        return out.out if code == 0 else out.err

    return run


@pytest.mark.real_clients
def test_quotas_are_set_shown_and_removed(configs):
    said = configs("--alter", "--user", "ann", "--add-config", "producer_byte_rate=1024")
    assert said == "Completed updating config for user ann.\n"
    configs(
        "--alter", "--entity-type", "users", "--entity-name", "ann", "--entity-type", "clients",
        "--entity-default", "--add-config", "consumer_byte_rate=20000000,request_percentage=5",
    )  # fmt: skip
    said = configs("--alter", "--ip-defaults", "--add-config", "connection_creation_rate=9")
    assert said == "Completed updating default config for ips in the cluster.\n"
    assert configs("--describe", "--user", "ann") == (
        "Quota configs for user-principal 'ann' are producer_byte_rate=1024.0\n"
    )
    assert configs("--describe", "--entity-type", "users", "--entity-type", "clients") == (
        "Quota configs for user-principal 'ann', the default client-id are "
        "consumer_byte_rate=2.0E7, request_percentage=5.0\n"
    )
    (found,) = json.loads(configs("--describe", "--ip-defaults", "--output", "json"))
    assert found == {"entity": {"ip": None}, "quotas": {"connection_creation_rate": 9.0}}
    said = configs("--alter", "--user", "ann", "--delete-config", "request_percentage", code=1)
    assert "Invalid config(s): request_percentage" in said
    configs("--alter", "--user", "ann", "--delete-config", "producer_byte_rate")
    assert configs("--describe", "--user", "ann") == ""


@pytest.mark.real_clients
@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (("--user", "a", "--add-config", "x=1"), 2, "Unexpected config names: x"),
        (("--ip", "10.0.0.1", "--add-config", "producer_byte_rate=1"), 2, "Only connection quota"),
        (("--entity-type", "users", "--add-config", "producer_byte_rate=1"), 2, "name must be"),
        (("--user", "a", "--topic", "t", "--add-config", "x=1"), 2, "may be specified together"),
        (("--user", "a", "--add-config", "producer_byte_rate=x"), 1, "Cannot parse quota"),
        (("--user", "a", "--add-config", "producer_byte_rate=-1"), 1, "must be greater than 0"),
    ],
)
def test_what_is_no_quota_is_refused(configs, argv, code, said):
    assert said in configs("--alter", *argv, code=code)


@pytest.mark.real_clients
@pytest.mark.java
def test_kafkas_tool_and_ours_show_and_set_the_same(configs, node, kafka_jars):
    def theirs(*argv: str) -> str:
        done = run_kafka_tool(
            kafka_jars, "kafka.admin.ConfigCommand", "--bootstrap-server", node.bootstrap, *argv
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    rates = "producer_byte_rate=1024,consumer_byte_rate=123456789,controller_mutation_rate=0.25"
    entities = [
        ("--entity-type", "clients", "--entity-name", "c"),
        ("--entity-type", "clients", "--entity-default"),
        ("--entity-type", "users", "--entity-name", "u", "--entity-type", "clients",
         "--entity-name", "c"),
        ("--entity-type", "clients", "--entity-name", "d", "--entity-type", "users",
         "--entity-default"),
    ]  # fmt: skip
    for set_by, other in ((theirs, configs), (configs, theirs)):
        for entity in entities:
            said = set_by("--alter", *entity, "--add-config", rates)
            assert other("--alter", *entity, "--add-config", rates) == said
            shown = configs("--describe", *entity)
            assert words(shown) == words(theirs("--describe", *entity))
            assert "controller_mutation_rate=0.25" in shown
            other("--alter", *entity, "--delete-config", "producer_byte_rate")
    for kinds in (("clients",), ("clients", "users")):
        options = [word for kind in kinds for word in ("--entity-type", kind)]
        assert words(configs("--describe", *options)) == words(theirs("--describe", *options))


def words(text: str) -> list[list[str]]:
    """Lines and their quotas, sorted: Kafka prints both in the order of a hash map."""
    return sorted(sorted(line.replace(",", "").split()) for line in text.splitlines())
