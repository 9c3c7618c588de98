"""Costs at the bounds of work on requests that change very many items."""

# ruff: noqa: SLF001 (pieces of work are mostly private)

import asyncio
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from benchmarks.loop_bound_costs import Costs, encode_metadata, records_batch, spent
from benchmarks.loop_bound_log_costs import log_of, logs
from benchmarks.loop_pieces import piece_times, without_collection
from sparkraft.base import ordering
from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import LeaderEpoch, Uuid
from sparkraft.coordinator.transaction.metadata import TransactionMetadata
from sparkraft.coordinator.transaction.records import (
    TransactionRecord,
    decode_record_in_steps,
    encode_record_in_steps,
)
from sparkraft.coordinator.transaction.states import TransactionState
from sparkraft.metadata.apply import apply
from sparkraft.metadata.image import EMPTY_IMAGE, ClusterImage
from sparkraft.metadata.snapshot import records_in_pieces
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import decode, decode_few, encode
from sparkraft.protocol.headers import request_header_version
from sparkraft.protocol.messages import k13_leave_group as k13
from sparkraft.protocol.messages import k21_delete_records as k21
from sparkraft.protocol.messages import k24_add_partitions_to_txn as k24
from sparkraft.protocol.messages import k27_write_txn_markers as k27
from sparkraft.protocol.messages.headers import RequestHeader
from sparkraft.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from sparkraft.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from sparkraft.protocol.messages.metadata_records import TopicRecord
from sparkraft.records.control import ControlType, EndTransaction, end_transaction_batch
from sparkraft.records.validate import Origin
from sparkraft.server import env
from sparkraft.server.api import k24_add_partitions_to_txn
from sparkraft.server.broker import client_telemetry, otlp_points
from sparkraft.server.coordinator import broker_batches, marker_log, marker_sender
from sparkraft.server.coordinator.marker_log import Marker
from sparkraft.server.env import SystemClock, SystemNetwork
from sparkraft.server.network import calls, slices
from sparkraft.server.network.listener import Limits, Listener
from sparkraft.server.network.loop_budget import LoopBudget

PARTITIONS = 100_000
"""Of one transaction: half of what a record of 1 MB has room for."""

ITEMS = 100_000
"""Of one request; a request has a million elements at most."""

TOPICS = 100_000
"""Of a snapshot."""

MARKER = Marker(5, 0, committed=True, coordinator_epoch=0, transaction_version=2)


def decode_produce() -> Costs:
    """The longest Produce that is decoded at once: its records are large, and stay as they are."""
    count = calls.WHOLE_ELEMENTS_MAX - 1
    records = records_batch(1, 1_000)
    parts = [PartitionProduceData(index=index, records=records) for index in range(count)]
    topic = TopicProduceData(name="t", partition_data=parts)
    body = memoryview(encode(ProduceRequest(acks=1, topic_data=[topic]), 9))
    return {
        f"decode {count} partitions of a Produce": spent(
            lambda: decode_few(ProduceRequest, 9, body, calls.WHOLE_ELEMENTS_MAX)
        )
    }


def append_markers(count: int = marker_log.MARKERS_PER_SLICE) -> Costs:
    """The appends of one event-loop iteration, each to another log."""
    end = EndTransaction(ControlType.COMMIT, 0)
    record = records_batch(1, 100)
    with logs() as manager:
        each = [log_of(manager, index, record) for index in range(count)]

        def work() -> None:
            for log in each:
                batch = end_transaction_batch(end, timestamp=1, producer_id=5, producer_epoch=0)
                log.check_marker(5, 0, end, transaction_version=2)
                log.append_as_leader(
                    batch, leader_epoch=LeaderEpoch(0), now_ms=1, origin=Origin.COORDINATOR
                )

        return {f"append {count} markers": spent(work)}


def append_few_markers() -> Costs:
    """Those that are appended before the response to the end of a transaction."""
    return append_markers(marker_sender.MARKERS_AT_ONCE)


def add_few_partitions() -> Costs:
    """A request without slices, but for the append: checks of its partitions, and its response."""
    count = k24_add_partitions_to_txn.FEW
    topics = [k24.AddPartitionsToTxnTopic(name=f"topic-{n}", partitions=[0]) for n in range(count)]
    request = k24.AddPartitionsToTxnRequest(v3_and_below_topics=topics)
    committed = SimpleNamespace(add_partitions=lambda *_, **__: ErrorCode.NONE)
    topic = SimpleNamespace(partitions={0: None})
    image = SimpleNamespace(topic=lambda _: topic)
    broker: Any = SimpleNamespace(image=image, transactions=committed)
    context: Any = SimpleNamespace(api_version=3, is_allowed=lambda *_: True)

    def work() -> None:
        response: Any = k24_add_partitions_to_txn._add_few(broker, context, request)
        encode(response, 3)

    return {f"add {count} partitions": spent(work)}


def send_markers() -> Costs:
    """A request to another broker, and its response."""
    count = broker_batches.SIZE_MAX
    entry = marker_sender._Entry(MARKER, tuple((f"topic-{n}", 0) for n in range(count)))
    topics = [
        k27.WritableTxnMarkerTopicResult(
            name=topic, partitions=[k27.WritableTxnMarkerPartitionResult(partition_index=index)]
        )
        for topic, index in entry.partitions
    ]
    result = k27.WritableTxnMarkerResult(producer_id=5, topics=topics)
    body = encode(k27.WriteTxnMarkersResponse(markers=[result]), 1)

    def sent() -> None:
        encode(k27.WriteTxnMarkersRequest(markers=[marker_sender._writable(entry)]), 1)

    def received() -> None:
        found = marker_sender._codes(decode(k27.WriteTxnMarkersResponse, 1, body))
        _ = {one: found.get((5, *one)) for one in entry.partitions}

    return {
        f"send markers of {count:,} partitions": spent(sent),
        f"receive their {count:,} results": spent(received),
    }


def add_results() -> Costs:
    count = marker_sender.PARTITIONS_AT_ONCE
    found = {(f"topic-{n}", 0): ErrorCode.NONE for n in range(count)}
    return {f"add {count:,} results of markers": spent(lambda: dict(found.items()))}


def sort_names() -> Costs:
    names = [f"topic-{(index * 7919) % ordering.NAMES:05d}" for index in range(ordering.NAMES)]
    return {f"sort {len(names):,} names": spent(lambda: sorted(names))}


def longest_pieces() -> Costs:
    """Of the record of a large transaction, and of the names in a snapshot."""
    partitions = frozenset((f"topic-{n % 5_000}", n // 5_000) for n in range(PARTITIONS))
    metadata = TransactionMetadata(
        transactional_id="x", producer_id=1, producer_epoch=0, timeout_ms=1, updated_ms=1,
        state=TransactionState.ONGOING, partitions=partitions,
    )  # fmt: skip
    record = TransactionRecord(transactional_id="x", metadata=metadata)
    image = image_of_topics()
    encoded: list[float] = []
    decoded: list[float] = []
    with without_collection():
        key, value = piece_times(encode_record_in_steps(record), encoded)
        piece_times(decode_record_in_steps(key, value), decoded)
    what = f"a transaction with {PARTITIONS:,} partitions"
    return {
        **sort_names(),
        f"longest piece of encoding {what}": max(encoded),
        f"longest piece of decoding {what}": max(decoded),
        f"add a partition to {what}": spent(
            lambda: metadata.with_partitions(frozenset({("y", 0)}), client_version=2, now_ms=2)
        ),
        f"longest piece of a snapshot of {TOPICS:,} topics": longest_of(records_in_pieces(image)),
    }


def image_of_topics() -> ClusterImage:
    image = EMPTY_IMAGE
    for number in range(TOPICS):
        name = f"topic-{(number * 7_919) % 1_000_003:07d}"
        image = apply(image, TopicRecord(name=name, topic_id=Uuid(number.to_bytes(16, "big"))))
    return image


def longest_of(pieces: Iterator[Any]) -> float:
    """CPU ms of the longest step of an iterator."""
    longest, more = 0.0, True
    with without_collection():
        while more:
            begun = time.thread_time()
            more = next(pieces, 0) != 0
            longest = max(longest, (time.thread_time() - begun) * 1000)
    return longest


# ---- metrics that clients push


def read_metrics() -> Costs:
    """Fields of a payload in one byte each: a resource without points."""
    count = otlp_points.FIELDS_PER_PAUSE
    data = (b"\x0a" + varint(2 * count)) + b"\x08\x01" * count
    return {f"read {count:,} fields": spent(lambda: list(otlp_points.read_points(data)))}


def varint(value: int) -> bytes:
    """A length of two bytes."""
    return bytes((value & 0x7F | 0x80, value >> 7))


def take_points() -> Costs:
    """Points of new series with as many labels as one may have."""
    count = client_telemetry.POINTS_MAX
    instance = client_telemetry.Instance(Uuid.ZERO, {}, [], 1)

    def points() -> list[otlp_points.Point]:
        labels = [
            tuple((f"{label}-{number}", "x" * 200) for label in range(otlp_points.ATTRIBUTES_MAX))
            for number in range(count)
        ]
        return [
            otlp_points.Point("a.name", found, 1.0, is_total=False, is_delta=False)
            for found in labels
        ]

    return {f"take {count:,} points": spent(instance.take, points)}


# ---- whole requests, on a node


def largest_requests() -> Costs:
    """The longest callback of the loop while a node carries out each request."""
    everyone = range(1, ITEMS)
    parts = [PartitionProduceData(index=index, records=None) for index in everyone]
    produce = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=parts)])
    deleted = [k21.DeleteRecordsPartition(partition_index=index) for index in everyone]
    delete = k21.DeleteRecordsRequest(topics=[k21.DeleteRecordsTopic(name="t", partitions=deleted)])
    added = k24.AddPartitionsToTxnTopic(name="t", partitions=list(everyone))
    add = k24.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x", v3_and_below_topics=[added]
    )
    marked = k27.WritableTxnMarkerTopic(name="t", partition_indexes=list(everyone))
    mark = k27.WritableTxnMarker(producer_id=5, producer_epoch=0, topics=[marked])
    markers = k27.WriteTxnMarkersRequest(markers=[mark])
    members = [k13.MemberIdentity(member_id="m") for _ in everyone]
    leave = k13.LeaveGroupRequest(group_id="g", members=members)
    requests = (produce, 9), (delete, 2), (add, 3), (markers, 1), (leave, 5)
    return {
        f"longest piece of {type(request).__name__} of {ITEMS:,} items": asyncio.run(
            longest_callback(request, version)
        )
        for request, version in requests
    }


HARNESS: Any = import_module("tests.server.harness")
"""Of tests, which are not typed."""


async def longest_callback(request: Any, version: int) -> float:
    """CPU ms of the longest callback until a node in this loop has responded."""
    frame = frame_of(request, version)
    longest = 0.0
    original = asyncio.Handle._run

    def run(handle: asyncio.Handle) -> None:
        nonlocal longest
        begun = time.thread_time()
        original(handle)
        longest = max(longest, (time.thread_time() - begun) * 1000)

    with tempfile.TemporaryDirectory() as folder, without_collection():
        async with HARNESS.node_in(Path(folder)) as node:
            client = await HARNESS.connect(node)
            await HARNESS.create_topic(client, "t")
            await HARNESS.until(lambda: coordinates(client, "g"))
            reader, writer = await asyncio.open_connection("127.0.0.1", node.ports["PLAINTEXT"])
            with patch.object(asyncio.Handle, "_run", run):
                writer.write(frame)
                left = int.from_bytes(await reader.readexactly(4), "big")
                while left:
                    left -= len(await reader.read(min(left, 1 << 16)))
                await asyncio.sleep(0.1)
            writer.close()
            await client.close()
    return longest


async def coordinates(client: Any, group: str) -> bool:
    """Whether the node coordinates the group; its topic is created by the first request."""
    found = await client.send(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]))
    return not found.coordinators[0].error_code


def frame_of(request: Any, version: int) -> bytes:
    key = ApiKey(request.SCHEMA.key)
    header = RequestHeader(
        request_api_key=key, request_api_version=version, correlation_id=1, client_id="x"
    )
    body = encode(header, request_header_version(key, version)) + encode(request, version)
    return len(body).to_bytes(4, "big") + body


def accept() -> Costs:
    """The longest iteration while a burst of connections is accepted."""
    return {f"accept {env.ACCEPTED_AT_ONCE} connections": asyncio.run(_accept())}


async def _accept() -> float:
    clock, count = SystemClock(), 8 * env.ACCEPTED_AT_ONCE
    listener = Listener(
        "PLAINTEXT",
        controller_listener=False,
        limits=Limits(
            connections_max=count,
            connections_per_ip_max=count,
            request_bytes_max=1 << 20,
            idle_ms_max=-1,
        ),
        clock=clock,
        budget=LoopBudget(clock),
        on_invariant_broken=print,
    )
    await listener.bind(SystemNetwork(), "127.0.0.1", 0)
    await listener.serve(None)
    clients = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(count)]
    longest = 0.0
    with without_collection():
        while listener.connections < count:
            begun = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, (time.thread_time() - begun) * 1000)
    for client in clients:
        client.close()
    await listener.close()
    return longest


COSTS: dict[str, Callable[[], Costs]] = {
    "server.env.ACCEPTED_AT_ONCE": accept,
    "server.network.calls.WHOLE_ELEMENTS_MAX": decode_produce,
    "server.api.k24_add_partitions_to_txn.FEW": add_few_partitions,
    "server.coordinator.marker_log.MARKERS_PER_SLICE": append_markers,
    "server.coordinator.marker_sender.MARKERS_AT_ONCE": append_few_markers,
    "server.coordinator.broker_batches.SIZE_MAX": send_markers,
    "server.coordinator.marker_sender.PARTITIONS_AT_ONCE": add_results,
    "base.ordering.NAMES": longest_pieces,
    "server.broker.otlp_points.FIELDS_PER_PAUSE": read_metrics,
    "server.broker.client_telemetry.POINTS_MAX": take_points,
    "server.network.slices.SLICE_UNITS_MAX": lambda: {
        **encode_metadata(slices.SLICE_UNITS_MAX),
        **largest_requests(),
    },
}
