"""Decoders for the records of Kafka's internal topics: JSON in the shape of Kafka's tools.

A decoder takes a record and returns (key, payload): a text, a JSON value, or None if there is none.
For a record that cannot be decoded the key is an error text, and the dump continues.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkraft.base.errors import DecodeError
from sparkraft.protocol import codec
from sparkraft.protocol.framing import (
    decode_metadata_record,
    decode_record_key,
    encode_metadata_record,
)
from sparkraft.protocol.json_form import to_json

if TYPE_CHECKING:
    from sparkraft.protocol.declare import Message
    from sparkraft.records.record import Record

Decoded = tuple[Any, Any]
Decoder = Callable[["Record"], Decoded]
Types = dict[int, tuple[type["Message"], type["Message"]]]

_WORDS = re.compile(r"(?<!^)(?=[A-Z])")
_GROUP_METADATA_KEY = 2


class Choice(NamedTuple):
    """A decoder and what it is for."""

    about: str
    decode: Decoder


def text_decoder(change: Callable[[Message], Message], *, is_metadata: bool) -> Decoder:
    """Return a decoder of keys and values as text.

    A value without a key that is a record of cluster metadata is shown as the bytes of what
    `change` returns, wherever the file is: it may be a copy. With `is_metadata`, all records are
    metadata; those that cannot be decoded are then not shown, since they may contain secrets.
    """
    return partial(_text, change=change, is_metadata=is_metadata)


def _text(record: Record, change: Callable[[Message], Message], *, is_metadata: bool) -> Decoded:
    value = record.value
    if is_metadata or record.key is None:
        try:
            message, version = decode_metadata_record(value or b"")
        except DecodeError as error:
            if is_metadata:
                return None, f"Error at {record.offset}, skipping. {error}"
        else:
            changed = change(message)
            if changed is not message:
                value = encode_metadata_record(changed, version)
    return _utf8(record.key), _utf8(value)


def _utf8(part: bytes | None) -> str | None:
    return None if part is None else part.decode("utf-8", "replace")


def metadata_decoder(change: Callable[[Message], Message] | None = None) -> Decoder:
    """Return a decoder of cluster metadata; `change` is applied to each message first."""
    return partial(_metadata, change=change)


def _metadata(record: Record, change: Callable[[Message], Message] | None = None) -> Decoded:
    try:
        message, version = decode_metadata_record(record.value or b"")
    except DecodeError as error:
        return None, f"Error at {record.offset}, skipping. {error}"
    if change is not None:
        message = change(message)
    name = _WORDS.sub("_", type(message).__name__).upper()
    return None, {"type": name, "version": version, "data": to_json(message, version)}


def _offsets(record: Record) -> Decoded:
    from sparkraft.protocol.messages.group_records import GROUP_RECORDS

    key, payload = _coordinator(record, GROUP_RECORDS)
    if isinstance(payload, dict) and key["type"] == str(_GROUP_METADATA_KEY):
        _open_members(payload["data"])
    return key, payload


def _transactions(record: Record) -> Decoded:
    from sparkraft.protocol.messages.transaction_records import TRANSACTION_RECORDS

    return _coordinator(record, TRANSACTION_RECORDS)


def _share_state(record: Record) -> Decoded:
    from sparkraft.protocol.messages.share_records import SHARE_RECORDS

    return _coordinator(record, SHARE_RECORDS)


def _coordinator(record: Record, types: Types) -> Decoded:
    try:
        found = decode_record_key(types, record.key or b"")
        if found is None:
            number = int.from_bytes((record.key or b"")[:2], "big", signed=True)
            told = f"Unknown record type {number} at offset {record.offset}, skipping."
            return told, None
        key, value_class = found
        told_key = {"type": str(key.SCHEMA.key), "data": to_json(key, 0)}
        if record.value is None:
            return told_key, "<DELETE>"
        version = int.from_bytes(record.value[:2], "big", signed=True)
        value = codec.decode(value_class, version, memoryview(record.value)[2:])
    except DecodeError as error:
        return f"Error at offset {record.offset}, skipping. {error}", None
    return told_key, {"version": str(version), "data": to_json(value, version)}


def _open_members(group: dict[str, Any]) -> None:
    """Replace encoded consumer subscriptions and assignments by their decoded JSON."""
    from base64 import b64decode

    from sparkraft.protocol.messages.consumer_protocol import (
        ConsumerProtocolAssignment,
        ConsumerProtocolSubscription,
    )

    if group.get("protocolType") != "consumer":
        return
    for member in group["members"]:
        for field, cls in (
            ("subscription", ConsumerProtocolSubscription),
            ("assignment", ConsumerProtocolAssignment),
        ):
            raw = b64decode(member[field])
            try:
                version = int.from_bytes(raw[:2], "big", signed=True)
                member[field] = to_json(codec.decode(cls, version, memoryview(raw)[2:]), version)
            except DecodeError:
                continue


DECODERS: dict[str, Choice] = {
    "cluster-metadata-decoder": Choice("cluster metadata", _metadata),
    "offsets-decoder": Choice("__consumer_offsets", _offsets),
    "transaction-log-decoder": Choice("__transaction_state", _transactions),
    "share-group-state-decoder": Choice("__share_group_state", _share_state),
}
"""By the option that chooses it."""
