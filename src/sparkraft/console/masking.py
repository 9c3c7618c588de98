"""Hides fields of records, by the rules of the configuration, before anything else sees them.

`RecordMasks.safe` replaces the key, value and headers of a record by what may be seen of them. The
filter, the page, the export and the screen of pipelines get these records only, for every role: no
choice of a page reaches the bytes that were read.

* A part with a rule for one of its fields is decoded as the configuration, the registry or JSON
  say, whatever form a page asks for, and written again as JSON. If it is not an object or an array,
  or cannot be decoded, it is hidden as a whole.
* A rule whose path ends early, at a text in place of an object, hides that text.
* Fields of Protobuf that the schema lacks are left out: their names, and with them the rules that
  apply to them, are unknown.
* A hash is HMAC-SHA256 with the key of the configuration: equal values stay equal, and a reader
  cannot compute the hash of a guess. An editor can, by sending it to the topic.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sparkraft.console.message_config import ANY, ANY_DEPTH
from sparkraft.console.part_decoding import decoded_internal, parsed
from sparkraft.schemas.exact_json import ExactNumbers, text_of
from sparkraft.schemas.json_values import Opaque

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkraft.client.reading import ConsumedRecord
    from sparkraft.console.message_config import MessageConfig
    from sparkraft.console.part_decoding import PartDecoder

MASK = "***"

_TOPICS_KEPT_MAX = 1_000
_HASH_DIGITS = 32

Path = tuple[str, ...]
Action = tuple[Path, str]


@dataclass(frozen=True, slots=True)
class TopicMasks:
    """The rules of one topic: paths and actions by key and value, and actions of headers."""

    parts: Mapping[str, tuple[Action, ...]]
    headers: Mapping[str, str]


class RecordMasks:
    """See the module docstring."""

    def __init__(self, config: MessageConfig, decoder: PartDecoder) -> None:
        self._rules = config.masks
        self._hash_key = config.hash_key
        self._decoder = decoder
        self._found: dict[str, TopicMasks | None] = {}

    def of(self, topic: str) -> TopicMasks | None:
        """The rules of a topic; None if it has none."""
        if not self._rules:
            return None
        if topic not in self._found:
            if len(self._found) >= _TOPICS_KEPT_MAX:
                self._found.clear()
            self._found[topic] = self._rules_of(topic)
        return self._found[topic]

    def _rules_of(self, topic: str) -> TopicMasks | None:
        parts: dict[str, list[Action]] = {}
        headers: dict[str, str] = {}
        for rule in self._rules:
            if not rule.topic.fullmatch(topic):
                continue
            for first, *rest in rule.fields:
                if first == "headers":
                    headers.setdefault(rest[0], rule.action)
                else:
                    parts.setdefault(first, []).append((tuple(rest), rule.action))
        if not parts and not headers:
            return None
        return TopicMasks({name: tuple(actions) for name, actions in parts.items()}, headers)

    def safe(self, record: ConsumedRecord) -> ConsumedRecord:
        """The record without what the rules of its topic hide."""
        masks = self.of(record.topic)
        if masks is None:
            return record
        internal = decoded_internal(record)
        values = dict(zip(("key", "value"), internal, strict=True)) if internal else {}
        return replace(
            record,
            key=self._part(masks, record, "key", record.key, values),
            value=self._part(masks, record, "value", record.value, values),
            headers=self._headers(masks, record),
        )

    def _part(
        self,
        masks: TopicMasks,
        record: ConsumedRecord,
        name: str,
        raw: bytes | None,
        internal: Mapping[str, Any],
    ) -> bytes | None:
        actions = masks.parts.get(name)
        if actions is None or raw is None:
            return raw
        whole = next((action for path, action in actions if not path), None)
        if whole is not None:
            return self._hidden(raw, whole)
        numbers = ExactNumbers()
        value = internal[name] if internal else self._value(record.topic, name, bytes(raw), numbers)
        if not isinstance(value, (dict, list)) or isinstance(value, Opaque):
            return MASK.encode()
        try:
            for path, action in actions:
                value = _applied(value, path, action, self._hash)
            return text_of(value, has_exact=numbers.has_exact).encode()
        except RecursionError:
            return MASK.encode()

    def _value(self, topic: str, part: str, raw: bytes, numbers: ExactNumbers) -> Any:
        found = self._decoder.decode(topic, part, raw, "auto", has_unknown=False)
        if found is None:
            return parsed(raw, numbers)
        if found.form == "json":
            return parsed(found.text, numbers)
        return found.value if found.form else None

    def _hidden(self, raw: bytes, action: str) -> bytes:
        return self._digest(bytes(raw)).encode() if action == "hash" else MASK.encode()

    def _headers(self, masks: TopicMasks, record: ConsumedRecord) -> list[tuple[str, bytes | None]]:
        found: list[tuple[str, bytes | None]] = []
        for name, raw in record.headers:
            action = masks.headers.get(name) or masks.headers.get(ANY)
            if action is None:
                found.append((name, raw))
            elif action != "drop":
                found.append((name, None if raw is None else self._hidden(raw, action)))
        return found

    def _hash(self, value: Any) -> str:
        return self._digest(json.dumps(value, sort_keys=True).encode())

    def _digest(self, data: bytes) -> str:
        found = hmac.new(self._hash_key, data, hashlib.sha256).hexdigest()
        return f"hash:{found[:_HASH_DIGITS]}"


_DROPPED = object()


def _applied(value: Any, path: Path, action: str, hashed: Callable[[Any], str]) -> Any:
    """The value with `action` done to what `path` leads to; `_DROPPED` if nothing remains."""
    if not path:
        return _replaced(value, action, hashed)
    if isinstance(value, list):
        items = [_applied(item, path, action, hashed) for item in value]
        return [item for item in items if item is not _DROPPED]
    if not isinstance(value, dict) or isinstance(value, Opaque):
        # `**` passes over what has no fields; any other path expected an object here.
        if path[0] == ANY_DEPTH or value is None:
            return value
        return _replaced(value, action, hashed)
    if path[0] == ANY_DEPTH:
        value = _members(value, ANY, path, action, hashed)
        return _members(value, path[1], path[2:], action, hashed)
    return _members(value, path[0], path[1:], action, hashed)


def _members(
    value: dict[str, Any], name: str, rest: Path, action: str, hashed: Callable[[Any], str]
) -> dict[str, Any]:
    """The object with `rest` applied to its member `name`, or to all."""
    found: dict[str, Any] = {}
    for key, member in value.items():
        is_meant = name in {ANY, key}
        new = _applied(member, rest, action, hashed) if is_meant else member
        if new is not _DROPPED:
            found[key] = new
    return found


def _replaced(value: Any, action: str, hashed: Callable[[Any], str]) -> Any:
    if action == "drop":
        return _DROPPED
    return hashed(value) if action == "hash" else MASK
