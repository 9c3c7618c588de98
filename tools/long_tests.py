"""Runs the tests marked `long`, each a piece of its own, and goes on where it stopped.

    python tools/long_tests.py             the pieces that have not passed yet on this source
    python tools/long_tests.py NAME …      just those of them whose name holds a NAME
    python tools/long_tests.py --jobs 3 …  three at once: for those that mostly wait, as in faults
    python tools/long_tests.py --again …   also what has passed
    python tools/long_tests.py --list      their names

A piece may take 45 minutes. What has passed is kept in .cache/long-tests.json, each piece with a
digest of what it ran: the whole source, its own test file, and every file of the tests that one
names, directly or not. A change to any of these makes the piece run again; a change to a test that
has nothing to do with it doesn't. Several runs may share the file.
"""

import argparse
import ast
import fcntl
import hashlib
import json
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STATE = ROOT / ".cache" / "long-tests.json"
PIECE_SECONDS_MAX = 45 * 60
NOTHING_RAN = 5  # pytest's exit code where no test was selected


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
        new = {other for path in new for other in _named_in(path)} - found
    return found


@cache
def _named_in(path: Path) -> frozenset[Path]:
    """What `path` names of the tests: modules it imports or starts, folders it gives to pytest."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
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


def run(piece: str, *, alone: bool) -> bool:
    """Run one piece; whether it passed. What it prints is shown as it comes where it is alone."""
    print(f"begins: {piece}", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-m", "long", piece]
    begun, said = time.monotonic(), ""
    try:
        done = subprocess.run(
            command, cwd=ROOT, timeout=PIECE_SECONDS_MAX, check=False, text=True,
            stdout=None if alone else subprocess.PIPE, stderr=None if alone else subprocess.STDOUT,
        )  # fmt: skip
        said, verdict = done.stdout or "", f"exit {done.returncode}"
    except subprocess.TimeoutExpired as late:
        said = (late.stdout or b"").decode(errors="replace") if not alone else ""
        verdict = f"not done after {PIECE_SECONDS_MAX // 60} minutes"
    print(f"{said}{piece}: {time.monotonic() - begun:.0f} s, {verdict}", flush=True)
    return verdict == "exit 0"


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
    failed = []
    with ThreadPoolExecutor(options.jobs) as pool:
        runs = {pool.submit(run, piece, alone=options.jobs == 1): piece for piece in wanted}
        for number, done in enumerate(as_completed(runs), 1):
            if done.result():
                passed(now, runs[done])
            else:
                failed.append(runs[done])
            print(
                f"== {number} of {len(wanted)} long pieces done, {len(failed)} failed", flush=True
            )
    for piece in failed:
        print(f"failed: {piece}")
    left = len(set(everything) - passed(now))
    print(f"{len(wanted) - len(failed)} passed, {len(failed)} failed; {left} have not passed yet")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
