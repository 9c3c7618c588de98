"""`producer-perf-test`: measures producing, as `kafka-producer-perf-test.sh`.

It measures our own client, which is Python: for a node's limits use librdkafka's or Java's tool.

Not done: --print-metrics.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sparkraft.cli.client_configs import producer_of, producer_settings
from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.options import Options, Values, exactly_one, key_values
from sparkraft.cli.session import client_properties, connected, print_json, run, warn
from sparkraft.client.transactional_producer import TransactionalProducer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparkraft.client.outgoing import Sent
    from sparkraft.client.producer import Producer

_MB = 1024 * 1024
_LATENCIES_KEPT_MAX = 500_000
"""Enough for exact percentiles of ordinary runs; longer ones are sampled evenly."""

_PERCENTILES = (50.0, 95.0, 99.0, 99.9)
_TRANSACTION_MS = 3_000
_BURST = 500
"""Records sent before the loop gets its turn to put them on the wire."""


def _options() -> Options:
    options = Options("producer-perf-test", "Measures how fast records are written.")
    options.connection(required=False)
    options.value("--topic", about="where to", required=True)
    options.value("--num-records", about="how many", type=int, required=True)
    options.value(
        "--throughput", about="records a second; -1 as many as go", type=float, required=True
    )
    options.value("--record-size", about="bytes of a record", type=int)
    options.value("--payload-file", about="records are lines of it, at random", metavar="FILE")
    options.value(
        "--payload-delimiter", about="their separator (default: a new line)", default="\\n"
    )
    options.flag("--payload-monotonic", "records are rising numbers")
    options.add_argument(
        "--command-property", "--producer-props", help="producer configs: key=value key=value",
        nargs="+", action="extend", default=[], metavar="KEY=VALUE",
    )  # fmt: skip
    options.value(
        "--producer.config",
        about="deprecated: --command-config",
        metavar="FILE",
        dest="command_config",
    )
    options.value("--warmup-records", about="records before the steady state", type=int, default=0)
    options.value("--reporting-interval", about="ms between lines (5000)", type=int, default=5_000)
    options.flag("--print-metrics", "accepted, prints nothing")
    options.value(
        "--transactional-id", about="send in transactions of this id (default: a random one)"
    )
    options.value(
        "--transaction-duration-ms",
        about="commit after this time and begin again (3000)",
        type=int,
    )
    options.output()
    return options


def main(argv: list[str]) -> int:
    """Send, and print what it took; 1 if a record was refused."""
    values = _options().parse(argv)
    exactly_one(values, ["--record-size", "--payload-file", "--payload-monotonic"])
    if values.transaction_duration_ms is not None and values.transaction_duration_ms <= 0:
        raise UsageError("--transaction-duration-ms is above 0")
    if values.num_records < 1 or (values.record_size is not None and values.record_size < 0):
        raise UsageError("--num-records is at least 1 and --record-size at least 0")
    if values.warmup_records >= values.num_records:
        raise UsageError("--warmup-records is less than --num-records")
    return run(_main(values, _payloads(values)))


def _payloads(values: Values) -> Callable[[int], bytes]:
    """The value of the n-th record."""
    if values.payload_monotonic:
        return lambda number: str(number).encode()
    if values.payload_file:
        delimiter = values.payload_delimiter.encode().decode("unicode_escape").encode()
        lines = [p for p in Path(values.payload_file).read_bytes().split(delimiter) if p]
        if not lines:
            raise CommandError(f"{values.payload_file} is empty")
        print(f"Number of records read: {len(lines)}")
        # Seeded, so that runs compare.
        dice = random.Random(0)
        return lambda _: lines[dice.randrange(len(lines))]
    value = bytes(random.Random(0).choices(range(65, 91), k=values.record_size))
    return lambda _: value


@dataclass(slots=True)
class _Window:
    """Counts since a moment."""

    started: float = field(default_factory=time.perf_counter)
    count: int = 0
    bytes: int = 0
    latency_ms_total: float = 0.0
    latency_ms_max: float = 0.0

    def add(self, size: int, latency_ms: float) -> None:
        self.count += 1
        self.bytes += size
        self.latency_ms_total += latency_ms
        self.latency_ms_max = max(self.latency_ms_max, latency_ms)

    def rates(self) -> tuple[float, float]:
        """Records and MiB a second."""
        elapsed = max(time.perf_counter() - self.started, 1e-9)
        return self.count / elapsed, self.bytes / _MB / elapsed


class _Stats:
    """Counts of sent records: in total and since the last line, and latencies for percentiles."""

    def __init__(self, values: Values, count: int, *, name: str = "") -> None:
        self.total = _Window()
        self._window = _Window()
        self._name = name
        self._interval = values.reporting_interval / 1000
        self.prints_windows = values.output == "text"
        self._latencies: list[float] = []
        self._every = max(1, count // _LATENCIES_KEPT_MAX)

    def add(self, size: int, latency_ms: float) -> None:
        self.total.add(size, latency_ms)
        self._window.add(size, latency_ms)
        if self.total.count % self._every == 0:
            self._latencies.append(latency_ms)
        if time.perf_counter() - self._window.started >= self._interval:
            self._print_window()

    def _print_window(self) -> None:
        window, self._window = self._window, _Window()
        records, mib = window.rates()
        if self.prints_windows:
            print(
                f"{window.count} records sent, {records:.1f} records/sec ({mib:.2f} MB/sec), "
                f"{window.latency_ms_total / window.count:.1f} ms avg latency, "
                f"{window.latency_ms_max:.1f} ms max latency.",
                flush=True,
            )

    def summary(self) -> dict[str, Any]:
        total = self.total
        records, mib = total.rates()
        ordered = sorted(self._latencies)
        found = {
            f"latencyMsP{name:g}": ordered[min(len(ordered) - 1, int(len(ordered) * name / 100))]
            if ordered
            else 0.0
            for name in _PERCENTILES
        }
        return {
            "records": total.count,
            "recordsPerSecond": records,
            "mibPerSecond": mib,
            "latencyMsAverage": total.latency_ms_total / max(1, total.count),
            "latencyMsMax": total.latency_ms_max,
            **found,
        }

    def text(self) -> str:
        data = self.summary()
        shown = ", ".join(
            f"{data[f'latencyMsP{name:g}']:.0f} ms {name:g}th" for name in _PERCENTILES
        )
        return (
            f"{data['records']}{self._name} records sent, {data['recordsPerSecond']:f} records/sec "
            f"({data['mibPerSecond']:.2f} MB/sec), {data['latencyMsAverage']:.2f} ms avg latency, "
            f"{data['latencyMsMax']:.2f} ms max latency, {shown}."
        )


async def _main(values: Values, payload: Callable[[int], bytes]) -> int:
    properties = client_properties(
        values.command_config, key_values(values.command_property, "--command-property")
    )
    _name_transactions(values, properties)
    runs: list[_Stats] = [_Stats(values, values.num_records)]
    failures: list[BaseException] = []
    async with (
        connected(values, properties=properties, client_id="perf-producer-client") as cluster,
        producer_of(cluster, producer_settings(properties)) as producer,
    ):
        await _send_all(values, producer, payload, runs, failures)
    if failures:
        warn(f"{len(failures)} records were not written; the first: {failures[0]}")
    if values.output == "json":
        names = ("total", "steadyState")
        print_json({name: stats.summary() for name, stats in zip(names, runs, strict=False)})
    else:
        for stats in runs:
            print(stats.text())
    return int(bool(failures))


def _name_transactions(values: Values, properties: dict[str, str]) -> None:
    """--transactional-id over the config, as in Kafka; a random id if only a duration is given."""
    if values.transactional_id:
        properties["transactional.id"] = values.transactional_id
    elif values.transaction_duration_ms is not None:
        properties.setdefault("transactional.id", f"performance-producer-{uuid4()}")


class _Transactions:
    """Commits and begins again whenever the duration has passed; does nothing without an id."""

    def __init__(self, producer: Producer, duration_ms: int | None) -> None:
        self._producer = producer if isinstance(producer, TransactionalProducer) else None
        self._seconds = (duration_ms or _TRANSACTION_MS) / 1000
        self._began: float | None = None

    async def start(self) -> None:
        """Take the transactional id over."""
        if self._producer is not None:
            await self._producer.init_transactions()

    def before_send(self) -> None:
        """Begin a transaction unless one is open."""
        if self._producer is not None and self._began is None:
            self._producer.begin_transaction()
            self._began = time.perf_counter()

    async def after_send(self) -> None:
        """Commit if the transaction is old enough."""
        if self._began is not None and time.perf_counter() - self._began >= self._seconds:
            await self.commit()

    async def commit(self) -> None:
        """Commit the open transaction, if there is one."""
        if self._producer is not None and self._began is not None:
            await self._producer.commit_transaction()
            self._began = None


async def _send_all(
    values: Values,
    producer: Producer,
    payload: Callable[[int], bytes],
    runs: list[_Stats],
    failures: list[BaseException],
) -> None:
    transactions = _Transactions(producer, values.transaction_duration_ms)
    await transactions.start()
    started = time.perf_counter()
    for number in range(values.num_records):
        if values.warmup_records and number == values.warmup_records:
            rest = values.num_records - values.warmup_records
            runs[0].prints_windows = False
            runs.append(_Stats(values, rest, name=" steady state"))
        value = payload(number)
        transactions.before_send()
        future = await producer.send(values.topic, value)
        future.add_done_callback(_Done(list(runs), failures, len(value)))
        await transactions.after_send()
        await _hold_back(values.throughput, number + 1, started)
    await transactions.commit()
    await producer.flush()


async def _hold_back(throughput: float, sent: int, started: float) -> None:
    """Yield to the event loop, and wait if more was sent than `throughput` allows."""
    if throughput > 0:
        ahead = sent / throughput - (time.perf_counter() - started)
        if ahead > 0:
            await asyncio.sleep(ahead)
            return
    if sent % _BURST == 0:
        await asyncio.sleep(0)


class _Done:
    """Counts one record when it is acknowledged."""

    __slots__ = ("_at", "_failures", "_runs", "_size")

    def __init__(self, runs: Iterable[_Stats], failures: list[BaseException], size: int) -> None:
        self._at = time.perf_counter()
        self._runs = runs
        self._failures = failures
        self._size = size

    def __call__(self, future: asyncio.Future[Sent]) -> None:
        error = None if future.cancelled() else future.exception()
        if error is not None:
            self._failures.append(error)
            return
        latency_ms = (time.perf_counter() - self._at) * 1000
        for stats in self._runs:
            stats.add(self._size, latency_ms)
