"""Every example runs against a real node and prints what its page shows."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.jvm import java

EXAMPLES = Path(__file__).parents[2] / "examples"
CLIENTS = sorted((EXAMPLES / "clients").glob("*.py"))
SECONDS_MAX = 300

pytestmark = pytest.mark.real_clients


def run(*command: str | Path, cwd: Path, stdin: Path | None = None) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        input=None if stdin is None else stdin.read_text(),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("program", CLIENTS, ids=lambda path: path.stem)
def test_a_client_reads_its_greetings(program: Path, sparkraft_cluster, tmp_path: Path):
    shown = run(program, sparkraft_cluster.bootstrap, cwd=tmp_path)
    assert shown == "en: hello\nes: hola\nfr: bonjour\n"


def test_the_pytest_example_passes(tmp_path: Path):
    program = shutil.copy(EXAMPLES / "pytest_plugin" / "test_orders.py", tmp_path)
    shown = run("-m", "pytest", "-q", "-p", "no:cacheprovider", program, cwd=tmp_path)
    assert "2 passed" in shown


@pytest.mark.spark
def test_the_pipeline_prints_its_table(sparkraft_cluster, tmp_path: Path):
    if java() is None:
        pytest.skip("Spark needs Java, and there is no java command")
    folder = shutil.copytree(EXAMPLES / "pipeline", tmp_path / "pipeline")
    server = ("--bootstrap-server", sparkraft_cluster.bootstrap)
    cli = ("-m", "sparkraft.cli.main")
    run(*cli, "topics", *server, "--create", "--topic", "orders", "--partitions", "3", cwd=folder)
    run(
        *cli, "console-producer", *server, "--topic", "orders",
        cwd=folder, stdin=folder / "orders.jsonl",
    )  # fmt: skip
    once = ("--set", f"bootstrap={sparkraft_cluster.bootstrap}", "--once")
    run(*cli, "pipeline", "run", "orders.toml", *once, cwd=folder)
    shown = run("show.py", cwd=folder)
    assert shown
    assert shown in (folder / "README.md").read_text()


def test_every_example_is_on_the_page():
    page = (EXAMPLES / "README.md").read_text()
    for path in [*CLIENTS, EXAMPLES / "pytest_plugin" / "test_orders.py"]:
        assert f"]({path.relative_to(EXAMPLES)})" in page
