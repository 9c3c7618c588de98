"""Runs the tests marked `long`, each a piece of its own, and goes on where it stopped.

    python tools/long_tests.py             the pieces that have not passed yet on this source
    python tools/long_tests.py NAME …      just those of them whose name holds a NAME
    python tools/long_tests.py --jobs 3 …  three at once: for those that mostly wait, as in faults
    python tools/long_tests.py --again …   also what has passed
    python tools/long_tests.py --list      their names

A piece may take 45 minutes. What has passed is kept in .cache/long-tests.json, each piece with a
digest of what it ran: the whole source, its own test file, and every file of the tests that one
names, directly or not. A change to any of these makes the piece run again; a change to a test that
has nothing to do with it doesn't. Several runs may share the file. A piece that was skipped has not
passed; with SPARKRAFT_NO_SKIP=1 (`./test --long --no-skip`) it has failed. The files of one that
failed stay in .cache/long-tests until it runs again. Ctrl-C, SIGTERM and SIGHUP end the pieces that
run, with all that they have started.
"""

import argparse
import ast
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from enum import Enum
from functools import cache
from pathlib import Path
from typing import IO
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools")]

from process_groups import ProcessGroups, interrupt_on_signals  # noqa: E402

STATE = ROOT / ".cache" / "long-tests.json"
PIECE_SECONDS_MAX = 45 * 60
ABOUT_TESTS = ("durations.json", "moved.toml")
"""Files that say when tests run, not what they do."""

NOTHING_RAN = 5  # pytest's exit code where no test was selected


class Outcome(Enum):
    """What became of a piece."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """It needs what this machine can't reach: it has shown nothing, and is tried again."""


def pieces() -> list[str]:
    """The tests marked long, by pytest's name."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-m", "long", "tests"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode not in {0, NOTHING_RAN}:
        sys.exit(f"the long tests can't be collected:\n{found.stdout}{found.stderr}")
    return [line for line in found.stdout.splitlines() if "::" in line]


def digest(piece: str) -> str:
    """Names the state of everything `piece` runs."""
    total = hashlib.sha256()
    files = (path for path in (ROOT / "tests").rglob("*.*") if "__pycache__" not in path.parts)
    data = {path for path in files if path.suffix != ".py" and path.is_file()}
    data -= {ROOT / "tests" / name for name in ABOUT_TESTS}
    for path in sorted({*(ROOT / "src").rglob("*.py"), *data, *test_files(piece)}):
        total.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return total.hexdigest()


def test_files(piece: str) -> set[Path]:
    """The modules of the tests that `piece` may load, or start as processes of their own."""
    own = ROOT / piece.partition("::")[0]
    found: set[Path] = set()
    new = {own}
    for folder in own.relative_to(ROOT).parents:
        new |= set((ROOT / folder).glob("conftest.py"))
    while new:
        found |= new
        new = {other for path in new for other in named_in(path)} - found
    return found


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def named_in(path: Path) -> frozenset[Path]:
    """What `path` names of the tests: modules it imports or starts, folders it gives to pytest."""
    names = set()
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.Import():
                names |= {alias.name for alias in node.names}
            case ast.ImportFrom(module=str() as module):
                names |= {module} | {f"{module}.{alias.name}" for alias in node.names}
            case ast.Constant(value=str() as text):
                names.add(text)
    found: set[Path] = set()
    for place in (name.replace(".", "/") for name in names if re.fullmatch(r"tests[\w./]*", name)):
        found |= {
            file for file in (ROOT / f"{place}.py", ROOT / place / "__init__.py") if file.is_file()
        }
        if place in names:
            found |= set((ROOT / place).rglob("*.py"))
    return frozenset(found)


def passed(now: dict[str, str], more: str | None = None) -> set[str]:
    """The pieces that passed as they are `now` (piece → digest), after adding `more` to them."""
    STATE.parent.mkdir(exist_ok=True)
    with STATE.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        known = json.loads(file.read() or "{}")
        if more is not None:
            known[more] = now[more]
            file.truncate(0)
            file.write(json.dumps(known, indent=1, sort_keys=True))
    return {piece for piece, state in now.items() if known.get(piece) == state}


def run(piece: str, groups: ProcessGroups, *, alone: bool) -> Outcome:
    """Run one piece. What it prints is shown as it comes where it is alone."""
    print(f"begins: {piece}", flush=True)
    begun = time.monotonic()
    files = STATE.with_name("long-tests") / re.sub(r"\W+", "-", piece)
    files.mkdir(parents=True, exist_ok=True)
    report, printed = files / "report.xml", files / "output.txt"
    command = [
        sys.executable, "-m", "pytest", "-q", "-s", "-m", "long", f"--junitxml={report}",
        f"--basetemp={files / 'tmp'}", piece,
    ]  # fmt: skip
    with printed.open("wb") as output:
        code = _code_of(groups, command, None if alone else output)
    said = printed.read_text(errors="replace")
    if code is None:
        verdict = f"not done after {PIECE_SECONDS_MAX // 60} minutes"
    else:
        verdict = f"exit {code}"
    outcome = outcome_of(report) if code == 0 else Outcome.FAILED
    if outcome is Outcome.FAILED:
        verdict += f"; its files are in {files}"
    else:
        shutil.rmtree(files)
    took = time.monotonic() - begun
    print(f"{said}{piece}: {outcome.value}, {took:.0f} s, {verdict}", flush=True)
    return outcome


def _code_of(groups: ProcessGroups, command: list[str], output: IO[bytes] | None) -> int | None:
    """The exit code of a piece; None if it took too long, or nothing is started any more."""
    process = groups.start(command, output, ROOT, {})
    if process is None:
        return None
    try:
        return process.wait(PIECE_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        return None
    finally:
        groups.end(process)


def outcome_of(report: Path) -> Outcome:
    """What pytest reports, in JUnit's form, of a piece that did not fail."""
    root = ElementTree.parse(report).getroot()
    ran = [case for case in root.iter("testcase") if case.find("skipped") is None]
    return Outcome.PASSED if ran else Outcome.SKIPPED


def main() -> int:
    """Run what is wanted and not done yet."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    interrupt_on_signals()
    everything = pieces()
    now = {piece: digest(piece) for piece in everything}
    known = passed(now)
    named = [p for p in everything if not options.names or any(n in p for n in options.names)]
    if not named:
        sys.exit(f"no long test's name holds {' or '.join(options.names)}; --list tells them")
    if options.list:
        print("\n".join(f"{'passed' if piece in known else '      '} {piece}" for piece in named))
        return 0
    wanted = [piece for piece in named if options.again or piece not in known]
    of = _run_all(wanted, now, jobs=options.jobs)
    for outcome in (Outcome.SKIPPED, Outcome.FAILED):
        for piece in of[outcome]:
            print(f"{outcome.value}: {piece}")
    left = len(set(everything) - passed(now))
    counts = ", ".join(f"{len(of[outcome])} {outcome.value}" for outcome in Outcome)
    print(f"{counts}; {left} have not passed yet")
    may_skip = os.environ.get("SPARKRAFT_NO_SKIP", "0") != "1"
    return 1 if of[Outcome.FAILED] or (of[Outcome.SKIPPED] and not may_skip) else 0


def _run_all(wanted: list[str], now: dict[str, str], *, jobs: int) -> dict[Outcome, list[str]]:
    """Run them, so many side by side; those that pass are kept, each as it is `now`."""
    of: dict[Outcome, list[str]] = {outcome: [] for outcome in Outcome}
    groups = ProcessGroups()
    with ThreadPoolExecutor(jobs) as pool:
        runs = {pool.submit(run, piece, groups, alone=jobs == 1): piece for piece in wanted}
        try:
            for number, done in enumerate(as_completed(runs), 1):
                of[done.result()].append(runs[done])
                if done.result() is Outcome.PASSED:
                    passed(now, runs[done])
                failed = len(of[Outcome.FAILED])
                print(f"== {number} of {len(wanted)} long pieces done, {failed} failed", flush=True)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            groups.stop()
            sys.exit("interrupted")
    return of


if __name__ == "__main__":
    sys.exit(main())
