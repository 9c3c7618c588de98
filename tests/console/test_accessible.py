"""Every screen in light and dark, checked by axe-core, and used by keyboard at 200 % zoom."""

import asyncio
import json
from collections.abc import Iterator
from typing import Literal

import pytest
from playwright.async_api import Page, expect

from sparkraft.cli import main as cli
from sparkraft.client.cluster import Cluster
from sparkraft.client.producer import Producer
from tests.support.console import (
    WAIT_MS,
    Browser,
    ConsoleProcess,
    untested_screens,
    violations,
)
from tests.support.nodes import SparkraftNode
from tests.support.outside_tools import Missing, axe_core

pytestmark = [pytest.mark.real_clients, pytest.mark.browser, pytest.mark.long]

expect.set_options(timeout=WAIT_MS)

SCREENS = {
    "/": "#health",
    "/quorum": "[data-event]",
    "/topics": "[role=row] a",
    "/topics/shown": "[role=row] a",
    "/topics/shown/0": "[data-event]",
    "/topics/shown/messages": "summary",
    "/brokers/1": "table",
    "/groups": "table",
    "/group?id=readers": "[data-event]",
    "/changes": "table",
    "/log-dirs": "table",
    "/reassignments": ".lead",
    "/security": "[data-form=who-may]",
    "/transactions": "[data-form=producers]",
    "/pipelines": "[data-form=pipelines]",
    "/configs?resource=broker&name=1&all=1": "[data-key^=config-]",
    "/changes?from=1&to=20": "#comparison li",
    "/topics?as-of=20": "#moment.past",
    "/brokers/1?as-of=20": "#moment.past",
    "/configs?resource=broker&name=1&as-of=20": "[data-key^=config-]",
    "/security?as-of=20": "[data-form=who-may]",
    "/reassignments?as-of=20": "#moment.past",
    "/controller": ".note",
}
"""Path → an element that is there once the screen is drawn."""


def test_every_screen_is_checked() -> None:
    assert untested_screens(SCREENS) == set()


SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


async def produce(bootstrap: str) -> None:
    async with Cluster(bootstrap) as cluster, Producer(cluster) as producer:
        for value in (b'{"n": 1}', b"plain"):
            await (await producer.send("shown", value))


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    folder = tmp_path_factory.mktemp("accessible")
    with SparkraftNode(folder) as node:
        servers = ["--bootstrap-server", node.bootstrap, "--topic", "shown"]
        assert cli.main(["topics", *servers, "--create"]) == 0
        asyncio.run(produce(node.bootstrap))
        read = ["console-consumer", *servers, "--group", "readers", "--from-beginning"]
        assert cli.main([*read, "--max-messages", "2"]) == 0
        # The partition loses its leader and gets it back: its drawing has several changes.
        node.stop()
        node.start()
        with ConsoleProcess(node.bootstrap, folder) as console:
            yield console


@pytest.fixture(scope="module")
def axe() -> str:
    found = axe_core()
    if isinstance(found, Missing):
        pytest.skip(found.reason)
    return found.read_text()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("path", SCREENS)
def test_axe_finds_no_violation(
    console: ConsoleProcess,
    browser: Browser,
    axe: str,
    path: str,
    scheme: Literal["light", "dark"],
) -> None:
    async def check() -> None:
        async with browser.visiting(console.address, path, scheme=scheme) as visit:
            await expect(visit.page.locator(SCREENS[path]).first).to_be_visible()
            await visit.page.evaluate(axe)
            assert await violations(visit.page) == []

    browser.run(check())


def test_axe_finds_no_violation_in_what_an_editor_sees(
    console: ConsoleProcess, browser: Browser, axe: str
) -> None:
    """With all forms and lists opened; visitors of the other tests are readers."""

    async def check() -> None:
        async with browser.visiting(console.address, f"/#t={console.token}") as visit:
            page = visit.page
            await expect(page.locator("#health")).to_be_visible()
            for path, drawn in SCREENS.items():
                await page.goto(f"{console.address}{path}")
                await expect(page.locator(drawn).first).to_be_visible()
                await page.evaluate(
                    "document.querySelectorAll('details').forEach((one) => (one.open = true))"
                )
                await page.evaluate(axe)
                for scheme in SCHEMES:
                    await page.emulate_media(color_scheme=scheme)
                    assert (path, scheme, await violations(page)) == (path, scheme, [])

    browser.run(check())


def test_a_screen_is_reached_and_used_by_keyboard(
    console: ConsoleProcess, browser: Browser
) -> None:
    async def use() -> None:
        async with browser.visiting(console.address, "/") as visit:
            page = visit.page
            await expect(page.locator("#health")).to_be_visible()
            await page.keyboard.press("Tab")
            await expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
            for _ in range(3):  # the name of the console, the overview, the quorum
                await page.keyboard.press("Tab")
            await expect(page.get_by_role("link", name="Quorum")).to_be_focused()
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("heading", name="Quorum")).to_be_visible()
            await page.locator("[data-event]").first.focus()
            await page.keyboard.press("End")
            await expect(page.locator("[data-event]").last).to_be_focused()
            await page.keyboard.press("Escape")
            await expect(page.locator(".event.selected")).to_have_count(0)

    browser.run(use())


@pytest.mark.parametrize("path", SCREENS)
def test_a_page_at_200_percent_scrolls_only_down(
    console: ConsoleProcess, browser: Browser, path: str
) -> None:
    """WCAG 1.4.10: wide tables and drawings scroll in themselves."""

    async def look() -> None:
        async with browser.visiting(console.address, path) as visit:
            await visit.page.set_viewport_size({"width": 640, "height": 450})
            await expect(visit.page.locator(SCREENS[path]).first).to_be_visible()
            width = await visit.page.evaluate("document.documentElement.scrollWidth")
            assert width <= 640

    browser.run(look())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_bar_at_200_percent_takes_a_typed_moment(
    console: ConsoleProcess, browser: Browser, axe: str, scheme: Literal["light", "dark"]
) -> None:
    """By keyboard alone, with a refused text and an accepted one on the way."""

    async def check(page: Page) -> None:
        await page.evaluate(axe)
        found = await page.evaluate("axe.run()")
        assert [one["id"] for one in found["violations"]] == []
        assert await page.evaluate("document.documentElement.scrollWidth") <= 640
        bar = await page.locator("#moment").bounding_box()
        assert bar is not None
        assert bar["height"] < 450 / 2, "the bar covers the screen"

    async def use() -> None:
        async with browser.visiting(console.address, "/topics", scheme=scheme) as visit:
            page = visit.page
            await page.set_viewport_size({"width": 640, "height": 450})
            field = page.get_by_label("Go to")
            await page.get_by_role("slider").focus()
            await page.keyboard.press("Tab")
            await expect(field).to_be_focused()
            await page.keyboard.type("2001-02-03 04:05:06")
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("alert")).to_contain_text("is before the start")
            await expect(field).to_be_focused()
            await check(page)
            await page.keyboard.press("Control+A")
            await page.keyboard.type("20")
            await page.keyboard.press("Enter")
            await expect(page.locator("#moment.past .label")).to_contain_text("as of offset")
            await expect(page.get_by_role("alert")).to_have_count(0)
            await expect(field).to_be_focused()
            await check(page)

    browser.run(use())


FOCUSABLE = """() => {
  const chosen = "a[href], button:not(:disabled), input, select, textarea, summary, [tabindex='0']";
  const found = [...document.querySelectorAll(chosen)];
  return found.filter((one) => one.checkVisibility()).map(window.nameOf);
}"""
"""What a mouse can use, by name."""

NAME_OF = """() => {
  window.nameOf = (one) => [one.tagName, one.getAttribute("href"), one.getAttribute("name"),
    one.getAttribute("aria-label") ?? one.textContent.trim().slice(0, 40)].join(" ");
}"""

FOCUSED = """() => {
  const one = document.activeElement;
  if (one === document.body) return null;
  const styles = [one, ...one.querySelectorAll(".halo")].map((each) => getComputedStyle(each));
  const isSeen = styles.some(({ outlineStyle, stroke }) =>
    outlineStyle !== "none" || (stroke !== "none" && stroke !== "rgba(0, 0, 0, 0)"));
  return [window.nameOf(one), isSeen];
}"""
"""The focused element, and whether a reader sees that it is focused."""

TABS_MAX = 300


@pytest.mark.parametrize("path", SCREENS)
def test_the_tab_key_reaches_everything_and_is_seen(
    console: ConsoleProcess, browser: Browser, path: str
) -> None:
    """WCAG 2.1.1, 2.1.2 and 2.4.7: no control needs a mouse, none is a trap, focus is visible."""

    async def walk() -> None:
        async with browser.visiting(console.address, path) as visit:
            page = visit.page
            await expect(page.locator(SCREENS[path]).first).to_be_visible()
            await page.evaluate(NAME_OF)
            wanted = set(await page.evaluate(FOCUSABLE))
            reached: dict[str, bool] = {}
            for _ in range(TABS_MAX):
                await page.keyboard.press("Tab")
                found = await page.evaluate(FOCUSED)
                if found is None or (len(reached) > 1 and found[0] == next(iter(reached))):
                    break
                reached[found[0]] = found[1]
            else:
                raise AssertionError(f"no end after {TABS_MAX} elements")
            assert wanted - set(reached) == set()
            assert [name for name, is_seen in reached.items() if not is_seen] == []

    browser.run(walk())


DRAWINGS = ["/", *(path for path, drawn in SCREENS.items() if drawn == "[data-event]")]


@pytest.mark.parametrize("path", DRAWINGS)
def test_keys_step_through_a_drawing(console: ConsoleProcess, browser: Browser, path: str) -> None:
    async def step() -> None:
        async with browser.visiting(console.address, path) as visit:
            page = visit.page
            await page.locator('[data-event][tabindex="0"]').focus()
            focused = page.locator("[data-event]:focus")
            shown: list[str] = []
            for key in ("Home", "End", "Home"):
                await page.keyboard.press(key)
                name = await focused.get_attribute("data-event") or "?"
                selected = page.locator(f".event.selected[data-event={json.dumps(name)}]")
                await expect(selected).to_have_count(1)
                shown += [name, await page.locator("#chosen").text_content() or ""]
            assert shown[:2] == shown[4:]
            assert shown[0] != shown[2]
            assert shown[1] != shown[3]
            await page.keyboard.press("Escape")
            await expect(page.locator(".event.selected")).to_have_count(0)

    browser.run(step())
