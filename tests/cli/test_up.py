"""`up`, `down` and `node`: real processes, ended by their own ids."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from sparkraft.cli import local_cluster, local_console, local_process
from sparkraft.cli import main as cli
from sparkraft.storage.disk import OsDisk
from sparkraft.storage.meta_properties import read_meta_properties
from tests.support.ports import accepts, cluster_port, wait_until

pytestmark = pytest.mark.real_clients

SECONDS = 60


@pytest.fixture
def home(tmp_path):
    directory = tmp_path / "cluster"
    yield directory
    if (directory / "cluster.json").exists():
        cli.main(["down", "--dir", str(directory)])


@pytest.fixture
def up(home, capsys):
    port = cluster_port()

    def start(*more: str, has_console: bool = False) -> dict:
        options = [*more] if has_console else [*more, "--no-console"]
        code = cli.main(["up", "--dir", str(home), "--port", str(port), "--detach", *options])
        said = capsys.readouterr()
        assert code == 0, said.err
        return described(home)

    return start


def described(home) -> dict:
    return json.loads((home / "cluster.json").read_text())


def node_command(home, action: str, node: str = "1") -> int:
    return cli.main(["node", action, node, "--dir", str(home)])


def health(cluster: dict) -> int:
    url = f"http://127.0.0.1:{cluster['nodes'][0]['http_port']}/health"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_detach_returns_once_it_serves_and_the_file_tells_all(up, home, capsys):
    cluster = up()
    (node,) = cluster["nodes"]
    assert accepts(node["port"])
    assert cluster["bootstrap"] == f"127.0.0.1:{node['port']}"
    assert health(cluster) == 200
    os.kill(node["pid"], 0)
    assert "is ready" in Path(node["log"]).read_text()
    listed = cli.main(["topics", "--bootstrap-server", cluster["bootstrap"], "--list"])
    assert (listed, capsys.readouterr().out) == (0, "\n")
    features = ["features", "--bootstrap-server", cluster["bootstrap"], "describe"]
    assert cli.main([*features, "--output", "json"]) == 0
    levels = {row["feature"]: row for row in json.loads(capsys.readouterr().out)}
    assert levels["kraft.version"]["finalizedVersionLevel"] == "1", "voters can come and go"


def test_files_of_the_folder_it_is_started_in_are_not_taken_for_modules(up, tmp_path, monkeypatch):
    (tmp_path / "nt.py").write_text("raise SystemExit(1)")  # pathlib tries to import it
    monkeypatch.chdir(tmp_path)
    assert accepts(up()["nodes"][0]["port"])


def test_a_second_up_finds_it_running_and_down_ends_it(up, home, capsys):
    first = up()
    assert up()["nodes"][0]["pid"] == first["nodes"][0]["pid"]
    assert cli.main(["up", "--dir", str(home)]) == 1
    assert "is up already" in capsys.readouterr().err
    assert cli.main(["down", "--dir", str(home)]) == 0
    assert not accepts(first["nodes"][0]["port"])
    assert described(home)["nodes"][0]["pid"] is None


def test_what_a_running_cluster_was_started_without_is_refused(up, home, capsys):
    first = up("--override", "num.partitions=2")
    port = first["nodes"][0]["port"]

    def second(*options: str) -> str:
        assert cli.main(["up", "--dir", str(home), "--detach", *options]) == 1
        return capsys.readouterr().err

    said = second("--port", str(port + 1), "--override", "num.partitions=3", "--listen", "0.0.0.0")
    assert f"up on 127.0.0.1:{port}, without --port {port + 1} --listen 0.0.0.0" in said
    assert "--override num.partitions=3" in said
    assert "sparkraft down" in said
    assert up("--override", "num.partitions=2", "--listen", "127.0.0.1") == first
    assert not accepts(port + 1)


def test_what_was_written_is_there_after_down_and_up(up, home, capsys):
    bootstrap = ["--bootstrap-server", up()["bootstrap"]]
    assert cli.main(["topics", *bootstrap, "--create", "--topic", "kept"]) == 0
    cli.main(["down", "--dir", str(home)])
    up()
    capsys.readouterr()
    assert cli.main(["topics", *bootstrap, "--list"]) == 0
    assert capsys.readouterr().out == "kept\n"


def test_a_node_is_paused_resumed_killed_started_and_stopped(up, home, capsys):
    cluster = up()
    pid = cluster["nodes"][0]["pid"]
    assert node_command(home, "pause") == 0

    def state() -> str:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

    wait_until(lambda: state() == "T", "the node is stopped by a signal", SECONDS)
    assert node_command(home, "resume") == 0
    wait_until(lambda: health(cluster) == 200, "it is healthy again", SECONDS)
    assert node_command(home, "kill") == 0
    assert described(home)["nodes"][0]["state"] == "killed"
    assert node_command(home, "kill") == 1
    assert "node 1 is not running" in capsys.readouterr().err
    assert node_command(home, "start") == 0
    assert described(home)["nodes"][0]["pid"] != pid
    assert node_command(home, "start") == 1
    assert node_command(home, "stop") == 0
    assert node_command(home, "stop", "7") == 1
    assert "node 7 does not exist" in capsys.readouterr().err


def test_a_paused_node_still_ends_by_down(up, home):
    port = up()["nodes"][0]["port"]
    node_command(home, "pause")
    assert cli.main(["down", "--dir", str(home)]) == 0
    assert not accepts(port)


WITH_SIGINT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
"""Starts Python as a terminal does: a shell has what it puts into the background ignore SIGINT, and
the tests may be started there."""


@pytest.mark.parametrize("wanted", [signal.SIGINT, signal.SIGTERM])
def test_in_the_foreground_it_ends_its_nodes_at_a_signal(home, wanted):
    port = cluster_port()
    up = ["-m", "sparkraft.cli.main", "up", "--no-console", "--dir", str(home)]
    up += ["--port", str(port)]
    process = subprocess.Popen(
        [sys.executable, "-c", WITH_SIGINT, *up],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith(f"up: 127.0.0.1:{port}")
    process.send_signal(wanted)
    rest, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    assert rest.endswith("stopped\n")
    assert not accepts(port)


def test_in_the_foreground_a_node_that_ends_by_itself_is_reported(home):
    place = ["--dir", str(home), "--port", str(cluster_port())]
    process = subprocess.Popen(
        [sys.executable, "-m", "sparkraft.cli.main", "up", "--no-console", *place],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    os.kill(described(home)["nodes"][0]["pid"], signal.SIGKILL)
    _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert "node 1 exited" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--nodes", "2"], "1, 3 or 5"),
        (["--nodes", "0"], "1, 3 or 5"),
        (["--nodes", "3", "--brokers", "2"], "leave out"),
        (["--controllers", "3"], "go together"),
        (["--controllers", "4", "--brokers", "1"], "1, 3 or 5"),
        (["--controllers", "1", "--brokers", "0"], "--brokers is between"),
        (["--nodes", "3", "--port", "65534"], "--port is between"),
    ],
)
def test_a_layout_that_makes_no_sense_is_refused(home, capsys, options, said):
    with pytest.raises(SystemExit) as ended:
        sys.exit(cli.main(["up", "--dir", str(home), *options]))
    assert ended.value.code
    assert said in capsys.readouterr().err
    assert not home.exists()


def test_a_taken_port_is_named(up, home, tmp_path, capsys):
    port = up()["nodes"][0]["port"]
    other = tmp_path / "other"
    assert cli.main(["up", "--dir", str(other), "--port", str(port), "--detach"]) == 1
    assert f"port {port} on 127.0.0.1 is taken" in capsys.readouterr().err


def test_a_port_taken_beside_the_clients_is_named_and_replaced(up, home, capsys):
    import socket

    port = cluster_port()
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port + 1_000))
        taken.listen()
        options = ["--dir", str(home), "--port", str(port), "--detach", "--no-console"]
        assert cli.main(["up", *options]) == 0
    said = capsys.readouterr().err
    (node,) = described(home)["nodes"]
    assert node["controller_port"] == port + 1_001
    assert said == (
        f"port {port + 1_000} on 127.0.0.1 is taken; using {port + 1_001} for node 1's controller "
        "listener\n"
    )
    assert node["http_port"] == port + 2_000


def test_help_names_all_ports(capsys):
    with pytest.raises(SystemExit):
        cli.main(["up", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "PORT+1000" in said
    assert "PORT+2000" in said
    assert "PORT+3000" in said


def console_title(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.read()
    except urllib.error.URLError:
        return b""


def test_the_console_starts_and_ends_with_the_cluster(up, home, capsys):
    cluster = up(has_console=True)
    recorded = json.loads((home / "console.json").read_text())
    url = f"http://127.0.0.1:{cluster['nodes'][0]['port'] + 3_000}/"
    wait_until(lambda: b"sparkraft console" in console_title(url), "its page is served", SECONDS)
    up(has_console=True)
    assert json.loads((home / "console.json").read_text()) == recorded, "it runs already"
    assert "console" not in cluster, "an earlier version can still read the file"
    assert cli.main(["down", "--dir", str(home)]) == 0
    assert not accepts(cluster["nodes"][0]["port"] + 3_000)
    assert json.loads((home / "console.json").read_text())["pid"] is None


def test_up_does_not_wait_for_the_console(up, home, monkeypatch):
    """The cluster serves, also if the process of the console never listens."""
    launch = local_process.launch

    def hangs(recorded, command, *more):
        is_console = "console" in command
        sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
        launch(recorded, sleep if is_console else command, *more)

    monkeypatch.setattr(local_process, "launch", hangs)
    (node,) = up(has_console=True)["nodes"]
    assert accepts(node["port"])
    assert not accepts(node["port"] + 3_000)
    assert cli.main(["down", "--dir", str(home)]) == 0
    assert json.loads((home / "console.json").read_text())["pid"] is None


def test_without_the_extra_one_line_says_how_to_install_it(home, capsys, monkeypatch):
    monkeypatch.setattr(local_console, "is_installed", lambda: False)
    options = ["--dir", str(home), "--port", str(cluster_port()), "--detach"]
    assert cli.main(["up", *options]) == 0
    assert "console  not installed; `pip install 'sparkraft[console]'`" in capsys.readouterr().out
    assert not (home / "console.json").exists()
    assert cli.main(["up", *options, "--no-console"]) == 0
    assert "console" not in capsys.readouterr().out


def test_a_cluster_that_others_reach_says_what_is_open(up, home, capsys):
    port = cluster_port()
    options = ["--port", str(port), "--detach", "--advertise", "localhost"]
    assert cli.main(["up", "--dir", str(home), *options, "--listen", "0.0.0.0"]) == 0
    said = capsys.readouterr().out
    (node,) = described(home)["nodes"]
    assert "open     to everyone who reaches 0.0.0.0, without authentication" in said
    assert f"clients on {port}; /health and /metrics on {node['http_port']}" in said
    console = port + 3_000
    assert f"console  http://127.0.0.1:{console}/" in said
    wait_until(lambda: accepts(console), "the console listens", SECONDS)
    with socket.socket() as probe:
        # A listener on all addresses would accept it, as the node's does.
        assert probe.connect_ex(("127.0.0.2", port)) == 0
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.2", console)) == errno.ECONNREFUSED
    cli.main(["down", "--dir", str(home)])
    capsys.readouterr()
    options.append("--no-console")
    assert cli.main(["up", "--dir", str(home), *options, "--listen", "127.0.0.1"]) == 0
    said = capsys.readouterr().out
    assert "open     to everyone on this machine, without authentication or encryption" in said
    assert f"clients on {port}; /health and /metrics on {node['http_port']}\n" in said


def meta_of(node: dict):
    return read_meta_properties(OsDisk(), node["data"])


def test_the_file_and_the_data_agree_on_ids(up, home, capsys):
    cluster = up()
    (node,) = cluster["nodes"]
    assert meta_of(node).cluster_id == cluster["cluster_id"]
    assert str(meta_of(node).directory_id) == node["directory_id"]
    cli.main(["down", "--dir", str(home)])
    (home / "cluster.json").unlink()
    again = up()
    assert again["cluster_id"] == cluster["cluster_id"]
    assert again["nodes"][0]["directory_id"] == node["directory_id"]
    cli.main(["down", "--dir", str(home)])
    capsys.readouterr()
    again = described(home)
    again["cluster_id"] = "AAAAAAAAAAAAAAAAAAAAAA"
    (home / "cluster.json").write_text(json.dumps(again))
    assert cli.main(["up", "--dir", str(home), "--detach"]) == 1
    assert f"is of cluster {cluster['cluster_id']}" in capsys.readouterr().err


def test_the_file_has_the_directory_ids_of_brokers_too(up):
    for node in up("--controllers", "1", "--brokers", "1")["nodes"]:
        assert str(meta_of(node).directory_id) == node["directory_id"]


def test_a_config_the_node_refuses_is_shown_from_its_log(home, capsys):
    port = cluster_port()
    override = "--override=broker.session.timeout.ms=1"
    code = cli.main(["up", "--dir", str(home), "--port", str(port), "--detach", override])
    assert code == 1
    assert "broker.session.timeout.ms" in capsys.readouterr().err


def test_down_and_node_need_a_cluster(tmp_path, capsys):
    for argv in (["down"], ["node", "stop", "1"]):
        assert cli.main([*argv, "--dir", str(tmp_path / "none")]) == 1
        assert "no cluster lives in" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_a_process_that_only_has_the_same_id_is_not_ours():
    node = local_cluster.LocalNode(
        id=1, port=1, controller_port=2, http_port=3, properties="", data="", log="",
        pid=os.getpid(), started="some other time",
    )  # fmt: skip
    assert not local_cluster.is_running(node)
    with pytest.raises(local_cluster.CommandError):
        local_cluster.kill(node)


def test_a_process_runs_until_its_last_thread_has_ended():
    """Its main thread ends first and is a zombie; the other goes on until its input ends."""
    program = (
        "import ctypes, sys, threading\n"
        "threading.Thread(target=sys.stdin.read).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as process:
        node = local_cluster.LocalNode(
            id=1, port=1, controller_port=2, http_port=3, properties="", data="", log="",
            pid=process.pid, started=local_process.start_of(process.pid),
        )  # fmt: skip

        def state() -> str:
            return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]

        wait_until(lambda: state() == "Z", "its main thread has ended", SECONDS)
        assert local_cluster.is_running(node)
        process.kill()
        wait_until(lambda: not local_cluster.is_running(node), "it has ended", SECONDS)
