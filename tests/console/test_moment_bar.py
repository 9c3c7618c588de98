"""The bar over the metadata log in a real Chromium: steps, earlier screens, play, and axe."""

from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from sparkraft.cli import main as cli
from tests.support.console import WAIT_MS, Browser, ConsoleProcess
from tests.support.nodes import SparkraftNode
from tests.support.outside_tools import Missing, axe_core

pytestmark = [pytest.mark.real_clients, pytest.mark.browser, pytest.mark.long]

expect.set_options(timeout=WAIT_MS)

LABEL = "#moment .label"


async def step_back(page: Page) -> None:
    """To the change before the second topic was created: its record and its partition's."""
    topics = page.get_by_role("table", name="Topics")
    await expect(topics).to_contain_text("second")
    await expect(page.locator(LABEL)).to_contain_text("live")
    await page.get_by_role("slider").focus()
    await page.keyboard.press("ArrowLeft")
    await expect(page.locator(LABEL)).to_contain_text("partition second-0 was created")
    await page.keyboard.press("ArrowLeft")
    await expect(page.locator(LABEL)).to_contain_text("topic second was created")
    await expect(topics).to_contain_text("second")
    await page.keyboard.press("ArrowLeft")
    await expect(page.locator(LABEL)).to_contain_text("partition first-1 was created")
    await expect(topics).not_to_contain_text("second")
    assert "as-of=" in page.url


async def visit_other_screens(page: Page) -> None:
    """The moment stays on other screens, and is that of the address after a reload."""
    await page.get_by_role("link", name="Overview").click()
    await expect(page.locator("dl.tiles")).to_contain_text("2 partitions")
    await page.reload()
    await expect(page.locator("#health")).to_contain_text("All was well")
    await expect(page.locator(LABEL)).to_contain_text("partition first-1 was created")
    await page.get_by_role("link", name="Changes").click()
    differences = page.locator("section", has_text="From then to now")
    await expect(differences).to_contain_text("topic second was created with 1 partition")
    await page.get_by_label("From", exact=True).fill("0")
    await page.get_by_label("To", exact=True).fill(page.url.rpartition("as-of=")[2])
    await page.keyboard.press("Enter")
    comparison = page.locator("#comparison")
    await expect(comparison).to_contain_text("topic first was created with 2 partitions")
    await expect(comparison).to_contain_text("feature metadata.version changed from level 0")
    await expect(comparison).not_to_contain_text("second")
    await page.get_by_label("To", exact=True).fill("0")
    await page.keyboard.press("Enter")
    await expect(comparison).to_contain_text("Nothing differs")
    for path in ("Groups", "Quorum"):
        await page.get_by_role("link", name=path).click()
        await expect(page.locator("p.note").first).to_contain_text("shows the present")


async def visit_settings(page: Page) -> None:
    """Configs, rights and a broker as of then, without the forms that change the present."""
    address = page.url.partition("?")[0].rpartition("/")[0]
    at = page.url.rpartition("as-of=")[2]
    await page.goto(f"{address}/configs?resource=topic&name=first&as-of={at}")
    configs = page.get_by_role("table", name="Configs")
    await expect(page.get_by_text("What was set dynamically")).to_be_visible()
    await expect(page.get_by_role("status").filter(has_text="0 of 0 configs")).to_be_visible()
    await expect(configs).not_to_contain_text("9000")
    await page.goto(f"{address}/configs?resource=topic&name=first")
    await expect(configs).to_contain_text("9000")
    await page.goto(f"{address}/brokers/1?as-of={at}")
    await expect(page.locator(".lead")).to_contain_text("It leads 2 of 2 partitions")
    await page.goto(f"{address}/security?as-of={at}")
    await page.get_by_label("Name", exact=True).fill("first")
    await page.keyboard.press("Enter")
    await expect(page.locator("#who-may")).to_contain_text("No entry fits this resource")
    await expect(page.locator("#who-may .command code")).to_contain_text(f"--at-offset {at}")
    await page.get_by_role("button", name="Back to now").click()
    await expect(page.locator("#who-may")).to_have_count(0)
    await page.goto(f"{address}/changes?as-of={at}")
    await expect(page.locator(LABEL)).to_contain_text("partition first-1 was created")


async def jump(page: Page) -> None:
    """To the moments of typed texts; an impossible one is explained and changes nothing."""
    await page.get_by_role("link", name="Topics").click()
    topics = page.get_by_role("table", name="Topics")
    field = page.get_by_label("Go to")
    before = page.url
    for text, problem in (
        ("noon", "expected an offset or a time in UTC"),
        ("2001-02-03", "2001-02-03 is before the start: the metadata log begins at offset 0"),
        ("123456789", "offset 123456789 is after the end: the metadata log ends at offset"),
    ):
        await field.fill(text)
        await field.press("Enter")
        await expect(page.get_by_role("alert")).to_contain_text(problem)
        await expect(field).to_have_attribute("aria-invalid", "true")
    assert page.url == before
    await field.fill("0")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("button", name="Go", exact=True)).to_be_focused()
    await expect(page.get_by_role("alert")).to_have_count(0)
    await page.keyboard.press("Enter")
    await expect(page.locator(LABEL)).to_contain_text("as of offset 0")
    await expect(topics).not_to_contain_text("first")
    assert page.url.endswith("as-of=0")
    await field.fill(before.rpartition("as-of=")[2])
    await field.press("Enter")
    await expect(page.locator(LABEL)).to_contain_text("partition first-1 was created")
    await expect(topics).to_contain_text("first")
    assert page.url == before


async def play(page: Page) -> None:
    await page.get_by_role("link", name="Topics").click()
    await page.get_by_role("button", name="Play").click()
    await expect(page.get_by_role("table", name="Topics")).to_contain_text("second")
    await expect(page.locator(LABEL)).to_contain_text("live")
    assert "as-of=" not in page.url
    await page.get_by_role("button", name="One change back").click()
    await expect(page.locator(LABEL)).to_contain_text("partition second-0 was created")


def test_a_reader_steps_back_and_sees_the_screens_as_of_then(
    tmp_path: Path, browser: Browser
) -> None:
    axe = axe_core()

    async def use(address: str) -> None:
        async with browser.visiting(address, "/topics") as visit:
            page = visit.page
            await step_back(page)
            await visit_other_screens(page)
            await visit_settings(page)
            await jump(page)
            await play(page)
            if not isinstance(axe, Missing):
                await page.evaluate(axe.read_text())
                found = await page.evaluate("axe.run()")
                assert [one["id"] for one in found["violations"]] == []
            await page.get_by_role("button", name="Back to now").click()
            await expect(page.locator(LABEL)).to_contain_text("live")

    with SparkraftNode(tmp_path) as node:
        servers = ["--bootstrap-server", node.bootstrap, "--create"]
        for name, partitions in (("first", "2"), ("second", "1")):
            assert cli.main(["topics", *servers, "--topic", name, "--partitions", partitions]) == 0
        words = ["--alter", "--topic", "first", "--add-config", "retention.ms=9000"]
        assert cli.main(["configs", *servers[:2], *words]) == 0
        with ConsoleProcess(node.bootstrap, tmp_path) as console:
            browser.run(use(console.address))
