"""What the documents name exists: files, commands, options, classes; and nothing of one machine."""

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

ROOT = Path(__file__).parents[2]
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
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
    assert read.source["subscribe"] == "flights"
    # Without this a first run finds nothing: the flights are there before it starts.
    assert read.source["startingOffsets"] == "earliest"


def test_the_pipeline_page_shows_a_whole_file(tmp_path):
    (text,) = blocks("docs/pipelines.md", "toml")
    assert tomllib.loads(text)
    assert spec.parse(text, folder=tmp_path, values={"bootstrap": "h:1"}).watermark


NAMED = sorted(
    {
        name
        for name in re.findall(r"`([a-z_]+(?:\.\w+)+)`", (ROOT / "ARCHITECTURE.md").read_text())
        if name.partition(".")[0] in {p.name for p in (ROOT / "src/sparkraft").iterdir()}
    }
    - set(BROKER_CONFIGS)  # such as `controller.quorum.voters`
)


@pytest.mark.parametrize("name", NAMED)
def test_what_the_architecture_names_is_there(name):
    parts = f"sparkraft.{name}".removesuffix(".py").split(".")
    found = None
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        break
    assert found is not None


def test_classes_named_without_their_module_are_there():
    """In the walks: `Class.method`."""
    sources = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    for owner, method in re.findall(r"`([A-Z]\w+)\.(\w+)`", (ROOT / "ARCHITECTURE.md").read_text()):
        assert re.search(rf"^class {owner}\b", sources, re.MULTILINE), owner
        assert re.search(rf"^ +(?:async )?(?:def )?{method}\b", sources, re.MULTILINE), method


def test_the_light_core_loads_without_the_pipelines_packages():
    """What `pip install .` alone brings is enough for every command but `pipeline`."""
    blocked = ("numpy", "pyarrow", "pyspark", "deltalake", "pandas")
    program = (
        f"import sys\nsys.modules.update(dict.fromkeys({blocked!r}))\n"
        "from importlib import import_module\nfrom sparkraft.cli import main\n"
        "for module in main._MODULES.values(): import_module(module)\n"
        "import sparkraft.server.node, sparkraft.testing.pytest_plugin\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
