"""The web console: start, page weight, memory, 10,000 partitions in a browser, cost on the nodes,
and time travel through a million changes.

    ./bench console                 everything, about six minutes; needs Chromium
    ./bench console --only start    one part: start, page, partitions, nodes, history

The figures stand beside the limits of the console itself: no other console runs in this benchmark.
"""

import asyncio
import gzip
import json
import random
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from playwright.async_api import Page, expect

from benchmarks.kept import keep, kept
from benchmarks.long_metadata_log import append_changes
from benchmarks.measure import cpu_seconds, rss_mib
from benchmarks.quorums import progress
from benchmarks.report import Row, Table
from benchmarks.suite import parser_for
from sparkraft.base.errors import KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster as Client
from sparkraft.client.values import NewTopic
from sparkraft.console.assets import load_assets
from tests.support.clusters import Cluster, Member
from tests.support.console import Browser, ConsoleProcess
from tests.support.nodes import SparkraftNode
from tests.support.outside_tools import Missing, chromium

STARTS = 7
READY_SECONDS_MAX = 1.0
PAGE_KB_MAX = 100.0
MEMORY_MIB_MAX = 60.0
SCRIPT_MS_MAX = 50.0
TOPICS, WIDE = 400, 2_000
"""With 20 partitions a topic, and one topic of `WIDE` partitions: 10,000."""

CHANGES = 1_000_000
"""Of the metadata log."""

INDEX_SECONDS_MAX = 20.0
STEP_MS_MAX = 300.0
STEPS = 100

SCROLLS = 60
WATCH_SECONDS = 20

COUNT_LONG_TASKS = """() => {
  window.longTasks = [];
  new PerformanceObserver((list) => {
    for (const one of list.getEntries()) window.longTasks.push(one.duration);
  }).observe({ entryTypes: ["longtask"] });
}"""


def limited(what: str, found: float, limit: float, unit: str) -> Row:
    """A row that promises at most `limit`."""
    ours, against = f"{found:.3g} {unit}", f"limit {limit:g} {unit}"
    return Row(what, ours, against, found / limit, at_most=1)


@contextmanager
def browsing() -> Iterator[Browser]:
    found = chromium()
    if isinstance(found, Missing):
        raise SystemExit(f"the console is not measured: {found.reason}")
    with Browser(found) as browser:
        yield browser


def get(address: str, path: str) -> bytes:
    with urllib.request.urlopen(f"{address}{path}", timeout=60) as response:
        body: bytes = response.read()
    return body


def start(folder: Path) -> list[Row]:
    """From the start of the process to the page and the first document of the cluster."""
    listens, ready = [], []
    with SparkraftNode(folder / "node") as node:
        for number in range(STARTS):
            progress(f"start {number + 1} of {STARTS}")
            begun = time.perf_counter()
            with ConsoleProcess(node.bootstrap, folder) as console:
                listens.append(time.perf_counter() - begun)
                get(console.address, "/")
                get(console.address, "/api/cluster")
                ready.append(time.perf_counter() - begun)
    return [
        Row("start until it listens", f"{median(listens):.2f} s", "", None),
        limited("start until the cluster is described", median(ready), READY_SECONDS_MAX, "s"),
    ]


def page(folder: Path) -> list[Row]:
    """The weight of all files, the time until the overview is drawn, and the memory then."""
    weight = sum(len(gzip.compress(one.body, 9)) for one in load_assets().values()) / 1000
    times: list[float] = []

    async def visit(browser: Browser, address: str) -> None:
        for _ in range(STARTS):
            begun = time.perf_counter()
            async with browser.visiting(address) as visit:
                await expect(visit.page.locator("#health")).to_be_visible()
                times.append((time.perf_counter() - begun) * 1000)

    members = [Member(number) for number in (1, 2, 3)]
    with (
        browsing() as browser,
        Cluster(folder, members) as cluster,
        ConsoleProcess(cluster.bootstrap, folder) as console,
    ):
        browser.run(visit(browser, console.address))
        assert console.process is not None
        memory = rss_mib(console.process.pid)
    return [
        limited("all files of the pages, compressed", weight, PAGE_KB_MAX, "kB"),
        Row("a new browser page until the overview is drawn", f"{median(times):.0f} ms", "", None),
        limited(f"memory after {STARTS} pages", memory, MEMORY_MIB_MAX, "MiB"),
    ]


async def create_topics(bootstrap: str) -> None:
    topics = [NewTopic(name=f"t{n:03}", partitions=20) for n in range(TOPICS)]
    topics.append(NewTopic(name="wide", partitions=WIDE))
    async with Client(bootstrap, request_timeout_ms=60_000) as cluster:
        for at in range(0, len(topics), 50):
            created = await Admin(cluster).create_topics(topics[at : at + 50])
            assert [one for one in created.values() if isinstance(one, KafkaError)] == []


def partitions(folder: Path) -> list[Row]:
    """The list of topics and a topic of 2,000 partitions, scrolled from end to end."""
    found: dict[str, float] = {}

    async def scroll(shown: Page) -> float:
        """The longest scripted task while the rows move, in ms; 0 if none took 50."""
        await shown.evaluate(COUNT_LONG_TASKS)
        rows = shown.locator(".window").first
        for step in range(SCROLLS):
            await rows.evaluate(f"one => one.scrollTo(0, one.scrollHeight * {step / SCROLLS})")
            await shown.wait_for_timeout(16)
        await shown.wait_for_timeout(200)
        longest: float = await shown.evaluate("Math.max(0, ...window.longTasks)")
        return longest

    async def visit(browser: Browser, address: str) -> None:
        begun = time.perf_counter()
        async with browser.visiting(address, "/topics") as visit:
            await expect(visit.page.locator("[role=row] a").first).to_be_visible()
            found["topics"] = (time.perf_counter() - begun) * 1000
            found["scroll"] = await scroll(visit.page)
        async with browser.visiting(address, "/topics/wide") as visit:
            await expect(visit.page.locator(".partitions [role=row] a").first).to_be_visible()
            found["wide"] = await scroll(visit.page)

    with browsing() as browser, SparkraftNode(folder / "node") as node:
        progress("10,000 partitions are created")
        asyncio.run(create_topics(node.bootstrap))
        with ConsoleProcess(node.bootstrap, folder) as console:
            browser.run(visit(browser, console.address))
            assert console.process is not None
            memory = rss_mib(console.process.pid)
    what = "longest scripted task of the browser while scrolling"
    return [
        Row("10,000 partitions: until the topics are shown", f"{found['topics']:.0f} ms", "", None),
        limited(f"{what} {TOPICS + 1} topics", found["scroll"], SCRIPT_MS_MAX, "ms"),
        limited(f"{what} {WIDE:,} partitions", found["wide"], SCRIPT_MS_MAX, "ms"),
        limited("memory then", memory, MEMORY_MIB_MAX, "MiB"),
    ]


def nodes(folder: Path) -> list[Row]:
    """CPU time of three nodes with an open page of the overview, and without the console."""

    def spent(cluster: Cluster) -> float:
        pids = [node.process.pid for node in cluster.nodes.values() if node.process is not None]
        before = sum(map(cpu_seconds, pids))
        time.sleep(WATCH_SECONDS)
        return (sum(map(cpu_seconds, pids)) - before) / WATCH_SECONDS

    watched: list[float] = []

    async def visit(browser: Browser, cluster: Cluster, address: str) -> None:
        async with browser.visiting(address, "/quorum") as visit:
            await expect(visit.page.locator("[data-event]").first).to_be_visible()
            watched.append(await asyncio.to_thread(spent, cluster))

    members = [Member(number) for number in (1, 2, 3)]
    with browsing() as browser, Cluster(folder, members) as cluster:
        progress("three nodes without a console")
        idle = spent(cluster)
        with ConsoleProcess(cluster.bootstrap, folder) as console:
            progress("three nodes and an open page")
            browser.run(visit(browser, cluster, console.address))
    return [
        Row(
            "CPU of three nodes with an open page, against none",
            f"{watched[0]:.1%} of a core",
            f"{idle:.1%} of a core",
            None,
        )
    ]


def history(folder: Path) -> list[Row]:
    """A log of a million changes: the indexing of it, and steps to any of them.

    A step is what a page requests: the change in words, and all topics as of then.
    """
    node = SparkraftNode(folder / "node")
    with node:
        pass
    progress(f"{CHANGES:,} changes are written")
    append_changes(node.log_dir, CHANGES)
    progress("the node starts")
    with node, ConsoleProcess(node.bootstrap, folder) as console:
        assert node.process is not None
        assert console.process is not None
        pids = [node.process.pid, console.process.pid]
        spent = [cpu_seconds(pid) for pid in pids]
        begun = time.perf_counter()
        found = json.loads(get(console.address, "/api/timeline"))
        while not found["isComplete"] or found["count"] < CHANGES:
            progress(f"{found['count']:,} changes are indexed")
            time.sleep(0.2)
            found = json.loads(get(console.address, "/api/timeline"))
        indexed = time.perf_counter() - begun
        spent = [cpu_seconds(pid) - before for pid, before in zip(pids, spent, strict=True)]
        chosen = random.Random(1)
        anywhere = [step(console, chosen.randrange(CHANGES)) for _ in range(STEPS)]
        onwards = [step(console, CHANGES // 2 + number) for number in range(STEPS)]
        memory = rss_mib(console.process.pid)
    return [
        limited(f"{CHANGES:,} changes: until they are indexed", indexed, INDEX_SECONDS_MAX, "s"),
        Row("CPU of the node and of the console", "{:.1f} s, {:.1f} s".format(*spent), "", None),
        limited("a step to any change, 95 % within", p95(anywhere), STEP_MS_MAX, "ms"),
        limited("a step to the next change, 95 % within", p95(onwards), STEP_MS_MAX, "ms"),
        Row("memory of the console then", f"{memory:.0f} MiB", "", None),
    ]


def step(console: ConsoleProcess, change: int) -> float:
    """The time until a page has all that it requests for a step, in ms."""
    begun = time.perf_counter()
    moment = json.loads(get(console.address, f"/api/moment?change={change}"))
    get(console.address, f"/api/topics?at={moment['offset']}")
    return (time.perf_counter() - begun) * 1000


def p95(times: list[float]) -> float:
    return sorted(times)[len(times) * 95 // 100]


PARTS: Mapping[str, Callable[[Path], list[Row]]] = {
    "start": start,
    "page": page,
    "partitions": partitions,
    "nodes": nodes,
    "history": history,
}


def main() -> int:
    """Measure; 1 if a limit is exceeded."""
    chosen = parser_for(__doc__, PARTS).parse_args()  # type: ignore[arg-type]
    table = Table("The web console")
    if chosen.table:
        table.rows = [row for part in PARTS for row in kept("console", part)]
    else:
        for part in [chosen.only] if chosen.only else PARTS:
            with tempfile.TemporaryDirectory() as folder:
                rows = PARTS[part](Path(folder))
            keep("console", part, rows)
            progress("")
            for row in rows:
                table.add(row)
    table.print()
    return 0 if table.met else 1


if __name__ == "__main__":
    sys.exit(main())
