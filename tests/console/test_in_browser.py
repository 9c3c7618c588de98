"""The console in a real Chromium, over a real cluster of three nodes that lose their leader."""

import asyncio
import json
from collections.abc import Iterator

import pytest
from playwright.async_api import Page, expect

from sparkraft.cli import main as cli
from sparkraft.client.cluster import Cluster as Client
from sparkraft.client.producer import Producer
from tests.cluster.conftest import STEADY
from tests.support.clusters import Cluster, Member
from tests.support.console import WAIT_MS, Browser, ConsoleProcess

pytestmark = [pytest.mark.real_clients, pytest.mark.browser]

expect.set_options(timeout=WAIT_MS)

MARKUP = "<img src=x onerror=\"document.title='run'\">"
"""A rack that would run as a script if the page took it for markup."""

RATES = {
    0.2: " by less than a record a second",
    1.2: " by 1 record a second",
    1700: " by 1,700 records a second",
}
"""Records a second, and how the change of a lag is shown."""

NAMES_OF_JAVASCRIPT = ("__proto__", "constructor")
"""Topics whose names every JavaScript object has as properties."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("console")
    made = Cluster(
        folder, [Member(n) for n in (1, 2, 3)], overrides={**STEADY, "broker.rack": MARKUP}
    )
    with made:
        for name in NAMES_OF_JAVASCRIPT:
            made.create_topic(name, partitions=3, replicas=3)
        yield made


@pytest.fixture(scope="module")
def console(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    with ConsoleProcess(cluster.bootstrap, tmp_path_factory.mktemp("process")) as console:
        yield console


async def lines_of(page: Page, epoch: int) -> list[str]:
    details = page.locator(f'details[data-key="lines-{epoch}"]')
    await expect(details).to_be_attached()
    texts = [await details.locator("summary").text_content()]
    texts += await details.locator("li").all_text_contents()
    return [text or "" for text in texts]


async def the_cause_is_shown(page: Page, *, in_lead: bool) -> None:
    """In the lines of an election: the first one may end without a majority on a busy machine."""
    cause = "the leader's port refuses connections"
    await expect(page.locator('details[data-key^="lines-"]', has_text=cause).first).to_be_attached()
    if in_lead:
        await expect(page.locator(".lead")).to_contain_text(cause)


async def partitions_explain_their_leaders(page: Page, lost: int) -> None:
    """From the list of topics to a partition that the lost broker led, and its changes."""
    await page.get_by_role("link", name="Topics").click()
    await page.get_by_role("searchbox").fill("PROTO")
    await expect(page.locator("[role=status]", has_text="1 of 2 topics")).to_be_visible()
    await page.get_by_role("link", name="__proto__").click()
    await expect(page.get_by_role("heading", name="__proto__")).to_be_visible()
    rows = page.get_by_role("table", name="Partitions").get_by_role("row")
    await rows.filter(has_text="(offline)").first.get_by_role("link", name="history").click()
    await expect(page.locator(".candidates .won")).to_contain_text("chosen as in-sync replica")
    await expect(page.locator(".candidates")).to_contain_text(f"broker {lost}: fenced")
    await expect(page.locator("#chosen")).to_contain_text("refuses connections")
    await expect(page.locator(".printed")).to_contain_text(f"ruled out: {lost} (fenced)")
    await page.locator("[data-event]").last.focus()
    await page.keyboard.press("Home")
    await expect(page.locator("#chosen")).to_contain_text("the partition was created")
    await page.get_by_role("link", name="Show the partition as of offset").click()
    await expect(page.locator(".note")).to_contain_text("As of offset")
    await expect(page.locator(".printed")).to_contain_text("in epoch 0")


async def leave_the_moment(page: Page, lost: int) -> None:
    """A refused moment, the differences from the bar's moment, before the loss, to now; and now."""
    await page.get_by_label("Go to").fill("2001-02-03 04:05")
    await page.get_by_label("Go to").press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text(
        "2001-02-03 04:05 is before the start: the metadata log begins at offset 0"
    )
    await page.get_by_role("link", name="Changes").click()
    await page.get_by_role("button", name="Compare").click()
    await expect(page.locator("#comparison")).to_contain_text(f"broker {lost} was fenced")
    await expect(page.locator("#comparison")).to_contain_text(f"leader {lost} →")
    assert "from=" in page.url
    await page.get_by_role("link", name="Overview").click()
    await expect(page.locator("#health")).to_contain_text("All was well")
    await page.get_by_role("button", name="Back to now").click()


def test_the_loss_of_a_leader_is_drawn_and_explained(
    cluster: Cluster,
    console: ConsoleProcess,
    browser: Browser,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines: dict[int, list[str]] = {}

    async def watch() -> None:
        before = await asyncio.to_thread(cluster.describe_quorum)
        async with browser.visiting(console.address, "/quorum") as visit:
            page = visit.page
            drawn = page.locator(f'g[data-epoch="{before.leader_epoch}"]')
            await expect(drawn).to_contain_text(f"leader {before.leader_id}")
            await asyncio.to_thread(cluster.kill, before.leader_id)
            leader = await asyncio.to_thread(cluster.leader, other_than=before.leader_id)
            epoch = (await asyncio.to_thread(cluster.describe_quorum)).leader_epoch
            drawn = page.locator(f'g[data-epoch="{epoch}"]')
            await expect(drawn).to_contain_text(f"leader {leader}")
            lead = page.locator(".lead")
            await expect(lead).to_contain_text(f"Node {leader} leads the quorum in epoch {epoch}")
            await the_cause_is_shown(page, in_lead=epoch == before.leader_epoch + 1)
            # Keys step through the events, and the text below the drawing follows.
            await page.locator("[data-event]").last.focus()
            await page.keyboard.press("Home")
            focused = page.locator("[data-event]:focus")
            keys = await page.locator("[data-event]").evaluate_all(
                "events => events.map((each) => each.getAttribute('data-event'))"
            )
            first = min(keys, key=lambda key: [int(part) for part in key.split("-")])
            await expect(focused).to_have_attribute("data-event", first)
            await expect(page.locator("#chosen")).to_contain_text(
                (await focused.get_attribute("aria-label") or "?").split("  ", 1)[1]
            )
            lines[epoch] = await lines_of(page, epoch)
            await partitions_explain_their_leaders(page, before.leader_id)
            # Other screens keep the moment until the bar returns to now.
            await page.get_by_role("link", name="Overview").click()
            await expect(page.locator("#health")).to_contain_text("All was well")
            await leave_the_moment(page, before.leader_id)
            await expect(page.locator("#health")).to_contain_text("Degraded")
            await expect(page.locator("#health")).to_contain_text("under-replicated: __proto__-0")
            await asyncio.to_thread(cluster.start)
            await expect(page.locator("#health")).to_contain_text(
                "All is well: 3 brokers, 2 topics"
            )

    browser.run(watch())
    capsys.readouterr()
    assert cli.main(["explain", "quorum", "--bootstrap-server", cluster.bootstrap]) == 0
    printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    ((epoch, shown),) = lines.items()
    start = printed.index(shown[0].strip())
    assert [line.strip() for line in shown[1:]] == printed[start + 1 : start + len(shown)]
    assert f"epoch {epoch}: " in shown[0]


def test_markup_in_names_is_text(
    cluster: Cluster, console: ConsoleProcess, browser: Browser
) -> None:
    async def look() -> None:
        async with browser.visiting(console.address) as visit:
            brokers = visit.page.get_by_role("table", name="Brokers")
            await expect(brokers.get_by_text(MARKUP).first).to_be_visible()
            assert await visit.page.locator("main img").count() == 0
            assert await visit.page.title() == "Overview · sparkraft console"

    browser.run(look())


def test_a_group_with_markup_in_its_names(
    cluster: Cluster, console: ConsoleProcess, browser: Browser
) -> None:
    name = f"../{MARKUP}"
    read = ["console-consumer", "--bootstrap-server", cluster.bootstrap, "--group", name]
    read += ["--topic", "constructor", "--timeout-ms", "1000"]
    assert cli.main([*read, "--command-property", f"client.id={MARKUP}"]) == 0

    async def look() -> None:
        async with browser.visiting(console.address, "/groups") as visit:
            page = visit.page
            await page.get_by_role("link", name=name).click()
            await expect(page.get_by_role("heading", name=name)).to_be_visible()
            await expect(page.locator(".printed")).to_contain_text(f"joined: client {MARKUP}")
            await expect(page.locator("[data-event]").first).to_be_visible()
            assert await page.locator("main img").count() == 0
            assert await page.title() == f"{name} · sparkraft console"
            # The list of groups has the lag, too; the rates of a group that hardly moves.
            await page.get_by_role("link", name="Groups").click()
            row = page.get_by_role("row").filter(has=page.get_by_role("link", name=name))
            await expect(row.get_by_role("cell").last).to_have_text("none")
            lag = {"records": 1, "behindMs": 2000, "catchUpSeconds": None}
            for rate, text in RATES.items():
                shown = await page.evaluate(
                    "(lag) => import('/static/group.js').then((group) => group.lagText(lag))",
                    {**lag, "perSecond": rate, "progress": "falling behind"},
                )
                assert shown == f"1 record, 2.0 s behind, falling behind{text}"

    browser.run(look())


DECISIONS = """async () => {
  const { drawMembers, drawnOf } = await import('/static/members.js');
  const { morph } = await import('/static/dom.js');
  const decisions = Array.from({ length: 70 }, (_, at) => ({
    coordinator: 1, number: at, atMs: at, epoch: 1, kind: 'joined', member: `m${at}`, chosen: null,
    reason: '', owned: at === 2 ? { m60: 3, m1: 9 } : at === 69 ? { m60: 1, m69: 6 } : {},
    ownedIsExact: at < 69,
    moves: at === 11 ? [{ from: 'm5', to: 'm11' }, { from: 'm60', to: 'm11' }] : [],
  }));
  // An old member acts again: it is among the newest ones.
  decisions.push({ ...decisions[0], number: 70, atMs: 70, kind: 'epoch' });
  const drawn = document.createElement('div');
  drawn.append(...drawMembers(drawnOf(decisions), '1-3').filter(Boolean));
  const of = (pattern) => [...drawn.querySelectorAll(pattern)];
  return {
    lanes: of('.lane-name').map((one) => one.textContent),
    marks: of('[data-event]').map((one) => one.getAttribute('data-event')),
    focusable: of('[data-event][tabindex="0"]').map((one) => one.getAttribute('data-event')),
    moves: of('.vote').length,
    markup: drawn.innerHTML,
    owned: of('.owned').map((one) => one.textContent),
    heights: [...new Set(of('.band').map((one) => Number(one.getAttribute('height'))))].sort(),
    label: of('[data-event="1-69"]')[0].getAttribute('aria-label'),
    note: of('.note').map((one) => one.textContent),
  };
}"""
"""Draws 70 members, each of which has joined, with a selected mark that is not drawn."""


def test_members_without_a_lane_are_counted_and_have_no_marks(
    console: ConsoleProcess, browser: Browser
) -> None:
    async def look() -> None:
        async with browser.visiting(console.address) as visit:
            drawn = await visit.page.evaluate(DECISIONS)
            # In the order in which decisions name them: a partition moves from m60 to m11.
            others = [f"m{n}" for n in range(12, 70) if n != 60]
            assert drawn["lanes"] == ["m0", "m11", "m60", *others]
            assert len(drawn["marks"]) == 61
            assert "1-3" not in drawn["marks"]
            assert drawn["focusable"] == ["1-70"]
            assert drawn["moves"] == 1, "a move from a member without a lane has no line"
            assert drawn["owned"] == ["3", "~1", "~6"]
            assert len(drawn["heights"]) == 4, "none, one, three and six partitions"
            assert drawn["label"].endswith("; it owns about 6 partitions")
            assert "NaN" not in drawn["markup"]
            assert "undefined" not in drawn["markup"]
            assert drawn["note"] == [
                "10 of 70 members are not drawn: "
                "the text below has the decisions about all of them."
            ]

    browser.run(look())


def test_messages_are_filtered_followed_and_never_run(
    cluster: Cluster, console: ConsoleProcess, browser: Browser
) -> None:
    async def send(*values: bytes | None) -> None:
        async with Client(cluster.bootstrap) as client, Producer(client) as producer:
            for value in values:
                await (await producer.send("__proto__", value, key=MARKUP.encode(), partition=0))

    async def look() -> None:
        await send(b'{"n": 1, "big": 12345678901234567890}', None, MARKUP.encode())
        path = "/topics/__proto__/messages"
        async with browser.visiting(console.address, path) as visit:
            page = visit.page
            rows = page.get_by_role("table", name="Messages").locator("tbody tr")
            await expect(rows).to_have_count(3)
            await rows.filter(has_text="big").locator("summary").click()
            exact = rows.locator("pre", has_text="12345678901234567890")
            await expect(exact).to_be_visible()
            batch = rows.get_by_text("Batch of offsets 0 to 0: 1 record")
            await expect(batch).to_contain_text("not compressed; producer id")
            await page.get_by_label("Filter").fill("record.value.n == 1")
            await page.get_by_label("Filter").press("Enter")
            await expect(rows).to_have_count(1)
            await expect(page.locator("#scan")).to_contain_text("3 records read, 1 shown, 2 errors")
            assert "filter=record.value.n" in page.url
            await page.get_by_label("Filter").fill("")
            await page.get_by_label("Show").select_option("tail")
            await page.get_by_role("button", name="Read", exact=True).click()
            await expect(page.locator("#scan")).to_contain_text("0 records read")
            await send(b"followed")
            await expect(rows.filter(has_text="followed")).to_be_visible()
            await page.get_by_role("button", name="Stop").click()
            await expect(page.locator("#scan")).to_contain_text("stopped")
            assert await page.locator("main img").count() == 0

    browser.run(look())


def test_a_hidden_page_has_no_stream(
    cluster: Cluster, console: ConsoleProcess, browser: Browser
) -> None:
    async def hide() -> None:
        async with browser.visiting(console.address) as visit:
            page = visit.page
            await expect(page.locator("#live")).to_have_text("live")
            await expect(page.locator("#visitor")).to_have_text("")
            async with page.expect_event("requestfailed", lambda one: one.url.endswith("/events")):
                await visit.hide()
            await expect(page.locator("#live")).to_have_text("paused")
            await visit.show()
            await expect(page.locator("#live")).to_have_text("live")
            await expect(page.locator("#health")).to_be_visible()

    browser.run(hide())


def test_the_overview_shows_the_document_of_the_command(
    cluster: Cluster,
    console: ConsoleProcess,
    browser: Browser,
    capsys: pytest.CaptureFixture[str],
) -> None:
    capsys.readouterr()
    command = ["explain", "cluster", "--bootstrap-server", cluster.bootstrap]
    assert cli.main([*command, "--output", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)

    async def look() -> None:
        async with browser.visiting(console.address, scheme="dark") as visit:
            await expect(visit.page.locator("#health")).to_contain_text(
                printed["health"]["sentence"]
            )
            shown = f"sparkraft {' '.join(command)}"
            await expect(visit.page.locator(".command code").last).to_have_text(shown)
            # As in a page from another machine without TLS: the command is selected for Ctrl-C.
            await visit.page.evaluate("Object.defineProperty(navigator, 'clipboard', {})")
            await visit.page.get_by_role("button", name=f"Copy {shown}").click()
            await expect(visit.page.locator("#live")).to_have_text("selected")
            assert await visit.page.evaluate("getSelection().toString()") == shown

    browser.run(look())


def test_the_drawing_of_the_overview_works_by_keyboard_and_has_a_text(
    cluster: Cluster, console: ConsoleProcess, browser: Browser
) -> None:
    """It shows its newest event, also after a return to the screen."""
    epoch = cluster.describe_quorum().leader_epoch

    async def look() -> None:
        async with browser.visiting(console.address) as visit:
            page = visit.page
            view = page.locator(".lanes-scroll")
            await expect(page.locator("#chosen")).to_contain_text(f"Epoch {epoch}: ")
            await page.set_viewport_size({"width": 500, "height": 900})
            for name in ("Topics", "Overview"):
                await page.get_by_role("link", name=name, exact=True).click()
            await expect(page.locator("#chosen")).to_be_visible()
            await expect(view).not_to_have_js_property("scrollLeft", 0)
            await page.locator("[data-event]").last.focus()
            await page.keyboard.press("Home")
            focused = page.locator("[data-event]:focus")
            sentence = await focused.get_attribute("aria-label") or "?"
            await expect(page.locator("#chosen")).to_contain_text(sentence.split("  ", 1)[1])
            await page.get_by_text("As text, newest first").click()
            await expect(page.locator(".printed")).to_contain_text(f"epoch {epoch}: ")
            command = page.locator("section .command code")
            servers = f"--bootstrap-server {cluster.bootstrap}"
            await expect(command).to_contain_text(f"sparkraft explain quorum {servers}")

    browser.run(look())
