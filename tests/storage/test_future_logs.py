"""A log on its way to another directory: copy, swap, and every crash in between."""

from dataclasses import replace
from typing import Any

import pytest

from sparkraft.base.ids import BrokerId, Uuid
from sparkraft.simulation.world.memory_disk import MemoryDisk
from sparkraft.storage.disk import StorageFault
from sparkraft.storage.log_manager import LogManager
from sparkraft.storage.meta_properties import MetaProperties, write_meta_properties
from tests.storage.worlds import SMALL, TOPIC_ID, HandClock, SeededDice, append, contents

ONE, TWO = Uuid(b"directory-one--1"), Uuid(b"directory-two--2")


def manager(disk: MemoryDisk, clock: HandClock | None = None) -> LogManager:
    made = LogManager(
        disk, ["/one", "/two"], SMALL, clock=clock or HandClock(), entropy=SeededDice()
    )
    made.lock()
    made.load()
    return made


def at_once(made: LogManager, steps: Any) -> Any:
    return made.dirs.carry_out(steps)


def begun() -> tuple[MemoryDisk, LogManager]:
    """A log of 20 records in /one and its copy of 12 in /two."""
    disk = MemoryDisk()
    for path, directory_id in (("/one", ONE), ("/two", TWO)):
        meta = MetaProperties(cluster_id="c", node_id=BrokerId(1), directory_id=directory_id)
        write_meta_properties(disk, path, meta)
    made = manager(disk)
    log = made.get_or_create("t", 0, TOPIC_ID, directory_id=ONE)
    for number in range(20):
        append(log, b"%d" % number, epoch=number // 7)
    log.set_high_watermark(15)
    copy_up_to(made, 12)
    return disk, made


def copy_up_to(made: LogManager, end: int) -> None:
    log = made.get("t", 0)
    copy = made.futures.get("t", 0) or at_once(made, made.futures.create(log, "/two"))
    for _, view in log.read_batches(copy.log_end_offset, end):
        copy.append_as_follower(view)


def test_a_copy_lies_beside_the_log_and_is_not_it():
    disk, made = begun()
    copy = made.futures.get("t", 0)
    assert made.get("t", 0).log_dir == "/one"
    assert (copy.log_dir, copy.topic_id, copy.log_end_offset) == ("/two", TOPIC_ID, 12)
    assert made.futures.directory_id("t", 0) == TWO
    assert [log.log_dir for log in made.logs()] == ["/one"]
    (name,) = [name for name in disk.listdir("/two") if name.startswith("t-0")]
    assert name.endswith("-future")
    assert len(name) == len("t-0.") + 32 + len("-future")


def test_a_copy_is_found_again_with_its_records():
    disk, made = begun()
    made.close()
    again = manager(disk)
    assert contents(again.futures.get("t", 0)) == contents(again.get("t", 0))[:12]
    assert again.futures.get("t", 0).leader_epochs == [(0, 0), (1, 7)]


def test_a_swap_puts_the_copy_in_the_logs_place_and_the_log_goes():
    disk, made = begun()
    copy_up_to(made, 20)
    expected = contents(made.get("t", 0))
    moved = at_once(made, made.futures.swap_in("t", 0))
    assert made.get("t", 0) is moved
    assert made.futures.get("t", 0) is None
    assert contents(moved) == expected
    append(moved, b"more", epoch=2)
    made.removal.empty_trash(HandClock().now_ms + 60_001)
    assert [name for name in disk.listdir("/one") if name.startswith("t-0")] == []
    made.close()
    again = manager(disk)
    assert again.get("t", 0).log_dir == "/two"
    assert contents(again.get("t", 0)) == [*expected, (20, b"more")]


def test_a_copy_given_up_goes_and_the_log_stays():
    disk, made = begun()
    at_once(made, made.futures.drop("t", 0))
    assert made.futures.get("t", 0) is None
    made.removal.empty_trash(HandClock().now_ms + 60_001)
    assert [name for name in disk.listdir("/two") if name.startswith("t-0")] == []
    assert len(contents(made.get("t", 0))) == 20


def test_a_deleted_log_takes_its_copy_along():
    disk, made = begun()
    made.delete("t", 0)
    made.removal.empty_trash(HandClock().now_ms + 60_001)
    for path in ("/one", "/two"):
        assert [name for name in disk.listdir(path) if name.startswith("t-0")] == []


def test_a_copy_may_begin_where_the_log_does():
    _, made = begun()
    at_once(made, made.futures.drop("t", 0))
    made.get("t", 0).delete_records_before(9)
    copy = at_once(made, made.futures.create(made.get("t", 0), "/two"))
    copy.truncate_fully_and_start_at(9)
    copy_up_to(made, 20)
    made.checkpoint()
    assert contents(at_once(made, made.futures.swap_in("t", 0))) == contents(made.get("t", 0))
    assert made.get("t", 0).log_start_offset == 9


@pytest.mark.parametrize("path", ["/one", "/two"])
def test_a_directory_that_fails_takes_the_log_or_the_copy_along(path: str):
    _, made = begun()
    made.fail_directory(StorageFault(path, "test", "broken"))
    assert (made.get("t", 0).fault is not None) == (path == "/one")
    assert (made.futures.get("t", 0).fault is not None) == (path == "/two")
    at_once(made, made.futures.drop("t", 0))
    assert made.futures.get("t", 0) is None


def test_a_log_may_be_lost_while_its_copy_is_whole():
    """The directory that failed is gone; the cluster has been told of the copy's before."""
    disk, made = begun()
    copy_up_to(made, 20)
    made.fail_directory(StorageFault("/one", "test", "broken"))
    moved = at_once(made, made.futures.swap_in("t", 0))
    assert made.get("t", 0) is moved
    assert moved.fault is None
    assert len(contents(moved)) == 20
    assert [name for name in disk.listdir("/two") if name.startswith("t-0")] == ["t-0"]


def test_a_copy_where_the_cluster_wants_the_log_takes_its_place_if_that_is_offline():
    """The node stopped after the controller had heard, before the swap; then a disk was gone."""
    _, made = begun()
    copy_up_to(made, 20)
    made.fail_directory(StorageFault("/one", "test", "broken"))
    assert made.get_or_create("t", 0, TOPIC_ID, directory_id=TWO).log_dir == "/two"
    _, made = begun()
    assert made.get_or_create("t", 0, TOPIC_ID, directory_id=TWO).log_dir == "/one"
    assert made.get_or_create("t", 0, TOPIC_ID, directory_id=ONE).log_dir == "/one"


def test_new_logs_avoid_cordoned_directories_unless_told_where_to_go():
    _, made = begun()
    made.cordon(frozenset({"/two"}))
    assert {made.get_or_create("u", n, TOPIC_ID).log_dir for n in range(4)} == {"/one"}
    assert made.get_or_create("v", 0, TOPIC_ID, directory_id=TWO).log_dir == "/two"
    made.prefer_directory("w", 0, "/two")
    assert made.get_or_create("w", 0, TOPIC_ID, directory_id=ONE).log_dir == "/two"
    made.cordon(frozenset({"/one", "/two"}))
    assert made.get_or_create("x", 0, TOPIC_ID).log_dir == "/two"


def test_every_crash_of_a_move_leaves_the_whole_log():
    """A kill at any byte: the log comes back with all its records, wherever."""
    disk, made = begun()
    before = len(disk.journal)
    copy_up_to(made, 20)
    expected = contents(made.get("t", 0))
    made.futures.get("t", 0).flush()
    at_once(made, made.futures.swap_in("t", 0))
    append(made.get("t", 0), b"more", epoch=2)
    found = set()
    for count, cut in disk.crash_points():
        if count < before:
            continue
        again = manager(disk.killed_at(count, cut))
        assert again.offline_directories == []
        assert not again.damaged
        log = again.get("t", 0)
        assert contents(log)[:20] == expected
        found.add(log.log_dir)
        left = [log.log_dir, again.futures.get("t", 0) is not None]
        assert left != ["/two", True]
    assert found == {"/one", "/two"}


@pytest.mark.parametrize("seed", range(6))
def test_every_power_loss_of_a_move_keeps_what_was_synced(seed: int):
    disk, made = begun()
    made.get("t", 0).flush()
    made.checkpoint()
    before = len(disk.journal)
    copy_up_to(made, 20)
    expected = contents(made.get("t", 0))
    made.futures.get("t", 0).flush()
    at_once(made, made.futures.swap_in("t", 0))
    made.removal.empty_trash(HandClock().now_ms + 60_001)
    for count in range(before, len(disk.journal) + 1):
        again = manager(disk.power_lost_at(count, SeededDice(seed)))
        assert again.offline_directories == []
        log = again.get("t", 0)
        assert log is not None
        assert contents(log) == expected


def test_a_copy_of_kafka_is_told_by_its_name():
    from sparkraft.storage.names import parse_partition_dir

    found = parse_partition_dir("my-topic-3.0123456789abcdef0123456789abcdef-future")
    assert (found.topic, found.partition, found.mark) == ("my-topic", 3, "-future")


def test_settings_of_a_log_are_its_copys():
    _, made = begun()
    at_once(made, made.futures.drop("t", 0))
    made.get("t", 0).config = replace(SMALL, segment_bytes=5_000)
    copy = at_once(made, made.futures.create(made.get("t", 0), "/two"))
    assert copy.config.segment_bytes == 5_000
