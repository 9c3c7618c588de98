"""Pages request and draw only what has changed: documents with an ETag, and rows by their facts."""

import http.client
from collections.abc import Iterator

import pytest
from playwright.async_api import Page, Response, expect

from sparkraft.cli import main as cli
from sparkraft.client.cluster import Cluster
from sparkraft.client.producer import Producer
from sparkraft.console.views import PARTITIONS_WITH_HISTORY_MAX
from tests.support.console import WAIT_MS, Browser, ConsoleProcess
from tests.support.nodes import SparkraftNode

pytestmark = [pytest.mark.real_clients, pytest.mark.browser]

expect.set_options(timeout=WAIT_MS)

PARTITIONS = PARTITIONS_WITH_HISTORY_MAX + 100
"""A topic without a history in its document, which would have the end of the metadata log."""

CELLS = 10
"""Of a partition's row; the ninth has the number of records."""

COUNT_CELLS = """() => {
  window.cells = 0;
  const set = Element.prototype.setAttribute;
  Element.prototype.setAttribute = function (name, value) {
    if (name === "role" && value === "cell") window.cells++;
    return set.call(this, name, value);
  };
}"""

COUNT_SCREENS = """() => {
  window.screens = 0;
  const create = Document.prototype.createElement;
  Document.prototype.createElement = function (name) {
    if (name === "main") window.screens++;
    return create.call(this, name);
  };
}"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkraftNode]:
    with SparkraftNode(tmp_path_factory.mktemp("node")) as node:
        servers = ["--bootstrap-server", node.bootstrap]
        create = ["topics", *servers, "--create", "--partitions", str(PARTITIONS)]
        assert cli.main([*create, "--topic", "wide"]) == 0
        yield node


@pytest.fixture(scope="module")
def console(
    node: SparkraftNode, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleProcess]:
    with ConsoleProcess(node.bootstrap, tmp_path_factory.mktemp("console")) as console:
        yield console


def requested(console: ConsoleProcess, path: str, etag: str = "") -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection(console.address.removeprefix("http://"), timeout=60)
    connection.request("GET", path, headers={"If-None-Match": etag} if etag else {})
    answer = connection.getresponse()
    return answer.status, str(answer.headers["ETag"]), answer.read()


def test_a_document_that_a_page_has_is_not_sent_again(
    node: SparkraftNode, console: ConsoleProcess
) -> None:
    status, etag, body = requested(console, "/api/log-dirs")
    assert (status, bool(body)) == (200, True)
    assert requested(console, "/api/log-dirs", etag) == (304, etag, b"")
    status, other, body = requested(console, "/api/topic?topic=wide", etag)
    assert (status, bool(body)) == (200, True)
    assert other != etag


async def send(bootstrap: str, partition: int) -> None:
    async with Cluster(bootstrap) as cluster, Producer(cluster) as producer:
        await (await producer.send("wide", b"x", partition=partition))


async def unchanged_document(page: Page) -> None:
    def is_unchanged(response: Response) -> bool:
        return "/api/topic?" in response.url and response.status == 304

    async with page.expect_response(is_unchanged):
        pass


def test_a_redraw_makes_only_the_rows_that_have_changed(
    node: SparkraftNode, console: ConsoleProcess, browser: Browser
) -> None:
    async def look() -> None:
        async with browser.visiting(console.address, "/topics/wide") as visit:
            page = visit.page
            records = page.locator('[data-key="partition-3"] [role=cell]').nth(CELLS - 2)
            await expect(records).to_have_text("0")
            await page.evaluate(COUNT_CELLS)
            await send(node.bootstrap, 3)
            await expect(records).to_have_text("1")
            assert await page.evaluate("window.cells") == CELLS
            # Focus stays in a row that is drawn again.
            await page.locator('[data-key="partition-3"] a').first.focus()
            await send(node.bootstrap, 3)
            await expect(records).to_have_text("2")
            await expect(page.locator('[data-key="partition-3"] a').first).to_be_focused()
            assert await page.evaluate("window.cells") == 2 * CELLS

    browser.run(look())


def test_an_unchanged_document_is_not_drawn_again(
    node: SparkraftNode, console: ConsoleProcess, browser: Browser
) -> None:
    async def look() -> None:
        async with browser.visiting(console.address, "/topics/wide") as visit:
            page = visit.page
            await expect(page.locator('[data-key="partition-3"]')).to_be_visible()
            await unchanged_document(page)
            await page.evaluate(COUNT_SCREENS)
            await unchanged_document(page)
            await unchanged_document(page)
            assert await page.evaluate("window.screens") == 0

    browser.run(look())


def test_rows_of_one_topic_are_not_taken_for_those_of_another(
    node: SparkraftNode, console: ConsoleProcess, browser: Browser
) -> None:
    """Partitions of new topics differ in nothing but the name, which their links have."""
    create = ["topics", "--bootstrap-server", node.bootstrap, "--create", "--topic"]
    for name in ("first", "second"):
        assert cli.main([*create, name]) == 0

    async def look() -> None:
        async with browser.visiting(console.address, "/topics/first") as visit:
            page = visit.page
            link = page.locator('[data-key="partition-0"] a').first
            await expect(link).to_have_attribute("href", "/topics/first/0")
            await page.evaluate(
                "history.pushState(null, '', '/topics/second');"
                "dispatchEvent(new PopStateEvent('popstate'))"
            )
            await expect(page.get_by_role("heading", name="second")).to_be_visible()
            await expect(link).to_have_attribute("href", "/topics/second/0")

    browser.run(look())


def test_only_text_that_may_be_wider_than_its_column_is_cut_off(
    node: SparkraftNode, console: ConsoleProcess, browser: Browser
) -> None:
    create = ["topics", "--bootstrap-server", node.bootstrap, "--create", "--topic"]
    assert cli.main([*create, "long" * 60]) == 0

    async def look() -> None:
        async with browser.visiting(console.address, "/topics") as visit:
            page = visit.page
            cells = page.locator('[data-key^="topic-longlong"] [role=cell]')
            await expect(cells.nth(0)).to_have_css("overflow-x", "clip")
            await expect(cells.nth(0)).to_have_css("text-overflow", "ellipsis")
            await expect(cells.nth(1)).to_have_css("overflow-x", "visible")
            widths = "element => [element.scrollWidth, element.parentElement.clientWidth]"
            text, row = await cells.nth(0).evaluate(widths)
            assert text > row, "the name is wider than the row"

    browser.run(look())
