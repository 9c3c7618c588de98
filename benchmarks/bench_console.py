"""The web console: start, page weight, memory, an election until it is drawn, 10,000 partitions
in a browser, cost on the nodes, time travel through a million changes, and the counters of metrics.

    ./bench console                 everything, about seven minutes; needs Chromium
    ./bench console --only start    one part: start, page, election, partitions, nodes, history,
                                    counters

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
from typing import Any, Self

from playwright.async_api import CDPSession, Page, expect

from benchmarks.kept import keep, kept
from benchmarks.long_metadata_log import append_changes
from benchmarks.measure import cpu_seconds, rss_mib
from benchmarks.produce_counters import produce_counters
from benchmarks.quorums import progress
from benchmarks.report import Row, Table
from benchmarks.suite import parser_for
from sparkraft.base.errors import KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster as Client
from sparkraft.client.values import NewTopic
from sparkraft.console.assets import load_assets
from tests.support.clusters import Cluster, Member
from tests.support.console import WAIT_MS, Browser, ConsoleProcess
from tests.support.nodes import SparkraftNode
from tests.support.outside_tools import Missing, chromium

expect.set_options(timeout=WAIT_MS)

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
DETAILED_STEPS = 5
"""On the screens of a partition and a broker, each in another part of the log."""

KILLS = 5
LOOK_SECONDS = 0.02
DRAWN_SECONDS_MAX = 2.0
"""From the death of the leader to the drawing of the next one, without a reload."""

SCROLLS = 60
WATCH_SECONDS = 20

TRACED = ["toplevel", "devtools.timeline"]
"""Categories of Chromium's trace with its tasks and the calls of scripts."""

REFRESH_MS = 3_500
"""A page requests its document again within this time."""


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
    listens, ready, memory = [], [], []
    with SparkraftNode(folder / "node") as node:
        for number in range(STARTS):
            progress(f"start {number + 1} of {STARTS}")
            begun = time.perf_counter()
            with ConsoleProcess(node.bootstrap, folder) as console:
                listens.append(time.perf_counter() - begun)
                get(console.address, "/")
                get(console.address, "/api/cluster")
                ready.append(time.perf_counter() - begun)
                assert console.process is not None
                memory.append(rss_mib(console.process.pid))
    return [
        Row("start until it listens", f"{median(listens):.2f} s", "", None),
        limited("start until the cluster is described", median(ready), READY_SECONDS_MAX, "s"),
        limited("memory then", median(memory), MEMORY_MIB_MAX, "MiB"),
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


async def until_another_leads(shown: Page, leader: int) -> None:
    """Playwright's own waiting has pauses of up to a second."""
    while True:
        text = str(await shown.locator(".lead").text_content())
        if "leads the quorum in epoch" in text and f"Node {leader} leads" not in text:
            return
        await asyncio.sleep(LOOK_SECONDS)


def election(folder: Path) -> list[Row]:
    """The leader of a quorum of three is killed while a page shows the quorum."""
    times: list[float] = []

    async def watch(browser: Browser, cluster: Cluster, address: str) -> None:
        async with browser.visiting(address, "/quorum") as visit:
            lead = visit.page.locator(".lead")
            for number in range(KILLS):
                progress(f"kill {number + 1} of {KILLS}")
                quorum = await asyncio.to_thread(cluster.describe_quorum)
                await expect(lead).to_contain_text(f"Node {quorum.leader_id} leads")
                begun = time.perf_counter()
                await asyncio.to_thread(cluster.kill, quorum.leader_id)
                await until_another_leads(visit.page, quorum.leader_id)
                times.append(time.perf_counter() - begun)
                await asyncio.to_thread(cluster.start)

    members = [Member(number) for number in (1, 2, 3)]
    with (
        browsing() as browser,
        Cluster(folder, members) as cluster,
        ConsoleProcess(cluster.bootstrap, folder) as console,
    ):
        browser.run(watch(browser, cluster, console.address))
    what = f"death of the leader until the next one is drawn, median of {KILLS}"
    return [
        limited(what, median(times), DRAWN_SECONDS_MAX, "s"),
        Row("the slowest of them", f"{max(times):.2f} s", "", None),
    ]


async def create_topics(bootstrap: str) -> None:
    topics = [NewTopic(name=f"t{n:03}", partitions=20) for n in range(TOPICS)]
    topics.append(NewTopic(name="wide", partitions=WIDE))
    async with Client(bootstrap, request_timeout_ms=60_000) as cluster:
        for at in range(0, len(topics), 50):
            created = await Admin(cluster).create_topics(topics[at : at + 50])
            assert [one for one in created.values() if isinstance(one, KafkaError)] == []


class Trace:
    """Chromium's trace of a page."""

    def __init__(self, session: CDPSession) -> None:
        self._session = session
        self._events: list[dict[str, Any]] = []
        self._is_complete = asyncio.Event()
        session.on("Tracing.dataCollected", lambda one: self._events.extend(one["value"]))
        session.on("Tracing.tracingComplete", lambda _: self._is_complete.set())

    @classmethod
    async def start(cls, shown: Page) -> Self:
        trace = cls(await shown.context.new_cdp_session(shown))
        settings = {"includedCategories": TRACED}
        options = {"transferMode": "ReportEvents", "traceConfig": settings}
        await trace._session.send("Tracing.start", options)
        return trace

    async def stop(self) -> list[dict[str, Any]]:
        await self._session.send("Tracing.end")
        await self._is_complete.wait()
        return self._events


def longest_task(events: list[dict[str, Any]]) -> tuple[float, float]:
    """The longest task of a page's thread that runs a script: its time and its CPU time, in ms.

    Beside other work of the machine the time is longer than what the page needs.
    """
    calls = [(e["pid"], e["tid"], e["ts"]) for e in events if e["name"] == "FunctionCall"]
    threads = {call[:2] for call in calls}
    scripted = [
        (one["dur"] / 1000, one.get("tdur", 0) / 1000)
        for one in events
        if one["name"] in {"RunTask", "ThreadControllerImpl::RunTask"}
        and "dur" in one  # else it had not ended when the trace did
        and (one["pid"], one["tid"]) in threads
        and any(
            call[:2] == (one["pid"], one["tid"]) and 0 <= call[2] - one["ts"] < one["dur"]
            for call in calls
        )
    ]
    assert scripted, "the trace has no task with a script"
    return max(scripted)[0], max(cpu for _, cpu in scripted)


def partitions(folder: Path) -> list[Row]:
    """The list of topics and a topic of 2,000 partitions, scrolled from end to end."""
    found: dict[str, float] = {}
    tasks: dict[str, tuple[float, float]] = {}

    async def scroll(shown: Page) -> tuple[float, float]:
        """The longest task with a script while the rows move and are drawn again."""
        trace = await Trace.start(shown)
        rows = shown.locator(".window").first
        for step in range(SCROLLS):
            await rows.evaluate(f"one => one.scrollTo(0, one.scrollHeight * {step / SCROLLS})")
            await shown.wait_for_timeout(16)
        await shown.wait_for_timeout(REFRESH_MS)
        return longest_task(await trace.stop())

    async def visit(browser: Browser, address: str) -> None:
        begun = time.perf_counter()
        async with browser.visiting(address, "/topics") as visit:
            await expect(visit.page.locator("[role=row] a").first).to_be_visible()
            found["topics"] = (time.perf_counter() - begun) * 1000
            tasks["topics"] = await scroll(visit.page)
        async with browser.visiting(address, "/topics/wide") as visit:
            await expect(visit.page.locator(".partitions [role=row] a").first).to_be_visible()
            tasks["wide"] = await scroll(visit.page)

    with browsing() as browser, SparkraftNode(folder / "node") as node:
        progress("10,000 partitions are created")
        asyncio.run(create_topics(node.bootstrap))
        with ConsoleProcess(node.bootstrap, folder) as console:
            browser.run(visit(browser, console.address))
            assert console.process is not None
            memory = rss_mib(console.process.pid)
    what = "longest scripted task of the browser while scrolling"
    rows = {f"{TOPICS + 1} topics": tasks["topics"], f"{WIDE:,} partitions": tasks["wide"]}
    return [
        Row("10,000 partitions: until the topics are shown", f"{found['topics']:.0f} ms", "", None),
        *(limited(f"{what} {of}", ms, SCRIPT_MS_MAX, "ms") for of, (ms, _) in rows.items()),
        *(Row(f"its CPU time, {of}", f"{cpu_ms:.1f} ms", "", None)
          for of, (_, cpu_ms) in rows.items()),
        limited("memory then", memory, MEMORY_MIB_MAX, "MiB"),
    ]  # fmt: skip


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
        first = [detailed_step(console, chosen.randrange(CHANGES)) for _ in range(DETAILED_STEPS)]
        detailed_step(console, CHANGES // 2)
        on = [detailed_step(console, CHANGES // 2 + number) for number in range(1, STEPS)]
        memory = rss_mib(console.process.pid)
    return [
        limited(f"{CHANGES:,} changes: until they are indexed", indexed, INDEX_SECONDS_MAX, "s"),
        Row("CPU of the node and of the console", "{:.1f} s, {:.1f} s".format(*spent), "", None),
        limited("a step to any change, 95 % within", p95(anywhere), STEP_MS_MAX, "ms"),
        limited("a step to the next change, 95 % within", p95(onwards), STEP_MS_MAX, "ms"),
        limited(
            "the same on the screens of a partition and a broker", max(first), STEP_MS_MAX, "ms"
        ),
        limited("a step there to the next change, 95 % within", p95(on), STEP_MS_MAX, "ms"),
        Row("memory of the console then", f"{memory:.0f} MiB", "", None),
    ]


def step(console: ConsoleProcess, change: int) -> float:
    """The time until a page has all that it requests for a step, in ms."""
    begun = time.perf_counter()
    moment = json.loads(get(console.address, f"/api/moment?change={change}"))
    get(console.address, f"/api/topics?at={moment['offset']}")
    return (time.perf_counter() - begun) * 1000


def detailed_step(console: ConsoleProcess, change: int) -> float:
    """The same with the documents of a partition and a broker."""
    begun = time.perf_counter()
    moment = json.loads(get(console.address, f"/api/moment?change={change}"))
    topics = json.loads(get(console.address, f"/api/topics?at={moment['offset']}"))["topics"]
    if topics and topics[0]["partitions"]:
        partition = f"topic={topics[0]['topic']}&partition=0"
        get(console.address, f"/api/partition?{partition}&at={moment['offset']}")
    get(console.address, f"/api/broker?broker=1&at={moment['offset']}")
    return (time.perf_counter() - begun) * 1000


def counters(_: Path) -> list[Row]:
    """What the counters of the metrics cost each Produce request."""
    return produce_counters()


def p95(times: list[float]) -> float:
    return sorted(times)[len(times) * 95 // 100]


PARTS: Mapping[str, Callable[[Path], list[Row]]] = {
    "start": start,
    "page": page,
    "election": election,
    "partitions": partitions,
    "nodes": nodes,
    "history": history,
    "counters": counters,
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
