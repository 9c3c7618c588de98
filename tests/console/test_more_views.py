"""Access rights, quotas, users, log directories and pipelines in the console, and their changes."""

import asyncio
import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.async_api import expect

from sparkraft.base.errors import ErrorCode
from sparkraft.cli import main as cli
from sparkraft.client.cluster import Cluster
from sparkraft.client.producer import Producer, ProducerSettings
from sparkraft.client.transactional_producer import TransactionalProducer
from sparkraft.client.values import LogDir, Reassignment, ReplicaDir
from sparkraft.console.replica_views import _dir_json, _move_json
from sparkraft.console.who_may import who_may
from sparkraft.pipeline import batch_log
from sparkraft.pipeline.options import source_options
from sparkraft.pipeline.progress import progress_of
from sparkraft.security.acls import (
    Acl,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
)
from sparkraft.security.standard_authorizer import CLASS_NAME
from tests.pipeline.test_batch_log import REPORT
from tests.support.console import WAIT_MS, Browser, ConsoleProcess
from tests.support.nodes import SparkraftNode

pytestmark = pytest.mark.real_clients

expect.set_options(timeout=WAIT_MS)

Json = dict[str, Any]

ANN_READS = {
    "resourceType": "TOPIC", "resourceName": "or", "patternType": "PREFIXED",
    "principal": "User:ann", "host": "", "operation": "READ", "permission": "ALLOW",
}  # fmt: skip


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkraftNode]:
    overrides = {"authorizer.class.name": CLASS_NAME, "super.users": "User:ANONYMOUS"}
    with SparkraftNode(tmp_path_factory.mktemp("node"), overrides=overrides) as node:
        yield node


@pytest.fixture(scope="module")
def console(
    node: SparkraftNode, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleProcess]:
    with ConsoleProcess(node.bootstrap, tmp_path_factory.mktemp("console")) as console:
        yield console


@pytest.fixture(scope="module")
def cookie(console: ConsoleProcess) -> str:
    answer = post(console, "/api/sign-in", {"token": console.token})
    return str(answer.headers["Set-Cookie"]).partition(";")[0]


def post(console: ConsoleProcess, path: str, body: object, cookie: str = "") -> Any:
    connection = http.client.HTTPConnection(console.address.removeprefix("http://"), timeout=60)
    headers = {"X-Sparkraft-Console": "1", "Cookie": cookie}
    connection.request("POST", path, json.dumps(body), headers)
    return connection.getresponse()


def get(console: ConsoleProcess, path: str, **query: str) -> Json:
    connection = http.client.HTTPConnection(console.address.removeprefix("http://"), timeout=60)
    connection.request("GET", f"{path}?{urlencode(query)}")
    answer = connection.getresponse()
    text = answer.read().decode()
    assert answer.status == 200, text
    found: Json = json.loads(text)
    return found


def plan(console: ConsoleProcess, wish: Json, cookie: str) -> Json:
    found: Json = json.loads(post(console, "/api/change-plan", wish, cookie).read())
    return found


def in_a_shell(command: str) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(
        ["bash", "-c", command], check=True, timeout=120, env={**os.environ, "PATH": path}
    )


def test_an_entry_is_added_by_the_command_decides_and_is_removed(
    console: ConsoleProcess, cookie: str
) -> None:
    wish = {"kind": "add-acl", **ANN_READS}
    assert post(console, "/api/change", wish).status == 403
    planned = plan(console, wish, cookie)
    assert planned["rows"] == [
        {"what": "entry", "from": None, "to": "allow User:ann READ on topic with the prefix or"}
    ]
    in_a_shell(planned["command"])
    assert plan(console, wish, cookie)["problem"] == "the entry exists already"
    denied = {**wish, "permission": "DENY", "host": "10.0.0.1"}
    assert post(console, "/api/change", denied, cookie).status == 200
    listed = get(console, "/api/security")["acls"]["rows"]
    assert [(one["permission"], one["host"]) for one in listed] == [
        ("ALLOW", "*"),
        ("DENY", "10.0.0.1"),
    ]
    found = get(console, "/api/who-may", operation="DESCRIBE", type="TOPIC", name="orders")
    assert [(one["principal"], one["host"], one["isAllowed"]) for one in found["verdicts"]] == [
        ("User:ann", "all others", True),
        ("all others", "all others", False),
    ]
    for one in listed:
        removal = {"kind": "remove-acl", **one}
        in_a_shell(plan(console, removal, cookie)["command"])
        assert plan(console, removal, cookie)["problem"] == "the entry does not exist"
        assert post(console, "/api/change", removal, cookie).status == 400
    assert get(console, "/api/security")["acls"]["rows"] == []


@pytest.mark.parametrize(
    ("entity", "quota", "value"),
    [
        ([{"type": "user", "name": "ann b"}], "producer_byte_rate", "1024"),
        ([{"type": "user", "name": None}, {"type": "client-id", "name": "c"}],
         "consumer_byte_rate", "2048"),
        ([{"type": "client-id", "name": None}], "request_percentage", "1.5"),
        ([{"type": "ip", "name": "10.0.0.1"}], "connection_creation_rate", "7"),
    ],
)  # fmt: skip
def test_a_quota_is_set_by_the_command_and_removed(
    console: ConsoleProcess, cookie: str, entity: list[Json], quota: str, value: str
) -> None:
    wish = {"kind": "alter-quota", "entity": entity, "quota": quota, "value": value}
    in_a_shell(plan(console, wish, cookie)["command"])
    listed = get(console, "/api/security")["quotas"]["rows"]
    by_type = sorted(entity, key=lambda each: str(each["type"]))
    assert {"entity": by_type, "quotas": {quota: float(value)}} in listed
    assert "already" in plan(console, wish, cookie)["problem"]
    removal = {**wish, "value": None}
    assert plan(console, removal, cookie)["rows"][0]["from"] == value
    assert post(console, "/api/change", removal, cookie).status == 200
    assert plan(console, removal, cookie)["problem"] == "it is not set"


@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        ({"kind": "add-acl", **ANN_READS, "principal": "ann"}, "the form User:name"),
        ({"kind": "add-acl", **ANN_READS, "operation": "MOON"}, "operation must be one of"),
        ({"kind": "add-acl", **ANN_READS, "patternType": "MATCH"}, "patternType must be"),
        ({"kind": "add-acl", **ANN_READS, "resourceName": ""}, "resourceName must be a text"),
        ({"kind": "alter-quota", "entity": [], "quota": "q", "value": 1}, "of a user, a client-id"),
        ({"kind": "alter-quota", "entity": [{"type": "ip", "name": "::1"}],
          "quota": "producer_byte_rate", "value": 1}, "quota must be one of connection"),
        ({"kind": "alter-quota", "entity": [{"type": "user", "name": "a"}],
          "quota": "producer_byte_rate", "value": "-1"}, "a number above 0"),
    ],
)  # fmt: skip
def test_a_malformed_right_is_refused(
    console: ConsoleProcess, cookie: str, wish: Json, sentence: str
) -> None:
    answer = post(console, "/api/change", wish, cookie)
    assert answer.status == 400
    assert sentence in answer.read().decode()


def acl(principal: str, operation: AclOperation, *, is_denied: bool = False, **other: Any) -> Acl:
    values: Json = {
        "resource_type": AclResourceType.TOPIC, "resource_name": "t",
        "pattern_type": PatternType.LITERAL, "principal": principal, "host": "*",
        "operation": operation,
        "permission_type": AclPermissionType.DENY if is_denied else AclPermissionType.ALLOW,
    }  # fmt: skip
    return Acl(**{**values, **other})


def verdicts(*acls: Acl, operation: AclOperation = AclOperation.READ) -> dict[str, bool]:
    answer = who_may(acls, operation, AclResourceType.TOPIC, "t")
    return {f"{one.principal}@{one.host}": one.is_allowed for one in answer.verdicts}


def test_who_may_follows_the_rules_of_nodes() -> None:
    others = "all others@all others"
    assert verdicts() == {others: False}
    reads = acl("User:a", AclOperation.READ)
    assert verdicts(reads) == {"User:a@all others": True, others: False}
    # READ implies DESCRIBE, and a DENY wins over every ALLOW.
    assert verdicts(reads, operation=AclOperation.DESCRIBE)["User:a@all others"]
    assert not verdicts(reads, operation=AclOperation.WRITE)[others]
    denied = acl("User:*", AclOperation.ALL, is_denied=True)
    assert verdicts(reads, denied) == {"User:a@all others": False, others: False}
    everyone = acl("User:*", AclOperation.ALL, resource_name="*")
    but_one = acl("User:b", AclOperation.READ, is_denied=True, host="10.0.0.1")
    assert verdicts(everyone, but_one) == {
        "User:b@10.0.0.1": False, "User:b@all others": True, others: True,
    }  # fmt: skip
    assert not who_may([], AclOperation.READ, AclResourceType.TOPIC, "t").is_covered
    prefixed = acl(
        "User:a", AclOperation.READ, resource_name="x", pattern_type=PatternType.PREFIXED
    )
    assert verdicts(prefixed) == {others: False}


def test_directories_and_moves_are_described() -> None:
    def replica(partition: int, size: int, *, is_future: bool = False) -> ReplicaDir:
        return ReplicaDir(
            topic="t", partition=partition, size=size, offset_lag=0, is_future=is_future
        )

    found = _dir_json(
        LogDir(
            path="/d", error=ErrorCode.NONE, total_bytes=100, usable_bytes=9,
            replicas=(replica(0, 5), replica(1, 7), replica(2, 3, is_future=True)),
        )
    )  # fmt: skip
    assert (found["replicas"], found["bytes"], found["error"]) == (2, 12, None)
    assert [one["partition"] for one in found["largest"]] == [1, 0]
    assert found["arriving"] == [{"topic": "t", "partition": 2, "bytes": 3}]
    move = Reassignment(replicas=(1, 2, 3), adding=(3,), removing=(1,))
    sizes = {(("t", 0), 1): 10, (("t", 0), 2): 12, (("t", 0), 3): 6}
    assert _move_json(("t", 0), move, sizes)["progress"] == [
        {"broker": 3, "bytes": 6, "ofBytes": 12}
    ]


def publish(node: SparkraftNode, topic: str) -> None:
    """Two batches as a pipeline publishes them, and a record that is none."""
    options = {"kafka.bootstrap.servers": node.bootstrap, "subscribe": "t"}
    log = batch_log.TopicLog(source_options(options, streaming=True).client, topic)
    for batch in (7, 8):
        log.append(batch_log.document("delays", progress_of({**REPORT, "batchId": batch})))

    async def send() -> None:
        async with Cluster(node.bootstrap) as cluster, Producer(cluster) as producer:
            await (await producer.send(topic, b"[1]", key=b"odd"))

    asyncio.run(send())


def test_pipelines_are_shown_by_their_documents(
    node: SparkraftNode, console: ConsoleProcess
) -> None:
    missing = get(console, "/api/pipelines", topic="absent")
    absent = "topic absent does not exist (UNKNOWN_TOPIC_OR_PARTITION)"
    assert (missing["pipelines"], missing["problem"]) == ([], absent)
    publish(node, "batches")
    found = get(console, "/api/pipelines", topic="batches")
    assert found["damaged"] == 1
    (shown,) = found["pipelines"]
    assert shown["pipeline"] == "delays"
    assert [one["batch"] for one in shown["batches"]] == [7, 8]
    assert (shown["batches"][0]["records"], shown["batches"][0]["lag"]) == (10, 20)


@pytest.mark.browser
def test_the_screens_show_rights_directories_and_pipelines(
    browser: Browser, node: SparkraftNode, tmp_path: Path
) -> None:
    publish(node, "pipeline-batches")
    user = ["configs", "--bootstrap-server", node.bootstrap, "--alter", "--user", "bob"]
    assert cli.main([*user, "--add-config", "SCRAM-SHA-256=[password=secret]"]) == 0

    async def look(console: ConsoleProcess) -> None:
        async with browser.visiting(console.address, f"/security#t={console.token}") as visit:
            page = visit.page
            await expect(page.get_by_role("cell", name="SCRAM-SHA-256")).to_be_visible()
            await page.get_by_text("Add an entry").click()
            form = page.locator('form[data-change="add-acl"]').first
            await form.get_by_label("Principal").fill("User:<b>ann")
            await form.get_by_label("Name", exact=True).fill("drawn")
            await form.get_by_role("button", name="Show the change").click()
            await page.get_by_role("button", name="Apply").click()
            await expect(page.get_by_text("Done: added the access control entry")).to_be_visible()
            await expect(page.get_by_role("cell", name="User:<b>ann").first).to_be_visible()
            form = page.locator('form[data-form="who-may"]')
            await form.get_by_label("Name").fill("drawn")
            await form.get_by_role("button", name="Show").click()
            row = page.locator("#who-may tbody tr")
            await expect(row.first).to_contain_text("✓ yes")
            await expect(row.last).to_contain_text("no entry allows it")
            await page.get_by_role("link", name="Pipelines").click()
            await expect(page.get_by_role("table", name="Pipelines")).to_contain_text("delays")
            await page.get_by_role("link", name="Disks").click()
            await expect(page.get_by_role("table", name="Log directories")).to_contain_text(
                "online"
            )
            await page.get_by_role("link", name="Transactions").click()
            await page.get_by_label("Topic").fill("pipeline-batches")
            await page.get_by_label("Partition").fill("0")
            await page.get_by_role("button", name="Show").click()
            await expect(page.get_by_role("table", name="Producers")).to_be_visible()
            await page.get_by_role("link", name="Moves").click()
            await expect(page.get_by_text("Nothing is being reassigned.")).to_be_visible()

    with ConsoleProcess(node.bootstrap, tmp_path) as console:
        browser.run(look(console))


def test_an_open_transaction_and_its_producer_are_shown(
    node: SparkraftNode, console: ConsoleProcess
) -> None:
    publish(node, "batches-in-transactions")
    shown: list[Json] = []

    async def look() -> None:
        settings = ProducerSettings(transactional_id="moves <b>")
        place = {"topic": "batches-in-transactions", "partition": "0"}
        async with (
            Cluster(node.bootstrap) as cluster,
            TransactionalProducer(cluster, settings) as producer,
        ):
            await producer.init_transactions()
            producer.begin_transaction()
            sent = await producer.send("batches-in-transactions", b"x", key=b"k", partition=0)
            await sent
            shown.append(await asyncio.to_thread(get, console, "/api/transactions"))
            shown.append(await asyncio.to_thread(get, console, "/api/producers", **place))
            await producer.abort_transaction()

    asyncio.run(look())
    listed, producers = shown
    (found,) = listed["transactions"]
    assert (found["transactionalId"], found["state"]) == ("moves <b>", "Ongoing")
    assert found["partitions"] == ["batches-in-transactions-0"]
    (active,) = [one for one in producers["producers"] if one["openSince"] is not None]
    assert active["producerId"] == found["producerId"]
    assert not active["isHanging"]


COUNT_SCROLL_LISTENERS = """() => {
  window.added = 0;
  const add = EventTarget.prototype.addEventListener;
  EventTarget.prototype.addEventListener = function (kind, ...rest) {
    if (kind === "scroll") window.added++;
    return add.call(this, kind, ...rest);
  };
}"""


@pytest.mark.browser
def test_a_redraw_adds_no_listener_to_the_rows(
    browser: Browser, node: SparkraftNode, console: ConsoleProcess
) -> None:
    """One for each redraw made scrolling slower the longer a page was open."""
    publish(node, "scrolled")

    async def look() -> None:
        async with browser.visiting(console.address, "/topics") as visit:
            page = visit.page
            await expect(page.get_by_role("link", name="scrolled")).to_be_visible()
            await page.evaluate(COUNT_SCROLL_LISTENERS)
            for text in ("no such topic", "scrolled", ""):
                await page.get_by_role("searchbox").fill(text)
                await expect(page.get_by_role("link", name="scrolled")).to_have_count(
                    0 if text.startswith("no") else 1
                )
            assert await page.evaluate("window.added") == 0

    browser.run(look())
