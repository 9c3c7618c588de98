"""What the storage tests share: a clock that stands still, dice, batches, and logs for them."""

import random
from dataclasses import dataclass, field, replace

from sparkraft.base.ids import Uuid
from sparkraft.records.compression import Codec
from sparkraft.records.record import BatchBuilder, decode_records
from sparkraft.simulation.world.memory_disk import MemoryDisk
from sparkraft.storage.cleaner import LogCleaner, Replacement
from sparkraft.storage.cleaner_manager import CleanerManager
from sparkraft.storage.config import LogConfig
from sparkraft.storage.disk import Disk
from sparkraft.storage.log import Origin, PartitionLog
from sparkraft.storage.log_manager import LogManager

START_MS = 1_700_000_000_000
LOG_DIR = "/logs"
TOPIC_ID = Uuid(b"topic-id-16bytes")


@dataclass
class HandClock:
    now_ms: int = START_MS

    def wall_ms(self):
        return self.now_ms

    def mono_ms(self):
        return self.now_ms - START_MS


class SeededDice:
    def __init__(self, seed=0):
        self._random = random.Random(seed)

    def random_bytes(self, count):
        return self._random.randbytes(count)

    def below(self, bound):
        return self._random.randrange(bound)


SMALL = LogConfig(
    segment_bytes=1200,
    index_interval_bytes=150,
    retention_ms=-1,
    file_delete_delay_ms=0,
    timestamp_after_max_ms=1 << 60,
)
"""Segments of a few batches, so that little data rolls often."""


def batch(
    values=(b"v",), *, timestamp=START_MS, key=b"k", codec=Codec.NONE, producer=None, step=1, **more
):
    """One batch; `producer` is (id, epoch, base sequence)."""
    if producer:
        more |= {
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "base_sequence": producer[2],
        }
    builder = BatchBuilder(codec=codec, **more)
    for index, value in enumerate(values):
        builder.append(timestamp + index * step, key, value)
    return builder.build()


def with_offsets(data, base_offset, leader_epoch=0):
    """The batch as a leader would hand it out."""
    from tests.support.batches import patch_in_place

    changed = bytearray(data)
    patch_in_place(changed, base_offset=base_offset, leader_epoch=leader_epoch)
    return bytes(changed)


@dataclass
class World:
    """A node's logs on one disk."""

    disk: Disk = field(default_factory=MemoryDisk)
    config: LogConfig = SMALL
    clock: HandClock = field(default_factory=HandClock)
    manager: LogManager = None

    def __post_init__(self):
        self.open()

    def open(self):
        self.manager = LogManager(
            self.disk, [LOG_DIR], self.config, clock=self.clock, entropy=SeededDice()
        )
        self.manager.lock()
        self.manager.load()
        return self

    def reopen(self, *, clean=True):
        self.manager.close(clean=clean)
        return self.open()

    def keep_log_starts(self):
        self.manager.dirs.carry_out(self.manager.moved_starts_steps())

    def log(self, topic="t", partition=0, **changes) -> PartitionLog:
        config = replace(self.config, **changes) if changes else None
        return self.manager.get_or_create(topic, partition, TOPIC_ID, config)


def append(log, *values, epoch=0, now_ms=START_MS, **more):
    return log.append_as_leader(batch(values, **more), leader_epoch=epoch, now_ms=now_ms)


def contents(log):
    """[(offset, value)] of every record a consumer from the log start could read."""
    found = []
    offset = log.log_start_offset
    for header, view in log.read_batches(offset, log.log_end_offset):
        assert header.next_offset > offset
        found += [
            (record.offset, record.value)
            for record in decode_records(view)
            if record.offset >= log.log_start_offset
        ]
        offset = header.next_offset
    return found


def keyed(log, *records, epoch=0, timestamp=START_MS, **more):
    """Append one batch of (key, value) records."""
    builder = BatchBuilder(**more)
    for index, (key, value) in enumerate(records):
        builder.append(timestamp + index, key, value)
    return log.append_as_leader(
        builder.build(), leader_epoch=epoch, now_ms=START_MS, origin=Origin.COORDINATOR
    )


def clean(world, *, io_bytes=1, keys_max=1 << 20, cleaners=None, stop_after=None):
    """Clean the dirtiest log as the node does; how far it is clean now, None if none was due.

    Args:
        world: whose logs.
        io_bytes: buffers.
        keys_max: keys held at a time.
        cleaners: a manager that lives longer than this.
        stop_after: segments replaced before the cleaning is left as a kill would leave it.
    """
    manager = cleaners or CleanerManager(world.manager)
    due = manager.take_dirtiest(world.clock.wall_ms())
    if due is None:
        return None
    due.log.flush(due.extent.end)
    world.manager.checkpoint_recovery_points(due.log.log_dir)
    cleaning = manager.plan(due, world.clock.wall_ms())
    cleaner = LogCleaner(world.disk, cleaning, io_bytes=io_bytes, keys_max=keys_max)
    for step in cleaner.run():
        if isinstance(step, Replacement):
            if stop_after == 0:
                return None
            stop_after = None if stop_after is None else stop_after - 1
            gone = due.log.replace_segments(step.old, step.new)
            assert gone is not None
            world.disk.fsync_dir(due.log.directory)
            due.log.remove_later(gone, world.clock.wall_ms())
    manager.finish(due, cleaner.end)
    manager.release(due)
    for _, path, data in manager.checkpoints():
        world.disk.replace(path, data)
    return cleaner.end
