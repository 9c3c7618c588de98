"""Encoding and decoding messages, ours beside kio in the same run.

CPU time a message; the two alternate and the best round of each counts, which other tenants of
the machine disturb least. Ratios are ours to kio's, so below 1 we are quicker. kio writes in
Python and reads in Rust, copying records. Hand-written Produce stands beside what the compiler
writes.
"""

import io
import sys
import time
from collections.abc import Callable

from kio.serial import entity_reader, entity_writer

from benchmarks.report import Row, Table
from sparkraft.base.ids import Uuid
from sparkraft.protocol.codec import decode, encode
from sparkraft.protocol.declare import Message
from sparkraft.protocol.decode_source import write_decoder
from sparkraft.protocol.encode_source import write_encoder
from sparkraft.protocol.messages import (
    k00_produce,
    k01_fetch,
    k03_metadata,
    k08_offset_commit,
    k11_join_group,
    k18_api_versions,
)
from tests.protocol.kio_bridge import kio_class, to_kio

ROUNDS = 15
ROUND_SECONDS = 0.01

Timed = Callable[[], object]


def cpu_us(*functions: Timed) -> list[float]:
    """Best CPU time of each function in microseconds, the functions taking turns."""
    counts = [_count_for_a_round(function) for function in functions]
    best = [float("inf")] * len(functions)
    for _ in range(ROUNDS):
        for number, (function, count) in enumerate(zip(functions, counts, strict=True)):
            began = time.process_time_ns()
            for _ in range(count):
                function()
            best[number] = min(best[number], (time.process_time_ns() - began) / count / 1000)
    return best


def _count_for_a_round(function: Timed) -> int:
    function()
    began = time.perf_counter()
    function()
    return max(1, int(ROUND_SECONDS / max(time.perf_counter() - began, 1e-7)))


def produce(partitions: int, size: int) -> k00_produce.ProduceRequest:
    data = [
        k00_produce.PartitionProduceData(index=index, records=bytes(size))
        for index in range(partitions)
    ]
    topic = k00_produce.TopicProduceData(name="flights", partition_data=data)
    return k00_produce.ProduceRequest(acks=-1, timeout_ms=30000, topic_data=[topic])


def produced(partitions: int) -> k00_produce.ProduceResponse:
    answers = [
        k00_produce.PartitionProduceResponse(index=index, base_offset=1234567)
        for index in range(partitions)
    ]
    topic = k00_produce.TopicProduceResponse(name="flights", partition_responses=answers)
    return k00_produce.ProduceResponse(responses=[topic])


def fetch(partitions: int) -> k01_fetch.FetchRequest:
    asked = [
        k01_fetch.FetchPartition(partition=index, fetch_offset=99, partition_max_bytes=1 << 20)
        for index in range(partitions)
    ]
    topics = [k01_fetch.FetchTopic(topic="flights", partitions=asked)] if asked else []
    return k01_fetch.FetchRequest(max_wait_ms=500, min_bytes=1, session_id=7, topics=topics)


def fetched(partitions: int, size: int) -> k01_fetch.FetchResponse:
    data = [
        k01_fetch.PartitionData(partition_index=index, high_watermark=99, records=bytes(size))
        for index in range(partitions)
    ]
    topic = k01_fetch.FetchableTopicResponse(topic="flights", partitions=data)
    return k01_fetch.FetchResponse(session_id=7, responses=[topic])


def metadata(topics: int, partitions: int) -> k03_metadata.MetadataResponse:
    brokers = [
        k03_metadata.MetadataResponseBroker(node_id=i, host="localhost", port=9092 + i)
        for i in range(3)
    ]
    parts = [
        k03_metadata.MetadataResponsePartition(
            partition_index=index,
            leader_id=index % 3,
            leader_epoch=4,
            replica_nodes=[0, 1, 2],
            isr_nodes=[0, 1, 2],
        )
        for index in range(partitions)
    ]
    answers = [
        k03_metadata.MetadataResponseTopic(
            name=f"topic-{number}", topic_id=Uuid(number.to_bytes(16, "big")), partitions=parts
        )
        for number in range(topics)
    ]
    return k03_metadata.MetadataResponse(brokers=brokers, cluster_id="c", topics=answers)


def commit(partitions: int) -> k08_offset_commit.OffsetCommitRequest:
    offsets = [
        k08_offset_commit.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=5, committed_metadata=""
        )
        for index in range(partitions)
    ]
    topic = k08_offset_commit.OffsetCommitRequestTopic(name="flights", partitions=offsets)
    return k08_offset_commit.OffsetCommitRequest(group_id="g", topics=[topic])


def join() -> k11_join_group.JoinGroupRequest:
    protocol = k11_join_group.JoinGroupRequestProtocol(name="range", metadata=bytes(40))
    return k11_join_group.JoinGroupRequest(
        group_id="g", protocol_type="consumer", protocols=[protocol]
    )


def versions(keys: int) -> k18_api_versions.ApiVersionsResponse:
    served = [k18_api_versions.ApiVersion(api_key=key, max_version=9) for key in range(keys)]
    return k18_api_versions.ApiVersionsResponse(api_keys=served)


CASES: list[tuple[str, Message, int]] = [
    ("Produce request v9, 1 partition of 170 B", produce(1, 170), 9),
    ("Produce request v9, 10 partitions of 170 B", produce(10, 170), 9),
    ("Produce request v9, 1 partition of 1 MB", produce(1, 1_000_000), 9),
    ("Produce response v9, 1 partition", produced(1), 9),
    ("Produce response v9, 10 partitions", produced(10), 9),
    ("Fetch request v12, session without changes", fetch(0), 12),
    ("Fetch request v12, 1 partition", fetch(1), 12),
    ("Fetch request v12, 50 partitions", fetch(50), 12),
    ("Fetch response v12, 1 partition of 1 KB", fetched(1, 1000), 12),
    ("Fetch response v12, 10 partitions of 16 KB", fetched(10, 16384), 12),
    ("Metadata response v12, 1 topic of 4 partitions", metadata(1, 4), 12),
    ("Metadata response v12, 20 topics of 12 partitions", metadata(20, 12), 12),
    ("OffsetCommit request v8, 10 partitions", commit(10), 8),
    ("JoinGroup request v9", join(), 9),
    ("ApiVersions response v3, 60 keys", versions(60), 3),
]


def measure(name: str, message: Message, version: int) -> list[Row]:
    """Our times to encode and decode beside kio's."""
    cls = type(message)
    entity_class = kio_class(cls, version)
    entity = to_kio(message, entity_class, version)
    write, read = entity_writer(entity_class), entity_reader(entity_class)
    data = encode(message, version)

    def kio_encode() -> bytes:
        buffer = io.BytesIO()
        write(buffer, entity)
        return buffer.getvalue()

    if kio_encode() != data:
        raise SystemExit(f"{name}: kio writes other bytes")
    encode_us, kio_encode_us, decode_us, kio_decode_us = cpu_us(
        lambda: encode(message, version),
        kio_encode,
        lambda: decode(cls, version, data),
        lambda: read(data, 0),
    )
    return [
        row(f"{name}: encode", encode_us, "kio", kio_encode_us),
        row(f"{name}: decode", decode_us, "kio", kio_decode_us),
    ]


def row(what: str, ours_us: float, peer: str, theirs_us: float) -> Row:
    return Row(what, f"{ours_us:.2f} µs", f"{peer} {theirs_us:.2f} µs", ours_us / theirs_us)


def hand_written() -> list[Row]:
    """The usual Produce request and answer by hand beside what the compiler writes."""
    request, response = produce(1, 170), produced(1)
    data = encode(request, 9)
    plain_decode = write_decoder(k00_produce.ProduceRequest, 9)
    plain_encode = write_encoder(k00_produce.ProduceResponse, 9)

    def compiled_encode() -> bytes:
        parts: list[bytes | memoryview] = []
        plain_encode(response, parts, [])
        return b"".join(parts)

    read, compiled_read, write, compiled_write = cpu_us(
        lambda: decode(k00_produce.ProduceRequest, 9, data),
        lambda: plain_decode(data, 0, len(data), 1000),
        lambda: encode(response, 9),
        compiled_encode,
    )
    return [
        row("Produce request v9 by hand: decode", read, "compiled", compiled_read),
        row("Produce response v9 by hand: encode", write, "compiled", compiled_write),
    ]


def main() -> int:
    """Measure all; there are no promises to miss."""
    table = Table("Messages, ours beside kio (CPU time)")
    for case in CASES:
        for measured in measure(*case):
            table.add(measured)
    for measured in hand_written():
        table.add(measured)
    table.print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
