"""`console-consumer`: prints records, as `kafka-console-consumer.sh`.

Records are formatted by `client.decoders.consumed`. Not done: Java's other formatters.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from sparkraft.base.errors import DecodeError, KafkaError
from sparkraft.cli.client_configs import consumer_settings
from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.names import TopicFilter
from sparkraft.cli.options import Options, Values, exactly_one, key_values
from sparkraft.cli.session import client_properties, connected, run, warn
from sparkraft.client.consumer import Consumer
from sparkraft.client.decoders.consumed import Formatter, as_json
from sparkraft.client.errors import UnreadableBatchError
from sparkraft.client.values import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.client.cluster import Cluster
    from sparkraft.client.reading import ConsumedRecord

_JAVA_FORMATTER = "org.apache.kafka.tools.consumer.DefaultMessageFormatter"
_FORMATTERS = {_JAVA_FORMATTER, "kafka.tools.DefaultMessageFormatter"}
_POLL_MS = 500


def _options() -> Options:
    options = Options("console-consumer", "Prints records of topics.")
    options.connection()
    options.value("--topic", about="the topic")
    options.value("--include", about="a regular expression of topics", metavar="REGEX")
    options.value("--group", about="the consumer group to read as")
    options.value(
        "--group-protocol",
        about="classic (default) or consumer (KIP-848); the config group.protocol",
        choices=["classic", "consumer"],
    )
    options.flag("--from-beginning", "start at the first record if there is no committed offset")
    options.value("--partition", about="only this partition", type=int)
    options.value("--offset", about="with --partition: an offset, earliest or latest (default)")
    options.value("--max-messages", about="stop after that many", type=int)
    options.value("--timeout-ms", about="stop if no record arrives within this time", type=int)
    options.value(
        "--isolation-level",
        about="read_uncommitted (default) or read_committed",
        choices=["read_uncommitted", "read_committed"],
    )
    options.values(
        "--command-property", "--consumer-property", about="a consumer config", metavar="KEY=VALUE"
    )
    options.value(
        "--consumer.config",
        about="deprecated: --command-config",
        metavar="FILE",
        dest="command_config",
    )
    options.value("--formatter", about="only Kafka's own default is known", default=_JAVA_FORMATTER)
    options.values(
        "--formatter-property",
        "--property",
        about="print.timestamp print.key print.offset print.epoch print.partition print.headers "
        "print.value =true|false, key.separator line.separator headers.separator null.literal, "
        "key.deserializer value.deserializer headers.deserializer",
        metavar="KEY=VALUE",
    )
    options.value("--formatter-config", about="a file with formatter properties", metavar="FILE")
    options.value("--key-deserializer", about="class name")
    options.value("--value-deserializer", about="class name")
    options.flag("--skip-message-on-error", "leave out a record that can't be shown")
    options.flag("--enable-systest-events", "accepted, has no effect here")
    options.output()
    return options


def main(argv: list[str]) -> int:
    """Print until --max-messages, --timeout-ms or Ctrl-C."""
    values = _options().parse(argv)
    exactly_one(values, ["--topic", "--include"])
    if values.formatter not in _FORMATTERS:
        raise CommandError(f"the formatter {values.formatter} can't be loaded here")
    if values.partition is not None and (values.topic is None or values.group):
        raise UsageError("--partition goes with --topic and without --group")
    if values.offset is not None and values.partition is None:
        raise UsageError("--offset goes only with --partition")
    if values.from_beginning and values.offset is not None:
        raise UsageError("give --from-beginning or --offset, not both")
    return run(_main(values, _formatter(values)))


def _formatter(values: Values) -> Callable[[ConsumedRecord], bytes]:
    if values.output == "json":
        return as_json
    properties: dict[str, str] = {}
    if values.formatter_config:
        from sparkraft.server.properties import parse_properties

        properties = parse_properties(Path(values.formatter_config).read_text(encoding="utf-8"))
    for entry in values.formatter_property:
        key, _, value = entry.partition("=")
        properties[key] = value
    if values.key_deserializer:
        properties["key.deserializer"] = values.key_deserializer
    if values.value_deserializer:
        properties["value.deserializer"] = values.value_deserializer
    try:
        return Formatter.of(properties).format
    except ValueError as error:
        raise UsageError(str(error)) from None


def _properties(values: Values) -> dict[str, str]:
    found = client_properties(
        values.command_config, key_values(values.command_property, "--command-property")
    )
    if values.group:
        if found.get("group.id", values.group) != values.group:
            raise UsageError("--group and group.id name two groups")
        found["group.id"] = values.group
    elif "group.id" not in found and values.partition is None:
        # Its own group each time, and nothing of it is kept.
        found["group.id"] = f"console-consumer-{secrets.randbelow(100_000)}"
        found.setdefault("enable.auto.commit", "false")
    if values.group_protocol:
        found["group.protocol"] = values.group_protocol
    if values.isolation_level:
        found["isolation.level"] = values.isolation_level
    reset = found.get("auto.offset.reset")
    if values.from_beginning:
        if reset not in {None, "earliest"}:
            raise UsageError(f"--from-beginning contradicts auto.offset.reset={reset}")
        found["auto.offset.reset"] = "earliest"
    return found


async def _main(values: Values, form: Callable[[ConsumedRecord], bytes]) -> int:
    properties = _properties(values)
    stop = asyncio.Event()
    for wanted in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(wanted, stop.set)
    async with connected(values, properties=properties, client_id="console-consumer") as cluster:
        if values.partition is not None:
            properties.pop("group.id", None)
        async with Consumer(cluster, consumer_settings(properties)) as consumer:
            await _choose(cluster, consumer, values)
            count = await _print(consumer, values, form, stop)
    print(f"Processed a total of {count} messages", file=sys.stderr)
    return 0


async def _choose(cluster: Cluster, consumer: Consumer, values: Values) -> None:
    if values.topic is not None:
        await _warn_of_unknown(cluster, values.topic)
    if values.partition is None:
        if values.include:
            consumer.subscribe(pattern=TopicFilter(values.include, "--include").pattern)
        else:
            consumer.subscribe([values.topic])
        return
    await cluster.retrying(lambda: cluster.leader(values.topic, values.partition))
    tp = (values.topic, values.partition)
    consumer.assign([tp])
    consumer.seek(tp, _offset(values))


async def _warn_of_unknown(cluster: Cluster, topic: str) -> None:
    """It may come yet, so we wait for it; but a misspelt one never does."""
    try:
        await cluster.topic(topic)
    except KafkaError as error:
        if not error.code.is_retriable:
            raise
        warn(f"waiting for topic {topic}: {error}")


def _offset(values: Values) -> int:
    if values.from_beginning:
        return EARLIEST
    named = {None: LATEST, "earliest": EARLIEST, "latest": LATEST}
    if values.offset in named:
        return named[values.offset]
    if not values.offset.isdigit():
        raise UsageError(f"--offset is a number, earliest or latest, not {values.offset!r}")
    return int(values.offset)


async def _print(
    consumer: Consumer,
    values: Values,
    form: Callable[[ConsumedRecord], bytes],
    stop: asyncio.Event,
) -> int:
    count = 0
    wanted = values.max_messages if values.max_messages is not None else float("inf")
    loop = asyncio.get_running_loop()
    last = loop.time()
    out = sys.stdout.buffer
    while count < wanted and not stop.is_set():
        records = await _poll(consumer, stop, skip=values.skip_message_on_error)
        room = int(min(wanted - count, len(records)))
        for record in records[:room]:
            _write(out, record, form, skip=values.skip_message_on_error)
        # Records beyond the limit were not consumed; do not commit them.
        for record in reversed(records[room:]):
            consumer.seek((record.topic, record.partition), record.offset)
        count += room
        last = loop.time() if records else last
        out.flush()
        if values.timeout_ms is not None and (loop.time() - last) * 1000 > values.timeout_ms:
            warn(f"no record came for {values.timeout_ms} ms")
            break
    return count


async def _poll(consumer: Consumer, stop: asyncio.Event, *, skip: bool) -> list[ConsumedRecord]:
    """Records, or nothing once `stop` is set; `skip`: continue after an unreadable batch."""
    poll = asyncio.ensure_future(consumer.poll(_POLL_MS))
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait({poll, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not poll.done():
        poll.cancel()
        return []
    try:
        return poll.result()
    except UnreadableBatchError as error:
        if not skip:
            raise
        warn(str(error))
        consumer.seek((error.topic, error.partition), error.next_offset)
        return []
    except KafkaError as error:
        if error.code.is_retriable:
            warn(str(error))
            return []
        raise


def _write(
    out: BinaryIO,
    record: ConsumedRecord,
    form: Callable[[ConsumedRecord], bytes],
    *,
    skip: bool,
) -> None:
    try:
        out.write(form(record))
    except DecodeError as error:
        where = f"{record.topic}-{record.partition} offset {record.offset}"
        if not skip:
            raise CommandError(f"{where}: {error}") from error
        warn(f"{where} is left out: {error}")
