"""A crash anywhere in a cleaning: no value is lost, nothing half done stays (S1, S2, S6)."""

import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from sparkraft.records.control import ControlType
from sparkraft.simulation.world.memory_disk import MemoryDisk
from sparkraft.storage.disk import OsDisk
from sparkraft.storage.log_manager import LogManager
from tests.storage.compacted import COMPACT, commit_all, pairs, settle
from tests.storage.test_cleaner import transaction
from tests.storage.worlds import START_MS, HandClock, SeededDice, World, clean, keyed


class CleanedHistory:
    """A log cleaned several times, with transactions and retention, on a disk that journals."""

    def __init__(self):
        self.world = World(MemoryDisk(), config=replace(COMPACT, segment_bytes=400))
        log = self.log = self.world.log()
        for index in range(40):
            keyed(log, (b"k%d" % (index % 7), b"%d" % index))
        transaction(log, 3, [(b"k1", b"aborted")], ControlType.ABORT)
        log.flush()
        self.world.manager.checkpoint()
        settle(log)
        self.begin = len(self.world.disk.journal)
        self.flushed = int(log.log_end_offset)
        clean(self.world, io_bytes=64)
        for index in range(25):
            keyed(log, (b"k%d" % (index % 5), b"again %d" % index))
        settle(log)
        clean(self.world, io_bytes=1 << 20)
        self.world.manager.removal.empty_trash(START_MS)
        self.values = {}
        for number in range(40):
            self.values[number] = (b"k%d" % (number % 7), b"%d" % number)
        for number in range(25):
            self.values[42 + number] = (b"k%d" % (number % 5), b"again %d" % number)

    def check(self, disk):
        world = World(disk, config=self.world.config)
        assert not world.manager.damaged
        log = world.log()
        assert log.log_end_offset >= self.flushed
        commit_all(log)
        found = [each for each in pairs(log) if each[2] != b"aborted"]
        assert [offset for offset, *_ in found] == sorted({offset for offset, *_ in found})
        assert all(self.values[offset] == (key, value) for offset, key, value in found)
        latest = {}
        for offset, (key, _) in self.values.items():
            if offset < log.log_end_offset:
                latest[key] = offset
        assert set(latest.values()) <= {offset for offset, *_ in found}
        for entry in log.aborted_transactions(0, 1 << 40):
            assert (entry.producer_id, entry.first_offset, entry.last_offset) == (3, 40, 41)
        names = [path.rpartition("/")[2] for path in disk.files()]
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
        return log


@pytest.fixture(scope="module")
def history():
    return CleanedHistory()


def test_a_kill_at_any_byte_of_a_cleaning_loses_no_value(history):
    disk = history.world.disk
    points = [point for point in disk.crash_points() if point[0] >= history.begin]
    assert len(points) > 100
    for count, cut in points:
        history.check(disk.killed_at(count, cut))


@pytest.mark.parametrize("seed", range(3))
def test_a_power_loss_during_a_cleaning_loses_no_value(history, seed):
    disk, dice = history.world.disk, SeededDice(seed)
    for count in range(history.begin, len(disk.journal) + 1):
        history.check(disk.power_lost_at(count, dice))


def test_a_crash_while_an_interrupted_cleaning_is_finished_changes_nothing(history):
    disk = history.world.disk
    for count in range(history.begin, len(disk.journal), 3):
        crashed = disk.killed_at(count)
        expected = pairs(history.check(crashed.copy()))
        again = crashed.copy()
        history.check(again)
        for second, cut in again.crash_points(cuts_per_write=1):
            assert pairs(history.check(again.killed_at(second, cut))) == expected


# ---- S3, S4, S8 of compacted logs


def compacted():
    world = World(MemoryDisk(), config=replace(COMPACT, segment_bytes=400))
    log = world.log()
    for index in range(60):
        keyed(log, (b"k%d" % (index % 25), b"%d" % index))
    settle(log)
    clean(world)
    keyed(log, (b"last", b"60"))
    commit_all(log)
    return world, log


CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
)


@pytest.mark.parametrize("clean_stop", [True, False])
@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.parametrize("content", [None, b"", b"garbage", b"0\n9\nt 0 1\n"])
def test_a_damaged_checkpoint_costs_a_compacted_log_nothing(content, name, clean_stop):
    world, log = compacted()
    expected = pairs(log)
    world.manager.checkpoint()
    world.manager.close(clean=clean_stop)
    if content is None:
        world.disk.unlink(f"/logs/{name}")
    else:
        world.disk.put(f"/logs/{name}", content)
    assert pairs(world.open().log()) == expected


MANGLED = {
    "missing": lambda _: None,
    "empty": lambda _: b"",
    "zeros": lambda data: bytes(len(data)),
    "cut": lambda data: data[: len(data) // 2 + 1],
    "off by one": lambda data: data[:-1] + bytes([(data[-1] + 1) % 256]) if data else data,
}


@pytest.mark.parametrize("how", MANGLED)
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_mangled_index_of_a_cleaned_segment_gives_the_same_answers(suffix, how):
    world, log = compacted()

    def answers(of):
        times = [of.offset_for_timestamp(START_MS + ms) for ms in range(-1, 3)]
        return pairs(of), [of.read(o, max_bytes=1, up_to=61).pieces[0] for o in range(61)], times

    expected = answers(log)
    world.manager.close()
    for path, data in world.disk.files().items():
        if path.endswith(suffix) and "/t-0/" in path:
            changed = MANGLED[how](data)
            if changed is None:
                world.disk.unlink(path)
            else:
                world.disk.put(path, changed)
    assert answers(world.open().log()) == expected


def test_cleaning_and_retention_leave_no_descriptor_open(tmp_path):
    disk = OsDisk(open_files_max=8)
    clock = HandClock()
    config = replace(COMPACT, segment_bytes=400, delete=True, retention_bytes=4000)
    manager = LogManager(disk, [str(tmp_path)], config, clock=clock, entropy=SeededDice())
    manager.load()
    log = manager.get_or_create("t", 0, None)
    world = SimpleNamespace(disk=disk, manager=manager, clock=clock)

    def round_of_work(first):
        for index in range(first, first + 40):
            keyed(log, (b"k%d" % (index % 30), b"%d" % index))
        settle(log)
        clean(world)
        manager.removal.retention(START_MS)
        manager.removal.empty_trash(START_MS)
        list(log.read_batches(log.log_start_offset, log.log_end_offset))

    round_of_work(0)
    before = len(os.listdir("/proc/self/fd"))
    for turn in range(1, 12):
        round_of_work(turn * 40)
        assert disk.open_files <= 8
    assert len(os.listdir("/proc/self/fd")) <= before + 8
    names = {path.name for path in (tmp_path / "t-0").iterdir()}
    assert len([name for name in names if name.endswith(".log")]) <= log.segment_count
    manager.close()
