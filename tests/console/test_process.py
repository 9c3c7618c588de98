"""The console's process over HTTP: its start and stop, and the requests that it refuses."""

import http.client
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkraft.cli import main as cli
from tests.support.console import ConsoleProcess
from tests.support.nodes import SparkraftNode

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


def test_only_loopback_is_listened_on(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["console", "--bootstrap-server", "localhost:1", "--listen", "0.0.0.0:8080"]
    assert cli.main(words) == 2
    assert "0.0.0.0 is not a loopback address" in capsys.readouterr().err


def test_a_cluster_that_is_down_stops_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["console", "--bootstrap-server", "127.0.0.1:1", "--listen", "127.0.0.1:0"]
    assert cli.main(words) == 1
    assert "cannot connect to 127.0.0.1:1" in capsys.readouterr().err
