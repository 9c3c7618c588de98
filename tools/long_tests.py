"""Runs the tests marked `long`, a piece a folder of tests, and goes on where it stopped.

    python tools/long_tests.py             the pieces that have not passed yet on this source
    python tools/long_tests.py NAME …      just these, again

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
    """Folders of tests in which something is marked long, by name."""
    marked = {
        path.parent.relative_to(ROOT / "tests").parts[0]
        for path in (ROOT / "tests").rglob("test_*.py")
        if "mark.long" in path.read_text()
    }
    return sorted(marked)


def digest() -> str:
    """Names the state of the source and the tests."""
    total = hashlib.sha256()
    for folder in ("src", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            total.update(path.read_bytes())
    return total.hexdigest()


def run(piece: str) -> bool:
    """Run one piece; whether it passed."""
    print(f"\n== long piece: {piece}", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", "-m", "long", f"tests/{piece}"]
    begun = time.monotonic()
    try:
        code = subprocess.run(command, cwd=ROOT, timeout=PIECE_SECONDS_MAX, check=False).returncode
    except subprocess.TimeoutExpired:
        print(f"{piece}: not done after {PIECE_SECONDS_MAX // 60} minutes")
        return False
    print(f"{piece}: {time.monotonic() - begun:.0f} s, exit {code}")
    return code in {0, NOTHING_RAN}


def main() -> int:
    """Run what is wanted and not done yet."""
    now = digest()
    state = json.loads(STATE.read_text()) if STATE.exists() else {}
    passed = set(state.get("passed", [])) if state.get("digest") == now else set()
    wanted = sys.argv[1:] or [piece for piece in pieces() if piece not in passed]
    failed = []
    for piece in wanted:
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
