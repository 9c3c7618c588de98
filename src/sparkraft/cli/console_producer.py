"""`console-producer`: sends lines of standard input as records, as `kafka-console-producer.sh`.

With `transactional.id`, all lines are one transaction: committed at the end of the input, aborted
if a record or line is refused. Kafka's tool cannot do that.

Not done: --line-reader classes (they are Java's).
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sparkraft.base.errors import KafkaError
from sparkraft.cli.client_configs import producer_of, producer_settings
from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.options import Options, Values, key_values
from sparkraft.cli.session import client_properties, connected, run, warn
from sparkraft.client.errors import sentence_of
from sparkraft.client.transactional_producer import TransactionalProducer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkraft.client.outgoing import Sent
    from sparkraft.client.producer import Producer

_JAVA_READER = "org.apache.kafka.tools.LineMessageReader"

_READER_HELP = (
    "how lines are read, repeatable: parse.key=false parse.headers=false ignore.error=false "
    "key.separator=\\t headers.delimiter=\\t headers.separator=, headers.key.separator=: "
    "null.marker="
)


def _options() -> Options:
    options = Options("console-producer", "Sends each line of standard input as a record.")
    options.connection()
    options.value("--topic", about="where to", required=True)
    options.value("--batch-size", about="bytes of a batch (16384)", type=int)
    options.value("--max-partition-memory-bytes", about="deprecated: --batch-size", type=int)
    options.values(
        "--command-property", "--producer-property", about="a producer config", metavar="KEY=VALUE"
    )
    options.value(
        "--producer.config",
        about="deprecated: --command-config",
        metavar="FILE",
        dest="command_config",
    )
    options.value(
        "--compression-codec",
        about="none, gzip, snappy, lz4 or zstd; gzip if only named",
        nargs="?",
        const="gzip",
    )
    options.values("--reader-property", "--property", about=_READER_HELP, metavar="KEY=VALUE")
    options.value("--reader-config", about="a file with reader properties", metavar="FILE")
    options.value("--line-reader", about="only Kafka's own default is known", default=_JAVA_READER)
    options.value("--request-required-acks", about="0, 1 or -1, all (default)", default=None)
    options.value("--request-timeout-ms", about="(1500)", type=int)
    options.value("--timeout", about="ms a record may wait for its batch (1000)", type=int)
    options.value("--max-block-ms", about="ms to wait for room (60000)", type=int)
    options.value("--max-memory-bytes", about="bytes to buffer (33554432)", type=int)
    options.value("--retry-backoff-ms", about="(100)", type=int)
    for ignored in ("--message-send-max-retries", "--metadata-expiry-ms", "--socket-buffer-size"):
        options.value(ignored, about="accepted, has no effect here", type=int)
    options.flag("--sync", "wait for each record before the next line")
    return options


@dataclass(frozen=True, slots=True, kw_only=True)
class LineReader:
    """Takes a line apart: headers, key, value."""

    parse_key: bool = False
    parse_headers: bool = False
    ignore_error: bool = False
    key_separator: str = "\t"
    headers_delimiter: str = "\t"
    headers_separator: str = ","
    headers_key_separator: str = ":"
    null_marker: str | None = None

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> LineReader:
        """Parse `parse.key=true` and so on; `UsageError` if two separators are equal."""
        known = {
            "parse.key", "parse.headers", "ignore.error", "key.separator", "headers.delimiter",
            "headers.separator", "headers.key.separator", "null.marker",
        }  # fmt: skip
        for name in properties:
            if name not in known:
                raise UsageError(f"no reader property {name}; there are {', '.join(sorted(known))}")

        def flag(name: str) -> bool:
            return properties.get(name, "").strip().lower() == "true"

        made = cls(
            parse_key=flag("parse.key"),
            parse_headers=flag("parse.headers"),
            ignore_error=flag("ignore.error"),
            key_separator=properties.get("key.separator", "\t"),
            headers_delimiter=properties.get("headers.delimiter", "\t"),
            headers_separator=properties.get("headers.separator", ","),
            headers_key_separator=properties.get("headers.key.separator", ":"),
            null_marker=properties.get("null.marker"),
        )
        of_headers = (made.headers_delimiter, made.headers_separator, made.headers_key_separator)
        if len(set(of_headers)) != len(of_headers):
            raise UsageError("the three separators of headers must differ")
        if made.null_marker in (*of_headers, made.key_separator):
            raise UsageError("null.marker must differ from the separators")
        return made

    def read(
        self, line: str, number: int
    ) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
        """Key, value and headers of a line; `CommandError` if a separator is missing."""
        headers: str | None = None
        key: str | None = None
        value = line
        if self.parse_headers:
            headers, value = self._cut(value, self.headers_delimiter, number)
        if self.parse_key:
            key, value = self._cut(value, self.key_separator, number)
        parsed = self._headers(headers, number) if headers not in (None, self.null_marker) else []
        return self._bytes(key), self._bytes(value), parsed

    def _cut(self, text: str, separator: str, number: int) -> tuple[str | None, str]:
        first, found, rest = text.partition(separator)
        if found:
            return first, rest
        if self.ignore_error:
            return None, text
        raise CommandError(f"line {number} has no {separator!r}: {text[:80]!r}")

    def _headers(self, text: str | None, number: int) -> list[tuple[str, bytes | None]]:
        found: list[tuple[str, bytes | None]] = []
        for pair in (text or "").split(self.headers_separator):
            name, colon, value = pair.partition(self.headers_key_separator)
            if not colon and not self.ignore_error:
                raise CommandError(
                    f"line {number}: header {pair!r} has no {self.headers_key_separator!r}"
                )
            if self.null_marker is not None and name == self.null_marker:
                raise CommandError(f"line {number}: a header's key can't be null")
            found.append((name, self._bytes(value) if colon else None))
        return found

    def _bytes(self, text: str | None) -> bytes | None:
        if text is None or (self.null_marker is not None and text == self.null_marker):
            return None
        return text.encode("utf-8", "surrogateescape")


def main(argv: list[str]) -> int:
    """Send until the end of standard input; 1 if a record was refused."""
    values = _options().parse(argv)
    if values.line_reader != _JAVA_READER:
        raise CommandError("--line-reader names a Java class, which can't be loaded here")
    properties = {}
    if values.reader_config:
        from sparkraft.server.properties import parse_properties

        properties = parse_properties(Path(values.reader_config).read_text(encoding="utf-8"))
    # Values may be blanks, so they are not stripped as others are.
    for entry in values.reader_property:
        key, _, value = entry.partition("=")
        properties[key] = value
    return run(_main(values, LineReader.of(properties)))


def _properties(values: Values) -> dict[str, str]:
    """Kafka's order: options over --command-property over --command-config."""
    found = client_properties(
        values.command_config, key_values(values.command_property, "--command-property")
    )
    defaults = {"linger.ms": "1000", "request.timeout.ms": "30000"}
    given = {
        "acks": values.request_required_acks,
        "batch.size": values.batch_size or values.max_partition_memory_bytes,
        "linger.ms": values.timeout,
        "request.timeout.ms": values.request_timeout_ms,
        "max.block.ms": values.max_block_ms,
        "buffer.memory": values.max_memory_bytes,
        "retry.backoff.ms": values.retry_backoff_ms,
        "compression.type": values.compression_codec,
    }
    return defaults | found | {key: str(value) for key, value in given.items() if value is not None}


class _Failures:
    """Records that were not written; the first is reported at once."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, future: asyncio.Future[Sent]) -> None:
        """Count the record of `future` if it failed."""
        error = None if future.cancelled() else future.exception()
        if isinstance(error, KafkaError):
            self.count += 1
            if self.count == 1:
                warn(f"a record was not written: {sentence_of(error)}")


async def _main(values: Values, reader: LineReader) -> int:
    properties = _properties(values)
    failures = _Failures()
    async with (
        connected(values, properties=properties, client_id="console-producer") as cluster,
        producer_of(cluster, producer_settings(properties)) as producer,
    ):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
        if isinstance(producer, TransactionalProducer):
            await producer.init_transactions()
            async with producer.transaction():
                await _send_lines(values, reader, producer, failures)
        else:
            await _send_lines(values, reader, producer, failures)
    if failures.count > 1:
        warn(f"{failures.count} records were not written")
    return int(bool(failures.count))


async def _send_lines(
    values: Values, reader: LineReader, producer: Producer, failures: _Failures
) -> None:
    loop = asyncio.get_running_loop()
    prompt = ">" if sys.stdin.isatty() else ""
    number = 0
    while True:
        if prompt:
            print(prompt, end="", flush=True)
        # In a thread: a terminal may take its time, and batches must leave meanwhile.
        lines = await loop.run_in_executor(None, _read_lines, bool(prompt))
        if not lines:
            return
        for line in lines:
            number += 1
            key, value, headers = await _parsed(reader, line, number, producer)
            future = await producer.send(values.topic, value, key=key, headers=headers)
            future.add_done_callback(failures)
            if values.sync:
                await asyncio.wait([future])


async def _parsed(
    reader: LineReader, line: str, number: int, producer: Producer
) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
    """The content of a line; before a malformed line is refused, earlier lines are written."""
    try:
        return reader.read(line, number)
    except CommandError:
        await producer.flush()
        raise


def _read_lines(one: bool) -> list[str]:  # noqa: FBT001 (called through run_in_executor)
    """The next lines without their ends: one from a terminal, else about 64 KiB of them."""
    lines = [sys.stdin.readline()] if one else sys.stdin.readlines(65_536)
    return [line.removesuffix("\n").removesuffix("\r") for line in lines if line]
