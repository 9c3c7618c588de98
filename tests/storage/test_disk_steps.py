"""Checkpoints and deletions in steps: what may happen between two steps must not be undone."""

from dataclasses import replace

import pytest

from sparkraft.storage.checkpoints import read_offsets
from sparkraft.storage.log_dir import DiskJob
from sparkraft.storage.names import RECOVERY_POINTS
from tests.storage.worlds import LOG_DIR, SMALL, START_MS, TOPIC_ID, World, append


def points_of(world):
    return read_offsets(world.disk, f"{LOG_DIR}/{RECOVERY_POINTS}")


def filled(world, partition=0):
    log = world.log(partition=partition)
    for _ in range(10):
        append(log, b"v")
    log.flush()
    return log


def jobs_of(steps):
    return [step for step in steps if isinstance(step, DiskJob)]


def test_a_truncation_between_collecting_and_writing_wins():
    world = World()
    log = filled(world)
    steps = world.manager.checkpoint_steps()
    job = next(step for step in steps if isinstance(step, DiskJob))
    log.truncate_to(4)
    job.work()  # late, in its thread
    assert points_of(world) == {("t", 0): 4}


def test_a_truncation_while_a_checkpoint_is_collected_is_in_it():
    world = World()
    first, _ = filled(world, 0), filled(world, 1)
    steps = world.manager.checkpoint_steps()
    assert next(steps) == 1, "the first log was handled"
    first.truncate_to(4)
    for step in steps:
        if isinstance(step, DiskJob):
            step.work()
    assert points_of(world) == {("t", 0): 4, ("t", 1): 10}


def test_a_log_deleted_and_created_meanwhile_starts_from_nothing():
    world = World()
    filled(world)
    world.manager.checkpoint()
    steps = world.manager.checkpoint_steps()
    assert next(steps) == 1
    world.manager.delete("t", 0)
    world.log()
    for step in steps:
        if isinstance(step, DiskJob):
            step.work()
    assert points_of(world) == {("t", 0): 0}


def test_a_checkpoint_in_steps_equals_one_at_once():
    world = World()
    for partition in range(3):
        filled(world, partition)
    world.manager.checkpoint()
    expected = dict(world.disk.files())
    world.manager.dirs.carry_out(world.manager.checkpoint_steps())
    assert dict(world.disk.files()) == expected


def test_files_are_deleted_by_jobs_alone():
    world = World(config=replace(SMALL, retention_bytes=0))
    log = filled(world)
    for _ in range(40):
        append(log, bytes(100))
    log.set_high_watermark(50)
    steps = world.manager.removal.retention_steps(START_MS)
    jobs = []
    for step in steps:
        if isinstance(step, DiskJob):
            before = set(world.disk.files())
            step.work()
            jobs.append(before - set(world.disk.files()))
            continue
    deleted = set().union(*jobs)
    assert any(path.endswith(".log.deleted") for path in deleted)
    assert not any(path.endswith(".deleted") for path in world.disk.files())


def test_no_file_goes_if_the_log_start_cannot_be_written():
    world = World(config=replace(SMALL, retention_bytes=0))
    log = filled(world)
    for _ in range(40):
        append(log, bytes(100))
    log.set_high_watermark(50)
    before = {path for path in world.disk.files() if path.endswith(".log")}
    world.disk.fail("write", path="log-start-offset-checkpoint")
    world.manager.removal.retention(START_MS)
    assert world.manager.offline_directories
    assert {path for path in world.disk.files() if path.endswith(".log")} == before


def test_more_that_expires_meanwhile_has_its_start_written_first():
    world = World(config=replace(SMALL, retention_bytes=2000))
    log = filled(world)
    for _ in range(40):
        append(log, bytes(100))
    log.set_high_watermark(50)
    starts = f"{LOG_DIR}/log-start-offset-checkpoint"
    steps = world.manager.removal.retention_steps(START_MS)
    for step in steps:
        if isinstance(step, DiskJob):
            step.work()
            if step.operation == "checkpoint":
                kept = log.log_start_offset
                for _ in range(20):
                    append(log, bytes(100))
                log.set_high_watermark(70)
    assert log.log_start_offset > kept
    world.disk.fault_point("end")
    on_disk = read_offsets(world.disk, starts)
    assert on_disk.get(("t", 0), log.segment_base_offsets[0]) == log.log_start_offset


def test_a_start_that_a_leader_moves_meanwhile_is_written_before_files_go():
    world = World(config=replace(SMALL, retention_bytes=2000))
    log = filled(world)
    for _ in range(40):
        append(log, bytes(100))
    log.set_high_watermark(50)
    starts = f"{LOG_DIR}/log-start-offset-checkpoint"
    moved = False
    for step in world.manager.removal.retention_steps(START_MS):
        if not isinstance(step, DiskJob):
            continue
        step.work()
        if step.operation == "checkpoint" and not moved:
            moved = log.advance_log_start(49)  # as a follower does
    assert moved
    assert log.segment_base_offsets[0] > 40
    assert read_offsets(world.disk, starts)["t", 0] == 49


@pytest.mark.parametrize("folders", [1, 40])
def test_deleted_logs_go_in_jobs_of_a_few_folders(folders):
    world = World()
    for partition in range(folders):
        filled(world, partition)
        world.manager.delete("t", partition)
    steps = world.manager.removal.trash_steps(START_MS)
    done = 0
    for step in steps:
        if isinstance(step, DiskJob):
            step.work()
            done += 1
    assert done == -(-folders // 16)
    assert not any("-delete" in path for path in world.disk.files())


def test_a_second_checkpoint_that_begins_meanwhile_hides_no_truncation_from_the_first():
    world = World()
    log, _ = filled(world, 0), filled(world, 1)
    first = world.manager.checkpoint_steps()
    assert next(first) == 1, "the first log was handled"
    log.truncate_to(4)
    second = world.manager.recovery_point_steps(LOG_DIR)  # as a cleaning does
    assert next(second) == 1
    for step in first:
        if isinstance(step, DiskJob):
            step.work()
    assert points_of(world) == {("t", 0): 4, ("t", 1): 10}
    second.close()


def test_a_log_is_created_by_jobs_and_is_in_the_table_afterwards():
    world = World()
    steps = world.manager.creation("t", 0, TOPIC_ID)
    (job,) = [next(steps)]
    assert not any("/t-0" in path for path in world.disk.files())
    assert world.manager.get("t", 0) is None
    assert world.manager.dirs.pick(None, None).creating == {("t", 0)}
    job.work()
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert world.manager.get("t", 0) is end.value.value
    assert any("/t-0/partition.metadata" in path for path in world.disk.files())
    assert world.manager.dirs.pick(None, None).creating == set()


def test_a_log_leaves_the_table_before_its_folder_is_renamed():
    world = World()
    log = filled(world)
    steps = world.manager.deletion("t", 0)
    job = next(steps)
    assert world.manager.get("t", 0) is None
    assert log.fault is not None
    assert job.syncs
    assert any("/t-0/" in path for path in world.disk.files())
    job.work()
    assert list(steps) == []
    assert not any("/t-0/" in path for path in world.disk.files())


def test_entries_of_an_older_log_go_before_a_new_one_has_a_folder():
    world = World()
    filled(world)
    world.manager.checkpoint()
    assert points_of(world) == {("t", 0): 10}
    world.manager.delete("t", 0)
    steps = world.manager.creation("t", 0, TOPIC_ID)
    job = next(steps)
    assert job.operation == "checkpoint"
    job.work()
    assert points_of(world) == {}
    assert not any("/t-0/" in path for path in world.disk.files())
    next(steps).work()
    assert list(steps) == []
