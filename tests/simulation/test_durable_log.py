"""How far a metadata log is on its disk: each synced batch once, behind the one before it."""

from typing import Any

from sparkraft.records.record import BatchBuilder
from sparkraft.simulation.checks.node_events import LOG, DurableLog
from sparkraft.simulation.world.memory_disk import MemoryDisk
from tests.support.batches import patch_in_place

FIRST, SECOND = (f"{LOG}/{base:020}.log" for base in (0, 2))


class Reader:
    """A log on a disk of its own; `seen` tells what was read since the last look."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.disk.mkdir(LOG)
        self.durable = DurableLog(lambda header, link: self.seen.append((place(header), link)))
        self.seen: list[tuple[tuple[int, int], tuple[int, int] | None]] = []

    def put(self, path: str, *batches: bytes) -> None:
        self.disk.append(path, list(batches))
        self.disk.fsync(path)
        self.disk.fsync_dir(LOG)

    def look(self) -> tuple[int, list[Any]]:
        self.seen = []
        return self.durable.end(self.disk), self.seen


def place(header: Any) -> tuple[int, int]:
    return header.base_offset, header.partition_leader_epoch


def batch(base: int, epoch: int) -> bytes:
    builder = BatchBuilder()
    builder.append(1_000, None, b"value")
    made = bytearray(builder.build())
    patch_in_place(made, base_offset=base, leader_epoch=epoch)
    return bytes(made)


def test_each_batch_is_read_once_and_linked_to_the_one_before_it():
    log = Reader()
    log.put(FIRST, batch(0, 1))
    assert log.look() == (1, [((0, 1), None)])
    assert log.look() == (1, [])
    log.put(FIRST, batch(1, 1))
    log.put(SECOND, batch(2, 2))
    assert log.look() == (3, [((1, 1), (0, 1)), ((2, 2), (1, 1))])


def cut_and_filled() -> Reader:
    """Its second batch was read, and another stands in its place now."""
    log = Reader()
    log.put(FIRST, batch(0, 1), batch(1, 1))
    log.look()
    log.disk.truncate(FIRST, len(batch(0, 1)))
    log.put(FIRST, batch(1, 2))
    return log


def test_a_log_that_was_cut_is_read_anew():
    assert cut_and_filled().look() == (2, [((0, 1), None), ((1, 2), (0, 1))])


def test_a_segment_that_was_cut_and_filled_before_the_next_one_began_is_read_anew():
    log = cut_and_filled()
    log.put(SECOND, batch(2, 3))
    assert log.look() == (3, [((0, 1), None), ((1, 2), (0, 1)), ((2, 3), (1, 2))])
