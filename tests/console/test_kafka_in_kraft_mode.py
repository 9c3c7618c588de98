"""The console over Apache Kafka 3.9.2 and 4.3.1 in KRaft mode: every screen, changes and messages.

Kafka's nodes have no history of elections, partitions, groups and metadata: each screen then shows
the present and the reason, with a command that prints the same. `tests/zookeeper/test_console` has
Kafka 3.9.2 in ZooKeeper mode.
"""

import asyncio
import http.client
import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
from playwright.async_api import expect

from sparkraft.cli import main as cli
from sparkraft.client.cluster import Cluster
from sparkraft.client.producer import Producer, ProducerSettings
from sparkraft.client.quorum_admin import NO_JOURNAL
from sparkraft.client.transactional_producer import TransactionalProducer
from tests.support.console import WAIT_MS, Browser, ConsoleProcess, untested_screens
from tests.support.kafka_jars import kafka_3_9_jars_or_reason, kafka_jars_or_reason
from tests.support.nodes import KafkaFormattedNode
from tests.support.outside_tools import Missing
from tests.support.ports import wait_until

pytestmark = [
    pytest.mark.real_clients, pytest.mark.java, pytest.mark.browser, pytest.mark.long,
]  # fmt: skip

expect.set_options(timeout=WAIT_MS)

Json = dict[str, Any]

JARS: dict[str, Callable[[], Path | Missing]] = {
    "3.9.2": kafka_3_9_jars_or_reason,
    "4.3.1": kafka_jars_or_reason,
}
TOPIC = "shown"
OVERRIDES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "broker.rack": "r1",
    "transaction.state.log.num.partitions": "1",
}
NO_METADATA = "only sparkraft's nodes serve earlier metadata"


class Place(NamedTuple):
    """A node of Kafka and a console whose editor has `cookie`."""

    node: KafkaFormattedNode
    console: ConsoleProcess
    cookie: str


@pytest.fixture(scope="module", params=JARS)
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    jars = JARS[request.param]()
    if isinstance(jars, Missing):
        pytest.skip(jars.reason)
    folder = tmp_path_factory.mktemp("kafka")
    with KafkaFormattedNode(folder / "node", overrides=OVERRIDES, jars=jars) as node:
        prepare(node.bootstrap)
        with ConsoleProcess(node.bootstrap, folder) as console:
            answer = post(console, "sign-in", {"token": console.token})
            cookie = str(answer.headers["Set-Cookie"]).partition(";")[0]
            yield Place(node, console, cookie)


def prepare(bootstrap: str) -> None:
    """A topic with records, a group, a transactional id, a user, a quota and an entry."""
    servers = ["--bootstrap-server", bootstrap]
    configs = ["configs", *servers, "--entity-type", "users", "--entity-name", "bob", "--alter"]
    create = ["topics", *servers, "--create", "--topic", TOPIC, "--partitions", "2"]
    assert cli.main([*create, "--config", "retention.ms=7200000"]) == 0
    asyncio.run(write(bootstrap))
    read = ["console-consumer", *servers, "--topic", TOPIC, "--group", "readers"]
    for command in [
        [*read, "--from-beginning", "--max-messages", "3"],
        [*configs, "--add-config", "SCRAM-SHA-256=[iterations=4096,password=secret]"],
        [*configs, "--add-config", "producer_byte_rate=1024"],
        ["acls", *servers, "--add", "--allow-principal", "User:ann", "--operation", "READ",
         "--topic", TOPIC],
    ]:  # fmt: skip
        assert cli.main(command) == 0, command


async def write(bootstrap: str) -> None:
    async with Cluster(bootstrap) as cluster:
        async with Producer(cluster) as producer:
            for number in range(3):
                value = json.dumps({"n": number, "big": 2**60 + number}).encode()
                await (await producer.send(TOPIC, value, key=b"k", partition=0))
        settings = ProducerSettings(transactional_id="writer")
        async with TransactionalProducer(cluster, settings) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await (await producer.send(TOPIC, b"x", partition=1))
            await producer.commit_transaction()


def post(console: ConsoleProcess, path: str, body: object, cookie: str = "") -> Any:
    connection = http.client.HTTPConnection(console.address.removeprefix("http://"), timeout=60)
    headers = {"X-Sparkraft-Console": "1", "Cookie": cookie}
    connection.request("POST", f"/api/{path}", json.dumps(body), headers)
    return connection.getresponse()


def done(place: Place, path: str, body: object) -> Json:
    answer = post(place.console, path, body, place.cookie)
    text = answer.read().decode()
    assert answer.status == 200, text
    found: Json = json.loads(text)
    return found


def responded(console: ConsoleProcess, path: str, **query: object) -> tuple[int, str]:
    connection = http.client.HTTPConnection(console.address.removeprefix("http://"), timeout=60)
    connection.request("GET", f"/api/{path}?{urlencode(query)}")
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def get(place: Place, path: str, **query: object) -> Json:
    status, text = responded(place.console, path, **query)
    assert status == 200, text
    found: Json = json.loads(text)
    return found


def lines_of(place: Place, **query: object) -> list[Json]:
    status, text = responded(place.console, "messages", **query)
    assert status == 200, text
    return [json.loads(line) for line in text.splitlines()]


def test_what_kafka_has_is_shown(place: Place) -> None:
    cluster = get(place, "cluster")
    assert cluster["health"]["sentence"].startswith("All is well: 1 broker")
    assert cluster["controller"]["id"] == 1
    topics = {one["topic"]: one for one in get(place, "topics")["topics"]}
    assert topics[TOPIC]["partitions"] == 2
    topic = get(place, "topic", topic=TOPIC)
    assert [(one["leader"], one["isr"]) for one in topic["partitions"]] == [(1, [1]), (1, [1])]
    assert [one["end"] for one in topic["offsets"]] == [3, 2], "with the marker of the transaction"
    assert {"name": "retention.ms", "value": "7200000", "source": "DYNAMIC_TOPIC_CONFIG"} in topic[
        "configs"
    ]
    assert get(place, "partition", topic=TOPIC, partition=1)["leader"] == 1
    broker = get(place, "broker", broker=1)
    assert (broker["state"], broker["rack"]) == ("serving", "r1")
    group = get(place, "group", group="readers")
    assert (group["state"], group["lag"]["records"]) == ("Empty", 0 + sum(lags(group)))
    (listed,) = get(place, "groups")["groups"]
    assert listed["lag"]["records"] == group["lag"]["records"]
    configs = {
        one["name"]: one for one in get(place, "configs", resource="broker", name=1)["configs"]
    }
    assert configs["broker.rack"]["value"] == "r1"
    assert configs["broker.rack"]["documentation"]
    (directory,) = get(place, "log-dirs")["brokers"][0]["dirs"]
    assert directory["totalBytes"] > directory["usableBytes"] > 0
    assert get(place, "reassignments")["moves"] == []
    security = get(place, "security")
    assert [part["problem"] for part in (security["acls"], security["users"])] == ["", ""]
    assert [one["user"] for one in security["users"]["rows"]] == ["bob"]
    assert [one["quotas"] for one in security["quotas"]["rows"]] == [{"producer_byte_rate": 1024.0}]
    asked = {"operation": "DESCRIBE", "type": "TOPIC", "name": TOPIC}
    assert {
        one["principal"]: one["isAllowed"] for one in get(place, "who-may", **asked)["verdicts"]
    } == {"User:ann": True, "all others": False}
    (transaction,) = get(place, "transactions")["transactions"]
    assert (transaction["transactionalId"], transaction["isOpen"]) == ("writer", False)
    assert len(get(place, "producers", topic=TOPIC, partition=1)["producers"]) == 1


def lags(group: Json) -> list[int]:
    return [one["lag"] for one in group["offsets"] if one["lag"] is not None]


def test_what_kafka_lacks_is_named(place: Place) -> None:
    """Each document has the reason; an earlier moment is refused and never shown as the present."""
    assert [one["reason"] for one in get(place, "quorum")["silent"]] == [NO_JOURNAL]
    for path, query in [
        ("topic", {"topic": TOPIC}),
        ("partition", {"topic": TOPIC, "partition": 0}),
        ("broker", {"broker": 1}),
    ]:
        assert NO_JOURNAL in get(place, path, **query)["historyProblem"]
    assert [one["reason"] for one in get(place, "group", group="readers")["silent"]] == [NO_JOURNAL]
    timeline = get(place, "timeline")
    wait_until(lambda: get(place, "timeline")["problem"], "the log was requested", 60)
    timeline = get(place, "timeline")
    assert NO_METADATA in timeline["problem"]
    assert NO_METADATA in get(place, "changes")["problem"]
    assert NO_METADATA in get(place, "moment", at="5")["problem"]
    for path, query, reason in [
        ("partition", {"topic": TOPIC, "partition": 0, "at": 5}, NO_JOURNAL),
        ("past", {"at": 5}, NO_METADATA),
        ("topics", {"at": 5}, NO_METADATA),
        ("topic", {"topic": TOPIC, "at": 5}, NO_METADATA),
        ("broker", {"broker": 1, "at": 5}, NO_JOURNAL),
        ("configs", {"resource": "topic", "name": TOPIC, "at": 5}, NO_METADATA),
        ("security", {"at": 5}, NO_METADATA),
        ("reassignments", {"at": 5}, NO_METADATA),
    ]:
        status, text = responded(place.console, path, **query)
        assert (path, status) == (path, 502)
        assert reason in text


DOCUMENTS: list[tuple[str, Json]] = [
    ("cluster", {}),
    ("quorum", {}),
    ("topics", {}),
    ("topic", {"topic": TOPIC}),
    ("partition", {"topic": TOPIC, "partition": 0}),
    ("broker", {"broker": 1}),
    ("groups", {}),
    ("group", {"group": "readers"}),
    ("configs", {"resource": "topic", "name": TOPIC}),
    ("configs", {"resource": "broker", "name": 1}),
    ("configs", {"resource": "broker", "name": ""}),
    ("log-dirs", {}),
    ("reassignments", {}),
    ("transactions", {}),
    ("producers", {"topic": TOPIC, "partition": 1}),
]


@pytest.mark.parametrize(("path", "query"), DOCUMENTS)
def test_each_screen_shows_a_command_that_works_here(place: Place, path: str, query: Json) -> None:
    name, *words = shlex.split(get(place, path, **query)["command"])
    assert name == "sparkraft"
    assert cli.main(words) == 0


def test_the_commands_of_the_screen_of_security_work_here(place: Place) -> None:
    for command in get(place, "security")["commands"]:
        assert cli.main(shlex.split(command)[1:]) == 0, command


def test_records_are_filtered_decoded_and_sent(place: Place) -> None:
    query = {"topic": TOPIC, "filter": "record.value.n > 0"}
    values = [one["record"]["value"]["text"] for one in lines_of(place, **query) if "record" in one]
    assert [json.loads(one)["big"] for one in values] == [2**60 + 2, 2**60 + 1]
    committed = lines_of(place, topic="__consumer_offsets", mode="earliest")
    groups = {
        one["record"]["decoded"]["key"]["data"]["group"] for one in committed if "record" in one
    }
    assert groups == {"readers"}
    text = {"form": "text", "text": "sent"}
    sent = done(place, "send", {"topic": TOPIC, "partition": 1, "key": text, "value": text})
    newest = lines_of(place, topic=TOPIC, partitions="1", count=1)[0]["record"]
    assert (newest["offset"], newest["value"]["text"]) == (sent["offset"], "sent")


CHANGES: list[tuple[Json, str]] = [
    ({"kind": "create-topic", "topic": "made", "partitions": "1", "replicationFactor": "1",
      "configs": {}}, ""),
    ({"kind": "add-partitions", "topic": "made", "partitions": 3}, ""),
    ({"kind": "alter-config", "resource": "topic", "name": "made", "config": "retention.ms",
      "value": "9000"}, ""),
    ({"kind": "alter-config", "resource": "broker", "name": "", "config": "log.cleaner.threads",
      "value": "2"}, ""),
    ({"kind": "delete-records", "topic": TOPIC, "partition": 0, "offset": 1}, TOPIC),
    ({"kind": "alter-quota", "entity": [{"type": "client-id", "name": "c"}],
      "quota": "consumer_byte_rate", "value": "2048"}, ""),
    ({"kind": "add-acl", "resourceType": "GROUP", "resourceName": "g", "patternType": "LITERAL",
      "principal": "User:ann", "host": "*", "operation": "READ", "permission": "ALLOW"}, ""),
    ({"kind": "remove-acl", "resourceType": "GROUP", "resourceName": "g", "patternType": "LITERAL",
      "principal": "User:ann", "host": "*", "operation": "READ", "permission": "ALLOW"}, ""),
    ({"kind": "delete-topic", "topic": "made"}, "made"),
]  # fmt: skip
"""Changes in their order, and what an editor types to confirm them."""


def test_an_editor_changes_the_cluster(place: Place) -> None:
    for wish, confirm in CHANGES:
        plan: Json = {}

        def is_possible(wish: Json = wish, plan: Json = plan) -> bool:
            """The node's metadata may lag behind the change before."""
            plan.update(done(place, "change-plan", wish))
            return plan["problem"] is None

        wait_until(is_possible, f"{wish} can be planned", 60)
        assert plan["rows"]
        assert "sparkraft " in plan["command"]
        assert (plan["confirm"] or "") == confirm
        done(place, "change", {**wish, "confirm": confirm})
    wish = {"group": "readers", "topic": TOPIC, "to": "latest", "value": ""}
    plan = done(place, "reset-plan", wish)
    rows = [[row["topic"], row["partition"], row["to"]] for row in plan["rows"]]
    done(place, "reset", {"group": "readers", "offsets": rows})
    assert sum(lags(get(place, "group", group="readers"))) == 0


SCREENS = {
    "/": ("#health", "All is well"),
    "/quorum": (".silent", NO_JOURNAL),
    "/controller": (".note", "Show the quorum"),
    "/topics": ("[role=row] a", ""),
    f"/topics/{TOPIC}": (".note", NO_JOURNAL),
    f"/topics/{TOPIC}/0": (".note", NO_JOURNAL),
    f"/topics/{TOPIC}/messages": ("#scan", "records read"),
    "/brokers/1": (".note", NO_JOURNAL),
    "/groups": ("table", "readers"),
    "/group?id=readers": (".note", NO_JOURNAL),
    f"/configs?resource=topic&name={TOPIC}": ("table", "retention.ms"),
    "/configs?resource=broker&name=1&all=1": ("table", "broker.rack"),
    "/log-dirs": ("table", "online"),
    "/reassignments": (".lead", "Nothing is being reassigned."),
    "/security": ("table", "User:ann"),
    "/transactions": ("table", "writer"),
    "/pipelines": ("[data-form=pipelines]", ""),
    "/changes": (".note", NO_METADATA),
}
"""Path → an element that is there once the screen is drawn, and a text of it."""


def test_every_screen_is_checked() -> None:
    assert untested_screens(SCREENS) == set()


@pytest.mark.parametrize("path", SCREENS)
def test_every_screen_is_drawn(place: Place, browser: Browser, path: str) -> None:
    async def look() -> None:
        async with browser.visiting(place.console.address, path) as visit:
            selector, text = SCREENS[path]
            await expect(visit.page.locator(selector).first).to_contain_text(text)
            await expect(visit.page.locator("#moment")).to_contain_text(NO_METADATA)

    browser.run(look())
