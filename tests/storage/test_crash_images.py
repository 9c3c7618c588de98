"""Crash images of random histories: each must come back as a valid log (S1 to S5, S7 to S9).

A history appends, commits and aborts, rolls, syncs, checkpoints, cleans or retains, truncates and
restarts, on a disk that journals. An image is what a kill or a power loss leaves at some point of
it. What must hold of each is in `Image.check`.
"""

from dataclasses import dataclass, replace

import pytest

from sparkraft.records.batch import crc_ok
from sparkraft.records.compression import Codec
from sparkraft.records.control import ControlType, EndTransaction, end_transaction_batch
from sparkraft.records.record import decode_records
from sparkraft.simulation.world.memory_disk import MemoryDisk
from sparkraft.storage.log import Origin
from tests.storage.worlds import SMALL, START_MS, SeededDice, World, append, clean, keyed

IMAGES, IMAGES_LONG = 2_000, 100_000
IMAGES_PER_HISTORY = 50
STEPS = 45
IN_TRANSACTION = b"in a transaction"
BASE = replace(SMALL, segment_bytes=700, index_interval_bytes=120)
DELETE = replace(BASE, retention_bytes=2500)
COMPACT = replace(
    BASE, compact=True, delete=False, min_cleanable_dirty_ratio=0.01, delete_retention_ms=1 << 50
)


@dataclass(frozen=True)
class Promise:
    """What held after a step: what was written, what is synced, and which records there are."""

    journal: int
    end: int
    synced: int
    start: int
    kept_start: int
    values: dict


class History:
    """A log's life by seed."""

    def __init__(self, seed):
        self.dice = SeededDice(seed)
        self.compact = self.dice.below(2) == 0
        self.config = COMPACT if self.compact else DELETE
        self.world = World(MemoryDisk(), config=self.config)
        self.log = self.world.log()
        self.values = {}
        self.sequences = {}
        self.epoch = 0
        self.synced = self.kept_start = 0
        self.promises = []
        self.note()
        actions = [self.write, self.write, self.write, self.transact, self.roll, self.sync]
        actions += [self.checkpoint, self.retain, self.truncate, self.restart, self.keep_start]
        for _ in range(STEPS):
            actions[self.dice.below(len(actions))]()
            self.note()

    def note(self):
        self.promises.append(
            Promise(
                len(self.world.disk.journal),
                int(self.log.log_end_offset),
                self.synced,
                int(self.log.log_start_offset),
                self.kept_start,
                self.values,
            )
        )

    def write(self):
        for _ in range(1 + self.dice.below(4)):
            producer = self.dice.below(3)
            records = [
                (b"k%d" % self.dice.below(6), b"%d" % self.dice.below(1 << 20) * 4)
                for _ in range(1 + self.dice.below(4))
            ]
            given = self.next_batch(producer, len(records)) if producer else {}
            info = keyed(self.log, *records, epoch=self.epoch, timestamp=self.now(),
                         codec=list(Codec)[self.dice.below(5)], **given)  # fmt: skip
            for index, record in enumerate(records):
                self.values[info.base_offset + index] = record
            self.note()

    def now(self):
        return START_MS + self.dice.below(1000)

    def next_batch(self, producer, count):
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + count
        return {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}

    def transact(self):
        producer = 10 + self.dice.below(2)
        given = self.next_batch(producer, 1)
        record = (b"k%d" % self.dice.below(6), IN_TRANSACTION)
        info = keyed(self.log, record, epoch=self.epoch, transactional=True, **given)
        self.values[info.base_offset] = record
        self.note()
        kind = ControlType.ABORT if self.dice.below(2) else ControlType.COMMIT
        marker = end_transaction_batch(
            EndTransaction(kind, 1), timestamp=START_MS, producer_id=producer, producer_epoch=0
        )
        info = self.log.append_as_leader(
            marker, leader_epoch=self.epoch, now_ms=START_MS, origin=Origin.COORDINATOR
        )
        self.values[info.base_offset] = kind

    def commit(self):
        self.log.set_high_watermark(self.log.log_end_offset)

    def roll(self):
        self.log.roll()

    def sync(self):
        up_to = self.log.log_end_offset - self.dice.below(4)
        self.log.flush(up_to)
        self.synced = max(self.synced, min(up_to, self.log.log_end_offset))

    def checkpoint(self):
        self.world.manager.checkpoint()
        self.kept_start = int(self.log.log_start_offset)

    def keep_start(self):
        self.commit()
        if not self.compact:
            reach = self.log.high_watermark - self.log.log_start_offset
            self.log.delete_records_before(self.log.log_start_offset + reach // 5)
        self.note()
        self.world.keep_log_starts()
        self.kept_start = int(self.log.log_start_offset)

    def retain(self):
        self.commit()
        if self.compact:
            self.log.roll()
            end = clean(self.world, io_bytes=1 << self.dice.below(14))
            self.synced = max(self.synced, end or 0)
            return
        if self.world.manager.removal.retention(START_MS):
            self.kept_start = int(self.log.log_start_offset)
        self.world.manager.removal.empty_trash(START_MS)

    def truncate(self):
        """As a follower whose leader never had the tail."""
        unstable = min(self.log.log_end_offset, self.log.last_stable_offset)
        room = self.log.log_end_offset - max(unstable, self.log.log_start_offset, 1)
        lost = min(self.dice.below(6), room)
        if self.log.truncate_to(self.log.log_end_offset - lost):
            end = int(self.log.log_end_offset)
            self.values = {o: value for o, value in self.values.items() if o < end}
            self.synced = min(self.synced, end)
            self.sequences = {
                state.producer_id: state.last_sequence + 1 for state in self.log.active_producers()
            }
        self.epoch += 1

    def restart(self):
        self.log = self.world.reopen(clean=True).log()
        self.synced = int(self.log.log_end_offset)
        self.kept_start = int(self.log.log_start_offset)

    def image(self):
        """A kill or a power loss at some point, and what held before and after it."""
        disk = self.world.disk
        count = self.dice.below(len(disk.journal) + 1)
        power = self.dice.below(2) == 0
        if power:
            left = disk.power_lost_at(count, self.dice)
        else:
            torn = disk.journal[count] if count < len(disk.journal) else None
            is_write = torn is not None and torn.kind in {"append", "write"} and torn.data
            left = disk.killed_at(count, self.dice.below(len(torn.data)) if is_write else None)
        before = [promise for promise in self.promises if promise.journal <= count][-1:]
        after = [promise for promise in self.promises if promise.journal > count][:1]
        return Image(self, left, power, (before or after)[0], (after or before)[0])


class Image:
    """One thing that a crash left."""

    def __init__(self, history, disk, power, before, after):
        self.history = history
        self.disk = disk
        self.power = power
        self.before = before
        self.after = after
        self.least_synced = min(before.synced, after.synced)
        # A power loss may take a truncation back that wasn't synced: its leader's epochs show it.
        past = [each for each in history.promises if power and each.journal <= before.journal]
        self.earlier = [each.values for each in past]
        self.most_end = max(each.end for each in [*past, before, after])

    def check(self):
        world = World(self.disk, config=self.history.config)
        assert not world.manager.damaged
        log = world.log()
        self.check_bounds(log)
        found = self.check_records(log)
        self.check_lookups(log, found)
        self.check_derived(log)
        self.check_files()
        again = World(self.disk.copy(), config=self.history.config).log()
        assert batches_of(again) == batches_of(log), "recovering twice changes nothing"
        end = log.log_end_offset
        assert append(log, b"later", key=b"k0", epoch=99).base_offset == end
        assert [r.value for r in records_of(log)][-1] == b"later"

    def check_bounds(self, log):
        both = (self.before, self.after)
        least = min(p.synced if self.power else p.end for p in both)
        assert least <= log.log_end_offset <= self.most_end
        first = min(p.kept_start for p in both)
        assert first <= log.log_start_offset <= max(p.start for p in both)
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset

    def check_records(self, log):
        """Nothing but what was written is there, and all of it up to the end (S1, S9)."""
        start, end = log.log_start_offset, log.log_end_offset
        known = [p.values for p in (self.before, self.after)]
        found = {}
        for record in records_of(log):
            assert record.offset not in found
            found[record.offset] = record
            versions = known if record.offset < self.least_synced else [*known, *self.earlier]
            written = [v.get(record.offset, ()) for v in versions]
            assert any(is_written(value, record) for value in written)
        offsets = [offset for offset in found if offset >= start]
        assert offsets == sorted(offsets)
        if not self.history.compact:
            assert offsets == list(range(start, end))
            return found
        for values in known:
            latest = {}
            for offset, value in values.items():
                if offset >= end or not isinstance(value, tuple):
                    continue
                if value[1] == IN_TRANSACTION:  # whether it counts, its marker says
                    latest.pop(value[0], None)
                else:
                    latest[value[0]] = offset
            if all(is_written(values.get(offset, ()), found[offset]) for offset in found):
                assert set(latest.values()) <= set(found)
        return found

    def check_lookups(self, log, found):
        """S3: by offset and by time, as a scan would say."""
        offsets = sorted(offset for offset in found if offset >= log.log_start_offset)
        for offset in range(log.log_start_offset, log.log_end_offset, 3):
            following = [each for each in offsets if each >= offset]
            read = log.read(offset, max_bytes=1 << 20, up_to=log.log_end_offset)
            if following:
                first = [r.offset for r in pieces_records(read) if r.offset >= offset][:1]
                assert first in ([], following[:1])
        times = [(r.timestamp, o) for o, r in found.items() if o >= log.log_start_offset]
        for timestamp in (START_MS, START_MS + 500, START_MS + 2000):
            late = [offset for time, offset in times if time >= timestamp]
            answer = log.offset_for_timestamp(timestamp)
            assert (answer.offset if answer else None) == min(late, default=None)

    def check_derived(self, log):
        """S5 and the transaction index: what the batches themselves say."""
        opened, aborted, sequences = {}, set(), {}
        for header, view in log.read_batches(log.log_start_offset, log.log_end_offset):
            assert crc_ok(view)
            if header.is_control:
                first = opened.pop(header.producer_id, None)
                kinds = [r.key[3] for r in decode_records(view)]
                if kinds == [ControlType.ABORT] and first is not None:
                    aborted.add((header.producer_id, first, int(header.base_offset)))
            elif header.has_producer_id:
                sequences[header.producer_id] = header.last_sequence
                if header.is_transactional:
                    opened.setdefault(header.producer_id, int(header.base_offset))
        stored = {e[:3] for e in log.aborted_transactions(0, 1 << 40)}
        if not self.history.compact:
            whole = {entry for entry in stored if entry[1] >= log.log_start_offset}
            markers = {(producer, end) for producer, _, end in stored}
            assert whole <= aborted
            # One that began below the log's start is stored with its true beginning.
            assert {(producer, end) for producer, _, end in aborted} <= markers
        for state in log.active_producers():
            if state.producer_id in sequences:
                assert state.last_sequence == sequences[state.producer_id]
        known = {state.producer_id for state in log.active_producers()}
        assert set(sequences) <= known

    def check_files(self):
        """S8: nothing half done stays behind."""
        names = [path.rpartition("/")[2] for path in self.disk.files() if "/t-0/" in path]
        bases = {name[:20] for name in names if name.endswith(".log")}
        for name in names:
            assert not name.endswith((".tmp", ".deleted", ".cleaned", ".swap")), name
            assert name[:20] in bases or not name.endswith(("index",)), name


def is_written(value, record):
    """Whether a record is what was written at its offset; a marker's value is its type."""
    if isinstance(value, ControlType):
        return record.key == bytes((0, 0, 0, value))
    return value[:2] == (record.key, record.value)


def batches_of(log):
    return [bytes(view) for _, view in log.read_batches(log.log_start_offset, log.log_end_offset)]


def records_of(log):
    for _, view in log.read_batches(log.log_start_offset, log.log_end_offset):
        yield from decode_records(view)


def pieces_records(read):
    from sparkraft.records.batch import iter_batches

    for piece in read.pieces:
        for _, view in iter_batches(piece):
            yield from decode_records(view)


def check_images(first_seed, images):
    for seed in range(first_seed, first_seed + images // IMAGES_PER_HISTORY):
        history = History(seed)
        for number in range(IMAGES_PER_HISTORY):
            try:
                history.image().check()
            except BaseException as error:
                error.add_note(f"image {number} of history {seed}")
                raise


PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_crash_images_come_back_as_valid_logs(part):
    check_images(part * 1000, IMAGES // PARTS)


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_many_crash_images_come_back_as_valid_logs(part):
    check_images(100_000 + part * 1000, IMAGES_LONG // 20)
