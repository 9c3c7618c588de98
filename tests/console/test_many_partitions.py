"""The console over 10,000 partitions: only the rows in view are in the document."""

import asyncio
from collections.abc import Iterator

import pytest
from playwright.async_api import Locator, expect

from sparkraft.base.errors import KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster
from sparkraft.client.values import NewTopic
from tests.support.console import WAIT_MS, Browser, ConsoleProcess
from tests.support.nodes import SparkraftNode

pytestmark = [pytest.mark.real_clients, pytest.mark.browser, pytest.mark.long]

expect.set_options(timeout=WAIT_MS)

WIDE = 2_000
TOPICS = 400
ROWS_MAX = 60
"""Rows in the document: those in view, and some before and after."""


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    folder = tmp_path_factory.mktemp("many")
    with SparkraftNode(folder) as node:
        asyncio.run(create(node.bootstrap))
        with ConsoleProcess(node.bootstrap, folder) as console:
            yield console


async def create(bootstrap: str) -> None:
    topics = [NewTopic(name=f"t{n:03}", partitions=20) for n in range(TOPICS)]
    topics.append(NewTopic(name="wide", partitions=WIDE))
    async with Cluster(bootstrap, request_timeout_ms=60_000) as cluster:
        for at in range(0, len(topics), 50):
            created = await Admin(cluster).create_topics(topics[at : at + 50])
            assert [one for one in created.values() if isinstance(one, KafkaError)] == []


async def to_the_end(rows: Locator) -> None:
    await rows.evaluate("element => element.scrollTo(0, element.scrollHeight)")


def test_topics_and_partitions_scroll_to_the_last(
    console: ConsoleProcess, browser: Browser
) -> None:
    async def look() -> None:
        async with browser.visiting(console.address, "/topics") as visit:
            page = visit.page
            await expect(page.locator("[role=status]", has_text="401 topics")).to_be_visible()
            table = page.get_by_role("table", name="Topics")
            assert await table.get_attribute("aria-rowcount") == str(TOPICS + 2)
            await to_the_end(page.locator(".window"))
            await expect(table.get_by_role("link", name="wide")).to_be_in_viewport()
            assert await table.get_by_role("row").count() <= ROWS_MAX
            await table.get_by_role("link", name="wide").click()
            await expect(page.locator(".note")).to_contain_text("more than 500 partitions")
            table = page.get_by_role("table", name="Partitions")
            await to_the_end(page.locator(".window"))
            last = table.get_by_role("link", name=str(WIDE - 1), exact=True)
            await expect(last).to_be_in_viewport()
            assert await table.get_by_role("row").count() <= ROWS_MAX
            await last.click()
            await expect(page.locator("#chosen")).to_contain_text("the partition was created")

    browser.run(look())
