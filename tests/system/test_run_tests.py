"""`./test` reports every failure, ends what hangs, and puts each test into the right lane."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support import lanes
from tests.support.ports import wait_until

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import os, pytest
def test_pure(): print("said"); assert {pure}
@pytest.mark.real_time
def test_waiting(): assert {waiting}
@pytest.mark.real_time
def test_crashing(): {crashing}
@pytest.mark.real_time
def test_skipping(): pytest.skip("no such tool")
@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    yield
    print("ended", file=open("shared.txt", "a"))
@pytest.mark.real_time
@pytest.mark.parametrize("number", range(6))
def test_sharing(shared, number): pass
@pytest.mark.spark
def test_spark(): pass
"""


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_tests", ROOT / "tools" / "run_tests.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "run_tests", module)  # dataclasses look there
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "OUTPUT", tmp_path / "output")
    for options in module.WORKERS.values():  # a worker takes a second of the processor to start
        options[1] = "2" if options[1] == "3" else "1"
    return module


def run_lanes(tool: ModuleType, folder: Path, **bodies: str) -> bool:
    """Run the lanes over one file of tests; whether all steps passed."""
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n real_time: waits\n spark: too\n")
    (folder / "test_it.py").write_text(TESTS.format(**bodies))
    jobs = [tool.lane(name, "not long", ["test_it.py"]) for name in tool.WORKERS]
    for job in jobs:
        job.environment["PYTHONPATH"] = str(ROOT)
    tool.run_all(jobs)
    tool.show(jobs, tool.results_of(jobs))
    return not any(job.failures for job in jobs)


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]):
    return lambda: capsys.readouterr().out


def test_a_run_without_failures_passes_and_tells_why_tests_were_skipped(tool, tmp_path, shown):
    passed = run_lanes(tool, tmp_path, pure="True", waiting="True", crashing="pass")
    text = shown()
    assert passed, text
    assert "== tests" in (tool.OUTPUT / "spark.txt").read_text()
    spark = list(lanes.read_reports(tool.OUTPUT / "spark.jsonl"))
    assert [line["test"] for line in spark if "processor" in line] == ["test_it.py::test_spark"]
    assert "no such tool: test_it.py::test_skipping" in text
    assert (tmp_path / "shared.txt").read_text() == "ended\n", "one worker has a shared fixture"


def test_failures_of_both_lanes_and_crashes_are_shown_in_full(tool, tmp_path, shown):
    passed = run_lanes(tool, tmp_path, pure="1 == 2", waiting="3 == 4", crashing="os._exit(3)")
    text = shown()
    assert not passed
    for expected in ("assert 1 == 2", "said", "assert 3 == 4", "crashed while running"):
        assert expected in text
    for job in ("cpu", "wait"):
        assert f"FAILED {job}: tests: exit code 1" in text


def test_a_step_that_fails_or_hangs_does_not_keep_the_next_from_running(tool, tmp_path, shown):
    def step(code: str, seconds: float = 30) -> object:
        return tool.Step(code, [sys.executable, "-c", code], seconds)

    steps = [step("print('why'); exit(3)"), step("while 1: pass", 1), step("1")]
    (tmp_path / "output").mkdir()
    job = tool.Job("style", steps)
    job.run(tool.ProcessGroups())
    assert list(job.failures.values()) == ["exit code 3", "not done after 0.0166667 minutes: ended"]
    assert "why" in shown()
    assert "== 1\n" in job.output.read_text()


LANE = """
import os, subprocess, time, pytest
@pytest.fixture
def cluster():
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield process
    process.kill()
    process.wait()
    open("ended.txt", "a").write("cluster")
def test_it(cluster):
    open("started.txt", "a").write(f"{os.getpid()} {cluster.pid} ")
    time.sleep(600)
"""
STUBBORN = """
import os, signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
open("stubborn.txt", "a").write(f"{os.getpid()} {os.spawnlp(os.P_NOWAIT, 'sleep', 'sleep', '600')}")
time.sleep(600)
"""
STOPPED = """
import pathlib, sys
tool_folder, folder = map(pathlib.Path, sys.argv[1:])
sys.path.insert(0, str(tool_folder))
import process_groups, run_tests
run_tests.ROOT, run_tests.OUTPUT = folder, folder / "output"
if (folder / "stubborn.py").exists():
    process_groups.ProcessGroups.stop.__defaults__ = (2.0,)
    step = run_tests.Step("stubborn", [sys.executable, "stubborn.py"])
    jobs = [run_tests.Job("style", [step])]
else:
    jobs = [run_tests.lane("cpu", "not long", ["test_it.py"])]
    jobs[0].environment["PYTHONPATH"] = str(tool_folder.parent)
process_groups.interrupt_on_signals()
run_tests.run_all(jobs)
"""


IGNORING_SIGINT = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]
"""As a shell starts jobs in the background."""


def is_running(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def terminate_a_run(folder: Path, started: Path) -> None:
    """Terminate a run of what is in `folder`: the two processes named in `started` end."""
    run = subprocess.Popen(
        [*IGNORING_SIGINT, sys.executable, "-c", STOPPED, str(ROOT / "tools"), str(folder)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        wait_until(lambda: started.exists() and started.read_text(), "the job runs", 60)
        run.send_signal(signal.SIGTERM)
        shown, _ = run.communicate(timeout=60)
    finally:
        run.kill()
    pids = [int(pid) for pid in started.read_text().split()]
    assert len(pids) == 2
    assert run.returncode == 1
    assert shown.endswith("interrupted\n"), shown
    wait_until(lambda: not any(map(is_running, pids)), "what the job has started ends", 10)


def test_a_run_that_is_terminated_ends_the_fixtures_of_its_lanes(tmp_path: Path) -> None:
    """Also a cluster in a session of its own."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(LANE)
    terminate_a_run(tmp_path, tmp_path / "started.txt")
    assert (tmp_path / "ended.txt").read_text() == "cluster", "pytest ends its fixtures"


def test_a_run_that_is_terminated_kills_what_ignores_the_interrupt(tmp_path: Path) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    terminate_a_run(tmp_path, tmp_path / "stubborn.txt")


def test_a_test_whose_lane_its_file_does_not_show_stops_the_run(tmp_path: Path) -> None:
    """Workers of the other lane do not collect the file: the test would never run."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = real_time: waits\n")
    (tmp_path / "marks.py").write_text("import pytest\nwaiting = pytest.mark.real_time\n")
    (tmp_path / "test_it.py").write_text(
        "from marks import waiting\n@waiting\ndef test_of_nodes(): pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.lanes", "--lane", "cpu", "."]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "test_of_nodes is in lane wait, but the text of its file does not show it" in done.stderr


def test_tests_of_nodes_are_detected_by_their_imports() -> None:
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only",
        "-p", "tests.support.lanes", "--lane", "wait",
        "tests/server/test_node.py", "tests/raft/test_states.py",
    ]  # fmt: skip
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    assert "tests/server/test_node.py" in found
    assert "tests/raft/test_states.py" not in found


def dependents_of(*names: str) -> set[str]:
    command = [sys.executable, "tools/dependencies.py", *names]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {line.partition(" ")[2] for line in told.splitlines()}


def test_tests_depend_on_what_they_import_and_name() -> None:
    found = dependents_of("src/sparkraft/raft/votes.py", "tools/long_tests.py")
    assert "tests/raft/test_scenarios.py" in found
    assert "tests/system/test_long_tests.py" in found
    assert "tests/protocol/test_framing.py" not in found


def test_a_line_that_is_still_being_written_is_left_out(tmp_path: Path) -> None:
    report = tmp_path / "report.jsonl"
    report.write_text(json.dumps({"tests": 2}) + '\n{"test": "a.py::test')
    assert list(lanes.read_reports(report)) == [{"tests": 2}]
