"""Many tabs, a slow network, and a node that is killed while several screens watch it."""

import asyncio
from collections.abc import Iterator

import pytest
from playwright.async_api import Page, expect

from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster as Client
from sparkraft.client.cluster import TopicInfo
from tests.cluster.conftest import STEADY
from tests.support.clusters import Cluster, Member
from tests.support.console import WAIT_MS, Browser, ConsoleProcess, Visit

pytestmark = [pytest.mark.real_clients, pytest.mark.browser, pytest.mark.long]

expect.set_options(timeout=WAIT_MS)

TABS = 10
"""More than the six connections that a browser opens to one host."""

SLOW = {"offline": False, "latency": 300, "downloadThroughput": 40_000, "uploadThroughput": 20_000}
"""A poor mobile network: milliseconds, and bytes per second."""

OFFLINE = {**SLOW, "offline": True}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("many-pages")
    with Cluster(folder, [Member(n) for n in (1, 2, 3)], overrides=STEADY) as made:
        for name in ("first", "second"):
            made.create_topic(name, partitions=3, replicas=3)
        yield made


@pytest.fixture(scope="module")
def console(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    with ConsoleProcess(cluster.bootstrap, tmp_path_factory.mktemp("process")) as console:
        yield console


def test_ten_tabs_of_one_browser_are_all_served(console: ConsoleProcess, browser: Browser) -> None:
    """A tab that is covered holds no connection, and is up to date when it is shown again."""

    async def is_live(visit: Visit) -> None:
        await expect(visit.page.locator("#health")).to_contain_text("All is well")
        await expect(visit.page.locator("#live")).to_have_text("live")

    async def look() -> None:
        async with browser.tabs(console.address, TABS) as tabs:
            for tab in tabs:
                await tab.page.goto(console.address)
                await is_live(tab)
                await tab.hide()
                await expect(tab.page.locator("#live")).to_have_text("paused")
            for tab in tabs:
                await tab.show()
                await is_live(tab)
                await tab.hide()

    browser.run(look())


def test_a_slow_network_delays_and_breaks_nothing(
    cluster: Cluster, console: ConsoleProcess, browser: Browser
) -> None:
    async def look() -> None:
        async with browser.tabs(console.address, 1) as (visit,):
            page = visit.page
            network = await page.context.new_cdp_session(page)
            await network.send("Network.enable")
            await network.send("Network.emulateNetworkConditions", SLOW)
            await page.goto(console.address)
            await expect(page.locator("#health")).to_contain_text("All is well")
            await page.get_by_role("link", name="Topics").click()
            await page.get_by_role("link", name="first").click()
            # The document of a screen that was left arrives late, and is dropped.
            await page.get_by_role("link", name="Quorum").click()
            await expect(page.locator("[data-event]").first).to_be_visible()
            await page.goto(f"{console.address}/topics/first/messages?mode=tail")
            await expect(page.locator("#scan")).to_contain_text("0 records read")
            await page.get_by_role("button", name="Stop").click()
            await expect(page.locator("#scan")).to_contain_text("stopped")
            assert visit.problems == []
            await page.get_by_role("link", name="Topics").click()
            await network.send("Network.emulateNetworkConditions", OFFLINE)
            await expect(page.get_by_role("alert")).to_have_text("The console does not respond.")
            await asyncio.to_thread(cluster.create_topic, "third", partitions=1, replicas=3)
            await network.send("Network.emulateNetworkConditions", {**OFFLINE, "offline": False})
            await expect(page.get_by_role("link", name="third")).to_be_visible()
            await expect(page.get_by_role("alert")).to_have_count(0)
            # The browser itself logs requests that failed.
            visit.problems[:] = [one for one in visit.problems if "net::ERR_" not in one]

    browser.run(look())


async def overview_shows(page: Page, lost: int) -> None:
    await expect(page.locator("#health")).to_contain_text("Degraded")
    row = page.get_by_role("table", name="Brokers").get_by_role("row").nth(lost)
    await expect(row).to_contain_text("fenced")


async def quorum_shows(page: Page, epoch: int) -> None:
    newer = page.locator(f'g[data-epoch="{epoch}"]')
    await expect(newer).to_have_count(1)
    await expect(page.locator(".lead")).to_contain_text("leads the quorum in epoch")
    await expect(page.locator(".lead")).not_to_contain_text(f"in epoch {epoch - 1}")


async def topic_shows(page: Page) -> None:
    rows = page.get_by_role("table", name="Partitions").get_by_role("row")
    await expect(rows.filter(has_text="(offline)").first).to_be_visible()
    await expect(page.locator(".lead")).to_contain_text("3 under-replicated")


async def partition_shows(page: Page, lost: int) -> None:
    await expect(page.locator(".candidates")).to_contain_text(f"broker {lost}: fenced")
    await expect(page.locator(".lead")).to_contain_text("Out of sync")


async def partition_led_by(cluster: Cluster, broker: int) -> int:
    """Each of the three brokers leads one."""
    async with Client(cluster.bootstrap) as client:
        topic = (await Admin(client).describe_topics(["first"]))["first"]
    assert isinstance(topic, TopicInfo)
    return next(index for index, one in topic.partitions.items() if one.leader == broker)


def test_four_screens_show_the_death_of_a_node_without_a_reload(
    cluster: Cluster, console: ConsoleProcess, browser: Browser
) -> None:
    async def watch() -> None:
        quorum = await asyncio.to_thread(cluster.describe_quorum)
        lost = quorum.leader_id
        partition = await partition_led_by(cluster, lost)
        address = console.address
        async with (
            browser.visiting(address, "/") as overview,
            browser.visiting(address, "/quorum") as lanes,
            browser.visiting(address, "/topics/first") as topic,
            browser.visiting(address, f"/topics/first/{partition}") as one,
        ):
            await expect(overview.page.locator("#health")).to_contain_text("All is well")
            for visit in (lanes, one):
                await expect(visit.page.locator("[data-event]").first).to_be_visible()
            await expect(topic.page.get_by_role("table", name="Partitions")).to_be_visible()
            for visit in (overview, lanes, topic, one):
                await visit.page.evaluate("window.isSamePage = true")
            await asyncio.to_thread(cluster.kill, lost)
            await asyncio.gather(
                overview_shows(overview.page, lost),
                quorum_shows(lanes.page, quorum.leader_epoch + 1),
                topic_shows(topic.page),
                partition_shows(one.page, lost),
            )
            await asyncio.to_thread(cluster.start)
            await expect(overview.page.locator("#health")).to_contain_text("All is well")
            await expect(one.page.locator(".lead")).not_to_contain_text("Out of sync")
            for visit in (overview, lanes, topic, one):
                assert await visit.page.evaluate("window.isSamePage")

    browser.run(watch())
