"""What is wrong with a partition's files is seen in their bytes, and nothing where all is well."""

import pytest

from sparkraft.records.record import BatchBuilder
from sparkraft.simulation.checks.stored_log import (
    LastBatch,
    StoredLog,
    StoredSegment,
    checkpoint_rows,
    gap_in,
    offset_index_flaw,
    parsed,
    producers_flaw,
    replayed,
    stray_files,
    time_index_flaw,
)
from sparkraft.simulation.world.memory_disk import MemoryDisk
from sparkraft.storage.index import OffsetIndex, TimeIndex
from tests.support.batches import patch_in_place

FOLDER = "/data/t-0"
FIRST = f"{FOLDER}/00000000000000000000.log"
SECOND = f"{FOLDER}/00000000000000000004.log"


def batch(base: int, records: int = 2, *, at: int = 1_000, sequence: int = 0) -> bytes:
    builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=sequence)
    for _ in range(records):
        builder.append(at, None, b"value")
    made = bytearray(builder.build())
    patch_in_place(made, base_offset=base, leader_epoch=3)
    return bytes(made)


SIZE = len(batch(0))


def disk_of(files: dict[str, bytes]) -> MemoryDisk:
    disk = MemoryDisk()
    disk.mkdir(FOLDER)
    for path, data in files.items():
        disk.append(path, [data])
    return disk


def test_whole_batches_end_at_the_first_that_is_cut_off_or_of_a_wrong_crc():
    data = batch(0) + batch(2)
    assert [len(found) for found, flaw in [parsed(data)] if not flaw] == [2]
    cut, flaw = parsed(data[:-1])
    assert (len(cut), flaw) == (1, f"the batch at byte {SIZE} is truncated")
    wrong, flaw = parsed(data[:-1] + b"\xff", position=100)
    assert (len(wrong), flaw) == (1, f"the batch at byte {100 + SIZE} has an invalid CRC")
    zeros, flaw = parsed(batch(0) + bytes(100))
    assert len(zeros) == 1
    assert flaw.startswith(f"at byte {SIZE}: magic 0")


def test_a_segment_that_is_cut_within_a_batch_loses_the_batch():
    segment = StoredSegment(FIRST, 0, batch(0) + batch(2))
    segment.cut(SIZE)
    assert (len(segment.batches), segment.flaw) == (1, "")
    segment.extend(batch(2))
    segment.cut(SIZE + 10)
    assert (len(segment.batches), segment.flaw) == (1, f"the batch at byte {SIZE} is truncated")


def test_what_a_power_loss_spares_ends_at_the_first_batch_that_was_not_synced():
    disk = disk_of({FIRST: batch(0)})
    disk.fsync(FIRST)
    disk.append(FIRST, [batch(2)])
    disk.append(SECOND, [batch(4)])
    disk.fsync(SECOND)
    log = StoredLog(disk, FOLDER)
    assert [found.header.base_offset for found in log.durable(disk)] == [0]
    assert [found.header.base_offset for found in log.batches] == [0, 2, 4]
    assert (log.unsynced_below(disk, 2), log.unsynced_below(disk, 4)) == ("", FIRST)


@pytest.mark.parametrize(("holes", "gap"), [(True, ""), (False, "offset 4 follows, expected 2")])
def test_offsets_that_are_left_out_are_a_gap_unless_compaction_was_there(holes, gap):
    assert gap_in(parsed(batch(0) + batch(4))[0], holes=holes) == gap
    assert gap_in(parsed(batch(4) + batch(0))[0], holes=True) == "offset 0 follows, expected 6"


def test_an_offset_index_names_the_last_offset_of_the_batch_that_begins_there():
    segment = StoredSegment(FIRST, 0, batch(0) + batch(2) + batch(4))

    def flaw(*entries: tuple[int, int]) -> str:
        index = OffsetIndex()
        for relative, position in entries:
            index.append(relative, position)
        return offset_index_flaw(segment, index.to_bytes())

    assert flaw((3, SIZE), (5, 2 * SIZE)) == ""
    assert "no batch at byte" in flaw((3, SIZE + 1))
    assert "no batch at byte" in flaw((2, SIZE))
    assert "don't rise" in flaw((5, 2 * SIZE), (3, SIZE))
    assert "not a multiple" in offset_index_flaw(segment, b"\0" * 7)


def test_a_time_index_names_the_first_batch_of_each_largest_timestamp():
    batches = batch(0, at=5) + batch(2, at=9) + batch(4, at=7)
    segment = StoredSegment(FIRST, 0, batches)

    def flaw(*entries: tuple[int, int]) -> str:
        index = TimeIndex()
        for timestamp, relative in entries:
            index.maybe_append(timestamp, relative)
        return time_index_flaw(segment, index.to_bytes())

    assert flaw((5, 1), (9, 3)) == flaw((9, 3)) == ""
    assert "is not the largest" in flaw((9, 5))
    assert "the largest timestamp 9" in flaw((5, 1))
    assert "not a multiple" in time_index_flaw(segment, b"\0" * 11)


def test_a_producer_is_known_by_its_last_batch_below_an_offset():
    true = replayed(parsed(batch(0) + batch(2, sequence=2))[0], below=4)
    assert true == {7: LastBatch(0, 3, 3)}
    assert replayed(parsed(batch(0) + batch(2, sequence=2))[0], below=2) == {7: LastBatch(0, 1, 1)}
    assert producers_flaw(true, true, start=0) == ""
    assert "its last batch is" in producers_flaw({}, true, start=0)
    assert producers_flaw({}, true, start=4) == ""
    assert "its last batch is" in producers_flaw({7: LastBatch(0, 1, 1)}, true, start=0)
    assert "not in the log" in producers_flaw({8: LastBatch(0, 1, 5)}, {}, start=5)
    assert producers_flaw({8: LastBatch(0, 1, 4)}, {}, start=5) == ""


def test_files_of_no_segment_are_strays():
    names = ["00000000000000000000.log", "00000000000000000000.index", "partition.metadata"]
    assert stray_files(names, [0], passing=False) == []
    assert stray_files(names, [4], passing=False) == names[:2]
    gone = ["00000000000000000000.log.deleted"]
    assert (stray_files(gone, [4], passing=True), stray_files(gone, [4], passing=False)) == (
        [],
        gone,
    )
    snapshot = ["00000000000000000004.snapshot"]
    assert stray_files(snapshot, [0], passing=False, snapshots=[4]) == []
    assert stray_files(snapshot, [0, 4], passing=False) == snapshot


@pytest.mark.parametrize(
    "torn", [b"", b"0\n", b"0\n2\nt 0 5\n", b"0\n1\nt 0 5", b"0\n1\nt 0\n", b"1\n1\nt 0 5\n"]
)
def test_a_checkpoint_is_whole_or_it_is_none(torn):
    assert list(checkpoint_rows(b"0\n1\nt 0 5\n", 3) or ()) == [["t", "0", "5"]]
    assert checkpoint_rows(torn, 3) is None
