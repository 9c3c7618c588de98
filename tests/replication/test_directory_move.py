"""A replica's way to another directory, rule by rule, on real logs in memory."""

import pytest

from sparkraft.base.ids import BrokerId, Uuid
from sparkraft.replication.directory_move import (
    NEXT_MOVE_STAGES,
    DirectoryMove,
    MoveStage,
    Next,
    Promotion,
)
from sparkraft.simulation.world.memory_disk import MemoryDisk
from sparkraft.storage.log import PartitionLog
from sparkraft.storage.log_manager import LogManager
from sparkraft.storage.meta_properties import MetaProperties, write_meta_properties
from tests.storage.worlds import SMALL, TOPIC_ID, HandClock, SeededDice, append, contents

ONE, TWO = Uuid(b"directory-one--1"), Uuid(b"directory-two--2")
LARGE = 1 << 20


@pytest.fixture
def manager() -> LogManager:
    disk = MemoryDisk()
    for path, directory_id in (("/one", ONE), ("/two", TWO)):
        meta = MetaProperties(cluster_id="c", node_id=BrokerId(1), directory_id=directory_id)
        write_meta_properties(disk, path, meta)
    made = LogManager(disk, ["/one", "/two"], SMALL, clock=HandClock(), entropy=SeededDice())
    made.lock()
    made.load()
    made.get_or_create("t", 0, TOPIC_ID, directory_id=ONE)
    return made


@pytest.fixture
def log(manager: LogManager) -> PartitionLog:
    log = manager.get("t", 0)
    for number in range(12):
        append(log, b"a%d" % number, b"b", epoch=number // 4)
    log.set_high_watermark(20)
    return log


@pytest.fixture
def copy(manager: LogManager, log: PartitionLog) -> PartitionLog:
    return manager.dirs.carry_out(manager.futures.create(log, "/two"))


def moving(log: PartitionLog, copy: PartitionLog, *, tell_cluster: bool = True) -> DirectoryMove:
    return DirectoryMove(log, copy, tell_cluster=tell_cluster)


def until_idle(move: DirectoryMove, max_bytes: int = LARGE) -> Next:
    for _ in range(200):
        after = move.step(max_bytes)
        if after is not Next.MORE:
            return after
    raise AssertionError("it never ends")


def same(log: PartitionLog, copy: PartitionLog) -> None:
    assert contents(copy) == contents(log)
    assert copy.leader_epochs == log.leader_epochs
    assert copy.log_end_offset == log.log_end_offset
    assert copy.log_start_offset == log.log_start_offset
    assert copy.high_watermark == log.high_watermark


def test_a_copy_becomes_what_the_replica_is(log: PartitionLog, copy: PartitionLog):
    move = moving(log, copy)
    assert until_idle(move, 100) is Next.ASSIGN
    same(log, copy)
    assert move.lag == 0
    assert move.copied_bytes == log.size_in_bytes


def test_the_swap_waits_until_the_cluster_knows(log: PartitionLog, copy: PartitionLog):
    move = moving(log, copy)
    assert not move.may_be_known
    assert until_idle(move) is Next.ASSIGN
    assert move.may_be_known
    assert until_idle(move) is Next.WAIT
    move.on_accepted()
    assert until_idle(move) is Next.SWAP


def test_what_was_appended_meanwhile_is_copied_before_the_swap(
    log: PartitionLog, copy: PartitionLog
):
    move = moving(log, copy)
    until_idle(move)
    move.on_accepted()
    append(log, b"late", epoch=3)
    assert until_idle(move) is Next.SWAP
    same(log, copy)


def test_an_old_cluster_that_knows_no_directories_is_not_told(
    log: PartitionLog, copy: PartitionLog
):
    move = moving(log, copy, tell_cluster=False)
    assert until_idle(move) is Next.SWAP
    assert move.promotion is Promotion.ACCEPTED


def test_a_copy_found_again_goes_on_where_it_was(log: PartitionLog, copy: PartitionLog):
    for _ in range(3):
        moving(log, copy).step(200)
    half = moving(log, copy)
    half.step(200)
    half.step(200)
    so_far = copy.log_end_offset
    assert 0 < so_far < log.log_end_offset
    move = moving(log, copy)
    until_idle(move)
    assert move.copied_bytes < log.size_in_bytes
    same(log, copy)


def test_a_truncated_replica_truncates_its_copy(log: PartitionLog, copy: PartitionLog):
    move = moving(log, copy)
    until_idle(move)
    log.truncate_to(17)
    move.on_truncated(17)
    append(log, b"other", epoch=5)
    until_idle(move)
    same(log, copy)


def test_a_copy_that_missed_a_truncation_finds_out_by_epochs(log: PartitionLog, copy: PartitionLog):
    """It was on disk while the replica, without it, was truncated and written anew."""
    until_idle(moving(log, copy))
    log.truncate_to(11)
    for _ in range(10):
        append(log, b"other", b"records", epoch=7)
    assert log.log_end_offset > copy.log_end_offset
    move = moving(log, copy)
    assert until_idle(move, 150) is Next.ASSIGN
    same(log, copy)


def test_a_copy_that_is_ahead_is_cut_although_nobody_said_so(log: PartitionLog, copy: PartitionLog):
    move = moving(log, copy)
    until_idle(move)
    log.truncate_to(9)
    assert move.lag < 0
    until_idle(move)
    same(log, copy)


def test_a_copy_without_epochs_is_cut_to_what_it_knows_to_be_committed(log: PartitionLog):
    class Bare:
        """A copy whose epochs are lost."""

        latest_epoch = None
        high_watermark = 4
        log_start_offset = 0
        log_end_offset = 9

        def truncate_to(self, offset: int) -> bool:
            self.log_end_offset = offset
            return True

    bare = Bare()
    move = DirectoryMove(log, bare, tell_cluster=True)  # type: ignore[arg-type]
    assert move.step(LARGE) is Next.MORE
    assert bare.log_end_offset == 4
    bare.log_end_offset = 9
    move.on_truncated(6)
    move.step(LARGE)
    assert bare.log_end_offset == 6


def test_a_replica_that_begins_later_has_a_copy_that_does(log: PartitionLog, copy: PartitionLog):
    log.delete_records_before(7)
    log.apply_retention(0)
    move = moving(log, copy)
    until_idle(move)
    same(log, copy)
    assert copy.log_start_offset == 7


def test_records_deleted_while_copying_go_from_the_copy(log: PartitionLog, copy: PartitionLog):
    move = moving(log, copy)
    move.step(LARGE)
    move.step(200)
    log.delete_records_before(19)
    until_idle(move)
    same(log, copy)


def test_producers_move_along(log: PartitionLog, copy: PartitionLog):
    append(log, b"x", b"y", epoch=3, producer=(7, 0, 0))
    until_idle(moving(log, copy))
    assert [s.producer_id for s in copy.active_producers()] == [7]
    again = append(copy, b"x", b"y", epoch=3, producer=(7, 0, 0))
    assert again.duplicate


def test_every_pair_of_stages_is_allowed_or_refused_as_the_table_says(
    log: PartitionLog, copy: PartitionLog
):
    for before in MoveStage:
        for after in MoveStage:
            move = moving(log, copy)
            move.stage = before
            if after is before or after in NEXT_MOVE_STAGES[before]:
                move._enter(after)
                assert move.stage is after
            else:
                with pytest.raises(AssertionError):
                    move._enter(after)
