"""An editor sends records from the console."""

import asyncio
import http.client
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from sparkraft.cli.console_producer import LineReader
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster
from sparkraft.client.values import NewTopic
from sparkraft.console.send import NewRecord, command_of, note_of, parse_record
from tests.support.console import WAIT_MS, Browser, ConsoleProcess
from tests.support.nodes import SparkraftNode

pytestmark = pytest.mark.real_clients

expect.set_options(timeout=WAIT_MS)

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
    sent = json.loads(answer.read())
    assert sent.pop("note").startswith("console-producer sends a record per line")
    assert sent == {"topic": "sent", "partition": 1, "offset": 0, "command": None}
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


def record_of(**values: Any) -> NewRecord:
    return NewRecord(**{"topic": "t", "partition": None, "key": None, "value": b"v", **values})


def test_commands_quote_and_say_what_they_do_not_do() -> None:
    assert command_of(record_of(value=b"it's"), "h:1") == (
        "printf '%s\\n' 'it'\"'\"'s' | sparkraft console-producer --bootstrap-server h:1 --topic t"
    )
    assert note_of(record_of()) is None
    for record in (record_of(value=b"a\nb"), record_of(key=b"a\rb")):
        assert command_of(record, "h:1") is None
        assert "line breaks" in str(note_of(record))
    by_key = record_of(partition=3, key=b"k")
    assert command_of(by_key, "h:1") == command_of(record_of(key=b"k"), "h:1")
    assert str(note_of(by_key)).endswith("the key chooses it, and not always 3.")
    assert str(note_of(record_of(partition=0))).endswith("it may be any, and not always 0.")


@pytest.mark.parametrize(
    "record",
    [
        record_of(value=None, key=b"k"),
        record_of(value=None),
        record_of(value=b"NULL", headers=(("h", None), ("i", b"NULL"), ("j", b""))),
        record_of(key=b"", value=b""),
        record_of(key=b"NULL<null>~null~", value=None),
        record_of(key=b"\xff\x00\\", value=b"\x80%s\\n"),
        record_of(key=b"a\tb", value=b"c|d"),
        record_of(key=b"\t|~\x1e", value="µ\t\"'$x`".encode()),
        record_of(headers=(("trace", b"a=1,b:2;c"), ("trace", b"\xfe"), ("e", b"\t|"))),
        record_of(headers=((":=::\x1f", b",;&\x1d"), ("", b":")), key=b"\t|~\x1e" * 2),
    ],
)
def test_a_line_of_the_command_is_read_as_the_same_record(record: NewRecord) -> None:
    """By a shell, and by the reader of `console-producer`."""
    command = command_of(record, "h:1")
    assert command is not None
    printing, _, sending = command.partition(" | sparkraft console-producer ")
    line = subprocess.run(["sh", "-c", printing], check=True, capture_output=True).stdout
    words = shlex.split(sending)
    at = [n for n, word in enumerate(words) if word == "--reader-property"]
    properties = dict(words[n + 1].split("=", 1) for n in at)
    text = line.decode("utf-8", "surrogateescape")
    assert text.endswith("\n")
    key, value, headers = LineReader.of(properties).read(text[:-1], 1)
    assert (key, value, tuple(headers)) == (record.key, record.value, record.headers)


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
            headers = page.get_by_label("Headers, a line each")
            await headers.fill("trace")
            await page.get_by_role("button", name="Send").click()
            await expect(page.get_by_role("alert")).to_contain_text("NAME=VALUE, and not “trace”")
            await headers.fill("trace=a=1\nempty=")
            await page.get_by_role("button", name="Send").click()
            await expect(page.get_by_text("Sent: partition")).to_be_visible()
            await page.get_by_role("button", name="Read again").click()
            rows = page.get_by_role("table", name="Messages").locator("tbody tr")
            await expect(rows).to_have_count(1)
            await rows.locator("summary").click()
            await page.get_by_role("button", name="Edit and send again").click()
            await expect(page.get_by_label("To partition")).not_to_have_value("")
            await expect(page.get_by_label("Value", exact=True)).to_have_value('{"n": 1}')
            # The record that was opened stays open, and closes at the next click.
            await expect(rows.locator(".whole").first).to_be_visible()
            await rows.locator("summary").click()
            await expect(rows.locator(".whole")).to_have_count(0)
            await expect(headers).to_have_value("trace=a=1\nempty=")
            await page.get_by_label("Value as").select_option("null")
            await page.get_by_role("button", name="Send", exact=True).click()
            await expect(page.get_by_text("offset 1")).to_be_visible()

    browser.run(look())
    first, again = records_of(console, "again")
    assert (first["value"]["form"], again["value"]["form"]) == ("json", "null")
    assert first["headers"] == again["headers"]
    assert [(name, part["text"]) for name, part in first["headers"]] == [
        ("trace", "a=1"), ("empty", ""),
    ]  # fmt: skip


@pytest.mark.browser
def test_a_large_record_is_shown_whole_and_sent_again(
    browser: Browser, node: SparkraftNode, console: ConsoleProcess
) -> None:
    create(node, "large")
    value = {
        "form": "text",
        "text": json.dumps({"text": "x" * 9_000, "last": 12345678901234567890}),
    }
    record = {"topic": "large", "partition": 0, "key": TEXT, "value": value}
    cookie = signed_in(console)
    assert post(console, "/api/send", record, cookie).status == 200

    async def look() -> None:
        async with browser.visiting(console.address) as visit:
            page = visit.page
            name, _, session = cookie.partition("=")
            await page.context.add_cookies(
                [{"name": name, "value": session, "url": console.address}]
            )
            query = "filter=record.partition == 0"
            await page.goto(f"{console.address}/topics/large/messages?{query}")
            await page.locator("td summary").click()
            again = page.get_by_role("button", name="Edit and send again")
            await expect(page.get_by_text("the first are shown")).to_be_visible()
            await expect(again).to_have_count(0)
            await page.get_by_role("button", name="Show the whole record").click()
            await expect(page.get_by_text('"last": 12345678901234567890')).to_be_visible()
            await expect(page.get_by_role("button", name="Show the whole")).to_have_count(0)
            await again.click()
            await page.get_by_role("button", name="Send", exact=True).click()
            await expect(page.get_by_text("offset 1")).to_be_visible()

    browser.run(look())
    host = console.address.removeprefix("http://")
    export = http.client.HTTPConnection(host, timeout=60)
    export.request("GET", "/api/export?topic=large&mode=earliest")
    values = [json.loads(line)["value"] for line in export.getresponse().read().splitlines()]
    assert values == [value["text"]] * 2


@pytest.mark.browser
def test_bytes_that_a_field_would_change_are_sent_again_as_they_are(
    browser: Browser, node: SparkraftNode, console: ConsoleProcess
) -> None:
    """An empty key, carriage returns, and headers that are not lines; and bytes shown as text."""
    create(node, "bytes")
    headers = [["raw", {"form": "hex", "text": "ff"}], ["text", TEXT], ["none", {"form": "null"}]]
    key, value = {"form": "text", "text": ""}, {"form": "text", "text": "one\r\ntwo"}
    record = {"topic": "bytes", "partition": 0, "key": key, "value": value, "headers": headers}
    cookie = signed_in(console)
    assert post(console, "/api/send", record, cookie).status == 200
    other = {"topic": "bytes", "partition": 1, "key": TEXT, "value": {"form": "hex", "text": "ff"}}
    assert post(console, "/api/send", other, cookie).status == 200

    async def look() -> None:
        async with browser.visiting(console.address) as visit:
            page = visit.page
            name, _, session = cookie.partition("=")
            await page.context.add_cookies(
                [{"name": name, "value": session, "url": console.address}]
            )
            await page.goto(f"{console.address}/topics/bytes/messages")
            again = page.get_by_role("button", name="Edit and send again")
            await page.locator("summary", has_text="one").click()
            await again.click()
            await expect(page.get_by_text("with the headers raw, text, none, and")).to_be_visible()
            await page.get_by_label("Headers, a line each").fill("more=1")
            await page.get_by_role("button", name="Send", exact=True).click()
            await expect(page.get_by_text("offset 1")).to_be_visible()
            for form, count in (("hex", 1), ("text", 0)):
                query = f"partitions=1&form={form}"
                await page.goto(f"{console.address}/topics/bytes/messages?{query}")
                await page.locator("td summary").click()
                await expect(page.locator(".whole").first).to_be_visible()
                await expect(again).to_have_count(count)

    browser.run(look())
    first, again = [one for one in records_of(console, "bytes") if one["partition"] == 0]
    for part in ("key", "value"):
        assert again[part]["text"] == first[part]["text"]
        assert again[part]["form"] == first[part]["form"] == "text"
    assert again["headers"][:-1] == first["headers"]
    assert again["headers"][-1][0] == "more"
