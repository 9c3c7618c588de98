"""Every data command against a node, as text and as JSON."""

import io
import json
import re
from itertools import count

import pytest

from sparkraft.cli import main as cli

pytestmark = pytest.mark.real_clients

_names = count()


@pytest.fixture
def sparkraft(sparkraft_cluster, capsys, monkeypatch):
    """Runs a command; gives its output, or with `code` what it said on standard error."""

    def run(command: str, *argv: str, stdin: str | None = None, code: int = 0) -> str:
        if stdin is not None:
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        bootstrap = ["--bootstrap-server", sparkraft_cluster.bootstrap]
        found = cli.main([command, *argv, *bootstrap])
        said = capsys.readouterr()
        assert found == code, said.err
        return said.err if code else said.out

    return run


@pytest.fixture
def topic(sparkraft):
    name = f"commands-{next(_names)}"
    sparkraft("topics", "--create", "--topic", name, "--partitions", "2")
    return name


def test_topics_create_describe_alter_delete(sparkraft):
    name = f"commands-{next(_names)}"
    made = ["--create", "--topic", name, "--config", "retention.ms=1000"]
    assert sparkraft("topics", *made) == f"Created topic {name}.\n"
    assert "already exists" in sparkraft("topics", *made, code=1)
    assert sparkraft("topics", *made, "--if-not-exists") == ""
    sparkraft("topics", "--alter", "--topic", name, "--partitions", "3")
    head, *partitions = sparkraft("topics", "--describe", "--topic", name).splitlines()
    assert "\tPartitionCount: 3\tReplicationFactor: 1\t" in head
    assert "retention.ms=1000" in head
    assert [line.split("\t")[2] for line in partitions] == [f"Partition: {i}" for i in range(3)]
    (described,) = json.loads(
        sparkraft("topics", "--describe", "--topic", name, "--output", "json")
    )
    assert [p["leader"] for p in described["partitions"]] == [1, 1, 1]
    by_id = sparkraft("topics", "--describe", "--topic-id", described["topicId"])
    assert by_id.splitlines()[0] == head
    assert sparkraft("topics", "--describe", "--under-replicated-partitions") == ""
    sparkraft("topics", "--delete", "--topic", name)
    assert "does not exist as expected" in sparkraft("topics", "--delete", "--topic", name, code=1)
    assert sparkraft("topics", "--delete", "--topic", name, "--if-exists") == ""


def test_topics_with_a_replica_assignment(sparkraft):
    name = f"commands-{next(_names)}"
    sparkraft("topics", "--create", "--topic", name, "--replica-assignment", "1,1")
    (described,) = json.loads(
        sparkraft("topics", "--describe", "--topic", name, "--output", "json")
    )
    assert [p["replicas"] for p in described["partitions"]] == [[1], [1]]


def test_lines_become_records_and_records_lines(sparkraft, topic):
    sparkraft("console-producer", "--topic", topic, "--compression-codec", stdin="a\nb\nc\n")
    consume = ["--topic", topic, "--from-beginning", "--max-messages", "3"]
    assert sorted(sparkraft_bytes(sparkraft, *consume)) == ["a", "b", "c"]


def sparkraft_bytes(sparkraft, *argv: str) -> list[str]:
    return sparkraft("console-consumer", *argv).splitlines()


def test_keys_headers_and_json(sparkraft, topic):
    reader = ["--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"]
    sparkraft("console-producer", "--topic", topic, *reader, stdin="h:1\tk\tv\n")
    consume = ["--topic", topic, "--from-beginning", "--max-messages", "1"]
    shown = ["--formatter-property", "print.key=true", "--formatter-property", "print.headers=true"]
    assert sparkraft_bytes(sparkraft, *consume, *shown) == ["h:1\tk\tv"]
    (line,) = sparkraft_bytes(sparkraft, *consume, "--output", "json")
    data = json.loads(line)
    assert (data["key"], data["value"], data["headers"]) == ("k", "v", [["h", "1"]])


def test_lines_before_a_malformed_one_are_written(sparkraft, topic):
    reader = ["--reader-property", "parse.key=true"]
    said = sparkraft("console-producer", "--topic", topic, *reader, stdin="k\tv\nx\n", code=1)
    assert "line 2 has no '\\t'" in said
    consume = ["--topic", topic, "--from-beginning", "--max-messages", "1", "--timeout-ms", "60000"]
    assert sparkraft_bytes(sparkraft, *consume) == ["v"]


def test_one_partition_from_an_offset(sparkraft, topic):
    sparkraft("console-producer", "--topic", topic, stdin="".join(f"{i}\n" for i in range(5)))
    offsets = json.loads(sparkraft("get-offsets", "--topic", topic, "--output", "json"))
    (full,) = [row["partition"] for row in offsets if row["offset"] == 5]
    consume = ["--topic", topic, "--partition", str(full), "--max-messages", "2"]
    assert sparkraft_bytes(sparkraft, *consume, "--offset", "3") == ["3", "4"]
    assert sparkraft_bytes(sparkraft, *consume, "--offset", "earliest") == ["0", "1"]


def test_a_topic_that_is_not_there_is_waited_for_and_named(sparkraft_cluster, sparkraft, capsys):
    name = f"misspelt-{next(_names)}"
    connect = ["--bootstrap-server", sparkraft_cluster.bootstrap]
    assert cli.main(["console-consumer", "--topic", name, "--timeout-ms", "1", *connect]) == 0
    told = capsys.readouterr().err
    assert f"waiting for topic {name}: UNKNOWN_TOPIC_OR_PARTITION" in told
    assert "INVALID_TOPIC" in sparkraft("console-consumer", "--topic", "no such name", code=1)


def test_a_group_reads_only_what_max_messages_says(sparkraft, topic):
    sparkraft("console-producer", "--topic", topic, stdin="".join(f"{i}\n" for i in range(10)))
    group = f"group-of-{topic}"
    consume = ["--topic", topic, "--group", group, "--from-beginning", "--max-messages"]
    first = sparkraft_bytes(sparkraft, *consume, "4")
    rest = sparkraft_bytes(sparkraft, *consume, "6")
    assert sorted(first + rest) == [str(i) for i in range(10)]


def test_a_record_the_node_refuses_is_exit_code_1(sparkraft):
    name = f"commands-{next(_names)}"
    sparkraft("topics", "--create", "--topic", name, "--config", "max.message.bytes=100")
    said = sparkraft("console-producer", "--topic", name, stdin="x" * 500 + "\n", code=1)
    assert "MESSAGE_TOO_LARGE" in said


def test_consumer_groups_from_list_to_delete(sparkraft, topic):
    sparkraft("console-producer", "--topic", topic, stdin="".join(f"{i}\n" for i in range(10)))
    group = f"group-of-{topic}"
    reset = ["--reset-offsets", "--group", group, "--topic", topic]
    planned = sparkraft("consumer-groups", *reset, "--to-latest")
    assert "NEW-OFFSET" in planned
    assert group not in sparkraft("consumer-groups", "--list").split()
    sparkraft("consumer-groups", *reset, "--to-earliest", "--execute")
    assert group in sparkraft("consumer-groups", "--list").split()
    assert "Empty" in sparkraft("consumer-groups", "--list", "--state")

    def lag() -> int:
        (described,) = json.loads(
            sparkraft("consumer-groups", "--describe", "--group", group, "--output", "json")
        )
        return sum(row["lag"] for row in described["offsets"])

    assert lag() == 10
    sparkraft("consumer-groups", *reset, "--to-latest", "--execute")
    assert lag() == 0
    sparkraft("consumer-groups", *reset, "--shift-by", "-2", "--execute")
    assert 0 < lag() <= 4
    header, row = sparkraft("consumer-groups", "--describe", "--group", group).split("\n")[1:3]
    assert header.split()[:3] == ["GROUP", "TOPIC", "PARTITION"]
    assert row.split()[:2] == [group, topic]
    assert "STATE" in sparkraft("consumer-groups", "--describe", "--group", group, "--state")
    sparkraft("consumer-groups", "--delete-offsets", "--group", group, "--topic", f"{topic}:0")
    assert "was successful" in sparkraft("consumer-groups", "--delete", "--group", group)
    assert "GROUP_ID_NOT_FOUND" in sparkraft(
        "consumer-groups", "--describe", "--group", group, code=1
    )


def test_a_reset_plan_is_exported_and_taken_from_a_file(sparkraft, topic, tmp_path):
    sparkraft("console-producer", "--topic", topic, stdin="a\nb\n")
    group = f"group-of-{topic}"
    reset = ["--reset-offsets", "--group", group]
    sparkraft("consumer-groups", *reset, "--topic", topic, "--to-latest", "--execute")
    plan = sparkraft("consumer-groups", *reset, "--all-topics", "--to-current", "--export")
    file = tmp_path / "plan.csv"
    file.write_text(plan)
    from_file = json.loads(
        sparkraft("consumer-groups", *reset, "--from-file", str(file), "--output", "json")
    )
    lines = [f"{row['topic']},{row['partition']},{row['newOffset']}" for row in from_file]
    assert lines == plan.splitlines()
    assert len(lines) == 2


def test_log_levels_are_set_shown_and_deleted(sparkraft):
    entity = ["--entity-type", "broker-loggers", "--entity-name", "1"]
    sparkraft("configs", "--alter", *entity, "--add-config", "kafka.raft=DEBUG")
    shown = sparkraft("configs", "--describe", *entity)
    assert shown.startswith("Dynamic configs for broker-logger 1 are:\n")
    assert "  kafka.raft=DEBUG sensitive=false synonyms={}\n" in shown
    sparkraft("configs", "--alter", "--broker-logger", "1", "--delete-config", "kafka.raft")
    assert "kafka.raft=INFO " in sparkraft("configs", "--describe", "--broker-logger", "1")
    said = sparkraft("configs", "--alter", *entity, "--add-config", "no.such=INFO", code=1)
    assert "Invalid broker logger(s): no.such" in said
    assert "needs --entity-name" in sparkraft("configs", "--describe", *entity[:2], code=2)


def test_configs_set_shown_and_deleted(sparkraft, topic):
    entity = ["--entity-type", "topics", "--entity-name", topic]
    added = "retention.ms=5000,cleanup.policy=[compact,delete]"
    done = sparkraft("configs", "--alter", *entity, "--add-config", added)
    assert done == f"Completed updating config for topic {topic}.\n"
    shown = sparkraft("configs", "--describe", "--topic", topic)
    assert "  retention.ms=5000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:" in shown
    assert "  cleanup.policy=compact,delete " in shown
    sparkraft("configs", "--alter", *entity, "--delete-config", "retention.ms,cleanup.policy")
    left = sparkraft("configs", "--describe", *entity)
    assert left == f"Dynamic configs for topic {topic} are:\n"
    said = sparkraft("configs", "--alter", *entity, "--delete-config", "retention.ms", code=1)
    assert "not set" in said
    (everything,) = json.loads(
        sparkraft("configs", "--describe", "--all", *entity, "--output", "json")
    )
    assert len(everything["configs"]) > 20


def test_delete_records_moves_the_first_offset(sparkraft, topic, tmp_path):
    sparkraft("console-producer", "--topic", topic, stdin="a\nb\nc\n")
    file = tmp_path / "offsets.json"
    partitions = [{"topic": topic, "partition": i, "offset": -1} for i in range(2)]
    file.write_text(json.dumps({"partitions": partitions, "version": 1}))
    done = sparkraft("delete-records", "--offset-json-file", str(file))
    assert f"partition: {topic}-0\tlow_watermark: " in done
    latest = sparkraft("get-offsets", "--topic", topic)
    assert sparkraft("get-offsets", "--topic", topic, "--time", "earliest") == latest


def test_log_dirs_quorum_features_and_versions(sparkraft, topic):
    dirs = json.loads(
        sparkraft("log-dirs", "--describe", "--topic-list", topic, "--output", "json")
    )
    (log_dir,) = dirs["brokers"][0]["logDirs"]
    assert [p["partition"] for p in log_dir["partitions"]] == [f"{topic}-0", f"{topic}-1"]
    assert "LeaderId:               1\n" in sparkraft("metadata-quorum", "describe", "--status")
    replication = sparkraft("metadata-quorum", "describe", "--replication", "--output", "json")
    assert [row["status"] for row in json.loads(replication)] == ["Leader"]
    features = json.loads(sparkraft("features", "describe", "--output", "json"))
    levels = {row["feature"]: row["finalizedVersionLevel"] for row in features}
    assert levels["metadata.version"] == "4.3-IV0"
    assert "metadata.version=30 (4.3-IV0)\n" in sparkraft("features", "version-mapping")
    versions = sparkraft("broker-api-versions")
    assert "\tMetadata(3): 0 to 13 [usable: 13],\n" in versions
    (node,) = json.loads(sparkraft("broker-api-versions", "--output", "json"))
    assert {api["name"] for api in node["apis"]} > {"Produce", "Fetch", "JoinGroup"}


_DEPRECATED = (
    "Option {} has been deprecated and will be removed in a future version. "
    "Use --command-config instead.\n"
)


@pytest.mark.parametrize(
    ("argv", "option"),
    [
        (["cluster", "cluster-id"], "--config"),
        (
            ["leader-election", "--election-type", "preferred", "--all-topic-partitions"],
            "--admin.config",
        ),
    ],
)
def test_the_old_name_of_a_clients_file_is_taken_and_called_deprecated(
    argv, option, sparkraft, sparkraft_cluster, tmp_path, capsys
):
    file = tmp_path / "client.properties"
    file.write_text("client.id=of-the-file\n")
    told = sparkraft(*argv, option, str(file))
    assert told == _DEPRECATED.format(option) + sparkraft(*argv)
    data = ["--output", "json", "--bootstrap-server", sparkraft_cluster.bootstrap]
    assert cli.main([*argv, option, str(file), *data]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)
    assert said.err == _DEPRECATED.format(option)
    file.write_text("security.protocol=NONE\n")  # shows that it is read
    said = sparkraft(*argv, option, str(file), code=1)
    assert "security.protocol=NONE is not implemented" in said


def test_features_of_one_node(sparkraft):
    first, second = (sparkraft("features", "describe", *node) for node in (("--node-id", "1"), ()))
    # The epoch is the offset of the node's image, which NoOp records move on twice a second.
    assert re.sub(r"Epoch: \d+", "Epoch: N", first) == re.sub(r"Epoch: \d+", "Epoch: N", second)
    assert first.count("Epoch: ") >= 5
    said = sparkraft("features", "describe", "--node-id", "9", code=1)
    assert "no node 9 is in the cluster's metadata" in said


def test_delete_config_has_no_effect(sparkraft, topic, sparkraft_cluster, capsys):
    listed = ["topics", "--list", "--bootstrap-server", sparkraft_cluster.bootstrap]
    assert cli.main([*listed, "--delete-config", "retention.ms"]) == 0
    said = capsys.readouterr()
    assert topic in said.out.splitlines()
    assert said.err.startswith("delete-config option is no longer supported")


def test_the_performance_tools_send_and_read_what_they_say(sparkraft, topic):
    size = ["--topic", topic, "--num-records", "500"]
    sent = sparkraft(
        "producer-perf-test", *size, "--record-size", "20", "--throughput", "-1",
        "--output", "json",
    )  # fmt: skip
    assert json.loads(sent)["total"]["records"] == 500
    read = json.loads(sparkraft("consumer-perf-test", *size, "--output", "json"))
    assert (read["records"], read["mib"]) == (500, 500 * 20 / (1 << 20))


READ_NEW = ["--group-protocol", "consumer"]


def test_lines_are_one_transaction_and_a_new_group_reads_what_is_committed(sparkraft, topic):
    transactional = ["--command-property", f"transactional.id=of-{topic}"]
    sparkraft("console-producer", "--topic", topic, *transactional, stdin="a\nb\nc\n")
    broken = ["--reader-property", "parse.key=true", *transactional]
    said = sparkraft("console-producer", "--topic", topic, *broken, stdin="k\tv\nx\n", code=1)
    assert "line 2 has no '\\t'" in said
    consume = ["--topic", topic, "--from-beginning", "--isolation-level", "read_committed"]
    read = sparkraft_bytes(sparkraft, *consume, *READ_NEW, "--timeout-ms", "3000")
    assert sorted(read) == ["a", "b", "c"]
    listed = sparkraft("transactions", "list")
    (row,) = [line for line in listed.splitlines() if line.startswith(f"of-{topic}")]
    assert row.split()[3] == "CompleteAbort"


def test_the_performance_tools_use_transactions_and_a_new_group(sparkraft, topic):
    size = ["--topic", topic, "--num-records", "500"]
    often = ["--transaction-duration-ms", "1", "--transactional-id", f"perf-{topic}"]
    sent = sparkraft(
        "producer-perf-test", *size, "--record-size", "20", "--throughput", "-1", *often,
        "--output", "json",
    )  # fmt: skip
    assert json.loads(sent)["total"]["records"] == 500
    committed = ["--command-property", "isolation.level=read_committed"]
    read = json.loads(
        sparkraft("consumer-perf-test", *size, *READ_NEW, *committed, "--output", "json")
    )
    assert read["records"] == 500
    described = sparkraft("transactions", "describe", "--transactional-id", f"perf-{topic}")
    assert "CompleteCommit" in described


def test_configs_of_the_other_protocol_are_refused_as_in_kafka(sparkraft, topic):
    config = ["--command-property", "session.timeout.ms=10000"]
    said = sparkraft("console-consumer", "--topic", topic, *READ_NEW, *config, code=1)
    assert "session.timeout.ms cannot be set with group.protocol=consumer" in said
    config = ["--command-property", "transactional.id=x", "--request-required-acks", "1"]
    said = sparkraft("console-producer", "--topic", topic, *config, stdin="a\n", code=1)
    assert "transactional.id needs acks=all" in said
