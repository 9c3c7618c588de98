"""A pytest plugin for `./test`: three lanes of tests, longest first, and a report of each test.

    python -m pytest -p tests.support.lanes --lane wait -n 4 --dist loadscope ...

Lane `spark` holds the tests with the marker `spark`, one after another. Lane `wait` holds the other
tests that start processes or serve sockets: they wait in real time and use a third of a core each.
Lane `cpu` holds the rest: pure functions and simulations. A test is in `wait` if it has one of the
markers `real_clients`, `java` or `real_time`, or if its module imports one of `REAL_TIME_MODULES`.

In lane `wait`, tests that share a fixture wider than one test stay on one worker, and so do all
that share a node of Kafka (marker `shared_kafka`). Every other test may run on any worker, whatever
its file.

`--report-file` gets one JSON object a line: the number of tests, then each phase of each test. The
last phase has the processor seconds of the test and of the processes that ended in it: unlike its
duration, they do not depend on what else runs.
"""

import gc
import json
import os
import re
import resource
from collections import defaultdict
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

ROOT = Path(__file__).resolve().parents[2]
DURATIONS = ROOT / "tests" / "durations.json"
LANES = ("cpu", "wait", "spark")
REAL_TIME_MARKERS = ("real_clients", "java", "real_time")
REAL_TIME_MODULES = frozenset(
    {"tests.support.nodes", "tests.support.clusters", "tests.server.harness"}
)
CHEAP_WIDE_FIXTURES = frozenset(
    {"kafka_jars", "pytestconfig", "request", "tmp_path_factory", "testrun_uid", "worker_id"}
)
"""Fixtures wider than one test that any number of workers may have."""

SHARING_MARKER = "shared_kafka"
"""Of tests that share a worker, whatever their files."""

FIRST_SECONDS_MIN = 1.0
"""Lane `cpu` keeps its order but for tests that take longer: these come first."""

GUESSED_SECONDS = {"cpu": 0.02, "wait": 3.0, "spark": 10.0}
"""Of a test without a recorded duration."""

_IMPORTED = re.compile(r"^from (\S+) import", re.MULTILINE)
_MARKED = re.compile(rf"\bmark\.({'|'.join(REAL_TIME_MARKERS)})\b")
_SPARK = re.compile(r"\bmark\.spark\b")
_MARKS_OF_A_FILE = re.compile(r"^pytestmark = .*(?:\n[ \])].*)*", re.MULTILINE)

_reports = pytest.StashKey[TextIO]()
_processor = pytest.StashKey[float]()
"""Processor seconds at the end of the test before."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lane", choices=LANES, help="run only the tests of this lane")
    parser.addoption("--report-file", type=Path, help="write a JSON object for each test phase")


# ---- choosing and ordering


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip files that have no test of the lane: to collect all of them takes each worker 30 s."""
    lane = config.getoption("--lane")
    if lane is None or not collection_path.name.startswith("test_"):
        return None
    return True if lane not in lanes_in(collection_path) else None


@cache
def lanes_in(path: Path) -> frozenset[str]:
    """The lanes that the tests of a file may have, by its text alone.

    `pytest_collection_modifyitems` checks each test that is collected against it: a test of the
    other lane would never run.
    """
    text = path.read_text()
    marks_of_all = "".join(_MARKS_OF_A_FILE.findall(text))
    if _SPARK.search(marks_of_all):
        return frozenset({"spark"})
    found = {"spark"} if _SPARK.search(text) else set()
    if REAL_TIME_MODULES.intersection(_IMPORTED.findall(text)) or _MARKED.search(marks_of_all):
        return frozenset(found | {"wait"})
    return frozenset(found | {"cpu", "wait"} if _MARKED.search(text) else found | {"cpu"})


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    lane = config.getoption("--lane")
    if lane is None:
        return
    lanes = {item: lane_of(item) for item in items}
    for item, found in lanes.items():
        if found not in lanes_in(item.path):
            raise pytest.UsageError(
                f"{item.nodeid} is in lane {found}, but the text of its file does not show it:"
                " import the module of nodes in the file, or write the marker there"
            )
    config.hook.pytest_deselected(items=[item for item in items if lanes[item] != lane])
    chosen = [item for item in items if lanes[item] == lane]
    recorded = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    seconds = {item: recorded.get(item.nodeid, GUESSED_SECONDS[lane]) for item in chosen}
    if lane == "cpu":
        items[:] = longest_first(chosen, seconds)
    else:
        items[:] = grouped(chosen, seconds)
        _write_groups(config, items)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Spare the garbage collector the modules and the tests: they stay until the end.

    A full collection would visit all of them. `simulation.scenarios.campaign.run` collects before
    each simulated run; that took a quarter of lane `cpu`.
    """
    gc.collect()
    gc.freeze()
    session.config.stash[_processor] = processor_seconds()


def lane_of(item: pytest.Item) -> str:
    """The lane of a test; see the module docstring."""
    if item.get_closest_marker("spark"):
        return "spark"
    if any(item.get_closest_marker(name) for name in REAL_TIME_MARKERS):
        return "wait"
    return "wait" if _imports_real_time(getattr(item, "module", None)) else "cpu"


@cache
def _imports_real_time(module: ModuleType | None) -> bool:
    """Whether a module of tests holds something of `REAL_TIME_MODULES`."""
    held = vars(module).values() if module is not None else ()
    names = [getattr(value, key, None) for value in held for key in ("__module__", "__name__")]
    return any(isinstance(name, str) and name in REAL_TIME_MODULES for name in names)


def longest_first(items: list[pytest.Item], seconds: dict[pytest.Item, float]) -> list[pytest.Item]:
    """The long tests in front; the short ones as they were, so that files stay together.

    Tests that share a fixture come together, and so are most likely to be on one worker.
    """
    groups = {item: group_of(item) or item.nodeid for item in items}
    longest: dict[str, float] = defaultdict(float)
    for item in items:
        longest[groups[item]] = max(longest[groups[item]], seconds[item])

    def key(item: pytest.Item) -> float:
        found = longest[groups[item]]
        return -found if found >= FIRST_SECONDS_MIN else 0

    return sorted(items, key=key)


def grouped(items: list[pytest.Item], seconds: dict[pytest.Item, float]) -> list[pytest.Item]:
    """The tests of the group that takes longest in front."""
    groups = {item: group_of(item) or item.nodeid for item in items}
    totals: dict[str, float] = defaultdict(float)
    for item in items:
        totals[groups[item]] += seconds[item]
    return sorted(items, key=lambda item: (-totals[groups[item]], groups[item]))


def group_of(item: pytest.Item) -> str | None:
    """What must share a worker with this test; None if nothing must."""
    if item.get_closest_marker(SHARING_MARKER):
        return SHARING_MARKER
    info = getattr(item, "_fixtureinfo", None)  # pytest has no public way to ask
    fixtures: dict[str, Any] = info.name2fixturedefs if info is not None else {}
    wide = {name for name, found in fixtures.items() if found[-1].scope != "function"}
    return item.nodeid.partition("::")[0] if wide - CHEAP_WIDE_FIXTURES else None


class GroupScheduling(LoadScopeScheduling):
    """xdist's scheduler for scopes, with the groups of `group_of`.

    xdist's own groups do not work with pytest 9.2, which has no `_nodeid` for it to change. Its
    scheduler also stalls once a worker has crashed: it gives the crashed test to another worker,
    and a worker one scope at a time, though workers run a test only when they know the next one or
    that there is none.
    """

    def _split_scope(self, nodeid: str) -> str:
        path = _groups_file(self.config)
        return _groups(path).get(nodeid, nodeid) if path is not None else nodeid.partition("::")[0]

    def remove_node(self, node: WorkerController) -> str | None:
        """Give what a lost worker had left to others; return the test it crashed in."""
        units = self.assigned_work.pop(node)
        crashed = None
        for unit in units.values():
            left = [test for test, is_done in unit.items() if not is_done]
            if left and crashed is None:
                crashed = left[0]
                unit[crashed] = True
        self.workqueue.update(
            {name: unit for name, unit in units.items() if not all(unit.values())}
        )
        for other in self.assigned_work:
            self._reschedule(other)
        return crashed

    def _reschedule(self, node: WorkerController) -> None:
        """Give a worker groups until it has two tests, or tell it that there are no more."""
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


@cache
def _groups(path: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads(path.read_text())
    return found


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    return GroupScheduling(config, log) if config.getvalue("dist") == "loadscope" else None


def _groups_file(config: pytest.Config) -> Path | None:
    report: Path | None = config.getoption("--report-file")
    return report.with_suffix(".groups.json") if report is not None else None


def _write_groups(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tell the scheduler: only workers know the fixtures, and all of them write the same."""
    path = _groups_file(config)
    if path is not None:
        own = path.with_suffix(f".{os.getpid()}")
        own.write_text(json.dumps({item.nodeid: group_of(item) or item.nodeid for item in items}))
        own.replace(path)


# ---- reporting


def processor_seconds() -> float:
    """Of this process, and of those it started that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport]:
    """Add the processor seconds since the end of the test before to the last phase's report."""
    report = yield
    if report.when == "teardown":
        now = processor_seconds()
        report.user_properties.append(("processor", round(now - item.config.stash[_processor], 2)))
        item.config.stash[_processor] = now
    return report


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_processor] = processor_seconds()
    path = config.getoption("--report-file")
    if path is not None and not hasattr(config, "workerinput"):
        config.stash[_reports] = path.open("w", buffering=1)
        config.pluginmanager.register(_Reporter(config.stash[_reports]))


def pytest_unconfigure(config: pytest.Config) -> None:
    if _reports in config.stash:
        config.stash[_reports].close()


class _Reporter:
    """Writes what happens to the tests, line by line: a lane that is killed leaves its results."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._counted = False

    def _write(self, **values: object) -> None:
        self._file.write(json.dumps(values) + "\n")

    def pytest_xdist_node_collection_finished(self, node: object, ids: list[str]) -> None:
        if not self._counted:
            self._counted = True
            self._write(tests=len(ids))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(
                test=report.nodeid, phase="collect", outcome="failed", seconds=0.0,
                text=report.longreprtext,
            )  # fmt: skip

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        text = "" if report.passed else _text_of(report)
        self._write(
            test=report.nodeid, phase=report.when, outcome=report.outcome,
            seconds=round(report.duration, 3), text=text, **dict(report.user_properties),
        )  # fmt: skip


def _text_of(report: pytest.TestReport) -> str:
    """The reason of a skip; of a failure all that pytest would print, captured output included."""
    if report.skipped and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    return "\n".join(
        [report.longreprtext, *(f"--- {title}\n{text}" for title, text in report.sections)]
    )


def read_reports(path: Path) -> Iterator[dict[str, Any]]:
    """What a `--report-file` holds so far; a line that is still being written is left out."""
    if path.exists():
        text = path.read_text()
        yield from map(json.loads, text[: text.rfind("\n") + 1].splitlines())
