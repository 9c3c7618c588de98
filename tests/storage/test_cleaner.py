"""Log compaction: what stays, what goes, and what every crash leaves (S6, KIP-534)."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkraft.records.batch import DELETE_HORIZON_BIT
from sparkraft.records.compression import Codec
from sparkraft.records.control import ControlType, EndTransaction, end_transaction_batch
from sparkraft.records.record import decode_records
from sparkraft.storage.cleaner import LogCleaner
from sparkraft.storage.cleaner_filter import OffsetMap
from sparkraft.storage.cleaner_manager import CleanerManager
from sparkraft.storage.cleaner_plan import extent_of
from sparkraft.storage.log import Origin
from tests.storage.compacted import (
    COMPACT,
    DAY_MS,
    commit_all,
    headers_of,
    pairs,
    records_of,
    settle,
)
from tests.storage.worlds import (
    START_MS,
    SeededDice,
    World,
    clean,
    keyed,
    with_offsets,
)


@pytest.fixture
def world():
    return World(config=COMPACT)


@pytest.fixture
def log(world):
    return world.log()


# ---- values


def test_the_last_value_of_each_key_stays_at_its_offset(world, log):
    for round_ in range(5):
        keyed(log, *[(b"k%d" % key, b"%d-%d" % (key, round_)) for key in range(4)])
    settle(log)
    keyed(log, (b"k0", b"active"))
    commit_all(log)
    before = records_of(log)
    end = log.log_end_offset
    assert clean(world) == 20
    assert pairs(log) == [
        *[(16 + key, b"k%d" % key, b"%d-4" % key) for key in range(4)],
        (20, b"k0", b"active"),
    ]
    assert (log.log_start_offset, log.log_end_offset) == (0, end)
    assert set(records_of(log)) < set(before), "times and bytes are as they were"
    assert world.disk.files()["/logs/cleaner-offset-checkpoint"] == b"0\n1\nt 0 20\n"


def test_a_reader_at_any_offset_goes_on_with_what_is_left(world, log):
    for index in range(40):
        keyed(log, (b"k%d" % (index % 3), b"%d" % index))
    settle(log)
    clean(world)
    left = [offset for offset, _, _ in pairs(log)]
    assert len(left) == 3
    for offset in range(log.log_end_offset):
        read = log.read(offset, max_bytes=1, up_to=log.log_end_offset)
        following = [each for each in left if each >= offset]
        if following:
            (first, *_) = [r.offset for r in decode_records(read.pieces[0]) if r.offset >= offset]
            assert first == following[0]
    assert pairs(world.reopen().log()) == pairs(log)
    assert world.log().log_end_offset == 40


def test_a_batch_of_which_nothing_goes_stays_byte_for_byte(world, log):
    keyed(log, (b"a", b"1"), (b"b", b"2"), codec=Codec.ZSTD)
    keyed(log, (b"c", b"3"), codec=Codec.GZIP)
    settle(log)
    (before,) = log.read(0, max_bytes=1 << 20, up_to=3).pieces
    assert clean(world) == 3
    assert log.read(0, max_bytes=1 << 20, up_to=3).pieces == [before]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_rewritten_batch_keeps_its_codec_and_all_it_says_of_itself(world, log, codec):
    keyed(log, *[(b"k%d" % (n % 3), b"v%d" % n) for n in range(9)], codec=codec, epoch=4,
          producer_id=7, producer_epoch=1, base_sequence=0)  # fmt: skip
    settle(log)
    (before,) = headers_of(log)
    clean(world)
    (after,) = headers_of(log)
    assert after.records_count == 3
    for name in ("base_offset", "partition_leader_epoch", "last_offset_delta", "producer_id",
                 "producer_epoch", "base_sequence", "attributes", "max_timestamp"):  # fmt: skip
        assert getattr(after, name) == getattr(before, name), name
    assert [offset for offset, *_ in records_of(log)] == [6, 7, 8]
    assert [time for *_, time in records_of(log)] == [START_MS + n for n in (6, 7, 8)]


def test_log_append_times_stay(world, log):
    log.config = replace(COMPACT, log_append_time=True)
    keyed(log, (b"a", b"1"), (b"b", b"2"), (b"a", b"3"))
    settle(log)
    clean(world)
    assert records_of(log) == [(1, b"b", b"2", START_MS), (2, b"a", b"3", START_MS)]


def test_the_active_segment_and_what_is_not_committed_stay(world, log):
    for index in range(30):
        keyed(log, (b"k", b"%d" % index))
    log.set_high_watermark(11)
    bases = log.segment_base_offsets
    end = clean(world)
    assert end == max(base for base in bases if base <= 11)
    kept = [offset for offset, *_ in records_of(log)]
    assert kept == [end - 1, *range(end, 30)]


def test_small_segments_become_one(world, log):
    for index in range(60):
        keyed(log, (b"k%d" % index, b"v" * 20))
        log.roll()
    commit_all(log)
    assert log.segment_count == 61
    clean(world)
    assert log.segment_count < 20
    assert all(segment.size <= COMPACT.segment_bytes for segment in log.segments)
    assert [offset for offset, *_ in records_of(log)] == list(range(60))


def test_old_files_go_after_their_delay_and_nothing_else_stays(world, log):
    log.config = replace(COMPACT, file_delete_delay_ms=500)
    for index in range(40):
        keyed(log, (b"k", b"%d" % index))
    settle(log)
    clean(world)
    assert any(path.endswith(".deleted") for path in world.disk.files())
    world.manager.removal.empty_trash(START_MS + 499)
    assert any(path.endswith(".deleted") for path in world.disk.files())
    world.manager.removal.empty_trash(START_MS + 500)
    names = {path.rpartition("/")[2] for path in world.disk.files() if "/t-0/" in path}
    bases = {f"{base:020d}" for base in log.segment_base_offsets}
    assert {name.partition(".")[0] for name in names if name[0] == "0"} <= bases
    assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]


# ---- tombstones


def test_a_tombstone_stays_for_its_retention_from_the_first_cleaning_on(world, log):
    keyed(log, (b"a", b"1"))
    keyed(log, (b"b", b"2"), (b"a", None), (b"c", b"3"))
    settle(log)
    clean(world)
    assert pairs(log) == [(1, b"b", b"2"), (2, b"a", None), (3, b"c", b"3")]
    (header,) = headers_of(log)
    assert header.attributes & DELETE_HORIZON_BIT
    assert header.base_timestamp == START_MS + DAY_MS
    assert [time for *_, time in records_of(log)] == [START_MS, START_MS + 1, START_MS + 2]
    world.clock.now_ms += DAY_MS - 1
    keyed(log, (b"x", b"1"))
    settle(log)
    clean(world)
    assert (2, b"a", None) in pairs(log)
    world.clock.now_ms += 1
    keyed(log, (b"y", b"1"))
    settle(log)
    clean(world)
    assert pairs(log) == [(1, b"b", b"2"), (3, b"c", b"3"), (4, b"x", b"1"), (5, b"y", b"1")]


def test_a_tombstone_behind_what_was_indexed_stays_whatever_its_age(world, log):
    keyed(log, (b"a", None))
    settle(log)
    clean(world)
    world.clock.now_ms += DAY_MS
    assert clean(world) is None, "nothing new: no reason to clean"
    assert pairs(log) == [(0, b"a", None)]


def test_records_without_a_key_go(world, log):
    data = with_offsets(b"".join([make_batch((None, b"1"), (b"a", b"2"))]), 0)
    log.append_as_follower(data)
    settle(log)
    clean(world)
    assert pairs(log) == [(1, b"a", b"2")]


def make_batch(*records, **more):
    from sparkraft.records.record import BatchBuilder

    builder = BatchBuilder(**more)
    for key, value in records:
        builder.append(START_MS, key, value)
    return builder.build()


# ---- producers


def test_the_last_sequence_of_a_producer_stays_without_its_records(world, log):
    for sequence in range(3):
        keyed(log, (b"k", b"%d" % sequence), producer_id=7, producer_epoch=0,
              base_sequence=sequence)  # fmt: skip
    keyed(log, (b"k", b"other"))
    settle(log)
    clean(world)
    emptied, kept = headers_of(log)
    assert (emptied.base_offset, emptied.records_count, emptied.base_sequence) == (2, 0, 2)
    assert kept.base_offset == 3
    world.manager.close(clean=False)
    for path in [path for path in world.disk.files() if path.endswith(".snapshot")]:
        world.disk.unlink(path)
    log = world.open().log()
    again = keyed_by_client(log, b"k", sequence=2)
    assert (again.duplicate, again.base_offset) == (True, 2)
    assert keyed_by_client(log, b"k", sequence=3).base_offset == 4


def keyed_by_client(log, key, *, sequence):
    data = make_batch((key, b"2"), producer_id=7, producer_epoch=0, base_sequence=sequence)
    return log.append_as_leader(data, leader_epoch=0, now_ms=START_MS)


def test_batches_of_producers_that_are_forgotten_go(world, log):
    keyed(log, (b"k", b"0"), producer_id=7, producer_epoch=0, base_sequence=0)
    keyed(log, (b"k", b"other"))
    settle(log)
    log.expire_producers(START_MS + 2 * DAY_MS)
    clean(world)
    assert [header.base_offset for header in headers_of(log)] == [1]


def test_the_last_batch_of_the_cleaned_part_stays_without_its_records(world, log):
    keyed(log, (b"k", b"0"))
    keyed(log, (b"k", None))
    settle(log)
    clean(world)
    world.clock.now_ms += DAY_MS
    keyed(log, (b"k", None))
    settle(log)
    assert clean(world) == 3
    assert pairs(log) == [(2, b"k", None)]
    world.clock.now_ms += DAY_MS
    log.config = replace(COMPACT, min_cleanable_dirty_ratio=0)
    cleaners = CleanerManager(world.manager)
    world.manager.directories[0].cleaned.clear()
    assert clean(world, cleaners=cleaners) == 3
    (header,) = headers_of(log)
    assert (header.base_offset, header.records_count) == (2, 0)
    assert world.reopen().log().log_end_offset == 3


# ---- transactions


def transaction(log, producer, records, kind, *, epoch=0, sequence=0):
    keyed(log, *records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence,
          transactional=True)  # fmt: skip
    if kind is not None:
        end(log, producer, kind, epoch=epoch)


def end(log, producer, kind, *, epoch=0):
    marker = end_transaction_batch(
        EndTransaction(kind, 1), timestamp=START_MS, producer_id=producer, producer_epoch=epoch
    )
    log.append_as_leader(marker, leader_epoch=0, now_ms=START_MS, origin=Origin.COORDINATOR)


def test_records_of_aborted_transactions_go_and_don_t_supersede_others(world, log):
    keyed(log, (b"a", b"kept"))
    transaction(log, 1, [(b"a", b"aborted"), (b"b", b"aborted")], ControlType.ABORT)
    transaction(log, 2, [(b"b", b"committed")], ControlType.COMMIT)
    settle(log)
    clean(world)
    assert pairs(log) == [(0, b"a", b"kept"), (4, b"b", b"committed")]


def test_an_open_transaction_and_all_behind_it_stay(world, log):
    keyed(log, (b"a", b"0"))
    log.roll()
    transaction(log, 1, [(b"a", b"open")], None)
    keyed(log, (b"a", b"2"))
    settle(log)
    assert log.last_stable_offset == 1
    assert clean(world) == 1
    assert [offset for offset, *_ in records_of(log)] == [0, 1, 2]


def test_markers_go_after_their_transactions_and_a_retention_of_their_own(world, log):
    transaction(log, 1, [(b"a", b"gone")], ControlType.ABORT)
    transaction(log, 1, [(b"b", b"gone"), (b"c", b"old")], ControlType.COMMIT, sequence=1)
    keyed(log, (b"b", b"new"), (b"c", b"new"))
    transaction(log, 1, [(b"d", b"last")], ControlType.COMMIT, sequence=3)
    settle(log)
    clean(world)
    offsets = [header.base_offset for header in headers_of(log)]
    assert offsets == [1, 4, 5, 7, 8]
    marks = [header for header in headers_of(log) if header.is_control]
    assert [h.attributes & DELETE_HORIZON_BIT for h in marks] == [0, 0, 0], "their data was seen"
    keyed(log, (b"x", b"1"))
    settle(log)
    clean(world)
    marks = [header for header in headers_of(log) if header.is_control]
    assert [bool(h.attributes & DELETE_HORIZON_BIT) for h in marks] == [True, True, False]
    world.clock.now_ms += DAY_MS
    keyed(log, (b"y", b"1"))
    settle(log)
    clean(world)
    assert [h.base_offset for h in headers_of(log) if h.is_control] == [8]
    assert pairs(log) == [
        (5, b"b", b"new"), (6, b"c", b"new"), (7, b"d", b"last"), (9, b"x", b"1"), (10, b"y", b"1")
    ]  # fmt: skip


def test_the_transaction_index_follows_its_markers(world, log):
    for turn in range(6):
        transaction(log, 1, [(b"k%d" % turn, b"v" * 90)], ControlType.ABORT, sequence=turn)
    keyed(log, (b"x", b"1"))
    settle(log)
    before = log.aborted_transactions(0, 99)
    assert len(before) == 6
    clean(world)
    after = log.aborted_transactions(0, 99)
    assert set(after) <= set(before)
    clean_start = world.reopen(clean=True).log().aborted_transactions(0, 99)
    assert clean_start == after
    assert world.reopen(clean=False).log().aborted_transactions(0, 99) == after


# ---- the map


def test_long_and_short_keys_are_told_apart():
    offsets = OffsetMap(100)
    for length in range(1, 40):
        offsets.put(b"k" * length, length)
    for length in range(1, 40):
        assert offsets.superseded(b"k" * length, length - 1)
        assert not offsets.superseded(b"k" * length, length)
    assert not offsets.superseded(b"other", 0)


# ---- what can go wrong


def test_a_damaged_segment_is_left_as_it_is(world, log):
    from sparkraft.records.errors import CorruptRecords

    for index in range(20):
        keyed(log, (b"k", b"value %d" % index))
    settle(log)
    path = log.segments[1].log_path
    data = bytearray(world.disk.files()[path])
    data[70] ^= 1
    world.disk.put(path, bytes(data))
    manager = CleanerManager(world.manager)
    due = manager.take_dirtiest(START_MS)
    cleaner = LogCleaner(world.disk, manager.plan(due, START_MS), io_bytes=1, keys_max=100)
    with pytest.raises(CorruptRecords):
        list(cleaner.run())
    manager.give_up(due, "damaged")
    manager.release(due)
    assert manager.take_dirtiest(START_MS) is None
    assert world.disk.files()[path] == bytes(data)


def test_a_segment_that_retention_takes_meanwhile_is_not_brought_back(world, log):
    for index in range(20):
        keyed(log, (b"k", b"%d" % index))
    settle(log)
    manager = CleanerManager(world.manager)
    due = manager.take_dirtiest(START_MS)
    steps = LogCleaner(world.disk, manager.plan(due, START_MS), io_bytes=1, keys_max=100).run()
    replacement = next(step for step in steps if not isinstance(step, int))
    log.delete_records_before(log.log_end_offset)
    log.apply_retention(START_MS)
    assert log.replace_segments(replacement.old, replacement.new) is None
    log.remove_cleaned_files()
    assert not [path for path in world.disk.files() if "cleaned" in path.rpartition("/")[2][19:]]
    assert records_of(log) == []


def test_a_log_that_was_cut_below_is_cleaned_from_its_start(world, log):
    for index in range(20):
        keyed(log, (b"k%d" % (index % 4), b"%d" % index))
    settle(log)
    assert clean(world) == 20
    log.truncate_to(10)
    for index in range(4):
        keyed(log, (b"k%d" % index, b"again"))
    settle(log)
    assert extent_of(log, 20, START_MS).first_dirty == 0


OPERATIONS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 4), st.booleans()), min_size=1, max_size=60
)


@given(OPERATIONS, st.integers(1, 8), st.sampled_from([1, 90, 4096]), st.integers(0, 2**32))
@settings(max_examples=80, deadline=None)
def test_the_last_value_of_every_key_outlives_any_number_of_cleanings(
    operations, keys_max, io_bytes, seed
):
    """S6 against a model: values, offsets, order; nothing new, nothing lost."""
    world = World(config=replace(COMPACT, delete_retention_ms=1 << 50))
    log = world.log()
    dice = SeededDice(seed)
    written, last = {}, {}
    for number, (key, kind, rolls) in enumerate(operations):
        value = None if kind == 0 else b"%d" % number
        name = b"key-%d" % key * (1 + key)
        info = keyed(log, (name, value), codec=list(Codec)[dice.below(5)])
        written[info.base_offset] = (name, value)
        last[name] = info.base_offset
        if rolls:
            log.roll()
        commit_all(log)
        if dice.below(4) == 0:
            clean(world, keys_max=keys_max, io_bytes=io_bytes)
        if dice.below(6) == 0:
            log = world.reopen(clean=dice.below(2) == 0).log()
            commit_all(log)
    for _ in range(70):
        if clean(world, keys_max=keys_max, io_bytes=io_bytes) is None:
            break
    found = pairs(log)
    assert [offset for offset, *_ in found] == sorted({offset for offset, *_ in found})
    assert all(written[offset] == (key, value) for offset, key, value in found)
    assert set(last.values()) <= {offset for offset, *_ in found}
    assert log.log_end_offset == len(operations)


# ---- crashes


@pytest.mark.parametrize("evidence", ["recovery point", "checkpoint", "replaced files", "none"])
def test_a_hole_is_a_loss_unless_a_cleaning_made_it(world, log, evidence):
    """Kafka's checkpoints may be older than its last cleaning; its replaced files tell of it."""
    log.config = replace(COMPACT, file_delete_delay_ms=60_000)
    for index in range(40):
        keyed(log, (b"k%d" % (index % 2), b"%d" % index))
    settle(log)
    clean(world)
    expected = pairs(log)
    bases = log.segment_base_offsets
    assert max(b - a for a, b in pairwise(bases)) > 1
    disk = world.disk
    if evidence != "recovery point":
        disk.put("/logs/recovery-point-offset-checkpoint", b"0\n1\nt 0 0\n")
    if evidence != "checkpoint":
        disk.unlink("/logs/cleaner-offset-checkpoint")
    if evidence != "replaced files":
        for path in [path for path in disk.files() if path.endswith(".deleted")]:
            disk.unlink(path)
    world.manager.close(clean=False)
    found = pairs(World(disk, config=COMPACT).log())
    assert (found == expected) is (evidence != "none")
