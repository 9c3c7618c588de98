"""Idempotent producers: retries, sequences, epochs, snapshots (KIP-98, KIP-360)."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.storage.producers import BATCHES_KEPT, DamagedSnapshot, Producers
from tests.storage.worlds import START_MS, World, append


@pytest.fixture
def world():
    return World()


@pytest.fixture
def log(world):
    return world.log()


def send(log, sequence, *, count=1, producer=7, epoch=0):
    return append(log, *[b"v"] * count, producer=(producer, epoch, sequence))


def refused(log, sequence, **more):
    end = log.log_end_offset
    with pytest.raises(KafkaError) as caught:
        send(log, sequence, **more)
    assert log.log_end_offset == end
    return caught.value.code


def test_a_retry_of_the_last_ten_batches_gets_its_original_offset(log):
    """Five under way to the last leader, and five to this one before those are retried."""
    first = [send(log, sequence, count=3) for sequence in range(0, 36, 3)]
    for index in range(2, 12):
        again = send(log, index * 3, count=3)
        assert again.duplicate
        assert (again.base_offset, again.last_offset) == first[index][:2]
    assert refused(log, 3, count=3) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 36


def test_a_retry_must_be_the_same_batch(log):
    send(log, 0, count=3)
    assert refused(log, 0, count=2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_in_the_sequence_is_refused(log):
    send(log, 0)
    assert refused(log, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 1).base_offset == 1


def test_an_unknown_producer_may_begin_anywhere(log):
    assert send(log, 42).base_offset == 0
    assert send(log, 43).base_offset == 1


def test_a_new_epoch_begins_at_sequence_zero(log):
    send(log, 0)
    assert refused(log, 1, epoch=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not send(log, 0, epoch=1).duplicate
    assert refused(log, 1, epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_sequences_wrap(log):
    last = (1 << 31) - 2
    send(log, last, count=2)
    assert send(log, 0, count=2).base_offset == 2
    assert send(log, last, count=2).duplicate


def test_a_batch_may_span_the_wrap(log):
    send(log, (1 << 31) - 1, count=3)
    assert send(log, 2).base_offset == 3
    assert send(log, (1 << 31) - 1, count=3).duplicate


@pytest.mark.parametrize("clean", [True, False])
def test_duplicates_are_known_after_a_restart(world, log, clean):
    first = [send(log, sequence) for sequence in range(40)]
    assert log.segment_count > 2
    world.reopen(clean=clean)
    log = world.log()
    for sequence in range(40 - BATCHES_KEPT, 40):  # any may have been under way
        again = send(log, sequence)
        assert again.duplicate
        assert again.base_offset == first[sequence].base_offset
    assert refused(log, 39 - BATCHES_KEPT) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 40).base_offset == 40
    assert send(log, 40 - BATCHES_KEPT + 1).duplicate


def test_a_log_opens_though_what_is_looked_back_at_is_damaged(world, log):
    for sequence in range(40):
        send(log, sequence)
    world.manager.close()
    older = sorted(path for path in world.disk.files() if path.endswith(".log"))[-2]
    world.disk.put(older, b"\xff" * len(world.disk.read(older)))
    world.disk.put(older.replace(".log", ".index"), b"odd")
    log = world.open().log()
    assert send(log, 39).duplicate
    assert send(log, 40).base_offset == 40


def test_batches_of_an_older_epoch_are_not_remembered_after_a_restart(world, log):
    for sequence in range(5):
        send(log, sequence)
    send(log, 0, epoch=1)
    send(log, 1, epoch=1)
    world.reopen(clean=True)
    log = world.log()
    assert send(log, 0, epoch=1).duplicate
    assert send(log, 1, epoch=1).duplicate
    assert refused(log, 4, epoch=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_truncation_takes_producers_back(log):
    for sequence in range(40):
        send(log, sequence)
    log.truncate_to(25)
    assert refused(log, 30) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 25 - BATCHES_KEPT).duplicate
    assert send(log, 25).base_offset == 25


def test_producers_outlive_their_records_until_they_expire(world, log):
    for sequence in range(10):
        send(log, sequence)
    log.set_high_watermark(10)
    log.delete_records_before(10)
    world.manager.removal.retention(START_MS)
    assert send(log, 9).duplicate
    world.manager.removal.retention(START_MS + 86_400_000)
    assert log.active_producers() == []
    assert send(log, 77).base_offset == 10


def test_producers_above_the_limit_replace_idle_ones_and_no_active_one(log):
    log.configure(replace(log.config, producer_ids_max=100))
    for producer in range(1_000):
        send(log, 0, producer=producer)
        send(log, producer, producer=5_000, epoch=0)
    remembered = {state.producer_id for state in log._producers}
    assert 60 < len(remembered) <= 100
    assert {5_000, 999, 998} <= remembered, "it sends all the time"
    assert send(log, 0, producer=3).base_offset > 0, "a forgotten one starts again"


def test_a_producer_with_an_open_transaction_is_not_forgotten():
    producers = Producers()
    for producer in range(200):
        state = producers._state(producer)
        state.last_timestamp = producer
        state.txn_first_offset = producer if producer < 3 else -1
    for _ in range(20):
        producers.limit(100)
    assert len(producers) <= 100
    assert all(producers.get(producer) is not None for producer in (0, 1, 2))


def test_a_producer_with_an_open_transaction_does_not_expire():
    """However old its last batch is (KAFKA-9144)."""
    producers = Producers()
    for producer, first_offset in ((1, 5), (2, -1)):
        state = producers._state(producer)
        state.last_timestamp = 1_000
        state.txn_first_offset = first_offset
    producers.expire(now_ms=1_000_000, expiration_ms=60_000)
    assert [state.producer_id for state in producers] == [1]


def test_a_damaged_snapshot_is_replaced_by_replay(world, log):
    for sequence in range(40):
        send(log, sequence)
    world.manager.close()
    for path, data in world.disk.files().items():
        if path.endswith(".snapshot"):
            world.disk.put(path, data[:-1] + bytes([data[-1] ^ 1]))
    log = world.open().log()
    assert send(log, 39).duplicate
    assert send(log, 40).base_offset == 40


entries = st.dictionaries(
    st.integers(0, 1 << 40),
    st.tuples(st.integers(0, 100), st.integers(0, 1 << 30), st.integers(0, 50)),
    max_size=8,
)


@given(entries=entries)
@settings(max_examples=50, deadline=None)
def test_snapshots_round_trip(entries):
    log = World().log()
    for producer, (epoch, sequence, count) in entries.items():
        send(log, sequence, count=count + 1, producer=producer, epoch=epoch)
    data = log._producers.to_snapshot()
    read = Producers.from_snapshot(data)
    assert read.to_snapshot() == data
    assert [state.producer_id for state in read] == sorted(entries)


@given(at=st.integers(0, 60), value=st.integers(1, 255))
@settings(max_examples=80, deadline=None)
def test_a_mutated_snapshot_is_noticed(at, value):
    log = World().log()
    send(log, 0)
    data = bytearray(log._producers.to_snapshot())
    data[at % len(data)] ^= value
    with pytest.raises(DamagedSnapshot):
        Producers.from_snapshot(bytes(data))
