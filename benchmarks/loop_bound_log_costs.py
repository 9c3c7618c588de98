"""Costs at the bounds of work on logs: real files in a temporary folder."""

# ruff: noqa: SLF001 (pieces of work are mostly private)

import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.loop_bound_costs import (
    Costs,
    metadata_records,
    records_batch,
    spent,
)
from sparkraft.base.ids import LeaderEpoch, Offset, Uuid
from sparkraft.base.loop_work import LOOP_WORK_MAX
from sparkraft.metadata.image import EMPTY_IMAGE, DelegationToken
from sparkraft.protocol.framing import decode_metadata_record, encode_metadata_record
from sparkraft.protocol.messages.k04_leader_and_isr import LeaderAndIsrPartitionState
from sparkraft.records import walk
from sparkraft.records.batch import BATCH_OVERHEAD, iter_batches
from sparkraft.records.record import BatchBuilder, decode_records
from sparkraft.records.validate import Rules, check_produced
from sparkraft.security.acls import Acl, AclOperation, AclResourceType, PatternType
from sparkraft.server import record_threads, zookeeper_node
from sparkraft.server.api import fetch_work, k10006_describe_metadata_log
from sparkraft.server.broker import fetchers, stray_logs
from sparkraft.server.broker.topic_configs import TopicConfigs
from sparkraft.server.config import NodeConfig
from sparkraft.server.env import SystemClock, SystemEntropy
from sparkraft.server.raft import commit_publisher, committed_log, past_reader
from sparkraft.server.raft.committed_log import committed_batches
from sparkraft.server.zookeeper import acls, hosting, tokens
from sparkraft.server.zookeeper.hosting import Assigned, Hosting
from sparkraft.storage import cleaner, mapped
from sparkraft.storage.cleaner_filter import OffsetMap, index_batch
from sparkraft.storage.config import LogConfig
from sparkraft.storage.disk import OsDisk
from sparkraft.storage.log import PartitionLog
from sparkraft.storage.log_manager import LogManager
from sparkraft.storage.raft_log import RaftLog
from sparkraft.tls import stream
from sparkraft.zookeeper.znodes.acl_resources import AclResource, decode_entries, encode_entries
from sparkraft.zookeeper.znodes.tokens import decode_delegation_token, encode_delegation_token
from tests.support.certificates import Authority

TOPIC_ID = Uuid(bytes(15) + b"\1")


@contextmanager
def logs() -> Iterator[LogManager]:
    """An empty log directory."""
    with tempfile.TemporaryDirectory() as folder:
        manager = LogManager(
            OsDisk(), [folder], LogConfig(), clock=SystemClock(), entropy=SystemEntropy()
        )
        manager.lock()
        manager.load()
        yield manager
        manager.close(clean=False)


def log_of(manager: LogManager, index: int, records: bytes = b"") -> PartitionLog:
    log = manager.get_or_create("t", index, TOPIC_ID)
    if records:
        log.append_as_leader(records, leader_epoch=LeaderEpoch(0), now_ms=1)
        log.high_watermark = log.log_end_offset
    return log


def append_prepared() -> Costs:
    """Batches of the default `max.message.bytes` that threads have checked, each to another log."""
    count = record_threads.RESULTS_AT_ONCE
    batch = records_batch(1, 1 << 20)
    prepared = check_produced(batch, Rules(max_message_bytes=2 << 20, log_append_time=True), 1)
    with logs() as manager:
        each = [log_of(manager, index) for index in range(count)]

        def work() -> None:
            for log in each:
                log.append_as_leader(
                    batch, leader_epoch=LeaderEpoch(0), now_ms=1, prepared=prepared
                )

        return {f"append {count} batches of 1 MiB": spent(work)}


def create_folders() -> Costs:
    with logs() as manager:
        made = iter(range(1 << 20))

        def work() -> None:
            for _ in range(LOOP_WORK_MAX.folders):
                log_of(manager, next(made))

        return {f"create {LOOP_WORK_MAX.folders} logs": spent(work)}


def read_partitions(count: int) -> Costs:
    """As a Fetch does, from so many logs with a record each."""
    batch = records_batch(1, 100)
    with logs() as manager:
        each = [log_of(manager, index, batch) for index in range(count)]

        def work() -> None:
            for log in each:
                if log.cold_part(0, max_bytes=1 << 20, up_to=1, to_send=True) is None:
                    log.read(0, max_bytes=1 << 20, up_to=1, to_send=True)

        return {f"read a record from each of {count:,} logs": spent(work)}


def append_fetched() -> Costs:
    size = fetchers.BYTES_BETWEEN_YIELDS
    records = 16 * 1024
    with logs() as manager:
        leader = log_of(manager, 0)
        batch = records_batch(1, records)
        while leader.size_in_bytes < size:
            leader.append_as_leader(batch, leader_epoch=LeaderEpoch(0), now_ms=1)
        fetched = b"".join(leader.read(0, max_bytes=size, up_to=leader.log_end_offset).pieces)
        made = iter(range(1, 1 << 20))

        def work(log: PartitionLog) -> None:
            log.append_as_follower(fetched)

        return {"append fetched batches of 16 KB": spent(work, lambda: log_of(manager, next(made)))}


def map_window() -> Costs:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.log"
        path.write_bytes(os.urandom(mapped.WINDOW_BYTES))
        with path.open("rb") as file:

            def work() -> None:
                files = mapped.MappedFiles()
                files.views(file.fileno(), str(path), mapped.WINDOW_BYTES, 0, grows=False)

            return {"map a window that is in the page cache": spent(work)}


# ---- the metadata log


@contextmanager
def metadata_log(batches: int, records: int) -> Iterator[RaftLog]:
    """A log of so many batches with so many records each."""
    builder = BatchBuilder()
    for record in metadata_records(records):
        builder.append(0, None, encode_metadata_record(record, 0))
    batch = bytearray(builder.build())
    with tempfile.TemporaryDirectory() as folder:
        disk = OsDisk()
        log = RaftLog.open(disk, folder, clock=SystemClock(), entropy=SystemEntropy())
        for number in range(batches):
            batch[:8] = (number * records).to_bytes(8, "big")
            log.append(bytes(batch))
        yield log
        disk.close()


def read_committed() -> Costs:
    """The headers of what is read at once, if all batches have one record."""
    count = 2 * committed_log.READ_BYTES // 80
    with metadata_log(count, 1) as log:

        def work() -> None:
            size = 0
            for _, view in committed_batches(log, Offset(0), log.end):
                size += len(view)
                if size >= committed_log.READ_BYTES - 200:
                    break

        return {"read batches of one record": spent(work)}


def decode_batches(count: int) -> Costs:
    """Batches of one record, as listeners of the metadata log get them."""
    with metadata_log(count, 1) as log:

        def work() -> None:
            for piece in log.read(Offset(0), up_to=log.end, max_bytes=1 << 20):
                for _, view in iter_batches(piece):
                    for record in decode_records(view):
                        decode_metadata_record(record.value or b"")

        return {f"decode {count} batches of one record": spent(work)}


def search_secrets() -> Costs:
    size = k10006_describe_metadata_log.SEARCH_BYTES
    view = memoryview(os.urandom(size))

    def work() -> None:
        next(k10006_describe_metadata_log._may_contain_secrets(view), None)

    return {f"search {size:,} bytes for secrets": spent(work)}


# ---- threads that keep the interpreter


def walk_records() -> Costs:
    count = walk.RECORDS_PER_PAUSE
    builder = BatchBuilder()
    for index in range(count):  # of varying sizes, which it walks one by one
        builder.append(index, None, bytes(20 + index % 280))
    batch = builder.build()

    def work() -> None:
        assert walk.walk_in_python(batch, BATCH_OVERHEAD, 0, count) is not None

    return {f"walk {count:,} records in Python": spent(work)}


def index_keys() -> Costs:
    count = cleaner.RECORDS_PER_PAUSE
    builder = BatchBuilder()
    for index in range(count):
        builder.append(0, b"key-%d" % index, bytes(100))
    ((header, view),) = iter_batches(builder.build())
    batch = bytes(view)
    return {f"index {count} keys": spent(lambda: index_batch(OffsetMap(10_000), header, batch, 0))}


# ---- ZooKeeper mode


def decide_partitions() -> Costs:
    count = hosting.AT_ONCE
    with logs() as manager:
        replicas: Any = SimpleNamespace(log_manager=manager)

        def work() -> None:
            deciding = Hosting(replicas, node_id=1)
            for index in range(count):
                state = LeaderAndIsrPartitionState(
                    partition_index=index, leader=1, leader_epoch=1, isr=[1], replicas=[1]
                )
                one = Assigned("t", TOPIC_ID, state)
                assert deciding._objection(one) is None
                deciding._put("t", TOPIC_ID, index, hosting._state_of(one, 1))

        return {f"decide about {count} partitions": spent(work)}


def look_up_logs() -> Costs:
    count = stray_logs.AT_ONCE
    kept = dict.fromkeys((("t", index) for index in range(count)), TOPIC_ID)
    known: Any = [
        SimpleNamespace(topic="t", partition=index, topic_id=TOPIC_ID) for index in range(count)
    ]
    is_assigned = hosting.assigned_in(kept)
    return {f"look up {count} logs": spent(lambda: [is_assigned(each) for each in known])}


def configure_logs() -> Costs:
    count = zookeeper_node.LOGS_AT_ONCE
    with logs() as manager:
        each = [log_of(manager, index) for index in range(count)]
        config = NodeConfig(
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "controller.quorum.voters": "1@127.0.0.1:9093",
                "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
                "controller.listener.names": "CONTROLLER",
                "log.dirs": each[0].log_dir,
            }
        )
        configs = TopicConfigs(config)

        def work() -> None:
            for log in each:
                log.configure(manager.log_config(configs.of(EMPTY_IMAGE, log.topic)))

        return {f"configure {count} logs": spent(work)}


def decode_access_control() -> Costs:
    """Of resources with two entries each."""
    count = acls.RESOURCES_AT_ONCE
    each = [AclResource(AclResourceType.TOPIC, PatternType.LITERAL, f"t-{n}") for n in range(count)]
    data = encode_entries(
        Acl(*each[0][::2], PatternType.LITERAL, f"User:{name}", "*", AclOperation.READ, 3)
        for name in ("a", "b")
    )
    return {
        f"decode the entries of {count} resources": spent(
            lambda: [decode_entries(resource, data) for resource in each]
        )
    }


def access_control_list() -> Costs:
    """Of one resource, the longest that is decoded or encoded on the event loop."""
    resource = AclResource(AclResourceType.TOPIC, PatternType.LITERAL, "t")
    count = acls.LIST_BYTES_ON_LOOP // acls.ENTRY_BYTES
    entries = [
        Acl(*resource[::2], PatternType.LITERAL, f"User:{n}", "*", AclOperation.READ, 3)
        for n in range(count)
    ]
    data = encode_entries(entries)
    return {
        f"decode {len(data):,} bytes of entries": spent(lambda: decode_entries(resource, data)),
        f"encode {count} entries": spent(lambda: encode_entries(entries)),
    }


def decode_tokens() -> Costs:
    count = tokens.TOKENS_AT_ONCE
    token = DelegationToken("User:a", "User:a", ("User:b",), 1, 2, 3, "token")
    data = encode_delegation_token(token)
    return {
        f"decode {count} tokens": spent(
            lambda: [decode_delegation_token("/tokens/token", data) for _ in range(count)]
        )
    }


# ---- TLS


def tls_costs(size: int, *, decrypts: bool) -> Costs:
    """Encrypt or decrypt so many bytes in memory."""
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        identity = authority.issue("localhost")
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(identity)
        client = ssl.create_default_context(cafile=str(authority.ca_path))
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = server.wrap_bio(to_server, to_client, server_side=True)
    there = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    for side in (there, here, there, here):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    data = bytes(size)

    def encrypt() -> bytes:
        here.write(data)
        return to_client.read()

    def decrypt(encrypted: bytes) -> None:
        to_client.write(encrypted)
        left = size
        while left:
            left -= len(there.read(stream.RECORD_BYTES))

    if decrypts:
        return {f"decrypt {size:,} bytes": spent(decrypt, encrypt)}
    return {f"encrypt {size:,} bytes": spent(encrypt)}


COSTS: dict[str, Callable[[], Costs]] = {
    "base.loop_work.LOOP_WORK_MAX.folders": create_folders,
    "server.api.fetch_work.WHOLE_PARTITIONS_MAX": lambda: read_partitions(
        fetch_work.WHOLE_PARTITIONS_MAX
    ),
    "server.api.fetch_work.READ_CHUNK": lambda: read_partitions(fetch_work.READ_CHUNK),
    "server.broker.fetchers.BYTES_BETWEEN_YIELDS": append_fetched,
    "server.record_threads.RESULTS_AT_ONCE": append_prepared,
    "storage.mapped.WINDOW_BYTES": map_window,
    "server.raft.committed_log.READ_BYTES": read_committed,
    "server.raft.commit_publisher.BATCHES_PER_ITERATION": lambda: decode_batches(
        commit_publisher.BATCHES_PER_ITERATION
    ),
    "server.raft.past_reader.BATCHES_PER_ITERATION": lambda: decode_batches(
        past_reader.BATCHES_PER_ITERATION
    ),
    "server.api.k10006_describe_metadata_log.SEARCH_BYTES": search_secrets,
    "records.walk.RECORDS_PER_PAUSE": walk_records,
    "storage.cleaner.RECORDS_PER_PAUSE": index_keys,
    "server.zookeeper.hosting.AT_ONCE": decide_partitions,
    "server.broker.stray_logs.AT_ONCE": look_up_logs,
    "server.zookeeper_node.LOGS_AT_ONCE": configure_logs,
    "server.zookeeper.acls.RESOURCES_AT_ONCE": decode_access_control,
    "server.zookeeper.acls.LIST_BYTES_ON_LOOP": access_control_list,
    "server.zookeeper.tokens.TOKENS_AT_ONCE": decode_tokens,
    "tls.stream.PIECE_BYTES": lambda: tls_costs(stream.PIECE_BYTES, decrypts=False),
    "tls.stream.RECEIVE_BYTES": lambda: tls_costs(stream.RECEIVE_BYTES, decrypts=True),
}
