"""Which log is cleaned when: dirty shares, lags, and what is left to the next cleaning."""

from dataclasses import replace

import pytest

from sparkraft.storage.cleaner_manager import CleanerManager
from sparkraft.storage.cleaner_plan import extent_of
from tests.storage.compacted import COMPACT, DAY_MS, commit_all, pairs, records_of, settle
from tests.storage.worlds import (
    START_MS,
    World,
    clean,
    keyed,
)


@pytest.fixture
def world():
    return World(config=COMPACT)


@pytest.fixture
def log(world):
    return world.log()


def test_a_log_is_due_by_its_dirty_share(world, log):
    log.config = replace(COMPACT, min_cleanable_dirty_ratio=0.5)
    for index in range(10):
        keyed(log, (b"k%d" % index, b"v" * 30))
    settle(log)
    assert clean(world) == 10
    for index in range(4):
        keyed(log, (b"k%d" % index, b"v" * 30))
    settle(log)
    extent = extent_of(log, 10, START_MS)
    assert extent.ratio == pytest.approx(4 / 14, abs=0.02)
    assert clean(world) is None
    for index in range(8):
        keyed(log, (b"k%d" % index, b"v" * 30))
    settle(log)
    assert clean(world) == 22


def test_young_records_wait_for_min_compaction_lag(world, log):
    log.config = replace(COMPACT, min_compaction_lag_ms=1000)
    keyed(log, (b"k", b"0"), timestamp=START_MS - 5000)
    keyed(log, (b"k", b"1"), timestamp=START_MS - 5000)
    log.roll()
    keyed(log, (b"k", b"2"), timestamp=START_MS)
    settle(log)
    assert clean(world) == 2
    assert [offset for offset, *_ in records_of(log)] == [1, 2]
    world.clock.now_ms += 1001
    assert clean(world) == 3
    assert [offset for offset, *_ in records_of(log)] == [2]


def test_max_compaction_lag_cleans_whatever_the_share_and_rolls_in_time(world, log):
    log.config = replace(
        COMPACT, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000, segment_ms=DAY_MS
    )
    keyed(log, (b"k", b"0"))
    keyed(log, (b"k", b"1"), timestamp=START_MS + 900)
    assert log.segment_count == 1
    keyed(log, (b"k", b"2"), timestamp=START_MS + 1100)
    assert log.segment_count == 2, "the segment is older than the lag"
    commit_all(log)
    assert clean(world) is None
    world.clock.now_ms += 1001
    assert clean(world) == 2
    assert [offset for offset, *_ in records_of(log)] == [1, 2]


def test_the_dirtiest_log_comes_first_and_each_only_once(world):
    for topic in ("a", "b"):
        log = world.log(topic)
        for index in range(10):
            keyed(log, (b"k%d" % index, b"v" * 30))
        settle(log)
    assert {clean(world), clean(world)} == {10}
    for topic, repeats in (("a", 4), ("b", 8)):
        log = world.log(topic)
        for index in range(repeats):
            keyed(log, (b"k%d" % index, b"v" * 30))
        settle(log)
    cleaners = CleanerManager(world.manager)
    first = cleaners.take_dirtiest(START_MS)
    second = cleaners.take_dirtiest(START_MS)
    assert (first.log.topic, second.log.topic) == ("b", "a")
    assert cleaners.take_dirtiest(START_MS) is None
    cleaners.release(second)
    assert cleaners.take_dirtiest(START_MS).log.topic == "a"


def test_a_full_map_leaves_the_rest_to_the_next_cleaning(world, log):
    for index in range(60):
        keyed(log, (b"k%d" % (index % 20), b"%d" % index))
    settle(log)
    ends = []
    while (cleaned_to := clean(world, keys_max=7)) is not None:
        ends.append(cleaned_to)
        assert len(ends) < 20
    assert len(ends) > 3
    assert ends == sorted(set(ends))
    assert pairs(log) == [(40 + n, b"k%d" % n, b"%d" % (40 + n)) for n in range(20)]


def test_compact_and_delete_does_both(world, log):
    log.config = replace(COMPACT, delete=True, retention_ms=1000)
    for index in range(12):
        keyed(log, (b"k%d" % (index % 3), b"%d" % index), timestamp=START_MS - 5000)
    log.roll()
    for index in range(12):
        keyed(log, (b"k%d" % (index % 3), b"%d" % index), timestamp=START_MS)
    settle(log)
    clean(world)
    assert [offset for offset, *_ in records_of(log)] == [21, 22, 23]
    world.manager.removal.retention(START_MS + 1500)
    assert records_of(log) == []
    assert log.log_start_offset == log.log_end_offset == 24


def test_an_emptied_segment_holds_nobody_up(world, log):
    log.config = replace(COMPACT, delete=True, retention_bytes=10)
    for index in range(30):
        keyed(log, (b"k", b"%d" % index))
        log.roll()
    keyed(log, (b"k", b"30"))
    settle(log)
    due = CleanerManager(world.manager)
    clean(world, cleaners=due)
    assert world.manager.removal.retention(START_MS) >= 0
    assert log.log_start_offset <= log.log_end_offset == 31
    assert world.reopen(clean=False).log().log_end_offset == 31
