"""Where a batch lies: the index alone tells the same as a walk through the log."""

import os
import random

import pytest

from sparkraft.records.record import BatchBuilder
from sparkraft.storage.disk import OsDisk
from sparkraft.storage.segment import Segment

SIZES = (10, 600, 3_000, 9_000)


class CountingDisk(OsDisk):
    """Counts the reads of log files."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def pread(self, path: str, count: int, at: int) -> bytes:
        self.reads += 1
        return super().pread(path, count, at)


def written(disk, folder, dice, *, sizes=SIZES, gaps=False):
    """A segment of 60 batches, and (first offset, last offset, position, size) of each."""
    segment = Segment(disk, str(folder), 100, size=0, created_ms=0)
    segment.index_interval_bytes = 4096
    offset, batches = 100, []
    for _ in range(60):
        if gaps and dice.random() < 0.3:
            offset += dice.randrange(1, 5)
        count = dice.randrange(1, 4)
        builder = BatchBuilder(base_offset=offset, leader_epoch=0)
        for _ in range(count):
            builder.append(offset, None, os.urandom(dice.choice(sizes)), [])
        batch = builder.build()
        position = segment.append([batch], len(batch))
        segment.note_batch(offset + count - 1, offset, len(batch), position)
        batches.append((offset, offset + count - 1, position, len(batch)))
        offset += count
    return segment, batches


def expected(batches, offset):
    return next(((at, size) for _, last, at, size in batches if last >= offset), None)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("reopened", [False, True])
def test_every_offset_has_its_place_before_and_after_it_is_learned(tmp_path, seed, reopened):
    dice = random.Random(seed)
    disk = CountingDisk()
    segment, batches = written(disk, tmp_path, dice, gaps=True)
    if reopened:
        segment.write_indexes()
        segment.drop_indexes()
    offsets = list(range(100, batches[-1][1] + 3))
    for _ in range(3):
        dice.shuffle(offsets)
        for offset in offsets:
            assert segment.place_of(offset) == expected(batches, offset)
    keep = batches[30]
    segment.truncate_to(keep[0])
    for offset in range(100, keep[0] + 2):
        assert segment.place_of(offset) == expected(batches[:30], offset)
    disk.close()


@pytest.mark.parametrize("reopened", [False, True])
def test_large_batches_are_found_without_a_look_at_the_log(tmp_path, reopened):
    disk = CountingDisk()
    segment, batches = written(disk, tmp_path, random.Random(1), sizes=(9_000,))
    if reopened:
        segment.write_indexes()
        segment.drop_indexes()
        for offset, *_ in batches:
            segment.place_of(offset)
    disk.reads = 0
    for first, last, at, size in batches[2:]:
        assert segment.place_of(first) == segment.place_of(last) == (at, size)
    assert disk.reads == 0
    disk.close()
