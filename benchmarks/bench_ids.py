"""Very many transactional ids on one node of ours: their memory, and what a light client feels.

    ./bench ids                      100,000 ids
    ./bench ids --count 1000000      as many as that; a million takes several minutes

Ids are created by InitProducerId, listed by ListTransactions, loaded by a restart and expired, each
beside 100 probes a second (`probe`). The node's metrics count them. Promised is a p99 of at most
10 ms, and at most 700 bytes an id after the load. The maxima are printed.
"""

import argparse
import socket
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.bench_node import ask, create_topic, request
from benchmarks.loop_more_rows import HTTP_LISTENER
from benchmarks.measure import rss_mib
from benchmarks.probe import Probe, receive
from benchmarks.quorums import progress
from benchmarks.report import Row, Table
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import k10_find_coordinator as k10
from sparkraft.protocol.messages import k22_init_producer_id as k22
from sparkraft.protocol.messages import k66_list_transactions as k66
from tests.support.nodes import NodeProcess, SparkraftNode
from tests.support.ports import accepts, lasting_ports, wait_until

COUNT = 100_000
CLIENTS, IN_FLIGHT = 4, 8
PROBE_SECONDS = 5.0
P99_MS_MAX = 10.0
BYTES_MAX = 700
EXPIRE_SECONDS_MAX = 600
RECEIVE_BYTES = 1 << 20
COUNT_METRIC = b"sparkraft_transactional_ids "
_TRANSACTION = 1


def init(name: str) -> bytes:
    """The frame of InitProducerId."""
    message = k22.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    return request(ApiKey.INIT_PRODUCER_ID, 4, message)


def name_of(number: int) -> str:
    """A transactional id, of the length that services choose."""
    return f"orders-service-{number:07d}-producer"


def await_coordinator(node: NodeProcess) -> None:
    """Wait until an id can be initialized."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        asked = k10.FindCoordinatorRequest(key_type=_TRANSACTION, coordinator_keys=["first"])
        ask(node.port, ApiKey.FIND_COORDINATOR, 4, asked)
        message = k22.InitProducerIdRequest(transactional_id="first", transaction_timeout_ms=60_000)
        if ask(node.port, ApiKey.INIT_PRODUCER_ID, 4, message)[1].error_code == 0:
            return
        time.sleep(0.2)
    raise AssertionError("no coordinator after 120 s")


def create(port: int, numbers: range) -> None:
    """Initialize ids, a few requests in flight."""
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        waiting = 0
        for number in numbers:
            connection.sendall(init(name_of(number)))
            waiting += 1
            if waiting == IN_FLIGHT:
                receive(connection, int.from_bytes(receive(connection, 4), "big"))
                waiting -= 1
        for _ in range(waiting):
            receive(connection, int.from_bytes(receive(connection, 4), "big"))


def start(node: NodeProcess) -> None:
    """Start the node and wait until its metrics can be read."""
    node.start()
    port = int(node.overrides[HTTP_LISTENER].rpartition(":")[2])
    wait_until(lambda: accepts(port), "the node serves its metrics")


def counted(node: NodeProcess) -> int:
    """How many ids the node's metrics report; those of partitions that are loading are missing."""
    with urllib.request.urlopen(
        f"http://{node.overrides[HTTP_LISTENER]}/metrics", timeout=60
    ) as page:
        for line in page:
            if line.startswith(COUNT_METRIC):
                return int(float(line.split()[1]))
    raise AssertionError("no metric of transactional ids")


def beside(node: NodeProcess, work: Callable[[], None]) -> tuple[list[float], float]:
    """The probe's latencies in ms while `work` runs, and its seconds."""
    latencies: list[float] = []
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(seconds_of, work)
        while not running.done():
            latencies += Probe(node.port, "probe", PROBE_SECONDS).latencies()
        return latencies, running.result()


def seconds_of(work: Callable[[], None]) -> float:
    """How long `work` takes."""
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def create_all(node: NodeProcess, count: int) -> None:
    """Initialize all ids from several clients."""
    each = -(-count // CLIENTS)
    threads = [
        threading.Thread(target=create, args=(node.port, range(first, min(first + each, count))))
        for first in range(0, count, each)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def list_all(node: NodeProcess, count: int) -> None:
    """List for as long as a probe takes, without decoding: that would take a core."""
    end = time.monotonic() + PROBE_SECONDS
    frame = request(ApiKey.LIST_TRANSACTIONS, 1, k66.ListTransactionsRequest())
    with socket.create_connection(("127.0.0.1", node.port), 60) as connection:
        while time.monotonic() < end:
            connection.sendall(frame)
            left = int.from_bytes(receive(connection, 4), "big")
            assert left > count * len(name_of(0)), f"{left} bytes list {count} ids"
            while left:
                left -= len(connection.recv(min(left, RECEIVE_BYTES)))


def await_load(node: NodeProcess, count: int) -> None:
    """Wait until all ids are known."""
    while counted(node) < count:
        time.sleep(0.5)


def await_expiry(node: NodeProcess, count: int) -> None:
    """Wait until no id is left of those that a restart loads."""
    await_load(node, 1)
    deadline = time.monotonic() + EXPIRE_SECONDS_MAX + count / 10_000
    while left := counted(node):
        assert time.monotonic() < deadline, f"{left} ids are left"
        time.sleep(1)


def add_probe(table: Table, what: str, found: tuple[list[float], float], count: int = 0) -> None:
    """Add the probe's p99 and maximum, and the rate of `count` ids."""
    ordered, seconds = sorted(found[0]), found[1]
    p99 = ordered[int(len(ordered) * 0.99)]
    limit = f"{P99_MS_MAX:.0f} ms"
    table.add(Row(f"{what}: probe p99", f"{p99:.1f} ms", limit, p99 / P99_MS_MAX, at_most=1))
    table.add(Row(f"{what}: probe max", f"{ordered[-1]:.0f} ms", "", None))
    if count:
        table.add(Row(f"{what}: ids a second", f"{count / seconds:,.0f}", "", None))


def measure(folder: Path, count: int) -> Table:
    """All rows."""
    table = Table(f"{count:,} transactional ids on one node")
    (port,) = lasting_ports(1)
    node = SparkraftNode(folder / "node", overrides={HTTP_LISTENER: f"127.0.0.1:{port}"})
    with node:
        create_topic(node.port, "probe", 1)
        await_coordinator(node)
        progress(f"create {count:,} ids")
        add_probe(table, "created", beside(node, lambda: create_all(node, count)), count)
        progress("list")
        add_probe(table, "listed", beside(node, lambda: list_all(node, count)))
        node.stop()
        start(node)
        assert node.process is not None
        before = rss_mib(node.process.pid)
        progress("load")
        add_probe(table, "loaded", beside(node, lambda: await_load(node, count)), count)
        used = (rss_mib(node.process.pid) - before) * 2**20 / count
        table.add(
            Row("memory of an id after the load", f"{used:.0f} bytes", f"{BYTES_MAX} bytes",
                used / BYTES_MAX, at_most=1)
        )  # fmt: skip
        node.stop()
        node.overrides = {
            **node.overrides,
            "transactional.id.expiration.ms": "1",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "5000",
        }
        node.write_properties()
        start(node)
        progress("expire")
        add_probe(table, "expired", beside(node, lambda: await_expiry(node, count)), count)
    progress("")
    return table


def main() -> int:
    """Measure; 1 if a promise is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=COUNT, help="how many ids")
    with tempfile.TemporaryDirectory() as folder:
        table = measure(Path(folder), parser.parse_args().count)
    table.print()
    return 0 if table.met else 1


if __name__ == "__main__":
    sys.exit(main())
