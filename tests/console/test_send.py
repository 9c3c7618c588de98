"""An editor sends records from the console."""

import asyncio
import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster
from sparkraft.client.values import NewTopic
from sparkraft.console.send import NewRecord, command_of, parse_record
from tests.support.console import Browser, ConsoleProcess
from tests.support.nodes import SparkraftNode

pytestmark = pytest.mark.real_clients

TEXT = {"form": "text", "text": "a"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkraftNode]:
    with SparkraftNode(tmp_path_factory.mktemp("node")) as node:
        yield node


@pytest.fixture
def console(node: SparkraftNode, tmp_path: Path) -> Iterator[ConsoleProcess]:
    with ConsoleProcess(node.bootstrap, tmp_path) as console:
        yield console


def create(node: SparkraftNode, topic: str) -> None:
    async def creating() -> None:
        async with Cluster(node.bootstrap) as cluster:
            await Admin(cluster).create_topics([NewTopic(name=topic, partitions=2)])

    asyncio.run(creating())


def post(console: ConsoleProcess, path: str, body: object, cookie: str = "") -> Any:
    connection = http.client.HTTPConnection(console.address.removeprefix("http://"), timeout=60)
    headers = {"X-Sparkraft-Console": "1", "Cookie": cookie}
    connection.request("POST", path, json.dumps(body), headers)
    return connection.getresponse()


def signed_in(console: ConsoleProcess) -> str:
    answer = post(console, "/api/sign-in", {"token": console.token})
    return str(answer.headers["Set-Cookie"]).partition(";")[0]


def records_of(console: ConsoleProcess, topic: str) -> list[dict[str, Any]]:
    connection = http.client.HTTPConnection(console.address.removeprefix("http://"), timeout=60)
    connection.request("GET", f"/api/messages?topic={topic}&mode=earliest")
    lines = map(json.loads, connection.getresponse().read().splitlines())
    return [line["record"] for line in lines if "record" in line]


def test_a_record_is_sent_byte_by_byte(node: SparkraftNode, console: ConsoleProcess) -> None:
    create(node, "sent")
    record = {
        "topic": "sent",
        "partition": 1,
        "key": {"form": "hex", "text": "ff 00"},
        "value": {"form": "text", "text": '{"n": 12345678901234567890}\n'},
        "headers": [["h", {"form": "null", "text": ""}], ["h", TEXT]],
    }
    assert post(console, "/api/send", record).status == 403
    cookie = signed_in(console)
    answer = post(console, "/api/send", record, cookie)
    assert json.loads(answer.read()) == {
        "topic": "sent", "partition": 1, "offset": 0, "command": None,
    }  # fmt: skip
    (shown,) = records_of(console, "sent")
    assert shown["key"]["text"] == "ff 00"
    assert shown["value"]["text"] == record["value"]["text"]  # type: ignore[index]
    assert [(name, part["form"]) for name, part in shown["headers"]] == [
        ("h", "null"),
        ("h", "text"),
    ]
    assert "audit: 'editor' at 127.0.0.1 sent a record: sent-1@0" in console.output()


def test_a_tombstone_and_the_command(node: SparkraftNode, console: ConsoleProcess) -> None:
    create(node, "written")
    cookie = signed_in(console)
    tombstone = {"topic": "written", "key": TEXT, "value": {"form": "null"}}
    assert post(console, "/api/send", tombstone, cookie).status == 200
    answer = post(console, "/api/send", {"topic": "written", "key": TEXT, "value": TEXT}, cookie)
    command = json.loads(answer.read())["command"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(
        ["bash", "-c", command], check=True, timeout=120, env={**os.environ, "PATH": path}
    )
    shown = [(one["partition"], one["value"]["text"]) for one in records_of(console, "written")]
    assert [text for _, text in shown] == ["null", "a", "a"]
    assert len({partition for partition, _ in shown}) == 1


@pytest.mark.parametrize(
    ("record", "status"),
    [
        ({"topic": "none", "key": TEXT, "value": TEXT}, 404),
        ({"topic": "sent"}, 400),
        ({"topic": "sent", "key": TEXT, "value": {"form": "hex", "text": "f"}}, 400),
        ({"topic": "sent", "key": TEXT, "value": {"form": "int", "text": "1"}}, 400),
        ({"topic": "sent", "partition": "x", "key": TEXT, "value": TEXT}, 400),
        ({"topic": "sent", "partition": -1, "key": TEXT, "value": TEXT}, 400),
        ({"topic": "sent", "key": TEXT, "value": TEXT, "headers": [["h"]]}, 400),
    ],
)
def test_a_wrong_record_is_refused(
    node: SparkraftNode, console: ConsoleProcess, record: dict[str, Any], status: int
) -> None:
    answer = post(console, "/api/send", record, signed_in(console))
    assert answer.status == status, answer.read()
    listed = http.client.HTTPConnection(console.address.removeprefix("http://"), timeout=60)
    listed.request("GET", "/api/topics")
    topics = json.loads(listed.getresponse().read())["topics"]
    assert "none" not in [one["topic"] for one in topics]


def test_commands_quote_and_give_up() -> None:
    def command(**values: Any) -> str | None:
        record = NewRecord(
            **{"topic": "t", "partition": None, "key": None, "value": b"v", **values}
        )
        return command_of(record, "h:1")

    assert command(value=b"it's") == (
        "printf '%s\\n' 'it'\"'\"'s' | sparkraft console-producer --bootstrap-server h:1 --topic t"
    )
    for odd in (
        {"value": None}, {"value": b"\xff"}, {"value": b"a\nb"}, {"partition": 0},
        {"key": b"a\tb"}, {"headers": (("h", b""),)},
    ):  # fmt: skip
        assert command(**odd) is None


def test_a_record_needs_its_fields() -> None:
    with pytest.raises(KeyError):
        parse_record({"topic": "t", "key": TEXT})


@pytest.mark.browser
def test_a_record_is_edited_and_sent_again(
    browser: Browser, node: SparkraftNode, console: ConsoleProcess
) -> None:
    create(node, "again")

    async def look() -> None:
        path = f"/topics/again/messages#t={console.token}"
        async with browser.visiting(console.address, path) as visit:
            page = visit.page
            await page.get_by_text("Send a record").click()
            await page.get_by_label("Key", exact=True).fill("k")
            await page.get_by_label("Value", exact=True).fill('{"n": 1}')
            await page.get_by_role("button", name="Send").click()
            await expect(page.get_by_text("Sent: partition")).to_be_visible()
            await page.get_by_role("button", name="Read again").click()
            rows = page.get_by_role("table", name="Messages").locator("tbody tr")
            await expect(rows).to_have_count(1)
            await rows.locator("summary").click()
            await page.get_by_role("button", name="Edit and send again").click()
            await expect(page.get_by_label("Value", exact=True)).to_have_value('{"n": 1}')
            await page.get_by_label("Value as").select_option("null")
            await page.get_by_role("button", name="Send", exact=True).click()
            await expect(page.get_by_text("offset 1")).to_be_visible()

    browser.run(look())
    assert [one["value"]["form"] for one in records_of(console, "again")] == ["json", "null"]
