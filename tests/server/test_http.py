"""/health and /metrics over raw sockets: what is well formed, and what is not."""

import asyncio
import contextlib
import http.client
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sparkraft.cli import main as cli
from sparkraft.server.config import ConfigError
from sparkraft.server.env import SystemNetwork
from sparkraft.server.health import LEADERLESS_MS_MAX, health_of
from sparkraft.server.http import (
    CONNECTIONS_MAX,
    HEAD_BYTES_MAX,
    HEAD_SECONDS_MAX,
    HttpServer,
    parse_address,
)
from sparkraft.server.http_hosts import is_allowed_host, own_names
from sparkraft.server.listeners import NodeListeners
from tests.server.harness import node_in, run
from tests.support.ports import lasting_ports, wait_until

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


TOPICS_MAX = 100


def test_metrics_tell_what_the_controller_spent_its_time_on(address, sparkraft_cluster):
    before = scraped(address)
    names = ("event_queue", "event_processing", "commit")
    argv = ["topics", "--bootstrap-server", sparkraft_cluster.bootstrap, "--topic"]
    for number in range(TOPICS_MAX):
        assert cli.main([*argv, f"metered-{number}", "--create"]) == 0
        after = scraped(address)
        totals = [f"sparkraft_controller_{name}_ms_total" for name in names]
        # Durations are whole milliseconds of a clock: a fast disk needs several to show one.
        if number >= 2 and all(after[total] > before[total] for total in totals):
            break
    for name in names:
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


class Counted(HttpServer):
    """Counts renderings, and the event-loop iteration of each response."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.renderings = 0
        self.iteration = 0
        self.responses: list[int] = []

    def _start_rendering(self) -> None:
        self.renderings += 1
        super()._start_rendering()

    def respond(self, path: str) -> Any:
        self.responses.append(self.iteration)
        return super().respond(path)

    def count_iterations(self) -> None:
        self.iteration += 1
        asyncio.get_running_loop().call_soon(self.count_iterations)


def test_a_flood_of_scrapes_is_rendered_once_and_answered_one_at_a_time(tmp_path):
    clients, requests = 20, 100

    async def scrape(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        last = b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n"
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n" * (requests - 1) + last)
        answer = await reader.read()
        writer.close()
        return answer

    async def test():
        async with node_in(tmp_path) as node:
            server = Counted(node, SystemNetwork(), "127.0.0.1:0")
            await server.start()
            server.count_iterations()
            answers = await asyncio.gather(*(scrape(server.port) for _ in range(clients)))
            assert all(answer.count(b"HTTP/1.1 200") == requests for answer in answers)
            assert len(server.responses) == len(set(server.responses)) == clients * requests
            assert server.renderings <= 2 * clients
            await server.stop()

    run(test())


def test_health_responds_before_clients_can_connect(tmp_path, monkeypatch):
    """A supervisor that waits for the broker's port may ask for /health at once."""
    listened: list[bool] = []
    serve = NodeListeners.serve

    async def observed(
        listeners: NodeListeners, *args: Any, controller: bool, **options: Any
    ) -> None:
        if not controller:
            with socket.socket() as probe:
                listened.append(probe.connect_ex(("127.0.0.1", port)) == 0)
        await serve(listeners, *args, controller=controller, **options)

    monkeypatch.setattr(NodeListeners, "serve", observed)
    (port,) = lasting_ports(1)

    async def test():
        async with node_in(tmp_path, sparkraft_http_listener=f"127.0.0.1:{port}"):
            assert listened == [True]

    run(test())


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
        (b"POST /health HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 405),
        (b"GET /health HTTP/1.1\r\nContent-Length: 4\r\nContent-Length: 0\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: evil.example.com\r\n\r\n", 421),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example.com\r\n\r\n", 400),
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


def test_idle_connections_do_not_keep_a_health_check_out(address):
    idle = [socket.create_connection(address, timeout=SECONDS_MAX) for _ in range(CONNECTIONS_MAX)]
    for client in idle:
        client.sendall(b"G")
    try:
        for _ in range(3):
            answer = exchange(address, b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n")
            assert status(answer) == 200
    finally:
        for client in idle:
            client.close()


@contextlib.asynccontextmanager
async def served_connection(clock: "list[float]"):
    """A connection to an `HttpServer` whose loop's clock is `clock[0]` seconds ahead."""
    loop = asyncio.get_running_loop()
    real = loop.time
    loop.time = lambda: real() + clock[0]
    config = SimpleNamespace(advertised_listeners=())
    server = HttpServer(SimpleNamespace(config=config), SystemNetwork(), "127.0.0.1:0")
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        await server.stop()


def test_a_head_has_a_deadline_that_further_bytes_do_not_extend():
    async def scenario() -> None:
        clock = [0.0]
        async with served_connection(clock) as (reader, writer):
            writer.write(b"GET / HT")
            await asyncio.sleep(0.05)
            clock[0] += HEAD_SECONDS_MAX / 2
            writer.write(b"TP/1.1\r\n")
            await asyncio.sleep(0.05)
            clock[0] += HEAD_SECONDS_MAX / 2
            async with asyncio.timeout(SECONDS_MAX):
                assert await reader.read() == b""

    asyncio.run(scenario())


def test_a_connection_between_two_requests_outlasts_the_deadline_of_a_head():
    async def scenario() -> None:
        clock = [0.0]
        async with served_connection(clock) as (reader, writer):
            for _ in range(2):
                writer.write(b"GET / HTTP/1.1\r\n\r\n")
                head = await reader.readuntil(b"\r\n\r\n")
                assert status(head) == 200
                await reader.readuntil(b"\n")
                clock[0] += HEAD_SECONDS_MAX + 1
                await asyncio.sleep(0.05)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:9092",
        "10.1.2.3",
        "[::1]:80",
        "[fe80::1]",
        "localhost",
        "LOCALHOST:8080",
        "broker-1:9404",
        "broker.kafka.svc.cluster.local",
        "kafka1.example.com:80",
        socket.gethostname(),
    ],
)
def test_hosts_of_this_node_are_served(host):
    assert is_allowed_host(host, own_names(("Kafka1.example.com", "")))


@pytest.mark.parametrize("host", ["", ":80", "evil.example.com", "127.0.0.1.evil.com:80", "a.b:c"])
def test_hosts_that_a_web_page_may_have_are_not_served(host):
    assert not is_allowed_host(host, own_names(("kafka1.example.com", "")))


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
        lost_directory_text=None,
    )
    config = SimpleNamespace(node_id=101, is_zookeeper=False)
    node = SimpleNamespace(raft=raft, failure=None, broker=None, config=config)
    found = health_of(node)
    assert (found["healthy"], found["quorumLeader"]) == (healthy, None)
