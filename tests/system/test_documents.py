"""The documents name only files, commands, options and classes that exist, and no local paths."""

import importlib
import io
import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from sparkraft.cli import main as cli
from sparkraft.metadata.configs import BROKER_CONFIGS
from sparkraft.pipeline import spec
from sparkraft.server.zookeeper_config import ZOOKEEPER_CONFIGS

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")}
)
BY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@BY_PAGE
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


@BY_PAGE
def test_a_page_names_no_place_on_one_machine(page):
    assert not re.search(r"(?<![\w.])/(?:work|root|home|tmp)/", page.read_text())


def blocks(page: str, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL
    )


def commands() -> list[str]:
    text = "".join(blocks("README.md", "")).replace("\\\n", " ")
    return [line for line in text.splitlines() if "sparkraft " in line.partition("#")[0]]


@pytest.mark.parametrize(
    "line", [line for line in commands() if "──" not in line and "│" not in line]
)
def test_the_readmes_commands_have_the_options_shown(line):
    words = shlex.split(line.partition("sparkraft ")[2], comments=True)
    shown = io.StringIO()
    with redirect_stdout(shown), pytest.raises(SystemExit):
        cli.main([words[0], "--help"])
    for word in words[1:]:
        if word.startswith("--"):
            assert re.search(rf"{re.escape(word)}\b", shown.getvalue()), word


def test_the_readmes_pipeline_is_one(tmp_path):
    (text,) = blocks("README.md", "toml")
    assert len(text.splitlines()) == 10
    read = spec.parse(text, folder=tmp_path, values={})
    (source,) = read.sources
    assert source.options["subscribe"] == "flights"
    # Without this a first run finds nothing: the flights are there before it starts.
    assert source.options["startingOffsets"] == "earliest"


def test_the_pipeline_page_shows_a_whole_file(tmp_path):
    (text,) = blocks("docs/pipelines.md", "toml")
    assert tomllib.loads(text)
    assert spec.parse(text, folder=tmp_path, values={"bootstrap": "h:1"}).sources[0].watermark


def code_in(page: Path) -> list[str]:
    """Code spans and lines of code blocks, without comments in blocks."""
    lines, spans, in_block = [], [], False
    for line in page.read_text().splitlines():
        if line.lstrip().startswith("```"):
            in_block = not in_block
        elif in_block or line.startswith("    "):
            spans.append(line.partition("#")[0])
        else:
            lines.append(line)
    return [*re.findall(r"`([^`]+)`", "\n".join(lines)), *spans]


@BY_PAGE
def test_the_commands_named_exist(page):
    code = "\n".join(code_in(page))
    commands = set(re.findall(r"(?<![\w./-])sparkraft ([a-z][a-z-]*)(?![\w.-])", code))
    assert commands <= cli._MODULES.keys()


@BY_PAGE
def test_the_programs_named_exist(page):
    code = "\n".join(code_in(page))
    for program in set(re.findall(r"(?<![\w./])(?:\./(?!\.)|tools/)[a-z][\w.-]*\b", code)):
        assert (ROOT / program).is_file(), program


PATHS = re.compile(r"^(?:[\w.-]+/)+[\w.*-]+/?$")


@BY_PAGE
def test_the_paths_named_exist(page):
    tops = {path.name for path in ROOT.iterdir()}
    rooms = {path.name for path in (ROOT / "src/sparkraft").iterdir()}
    for path in filter(PATHS.match, code_in(page)):
        top = path.partition("/")[0]
        base = ROOT if top in tops else ROOT / "src/sparkraft" if top in rooms else None
        if base is not None and "NN" not in path:
            assert (base / path).exists(), path


KEYS_OF_KAFKA = {*BROKER_CONFIGS, *ZOOKEEPER_CONFIGS, "metadata.version", "client.rack"}
"""Kafka's keys that begin like one of our packages."""


def names_of_code(page: Path) -> set[str]:
    """Dotted names that begin with one of our packages, without `sparkraft.`."""
    packages = {path.name for path in (ROOT / "src/sparkraft").iterdir()}
    dotted = re.findall(r"`(?:sparkraft\.)?([a-z_]+(?:\.\w+)+)`", page.read_text())
    return {name for name in dotted if name.partition(".")[0] in packages} - KEYS_OF_KAFKA


NAMED = [
    pytest.param(name, id=f"{page.relative_to(ROOT)}-{name}")
    for page in PAGES
    for name in sorted(names_of_code(page))
]


@pytest.mark.parametrize("name", NAMED)
def test_the_code_named_exists(name):
    parts = f"sparkraft.{name}".removesuffix(".py").split(".")
    found = None
    for count in range(len(parts), 1, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        break
    assert found is not None


CLASS = re.compile(r"^class (\w+).*?(?=^\S(?<!\)))", re.MULTILINE | re.DOTALL)


def classes() -> dict[str, list[str]]:
    """The source of every class of ours, by name; several may share one."""
    found: dict[str, list[str]] = {}
    for path in (ROOT / "src").rglob("*.py"):
        for body in re.findall(
            r"^class .*?(?=^\S(?<!\)))", path.read_text() + "\nx", re.MULTILINE | re.DOTALL
        ):
            found.setdefault(re.match(r"class (\w+)", body)[1], []).append(body)
    return found


CLASSES = classes()


@BY_PAGE
def test_classes_named_without_their_module_exist(page):
    """Such as `Class.method`."""
    for owner, member in re.findall(r"`([A-Z]\w+)\.(\w+)`", page.read_text()):
        assert owner in CLASSES, owner
        defined = rf"(?:def |^    |self\.|\"){member}\b"
        assert any(re.search(defined, body, re.MULTILINE) for body in CLASSES[owner]), (
            f"{owner}.{member}"
        )


def test_the_classes_in_the_architecture_exist():
    names = re.findall(r"`([A-Z][a-z]+[A-Z]\w+)`", (ROOT / "ARCHITECTURE.md").read_text())
    assert set(names) <= CLASSES.keys()


def test_the_light_core_loads_without_the_pipelines_packages():
    """`pip install .` is enough for every command except `pipeline`."""
    blocked = ("numpy", "pyarrow", "pyspark", "deltalake", "pandas")
    program = (
        f"import sys\nsys.modules.update(dict.fromkeys({blocked!r}))\n"
        "from importlib import import_module\nfrom sparkraft.cli import main\n"
        "for module in main._MODULES.values(): import_module(module)\n"
        "import sparkraft.server.node, sparkraft.testing.pytest_plugin\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_pages_that_the_source_cites_exist():
    for folder in ("src", "tests", "tools", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text()
            for cited in re.findall(r"\bdocs/[\w./-]+\.md\b", text):
                assert (ROOT / cited).is_file(), f"{path}: {cited}"
            assert not re.search(r"\bDESIGN [D§]\d?|\(D\d+\)", text) or path == Path(__file__), path
