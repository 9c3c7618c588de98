"""Sends a record that an editor wrote in a page, byte by byte as the page shows it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count as count_from
from shlex import quote
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.producer import Producer, ProducerSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sparkraft.client.cluster import Cluster

HEADERS_MAX = 100
"""Of a record that a page sends."""

_SEND_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecord:
    """A record of a request."""

    topic: str
    partition: int | None
    """None: the key chooses it, as Kafka's own producer does."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def parse_record(document: Mapping[str, Any]) -> NewRecord:
    """Return the record of a request.

    A key, a value and the value of a header are `{"form": "text" | "hex" | "null", "text": ...}`.

    Raises:
        KeyError: a field is missing.
        ValueError: a field is malformed.
    """
    partition, headers = document.get("partition"), document.get("headers", [])
    if partition is not None and (not isinstance(partition, int) or partition < 0):
        raise ValueError(f"partition is a number or null, not {partition!r}")
    if not isinstance(headers, list) or len(headers) > HEADERS_MAX:
        raise ValueError(f"headers is a list of at most {HEADERS_MAX}")
    return NewRecord(
        topic=str(document["topic"]),
        partition=partition,
        key=_bytes_of("key", document["key"]),
        value=_bytes_of("value", document["value"]),
        headers=tuple((str(name), _bytes_of(f"header {name}", part)) for name, part in headers),
    )


def _bytes_of(name: str, part: Any) -> bytes | None:
    if not isinstance(part, dict) or part.get("form") not in {"text", "hex", "null"}:
        raise ValueError(f"{name} has a form, text, hex or null")
    if part["form"] == "null":
        return None
    text = str(part["text"])
    try:
        return text.encode() if part["form"] == "text" else bytes.fromhex(text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


class RecordSender:
    """Sends records over one idempotent producer."""

    def __init__(self, cluster: Cluster, *, bootstrap: str) -> None:
        """Send over `cluster`; `bootstrap` is the servers as shown commands name them."""
        self._cluster = cluster
        self._bootstrap = bootstrap
        settings = ProducerSettings(
            linger_ms=0, max_block_ms=_SEND_MS, delivery_timeout_ms=_SEND_MS,
            request_timeout_ms=_SEND_MS // 2,
        )  # fmt: skip
        self._producer = Producer(cluster, settings)

    async def send(self, record: NewRecord) -> dict[str, Any]:
        """Return the position of the record and the command that sends the same.

        Raises:
            KafkaError: the topic does not exist, or the record was not acknowledged.
        """
        # A producer would create a topic that does not exist.
        found = (await Admin(self._cluster).describe_topics([record.topic]))[record.topic]
        if isinstance(found, KafkaError):
            raise found
        sent = await (
            await self._producer.send(
                record.topic,
                record.value,
                key=record.key,
                headers=record.headers,
                partition=record.partition,
            )
        )
        return {
            "topic": sent.topic,
            "partition": sent.partition,
            "offset": sent.offset,
            "command": command_of(record, self._bootstrap),
            "note": note_of(record),
        }

    async def close(self) -> None:
        """Fail what is not acknowledged yet."""
        await self._producer.close(flush=False)


def command_of(record: NewRecord, bootstrap: str) -> str | None:
    """Return the command line that sends the same key, value and headers; None if none does.

    `console-producer` reads a record per line, so there is none for a line break. The separators
    and the marker for null are the defaults of its reader, unless the record contains them.
    """
    line = _Line(record)
    if not line.is_one:
        return None
    options = "".join(f" --reader-property {quote(each)}" for each in line.properties)
    return (
        f"{_printed(line.raw)} | sparkraft console-producer --bootstrap-server {bootstrap} "
        f"--topic {quote(record.topic)}{options}"
    )


def note_of(record: NewRecord) -> str | None:
    """Return how the command differs from what was done, or why there is none."""
    if not _Line(record).is_one:
        return "console-producer sends a record per line: no command sends one with line breaks."
    if record.partition is not None:
        return (
            "console-producer does not choose a partition: with the command, the key chooses it"
            if record.key is not None
            else "console-producer does not choose a partition: with the command, it may be any"
        ) + f", and not always {record.partition}."
    return None


class _Line:
    """A record as a line of `console-producer`, and the properties of its reader.

    Attributes:
        raw: the line.
        properties: `parse.key=true` and so on.
        is_one: whether it is one line, also for Kafka's tool: a carriage return ends a line, too.
    """

    def __init__(self, record: NewRecord) -> None:
        names = [name.encode() for name, _ in record.headers]
        values = [value for _, value in record.headers]
        parts = [each for each in (*names, *values, record.key, record.value) if each is not None]
        self.properties: list[str] = []
        marker = b""
        if record.value is None or None in values:
            marker = next(each for each in _markers() if each not in parts)
            self.properties.append(f"null.marker={marker.decode()}")
        self.raw = marker if record.value is None else record.value
        if record.key is not None:
            self.properties.append("parse.key=true")
            self.raw = record.key + self._separator("key.separator", b"\t", record.key) + self.raw
        if record.headers:
            self.properties.append("parse.headers=true")
            colon = self._separator("headers.key.separator", b":", b"".join(names))
            texts = [
                name + colon + (marker if value is None else value)
                for name, value in zip(names, values, strict=True)
            ]
            comma = self._separator("headers.separator", b",", b"".join(texts))
            listed = comma.join(texts)
            self.raw = listed + self._separator("headers.delimiter", b"\t", listed) + self.raw
        self.is_one = not any(each in part for part in parts for each in (b"\n", b"\r"))

    def _separator(self, name: str, default: bytes, text: bytes) -> bytes:
        """The first one that the text before it does not contain; a property unless it is default.

        A record that contains all of them is not one of a form.
        """
        choices = (default, *(chr(each).encode() for each in _SEPARATORS))
        found = next((each for each in choices if each not in text), choices[-1])
        if found != default:
            self.properties.append(f"{name}={found.decode()}")
        return found


def _markers() -> Iterator[bytes]:
    yield b"NULL"
    for number in count_from(2):
        yield b"NULL%d" % number


def _printed(raw: bytes) -> str:
    """A command that prints these bytes as a line."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = ""
    if text.isprintable() and text.encode() == raw:
        return f"printf '%s\\n' {quote(text)}"
    escaped = "".join(
        _ESCAPES.get(byte) or (chr(byte) if 0x20 <= byte < 0x7F else f"\\0{byte:03o}")  # noqa: PLR2004
        for byte in raw
    )
    return f"printf '%b\\n' {quote(escaped)}"


_ESCAPES = {ord("\\"): "\\\\", ord("\t"): "\\t"}
_SEPARATORS = (*map(ord, "|~^;&="), *range(0x1F, 0x0D, -1), *range(0x2500, 0x2600))
"""Tried instead of a default: printable ones, control characters, and those that draw lines."""
