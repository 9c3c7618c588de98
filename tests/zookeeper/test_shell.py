"""`zookeeper-shell` prints what ZooKeeper's own shell prints."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from sparkraft.cli import zookeeper_shell
from tests.support.jvm import java_command
from tests.support.zookeeper import Ensemble

pytestmark = [pytest.mark.java, pytest.mark.real_time]

NOISE = re.compile(
    r"^(Connecting to .*|WATCHER::|WatchedEvent .*|WARN.*|SLF4J.*|log4j.*"
    r"|Welcome to ZooKeeper!|JLine support is .*|)$"
)
SESSION = [
    "create /{0}/a one",
    "create -s /{0}/n-",
    "create /{0}/a",
    "create /{0}/x/y",
    "get /{0}/a",
    "get -s /{0}/a",
    "set /{0}/a two",
    "set -v 7 /{0}/a three",
    "set -s /{0}/a four",
    "get /{0}/a",
    "ls /{0}",
    "ls -R /{0}",
    "ls -s /{0}",
    "ls /{0}/none",
    "stat /{0}/a",
    "getAcl /{0}/a",
    "delete /{0}",
    "delete -v 3 /{0}/a",
    "delete /{0}/a",
    "deleteall /{0}",
    "get /{0}",
]
CHANGING = re.compile(r"0x[0-9a-f]+|\d{2}:\d{2}:\d{2} \w+ \d{4}")


def lines_of(command: list[str], words: str) -> list[str]:
    done = subprocess.run(
        [*command, "create", f"/{words}"], capture_output=True, text=True, check=True, timeout=60
    )
    lines = "\n".join(SESSION).format(words) + "\nquit\n"
    done = subprocess.run(
        command, input=lines, capture_output=True, text=True, timeout=60, check=False
    )
    printed = [*done.stdout.splitlines(), "errors:", *done.stderr.splitlines()]
    plain = (CHANGING.sub("*", line.replace(words, "root")) for line in printed)
    return [line for line in plain if not NOISE.match(line)]


def test_it_prints_what_zookeepers_shell_prints(zookeeper_jars: Path, ensemble: Ensemble) -> None:
    java = [*java_command(zookeeper_jars), "-Duser.timezone=UTC"]
    theirs = [*java, "org.apache.zookeeper.ZooKeeperMain", "-server", ensemble.connect]
    ours = [sys.executable, "-m", "sparkraft.cli.main", "zookeeper-shell", ensemble.connect]
    assert lines_of(ours, "ours") == lines_of(theirs, "theirs")


@pytest.mark.parametrize(
    "given",
    [
        ["--zk-tls-config-file", "f", "host:1", "ls", "-R", "/"],
        ["host:1", "--zk-tls-config-file", "f", "ls", "-R", "/"],
        ["host:1", "-zk-tls-config-file", "f", "ls", "-R", "/"],
    ],
)
def test_the_option_stands_before_the_server_or_after_it_as_in_kafkas_script(
    monkeypatch: pytest.MonkeyPatch, given: list[str]
) -> None:
    seen = []

    async def run(*arguments: object) -> int:
        seen.append(arguments)
        return 0

    monkeypatch.setattr(zookeeper_shell, "_main", run)
    assert zookeeper_shell.main(given) == 0
    assert seen == [("host:1", "f", ["ls", "-R", "/"])]


def test_an_ensemble_that_is_none_is_a_usage_error() -> None:
    ours = [sys.executable, "-m", "sparkraft.cli.main", "zookeeper-shell", "/kafka", "ls", "/"]
    done = subprocess.run(ours, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "names no server" in done.stderr
