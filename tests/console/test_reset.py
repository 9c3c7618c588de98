"""An editor resets the offsets of a group: a plan changes nothing, then exactly it is committed."""

import asyncio
import http.client
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from sparkraft.cli import main as cli
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster
from sparkraft.client.consumer import Consumer, ConsumerSettings
from sparkraft.client.group_reset import ShiftBy, ToOffset, ToTime
from sparkraft.client.groups import Groups
from sparkraft.client.producer import Producer
from sparkraft.client.subscription import GroupSettings
from sparkraft.client.values import EARLIEST, LATEST, Committed, NewTopic
from sparkraft.console.reset import parse_offsets, parse_reset
from tests.support.console import WAIT_MS, Browser, ConsoleProcess
from tests.support.nodes import SparkraftNode

pytestmark = pytest.mark.real_clients

expect.set_options(timeout=WAIT_MS)

RECORDS = 10
COMMITTED = 4


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkraftNode]:
    with SparkraftNode(tmp_path_factory.mktemp("node")) as node:
        asyncio.run(fill(node.bootstrap))
        yield node


@pytest.fixture(scope="module")
def console(
    node: SparkraftNode, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleProcess]:
    with ConsoleProcess(node.bootstrap, tmp_path_factory.mktemp("console")) as console:
        yield console


@pytest.fixture(scope="module")
def cookie(console: ConsoleProcess) -> str:
    """Of the editor."""
    answer = post(console, "/api/sign-in", {"token": console.token})
    return str(answer.headers["Set-Cookie"]).partition(";")[0]


async def fill(bootstrap: str) -> None:
    async with Cluster(bootstrap) as cluster, Producer(cluster) as producer:
        await Admin(cluster).create_topics([NewTopic(name="read", partitions=2)])
        for number in range(2 * RECORDS):
            await (await producer.send("read", b"x", partition=number % 2))


async def commit(bootstrap: str, group: str) -> None:
    async with Cluster(bootstrap) as cluster:
        offsets = {("read", 0): Committed(offset=COMMITTED)}
        assert not any((await Groups(cluster).commit(group, offsets)).values())


def offsets_of(node: SparkraftNode, group: str) -> dict[tuple[str, int], int]:
    async def ask() -> dict[tuple[str, int], int]:
        async with Cluster(node.bootstrap) as cluster:
            return {tp: one.offset for tp, one in (await Groups(cluster).offsets(group)).items()}

    return asyncio.run(ask())


def post(console: ConsoleProcess, path: str, body: object, cookie: str = "") -> Any:
    connection = http.client.HTTPConnection(console.address.removeprefix("http://"), timeout=60)
    headers = {"X-Sparkraft-Console": "1", "Cookie": cookie}
    connection.request("POST", path, json.dumps(body), headers)
    return connection.getresponse()


def shown_offsets(console: ConsoleProcess, group: str) -> dict[int, int]:
    connection = http.client.HTTPConnection(console.address.removeprefix("http://"), timeout=60)
    connection.request("GET", f"/api/group?group={group}")
    offsets = json.loads(connection.getresponse().read())["offsets"]
    return {one["partition"]: one["currentOffset"] for one in offsets}


def test_a_plan_is_shown_then_committed(
    node: SparkraftNode, console: ConsoleProcess, cookie: str
) -> None:
    asyncio.run(commit(node.bootstrap, "moved"))
    wish = {"group": "moved", "topic": "read", "to": "offset", "value": "7"}
    assert post(console, "/api/reset-plan", wish).status == 403
    plan = json.loads(post(console, "/api/reset-plan", wish, cookie).read())
    assert plan["rows"] == [
        {"topic": "read", "partition": 0, "from": 4, "to": 7, "change": 3, "outsideLog": None},
        {"topic": "read", "partition": 1, "from": None, "to": 7, "change": None,
         "outsideLog": None},
    ]  # fmt: skip
    assert (plan["state"], plan["isAllowed"]) == ("Empty", True)
    assert offsets_of(node, "moved") == {("read", 0): COMMITTED}
    assert shown_offsets(console, "moved") == {0: COMMITTED}
    wanted = {"group": "moved", "offsets": [["read", 0, 7], ["read", 1, "7"]]}
    assert post(console, "/api/reset", wanted).status == 403
    assert post(console, "/api/reset", wanted, cookie).status == 200
    assert offsets_of(node, "moved") == {("read", 0): 7, ("read", 1): 7}
    assert shown_offsets(console, "moved") == {0: 7, 1: 7}, "the page shows the change at once"
    assert "audit: 'editor' at 127.0.0.1 reset 2 offsets of group 'moved'" in console.output()


@pytest.mark.parametrize(
    ("to", "value", "expected"),
    [
        ("earliest", "", 0),
        ("latest", "", RECORDS),
        ("shift", "-3", COMMITTED - 3),
        ("shift", "100", RECORDS),
        ("time", "2001-01-01 12:00:00", 0),
        ("time", "2200-01-01", RECORDS),
    ],
)
def test_the_command_does_the_same(
    node: SparkraftNode, console: ConsoleProcess, cookie: str, to: str, value: str, expected: int
) -> None:
    group = f"the same {to} {value}"
    asyncio.run(commit(node.bootstrap, group))
    wish = {"group": group, "topic": None, "to": to, "value": value}
    plan = json.loads(post(console, "/api/reset-plan", wish, cookie).read())
    assert [(row["from"], row["to"]) for row in plan["rows"]] == [(COMMITTED, expected)]
    program, *arguments = shlex.split(plan["command"])
    assert program == "sparkraft"
    assert cli.main(arguments) == 0
    assert offsets_of(node, group) == {("read", 0): expected}


def test_a_group_with_members_is_not_reset(
    node: SparkraftNode, console: ConsoleProcess, cookie: str
) -> None:
    async def with_member() -> tuple[dict[str, Any], int, str]:
        group = GroupSettings(group_id="busy")
        settings = ConsumerSettings(group=group, auto_offset_reset="earliest")
        async with Cluster(node.bootstrap) as cluster, Consumer(cluster, settings) as consumer:
            consumer.subscribe(["read"])
            while not await consumer.poll(100):
                pass
            await consumer.commit()

            def look() -> tuple[dict[str, Any], int, str]:
                wish = {"group": "busy", "topic": None, "to": "earliest"}
                plan = json.loads(post(console, "/api/reset-plan", wish, cookie).read())
                wanted = {"group": "busy", "offsets": [["read", 0, 0]]}
                answer = post(console, "/api/reset", wanted, cookie)
                return plan, answer.status, answer.read().decode()

            return await asyncio.to_thread(look)

    plan, status, text = asyncio.run(with_member())
    assert (plan["state"], plan["isAllowed"]) == ("Stable", False)
    assert status == 502
    assert "stop its members" in text
    assert offsets_of(node, "busy")["read", 0] > 0


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        ("/api/reset-plan", {"group": "g"}, "'to' is missing"),
        ("/api/reset-plan", {"group": "g", "to": "moon"}, "not 'moon'"),
        ("/api/reset-plan", {"group": "g", "to": "offset", "value": "x"}, "expected a number"),
        ("/api/reset-plan", {"group": "g", "to": "offset", "value": "-1"}, "0 or larger"),
        ("/api/reset-plan", {"group": "g", "to": "time", "value": "noon"}, "a time in UTC"),
        ("/api/reset-plan", {"group": "new", "to": "earliest"}, "no committed offsets"),
        (
            "/api/reset-plan",
            {"group": "g", "to": "earliest", "topic": "none"},
            "UNKNOWN_TOPIC_OR_PARTITION",
        ),
        (
            "/api/reset-plan",
            {"group": "new", "to": "shift", "value": "1", "topic": "read"},
            "can't be shifted",
        ),
        ("/api/reset", {"group": "g", "offsets": []}, "a list of 1 to"),
        ("/api/reset", {"group": "g", "offsets": [["read", 0]]}, "unpack"),
        ("/api/reset", {"group": "g", "offsets": [["read", 0, -1]]}, "not a topic"),
        ("/api/reset", {"group": "g", "offsets": [["read", "0", 1]]}, "not a topic"),
    ],
)
def test_a_wrong_wish_is_refused_with_the_reason(
    console: ConsoleProcess, cookie: str, path: str, body: dict[str, Any], sentence: str
) -> None:
    answer = post(console, path, body, cookie)
    text = answer.read().decode()
    assert answer.status == 400, text
    assert sentence in text


def test_wishes_become_scenarios_and_options() -> None:
    def parsed(**fields: Any) -> tuple[Any, str]:
        found = parse_reset({"group": "g", **fields})
        return found.scenario, found.option

    assert parsed(to="earliest") == (ToTime(EARLIEST), "--to-earliest")
    assert parsed(to="latest") == (ToTime(LATEST), "--to-latest")
    assert parsed(to="offset", value=" 5 ") == (ToOffset(5), "--to-offset 5")
    assert parsed(to="shift", value="-5") == (ShiftBy(-5), "--shift-by -5")
    assert parsed(to="time", value="2026-01-31 13:00:00.5+01:00") == (
        ToTime(1_769_860_800_500), "--to-datetime 2026-01-31T12:00:00.500Z",
    )  # fmt: skip
    large = (1 << 53) + 1
    assert parse_offsets({"group": "g", "offsets": [["t", 0, str(large)]]})[1] == {
        ("t", 0): large,
    }


@pytest.mark.browser
def test_an_editor_resets_a_group_on_its_page(
    browser: Browser, node: SparkraftNode, tmp_path: Path
) -> None:
    asyncio.run(commit(node.bootstrap, "drawn"))

    async def look(console: ConsoleProcess) -> None:
        async with browser.visiting(console.address, f"/group?id=drawn#t={console.token}") as visit:
            page = visit.page
            await page.get_by_text("Reset offsets").click()
            await page.locator("[name=to]").select_option("offset")
            await page.locator("[name=value]").fill("1")
            await page.get_by_role("button", name="Show the changes").click()
            await expect(page.get_by_text("3 records would be read again.")).to_be_visible()
            await page.get_by_role("button", name="Reset 1 partition").click()
            await expect(page.get_by_text("1 partition reset.")).to_be_visible()

    with ConsoleProcess(node.bootstrap, tmp_path) as console:
        browser.run(look(console))
    assert offsets_of(node, "drawn") == {("read", 0): 1}
