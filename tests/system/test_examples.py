"""Every example runs against a real node and prints what its page shows."""

import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow
import pytest
from deltalake import write_deltalake

from tests.support.jvm import java
from tests.support.kafka_jars import kafka_3_9_jars_or_reason
from tests.support.outside_tools import Missing

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
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


def test_each_record_comes_out_once_while_the_worker_is_killed(sparkraft_cluster):
    folder = EXAMPLES / "exactly_once"
    shown = run("run.py", sparkraft_cluster.bootstrap, cwd=folder)
    assert shown in (folder / "README.md").read_text()
    assert "each once: True" in shown


def shown_by(example: str, topic: str, bootstrap: str, tmp_path: Path) -> tuple[str, str]:
    """What a pipeline's `show.py` prints after it ran, and the README that shows the same."""
    if java() is None:
        pytest.skip("Spark needs Java; no java command was found")
    folder = shutil.copytree(EXAMPLES / example, tmp_path / example)
    server = ("--bootstrap-server", bootstrap)
    cli = ("-m", "sparkraft.cli.main")
    run(*cli, "topics", *server, "--create", "--topic", topic, "--partitions", "1", cwd=folder)
    run(
        *cli, "console-producer", *server, "--topic", topic,
        cwd=folder, stdin=folder / f"{topic}.jsonl",
    )  # fmt: skip
    once = ("--set", f"bootstrap={bootstrap}", "--once")
    run(*cli, "pipeline", "run", f"{topic}.toml", *once, cwd=folder)
    return run("show.py", cwd=folder), (folder / "README.md").read_text()


@pytest.mark.spark
def test_the_pipeline_prints_its_table(sparkraft_cluster, tmp_path: Path):
    shown, page = shown_by("pipeline", "orders", sparkraft_cluster.bootstrap, tmp_path)
    assert shown
    assert shown in page


@pytest.mark.spark
def test_each_record_comes_out_once_while_the_pipeline_is_killed(sparkraft_cluster, tmp_path: Path):
    if java() is None:
        pytest.skip("Spark needs Java; no java command was found")
    folder = shutil.copytree(EXAMPLES / "exactly_once_pipeline", tmp_path / "example")
    shown = run("run.py", sparkraft_cluster.bootstrap, cwd=folder)
    assert shown in (folder / "README.md").read_text()
    assert "each once: True" in shown


@pytest.mark.spark
@pytest.mark.long  # tests/pipeline/test_damaged_records.py has more, and stays in ./test
def test_dead_letters_are_printed(sparkraft_cluster, tmp_path: Path):
    shown, page = shown_by("dead_letters", "readings", sparkraft_cluster.bootstrap, tmp_path)
    assert "dead readings-0@5" in shown
    assert shown in page


@pytest.mark.java
@pytest.mark.long  # tests/zookeeper/migration/test_migration.py has one broker, and stays in ./test
@pytest.mark.parametrize("before", ["kafka", "sparkraft"])
def test_brokers_on_zookeeper_become_brokers_of_sparkraft(tmp_path: Path, before: str):
    libs = kafka_3_9_jars_or_reason()
    if isinstance(libs, Missing):
        pytest.skip(libs.reason)
    folder = EXAMPLES / "zookeeper_migration"
    done = subprocess.run(
        [folder / "run", "--from", before],
        cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout in (folder / "README.md").read_text()


def test_the_migration_says_how_to_run_it():
    shown = subprocess.run(
        [EXAMPLES / "zookeeper_migration" / "run", "--help"],
        capture_output=True, text=True, timeout=SECONDS_MAX, check=True,
    )  # fmt: skip
    page = (EXAMPLES / "zookeeper_migration" / "README.md").read_text()
    lines = [line for line in shown.stdout.splitlines() if line.startswith("  ")]
    commands = [line.strip().partition("  ")[0] for line in lines]
    assert len(commands) == 2
    assert all(f"$ {command}\n" in page for command in commands)


@pytest.mark.spark
@pytest.mark.long  # tests/pipeline/test_spark.py has source and sink in ./test
def test_a_declarative_pipeline_continues_in_its_second_run(sparkraft_cluster):
    if java() is None:
        pytest.skip("Spark needs Java; no java command was found")
    folder = EXAMPLES / "declarative_pipeline"
    shown = run("run.py", sparkraft_cluster.bootstrap, cwd=folder)
    assert shown.startswith("exit code 0: ONE")
    assert shown in (folder / "README.md").read_text()


@pytest.mark.spark
def test_the_tests_of_a_pipeline_pass(tmp_path: Path):
    if java() is None:
        pytest.skip("Spark needs Java; no java command was found")
    folder = shutil.copytree(EXAMPLES / "dead_letters", tmp_path / "dead_letters")
    command = ("-m", "sparkraft.cli.main", "pipeline", "test", "readings.toml")
    shown = run(*command, "--set", "bootstrap=none:1", cwd=folder)
    assert shown.startswith("passed  a reading becomes a row")
    assert shown.endswith("1 passed, 0 failed\n")


def test_programs_read_tables_without_threads_that_outlive_the_interpreter():
    """Threads of pyarrow that read files through Python abort a process that ends."""
    product = (ROOT / "src").rglob("*.py")
    programs = [*product, *EXAMPLES.rglob("*.py")]
    assert [str(path) for path in programs if ".to_pyarrow_" in path.read_text()] == []


def test_a_program_that_prints_a_table_ends_with_0(tmp_path: Path):
    orders = {"country": ["US", "FR"], "orders": [1, 2], "amount": [1.5, 2.0]}
    write_deltalake(str(tmp_path / "orders"), pyarrow.table(orders))
    for _ in range(10):
        shown = run(EXAMPLES / "pipeline" / "show.py", tmp_path / "orders", cwd=tmp_path)
        assert shown == "FR: 2 orders, 2.00\nUS: 1 orders, 1.50\n"


def test_every_example_is_on_the_page():
    page = (EXAMPLES / "README.md").read_text()
    for path in [*CLIENTS, EXAMPLES / "pytest_plugin" / "test_orders.py"]:
        assert f"]({path.relative_to(EXAMPLES)})" in page
