"""Costs at the bounds of work in memory: messages, metadata, sessions, coordinators, sockets."""

# ruff: noqa: SLF001 (pieces of work are mostly private)

import gc
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from prometheus_client.core import GaugeMetricFamily

from sparkraft.base.ids import Millis, Offset, Uuid
from sparkraft.base.loop_work import LOOP_WORK_MAX
from sparkraft.controller.leader_election import Cause, CauseKind
from sparkraft.controller.past_events import PartitionEvent
from sparkraft.coordinator.group.records import decode_record as decode_group_record
from sparkraft.coordinator.runtime import Instant
from sparkraft.coordinator.transaction import shard as transaction_shard
from sparkraft.coordinator.transaction.config import TransactionConfig
from sparkraft.coordinator.transaction.metadata import TransactionMetadata
from sparkraft.coordinator.transaction.records import TransactionRecord, encode_record
from sparkraft.metadata.apply import apply
from sparkraft.metadata.image import EMPTY_IMAGE
from sparkraft.metadata.partition_state import PartitionState
from sparkraft.protocol import decode_source
from sparkraft.protocol.codec import decode, decode_slices, encode, encode_element_parts
from sparkraft.protocol.framing import encode_metadata_record, encode_record_key, encode_versioned
from sparkraft.protocol.messages.consumer_group_records import (
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
)
from sparkraft.protocol.messages.consumer_group_records import (
    TopicPartition as ConsumerTopicPartition,
)
from sparkraft.protocol.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from sparkraft.protocol.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from sparkraft.protocol.messages.k09_offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartitions,
)
from sparkraft.protocol.messages.k10002_describe_history import DescribeHistoryResponse
from sparkraft.protocol.messages.metadata_records import PartitionRecord, TopicRecord
from sparkraft.records.compression import Codec, compress, decompress
from sparkraft.records.record import BatchBuilder, decode_records
from sparkraft.records.validate import Rules, check_produced
from sparkraft.server import families, garbage, metrics, zookeeper_metrics
from sparkraft.server.api import (
    encoded_array,
    history_values,
    k03_metadata,
    k09_offset_fetch,
    k10002_describe_history,
)
from sparkraft.server.api.encoded_array import EncodedArray
from sparkraft.server.broker import fetch_sessions, topic_traffic
from sparkraft.server.broker.fetch_sessions import FetchSession, FetchSessions, SessionPartition
from sparkraft.server.coordinator import shard_log
from sparkraft.server.env import SystemClock, SystemEntropy
from sparkraft.server.network import calls, responses, sending
from sparkraft.server.network.sending import SocketSender, join_front
from sparkraft.server.raft import commit_publisher, past_images, past_reader, snapshot_writer
from sparkraft.server.zookeeper import znode_requests
from sparkraft.zookeeper.controller.context import ControllerContext
from sparkraft.zookeeper.controller.states import PartitionStatus, ReplicaStatus
from sparkraft.zookeeper.controller.store import notify_isr_changes
from sparkraft.zookeeper.controller.values import (
    LeaderAndIsr,
    Leadership,
    Replica,
    ReplicaAssignment,
)

_TIMES = 7
Costs = dict[str, float]


def spent(work: Callable[..., object], *prepared: Callable[[], object]) -> float:
    """CPU ms of one call in this thread: the best of a few. Arguments are made before each."""
    found = []
    for _ in range(_TIMES):
        arguments = [make() for make in prepared]
        begun = time.thread_time()
        work(*arguments)
        found.append((time.thread_time() - begun) * 1000)
    return min(found)


def records_batch(count: int, size: int, codec: Codec = Codec.NONE) -> bytes:
    """`count` records of `size` bytes."""
    builder = BatchBuilder(codec=codec)
    for _ in range(count):
        builder.append(0, None, bytes(size))
    return builder.build()


# ---- LOOP_WORK_MAX


def work_bytes() -> Costs:
    rules = Rules(max_message_bytes=1 << 30, plain=True, walk_records=True)
    large = records_batch(1, LOOP_WORK_MAX.bytes)
    return {"check a batch": spent(lambda: check_produced(large, rules, 0))}


def work_records() -> Costs:
    rules = Rules(max_message_bytes=1 << 30, plain=True, walk_records=True)
    many = records_batch(LOOP_WORK_MAX.records, 100)
    return {
        "check records": spent(lambda: check_produced(many, rules, 0)),
        "decode records": spent(lambda: list(decode_records(many))),
    }


def work_codec_bytes() -> Costs:
    # Text compresses to a third; zstd, which inflates 30,000-fold, gets an eighth of the bytes.
    data = bytes(range(64)) * (LOOP_WORK_MAX.codec_bytes // 64)
    costs = {}
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        packed = compress(codec, data)
        costs[f"compress with {codec.name.lower()}"] = spent(lambda c=codec: compress(c, data))
        costs[f"decompress {codec.name.lower()}"] = spent(
            lambda c=codec, p=packed: decompress(c, p)
        )
    return costs


# ---- messages


def metadata_partitions(count: int) -> list[MetadataResponsePartition]:
    return [
        MetadataResponsePartition(
            partition_index=index, leader_id=1, leader_epoch=3, replica_nodes=[1], isr_nodes=[1]
        )
        for index in range(count)
    ]


def encode_metadata(partitions: int) -> Costs:
    topic = MetadataResponseTopic(
        name="t", topic_id=Uuid(bytes(16)), partitions=metadata_partitions(partitions)
    )
    answer = MetadataResponse(topics=[topic])
    return {f"encode Metadata of {partitions:,} partitions": spent(lambda: encode(answer, 12))}


def encode_array(count: int) -> Costs:
    parts = [PartitionData(partition_index=at, records=b"") for at in range(count)]

    def work() -> None:
        array = EncodedArray(FetchResponse, 13)
        for part in parts:
            array.add(part)
        array.encoded()

    return {f"encode {count} partitions of a Fetch response": spent(work)}


def encode_offsets(count: int) -> Costs:
    parts = [
        OffsetFetchResponsePartitions(partition_index=at, committed_offset=at, metadata="m" * 100)
        for at in range(count)
    ]

    def work() -> None:
        array = EncodedArray(OffsetFetchResponse, 8)
        for part in parts:
            array.add(part)
        array.encoded()

    return {f"encode {count} offsets with metadata": spent(work)}


def decode_whole() -> Costs:
    """The longest request that is decoded in one piece, of the shortest names."""
    count = calls.WHOLE_BYTES_MAX // 2
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t") for _ in range(count)])
    body = encode(request, 7)[: calls.WHOLE_BYTES_MAX]
    # By name only: a string of one byte takes three.
    names = len(body) // 3 - 2
    whole = encode(MetadataRequest(topics=[MetadataRequestTopic(name="t")] * names), 7)
    return {f"decode {names:,} names": spent(lambda: decode(MetadataRequest, 7, whole))}


def decode_slice() -> Costs:
    count = decode_source.SLICE_ELEMENTS
    parts = [FetchPartition(partition=index) for index in range(4 * count)]
    body = memoryview(encode(FetchRequest(topics=[FetchTopic(topic="t", partitions=parts)]), 12))

    found = []
    for _ in range(_TIMES):
        steps = decode_slices(FetchRequest, 12, body)
        longest, more = 0.0, True
        while more:
            begun = time.thread_time()
            more = next(steps, None) is not None
            longest = max(longest, (time.thread_time() - begun) * 1000)
        found.append(longest)
    return {f"decode {count} partitions of a Fetch request": min(found)}


# ---- metadata


def metadata_records(count: int) -> list[Any]:
    """A topic and its partitions."""
    topic_id = Uuid(bytes(15) + b"\1")
    return [
        TopicRecord(name="t", topic_id=topic_id),
        *(
            PartitionRecord(
                partition_id=index, topic_id=topic_id, replicas=[1, 2, 3], isr=[1, 2, 3], leader=1
            )
            for index in range(count - 1)
        ),
    ]


def apply_records(count: int) -> Costs:
    records = metadata_records(count)

    def work() -> None:
        image = EMPTY_IMAGE
        for record in records:
            image = apply(image, record)

    return {f"apply {count:,} records": spent(work)}


def encode_records(count: int) -> Costs:
    records = metadata_records(count)
    return {
        f"encode {count:,} records": spent(
            lambda: [encode_metadata_record(record, 0) for record in records]
        )
    }


# ---- sessions


def session_of(count: int) -> FetchSession:
    session = FetchSession(1, now=0, uses_ids=True, is_consumers=True)
    for index in range(count):
        session.add((b"t", index), SessionPartition("t", Uuid(bytes(16)), index))
    return session


def sort_changed() -> Costs:
    session = session_of(fetch_sessions.SORTED_MAX)
    session.changed = dict.fromkeys(reversed(session.changed))
    what = f"order {fetch_sessions.SORTED_MAX:,} changed partitions"
    return {what: spent(lambda: session.to_read(1_000))}


def leave_partitions() -> Costs:
    count = fetch_sessions.LEFT_AT_ONCE_MAX
    hosted: Any = SimpleNamespace(waiters={})

    def ended() -> FetchSessions:
        sessions = FetchSessions(SystemClock(), SystemEntropy(), slots=10)
        made = sessions.make(count, uses_ids=True, is_consumers=True)
        assert made is not None
        for index in range(count):
            partition = SessionPartition("t", Uuid(bytes(16)), index)
            made.add((b"t", index), partition)
            partition.watch(hosted)
        sessions.end(made.id)
        return sessions

    def work(sessions: FetchSessions) -> None:
        sessions.make(1, uses_ids=True, is_consumers=True)

    return {f"unregister {count:,} partitions": spent(work, ended)}


# ---- the history


def describe_changes() -> Costs:
    """Changes of leaders with ten replicas, described and encoded."""
    state = PartitionState(
        tuple(range(10)), tuple(range(10)), (), (), 1, 5, 7, (Uuid.ZERO,) * 10, (), (), 0
    )
    event = PartitionEvent(
        offset=Offset(7), at_ms=1, epoch=3, topic="a-topic", topic_id=Uuid.ZERO, partition=0,
        before=state, after=state, cause=Cause(CauseKind.FENCED, "a cause"),
    )  # fmt: skip
    count = k10002_describe_history.CHANGES
    reasons = k10002_describe_history._Reasons()

    def work() -> None:
        events = [k10002_describe_history._event(event, reasons) for _ in range(count)]
        encode_element_parts(DescribeHistoryResponse, 0, events)

    return {f"describe {count} changes": spent(work)}


def count_replicas() -> Costs:
    count = history_values.PARTITIONS
    image = EMPTY_IMAGE
    for record in metadata_records(count):
        image = apply(image, record)
    brokers = {each: history_values.broker_of(image, each) for each in (1, 2, 3)}

    def work() -> None:
        for _ in history_values.count_partitions(image, brokers):
            pass

    return {f"count {count} partitions of 3 brokers": spent(work)}


# ---- coordinators


def decode_value() -> Costs:
    """A whole value: the target of a member."""
    topics: list[ConsumerTopicPartition] = []
    value = b""
    while len(value) < shard_log.WHOLE_VALUE_BYTES_MAX:
        topics.append(ConsumerTopicPartition(topic_id=Uuid.ZERO, partitions=[0]))
        value = encode_versioned(
            ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics), 0
        )
    key = encode_record_key(ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="m"))
    return {f"decode {len(value):,} bytes": spent(lambda: decode_group_record(key, value))}


def transactions(known: int) -> transaction_shard.TransactionShard:
    """A shard of so many ids that expired long ago."""
    shard = transaction_shard.TransactionShard(TransactionConfig(), 0)
    for index in range(known):
        metadata = TransactionMetadata(
            transactional_id=f"id-{index}", producer_id=index, producer_epoch=0, timeout_ms=60_000,
            updated_ms=0,
        )  # fmt: skip
        record = TransactionRecord(transactional_id=metadata.transactional_id, metadata=metadata)
        shard.replay(Offset(index), record)
    shard.loaded(EMPTY_IMAGE, Instant(Millis(0), Millis(0)))
    return shard


def one_expiry(shard: transaction_shard.TransactionShard, wall_ms: int) -> Iterator[Any]:
    """The decisions of one step of the search for expired ids."""
    return iter(shard.on_timers(Instant(Millis(1 << 40), Millis(wall_ms))))


def examine_ids() -> Costs:
    count = transaction_shard.IDS_PER_STEP

    def work(shard: transaction_shard.TransactionShard) -> None:
        next(one_expiry(shard, 0), None)

    return {f"examine {count:,} transactional ids": spent(work, lambda: transactions(2 * count))}


def expire_ids() -> Costs:
    count = transaction_shard.EXPIRED_PER_STEP

    def work() -> None:
        builder = BatchBuilder()
        for index in range(count):
            key, value = encode_record(TransactionRecord(transactional_id=f"id-{index}"))
            builder.append(0, key, value)
        builder.build()

    return {f"write {count} tombstones": spent(work)}


# ---- sockets


class _Transport:
    """A transport that takes everything."""

    def pause_reading(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


def send(size: int, parts: int) -> Costs:
    """Send through a real socket pair that another thread empties."""
    here, there = socket.socketpair()
    here.settimeout(0)
    here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * size)

    def drain() -> None:
        into = bytearray(1 << 20)
        while there.recv_into(into):
            pass

    thread = threading.Thread(target=drain)
    thread.start()
    part = bytes(size // parts)
    taken = []
    transport: Any = _Transport()
    for _ in range(_TIMES):
        sender = SocketSender(transport, here.fileno(), lambda: None, lambda: None)
        sender.backlog.extend([part] * parts)
        sender.unsent = size
        begun = time.thread_time()
        while sender.backlog:  # what the socket does not take now would be sent in a later piece
            try:
                sender._write()
            except RuntimeError:  # no loop to wait for room with: try again
                sender._watched = -1
        taken.append((time.thread_time() - begun) * 1000)
    here.shutdown(socket.SHUT_WR)
    thread.join()
    here.close()
    there.close()
    return {f"send {size:,} bytes": min(taken)}


def join_small() -> Costs:
    part = bytes(1_000)
    count = sending.COPIED_BYTES_MAX // len(part)

    def backlog() -> deque[Any]:
        return deque([part] * 2 * count)

    return {f"join {count:,} small parts": spent(join_front, backlog)}


# ---- the interpreter


def collect_young() -> Costs:
    def young() -> list[Any]:
        gc.collect()
        return [[] for _ in range(garbage.YOUNG_OBJECTS_MAX)]

    gc.disable()
    try:
        return {"search young objects for garbage": spent(lambda _: gc.collect(0), young)}
    finally:
        gc.enable()


def render_samples() -> Costs:
    family = GaugeMetricFamily("sparkraft_x", "About", labels=["topic", "partition"])
    for index in range(metrics.SAMPLES_MAX):
        family.add_metric(["a-topic", str(index)], index)
    what = f"render {metrics.SAMPLES_MAX} samples"
    return {what: spent(lambda: families.lines_of(family.samples))}


def make_samples() -> Costs:
    numbers = range(families.PART_SAMPLES)

    def row(index: int) -> tuple[tuple[str, str], int]:
        return ("a-topic", str(index)), index

    def make() -> None:
        for family in families.gauge_parts("x", "About", ("topic", "partition"), numbers, row):
            families.lines_of(family.samples)

    return {f"make and render {families.PART_SAMPLES} samples": spent(make)}


def sum_topics() -> Costs:
    traffic = topic_traffic.BrokerTraffic()
    appends = {f"topic-{n}": traffic.join(f"topic-{n}") for n in range(topic_traffic.SUMMED_MAX)}
    what = f"sum the counters of {len(appends)} topics"
    return {what: spent(lambda: list(traffic.sums(appends)))}


def walk_image() -> Costs:
    image = EMPTY_IMAGE
    for record in metadata_records(metrics.WALKED_MAX):
        image = apply(image, record)
    what = f"count the leaders of {metrics.WALKED_MAX:,} partitions"
    return {what: spent(lambda: list(metrics._leadership_metrics(image, is_active=True)))}


def walk_zookeeper_context() -> Costs:
    context = ControllerContext()
    state = LeaderAndIsr(leader=1, leader_epoch=0, isr=(1, 2, 3))
    count = zookeeper_metrics.WALKED_MAX
    context.topics.add("a-topic")
    context.topics_to_be_deleted.add("a-topic")
    context.assignments["a-topic"] = {n: ReplicaAssignment((1, 2, 3)) for n in range(count)}
    for n in range(count):
        context.leaderships["a-topic", n] = Leadership(state, 1)
        context.partition_statuses["a-topic", n] = PartitionStatus.ONLINE
        for broker in (1, 2, 3):
            context.replica_statuses[Replica("a-topic", n, broker)] = ReplicaStatus.ONLINE
    what = f"count {count:,} partitions of a ZooKeeper cluster"
    return {what: spent(lambda: list(zookeeper_metrics._partition_counts(context)))}


def notify_of_isrs() -> Costs:
    changed = [("t" * 249, index) for index in range(znode_requests.NOTIFIED_AT_ONCE)]
    what = f"the notification of {len(changed):,} changed ISRs, with the longest names"
    return {what: spent(lambda: next(notify_isr_changes(changed)))}


COSTS: dict[str, Callable[[], Costs]] = {
    "base.loop_work.LOOP_WORK_MAX.bytes": work_bytes,
    "base.loop_work.LOOP_WORK_MAX.records": work_records,
    "base.loop_work.LOOP_WORK_MAX.partitions": lambda: encode_metadata(LOOP_WORK_MAX.partitions),
    "base.loop_work.LOOP_WORK_MAX.codec_bytes": work_codec_bytes,
    "protocol.decode_source.SLICE_ELEMENTS": decode_slice,
    "server.network.calls.WHOLE_BYTES_MAX": decode_whole,
    "server.network.responses.RUN_BYTES_MAX": lambda: send(responses.RUN_BYTES_MAX, 2),
    "server.network.sending.WRITE_BYTES": lambda: send(sending.WRITE_BYTES, 4),
    "server.network.sending.RUN_BYTES_MAX": lambda: send(sending.RUN_BYTES_MAX, 8),
    "server.network.sending.COPIED_BYTES_MAX": join_small,
    "server.api.k10002_describe_history.CHANGES": describe_changes,
    "server.api.history_values.PARTITIONS": count_replicas,
    "server.api.encoded_array.CHUNK": lambda: encode_array(encoded_array.CHUNK),
    "server.api.k03_metadata.UNITS": lambda: encode_metadata(k03_metadata.UNITS),
    "server.api.k09_offset_fetch.CHUNK": lambda: encode_offsets(k09_offset_fetch.CHUNK),
    "server.broker.fetch_sessions.SORTED_MAX": sort_changed,
    "server.broker.fetch_sessions.LEFT_AT_ONCE_MAX": leave_partitions,
    "server.raft.commit_publisher.RECORDS_PER_ITERATION": lambda: apply_records(
        commit_publisher.RECORDS_PER_ITERATION
    ),
    "server.raft.past_reader.RECORDS_PER_ITERATION": lambda: apply_records(
        past_reader.RECORDS_PER_ITERATION
    ),
    "server.raft.past_images.PIECE_RECORDS": lambda: apply_records(past_images.PIECE_RECORDS),
    "server.raft.snapshot_writer.SLICE_RECORDS": lambda: encode_records(
        snapshot_writer.SLICE_RECORDS
    ),
    "server.coordinator.shard_log.WHOLE_VALUE_BYTES_MAX": decode_value,
    "coordinator.transaction.shard.IDS_PER_STEP": examine_ids,
    "coordinator.transaction.shard.EXPIRED_PER_STEP": expire_ids,
    "server.garbage.YOUNG_OBJECTS_MAX": collect_young,
    "server.metrics.SAMPLES_MAX": render_samples,
    "server.families.PART_SAMPLES": make_samples,
    "server.broker.topic_traffic.SUMMED_MAX": sum_topics,
    "server.metrics.WALKED_MAX": walk_image,
    "server.zookeeper.znode_requests.NOTIFIED_AT_ONCE": notify_of_isrs,
    "server.zookeeper_metrics.WALKED_MAX": walk_zookeeper_context,
}
