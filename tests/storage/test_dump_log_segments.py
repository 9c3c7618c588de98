"""Kafka's own DumpLogSegments reads our files and finds nothing to complain about."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from sparkraft.records.compression import Codec
from sparkraft.records.control import ControlType, EndTransaction, end_transaction_batch
from sparkraft.storage.disk import OsDisk
from sparkraft.storage.log import Origin
from sparkraft.storage.log_manager import LogManager
from tests.storage.worlds import SMALL, START_MS, HandClock, SeededDice, append, clean, keyed
from tests.support.kafka_tools import run_kafka_tool

pytestmark = pytest.mark.java

COMPLAINTS = (
    "corrupt",
    "Mismatches",
    "non-consecutive",
    "isvalid: false",
    "Exception",
    "Found timestamp",
)
RECORDS = 200


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A log with every codec, an idempotent producer, a transaction, two epochs, many segments."""
    root = tmp_path_factory.mktemp("logs")
    manager = LogManager(OsDisk(), [str(root)], SMALL, clock=HandClock(), entropy=SeededDice())
    manager.load()
    log = manager.get_or_create("flights", 3, None)
    for index in range(RECORDS // 2):
        append(
            log,
            b"a%d" % index,
            b"b%d" % index,
            codec=list(Codec)[index % 5],
            epoch=index // 50,
            timestamp=START_MS + index * 10,
            producer=(4000, 1, index * 2) if index % 3 == 0 and index < 3 else None,
        )
    data = {"leader_epoch": 1, "now_ms": START_MS, "origin": Origin.COORDINATOR}
    log.append_as_leader(
        end_transaction_batch(
            EndTransaction(ControlType.COMMIT, 2),
            timestamp=START_MS,
            producer_id=5,
            producer_epoch=0,
        ),
        **data,
    )
    manager.close()
    return root / "flights-3"


@pytest.fixture(scope="module")
def compacted(tmp_path_factory):
    """A log after two cleanings: aborted and committed transactions, tombstones, empty batches."""
    root = tmp_path_factory.mktemp("compacted")
    config = replace(SMALL, compact=True, min_cleanable_dirty_ratio=0.0)
    clock = HandClock()
    manager = LogManager(OsDisk(), [str(root)], config, clock=clock, entropy=SeededDice())
    manager.load()
    world = SimpleNamespace(manager=manager, disk=OsDisk(), clock=clock)
    log = manager.get_or_create("flights", 0, None)
    for turn in range(2):
        for index in range(60):
            tail = None if index % 7 == 0 else b"%d" % index
            keyed(log, (b"k%d" % (index % 9), tail), (b"only-%d-%d" % (turn, index), b"v" * 20),
                  codec=list(Codec)[index % 5], timestamp=START_MS + index * 10)  # fmt: skip
        for producer, kind in ((8, ControlType.ABORT), (9, ControlType.COMMIT)):
            keyed(log, (b"k1", b"in transaction"), producer_id=producer, producer_epoch=turn,
                  base_sequence=0, transactional=True)  # fmt: skip
            marker = end_transaction_batch(
                EndTransaction(kind, 2),
                timestamp=START_MS + 1000,
                producer_id=producer,
                producer_epoch=turn,
            )
            log.append_as_leader(marker, leader_epoch=0, now_ms=START_MS, origin=Origin.COORDINATOR)
        log.roll()
        log.set_high_watermark(log.log_end_offset)
        assert clean(world) == log.log_end_offset
        clock.now_ms += 1000
    manager.close()
    return root / "flights-0"


def test_a_compacted_log_is_whole(kafka_jars, compacted):
    logs = sorted(compacted.glob("*.log"))
    text = dump(kafka_jars, logs, "--print-data-log", "--deep-iteration")
    assert "deleteHorizonMs: OptionalLong[" in text
    assert "count: 0" in text, "batches without records, kept for their sequences"
    assert "endTxnMarker: ABORT coordinatorEpoch: 2" in text
    assert "payload: in transaction" in text
    indexes = [*sorted(compacted.glob("*.index")), *sorted(compacted.glob("*.timeindex"))]
    dump(kafka_jars, indexes, "--verify-index-only")
    text = dump(kafka_jars, sorted(compacted.glob("*.txnindex")))
    assert "producerId: 8" in text


def dump(jars, files, *options):
    named = ",".join(str(file) for file in files)
    done = run_kafka_tool(
        jars, "org.apache.kafka.tools.DumpLogSegments", "--files", named, *options
    )
    assert done.returncode == 0, done.stderr
    for complaint in COMPLAINTS:
        assert complaint not in done.stdout, done.stdout
    return done.stdout


def test_segments_and_their_records_are_whole(kafka_jars, directory):
    text = dump(kafka_jars, sorted(directory.glob("*.log")), "--print-data-log", "--deep-iteration")
    for index in range(RECORDS // 2):
        assert f"payload: a{index}\n" in text
        assert f"payload: b{index}\n" in text
    assert "endTxnMarker: COMMIT coordinatorEpoch: 2" in text
    for codec in Codec:
        assert f"compresscodec: {codec.name.lower()}" in text


def test_indexes_agree_with_the_segments(kafka_jars, directory):
    files = [*sorted(directory.glob("*.index")), *sorted(directory.glob("*.timeindex"))]
    assert len(files) > 10
    dump(kafka_jars, files, "--verify-index-only")
    text = dump(kafka_jars, files, "--index-sanity-check")
    assert text.count("passed sanity check") == len(files)


def test_producer_snapshots_are_understood(kafka_jars, directory):
    newest = max(directory.glob("*.snapshot"))
    text = dump(kafka_jars, [newest])
    assert "producerId: 4000 producerEpoch: 1" in text
    assert "producerId: 5 producerEpoch: 0 coordinatorEpoch: 2" in text
