"""The page that plays a recorded simulation, in a real Chromium."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from playwright.async_api import expect

from sparkraft.simulation.scenarios.campaign import run
from tests.mutants.mutant import planted
from tests.mutants.mutant_seeds import settings_for
from tests.mutants.registry import CASES
from tests.support.console import WAIT_MS, Browser
from tests.support.outside_tools import Missing, axe_core
from tests.support.ports import wait_until

pytestmark = [pytest.mark.real_clients, pytest.mark.browser]

expect.set_options(timeout=WAIT_MS)

COMMAND = [
    sys.executable, "-m", "sparkraft.cli.main", "simulate", "--tier", "cores", "--seed", "7",
    "--seconds", "5", "--show", "--listen", "127.0.0.1:0",
]  # fmt: skip


SERVE_FILE = """
import socket, sys
from sparkraft.cli.simulate import _show
with socket.create_server(("127.0.0.1", 0)) as listening:
    _show(sys.argv[1], listening)
"""
"""Serves a recorded run: a planted bug is not part of the command."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(COMMAND, tmp_path_factory.mktemp("show")) as address:
        yield address


@contextmanager
def serving(command: list[str], folder: Path) -> Iterator[str]:
    """The address of the page; the process ends by a signal with the result's exit code."""
    output = folder / "out"
    with output.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:

        def announced() -> bool:
            assert process.poll() is None, output.read_text()
            return "open     http" in output.read_text()

        wait_until(announced, "the page has an address")
        yield output.read_text().partition("open     ")[2].split()[0].rstrip("/")
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(30) in (0, -signal.SIGTERM)
    finally:
        process.kill()


def test_an_election_is_drawn_with_its_votes_and_can_be_read(
    browser: Browser, address: str
) -> None:
    async def look() -> None:
        async with browser.visiting(address) as visit:
            page = visit.page
            await expect(page.locator("#result")).to_contain_text("every invariant held")
            # It begins with the first election.
            await expect(page.locator(".listed li", has_text="Leader e=1")).to_have_count(1)
            listed = await page.locator(".listed li").all_text_contents()
            votes = [line for line in listed if "VoteRequest" in line]
            assert len(votes) == 4, listed  # two pre-votes and two votes
            drawn = await page.locator("g.message").evaluate_all(
                "nodes => nodes.map((one) => one.getAttribute('aria-label'))"
            )
            assert set(votes) <= set(drawn)
            await page.locator("g.message", has_text="pre_vote=True").first.focus()
            await expect(page.locator("#chosen")).to_contain_text("VoteRequest")
            first = await page.locator("#chosen").text_content()
            await page.keyboard.press("ArrowRight")
            await expect(page.locator("#chosen")).not_to_have_text(first or "")

    browser.run(look())


def test_a_run_is_played_and_searched(browser: Browser, address: str) -> None:
    async def look() -> None:
        async with browser.visiting(address, "/?at=0&span=100") as visit:
            page = visit.page
            await page.get_by_role("button", name="Next fault").click()
            await expect(page).not_to_have_url(f"{address}/?at=0&span=100")
            await page.get_by_role("button", name="Next election").click()
            await expect(page.locator(".listed li", has_text="Leader e=")).not_to_have_count(0)
            before = page.url
            await page.get_by_role("button", name="Play", exact=True).click()
            await page.wait_for_timeout(400)
            await page.get_by_role("button", name="Pause", exact=True).click()
            await expect(page).not_to_have_url(before)
            # How far the run was played depends on the machine: 100 ms there may have no event.
            await page.locator("#span").select_option(label="5 s")
            await page.get_by_label("Fetch messages").check()
            await expect(page.locator(".listed li", has_text="FetchRequest").first).to_be_attached()

    browser.run(look())


def test_the_invariant_that_does_not_hold_is_where_the_page_begins(
    browser: Browser, tmp_path: Path
) -> None:
    case = next(one for one in CASES if (one.name, one.tier) == ("vote-not-persisted", "cores"))
    path = tmp_path / "run.jsonl"
    with planted(case.mutant), path.open("w") as file:
        assert run(settings_for(case, 1), events=file).violation == "Q2"

    async def look() -> None:
        async with browser.visiting(address) as visit:
            await expect(visit.page.locator("#result.critical")).to_contain_text("Q2 does not hold")
            await expect(visit.page.locator("g.violation")).to_have_count(1)
            said = visit.page.locator(".listed li", has_text="VIOLATION Q2")
            await expect(said).to_have_count(1)

    with serving([sys.executable, "-c", SERVE_FILE, str(path)], tmp_path) as address:
        browser.run(look())


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation(
    browser: Browser, address: str, scheme: Literal["light", "dark"]
) -> None:
    axe = axe_core()
    if isinstance(axe, Missing):
        pytest.skip(axe.reason)
    source = Path(axe).read_text()

    async def look() -> None:
        async with browser.visiting(address, scheme=scheme) as visit:
            await expect(visit.page.locator("g.message").first).to_be_attached()
            await visit.page.evaluate(source)
            found = await visit.page.evaluate("axe.run()")
            assert [(one["id"], one["help"]) for one in found["violations"]] == []

    browser.run(look())
