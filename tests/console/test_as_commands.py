"""Each screen shows what the command at its end prints, from the same responses.

The command is run as the screen shows it, with `--output json`. Other screens have tests of their
own: a topic, a partition, a broker and a group (`test_process`), messages (`test_messages`), and
the controller in ZooKeeper mode (`tests/zookeeper/test_console`).
"""

import asyncio
import http.client
import json
import shlex
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from sparkraft.cli import main as cli
from sparkraft.client.cluster import Cluster
from sparkraft.client.producer import Producer, ProducerSettings
from sparkraft.client.transactional_producer import TransactionalProducer
from sparkraft.security.standard_authorizer import CLASS_NAME
from tests.support.console import ConsoleProcess
from tests.support.nodes import SparkraftNode

pytestmark = pytest.mark.real_clients

Json = Any
Printed = Callable[..., Json]
"""Runs a command and returns the JSON that it prints."""

TOPIC = "compared"
QUOTAS = [
    ["--entity-type", "users", "--entity-name", "bob"],
    ["--entity-type", "users", "--entity-name", "bob",
     "--entity-type", "clients", "--entity-default"],
    ["--entity-type", "clients", "--entity-name", "app 1"],
]  # fmt: skip


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    folder = tmp_path_factory.mktemp("as-commands")
    overrides = {"authorizer.class.name": CLASS_NAME, "super.users": "User:ANONYMOUS"}
    with SparkraftNode(folder, overrides=overrides) as node:
        prepare(node.bootstrap)
        asyncio.run(write(node.bootstrap))
        with ConsoleProcess(node.bootstrap, folder) as console:
            yield console


def prepare(bootstrap: str) -> None:
    servers = ["--bootstrap-server", bootstrap]
    create = ["topics", *servers, "--create", "--topic", TOPIC, "--partitions", "3"]
    read = ["console-consumer", *servers, "--topic", TOPIC, "--group", "readers"]
    add = ["--alter", "--add-config"]
    ips = ["configs", *servers, "--entity-type", "ips", "--entity-name", "10.0.0.1"]
    acl = ["--add", "--allow-principal", "User:ann", "--operation", "READ", "--topic", TOPIC]
    for command in [
        [*create, "--config", "retention.ms=7200000"],
        [*read, "--timeout-ms", "500"],
        ["configs", *servers, "--entity-type", "users", "--entity-name", "bob", *add,
         "SCRAM-SHA-256=[iterations=4096,password=secret]"],
        *(["configs", *servers, *entity, *add, "producer_byte_rate=1024"] for entity in QUOTAS),
        [*ips, *add, "connection_creation_rate=7"],
        ["acls", *servers, *acl],
    ]:  # fmt: skip
        assert cli.main(command) == 0, command


async def write(bootstrap: str) -> None:
    """A transaction, and a document of a pipeline's batch."""
    async with Cluster(bootstrap) as cluster:
        settings = ProducerSettings(transactional_id="writer <1>")
        async with TransactionalProducer(cluster, settings) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await (await producer.send(TOPIC, b"x", partition=0))
            await producer.commit_transaction()
        batch = json.dumps({"pipeline": "p", "batch": 1, "seconds": 0.5, "records": 2})
        async with Producer(cluster) as plain:
            await (await plain.send("pipeline-batches", batch.encode(), key=b"p"))


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    def run(command: str, *more: str, is_lines: bool = False) -> Json:
        name, *words = shlex.split(command)
        assert name == "sparkraft"
        capsys.readouterr()
        assert cli.main([*words, *more]) == 0
        text = capsys.readouterr().out
        return [json.loads(line) for line in text.splitlines()] if is_lines else json.loads(text)

    return run


def get(console: ConsoleProcess, path: str, **query: str) -> Json:
    connection = http.client.HTTPConnection(console.address.removeprefix("http://"), timeout=60)
    connection.request("GET", f"/api/{path}?{urlencode(query)}")
    answer = connection.getresponse()
    text = answer.read().decode()
    assert answer.status == 200, text
    return json.loads(text)


JSON = ("--output", "json")
MOVING = {"highWatermark", "lag", "logEndOffset"}
"""The metadata log grows between two requests."""


def without(document: Json, names: set[str]) -> Json:
    match document:
        case dict():
            return {key: without(one, names) for key, one in document.items() if key not in names}
        case list():
            return [without(one, names) for one in document]
        case _:
            return document


def test_the_overview(console: ConsoleProcess, printed: Printed) -> None:
    shown = get(console, "cluster")
    found = printed(shown.pop("command"), *JSON)
    assert found["brokers"]
    assert without(shown, MOVING) == without(found, MOVING)


def test_the_quorum(console: ConsoleProcess, printed: Printed) -> None:
    shown = get(console, "quorum")
    found = printed(shown["command"], *JSON)
    assert found["epochs"]
    for part in ("nodes", "silent", "epochs"):
        assert without(shown[part], MOVING) == without(found[part], MOVING)


def test_the_list_of_topics(console: ConsoleProcess, printed: Printed) -> None:
    shown = get(console, "topics")
    found = [
        {
            "topic": one["topic"],
            "isInternal": one["isInternal"],
            "partitions": one["partitionCount"],
            "replicas": max(len(each["replicas"]) for each in one["partitions"]),
            "underReplicated": sum(
                len(each["isr"]) < len(each["replicas"]) for each in one["partitions"]
            ),
            "offline": sum(each["leader"] is None for each in one["partitions"]),
        }
        for one in printed(shown["command"], *JSON)
    ]
    assert TOPIC in [one["topic"] for one in found]
    assert shown["topics"] == sorted(found, key=lambda one: str(one["topic"]))


def test_the_list_of_groups(console: ConsoleProcess, printed: Printed) -> None:
    shown = get(console, "groups")
    found = printed(shown["command"], *JSON)
    assert [one["group"] for one in found] == ["readers"]
    (readers,) = printed(shown["lagCommand"], *JSON)
    lags = [one["lag"] for one in readers["offsets"] if one["lag"] is not None]
    assert lags
    assert shown["groups"][0]["lag"]["records"] == sum(lags)
    (filtered,) = get(console, "groups", name="READ")["groups"]
    assert filtered["lag"]["records"] == sum(lags)
    assert get(console, "groups", name="other")["groups"][0]["lag"] is None
    pairs = zip(shown["groups"], found, strict=True)
    assert all(
        (one["group"], one["type"].lower(), one["protocol"])
        == (other["group"], other["type"].lower(), other["protocol"])
        for one, other in pairs
    )


@pytest.mark.parametrize(
    ("resource", "name"), [("topic", TOPIC), ("broker", "1"), ("broker", ""), ("group", "readers")]
)
def test_configs(console: ConsoleProcess, printed: Printed, resource: str, name: str) -> None:
    shown = get(console, "configs", resource=resource, name=name)
    (found,) = printed(shown["command"], *JSON)
    fields = ("name", "value", "source", "synonyms")
    assert [{key: one[key] for key in fields} for one in shown["configs"]] == sorted(
        ({key: one[key] for key in fields} for one in found["configs"]),
        key=lambda one: str(one["name"]),
    )
    assert found["configs"]


def test_log_directories(console: ConsoleProcess, printed: Printed) -> None:
    shown = get(console, "log-dirs")
    found = printed(shown["command"], *JSON)["brokers"]
    assert [one["broker"] for one in shown["brokers"]] == [one["broker"] for one in found] == [1]
    for one, other in zip(shown["brokers"][0]["dirs"], found[0]["logDirs"], strict=True):
        sizes = {each["partition"]: each["size"] for each in other["partitions"]}
        assert (one["path"], one["error"]) == (other["logDir"], other["error"])
        assert (one["replicas"], one["bytes"]) == (len(sizes), sum(sizes.values()))
        largest = [
            sizes[f"{each['topic']}-{each['partition']}"] == each["bytes"]
            for each in one["largest"]
        ]
        assert largest
        assert all(largest)


def test_reassignments(console: ConsoleProcess, printed: Printed) -> None:
    """None is in progress; `test_changes` compares one that is."""
    shown = get(console, "reassignments")
    assert shown["moves"] == printed(shown["command"], *JSON) == []


def test_access_rights_users_and_quotas(console: ConsoleProcess, printed: Printed) -> None:
    shown = get(console, "security")
    acls, *entities = [printed(command, *JSON) for command in shown["commands"]]
    names = {"resourceName": "name", "permission": "permissionType"}
    assert [
        {names.get(key, key): value for key, value in one.items() if key != "sentence"}
        for one in shown["acls"]["rows"]
    ] == acls
    assert len(acls) == 1
    rows = [row for each in entities for row in each]
    assert shown["users"]["rows"] == [row for row in rows if "user" in row]
    assert len(shown["users"]["rows"]) == 1
    quotas = [
        {"entity": {each["type"]: each["name"] for each in one["entity"]}, "quotas": one["quotas"]}
        for one in shown["quotas"]["rows"]
    ]
    assert sorted(map(str, quotas)) == sorted(str(row) for row in rows if "entity" in row)
    assert len(quotas) == len(QUOTAS) + 1


def test_transactions_and_producers(console: ConsoleProcess, printed: Printed) -> None:
    shown = get(console, "transactions")
    found = printed(shown["command"], *JSON)
    assert [one["transactionalId"] for one in found] == ["writer <1>"]
    assert [
        (one["transactionalId"], one["coordinator"], one["producerId"], one["state"])
        for one in shown["transactions"]
    ] == [
        (one["transactionalId"], one["coordinator"], one["producerId"], one["transactionState"])
        for one in found
    ]
    shown = get(console, "producers", topic=TOPIC, partition="0")
    assert [
        (one["producerId"], one["epoch"], one["lastSequence"], one["lastMs"], one["openSince"])
        for one in shown["producers"]
    ] == [
        (
            one["producerId"], one["producerEpoch"], one["lastSequence"], one["lastTimestamp"],
            one["currentTransactionStartOffset"],
        )
        for one in printed(shown["command"], *JSON)
    ]  # fmt: skip
    assert len(shown["producers"]) == 1


def test_changes(console: ConsoleProcess, printed: Printed) -> None:
    shown = get(console, "changes")
    found = printed(shown["command"], *JSON, is_lines=True)
    fields = ("offset", "time", "epoch", "kind", "text")
    newest = [{key: one[key] for key in fields} for one in reversed(found)]
    assert shown["changes"] == newest[: len(shown["changes"])]
    assert len(shown["changes"]) == min(50, len(newest))
    shown = get(console, "changes", **{"from": "3", "to": "9"})["comparison"]
    listed = printed(shown["command"], *JSON, is_lines=True)
    assert shown["changeCount"] == len(listed)


def test_the_overview_and_a_topic_of_an_earlier_moment(
    console: ConsoleProcess, printed: Printed
) -> None:
    at = str(get(console, "timeline")["lastOffset"])
    shown = get(console, "past", at=at)
    assert printed(shown.pop("command"), *JSON) == shown
    shown = get(console, "topic", topic=TOPIC, at=at)
    found = printed(shown["command"], *JSON)
    fields = ("partition", "leader", "leaderEpoch", "replicas", "isr", "elr")
    assert [{key: one[key] for key in fields} for one in shown["partitions"]] == [
        {key: one[key] for key in fields} for one in found["partitions"]
    ]
    assert len(found["partitions"]) == 3


@pytest.mark.parametrize(("resource", "name"), [("topic", TOPIC), ("broker", "1"), ("broker", "")])
def test_configs_of_an_earlier_moment(
    console: ConsoleProcess, printed: Printed, resource: str, name: str
) -> None:
    at = str(get(console, "timeline")["lastOffset"])
    shown = get(console, "configs", resource=resource, name=name, at=at)
    (found,) = printed(shown["command"], *JSON)
    fields = ("name", "value", "source", "synonyms")
    assert [{key: one[key] for key in fields} for one in shown["configs"]] == [
        {key: one[key] for key in fields} for one in found["configs"]
    ]
    assert len(found["configs"]) == 1, "retention.ms; min.insync.replicas of all brokers"


def test_access_rights_users_quotas_and_a_broker_of_an_earlier_moment(
    console: ConsoleProcess, printed: Printed
) -> None:
    at = str(get(console, "timeline")["lastOffset"])
    now, then = get(console, "security"), get(console, "security", at=at)
    for part in ("acls", "users", "quotas"):
        assert then[part] == now[part]
    before = [printed(command, *JSON) for command in then["commands"]]
    after = [printed(command, *JSON) for command in now["commands"]]
    assert [sorted(map(str, one)) for one in before] == [sorted(map(str, one)) for one in after]
    question = {"operation": "READ", "type": "TOPIC", "name": TOPIC}
    now, then = get(console, "who-may", **question), get(console, "who-may", **question, at=at)
    assert printed(then.pop("command"), *JSON) == printed(now.pop("command"), *JSON)
    assert then == now
    shown = get(console, "broker", broker="1", at=at)
    found = printed(shown["command"], *JSON)
    assert found["changes"]
    assert {key: shown[key] for key in ("state", "leads", "changes")} == {
        key: found[key] for key in ("state", "leads", "changes")
    }


def test_pipelines(console: ConsoleProcess, printed: Printed) -> None:
    shown = get(console, "pipelines", topic="pipeline-batches")
    found = printed(shown["command"], is_lines=True)
    (pipeline,) = shown["pipelines"]
    for batch, document in zip(pipeline["batches"], found, strict=True):
        figures = without(batch, {"atMs"})
        assert figures == {name: document.get(name) for name in figures}
        assert figures.items() >= document.items()
