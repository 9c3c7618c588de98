"""Batches and their records as lines and as JSON objects, as `kafka-dump-log.sh` shows them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sparkraft.client.decoders.control import control_text
from sparkraft.records.batch import DELETE_HORIZON_BIT, SEQUENCE_MODULUS

if TYPE_CHECKING:
    from sparkraft.client.decoders.internal_topics import Decoder
    from sparkraft.records.batch import BatchHeader
    from sparkraft.records.record import Record

TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
"""By the number in a batch's attributes."""


def batch_text(header: BatchHeader, position: int, *, is_valid: bool) -> str:
    """A batch as one line; `position` is its place in the segment, in bytes."""
    has_horizon = header.attributes & DELETE_HORIZON_BIT
    horizon = f"OptionalLong[{header.base_timestamp}]" if has_horizon else "OptionalLong.empty"
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} "
        f"count: {header.records_count} baseSequence: {header.base_sequence} "
        f"lastSequence: {header.last_sequence} producerId: {header.producer_id} "
        f"producerEpoch: {header.producer_epoch} "
        f"partitionLeaderEpoch: {header.partition_leader_epoch} "
        f"isTransactional: {_bool(header.is_transactional)} "
        f"isControl: {_bool(header.is_control)} deleteHorizonMs: {horizon} "
        f"position: {position} {TIMESTAMP_TYPES[header.timestamp_type]}: {header.max_timestamp} "
        f"size: {header.size_in_bytes} magic: {header.magic} "
        f"compresscodec: {header.codec.name.lower()} crc: {header.crc} isvalid: {_bool(is_valid)}"
    )


def _bool(value: object) -> str:
    return str(bool(value)).lower()


def sequence_of(header: BatchHeader, offset: int) -> int:
    """The sequence number of the record at `offset`; -1 if its producer is not idempotent."""
    if header.base_sequence < 0:
        return -1
    return (header.base_sequence + offset - header.base_offset) % SEQUENCE_MODULUS


def record_text(
    header: BatchHeader, record: Record, decoder: Decoder | None, *, skip_metadata: bool
) -> str:
    """A record of that batch as one line; without a decoder its key and value are left out."""
    parts: list[str] = []
    if not skip_metadata:
        sizes = [-1 if part is None else len(part) for part in (record.key, record.value)]
        names = ",".join(name for name, _ in record.headers)
        parts.append(
            f"offset: {record.offset} {TIMESTAMP_TYPES[header.timestamp_type]}: {record.timestamp} "
            f"keySize: {sizes[0]} valueSize: {sizes[1]} "
            f"sequence: {sequence_of(header, record.offset)} headerKeys: [{names}]"
        )
        if header.is_control:
            parts.append(control_text(record))
    if decoder is not None and not header.is_control:
        key, payload = decoder(record)
        if key is not None:
            parts.append(f"key: {_text(key)}")
        if payload is not None:
            parts.append(f"payload: {_text(payload)}")
    return "| " + " ".join(parts)


def _text(decoded: Any) -> str:
    if isinstance(decoded, str):
        return decoded
    return json.dumps(decoded, separators=(",", ":"), ensure_ascii=False)


def batch_json(file: str, header: BatchHeader, position: int, *, is_valid: bool) -> dict[str, Any]:
    """A batch of `file` as a JSON object; `position` is in bytes."""
    return {"file": file, **header_json(header), "position": position, "isValid": is_valid}


def header_json(header: BatchHeader) -> dict[str, Any]:
    """The header of a batch as a JSON object; `size` is that of the whole batch, in bytes."""
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.records_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.partition_leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "timestampType": TIMESTAMP_TYPES[header.timestamp_type],
        "maxTimestamp": header.max_timestamp,
        "size": header.size_in_bytes,
        "compression": header.codec.name.lower(),
        "crc": header.crc,
    }


def record_json(header: BatchHeader, record: Record, decoder: Decoder | None) -> dict[str, Any]:
    """A record of that batch as a JSON object; without a decoder without key and value."""
    data: dict[str, Any] = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "sequence": sequence_of(header, record.offset),
        "headerKeys": [name for name, _ in record.headers],
    }
    if header.is_control:
        data["control"] = control_text(record)
    elif decoder is not None:
        data["key"], data["payload"] = decoder(record)
    return data
