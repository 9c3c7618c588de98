"""The metadata log on disk: appends, snapshots, cleaning, and every crash of a busy one."""

from collections.abc import Iterable

import pytest

from sparkraft.base.ids import LeaderEpoch, Millis, Offset
from sparkraft.records.batch import iter_batches
from sparkraft.records.record import BatchBuilder
from sparkraft.simulation.world.memory_disk import MemoryDisk
from sparkraft.storage.disk import StorageFault
from sparkraft.storage.raft_log import METADATA_TOPIC_ID, RaftLog, RaftLogConfig
from sparkraft.storage.snapshot_files import SnapshotId, snapshot_batches
from tests.storage.worlds import START_MS, SeededDice

LOG_DIR = "/data"
DIRECTORY = f"{LOG_DIR}/__cluster_metadata-0"


class FixedClock:
    def __init__(self) -> None:
        self.now = START_MS

    def wall_ms(self) -> Millis:
        return Millis(self.now)

    def mono_ms(self) -> Millis:
        return Millis(self.now)


def open_log(disk: MemoryDisk, *, recovery_point: int = 0, **config: int) -> RaftLog:
    settings = RaftLogConfig(**{"segment_bytes": 400, **config})
    return RaftLog.open(
        disk,
        LOG_DIR,
        clock=FixedClock(),
        entropy=SeededDice(1),
        config=settings,
        recovery_point=recovery_point,
    )


def add(log: RaftLog, count: int, *, epoch: int = 1, at: int | None = None) -> None:
    builder = BatchBuilder(base_offset=log.end if at is None else at, leader_epoch=epoch)
    for place in range(count):
        builder.append(START_MS, None, b"record-%d" % (builder._base_offset + place))
    log.append(builder.build())


def offsets(log: RaftLog) -> list[tuple[int, int]]:
    found = log.batches(log.start, log.end)
    return [(header.base_offset, header.last_offset) for header, _ in found]


def take_snapshot(log: RaftLog, offset: int, epoch: int, records: Iterable[bytes]) -> SnapshotId:
    snapshot = SnapshotId(Offset(offset), LeaderEpoch(epoch))
    file = log.new_snapshot(snapshot)
    assert file is not None
    for batch in snapshot_batches(
        records,
        epoch=snapshot.epoch,
        now=Millis(START_MS),
        last_contained_log_timestamp=Millis(START_MS - 1),
    ):
        file.append(batch)
    log.keep_snapshot(snapshot, file.freeze())
    return snapshot


def test_a_log_comes_back_as_it_was_written() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    add(log, 3)
    add(log, 1, epoch=2)
    log.close()
    again = open_log(disk)
    assert offsets(again) == [(0, 2), (3, 3)]
    assert again.epochs == [(1, 0), (2, 3)]
    assert str(METADATA_TOPIC_ID).encode() in disk.files()[f"{DIRECTORY}/partition.metadata"]


def test_a_torn_tail_is_cut_off() -> None:
    disk = MemoryDisk()
    log = open_log(disk, segment_bytes=1 << 20)
    add(log, 3)
    add(log, 2)
    path = f"{DIRECTORY}/{0:020d}.log"
    disk.put(path, disk.files()[path][:-5])
    again = open_log(disk, segment_bytes=1 << 20)
    assert offsets(again) == [(0, 2)]
    add(again, 1)
    assert offsets(again) == [(0, 2), (3, 3)]


def test_what_a_killed_process_left_is_on_disk_once_the_log_is_open_again() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    add(log, 3)
    killed = len(disk.journal)
    disk._locked.clear()
    open_log(disk)
    assert len(disk.journal) > killed
    for seed in range(20):
        lost = disk.power_lost_at(len(disk.journal), SeededDice(seed))
        assert open_log(lost).end == 3


def test_the_recovery_point_is_what_is_both_on_disk_and_committed() -> None:
    log = open_log(MemoryDisk())
    add(log, 3)
    log.set_high_watermark(Offset(3))
    assert log.recovery_point == 0
    log.flush(Offset(3))
    assert log.recovery_point == 3
    add(log, 2)
    log.flush(Offset(5))
    assert log.recovery_point == 3


@pytest.mark.parametrize("damage", ["a flipped byte", "a missing tail", "a missing segment"])
def test_damage_below_the_recovery_point_is_refused_and_left_as_it_is(damage: str) -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    for _ in range(12):
        add(log, 1)
    segments = sorted(path for path in disk.files() if path.endswith(".log"))
    assert len(segments) > 2
    log.close()
    broken = disk.files()[segments[1]]
    if damage == "a flipped byte":
        disk.put(segments[1], broken[:-1] + bytes([broken[-1] ^ 1]))
    elif damage == "a missing tail":
        disk.put(segments[-1], b"")
    else:
        disk.unlink(segments[1])
    before = disk.files()
    with pytest.raises(StorageFault, match=r"load __cluster_metadata-0 in /data: .*recovery.point"):
        open_log(disk, recovery_point=12)
    after = disk.files()
    assert {path: after[path] for path in after if path.endswith(".log")} == {
        path: before[path] for path in before if path.endswith(".log")
    }


def test_damage_above_the_recovery_point_ends_the_log_there() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    for _ in range(12):
        add(log, 1)
    log.close()
    last = max(path for path in disk.files() if path.endswith(".log"))
    base = int(last[-24:-4])
    disk.put(last, disk.files()[last][:-1])
    assert base <= open_log(disk, recovery_point=base).end < 12


def test_a_crash_while_a_fetched_snapshot_takes_the_logs_place_loses_nothing() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    add(log, 3)
    log.flush(Offset(3))
    disk = disk.copy()
    disk._locked.clear()
    log = open_log(disk)
    begun = len(disk.journal)
    snapshot = take_snapshot(log, 5, 1, [b"state"])
    log.install_snapshot(snapshot, 10)
    for count in range(begun, len(disk.journal) + 1):
        crashed = [disk.power_lost_at(count, SeededDice(seed)) for seed in range(5)]
        for left in (disk.killed_at(count), *crashed):
            clock, dice = FixedClock(), SeededDice(1)
            again = RaftLog.open(left, LOG_DIR, clock=clock, entropy=dice, recovery_point=3)
            assert again.end == (3 if again.latest_snapshot is None else 5)


def test_a_gap_is_refused() -> None:
    log = open_log(MemoryDisk())
    add(log, 2)
    with pytest.raises(Exception, match="gap"):
        add(log, 1, at=5)
    assert log.end == 2


def test_a_snapshot_ahead_of_the_log_empties_it() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    add(log, 3)
    take_snapshot(log, 10, 2, [b"a", b"b"])
    again = open_log(disk)
    assert (again.start, again.end) == (10, 10)
    assert again.latest_snapshot == (10, 2)
    add(again, 1, epoch=2)
    assert offsets(again) == [(10, 10)]


def test_half_written_snapshots_are_removed_at_start() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    add(log, 3)
    name = f"{DIRECTORY}/{2:020d}-{1:010d}.checkpoint"
    disk.put(name + ".part", b"half")
    disk.put(name + ".deleted", b"old")
    open_log(disk)
    assert [path for path in disk.files() if "checkpoint.part" in path or "deleted" in path] == []


def test_cleaning_keeps_the_newest_snapshot_and_what_is_above_it() -> None:
    disk = MemoryDisk()
    log = open_log(disk, retention_bytes=1)
    for _ in range(12):
        add(log, 3)
    log.set_high_watermark(Offset(36))
    take_snapshot(log, 12, 1, [b"a"])
    assert not log.clean(Millis(START_MS)), "one snapshot alone is never removed"
    newest = take_snapshot(log, 30, 1, [b"a"])
    assert log.clean(Millis(START_MS))
    assert list(log.snapshots) == [newest]
    assert log.start == 30
    assert [at for at, _ in offsets(log)] == [30, 33]
    again = open_log(disk, retention_bytes=1)
    assert again.start == 30, "though its first segment begins below"
    assert again.end == 36


def test_nothing_above_the_high_watermark_is_cleaned() -> None:
    log = open_log(MemoryDisk(), retention_bytes=1)
    for _ in range(12):
        add(log, 3)
    log.set_high_watermark(Offset(20))
    take_snapshot(log, 12, 1, [b"a"])
    take_snapshot(log, 30, 1, [b"a"])
    assert not log.clean(Millis(START_MS))
    assert log.start == 0


def test_old_snapshots_go_by_time() -> None:
    log = open_log(MemoryDisk(), retention_ms=1000)
    for _ in range(12):
        add(log, 3)
    log.set_high_watermark(Offset(36))
    take_snapshot(log, 12, 1, [b"a"])
    take_snapshot(log, 30, 1, [b"a"])
    assert not log.clean(Millis(START_MS + 900))
    assert log.clean(Millis(START_MS + 1100))
    assert log.start == 30


def test_a_log_that_starts_where_no_snapshot_stands_is_refused() -> None:
    disk = MemoryDisk()
    log = open_log(disk, retention_bytes=1)
    for _ in range(12):
        add(log, 3)
    log.set_high_watermark(Offset(36))
    take_snapshot(log, 12, 1, [b"a"])
    newest = take_snapshot(log, 30, 1, [b"a"])
    log.clean(Millis(START_MS))
    disk.unlink(f"{DIRECTORY}/{newest.file_name}")
    with pytest.raises(StorageFault, match="no snapshot covers"):
        open_log(disk)


def test_every_crash_keeps_what_was_flushed_and_leaves_a_log_that_opens() -> None:
    disk = MemoryDisk()
    log = open_log(disk, retention_bytes=1)
    flushed: list[tuple[int, int]] = []  # journal length, offset that is safe from then on

    def flush() -> None:
        log.flush(log.end)
        flushed.append((len(disk.journal), log.end))

    for turn in range(8):
        add(log, 3, epoch=1 + turn // 4)
        flush()
        if turn == 5:
            log.truncate_to(Offset(15))
            flushed = [(at, min(offset, 15)) for at, offset in flushed]
            add(log, 2, epoch=3)
            flush()
        log.set_high_watermark(log.end)
        if turn in (2, 4, 7):
            take_snapshot(log, log.end, log.epochs[-1][0], [b"a"])
            log.clean(Millis(START_MS))
    for count, part in disk.crash_points():
        safe = max([offset for at, offset in flushed if at <= count], default=0)
        for image in (disk.killed_at(count, part), disk.power_lost_at(count, SeededDice(count))):
            again = open_log(image, retention_bytes=1)
            assert again.end >= safe
            expected = again.start
            for header, view in again.batches(again.start, again.end):
                assert header.base_offset <= expected
                expected = header.last_offset + 1
                assert len(list(iter_batches(view))) == 1
            starts = {0, *(snapshot.offset for snapshot in again.snapshots)}
            assert again.start in starts
