"""The console over a cluster in ZooKeeper mode: the race for /controller, drawn and as text."""

import asyncio
import http.client
import json
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import pytest
from playwright.async_api import Page, expect

from sparkraft.cli import main as cli
from tests.support.console import WAIT_MS, Browser, ConsoleProcess, violations
from tests.support.outside_tools import Missing, axe_core
from tests.support.zookeeper import Ensemble
from tests.support.zookeeper_brokers import KafkaBroker, OurBroker

pytestmark = [pytest.mark.java, pytest.mark.real_clients, pytest.mark.browser]

expect.set_options(timeout=WAIT_MS)

SESSION = {"zookeeper.session.timeout.ms": "3000"}
STANDS = {**SESSION, "sparkraft.controllership.enable": "true"}
NO_JOURNAL = "only sparkraft's nodes keep such a journal"


class Brokers(NamedTuple):
    """Broker 1 is Kafka's and the first controller; 2 and 3 compete after it."""

    kafka: KafkaBroker
    bootstrap: str
    console: ConsoleProcess


@pytest.fixture(scope="module")
def brokers(
    ensemble: Ensemble, zookeeper_jars: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Brokers]:
    folder = tmp_path_factory.mktemp("console")
    connect = f"{ensemble.connect}/console"
    with (
        KafkaBroker(folder / "1", 1, connect, zookeeper_jars, SESSION) as kafka,
        OurBroker(folder / "2", 2, connect, STANDS) as second,
        OurBroker(folder / "3", 3, connect, STANDS) as third,
    ):
        bootstrap = f"{second.bootstrap},{third.bootstrap}"
        with ConsoleProcess(bootstrap, folder) as console:
            yield Brokers(kafka, bootstrap, console)


def document(console: ConsoleProcess, path: str) -> dict[str, Any]:
    connection = http.client.HTTPConnection(console.address.removeprefix("http://"), timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    content = answer.read()
    assert answer.status == 200, content
    found: dict[str, Any] = json.loads(content)
    return found


async def the_controller_of_kafka_is_shown(page: Page) -> None:
    """It keeps no journal, and those that lost against it do."""
    await expect(page.locator("#health")).to_contain_text("All is well: 3 brokers")
    await expect(page.locator("#health")).to_contain_text("controller 1.")
    screens = page.get_by_role("navigation", name="Screens")
    await expect(screens.get_by_role("link", name="Quorum")).to_have_count(0)
    await screens.get_by_role("link", name="Controller").click()
    await expect(page.locator(".lead")).to_have_text(
        "Broker 1 is the controller in epoch 1. No journal has its election."
    )
    await expect(page.locator('g[data-epoch="1"]')).to_contain_text("controller 1")
    row = page.get_by_role("table", name="Brokers and their journals").get_by_role("row")
    await expect(row.filter(has_text=NO_JOURNAL)).to_contain_text("controller; journal not")
    await expect(page.get_by_text("A broker of Apache Kafka keeps no journal")).to_be_visible()
    for broker in (2, 3):
        lost = page.get_by_role("button", name=f"broker {broker} lost: broker 1 is the controller")
        await expect(lost.first).to_be_attached()


async def the_race_is_shown(page: Page) -> int:
    """Of brokers 2 and 3; return the winner."""
    column = page.locator('g[data-epoch="2"]')
    await expect(column).to_contain_text("controller")
    winner = int(((await column.text_content()) or "").rpartition("controller ")[2])
    loser = 5 - winner
    await expect(page.locator(".lead")).to_contain_text(
        f"Broker {winner} is the controller in epoch 2 since"
    )
    lost = page.get_by_role("button", name=f"broker {loser} lost: broker {winner}")
    await expect(lost.first).to_be_attached()
    steps = page.get_by_role("table", name="Steps of the failover")
    await expect(steps).to_contain_text("read 2 brokers, ")
    await expect(steps).to_contain_text("preferred elections were pending")
    return winner


async def keys_step_through_the_race(page: Page) -> None:
    await page.locator('[data-event][tabindex="0"]').focus()
    await page.keyboard.press("Home")
    first = page.locator("[data-event]:focus")
    await expect(page.locator("#chosen")).to_contain_text(
        await first.get_attribute("aria-label") or "?"
    )
    await page.keyboard.press("ArrowRight")
    await expect(page.locator(".event.selected")).to_have_count(1)
    await page.keyboard.press("Escape")
    await expect(page.locator(".event.selected")).to_have_count(0)


async def texts_of(page: Page) -> list[str]:
    """The newest epoch as lines."""
    details = page.locator('details[data-key^="lines-"]').first
    texts = [await details.locator("summary").text_content()]
    texts += await details.locator("li").all_text_contents()
    return [(text or "").strip() for text in texts]


def test_the_race_for_the_controller_is_drawn_and_printed(
    brokers: Brokers, browser: Browser, capsys: pytest.CaptureFixture[str]
) -> None:
    lines: list[str] = []

    async def watch() -> None:
        async with browser.visiting(brokers.console.address) as visit:
            page = visit.page
            await the_controller_of_kafka_is_shown(page)
            await asyncio.to_thread(brokers.kafka.kill)
            winner = await the_race_is_shown(page)
            await keys_step_through_the_race(page)
            lines.extend(await texts_of(page))
            await page.get_by_role("link", name="Overview").click()
            await expect(page.locator("#health")).to_contain_text(
                f"All is well: 2 brokers, 0 topics, 0 partitions; controller {winner} since"
            )
            await page.goto(f"{brokers.console.address}/quorum")
            await page.get_by_role("link", name="Show its controllers").click()
            await expect(page.get_by_role("heading", name="Controller")).to_be_visible()

    browser.run(watch())
    command = ["explain", "controller", "--bootstrap-server", brokers.bootstrap]
    capsys.readouterr()
    assert cli.main([*command, "--epochs", "30"]) == 0
    printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    start = printed.index(lines[0])
    assert printed[start : start + len(lines)] == lines
    assert cli.main([*command, "--output", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    shown = document(brokers.console, "/api/controller")
    assert {name: shown[name] for name in found} == found
    assert shown["command"] == f"sparkraft explain controller --epochs 30 {' '.join(command[2:])}"


SCREENS = {
    "/topics": "[role=row] a",
    "/topics/shown": "[role=row] a",
    "/topics/shown/0": "[data-event]",
    "/topics/shown/messages": "#scan",
    "/brokers/2": "table",
    "/brokers/3": "table",
    "/groups": "h1",
    "/configs?resource=topic&name=shown": "table",
    "/log-dirs": "table",
    "/reassignments": ".lead",
    "/security": "[data-form=who-may]",
    "/transactions": "[data-form=producers]",
    "/pipelines": "[data-form=pipelines]",
    "/changes": "h1",
}
"""Path → an element that is there once the screen is drawn."""


@pytest.mark.long
def test_the_other_screens_work_in_this_mode(brokers: Brokers, browser: Browser) -> None:
    create = ["topics", "--bootstrap-server", brokers.bootstrap, "--create", "--topic", "shown"]
    assert cli.main(create) == 0

    async def look() -> None:
        for path, drawn in SCREENS.items():
            async with browser.visiting(brokers.console.address, path) as visit:
                await expect(visit.page.locator(drawn).first).to_be_visible()
                await expect(visit.page.locator("#moment")).to_contain_text(
                    "a cluster in ZooKeeper mode has no metadata log"
                )

    browser.run(look())


def test_the_commands_of_this_mode_name_each_other(
    brokers: Brokers, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["explain", "quorum", "--bootstrap-server", brokers.bootstrap]) == 1
    assert "`explain controller` shows its controllers" in capsys.readouterr().err
    assert cli.main(["explain", "cluster", "--bootstrap-server", brokers.bootstrap]) == 0
    assert "No controller" not in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation(
    brokers: Brokers, browser: Browser, scheme: Literal["light", "dark"]
) -> None:
    axe = axe_core()
    if isinstance(axe, Missing):
        pytest.skip(axe.reason)

    async def check() -> None:
        async with browser.visiting(brokers.console.address, "/controller", scheme=scheme) as visit:
            page = visit.page
            await expect(page.locator("[data-event]").first).to_be_visible()
            await page.evaluate(axe.read_text())
            assert await violations(page) == []
            await page.set_viewport_size({"width": 640, "height": 450})
            assert await page.evaluate("document.documentElement.scrollWidth") <= 640

    browser.run(check())
