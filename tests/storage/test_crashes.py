"""Every crash of a busy node's disk must come back as a valid prefix (S1 to S5, S7, S8)."""

from dataclasses import replace

import pytest

from sparkraft.records.control import ControlType, EndTransaction, end_transaction_batch
from sparkraft.simulation.world.memory_disk import MemoryDisk
from sparkraft.storage.log import Origin
from tests.storage.worlds import (
    SMALL,
    START_MS,
    SeededDice,
    World,
    append,
    batch,
    contents,
    with_offsets,
)


class History:
    """What the node had promised after each step, by the length of the journal."""

    def __init__(self):
        self.world = World(
            MemoryDisk(), config=replace(SMALL, retention_bytes=1800, index_interval_bytes=100)
        )
        self.log = self.world.log()
        self.values = {}
        self.sequence = 0
        self.marks = []
        self.flushed = 0
        self.kept_start = 0
        self.note()

    def note(self):
        self.marks.append(
            (
                len(self.world.disk.journal),
                int(self.log.log_end_offset),
                self.flushed,
                int(self.log.log_start_offset),
                self.kept_start,
            )
        )

    def append(self, count, *, epoch=0, producer=True):
        values = [b"value-%d" % (len(self.values) + index) for index in range(count)]
        more = {"producer": (7, 0, self.sequence)} if producer else {}
        info = append(self.log, *values, epoch=epoch, **more)
        if producer:
            self.sequence += count
        for index, value in enumerate(values):
            self.values[info.base_offset + index] = value
        self.note()

    def transaction(self, kind):
        data = batch(
            (b"in-transaction",), producer=(9, 0, 0), transactional=True, timestamp=START_MS
        )
        info = self.log.append_as_leader(
            data, leader_epoch=1, now_ms=START_MS, origin=Origin.COORDINATOR
        )
        self.values[info.base_offset] = b"in-transaction"
        self.note()
        marker = end_transaction_batch(
            EndTransaction(kind, 3), timestamp=START_MS, producer_id=9, producer_epoch=0
        )
        info = self.log.append_as_leader(
            marker, leader_epoch=1, now_ms=START_MS, origin=Origin.COORDINATOR
        )
        self.values[info.base_offset] = b"\x00\x00\x00\x00\x00\x03"
        self.note()

    def flush(self):
        self.log.flush()
        self.flushed = int(self.log.log_end_offset)
        self.note()

    def retain(self):
        """Retention persists the log start offset before it removes anything."""
        if self.world.manager.removal.retention(START_MS):
            self.kept_start = int(self.log.log_start_offset)
        self.note()

    def checkpoint(self):
        self.world.manager.checkpoint()
        self.kept_start = int(self.log.log_start_offset)
        self.note()

    def commit_all(self):
        self.log.set_high_watermark(self.log.log_end_offset)

    def run(self):
        for _ in range(12):
            self.append(3)
        self.flush()
        self.checkpoint()
        for _ in range(9):
            self.append(2, epoch=1, producer=False)
        self.transaction(ControlType.ABORT)
        self.commit_all()
        self.log.delete_records_before(14)
        self.note()
        self.retain()
        self.checkpoint()
        for _ in range(8):
            self.append(4, epoch=2)
        self.flush()
        self.transaction(ControlType.COMMIT)
        self.commit_all()
        self.retain()
        self.append(5, epoch=3)
        self.checkpoint()
        self.world.manager.close(broker_epoch=4)
        self.flushed = int(self.log.log_end_offset)
        self.note()
        return self


@pytest.fixture(scope="module")
def history():
    made = History().run()
    assert len(made.log.segment_base_offsets) >= 3
    assert made.log.log_start_offset > 14, "retention has removed something as well"
    return made


def promised(history, count):
    """(end, flushed, start, kept start) as promised before entry `count`, and after it."""
    done = [mark for mark in history.marks if mark[0] <= count]
    ahead = [mark for mark in history.marks if mark[0] > count]
    before = done[-1] if done else (0, 0, 0, 0, 0)
    return before[1:], (ahead[0] if ahead else history.marks[-1])[1:]


def recovered(history, disk):
    world = World(disk, config=history.world.config)
    assert not world.manager.damaged
    return world


def check(history, disk, *, least_end, most_end, least_start, most_start):
    world = recovered(history, disk)
    log = world.log()
    end, start = int(log.log_end_offset), int(log.log_start_offset)
    assert least_end <= end <= most_end
    assert least_start <= start <= most_start
    found = contents(log)
    assert found == [(offset, history.values[offset]) for offset in range(start, end)]
    check_lookups(log, start, end)
    check_producers(history, log, end)
    return world


def check_lookups(log, start, end):
    """S3: whatever the indexes are now, they answer as a scan would."""
    for offset in range(start, end):
        pieces, _ = log.read(offset, max_bytes=1, up_to=end)
        first = int.from_bytes(pieces[0][:8], "big")
        last = first + int.from_bytes(pieces[0][23:27], "big")
        assert first <= offset <= last
    if end > start:
        assert log.offset_for_timestamp(START_MS).offset >= start


def check_producers(history, log, end):
    """S5: the next sequence is accepted, so snapshot and replay agree with the whole history."""
    sent = [offset for offset in history.values if offset < end]
    state = next((state for state in log.active_producers() if state.producer_id == 7), None)
    mine = [offset for offset in sent if by_producer(history, offset)]
    if state is not None and mine:
        assert state.batches[-1].last_offset == max(mine)
        assert state.last_sequence == len(mine) - 1


def by_producer(history, offset):
    """Offsets 0..35 and those from epoch 2 on that carry plain values are producer 7's."""
    plain = history.values[offset].startswith(b"value-")
    return plain and not 36 <= offset < 36 + 18


def test_a_kill_at_any_byte_loses_nothing_that_was_appended(history):
    disk = history.world.disk
    points = list(disk.crash_points())
    assert len(points) > 300
    for count, cut in points:
        before, after = promised(history, count)
        check(
            history,
            disk.killed_at(count, cut),
            least_end=before[0],
            most_end=max(after[0], before[0]),
            least_start=before[3],
            most_start=max(after[2], before[2]),
        )


@pytest.mark.parametrize("seed", range(4))
def test_a_power_loss_keeps_what_was_synced(history, seed):
    dice = SeededDice(seed)
    disk = history.world.disk
    for count in range(0, len(disk.journal) + 1, 2):
        before, after = promised(history, count)
        check(
            history,
            disk.power_lost_at(count, dice),
            least_end=min(before[1], before[0]),
            most_end=max(after[0], before[0]),
            least_start=before[3],
            most_start=max(after[2], before[2]),
        )


def test_a_crash_during_recovery_changes_nothing(history):
    """S2: recovery may itself be cut short anywhere, and ends the same."""
    disk = history.world.disk
    for count in range(3, len(disk.journal), 37):
        crashed = disk.killed_at(count)
        expected = recovered(history, crashed.copy()).log()
        again = crashed.copy()
        recovered(history, again)
        for second, cut in again.crash_points():
            log = recovered(history, again.killed_at(second, cut)).log()
            assert contents(log) == contents(expected)


def test_a_recovered_log_takes_appends_and_rolls(history):
    """S8: and the files of removed segments don't stay behind."""
    disk = history.world.disk
    for count in range(5, len(disk.journal), 23):
        world = recovered(history, disk.killed_at(count))
        log = world.log()
        before = contents(log)
        for _ in range(20):
            append(log, b"later", epoch=9)
        assert contents(log)[: len(before)] == before
        assert len(contents(log)) == len(before) + 20
        world.reopen()
        left = [path for path in world.disk.files() if path.endswith((".deleted", ".tmp"))]
        assert left == []


def cut_and_rolled(disk):
    """A log whose tail was cut at the end of a segment, and went on in the next one."""
    world = World(disk, config=SMALL)
    log = world.log()
    append(log, b"kept")
    append(log, b"cut", b"cut as well", epoch=1)
    log.flush()
    world.manager.checkpoint()
    log.truncate_to(1)
    log.roll()
    append(log, b"newer", epoch=2)
    return world, log


@pytest.mark.parametrize("seed", range(40))
def test_records_that_were_cut_do_not_come_back_below_newer_ones(seed):
    disk = MemoryDisk()
    cut_and_rolled(disk)
    after = disk.power_lost_at(len(disk.journal), SeededDice(seed))
    back = contents(World(after, config=SMALL).log())
    kept = (0, b"kept")
    before = [kept, (1, b"cut"), (2, b"cut as well")]
    assert back in ([kept], [kept, (1, b"newer")], before)


@pytest.mark.parametrize("seed", range(20))
def test_a_cut_is_on_disk_once_what_follows_it_is(seed):
    disk = MemoryDisk()
    world, log = cut_and_rolled(disk)
    log.flush()
    world.manager.checkpoint()
    after = disk.power_lost_at(len(disk.journal), SeededDice(seed))
    assert contents(World(after, config=SMALL).log()) == [(0, b"kept"), (1, b"newer")]


@pytest.mark.parametrize("synced", [False, True], ids=["killed", "unplugged"])
def test_holes_of_a_cleaned_log_that_a_follower_copied_are_no_loss(synced):
    world = World()
    log = world.log()
    for base in range(0, 60, 4):  # each leaves three offsets out
        log.append_as_follower(with_offsets(batch((b"x" * 200,)), base))
    assert len(log.segment_base_offsets) > 2
    if synced:
        log.flush()
    written = contents(log)
    disk = world.disk
    world.disk = disk.power_lost_at(len(disk.journal), SeededDice()) if synced else disk.copy()
    assert contents(world.open().log()) == written
