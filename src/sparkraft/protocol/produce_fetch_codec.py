"""Produce by hand, for the shape that producers send all day.

It has the interface of the compiled code and is tried first: a message that does not have exactly
the common shape is left to the compiled function, from its first byte and without side effects.

    Produce request    one topic, one partition: producers repeat acks, timeout, topic and
                       partition byte for byte, so what the compiled code made of those bytes is
                       remembered and only the records are read
    Produce response   one topic, one partition, no error text, no new leader: one `pack`

Fetch is not here: hand-written code was not faster than the compiled code, which reads and writes a
partition with one `unpack` or `pack` and never touches records.
"""

import struct
from typing import Any, Final

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Message
from sparkraft.protocol.decode_source import Decoder
from sparkraft.protocol.encode_source import Encoder
from sparkraft.protocol.varint import Buffer, decode_unsigned

_FLEXIBLE_PRODUCE: Final = 9
_PRODUCE_BY_ID: Final = 13

_Prefix = tuple[int, int, str, Uuid, int]
"""acks, timeout_ms, topic's name, its id, index of the partition."""

_PREFIXES_MAX: Final = 1024
"""Remembered beginnings of Produce requests."""

_PREFIX_BYTES_MAX: Final = 140
"""Longest of them: topic names that need a length of two bytes are left out."""

_SHORT: Final = 127
"""Lengths plus one up to here take one byte."""

_UUID_BYTES: Final = 16


def tuned_decoder(cls: type[Message], version: int, compiled: Decoder) -> Decoder:
    """`compiled`, or something quicker that falls back on it."""
    if cls.__name__ == "ProduceRequest" and version >= _FLEXIBLE_PRODUCE:
        return _produce_request_decoder(compiled, by_id=version >= _PRODUCE_BY_ID)
    return compiled


def tuned_encoder(cls: type[Message], version: int, compiled: Encoder) -> Encoder:
    """`compiled`, or something quicker that falls back on it."""
    if cls.__name__ == "ProduceResponse" and version >= _FLEXIBLE_PRODUCE:
        return _produce_response_encoder(compiled, by_id=version >= _PRODUCE_BY_ID)
    return compiled


# transactional_id (null) u8 | acks i16 | timeout i32 | topics + 1 u8 | name length + 1 u8 | name …
_NAME_SIZE_AT: Final = 8
_BESIDE_NAME: Final = 13
"""Bytes of the prefix around the name: those before it, partitions + 1, and the index."""
_AFTER_NAME: Final = 5
_PREFIX_BY_ID: Final = 8 + 16 + _AFTER_NAME


def _produce_request_decoder(compiled: Decoder, *, by_id: bool) -> Decoder:
    # Loaded only when a Produce request is decoded.
    from sparkraft.protocol.messages.k00_produce import (
        PartitionProduceData,
        ProduceRequest,
        TopicProduceData,
    )

    new = object.__new__
    known: dict[bytes, _Prefix] = {}

    def decode(data: Buffer, at: int, end: int, budget: int) -> tuple[Any, int]:
        stop = at + (_PREFIX_BY_ID if by_id else _BESIDE_NAME + data[at + _NAME_SIZE_AT])
        prefix = bytes(data[at:stop])
        if prefix not in known or budget < 2:  # noqa: PLR2004 (a topic and a partition)
            request, after = compiled(data, at, end, budget)
            _learn(known, prefix, request)
            return request, after
        size = data[stop]
        here = stop + 1
        if size > _SHORT:
            more = data[here]
            if more > _SHORT:
                size, here = decode_unsigned(data, stop)
            else:
                size = size & 0x7F | more << 7
                here += 1
        stop = here + size - 1
        if not size or stop + 3 > end or data[stop] or data[stop + 1] or data[stop + 2]:
            return compiled(data, at, end, budget)
        partition = new(PartitionProduceData)
        topic = new(TopicProduceData)
        request = new(ProduceRequest)
        request.acks, request.timeout_ms, topic.name, topic.topic_id, partition.index = known[
            prefix
        ]
        view = data if type(data) is memoryview else memoryview(data)
        partition.records = view[here:stop]
        topic.partition_data = [partition]
        request.transactional_id = None
        request.topic_data = [topic]
        return request, stop + 3

    return decode


def _learn(known: dict[bytes, "_Prefix"], prefix: bytes, request: Any) -> None:
    """Cache the meaning of `prefix` if `request` has the common shape."""
    topics = request.topic_data
    if request.transactional_id is not None or len(topics) != 1:
        return
    partitions = topics[0].partition_data
    if len(partitions) != 1 or len(prefix) > _PREFIX_BYTES_MAX:
        return
    if (prefix[0], prefix[_NAME_SIZE_AT - 1], prefix[-_AFTER_NAME]) != (0, 2, 2):
        return  # some varint was padded, and the prefix ends elsewhere
    if len(known) >= _PREFIXES_MAX:
        known.clear()
    first = topics[0]
    names = first.name, first.topic_id
    known[prefix] = (request.acks, request.timeout_ms, *names, partitions[0].index)


_ANSWERS: Final = [struct.Struct(f">BB{size}sBihqqqBBxxix").pack for size in range(_SHORT)]
"""Packs a Produce answer for one partition of a topic by the bytes of its name."""

_ANSWER_BY_ID: Final = struct.Struct(">B16sBihqqqBBxxix").pack


def _produce_response_encoder(compiled: Encoder, *, by_id: bool) -> Encoder:
    def encode(message: Any, parts: list[bytes | memoryview], cuts: list[int]) -> None:
        topics = message.responses
        if len(topics) != 1 or type(topics) is not list or message.node_endpoints:
            return compiled(message, parts, cuts)
        if len(topics[0].partition_responses) != 1:
            return compiled(message, parts, cuts)
        one = topics[0].partition_responses[0]
        leader = one.current_leader
        name = topics[0].topic_id if by_id else topics[0].name.encode()
        size = len(name)
        if (
            one.record_errors
            or one.error_message is not None
            or not leader.leader_id == leader.leader_epoch == -1
            or (size != _UUID_BYTES if by_id else size >= _SHORT)
        ):
            return compiled(message, parts, cuts)
        index, code, offset = one.index, one.error_code, one.base_offset
        time, start = one.log_append_time_ms, one.log_start_offset
        throttled = message.throttle_time_ms
        if by_id:
            answer = _ANSWER_BY_ID(2, name, 2, index, code, offset, time, start, 1, 0, throttled)
        else:
            pack = _ANSWERS[size]
            answer = pack(2, size + 1, name, 2, index, code, offset, time, start, 1, 0, throttled)
        parts.append(answer)
        return None

    return encode
