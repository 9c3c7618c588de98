"""What a long piece ran decides whether it has to run again, no more and no less."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "long_tests.py"
FILES = {
    "src/sparkraft/node.py": "",
    "tests/conftest.py": "",
    "tests/far/conftest.py": "",
    "tests/far/test_it.py": "from tests.support import world",
    "tests/far/test_other.py": "",
    "tests/far/golden.hex": "00",
    "tests/near/conftest.py": "",
    "tests/near/test_all.py": "import pytest\npytest.main(['tests/far'])",
    "tests/support/world.py": "import sys\nCOMMAND = [sys.executable, '-m', 'tests.support.flood']",
    "tests/support/flood.py": "import tests.support.ports",
    "tests/support/ports.py": "",
    "tests/support/nobody.py": "",
}
COMMON = {"src/sparkraft/node.py", "tests/conftest.py", "tests/far/golden.hex"}
OF_FAR = {
    "tests/far/conftest.py",
    "tests/far/test_it.py",
    "tests/support/world.py",
    "tests/support/flood.py",
    "tests/support/ports.py",
}


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The tool, over a tree of its own."""
    spec = importlib.util.spec_from_file_location("long_tests", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "STATE", tmp_path / ".cache" / "long-tests.json")
    return module


def changed_by(tool: ModuleType, piece: str, root: Path) -> set[str]:
    """The files after whose change `piece` is another."""
    found = set()
    for name, text in FILES.items():
        before = tool.digest(piece)
        (root / name).write_text(text + ("\n# More." if name.endswith(".py") else "ff"))
        if tool.digest(piece) != before:
            found.add(name)
    return found


def test_a_piece_depends_on_what_it_loads_and_starts(tool: ModuleType, tmp_path: Path) -> None:
    assert changed_by(tool, "tests/far/test_it.py::test_one[x]", tmp_path) == COMMON | OF_FAR


def test_a_piece_that_runs_a_folder_depends_on_all_of_it(tool: ModuleType, tmp_path: Path) -> None:
    near = {"tests/near/conftest.py", "tests/near/test_all.py", "tests/far/test_other.py"}
    piece = "tests/near/test_all.py::test_one"
    assert changed_by(tool, piece, tmp_path) == COMMON | OF_FAR | near


def test_what_passed_counts_as_long_as_it_is_the_same(tool: ModuleType, tmp_path: Path) -> None:
    pieces = ["tests/far/test_it.py::test_one", "tests/far/test_other.py::test_two"]
    for piece in pieces:
        tool.passed({p: tool.digest(p) for p in pieces}, piece)
    (tmp_path / "tests/support/ports.py").write_text("import os")
    assert tool.passed({p: tool.digest(p) for p in pieces}) == {pieces[1]}


def test_what_was_skipped_has_not_passed_and_what_failed_leaves_its_files(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = long: takes long")
    ends = {
        "passed": "def test_one(): pytest.skip('no jars')\ndef test_two(): pass",
        "failed": "def test_one(tmp_path): (tmp_path / 'trace').touch(); raise AssertionError",
        "skipped": "def test_one(): pytest.skip('no jars')",
    }
    pieces = {end: f"tests/near/test_{end}.py" for end in ends}
    for end, text in ends.items():
        (tmp_path / pieces[end]).write_text(f"import pytest\npytestmark = pytest.mark.long\n{text}")
    now = {piece: tool.digest(piece) for piece in pieces.values()}
    of = tool._run_all(list(now), now, jobs=2)
    assert {outcome.value: found for outcome, found in of.items()} == {
        end: [piece] for end, piece in pieces.items()
    }
    assert tool.passed(now) == {pieces["passed"]}
    said = capsys.readouterr().out
    assert all(f"{piece}: {end}, " in said for end, piece in pieces.items())
    assert [path.name for path in (tmp_path / ".cache" / "long-tests").rglob("trace")] == ["trace"]
