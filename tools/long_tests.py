"""Runs the tests marked `long`, each a piece of its own, and goes on where it stopped.

    python tools/long_tests.py             the pieces that have not passed yet on this source
    python tools/long_tests.py NAME …      just those whose name holds NAME, again
    python tools/long_tests.py --list      their names

A piece may take 45 minutes. What has passed is kept in .cache/long-tests.json, under a digest of
the source and the tests: any change to them starts over.
"""

import hashlib
import json
import subprocess
import sys
import time
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


def digest() -> str:
    """Names the state of the source and the tests."""
    total = hashlib.sha256()
    for folder in ("src", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            total.update(path.read_bytes())
    return total.hexdigest()


def run(piece: str) -> bool:
    """Run one piece; whether it passed."""
    print(piece, flush=True)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-m", "long", piece]
    begun = time.monotonic()
    try:
        code = subprocess.run(command, cwd=ROOT, timeout=PIECE_SECONDS_MAX, check=False).returncode
    except subprocess.TimeoutExpired:
        print(f"{piece}: not done after {PIECE_SECONDS_MAX // 60} minutes")
        return False
    print(f"{piece}: {time.monotonic() - begun:.0f} s, exit {code}")
    return code == 0


def main() -> int:
    """Run what is wanted and not done yet."""
    now = digest()
    state = json.loads(STATE.read_text()) if STATE.exists() else {}
    passed = set(state.get("passed", [])) if state.get("digest") == now else set()
    everything, names = pieces(), sys.argv[1:]
    if names == ["--list"]:
        print(
            "\n".join(f"{'passed' if each in passed else '      '} {each}" for each in everything)
        )
        return 0
    wanted = [
        piece
        for piece in everything
        if (any(name in piece for name in names) if names else piece not in passed)
    ]
    if names and not wanted:
        sys.exit(f"no long test's name holds {' or '.join(names)}; --list tells them")
    failed = []
    for number, piece in enumerate(wanted, 1):
        print(f"\n== long piece {number} of {len(wanted)}", flush=True)
        if run(piece):
            passed.add(piece)
        else:
            failed.append(piece)
        STATE.parent.mkdir(exist_ok=True)
        STATE.write_text(json.dumps({"digest": now, "passed": sorted(passed)}))
    print(f"\n{len(passed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
