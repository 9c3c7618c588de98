"""/health and /metrics over raw sockets: what is well formed, and what is not."""

import http.client
import socket
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sparkraft.cli import main as cli
from sparkraft.server.config import ConfigError
from sparkraft.server.health import LEADERLESS_MS_MAX, health_of
from sparkraft.server.http import (
    CONNECTIONS_MAX,
    HEAD_BYTES_MAX,
    parse_address,
)
from tests.support.ports import wait_until

pytestmark = pytest.mark.real_clients

SECONDS_MAX = 60


@pytest.fixture
def address(sparkraft_cluster) -> tuple[str, int]:
    host, port = sparkraft_cluster.http.removeprefix("http://").split(":")
    return host, int(port)


def exchange(address: tuple[str, int], request: bytes) -> bytes:
    """Send, read to the end."""
    with socket.create_connection(address, timeout=SECONDS_MAX) as client:
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := client.recv(65_536):
            answer += chunk
    return answer


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def test_metrics_are_what_prometheus_reads(address):
    connection = http.client.HTTPConnection(*address, timeout=SECONDS_MAX)
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    assert answer.status == 200
    families = {f.name: f for f in text_string_to_metric_families(answer.read().decode())}
    assert families["sparkraft_node_healthy"].samples[0].value == 1
    assert families["sparkraft_raft_leader_id"].samples[0].value == 1
    for where in ("offline", "imbalanced", "out_of_sync"):
        assert families[f"sparkraft_partitions_{where}"].samples[0].value == 0
    assert "sparkraft_partition_elections" in families
    for idle in ("directory_moves", "directory_moves_lag"):
        assert families[f"sparkraft_{idle}"].samples[0].value == 0
    throttled = families["sparkraft_throttled_replication_bytes_per_second"].samples
    assert [(s.labels["side"], s.value) for s in throttled] == [("leader", 0), ("follower", 0)]
    assert families["sparkraft_fetcher_bytes"].samples == [], "it follows nobody"
    assert "process_resident_memory_bytes" in families
    # The same connection serves the next scrape.
    connection.request("GET", "/health")
    assert connection.getresponse().status == 200
    connection.close()


def scraped(address) -> dict[str, float]:
    """Samples without labels, by name; and `raft_state`'s by its label."""
    connection = http.client.HTTPConnection(*address, timeout=SECONDS_MAX)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return {
        s.name + "".join(f" {value}" for value in s.labels.values()): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
        if not s.labels or s.name == "sparkraft_raft_state"
    }


def test_metrics_tell_what_the_controller_spent_its_time_on(address, sparkraft_cluster):
    before = scraped(address)
    argv = ["topics", "--bootstrap-server", sparkraft_cluster.bootstrap, "--topic", "metered"]
    for number in range(3):
        assert cli.main([*argv[:-1], f"metered-{number}", "--create"]) == 0
    after = scraped(address)
    for name in ("event_queue", "event_processing", "commit"):
        count, ms = f"sparkraft_controller_{name}s_total", f"sparkraft_controller_{name}_ms_total"
        assert after[count] >= before[count] + 3
        spent = after[ms] - before[ms]
        assert 0 < spent < 1_000 * SECONDS_MAX
        longest = after[f"sparkraft_controller_{name}_ms_max"]
        assert spent / (after[count] - before[count]) <= longest <= after[ms]
    assert after["sparkraft_controller_active"] == 1
    assert after["sparkraft_forwarding_queue"] == 0
    states = {name.split()[1]: value for name, value in after.items() if "raft_state " in name}
    assert states.pop("leader") == 1
    assert set(states) == {"unattached", "prospective", "candidate", "follower", "resigned"}
    assert set(states.values()) == {0}
    assert after["sparkraft_raft_leaderless_ms"] == 0
    assert after["sparkraft_raft_election_ms_last"] <= after["sparkraft_raft_election_ms_max"]
    assert after["sparkraft_raft_epoch"] >= 1


def test_pipelined_requests_are_answered_in_order(address):
    answer = exchange(address, b"GET /health HTTP/1.1\r\n\r\nGET /none HTTP/1.1\r\n\r\n")
    assert [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]] == [200, 404]


def test_head_has_no_body(address):
    answer = exchange(address, b"HEAD /health HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert status(answer) == 200
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("request_bytes", "expected"),
    [
        (b"GET /nothing HTTP/1.1\r\nConnection: close\r\n\r\n", 404),
        (b"POST /health HTTP/1.1\r\n\r\n", 405),
        (b"GET /health HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 413),
        (b"hello\r\n\r\n", 400),
        (b"GET /health SPDY/9\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"y" * HEAD_BYTES_MAX + b"\r\n\r\n", 431),
    ],
)
def test_what_is_refused(address, request_bytes, expected):
    assert status(exchange(address, request_bytes)) == expected


def test_connections_are_counted_and_capped(address):
    clients = [
        socket.create_connection(address, timeout=SECONDS_MAX) for _ in range(CONNECTIONS_MAX + 10)
    ]

    def closed(client: socket.socket) -> bool:
        client.setblocking(False)
        try:
            return client.recv(1) == b""
        except BlockingIOError:
            return False
        except ConnectionError:
            return True

    wait_until(lambda: sum(map(closed, clients)) >= 10, "the ones too many are closed", SECONDS_MAX)
    for client in clients:
        client.close()

    def healthy() -> bool:
        try:
            return status(exchange(address, b"GET /health HTTP/1.0\r\n\r\n")) == 200
        except ConnectionError:
            return False

    wait_until(healthy, "it answers again", SECONDS_MAX)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("127.0.0.1:80", ("127.0.0.1", 80)), (":0", ("", 0)), ("[::1]:9", ("::1", 9))],
)
def test_addresses(text, expected):
    assert parse_address(text) == expected


@pytest.mark.parametrize("text", ["host", "host:", "host:x", "host:70000"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ConfigError):
        parse_address(text)


@pytest.mark.parametrize(
    ("met", "leaderless_ms", "healthy"),
    [
        (True, 0, True),
        (True, LEADERLESS_MS_MAX - 1, True),  # an election that lasts
        (True, LEADERLESS_MS_MAX, False),
        (False, 1, False),  # a node that has just started
    ],
)
def test_a_controller_is_healthy_unless_it_is_long_out_of_touch(met, leaderless_ms, healthy):
    raft = SimpleNamespace(
        has_met_leader=met,
        leaderless_ms=leaderless_ms,
        leader_and_epoch=SimpleNamespace(leader_id=None, epoch=7),
    )
    node = SimpleNamespace(
        raft=raft, failure=None, broker=None, config=SimpleNamespace(node_id=101)
    )
    found = health_of(node)
    assert (found["healthy"], found["quorumLeader"]) == (healthy, None)
