"""`consumer-perf-test`: measures consuming, as `kafka-consumer-perf-test.sh`.

It measures our own client, which is Python: for a node's limits use librdkafka's or Java's tool.

Not done: --print-metrics; --date-format (times are as Kafka's default prints them).
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sparkraft.cli.client_configs import consumer_settings
from sparkraft.cli.errors import UsageError
from sparkraft.cli.names import TopicFilter
from sparkraft.cli.options import Options, Values, exactly_one, key_values
from sparkraft.cli.session import client_properties, connected, print_json, run, warn
from sparkraft.client.consumer import Consumer

_MB = 1024 * 1024
_POLL_MS = 100
_EXTRA_COLUMNS = "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"


def _options() -> Options:
    options = Options("consumer-perf-test", "Measures how fast records are read.")
    options.connection(required=False)
    options.value("--topic", about="the topic")
    options.value("--include", about="a regular expression of topics", metavar="REGEX")
    options.value("--num-records", about="how many", type=int)
    options.value("--messages", about="deprecated: --num-records", type=int, dest="num_records")
    options.value(
        "--group",
        about="the group (default: a new one)",
        default=f"perf-consumer-{secrets.randbelow(100_000)}",
    )
    options.value(
        "--group-protocol",
        about="classic (default) or consumer (KIP-848); the config group.protocol",
        choices=["classic", "consumer"],
    )
    options.flag("--from-latest", "start at the end if there is no committed offset")
    options.value(
        "--fetch-size", about="bytes of a partition a request (1048576)", type=int, default=1 << 20
    )
    options.value("--socket-buffer-size", about="accepted, has no effect here", type=int)
    options.value(
        "--timeout", about="ms to wait for the next record (10000)", type=int, default=10_000
    )
    options.value("--reporting-interval", about="ms between lines (5000)", type=int, default=5_000)
    options.flag("--show-detailed-stats", "a line for each interval")
    options.flag("--hide-header", "leave out the columns' names")
    options.flag("--print-metrics", "accepted, prints nothing")
    options.value("--date-format", about="accepted, has no effect here")
    options.add_argument(
        "--command-property", help="consumer configs: key=value", nargs="+", action="extend",
        default=[], metavar="KEY=VALUE",
    )  # fmt: skip
    options.value(
        "--consumer.config",
        about="deprecated: --command-config",
        metavar="FILE",
        dest="command_config",
    )
    options.output()
    return options


def main(argv: list[str]) -> int:
    """Read, and print what it took."""
    values = _options().parse(argv)
    exactly_one(values, ["--topic", "--include"])
    if values.num_records is None or values.num_records < 1:
        raise UsageError("--num-records is needed, and at least 1")
    return run(_main(values))


@dataclass(slots=True)
class _Count:
    """Records and bytes so far, and when."""

    started: float
    joined: float | None = None
    records: int = 0
    bytes: int = 0


async def _main(values: Values) -> int:
    properties = client_properties(
        values.command_config, key_values(values.command_property, "--command-property")
    )
    properties.setdefault("group.id", values.group)
    if values.group_protocol:
        properties["group.protocol"] = values.group_protocol
    properties.setdefault("max.partition.fetch.bytes", str(values.fetch_size))
    reset = "latest" if values.from_latest else "earliest"
    properties.setdefault("auto.offset.reset", reset)
    if values.output == "text" and not values.hide_header:
        first = "time, threadId" if values.show_detailed_stats else "start.time, end.time"
        columns = "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec"
        print(f"{first}, {columns}, {_EXTRA_COLUMNS}")
    async with connected(
        values, properties=properties, client_id="perf-consumer-client"
    ) as cluster:
        started_ms = time.time_ns() // 1_000_000
        async with Consumer(cluster, consumer_settings(properties)) as consumer:
            if values.include:
                consumer.subscribe(pattern=TopicFilter(values.include, "--include").pattern)
            else:
                consumer.subscribe([values.topic])
            count = await _read(values, consumer)
            elapsed = time.perf_counter() - count.started
    if count.records < values.num_records:
        warn(
            f"WARNING: no record came for {values.timeout} ms, so it ends after "
            f"{count.records} of {values.num_records}; --timeout waits longer"
        )
    _print_total(values, count, started_ms, elapsed)
    return 0


async def _read(values: Values, consumer: Consumer) -> _Count:
    count = _Count(time.perf_counter())
    before, reported = _Count(count.started), count.started
    last = count.started
    while count.records < values.num_records:
        records = await consumer.poll(_POLL_MS)
        now = time.perf_counter()
        if count.joined is None and consumer.assignment:
            count.joined = now
        for record in records:
            count.bytes += len(record.key or b"") + len(record.value or b"")
        count.records += len(records)
        last = now if records else last
        if (now - last) * 1000 > values.timeout:
            break
        if values.show_detailed_stats and (now - reported) * 1000 >= values.reporting_interval:
            if values.output == "text":
                _print_interval(count, before, now - reported)
            before, reported = _Count(now, None, count.records, count.bytes), now
    return count


def _print_interval(count: _Count, before: _Count, seconds: float) -> None:
    mib = (count.bytes - before.bytes) / _MB / seconds
    rate = (count.records - before.records) / seconds
    print(
        f"{_time(time.time_ns() // 1_000_000)}, 0, {count.bytes / _MB:.4f}, {mib:.4f}, "
        f"{count.records}, {rate:.4f}, 0, {seconds * 1000:.0f}, {mib:.4f}, {rate:.4f}",
        flush=True,
    )


def _print_total(values: Values, count: _Count, started_ms: int, elapsed: float) -> None:
    joining = 0.0 if count.joined is None else count.joined - count.started
    fetching = max(elapsed - joining, 1e-9)
    mib = count.bytes / _MB
    end_ms = started_ms + int(elapsed * 1000)
    if values.output == "json":
        data: dict[str, Any] = {
            "startMs": started_ms,
            "endMs": end_ms,
            "mib": mib,
            "mibPerSecond": mib / elapsed,
            "records": count.records,
            "recordsPerSecond": count.records / elapsed,
            "rebalanceMs": joining * 1000,
            "fetchMs": fetching * 1000,
            "fetchMibPerSecond": mib / fetching,
            "fetchRecordsPerSecond": count.records / fetching,
        }
        print_json(data)
        return
    if values.show_detailed_stats:
        return
    print(
        f"{_time(started_ms)}, {_time(end_ms)}, {mib:.4f}, {mib / elapsed:.4f}, {count.records}, "
        f"{count.records / elapsed:.4f}, {joining * 1000:.0f}, {fetching * 1000:.0f}, "
        f"{mib / fetching:.4f}, {count.records / fetching:.4f}"
    )


def _time(ms: int) -> str:
    when = datetime.fromtimestamp(ms / 1000, UTC).astimezone()
    return f"{when:%Y-%m-%d %H:%M:%S}:{ms % 1000:03d}"
