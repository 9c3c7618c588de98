"""The console's process over HTTP: its start and stop, and the requests that it refuses."""

import asyncio
import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from sparkraft.cli import main as cli
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster
from sparkraft.client.groups import Groups
from sparkraft.client.producer import Producer
from sparkraft.client.values import Committed, NewTopic
from sparkraft.console.serve import CONNECTIONS_MAX
from sparkraft.console.stream import STREAMS_MAX
from tests.support.console import ConsoleProcess
from tests.support.nodes import SparkraftNode
from tests.support.ports import wait_until

pytestmark = pytest.mark.real_clients


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkraftNode]:
    with SparkraftNode(tmp_path_factory.mktemp("node")) as node:
        yield node


@pytest.fixture(scope="module")
def console(
    node: SparkraftNode, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleProcess]:
    folder = tmp_path_factory.mktemp("console")
    with ConsoleProcess(node.bootstrap, folder, ["--host", "tunnel.example:8443"]) as console:
        yield console


def request(
    console: ConsoleProcess, path: str, *, method: str = "GET", **headers: str
) -> http.client.HTTPResponse:
    host = console.address.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=60)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, headers={"Host": host, **named})
    return connection.getresponse()


def test_the_page_and_its_documents(console: ConsoleProcess) -> None:
    page = request(console, "/quorum")
    assert page.status == 200
    assert b"<title>sparkraft console</title>" in page.read()
    assert "script-src 'self'" in page.headers["Content-Security-Policy"]
    assert "unsafe" not in page.headers["Content-Security-Policy"]
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    assert "Access-Control-Allow-Origin" not in page.headers
    again = request(console, "/quorum", If_None_Match=page.headers["ETag"])
    assert (again.status, again.read()) == (304, b"")
    cluster = json.loads(request(console, "/api/cluster").read())
    assert cluster["health"]["level"] == "ok"
    quorum = json.loads(request(console, "/api/quorum").read())
    assert [each["id"] for each in quorum["nodes"]] == [1]
    assert quorum["epochs"][-1]["verdict"] == "confirmed by the log"
    assert quorum["lines"][str(quorum["epochs"][-1]["epoch"])]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 400),
        ({"Host": "localhost:1"}, 400),
        ({"Host": "tunnel.example:8443"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "cors"}, 403),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}, 200),
        ({"Sec_Fetch_Site": "same-origin", "Sec_Fetch_Mode": "cors"}, 200),
    ],
)
def test_requests_of_other_sites_are_refused(
    console: ConsoleProcess, headers: dict[str, str], status: int
) -> None:
    for path in ("/", "/api/cluster"):
        answer = request(console, path, **headers)
        assert answer.status == status
        assert "Content-Security-Policy" in answer.headers


def documents(console: ConsoleProcess, path: str) -> dict[str, Any]:
    answer = request(console, path)
    body = answer.read()
    assert answer.status == 200, body
    found: dict[str, Any] = json.loads(body)
    return found


def printed(node: SparkraftNode, capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    assert cli.main([*words, "--bootstrap-server", node.bootstrap, "--output", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def without_offset(document: dict[str, Any]) -> dict[str, Any]:
    """The log grows between two requests."""
    return {name: value for name, value in document.items() if name != "asOf"}


def test_documents_of_single_things_are_those_of_the_commands(
    node: SparkraftNode, console: ConsoleProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    create = ["topics", "--create", "--topic", "shown", "--partitions", "2"]
    assert cli.main([*create, "--bootstrap-server", node.bootstrap]) == 0
    listed = documents(console, "/api/topics")["topics"]
    assert {"topic": "shown", "isInternal": False, "partitions": 2, "replicas": 1,
            "underReplicated": 0, "offline": 0} in listed  # fmt: skip

    for path, words in [
        ("/api/topic?topic=shown", ["explain", "topic", "shown"]),
        ("/api/partition?topic=shown&partition=1", ["explain", "partition", "shown", "1"]),
        ("/api/broker?broker=1", ["explain", "broker", "1"]),
    ]:
        command = without_offset(printed(node, capsys, *words))
        shown = documents(console, path)
        assert {name: shown[name] for name in command} == command
        assert (
            shown["command"] == f"sparkraft {' '.join(words)} --bootstrap-server {node.bootstrap}"
        )
        assert shown["lines"]
    topic = documents(console, "/api/topic?topic=shown")
    assert topic["offsets"] == [{"partition": n, "first": 0, "end": 0} for n in (0, 1)]


def test_a_group_has_members_lag_and_decisions(
    node: SparkraftNode, console: ConsoleProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "../<i>group & co"
    words = ["console-consumer", "--bootstrap-server", node.bootstrap, "--topic", "read"]
    create = ["topics", "--bootstrap-server", node.bootstrap, "--create", "--topic", "read"]
    assert cli.main(create) == 0
    assert cli.main([*words, "--group", name, "--timeout-ms", "1000"]) == 0
    assert name in [one["group"] for one in documents(console, "/api/groups")["groups"]]
    shown = documents(console, f"/api/group?group={quote(name)}")
    assert (shown["state"], shown["members"], shown["silent"]) == ("Empty", [], [])
    assert [one["kind"] for one in shown["decisions"]][:1] == ["joined"]
    assert "leader" in {one["kind"] for one in shown["decisions"]}
    decisions = printed(node, capsys, "explain", "group", name)["decisions"]
    assert shown["decisions"] == decisions
    assert shown["command"].startswith("sparkraft explain group '../<i>group & co' ")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/topic?topic=none", 404),
        ("/api/topic?topic=..", 404),
        ("/api/topic", 400),
        ("/api/partition?topic=none&partition=0", 404),
        ("/api/partition?topic=none&partition=x", 400),
        ("/api/partition?topic=none&partition=99999999999", 400),
        ("/api/broker?broker=-2", 400),
        ("/api/group?group=none", 404),
        ("/api/none", 404),
        ("/topics/any/0", 200),
        ("/group?id=..", 200),
    ],
)
def test_what_does_not_exist(console: ConsoleProcess, path: str, status: int) -> None:
    answer = request(console, path)
    assert answer.status == status
    assert "Traceback" not in answer.read().decode()


def test_nothing_is_written(console: ConsoleProcess) -> None:
    for path in ("/", "/api/cluster", "/events"):
        assert request(console, path, method="POST").status == 405
    assert request(console, "/static/..%2f..%2fserve.py").status == 404


def test_events_arrive_and_end_with_the_process(node: SparkraftNode, tmp_path: Path) -> None:
    with ConsoleProcess(node.bootstrap, tmp_path) as console:
        stream = request(console, "/events")
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        kinds = set()
        while kinds != {b"event: quorum\n", b"event: cluster\n"}:
            line = stream.readline()
            assert line
            kinds |= {line} if line.startswith(b"event: ") else set()
        assert console.stop() in (0, -15)
        stream.read()
        assert "Traceback" not in console.output()
        assert "ERROR" not in console.output()


def test_connections_are_bounded_and_streams_leave_room(
    node: SparkraftNode, tmp_path: Path
) -> None:
    """As many pages as may be open, each in a browser that holds six connections."""
    with ConsoleProcess(node.bootstrap, tmp_path) as console:
        host, _, port = console.address.removeprefix("http://").rpartition(":")
        with ExitStack() as held:

            def hold(count: int) -> None:
                for _ in range(count):
                    held.enter_context(socket.create_connection((host, int(port)), timeout=60))

            streams = [request(console, "/events") for _ in range(STREAMS_MAX)]
            assert {one.status for one in streams} == {200}
            hold(5 * STREAMS_MAX)
            assert request(console, "/api/cluster").status == 200
            hold(CONNECTIONS_MAX - 6 * STREAMS_MAX)
            assert request(console, "/api/cluster").status == 503
        wait_until(
            lambda: request(console, "/api/cluster").status == 200, "connections are free", 60
        )
        for one in streams:
            one.close()


def test_only_loopback_is_listened_on(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["console", "--bootstrap-server", "localhost:1", "--listen", "0.0.0.0:8080"]
    assert cli.main(words) == 2
    assert "0.0.0.0 is not a loopback address" in capsys.readouterr().err


def test_a_cluster_that_is_down_stops_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["console", "--bootstrap-server", "127.0.0.1:1", "--listen", "127.0.0.1:0"]
    assert cli.main(words) == 1
    assert "cannot connect to 127.0.0.1:1" in capsys.readouterr().err


def test_the_lag_of_a_group_in_time(node: SparkraftNode, console: ConsoleProcess) -> None:
    hour_ago = int(time.time() * 1000) - 3_600_000

    async def prepare() -> None:
        async with Cluster(node.bootstrap) as cluster:
            topic = NewTopic(name="late", partitions=1, replication_factor=1)
            await Admin(cluster).create_topics([topic])
            async with Producer(cluster) as producer:
                for number in range(5):
                    made = await producer.send("late", b"x", timestamp=hour_ago + number)
                    await made
            await Groups(cluster).commit("laggard", {("late", 0): Committed(offset=2)})

    asyncio.run(prepare())
    found = json.loads(request(console, "/api/group?group=laggard").read())
    (row,) = found["offsets"]
    assert (row["lag"], row["behindBy"]) == (3, "record")
    assert 3_600_000 - 2 <= row["behindMs"] < 3_600_000 + 600_000
    assert (found["lag"]["records"], found["lag"]["behindMs"]) == (3, row["behindMs"])
