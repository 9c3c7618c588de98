"""`transactions` and `groups` print what Kafka's tools print of the same node, byte by byte."""

import asyncio
import re

import pytest

from sparkraft.cli import main as cli
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster
from sparkraft.client.consumer import Consumer, ConsumerSettings
from sparkraft.client.producer import ProducerSettings
from sparkraft.client.subscription import CONSUMER, GroupSettings
from sparkraft.client.transactional_producer import TransactionalProducer
from sparkraft.client.values import ConfigOperation, NewTopic, ResourceType
from tests.support.kafka_tools import run_kafka_tool
from tests.support.nodes import KafkaNode, SparkraftNode
from tests.support.transactions import HangingProducer

pytestmark = [pytest.mark.real_clients, pytest.mark.java]

TOOLS = "org.apache.kafka.tools"
SECONDS = 120
TOPIC = "watched"


async def prepare(bootstrap: str) -> None:
    """An open transaction, a finished one, a hanging one; a group of each protocol."""
    async with asyncio.timeout(SECONDS), Cluster(bootstrap) as cluster:
        admin = Admin(cluster)
        topics = [NewTopic(name=TOPIC, partitions=1), NewTopic(name="hung", partitions=1)]
        await admin.create_topics(topics)
        settings = ProducerSettings(transactional_id="finished")
        async with TransactionalProducer(cluster, settings) as finished:
            await finished.init_transactions()
            async with finished.transaction():
                await finished.send(TOPIC, b"a")
        left_open = ProducerSettings(transactional_id="left-open", transaction_timeout_ms=900_000)
        sender = TransactionalProducer(cluster, left_open)
        await sender.init_transactions()
        sender.begin_transaction()
        await (await sender.send(TOPIC, b"b"))
        key = "transaction.partition.verification.enable"
        change = [(key, ConfigOperation.SET, "false")]
        await admin.alter_configs({(ResourceType.BROKER, "1"): change})
        hanging = HangingProducer(cluster)
        await hanging.write("hung", b"c")
        for protocol in ("classic", CONSUMER):
            group = GroupSettings(group_id=f"group-{protocol}", protocol=protocol)
            async with Consumer(cluster, ConsumerSettings(group=group)) as consumer:
                consumer.subscribe([TOPIC])
                while not consumer.assignment:
                    await consumer.poll(100)
                await consumer.commit({(TOPIC, 0): 1})


@pytest.fixture(scope="module", params=["kafka", pytest.param("sparkraft", marks=pytest.mark.long)])
def node(request, kafka_jars, tmp_path_factory):
    overrides = {"transaction.state.log.num.partitions": "3"}
    directory = tmp_path_factory.mktemp(request.param)
    made = (
        KafkaNode(directory, overrides=overrides, jars=kafka_jars)
        if request.param == "kafka"
        else SparkraftNode(directory, overrides=overrides)
    )
    with made as one:
        asyncio.run(prepare(one.bootstrap))
        yield one


def both(node, jars, capsys, ours: str, theirs: str, *argv: str) -> tuple[str, str]:
    bootstrap = ["--bootstrap-server", node.bootstrap]
    kafka = run_kafka_tool(jars, f"{TOOLS}.{theirs}", *bootstrap, *argv)
    assert kafka.returncode == 0, kafka.stderr
    assert cli.main([ours, *bootstrap, *argv]) == 0
    return capsys.readouterr().out, kafka.stdout


def sorted_lines(text: str) -> list[str]:
    """Kafka's tools list in the order of a hash map."""
    first, *rest = text.splitlines(keepends=True)
    return [first, *sorted(rest)]


TRANSACTIONS = ("transactions", "TransactionsCommand")
GROUPS = ("groups", "GroupsCommand")
CONSUMER_GROUPS = ("consumer-groups", "consumer.group.ConsumerGroupCommand")
DESCRIBE = ["--describe", "--group", "group-consumer"]


@pytest.mark.parametrize(
    ("tools", "argv"),
    [
        (TRANSACTIONS, ["list", "--transactional-id-pattern", ".*e.*", "--duration-filter", "-1"]),
        (TRANSACTIONS, ["find-hanging", "--broker-id", "1"]),
        (GROUPS, ["--list"]),
        (CONSUMER_GROUPS, [*DESCRIBE, "--state", "--verbose"]),
        *(
            pytest.param(tools, argv, marks=pytest.mark.long)
            for tools, argv in [
                (TRANSACTIONS, ["list"]),
                (TRANSACTIONS, ["list", "--duration-filter", "1"]),
                (TRANSACTIONS, ["describe-producers", "--topic", TOPIC, "--partition", "0"]),
                (GROUPS, ["--list", "--group-type", "consumer"]),
                (GROUPS, ["--list", "--consumer"]),
                (CONSUMER_GROUPS, ["--list", "--state", "--type"]),
                (CONSUMER_GROUPS, DESCRIBE),
                (CONSUMER_GROUPS, [*DESCRIBE, "--members", "--verbose"]),
            ]
        ),
    ],
    ids=lambda value: " ".join(value)[:60],
)
def test_a_list_is_the_same(tools, argv, node, kafka_jars, capsys):
    printed, kafkas = both(node, kafka_jars, capsys, *tools, *argv)
    assert sorted_lines(printed) == sorted_lines(kafkas)
    assert len(kafkas.splitlines()) > 1


def test_a_description_is_the_same_but_for_the_time_it_has_lasted(node, kafka_jars, capsys):
    argv = ["describe", "--transactional-id", "left-open"]
    printed, kafkas = both(node, kafka_jars, capsys, "transactions", "TransactionsCommand", *argv)

    def without_duration(text: str) -> list[list[str]]:
        rows = [line.split("\t") for line in text.splitlines()]
        assert rows[1][7].strip().isdigit()
        return [row[:7] + row[8:] for row in rows]

    assert without_duration(printed) == without_duration(kafkas)
    assert "Ongoing" in printed


def test_a_hanging_transaction_is_aborted_by_its_start_offset(node, kafka_jars, capsys):
    where = ["--topic", "hung", "--partition", "0"]
    bootstrap = ["--bootstrap-server", node.bootstrap]
    assert cli.main(["transactions", *bootstrap, "find-hanging", "--topic", "hung"]) == 0
    (row,) = capsys.readouterr().out.splitlines()[1:]
    assert re.split(r"\s*\t", row)[:2] == ["hung", "0"]
    assert cli.main(["transactions", *bootstrap, "abort", *where, "--start-offset", "9"]) == 1
    assert "starts at offset 9" in capsys.readouterr().err
    assert cli.main(["transactions", *bootstrap, "abort", *where, "--start-offset", "0"]) == 0
    argv = ["describe-producers", *where]
    printed, kafkas = both(node, kafka_jars, capsys, "transactions", "TransactionsCommand", *argv)
    assert printed == kafkas
    assert re.split(r"\s*\t", printed.splitlines()[1])[5] == "None"
    assert cli.main(["transactions", *bootstrap, "find-hanging", "--topic", "hung"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_a_transaction_is_ended_by_force(node, capsys):
    bootstrap = ["--bootstrap-server", node.bootstrap]
    force = ["forceTerminateTransaction", "--transactionalId", "left-open"]
    assert cli.main(["transactions", *bootstrap, *force]) == 0
    describe = ["describe", "--transactional-id", "left-open"]
    assert cli.main(["transactions", *bootstrap, *describe]) == 0
    assert "Ongoing" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["list", "--topic", "t"], "--topic does not go with list"),
        (["describe"], "describe needs --transactional-id"),
        (["find-hanging"], "find-hanging needs --topic or --broker-id"),
        (["find-hanging", "--broker-id", "1", "--partition", "0"], "--partition needs --topic"),
        (["abort", "--topic", "t", "--partition", "0"], "abort needs --start-offset, or"),
    ],
)
def test_misuse_is_explained(argv, sentence, capsys):
    assert cli.main(["transactions", "--bootstrap-server", "127.0.0.1:1", *argv]) == 2
    assert sentence in capsys.readouterr().err
