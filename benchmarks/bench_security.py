"""What TLS costs a node, beside what it costs Apache Kafka's, and whether quotas are held.

One node of each kind has a PLAINTEXT and an SSL listener (TLS 1.3, AES-256-GCM, a P-256
certificate). The same client sends the same requests to both listeners, a round to one after a
round to the other; the ratio is that of the pairs. The two nodes are measured one after the other.

Quotas: clients that send as much as they get through, for 44 s after the burst of an idle client,
beside a light client without a quota; then new partitions and new connections. Neighbors: the
latency of that light client on both kinds of node, from the burst on.

Before: the memory of a connection whose client has not authenticated (`memory_before_login`).
"""

import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bench_beside_kafka import BenchKafka
from benchmarks.bench_node import (
    RECYCLED,
    ask,
    ask_raw,
    batch,
    create_topic,
    produce_frames,
    request,
)
from benchmarks.measure import cpu_seconds
from benchmarks.memory_before_login import memory_before_login
from benchmarks.probe import Probe
from benchmarks.rates_of_changes import rates_of_changes
from benchmarks.report import Row
from benchmarks.secured_load import Load, Running, Shape, split
from benchmarks.suite import parser_for, run
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from sparkraft.protocol.messages.k03_metadata import MetadataRequest
from sparkraft.protocol.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from tests.support.certificates import Authority, pem_configs
from tests.support.nodes import NodeProcess, SparkraftNode
from tests.support.ports import lasting_ports

ROUNDS = 5
FETCHED = 64
"""Batches of a topic that is read round and round."""

BYTE_RATE = 2_000_000
PERCENT = 20.0
IDLE_CREDIT_S = 22.0
"""A client that was idle may send for ten windows at once: twice the time of all windows."""

QUOTA_S = 44.0
"""Four times all windows. Kafka's arithmetic gives bursts of one such time, so other lengths show
up to a tenth more or less than the quota."""

ANY_S = 30.0
"""A length that is not a multiple of it."""

OFF_PERCENT = 5.0
"""How far a rate may be from its quota; further if Kafka's is."""

SHARE_S = 33.0
"""Three times all windows."""

IDLE_S = 11.0
"""All windows: the node beside the probe alone."""

NEIGHBOR_S, NEIGHBOR_RATE = 15.0, 150
"""Length and requests a second of the probe beside byte rates: more than 2,000 in all."""

WARM_S = 3.0
"""Load without a quota before it, for the compilers of Kafka's JVM."""


@dataclass(frozen=True)
class Options:
    """Of the command line."""

    seconds: float


@dataclass(frozen=True)
class Secured:
    """A node with both listeners."""

    node: NodeProcess
    tls_port: int
    ca: Path

    @property
    def pid(self) -> int:
        """Its process."""
        assert self.node.process is not None
        return self.node.process.pid


def secured(kind: type[NodeProcess], folder: Path, jars: Path) -> Secured:
    """A node that is not started yet."""
    authority = Authority(folder / "authority")
    port, tls_port, controller_port = lasting_ports(3)
    listeners = f"PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{tls_port}"
    overrides = {
        **RECYCLED,
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        **pem_configs(authority.issue("node"), authority.ca_path),
    }
    node = kind(folder / "node", overrides=overrides, jars=jars, ports=(port, controller_port))
    return Secured(node, tls_port, authority.ca_path)


def rounds(of: Secured, frames: list[bytes], shape: Shape) -> tuple[list[Load], list[Load]]:
    """Loads over TLS and plain ones, in pairs, after one of each that warms up."""
    over_tls, plain = [], []
    for _ in range(ROUNDS + 1):
        over_tls.append(Running(of.tls_port, of.pid, frames, shape, of.ca).result())
        plain.append(Running(of.node.port, of.pid, frames, shape).result())
    return over_tls[1:], plain[1:]


def fetch_frames(topic: str, records: int = 1000) -> list[bytes]:
    """A Fetch of each of the topic's first batches, which have so many records of 1 KB."""
    made = []
    for number in range(FETCHED):
        # The first batch is returned whole, whatever may be in a partition.
        place = FetchPartition(partition=0, fetch_offset=number * records, partition_max_bytes=1)
        message = FetchRequest(
            max_wait_ms=500, min_bytes=1, max_bytes=1 << 20,
            topics=[FetchTopic(topic=topic, partitions=[place])],
        )  # fmt: skip
        made.append(request(ApiKey.FETCH, 12, message))
    return made


def fill(port: int, topic: str, records: int = 1000) -> None:
    """Write what is read: batches of so many records of 1 KB."""
    create_topic(port, topic, 1, retention_bytes="-1")
    (frame,) = split(produce_frames(topic, batch(1024, records), 1))
    for _ in range(FETCHED):
        ask_raw(port, frame)


def cost_of_tls(folder: Path, jars: Path, options: Options) -> list[Row]:
    """Both loads on both kinds of node."""
    found: dict[str, dict[str, tuple[list[Load], list[Load]]]] = {}
    for kind, name in ((SparkraftNode, "ours"), (BenchKafka, "Kafka")):
        of = secured(kind, folder / name, jars)
        with of.node:
            create_topic(of.node.port, "small", 4)
            fill(of.node.port, "read")
            loads = {
                "Fetch 1 MB, 2x2": (fetch_frames("read"), Shape(2, 2, options.seconds)),
                "Produce 100 B, 2x32": (
                    split(produce_frames("small", batch(100, 1))), Shape(2, 32, options.seconds),
                ),
            }  # fmt: skip
            found[name] = {
                label: rounds(of, frames, shape) for label, (frames, shape) in loads.items()
            }
            of.node.stop()
    rows = []
    for label, least in (("Fetch 1 MB, 2x2", 0.40), ("Produce 100 B, 2x32", 0.75)):
        for name, by_load in found.items():
            rows.extend(_tls_rows(label, name, by_load[label], least if name == "ours" else None))
    return rows


def _tls_rows(
    label: str, name: str, pair: tuple[list[Load], list[Load]], at_least: float | None
) -> list[Row]:
    def median(loads: list[Load], what: str) -> float:
        return float(statistics.median(getattr(one, what) for one in loads))

    def ratio(what: str) -> float:
        pairs = zip(*pair, strict=True)
        return float(statistics.median(getattr(a, what) / getattr(b, what) for a, b in pairs))

    speeds = [f"{median(loads, 'per_second'):,.0f}/s" for loads in pair]
    costs = [f"{median(loads, 'cpu_us'):,.1f} µs" for loads in pair]
    return [
        Row(
            f"{label}, {name}: over TLS", speeds[0], f"plain {speeds[1]}",
            ratio("per_second"), at_least=at_least,
        ),
        Row("  server CPU a request", costs[0], f"plain {costs[1]}", ratio("cpu_us")),
    ]  # fmt: skip


def limit(port: int, client_id: str, key: str, value: float) -> None:
    """Set a quota of a client id, and wait until the broker has it."""
    entry = AlterClientQuotasRequestEntryData(
        entity=[EntityData(entity_type="client-id", entity_name=client_id)],
        ops=[OpData(key=key, value=value, remove=False)],
    )
    _, answer = ask(port, ApiKey.ALTER_CLIENT_QUOTAS, 1, AlterClientQuotasRequest(entries=[entry]))
    assert answer.entries[0].error_code == 0, answer
    time.sleep(1)


def _held(label: str, unit: str, got: float, limit: float) -> Row:
    return Row(label, f"{got:,.2f} {unit}", f"quota {limit:,.2f} {unit}", got / limit, 0.95, 1.05)


def _p99(latencies: list[float]) -> float:
    return sorted(latencies)[len(latencies) * 99 // 100]


def _calm(probe: Probe, label: str) -> Row:
    p99 = _p99(probe.latencies())
    return Row(label, f"{p99:.2f} ms", "10 ms", p99 / 10, at_most=1.0)


def _greedy(port: int, pid: int, client_id: str, shape: Shape) -> tuple[Running, Running]:
    """Clients that write and read as much as they get through."""
    writes = split(produce_frames("load", batch(1024, 16)))
    reads = fetch_frames("read", 16)
    return (
        Running(port, pid, _named(client_id, writes), shape),
        Running(port, pid, _named(client_id, reads), shape),
    )


def _prepare(port: int) -> None:
    create_topic(port, "load", 4)
    create_topic(port, "probe", 1)
    fill(port, "read", 16)


def _limit_bytes(port: int) -> None:
    limit(port, "greedy", "producer_byte_rate", BYTE_RATE)
    limit(port, "greedy", "consumer_byte_rate", BYTE_RATE * 2)


def quotas(folder: Path, jars: Path, _: Options) -> list[Row]:
    """Byte rates on both kinds of node; the other quotas on ours. The probe has another client
    id."""
    ours, more = _byte_rates(SparkraftNode(folder / "ours", overrides=RECYCLED, jars=jars))
    kafka, _none = _byte_rates(BenchKafka(folder / "Kafka", overrides=RECYCLED, jars=jars))
    (produced, fetched), (their_produced, their_fetched) = ours, kafka
    read_rate = BYTE_RATE * 2
    off_out = [each.furthest_out(BYTE_RATE, ANY_S) for each in (produced, their_produced)]
    off_in = [each.furthest_in(read_rate, ANY_S) for each in (fetched, their_fetched)]
    return [
        _held("producer_byte_rate", "MB/s", produced.bytes_out / produced.seconds / 1e6,
              BYTE_RATE / 1e6),
        _off(off_out),
        _held("consumer_byte_rate", "MB/s", fetched.bytes_in / fetched.seconds / 1e6,
              read_rate / 1e6),
        _off(off_in),
        *more,
    ]  # fmt: skip


def _off(percents: list[float]) -> Row:
    """How far a rate was from its quota in any 30 s, ours and Kafka's."""
    ours, kafka = percents
    bound = max(OFF_PERCENT, kafka)
    what = f"  furthest from it in any {ANY_S:g} s; at most Kafka's or {OFF_PERCENT:g} %"
    return Row(what, f"{ours:.1f} %", f"Kafka {kafka:.1f} %", ours / bound, at_most=1.1)


def _byte_rates(node: NodeProcess) -> tuple[tuple[Load, Load], list[Row]]:
    """What a node lets through of Produce and Fetch; of ours also the rows of other quotas."""
    more: list[Row] = []
    with node:
        assert node.process is not None
        pid, port = node.process.pid, node.port
        _prepare(port)
        shape = Shape(1, 1, QUOTA_S, IDLE_CREDIT_S)
        _limit_bytes(port)
        probe = Probe(port, "probe", QUOTA_S + IDLE_CREDIT_S)
        sent, read = _greedy(port, pid, "greedy", shape)
        found = sent.result(), read.result()
        calm = _calm(probe, "  p99 of another client meanwhile")
        if isinstance(node, SparkraftNode):
            more = [calm, *_share_of_time(port, pid), *rates_of_changes(port)]
        node.stop()
    return found, more


def neighbors(folder: Path, jars: Path, _: Options) -> list[Row]:
    """A light client beside clients that byte rates limit, from their burst on."""
    found: dict[str, list[float]] = {}
    for kind, name in ((SparkraftNode, "ours"), (BenchKafka, "Kafka")):
        node = kind(folder / name, overrides=RECYCLED, jars=jars)
        with node:
            assert node.process is not None
            pid, port = node.process.pid, node.port
            _prepare(port)
            warming = Probe(port, "probe", WARM_S)
            for load in _greedy(port, pid, "warm", Shape(1, 1, WARM_S)):
                load.result()
            warming.latencies()
            _limit_bytes(port)
            probe = Probe(port, "probe", NEIGHBOR_S, NEIGHBOR_RATE)
            loads = _greedy(port, pid, "greedy", Shape(1, 1, NEIGHBOR_S))
            found[name] = probe.latencies()
            for load in loads:
                load.result()
            node.stop()
    ours, kafka = found["ours"], found["Kafka"]
    a, b, c, d = _p99(ours), _p99(kafka), max(ours), max(kafka)
    what = "p99 beside byte rates and their burst; at most 10 ms"
    return [
        Row(what, f"{a:.2f} ms", f"Kafka {b:.2f} ms", a / 10, at_most=1.0),
        Row("  the longest", f"{c:.2f} ms", f"Kafka {d:.2f} ms", c / d),
    ]


def _share_of_time(port: int, pid: int) -> list[Row]:
    """A client that asks for metadata as fast as it may; CPU beyond that of the node without it."""
    limit(port, "greedy", "request_percentage", PERCENT)
    asked = request(ApiKey.METADATA, 12, MetadataRequest(topics=None))
    frames = _named("greedy", [asked])
    idle = Probe(port, "probe", IDLE_S)
    alone = _cpu_percent(pid, IDLE_S - 1)
    idle.latencies()
    shape = Shape(1, 1, SHARE_S, IDLE_CREDIT_S)
    probe = Probe(port, "probe", shape.seconds + shape.skipped)
    load = Running(port, pid, frames, shape)
    time.sleep(shape.skipped)
    used = _cpu_percent(pid, shape.seconds - 1) - alone
    load.result()
    return [
        Row("request_percentage, CPU of the node", f"{used:.1f} %",
            f"quota {PERCENT:g} %, and {alone:.1f} % without the client",
            used / PERCENT, at_most=1.05),
        _calm(probe, "  p99 of another client meanwhile"),
    ]  # fmt: skip


def _cpu_percent(pid: int, seconds: float) -> float:
    """What a process uses from now on, in percent of one core."""
    before, begun = cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    return (cpu_seconds(pid) - before) / (time.monotonic() - begun) * 100


def _named(client_id: str, frames: list[bytes]) -> list[bytes]:
    """The same requests of another client id."""
    made = []
    for frame in frames:
        size = int.from_bytes(frame[12:14], "big")
        body = frame[4:12] + len(client_id).to_bytes(2, "big") + client_id.encode()
        body += frame[14 + size :]
        made.append(len(body).to_bytes(4, "big") + body)
    return made


def before(folder: Path, _: Path, __: Options) -> list[Row]:
    """Memory of a connection before authentication."""
    return memory_before_login(folder)


PARTS = {"tls": cost_of_tls, "quotas": quotas, "neighbors": neighbors, "before": before}


def main() -> int:
    """Measure what is asked for."""
    parser = parser_for(__doc__, PARTS)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each round")
    chosen = parser.parse_args()
    return run("security", "TLS and quotas", PARTS, chosen, Options(chosen.seconds))


if __name__ == "__main__":
    sys.exit(main())
