"""The worked examples in docs/formats are what the code writes."""

import re
from pathlib import Path

import pytest

from sparkraft.base.ids import Uuid
from sparkraft.base.steps import complete
from sparkraft.coordinator.group.consumer_member import ConsumerMember
from sparkraft.coordinator.group.consumer_records import current_record
from sparkraft.coordinator.group.records import encode_record as encode_group_record
from sparkraft.coordinator.transaction.metadata import TransactionMetadata
from sparkraft.coordinator.transaction.records import TransactionRecord, encode_record
from sparkraft.coordinator.transaction.states import TransactionState
from sparkraft.protocol.framing import encode_metadata_record
from sparkraft.protocol.messages.metadata_records import FeatureLevelRecord
from sparkraft.records.batch import crc_ok, parse_header
from sparkraft.records.record import BatchBuilder
from sparkraft.simulation.world.memory_disk import MemoryDisk
from sparkraft.storage.index import AbortedTransaction, OffsetIndex, TimeIndex
from sparkraft.storage.producers import Producers
from sparkraft.storage.quorum_state import read_quorum_state

PAGES = Path(__file__).resolve().parents[2] / "docs" / "formats"


def example(page, name):
    block = re.search(rf"```hex {name}\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)[1]
    lines = (re.match(r"(?:[0-9a-f]{2} {0,2})+(?: |$)", line)[0] for line in block.splitlines())
    return bytes.fromhex(" ".join(lines))


def the_batch():
    builder = BatchBuilder(
        base_offset=42, leader_epoch=3, producer_id=4000, producer_epoch=0, base_sequence=7
    )
    builder.append(1_700_000_000_000, b"EWR", b"on time", [("src", b"demo")])
    builder.append(1_700_000_000_005, None, b"late")
    return builder.build()


def test_the_record_batch():
    assert example("record-batch.md", "record-batch") == the_batch()
    assert crc_ok(the_batch())


def test_the_indexes():
    offsets, times = OffsetIndex(), TimeIndex()
    for relative, position, timestamp in ((57, 4170, 5), (113, 8340, 60_000)):
        offsets.append(relative, position)
        times.maybe_append(1_700_000_000_000 + timestamp, relative)
    assert example("log-directory.md", "index") == offsets.to_bytes()
    assert example("log-directory.md", "timeindex") == times.to_bytes()
    aborted = AbortedTransaction(4000, 42, 57, 58)
    assert example("log-directory.md", "txnindex") == aborted.to_bytes()


def test_the_producer_snapshot():
    producers = Producers()
    producers.apply(parse_header(the_batch()), b"", 42)
    assert example("log-directory.md", "snapshot") == producers.to_snapshot()


def test_a_metadata_record():
    record = FeatureLevelRecord(name="metadata.version", feature_level=30)
    assert example("metadata-log.md", "metadata-record") == encode_metadata_record(record, 0)


def test_the_quorum_state():
    page = (PAGES / "metadata-log.md").read_text()
    line = next(line for line in page.splitlines() if line.startswith('{"leaderId"'))
    disk = MemoryDisk()
    disk.mkdir("/d")
    disk.replace("/d/quorum-state", line.encode())
    state = read_quorum_state(disk, "/d")
    assert state is not None
    assert (state.leader_id, state.leader_epoch, state.version) == (1, 1, 1)


def test_a_transaction_record():
    metadata = TransactionMetadata(
        transactional_id="tx",
        producer_id=4000,
        producer_epoch=8,
        timeout_ms=60_000,
        updated_ms=1_795_210_913_830,
        state=TransactionState.PREPARE_COMMIT,
        previous_producer_id=4000,
        partitions=frozenset({("t", 0), ("t", 2)}),
        start_ms=1_795_210_913_000,
        client_version=2,
    )
    key, value = encode_record(TransactionRecord(transactional_id="tx", metadata=metadata))
    assert example("transaction-log.md", "transaction-key") == key
    assert example("transaction-log.md", "transaction-value") == value


PAGE_NAMES = ["record-batch.md", "log-directory.md", "metadata-log.md", "transaction-log.md"]


@pytest.mark.parametrize("page", PAGE_NAMES)
def test_pages_exist(page):
    assert (PAGES / page).stat().st_size > 1000


def test_a_group_record():
    assigned = {Uuid(b"t".rjust(16, b"\0")): {0: 2, 1: 2, 2: 2}}
    member = ConsumerMember(
        member_id="a", member_epoch=2, previous_member_epoch=0, assigned=assigned
    )
    key, value = encode_group_record(complete(current_record("g", member)))
    assert example("group-records.md", "group-key") == key
    assert example("group-records.md", "group-value") == value
