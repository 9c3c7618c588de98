"""Find the tests that depend on changed files, by the imports of src, tests and tools.

python tools/dependencies.py            tests that depend on what differs from main, nearest first
python tools/dependencies.py FILE ...   tests that depend on these files
"""

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import circles
import long_tests

ROOT = Path(__file__).resolve().parents[1]


def changed_files() -> list[Path]:
    """Files that differ from where this branch left main, committed or not, and untracked ones."""
    base = _git("merge-base", "HEAD", "main") or _git("merge-base", "HEAD", "origin/main")
    names = _git("diff", "--name-only", *(base or ["HEAD"]))
    names += _git("ls-files", "--others", "--exclude-standard")
    return [ROOT / name for name in dict.fromkeys(names)]


def _git(*arguments: str) -> list[str]:
    """The lines of a git command; none if it fails, as where there is no main."""
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.splitlines() if done.returncode == 0 else []


def imported_files() -> dict[Path, set[Path]]:
    """Each Python file of src and tests -> the files of both that it imports or names."""
    source = ROOT / "src"
    path_of = {circles.module_name(path, source): path for path in source.rglob("*.py")}
    found = {
        path_of[module]: {path_of[other] for other in others}
        for module, others in circles.graph_of(source).items()
    }
    for path in (ROOT / "tests").rglob("*.py"):
        modules = circles.imports_of(long_tests.tree_of(path), set(path_of))
        found[path] = {path_of[module] for module in modules} | long_tests.named_in(path)
        found[path] |= {parent / "conftest.py" for parent in path.parents if parent != ROOT.parent}
    return found


def dependents(changed: list[Path]) -> dict[Path, int]:
    """Files of tests -> how many imports away the nearest changed file is; nearest first."""
    importers: dict[Path, set[Path]] = defaultdict(set)
    for path, others in imported_files().items():
        for other in others:
            importers[other].add(path)
    for path in changed:
        importers[path] |= _naming(path)
    distance = dict.fromkeys(changed, 0)
    level = set(changed)
    steps = 0
    while level:
        steps += 1
        level = {path for other in level for path in importers[other]} - distance.keys()
        distance |= dict.fromkeys(level, steps)
    tests = [path for path in distance if path.name.startswith("test_") and path.suffix == ".py"]
    near = sorted(
        (path for path in tests if path.exists()), key=lambda path: (distance[path], path)
    )
    return {path: distance[path] for path in near}


def _naming(path: Path) -> set[Path]:
    """The files of tests that hold the name of a file nobody imports: of a tool, or of data."""
    if (ROOT / "src") in path.parents or (ROOT / "tests" in path.parents and path.suffix == ".py"):
        return set()
    tests = (ROOT / "tests").rglob("*.py")
    return {test for test in tests if f'"{path.name}"' in test.read_text()}


def main() -> int:
    named = [Path(name).resolve() for name in sys.argv[1:]]
    for path, steps in dependents(named or changed_files()).items():
        print(f"{steps} {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
