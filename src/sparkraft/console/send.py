"""Sends a record that an editor wrote in a page, byte by byte as the page shows it."""

from __future__ import annotations

from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.producer import Producer, ProducerSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        }

    async def close(self) -> None:
        """Fail what is not acknowledged yet."""
        await self._producer.close(flush=False)


def command_of(record: NewRecord, bootstrap: str) -> str | None:
    """Return the command line that sends the same key and value; None if none does.

    `console-producer` reads lines of text, chooses the partition by the key, and sends no headers
    with names that contain its separators; a record with headers has no command here.
    """
    value = _line(record.value)
    if value is None or record.partition is not None or record.headers:
        return None
    command = (
        f"sparkraft console-producer --bootstrap-server {bootstrap} --topic {quote(record.topic)}"
    )
    if record.key is None:
        return f"printf '%s\\n' {quote(value)} | {command}"
    key = _line(record.key)
    if key is None or "\t" in key:
        return None
    pair = f"printf '%s\\t%s\\n' {quote(key)} {quote(value)}"
    return f"{pair} | {command} --reader-property parse.key=true"


def _line(raw: bytes | None) -> str | None:
    """The text of one line, or None."""
    try:
        text = None if raw is None else raw.decode()
    except UnicodeDecodeError:
        return None
    return None if text is None or "\n" in text or "\r" in text else text
