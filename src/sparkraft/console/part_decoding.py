"""Keys and values of records as JSON values, by a registry, the configuration, or a page's choice.

A form is `auto`, or of `DECODED_FORMS`. `auto` decodes a part that the configuration has a schema
for, or that begins with the id of one in the registry; everything else is left to the caller.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from sparkraft.client.decoders.internal_topics import DECODERS
from sparkraft.console.registered_schemas import RegisteredSchemas
from sparkraft.schemas.avro_value import decode_avro
from sparkraft.schemas.errors import SchemaError, UndecodableError
from sparkraft.schemas.messagepack import decode_messagepack
from sparkraft.schemas.protobuf_value import decode_protobuf, message_indexes
from sparkraft.schemas.protobuf_wire import decode_wire
from sparkraft.schemas.registry import HEADER_BYTES, framed_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkraft.client.reading import ConsumedRecord
    from sparkraft.console.message_config import MessageConfig, SchemaRule
    from sparkraft.console.registered_schemas import KnownSchema
    from sparkraft.records.record import Record
    from sparkraft.schemas.exact_json import ExactNumbers

WHOLE_BYTES_MAX = 1 << 20
"""Larger keys and values are not decoded."""

DECODED_FORMS = ("avro", "protobuf", "messagepack")

_RULES_KEPT_MAX = 1_000
"""Topics whose rules are known."""

_INTERNAL = {choice.about: choice.decode for choice in DECODERS.values()}
"""By name of the topic."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded part, or why it is not one.

    Attributes:
        form: json, or of `DECODED_FORMS`; empty if the part was not decoded.
        value: a JSON value.
        note: which schema it was decoded with, or the reason.
        text: of the form json, the text as it is stored.
    """

    form: str
    value: Any
    note: str
    text: str = ""


class PartDecoder:
    """Decodes parts of records."""

    def __init__(self, config: MessageConfig) -> None:
        self._rules = config.schemas
        self._registered = RegisteredSchemas(config.registry) if config.registry else None
        self._found: dict[tuple[str, str], SchemaRule | None] = {}

    async def prepare(self, records: Iterable[ConsumedRecord]) -> None:
        """Request the schemas that the registry may have for these records."""
        if self._registered is None:
            return
        parts = (part for record in records for part in (record.key, record.value))
        numbers = {framed_id(bytes(part[:HEADER_BYTES])) for part in parts if part is not None}
        await self._registered.load(sorted(each for each in numbers if each is not None))

    def decode(
        self, topic: str, part: str, raw: bytes, form: str, *, has_unknown: bool = True
    ) -> Decoded | None:
        """Decode a part; None if `form` is `auto` and nothing is known about it.

        Args:
            topic: of the record.
            part: key or value.
            raw: its bytes.
            form: auto, or of `DECODED_FORMS`.
            has_unknown: whether fields of Protobuf that no schema has are shown.
        """
        if len(raw) > WHOLE_BYTES_MAX:
            wanted = form != "auto"
            return Decoded("", None, "it is too large to be decoded") if wanted else None
        try:
            return self._decoded(topic, part, raw, form, has_unknown=has_unknown)
        except (UndecodableError, SchemaError, RecursionError) as error:
            return Decoded("", None, f"not decoded: {error}")

    def _decoded(
        self, topic: str, part: str, raw: bytes, form: str, *, has_unknown: bool
    ) -> Decoded | None:
        if form == "messagepack":
            return Decoded(form, decode_messagepack(raw), "")
        rule = self._rule(topic, part)
        if rule is not None and form in {"auto", rule.format}:
            return _by_rule(rule, raw, has_unknown=has_unknown)
        found = self._registered_value(raw, form, has_unknown=has_unknown)
        if found is not None:
            return found
        if form == "protobuf":
            return Decoded(form, decode_wire(raw), "by wire type, without a schema")
        if form == "avro":
            return Decoded("", None, "neither the configuration nor a registry has an Avro schema")
        return None

    def _registered_value(self, raw: bytes, form: str, *, has_unknown: bool) -> Decoded | None:
        """A part that begins with the id of a schema; None if it does not, or `form` is another."""
        number = framed_id(raw)
        if self._registered is None or number is None:
            return None
        known = self._registered.get(number)
        if isinstance(known, str):
            return Decoded("", None, known)
        if form not in {"auto", known.kind.lower()}:
            return None
        return _by_registry(known, number, raw, has_unknown=has_unknown)

    def _rule(self, topic: str, part: str) -> SchemaRule | None:
        """The first rule for a part of a topic."""
        if not self._rules:
            return None
        key = topic, part
        if key not in self._found:
            if len(self._found) >= _RULES_KEPT_MAX:
                self._found.clear()
            fitting = (rule for rule in self._rules if rule.part == part)
            self._found[key] = next((r for r in fitting if r.topic.fullmatch(topic)), None)
        return self._found[key]


def _by_rule(rule: SchemaRule, raw: bytes, *, has_unknown: bool) -> Decoded:
    value: Any
    if rule.avro is not None:
        value = decode_avro(raw, rule.avro)
    elif rule.protobuf is not None:
        value = decode_protobuf(raw, rule.protobuf, rule.message, has_unknown=has_unknown)
    else:
        value = decode_messagepack(raw)
    return Decoded(
        rule.format, value, f"by the configuration: {rule.message}" if rule.message else ""
    )


def _by_registry(
    known: KnownSchema, number: int, raw: bytes, *, has_unknown: bool
) -> Decoded | None:
    if known.avro is not None:
        value = decode_avro(raw, known.avro, skipped=HEADER_BYTES)
        return Decoded("avro", value, f"schema {number} of the registry")
    if known.protobuf is not None:
        indexes, start = message_indexes(raw, HEADER_BYTES)
        name = known.protobuf.message_at(indexes)
        found = decode_protobuf(raw, known.protobuf, name, skipped=start, has_unknown=has_unknown)
        return Decoded("protobuf", found, f"{name} of schema {number} of the registry")
    try:
        text = raw[HEADER_BYTES:].decode()
    except UnicodeDecodeError:
        return None
    value = parsed(text)
    return (
        None if value is None else Decoded("json", value, f"schema {number} of the registry", text)
    )


def parsed(raw: bytes | str | None, numbers: ExactNumbers | None = None) -> Any:
    """The JSON value, or None; without `numbers`, those with a fraction are doubles."""
    if raw is None or len(raw) > WHOLE_BYTES_MAX:
        return None
    try:
        return json.loads(raw, parse_float=numbers)
    except (ValueError, RecursionError):
        return None


def decoded_internal(record: ConsumedRecord) -> tuple[Any, Any] | None:
    """Key and value of a record of Kafka's internal topics; None for other topics."""
    decode = _INTERNAL.get(record.topic)
    return None if decode is None else decode(cast("Record", record))
