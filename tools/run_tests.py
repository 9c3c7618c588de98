"""Run everything a change must pass, as `./test` (its comment lists the options).

Jobs run side by side, each a list of steps whose output goes to `.test-output/JOB.txt`:

    style       ruff, import-linter, generated pages, mypy
    cpu         pytest on 2 workers: pure functions and simulations
    wait        fetches other projects' tools, then pytest on 3 workers: tests that start processes
    spark       the tests of Spark, one after another
    quickstart  `./quickstart --check` with both kills, when Spark is not in use by a test

What depends most on real time gets the processor first (`NICENESS`). Every step has a time limit,
and every test has one (`TEST_SECONDS_MAX`). A failed step never hides the results of others. The
exit code is 0 only if every step and every test passed. Ctrl-C, SIGTERM and SIGHUP end the jobs and
all that they have started.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

import dependencies  # noqa: E402
from process_groups import ProcessGroups, interrupt_on_signals  # noqa: E402

from tests.mutants.replacements import FILE_VARIABLE as SEEDS_VARIABLE  # noqa: E402
from tests.support.lanes import DURATIONS, read_reports  # noqa: E402
from tests.support.turns import SPARK, turn  # noqa: E402

OUTPUT = ROOT / ".test-output"
SEEDS = OUTPUT / "seeds.jsonl"
"""Seeds of planted bugs that a run with `--record` found in place of stale ones."""
PYTHON = sys.executable
BIN = Path(sys.executable).parent

CHECK_SECONDS_MAX = 10 * 60
LANE_SECONDS_MAX = 75 * 60
"""Three times what it takes on two quiet cores: a machine may be that slow."""

TEST_SECONDS_MAX = 10 * 60
"""A test that takes longer ends its worker, which prints every thread's stack."""

STALL_SECONDS_MAX = TEST_SECONDS_MAX + 60

QUICKSTART_SECONDS_MAX = 15 * 60
QUICKSTART_DELAY_SECONDS = 45.0
"""The Spark tests begin first."""

PROGRESS_SECONDS = 30.0
NOTHING_RAN = 5
"""pytest's exit code where no test was selected."""

WORKERS = {
    "spark": ["-n", "1", "--dist", "loadscope"],
    "wait": ["-n", "3", "--dist", "loadscope"],
    "cpu": ["-n", "2", "--dist", "worksteal"],
}
CHANGED_SECONDS_MAX = 30.0
"""Of tests: collection, imports and types take the rest of the 90 seconds."""

GUESSED_FILE_SECONDS = 0.5
"""What a file of tests takes beside its recorded tests."""

DOCUMENT_TESTS = "tests/system/test_documents.py"

SLOWEST = 10
FAILURE_LINES_MAX = 200
FAILURES_LISTED_MAX = 20
ERROR_LINES_MAX = 4
RECORDED_SECONDS_MIN = 0.2


NICENESS = {"style": 4, "cpu": 4, "wait": 2}
"""Jobs that are not here have 0. Tests of Spark come first: Spark ends a query if one of its Python
processes takes 10 seconds to start. Tests that wait in real time come before those that never wait.
All of it is so little that another busy process of the machine does not starve them."""


@dataclass(frozen=True)
class Step:
    """One command of a job."""

    name: str
    command: list[str]
    seconds_max: float = CHECK_SECONDS_MAX
    passes: frozenset[int] = frozenset({0})


@dataclass
class Job:
    """Steps that run one after another, all of them, whether or not one fails."""

    name: str
    steps: list[Step]
    delay_seconds: float = 0.0
    uses_spark: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    """Step to what was wrong with it."""
    running: str = ""
    seconds: float = 0.0

    @property
    def output(self) -> Path:
        return OUTPUT / f"{self.name}.txt"

    @property
    def report(self) -> Path:
        """What the job's pytest writes about each test."""
        return OUTPUT / f"{self.name}.jsonl"

    def run(self, groups: ProcessGroups) -> None:
        if groups.stopped.wait(self.delay_seconds):
            return
        if self.uses_spark:
            with turn(SPARK, LANE_SECONDS_MAX):
                self._run_steps(groups)
        else:
            self._run_steps(groups)

    def _run_steps(self, groups: ProcessGroups) -> None:
        begun = time.monotonic()
        for step in self.steps:
            self.running = step.name
            self._run(step, groups)
        self.running = ""
        self.seconds = time.monotonic() - begun

    def _run(self, step: Step, groups: ProcessGroups) -> None:
        command = ["nice", "-n", str(NICENESS.get(self.name, 0)), *step.command]
        with self.output.open("ab") as output:
            output.write(f"== {step.name}\n".encode())
            output.flush()
            start = output.tell()
            process = groups.start(command, output, ROOT, self.environment)
            if process is None:
                return
            wrong = self._wait(process, step)
            groups.end(process)
        if wrong and not groups.stopped.is_set():
            self.failures[step.name] = wrong
            self._show_failure(step, wrong, start)

    def _wait(self, process: subprocess.Popen[bytes], step: Step) -> str:
        """Wait for the end of a step; say what is wrong with it, if anything is."""
        begun = time.monotonic()
        while time.monotonic() - begun < step.seconds_max:
            try:
                code = process.wait(1.0)
            except subprocess.TimeoutExpired:
                if not self._is_stalled():
                    continue
                return f"no test began or ended for {STALL_SECONDS_MAX / 60:g} minutes: ended"
            return "" if code in step.passes else f"exit code {code}"
        return f"not done after {step.seconds_max / 60:g} minutes: ended"

    def _is_stalled(self) -> bool:
        report = self.report
        return report.exists() and time.time() - report.stat().st_mtime > STALL_SECONDS_MAX

    def _show_failure(self, step: Step, wrong: str, start: int) -> None:
        say(f"FAILED  {self.name}: {step.name}: {wrong} (see {self.output.relative_to(ROOT)})")
        if not any(line.get("outcome") == "failed" for line in read_reports(self.report)):
            text = self.output.read_bytes()[start:].decode(errors="replace")
            print("\n".join(text.splitlines()[-FAILURE_LINES_MAX:]), flush=True)


def say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


# ---- what there is to run


def style() -> list[Step]:
    return [
        Step("ruff check", [str(BIN / "ruff"), "check", "."]),
        Step("ruff format", [str(BIN / "ruff"), "format", "--check", "."]),
        Step("import-linter", [str(BIN / "lint-imports")]),
        Step("COVERAGE.md", [PYTHON, "tools/coverage_page.py", "--check"]),
        Step("mypy --strict", [str(BIN / "mypy")]),
    ]


def prefetch() -> Step:
    return Step("prefetch", [PYTHON, "-m", "tests.support.prefetch"], 30 * 60)


def pytest_step(lane: str, select: str, paths: Iterable[str]) -> Step:
    command = [
        PYTHON, "-m", "pytest", "-q", "-p", "tests.support.lanes", "--lane", lane,
        f"--report-file={OUTPUT / lane}.jsonl", *WORKERS[lane], "--no-loadscope-reorder",
        "-o", f"faulthandler_timeout={TEST_SECONDS_MAX}",
        "-o", "faulthandler_exit_on_timeout=true",
        "-o", f"cache_dir=.pytest_cache/{lane}", "-m", select, *paths,
    ]  # fmt: skip
    return Step("tests", command, LANE_SECONDS_MAX, frozenset({0, NOTHING_RAN}))


def lane(name: str, select: str, paths: Iterable[str]) -> Job:
    return Job(name, [pytest_step(name, select, paths)])


def jobs_of(options: argparse.Namespace) -> list[Job]:
    select = "not long"
    if options.quick:
        select += " and not java and not spark and not real_clients"
    lanes = {name: lane(name, select, options.paths) for name in WORKERS}
    if options.quick:
        del lanes["spark"]
    else:
        for name in ("wait", "spark"):
            lanes[name].steps.insert(0, prefetch())
    jobs = list(lanes.values())
    if not options.paths:
        jobs.insert(0, Job("style", style()))
        if not options.quick:
            jobs.append(quickstart())
    return jobs


def changed_jobs() -> list[Job]:
    """The quick checks that changed files may fail: style, types, and the nearest tests."""
    changed = dependencies.changed_files()
    chosen, left = affordable(dependencies.dependents(changed))
    names = [str(path.relative_to(ROOT)) for path in changed if path.is_file()]
    sources = [name for name in names if name.endswith(".py")]
    if any(name.endswith(".md") for name in names):
        chosen.append(DOCUMENT_TESTS)
    say(f"{len(names)} changed files; quick tests of {len(chosen)} files that depend on them")
    say("left out: tests that start processes or serve sockets (./test PATH runs them)")
    if left:
        say(f"left out to stay under 90 s; run them with: ./test {' '.join(left)}")
    jobs = [Job("style", style_of(sources))] if sources else []
    if chosen:
        jobs.append(Job("cpu", [pytest_step("cpu", "not long", chosen)]))
    return jobs


def affordable(tests: Iterable[Path]) -> tuple[list[str], list[str]]:
    """Of files of tests, nearest first: those that fit into `CHANGED_SECONDS_MAX`, and the rest."""
    seconds: dict[str, float] = defaultdict(float)
    recorded = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    for test, taken in recorded.items():
        seconds[test.partition("::")[0]] += taken
    chosen: list[str] = []
    left: list[str] = []
    spent = 0.0
    for path in tests:
        name = str(path.relative_to(ROOT))
        taken = seconds[name] + GUESSED_FILE_SECONDS
        fits = spent + taken <= CHANGED_SECONDS_MAX
        (chosen if fits else left).append(name)
        spent += taken if fits else 0.0
    return chosen, left


def style_of(sources: list[str]) -> list[Step]:
    """The style checks of some files; types and layers concern the whole."""
    whole = {step.name: step for step in style()}
    return [
        Step("ruff check", [str(BIN / "ruff"), "check", *sources]),
        Step("ruff format", [str(BIN / "ruff"), "format", "--check", *sources]),
        whole["import-linter"],
        whole["mypy --strict"],
    ]


def quickstart() -> Job:
    command = ["./quickstart", "--check", "--kill-leader", "--kill-driver"]
    return Job(
        "quickstart", [Step(" ".join(command[1:]), command, QUICKSTART_SECONDS_MAX)],
        delay_seconds=QUICKSTART_DELAY_SECONDS, uses_spark=True,
    )  # fmt: skip


# ---- running


def run_all(jobs: list[Job]) -> None:
    """Run the jobs to their ends, and show how far they are; an interrupt ends them."""
    OUTPUT.mkdir(exist_ok=True)
    for job in jobs:
        for file in (job.output, job.report):
            file.unlink(missing_ok=True)
    groups = ProcessGroups()
    threads = [threading.Thread(target=job.run, args=(groups,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    try:
        _watch(jobs, threads)
    except KeyboardInterrupt:
        say("interrupted: ending what was started")
        groups.stop()
        sys.exit("interrupted")


def _watch(jobs: list[Job], threads: list[threading.Thread]) -> None:
    shown: set[tuple[str, str]] = set()
    next_line = time.monotonic() + PROGRESS_SECONDS
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.5)
        if time.monotonic() >= next_line:
            next_line += PROGRESS_SECONDS
            _show_new_failures(jobs, shown)
            say("; ".join(progress_of(job) for job in jobs if job.running))
    _show_new_failures(jobs, shown)


def _show_new_failures(jobs: list[Job], shown: set[tuple[str, str]]) -> None:
    for result in results_of(jobs):
        if result.outcome == "failed" and (result.job, result.test) not in shown:
            shown.add((result.job, result.test))
            say(f"FAILED  {result.job}: {result.test}")


def progress_of(job: Job) -> str:
    """`cpu: 1204 of 6400 tests`, or the step it is at."""
    lines = list(read_reports(job.report))
    total = next((line["tests"] for line in lines if "tests" in line), None)
    if total is None:
        return f"{job.name}: {job.running}"
    done = sum(1 for line in lines if line.get("phase") == "teardown")
    return f"{job.name}: {done} of {total} tests"


# ---- what came out


@dataclass
class Result:
    """One test, all its phases together."""

    job: str
    test: str
    outcome: str = "passed"
    seconds: float = 0.0
    processor: float = 0.0
    """Processor seconds."""
    text: str = ""

    @property
    def area(self) -> str:
        return "/".join(self.test.partition("::")[0].split("/")[:2])


def results_of(jobs: list[Job]) -> list[Result]:
    found: dict[tuple[str, str], Result] = {}
    for job in jobs:
        for line in read_reports(job.report):
            if "test" in line:
                key = (job.name, line["test"])
                _add_phase(found.setdefault(key, Result(*key)), line)
    return list(found.values())


def _add_phase(result: Result, line: dict[str, Any]) -> None:
    result.seconds += line["seconds"]
    result.processor += line.get("processor", 0.0)
    if line["outcome"] != "passed" and result.outcome != "failed":
        result.outcome = line["outcome"]
    if line["text"]:
        result.text += f"({line['phase']}) {line['text']}\n"


def show(jobs: list[Job], results: list[Result]) -> Counter[str]:
    """Print failures in full, then where the time went, skips and the counts."""
    for result in results:
        if result.outcome == "failed":
            print(f"\n==== FAILED {result.test}\n{result.text}")
    show_times(jobs, results)
    show_skips(results)
    for job in jobs:
        for step, wrong in job.failures.items():
            print(f"\nFAILED {job.name}: {step}: {wrong}; see {job.output.relative_to(ROOT)}")
    show_failed(results)
    return Counter(result.outcome for result in results)


def show_failed(results: list[Result]) -> None:
    """List failed tests with their first error lines, for readers of the last lines only."""
    failed = [result for result in results if result.outcome == "failed"]
    for result in failed[:FAILURES_LISTED_MAX]:
        print(f"\nFAILED {result.job}: {result.test} ({result.seconds:.1f} s)")
        lines = result.text.splitlines()
        errors = [line for line in lines if line.startswith("E  ")] or lines[-ERROR_LINES_MAX:]
        print("\n".join(f"  {line[:200]}" for line in errors[:ERROR_LINES_MAX]))
    if len(failed) > FAILURES_LISTED_MAX:
        print(f"\n{len(failed) - FAILURES_LISTED_MAX} more failed")


def show_skips(results: list[Result]) -> None:
    skips: dict[str, list[str]] = defaultdict(list)
    for result in results:
        if result.outcome == "skipped":
            skips[result.text.partition("Skipped: ")[2].strip() or result.text].append(result.test)
    if skips:
        print("\nSkipped, and why:")
    for reason, tests in sorted(skips.items()):
        more = f" and {len(tests) - 1} more" if len(tests) > 1 else ""
        print(f"  {reason}: {tests[0]}{more}")


def show_times(jobs: list[Job], results: list[Result]) -> None:
    if results:
        print("\nMinutes of tests per area, and minutes of the processor:")
        areas: dict[str, list[Result]] = defaultdict(list)
        for result in results:
            areas[result.area].append(result)
        for area, those in sorted(areas.items(), key=lambda item: -_seconds(item[1])):
            used = sum(result.processor for result in those) / 60
            print(f"  {_seconds(those) / 60:6.1f} {used:6.1f}  {area} ({len(those)} tests)")
        print("\nSlowest tests, in seconds:")
        for result in sorted(results, key=lambda result: -result.seconds)[:SLOWEST]:
            print(f"  {result.seconds:6.1f}  {result.test}")
        print("\nMost seconds of the processor:")
        for result in sorted(results, key=lambda result: -result.processor)[:SLOWEST]:
            print(f"  {result.processor:6.1f}  {result.test}")
    print("\nMinutes per job:")
    for job in jobs:
        print(f"  {job.seconds / 60:6.1f}  {job.name}")


def _seconds(results: list[Result]) -> float:
    return sum(result.seconds for result in results)


def record(results: list[Result], *, is_everything: bool) -> None:
    """Keep how long the tests took; what did not run keeps its time unless everything ran."""
    kept = json.loads(DURATIONS.read_text()) if DURATIONS.exists() and not is_everything else {}
    for result in results:
        if result.outcome == "passed":
            kept.pop(result.test, None)
            if result.seconds >= RECORDED_SECONDS_MIN:
                kept[result.test] = round(result.seconds, 1)
    DURATIONS.write_text(json.dumps(kept, indent=0, sort_keys=True) + "\n")


# ---- the command


def options_of(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./test", add_help=False, allow_abbrev=False)
    for name in ("--no-skip", "--long", "--quick", "--changed", "--record"):
        parser.add_argument(name, action="store_true")
    parser.add_argument("paths", nargs="*")
    return parser.parse_args(arguments)


def run_long(options: argparse.Namespace) -> int:
    """Style first, because the long tests take hours; then the pieces, in `tools/long_tests.py`."""
    if not options.paths:
        job = Job("style", style())
        run_all([job])
        if job.failures:
            return 1
    subprocess.run(prefetch().command, cwd=ROOT, check=False)
    os.chdir(ROOT)
    os.execv(PYTHON, [PYTHON, "tools/long_tests.py", *options.paths])


def main() -> int:
    options = options_of(sys.argv[1:])
    interrupt_on_signals()
    os.environ["SPARKRAFT_NO_SKIP"] = str(int(options.no_skip))
    # Tests start Python a thousand times: without bytecode each compiles the product again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if options.long:
        return run_long(options)
    jobs = changed_jobs() if options.changed else jobs_of(options)
    if not jobs:
        say("nothing that tests depend on has changed")
        return 0
    if options.record:
        SEEDS.unlink(missing_ok=True)
        os.environ[SEEDS_VARIABLE] = str(SEEDS)
    run_all(jobs)
    results = results_of(jobs)
    counts = show(jobs, results)
    if options.record:
        record(results, is_everything=not options.paths and not options.quick)
        subprocess.run([PYTHON, "tools/mutants", "--store", SEEDS], cwd=ROOT, check=True)
    bad = bool(counts["failed"]) or any(job.failures for job in jobs)
    if options.no_skip and counts["skipped"]:
        print("\n--no-skip: a skipped test is a failure")
        bad = True
    if not results and not options.changed:
        print("\nno test was selected")
        bad = True
    print(f"\n{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
