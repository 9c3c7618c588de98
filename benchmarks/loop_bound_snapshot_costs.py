"""Costs of loading a snapshot of the metadata on a running node, at the bounds of `loop_bounds`."""

from collections.abc import Callable

from benchmarks.loop_bound_costs import Costs, spent
from sparkraft.base.ids import LeaderEpoch, Millis, Offset, Uuid
from sparkraft.controller import controller
from sparkraft.protocol.framing import encode_metadata_record
from sparkraft.protocol.messages.metadata_records import PartitionRecord, TopicRecord
from sparkraft.security.acl_index import AclIndex
from sparkraft.security.acls import Acl, AclOperation, AclResourceType, PatternType
from sparkraft.security.delegation_token import TokenIndex, token_key
from sparkraft.server import access_control
from sparkraft.server.raft import snapshot_load
from sparkraft.storage.snapshot_files import (
    BATCH_BYTES_MAX,
    SnapshotData,
    SnapshotId,
    snapshot_batches,
)

MANY_REPLICAS = 100
"""Of a partition whose record is long."""

TOPIC_ID = Uuid(bytes(15) + b"\1")


def partition(index: int, replicas: int) -> bytes:
    """A record as in a file."""
    brokers = list(range(replicas))
    record = PartitionRecord(
        partition_id=index, topic_id=TOPIC_ID, replicas=brokers, isr=brokers, leader=1,
        directories=[Uuid(bytes(15) + bytes([broker + 1])) for broker in brokers],
    )  # fmt: skip
    return encode_metadata_record(record, 1)


def load_of(framed: list[bytes], records_max: int) -> snapshot_load.SnapshotLoad:
    """The load of a file with these records."""
    made = snapshot_batches(
        framed,
        epoch=LeaderEpoch(1),
        now=Millis(0),
        last_contained_log_timestamp=Millis(0),
    )
    file = b"".join(made)

    def read(at: int, count: int) -> bytes:
        return bytes(memoryview(file)[at : at + count])

    snapshot = SnapshotId(Offset(1), LeaderEpoch(1))
    return snapshot_load.SnapshotLoad(snapshot, SnapshotData("", len(file), read), records_max)


def piece_of(framed: list[bytes], records_max: int) -> float:
    """The first piece that applies records."""
    topic = encode_metadata_record(TopicRecord(name="t", topic_id=TOPIC_ID), 0)

    def after_reading() -> snapshot_load.SnapshotLoad:
        load = load_of([topic, *framed], records_max)
        load.advance()
        return load

    return spent(lambda load: load.advance(), after_reading)


def many_records() -> Costs:
    count = snapshot_load.RECORDS_PER_ITERATION
    framed = [partition(index, 3) for index in range(2 * count)]
    return {f"decode and apply {count} records": piece_of(framed, count)}


def long_records() -> Costs:
    """Partitions of many replicas, and the reading of a whole batch, which is a piece, too."""
    size = snapshot_load.BYTES_PER_ITERATION
    one = partition(0, MANY_REPLICAS)
    framed = [partition(index, MANY_REPLICAS) for index in range(2 * size // len(one))]
    largest = [one] * (BATCH_BYTES_MAX // len(one) + 1)
    return {
        f"decode and apply {size:,} bytes": piece_of(framed, len(framed)),
        f"read and check a batch of {BATCH_BYTES_MAX:,} bytes": spent(
            lambda load: load.advance(), lambda: load_of(largest, 1)
        ),
    }


def index_entries() -> Costs:
    count = access_control.ENTRIES_PER_ITERATION
    kind, pattern, operation = AclResourceType.TOPIC, PatternType.LITERAL, AclOperation.READ
    entries = [Acl(kind, f"t{n}", pattern, "User:a", "*", operation, 3) for n in range(count)]
    return {f"index {count:,} entries": spent(lambda: AclIndex(entries))}


def compute_tokens() -> Costs:
    count = controller.TOKENS_PER_ITERATION
    key = token_key("secret")
    assert key is not None

    def work(index: TokenIndex) -> None:
        for number in range(count):
            index.add(f"token-{number}")

    return {f"compute {count} HMACs": spent(work, lambda: TokenIndex(key))}


COSTS: dict[str, Callable[[], Costs]] = {
    "server.raft.snapshot_load.RECORDS_PER_ITERATION": many_records,
    "server.raft.snapshot_load.BYTES_PER_ITERATION": long_records,
    "server.access_control.ENTRIES_PER_ITERATION": index_entries,
    "controller.controller.TOKENS_PER_ITERATION": compute_tokens,
}
