"""Records that a consumer has read as lines, as `kafka-console-consumer.sh` prints, or as JSON.

Not done: deserializers other than text, numbers and bytes (they are Java's).
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import DecodeError
from sparkraft.client.decoders.batches import TIMESTAMP_TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkraft.client.reading import ConsumedRecord

Deserializer = Callable[[bytes], bytes]


def _number(form: str) -> Deserializer:
    def read(raw: bytes) -> bytes:
        try:
            return str(struct.unpack(form, raw)[0]).encode()
        except struct.error as error:
            size = struct.calcsize(form)
            raise DecodeError(f"expected {size} bytes for this number, got {len(raw)}") from error

    return read


_DESERIALIZERS: dict[str, Deserializer] = {
    "StringDeserializer": bytes,
    "ByteArrayDeserializer": bytes,
    "BytesDeserializer": bytes,
    "ShortDeserializer": _number(">h"),
    "IntegerDeserializer": _number(">i"),
    "LongDeserializer": _number(">q"),
    "FloatDeserializer": _number(">f"),
    "DoubleDeserializer": _number(">d"),
}
"""By class name; the package is not looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Formatter:
    """Format records as lines, as Kafka's DefaultMessageFormatter."""

    shown: frozenset[str] = frozenset({"value"})
    key_separator: bytes = b"\t"
    line_separator: bytes = b"\n"
    headers_separator: bytes = b","
    null_literal: bytes = b"null"
    deserializers: Mapping[str, Deserializer] = field(default_factory=dict)

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Formatter:
        """From `print.key=true` and so on; ValueError for an unknown deserializer."""
        shown = {"value"}
        for name in _COLUMNS:
            text = properties.get(f"print.{name}")
            if text is not None:
                (shown.add if text.strip().lower() == "true" else shown.discard)(name)
        return cls(
            shown=frozenset(shown),
            key_separator=properties.get("key.separator", "\t").encode(),
            line_separator=properties.get("line.separator", "\n").encode(),
            headers_separator=properties.get("headers.separator", ",").encode(),
            null_literal=properties.get("null.literal", "null").encode(),
            deserializers={
                part: _deserializer(properties[f"{part}.deserializer"])
                for part in ("key", "value", "headers")
                if f"{part}.deserializer" in properties
            },
        )

    def format(self, record: ConsumedRecord) -> bytes:
        """The line of a record, with its separator at the end.

        Raises `DecodeError` if a deserializer does not accept a key, value or header.
        """
        columns = [_COLUMNS[name](self, record) for name in _COLUMNS if name in self.shown]
        return self.key_separator.join(columns) + self.line_separator

    def headers(self, record: ConsumedRecord) -> bytes:
        """Its headers, or a placeholder if it has none."""
        pairs = [k.encode() + b":" + self.text("headers", v) for k, v in record.headers]
        return self.headers_separator.join(pairs) if pairs else b"NO_HEADERS"

    def text(self, part: str, raw: bytes | None) -> bytes:
        """A key, value or header value, deserialized by the deserializer of that part."""
        if raw is None:
            return self.null_literal
        return self.deserializers.get(part, bytes)(raw)


def _timestamp(_form: Formatter, record: ConsumedRecord) -> bytes:
    return f"{TIMESTAMP_TYPES[record.timestamp_type]}:{record.timestamp}".encode()


_COLUMNS: dict[str, Callable[[Formatter, ConsumedRecord], bytes]] = {
    "timestamp": _timestamp,
    "partition": lambda _, record: b"Partition:%d" % record.partition,
    "offset": lambda _, record: b"Offset:%d" % record.offset,
    "delivery": lambda _form, _record: b"Delivery:NOT_PRESENT",
    "epoch": lambda _, record: b"Epoch:%d" % record.leader_epoch,
    "headers": lambda form, record: form.headers(record),
    "key": lambda form, record: form.text("key", record.key),
    "value": lambda form, record: form.text("value", record.value),
}
"""The parts of a record that can be printed, in output order."""


def _deserializer(name: str) -> Deserializer:
    found = _DESERIALIZERS.get(name.rsplit(".", 1)[-1])
    if found is None:
        known = ", ".join(_DESERIALIZERS)
        raise ValueError(f"no deserializer {name}; there are {known}")
    return found


def as_json(record: ConsumedRecord) -> bytes:
    """The record as one line of JSON; bytes that are not UTF-8 as `{"base64": …}`."""

    def text(raw: bytes | None) -> Any:
        if raw is None:
            return None
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(raw).decode()}

    shown = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestampType": TIMESTAMP_TYPES[record.timestamp_type],
        "headers": [[name, text(value)] for name, value in record.headers],
        "key": text(record.key),
        "value": text(record.value),
    }
    return json.dumps(shown, ensure_ascii=False).encode() + b"\n"
