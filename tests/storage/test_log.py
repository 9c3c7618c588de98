"""One log: appends, reads, bounds, searches, and a model that knows the answers."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.records.batch import iter_batches, parse_header
from sparkraft.records.compression import Codec
from sparkraft.records.control import ControlType, EndTransaction, end_transaction_batch
from sparkraft.records.errors import CorruptRecords
from sparkraft.storage.log import FoundOffset, Origin
from tests.storage.worlds import SMALL, START_MS, World, append, batch, contents, with_offsets


@pytest.fixture
def world():
    return World()


@pytest.fixture
def log(world):
    return world.log()


def offsets(log):
    return [offset for offset, _ in contents(log)]


def test_appends_get_the_next_offsets(log):
    assert append(log, b"a", b"b").base_offset == 0
    info = append(log, b"c")
    assert (info.base_offset, info.last_offset) == (2, 2)
    assert info.log_append_time == -1
    assert contents(log) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_the_bytes_on_disk_are_the_producers_but_for_the_leaders_patch(world, log):
    data = batch((b"a", b"b"), codec=Codec.LZ4)
    log.append_as_leader(data, leader_epoch=6, now_ms=START_MS)
    stored = world.disk.read(f"{log.directory}/00000000000000000000.log")
    assert stored[16:] == data[16:]
    header = parse_header(stored)
    assert (header.base_offset, header.partition_leader_epoch) == (0, 6)


def test_a_read_starts_with_the_batch_that_holds_the_offset(log):
    for _ in range(40):
        append(log, b"x" * 20, b"y" * 20, b"z" * 20)
    for offset in range(120):
        pieces, size = log.read(offset, max_bytes=1, up_to=120)
        header = parse_header(pieces[0])
        assert header.base_offset == offset // 3 * 3
        assert size == header.size_in_bytes


def test_a_read_stops_at_the_bound_and_at_max_bytes(log):
    for _ in range(6):
        append(log, b"x", b"y")
    size = len(batch((b"x", b"y")))
    assert log.read(0, max_bytes=1 << 20, up_to=4).size == 2 * size
    assert log.read(0, max_bytes=3 * size + 5, up_to=12).size == 3 * size + 5
    assert log.read(4, max_bytes=1 << 20, up_to=4).size == 0
    assert log.read(0, max_bytes=1, up_to=12, min_one_batch=False).size == 1
    assert log.read(12, max_bytes=1 << 20, up_to=12).pieces == []


def test_the_first_batch_never_reaches_over_the_bound(log):
    append(log, b"x", b"y", b"z")
    assert log.read(0, max_bytes=1, up_to=2).size == 0


def test_a_tail_reader_goes_on_where_it_stopped(log):
    for index in range(30):
        append(log, b"%d" % index)
        pieces, _ = log.read(index, max_bytes=1 << 20, up_to=index + 1)
        assert parse_header(pieces[0]).base_offset == index


@pytest.mark.parametrize("offset", [-1, 4, 100])
def test_reads_outside_the_log_are_out_of_range(log, offset):
    append(log, b"a", b"b", b"c")
    with pytest.raises(KafkaError) as caught:
        log.read(offset, max_bytes=100, up_to=3)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_batch_above_the_segment_size_is_refused(world):
    log = world.log(segment_bytes=300)
    with pytest.raises(KafkaError) as caught:
        append(log, bytes(400))
    assert caught.value.code == ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.log_end_offset == 0


def test_segments_roll_by_size(log):
    for _ in range(20):
        append(log, bytes(200))
    assert log.segment_count > 3
    assert offsets(log) == list(range(20))


def test_segments_roll_by_time_between_records(world):
    log = world.log(segment_ms=1000)
    append(log, b"a", timestamp=START_MS)
    append(log, b"b", timestamp=START_MS + 1000)
    assert log.segment_base_offsets == [0]
    append(log, b"c", timestamp=START_MS + 1001)
    assert log.segment_base_offsets == [0, 2]


def test_records_without_time_roll_by_the_clock(world):
    log = world.log(segment_ms=1000)
    append(log, b"a", timestamp=-1, step=0)
    world.clock.now_ms += 1001
    append(log, b"b", timestamp=-1, step=0, now_ms=world.clock.now_ms)
    assert log.segment_base_offsets == [0, 1]


def test_jitter_lets_segments_roll_earlier(world):
    log = world.log(segment_ms=1000, segment_jitter_ms=1000)
    append(log, b"a", timestamp=START_MS)
    append(log, b"b", timestamp=START_MS + 999)
    assert log.segment_count == 2, "the dice of this world gave a jitter above 1 ms"


def test_segments_roll_when_an_index_is_full(world):
    log = world.log(segment_bytes=1 << 20, segment_index_bytes=12 * 4, index_interval_bytes=1)
    for index in range(12):
        append(log, b"a", timestamp=START_MS + index)
    assert log.segment_count > 2


def test_segments_roll_before_offsets_overflow_their_index(world):
    log = world.log()
    log.append_as_follower(with_offsets(batch((b"a",)), 0))
    log.append_as_follower(with_offsets(batch((b"b",)), (1 << 31) + 5))
    assert log.segment_base_offsets == [0, (1 << 31) + 5]
    assert contents(log) == [(0, b"a"), ((1 << 31) + 5, b"b")]


def test_an_empty_segment_with_too_low_a_base_gives_way(world):
    log = world.log()
    log.append_as_follower(with_offsets(batch((b"b",)), 1 << 33))
    assert log.segment_base_offsets == [1 << 33]


def test_a_follower_keeps_what_the_leader_wrote(log):
    data = with_offsets(batch((b"a", b"b")), 10, 4) + with_offsets(batch((b"c",)), 20, 5)
    info = log.append_as_follower(data)
    assert (info.base_offset, info.last_offset) == (10, 20)
    assert contents(log) == [(10, b"a"), (11, b"b"), (20, b"c")]
    assert log.leader_epochs == [(4, 10), (5, 20)]


def test_a_follower_leaves_batches_of_later_epochs_out(log):
    data = with_offsets(batch((b"a",)), 0, 4) + with_offsets(batch((b"c",)), 1, 5)
    log.append_as_follower(data, leader_epoch=4)
    assert log.log_end_offset == 1


@pytest.mark.parametrize("base", [0, 1])
def test_a_follower_refuses_offsets_it_has(log, base):
    log.append_as_follower(with_offsets(batch((b"a", b"b")), 0))
    with pytest.raises(CorruptRecords):
        log.append_as_follower(with_offsets(batch((b"c",)), base))
    assert log.log_end_offset == 2


def test_a_follower_refuses_a_wrong_crc(log):
    data = bytearray(with_offsets(batch((b"a",)), 0))
    data[-1] ^= 1
    with pytest.raises(CorruptRecords):
        log.append_as_follower(bytes(data))
    assert log.log_end_offset == 0


def test_raft_appends_must_not_leave_gaps(log):
    log.append_as_leader(
        with_offsets(batch((b"a",)), 0, 3), leader_epoch=3, now_ms=0, origin=Origin.RAFT
    )
    with pytest.raises(CorruptRecords):
        log.append_as_leader(
            with_offsets(batch((b"a",)), 2, 3), leader_epoch=3, now_ms=0, origin=Origin.RAFT
        )


def test_flush_messages_asks_for_an_fsync_when_so_many_are_unsynced(world):
    log = world.log(flush_messages=3)
    assert [append(log, b"a").needs_fsync for _ in range(4)] == [False, False, True, True]
    log.flush()
    assert log.recovery_point == 4
    assert not append(log, b"a").needs_fsync


def test_flush_messages_of_one_means_every_append(world):
    log = world.log(flush_messages=1)
    for _ in range(3):
        assert append(log, b"a").needs_fsync
        log.flush()


def test_flush_ms_names_the_logs_that_are_due(world):
    log = world.log(flush_ms=100)
    append(log, b"a")
    assert world.manager.due_for_flush(START_MS + 99) == []
    assert world.manager.due_for_flush(START_MS + 100) == [log]
    world.clock.now_ms += 100
    world.manager.flush_due(world.clock.now_ms)
    assert log.recovery_point == 1
    assert world.manager.due_for_flush(START_MS + 300) == []


def test_log_append_time_is_reported_and_stored(world):
    log = world.log(log_append_time=True)
    info = append(log, b"a", timestamp=5, now_ms=START_MS + 7)
    assert info.log_append_time == START_MS + 7
    assert log.offset_for_timestamp(START_MS + 7).offset == 0


def test_offsets_by_time_are_exact_even_within_compressed_batches(log):
    for index in range(30):
        append(
            log, *[b"v"] * 5, timestamp=START_MS + index * 50, step=10, codec=list(Codec)[index % 5]
        )
    for index in range(150):
        found = log.offset_for_timestamp(START_MS + index * 10)
        assert found == FoundOffset(START_MS + index * 10, index, 0)
        if index:
            assert log.offset_for_timestamp(START_MS + index * 10 - 9).offset == index
    assert log.offset_for_timestamp(START_MS + 1491) is None
    assert log.offset_for_timestamp(START_MS + 500, up_to=50) is None
    assert log.offset_for_timestamp(START_MS + 499, up_to=51).offset == 50


def test_times_out_of_order_find_the_first_that_is_late_enough(log):
    for timestamp in (30, 10, 20, 40, 5):
        append(log, b"v", timestamp=START_MS + timestamp)
    assert log.offset_for_timestamp(START_MS + 11).offset == 0
    assert log.offset_for_timestamp(START_MS + 31).offset == 3
    assert log.offset_of_max_timestamp() == FoundOffset(START_MS + 40, 3, 0)


def test_the_first_of_several_largest_times_counts(log):
    append(log, b"a", b"b", timestamp=START_MS, step=5)
    append(log, b"c", timestamp=START_MS + 5)
    assert log.offset_of_max_timestamp().offset == 1


def test_an_empty_log_has_no_times(log):
    assert log.offset_of_max_timestamp() is None
    assert log.offset_for_timestamp(0) is None


def test_epochs_end_where_the_next_one_begins(log):
    for epoch in (2, 2, 5, 7):
        append(log, b"v", epoch=epoch)
    assert log.leader_epochs == [(2, 0), (5, 2), (7, 3)]
    assert log.end_offset_for_epoch(7) == (7, 4)
    assert log.end_offset_for_epoch(6) == (5, 3)
    assert log.end_offset_for_epoch(3) == (2, 2)
    assert log.end_offset_for_epoch(1) == (1, 0)
    assert log.end_offset_for_epoch(8) is None
    assert log.end_offset_for_epoch(-1) is None
    assert [log.epoch_of(offset) for offset in range(4)] == [2, 2, 5, 7]


def test_a_leadership_without_records_gives_way_to_the_next(log):
    append(log, b"v", epoch=1)
    log.assign_epoch(2)
    log.assign_epoch(3)
    assert log.leader_epochs == [(1, 0), (3, 1)]


def test_delete_records_moves_the_start_and_no_further_than_the_high_watermark(log):
    for _ in range(10):
        append(log, b"a", b"b")
    log.set_high_watermark(9)
    with pytest.raises(KafkaError) as caught:
        log.delete_records_before(10)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.delete_records_before(5) == 5
    assert log.delete_records_before(3) == 5
    assert offsets(log) == list(range(5, 20))
    assert log.delete_records_before(-1) == 9
    with pytest.raises(KafkaError):
        log.read(8, max_bytes=100, up_to=20)


def test_retention_by_size_keeps_at_least_that_much(world):
    log = world.log(retention_bytes=2000)
    for _ in range(40):
        append(log, bytes(100))
    log.set_high_watermark(40)
    assert log.apply_retention(START_MS) > 0
    assert 2000 <= log.size_in_bytes < 2000 + 1200
    assert log.log_start_offset == log.segment_base_offsets[0] > 0
    assert offsets(log) == list(range(log.log_start_offset, 40))


def test_retention_by_time_spares_what_is_not_committed(world):
    log = world.log(retention_ms=1000)
    for index in range(30):
        append(log, bytes(100), timestamp=START_MS + index)
    log.set_high_watermark(15)
    log.apply_retention(START_MS + 5000)
    assert 0 < log.log_start_offset <= 15
    log.set_high_watermark(30)
    log.apply_retention(START_MS + 5000)
    assert log.log_start_offset == log.log_end_offset == 30
    assert append(log, b"on").base_offset == 30


def test_deleted_files_stay_for_their_delay(world):
    log = world.log(retention_bytes=0, file_delete_delay_ms=500)
    for _ in range(20):
        append(log, bytes(100))
    log.set_high_watermark(20)
    log.apply_retention(START_MS)
    assert any(path.endswith(".log.deleted") for path in world.disk.files())
    log.remove_deleted_files(START_MS + 500)
    assert not any(path.endswith(".deleted") for path in world.disk.files())


def test_a_compacted_topic_keeps_everything(world):
    log = world.log(compact=True, delete=False, retention_bytes=0, retention_ms=0)
    for _ in range(20):
        append(log, bytes(100))
    log.set_high_watermark(20)
    assert log.apply_retention(START_MS * 2) == 0
    assert len(offsets(log)) == 20


def test_truncation_forgets_records_epochs_and_times(log):
    for index in range(30):
        append(log, b"%d" % index, epoch=index // 10, timestamp=START_MS + index)
    assert log.truncate_to(15)
    assert offsets(log) == list(range(15))
    assert log.leader_epochs == [(0, 0), (1, 10)]
    assert log.offset_of_max_timestamp().offset == 14
    assert log.offset_for_timestamp(START_MS + 15) is None
    assert append(log, b"again", epoch=4).base_offset == 15
    assert not log.truncate_to(16)


def test_truncation_inside_a_batch_removes_all_of_it(log):
    append(log, b"a", b"b", b"c")
    append(log, b"d", b"e", b"f")
    log.truncate_to(4)
    assert offsets(log) == [0, 1, 2]


def test_truncation_below_the_start_begins_afresh(log):
    log.truncate_fully_and_start_at(50)
    append(log, b"a")
    assert offsets(log) == [50]
    log.truncate_to(20)
    assert (log.log_start_offset, log.log_end_offset) == (20, 20)


def transaction(log, producer_id, kind=None):
    if kind is None:
        data = batch((b"t",), producer=(producer_id, 0, 0), transactional=True)
        data = with_offsets(data, log.log_end_offset)
    else:
        data = end_transaction_batch(
            EndTransaction(kind, 1),
            timestamp=START_MS,
            producer_id=producer_id,
            producer_epoch=0,
            base_offset=int(log.log_end_offset),
            leader_epoch=0,
        )
    log.append_as_follower(data)


def test_the_last_stable_offset_waits_for_open_and_unreplicated_transactions(log):
    transaction(log, 1)
    transaction(log, 2)
    log.set_high_watermark(2)
    assert log.last_stable_offset == 0
    transaction(log, 1, ControlType.COMMIT)
    assert log.last_stable_offset == 0, "the marker is not replicated"
    log.set_high_watermark(3)
    assert log.last_stable_offset == 1
    transaction(log, 2, ControlType.ABORT)
    log.set_high_watermark(4)
    assert log.last_stable_offset == 4
    [aborted] = log.aborted_transactions(0, 4)
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (2, 1, 3)
    assert log.aborted_transactions(4, 4) == []


@pytest.mark.parametrize("clean", [True, False])
def test_open_and_aborted_transactions_survive_a_restart(world, log, clean):
    transaction(log, 1)
    transaction(log, 1, ControlType.ABORT)
    transaction(log, 2)
    aborted = log.aborted_transactions(0, 3)
    world.reopen(clean=clean)
    log = world.log()
    log.set_high_watermark(3)
    assert log.last_stable_offset == 2
    assert log.aborted_transactions(0, 3) == aborted
    assert [(p.producer_id, p.txn_first_offset) for p in log.active_producers()] == [
        (1, -1),
        (2, 2),
    ]


class LogModel(RuleBasedStateMachine):
    """A log beside a list that says what it must hold."""

    @initialize()
    def start(self):
        self.world = World()
        self.log = self.world.log()
        self.rows = []  # (offset, value, timestamp, epoch), the whole history that is left
        self.batches = []  # (first, last)
        self.epoch = 0
        self.start_offset = 0
        self.end = 0

    @rule(count=st.integers(1, 4), size=st.integers(0, 90), time=st.integers(0, 40))
    def append(self, count, size, time):
        values = [b"%d" % (self.end + index) + bytes(size) for index in range(count)]
        info = append(self.log, *values, epoch=self.epoch, timestamp=START_MS + time)
        assert info.base_offset == self.end
        for index, value in enumerate(values):
            self.rows.append((self.end + index, value, START_MS + time + index, self.epoch))
        self.batches.append((self.end, self.end + count - 1))
        self.end += count

    @rule()
    def new_leader(self):
        self.epoch += 1

    @rule()
    def roll(self):
        self.log.roll()

    @rule()
    def flush(self):
        self.log.flush()
        assert self.log.recovery_point == self.end

    @rule(share=st.floats(0, 1))
    def truncate(self, share):
        offset = self.start_offset + int(share * (self.end - self.start_offset))
        cut = next((first for first, last in self.batches if last >= offset), self.end)
        if cut < self.start_offset or (cut == self.end and offset < self.end):
            return
        self.log.truncate_to(cut)
        self.rows = [row for row in self.rows if row[0] < cut]
        self.batches = [pair for pair in self.batches if pair[1] < cut]
        self.end = cut

    @rule(share=st.floats(0, 1))
    def delete_records(self, share):
        offset = self.start_offset + int(share * (self.end - self.start_offset))
        self.log.set_high_watermark(self.end)
        self.log.delete_records_before(offset)
        self.start_offset = max(self.start_offset, offset)
        self.world.manager.removal.retention(START_MS)

    @rule(clean=st.booleans())
    def restart(self, clean):
        if clean:
            self.world.manager.checkpoint()
        else:
            self.start_offset = None
        self.world.reopen(clean=clean)
        self.log = self.world.log()
        if self.start_offset is None:
            self.start_offset = int(self.log.log_start_offset)
        self.rows = [row for row in self.rows if row[0] >= self.log.segment_base_offsets[0]]

    def visible(self):
        return [row for row in self.rows if row[0] >= self.start_offset]

    @invariant()
    def bounds_and_contents_agree(self):
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start_offset, self.end)
        assert contents(self.log) == [(offset, value) for offset, value, *_ in self.visible()]

    @precondition(lambda self: self.end > self.start_offset)
    @rule(share=st.floats(0, 0.999), max_bytes=st.integers(1, 2000))
    def read(self, share, max_bytes):
        offset = self.start_offset + int(share * (self.end - self.start_offset))
        pieces, size = self.log.read(offset, max_bytes=max_bytes, up_to=self.end)
        first = next(pair for pair in self.batches if pair[1] >= offset)
        got = [(header.base_offset, header.last_offset) for header, _ in iter_batches(pieces[0])]
        at = self.batches.index(first)
        assert got == self.batches[at : at + len(got)]
        assert got
        assert size == len(pieces[0]) <= max(max_bytes, parse_header(pieces[0]).size_in_bytes)

    @rule(time=st.integers(0, 50))
    def search_by_time(self, time):
        found = self.log.offset_for_timestamp(START_MS + time)
        expected = next((row for row in self.visible() if row[2] >= START_MS + time), None)
        if expected is None:
            assert found is None
        else:
            assert found == FoundOffset(expected[2], expected[0], expected[3])

    @rule()
    def epochs_agree(self):
        for offset, _, _, epoch in self.visible():
            assert self.log.epoch_of(offset) == epoch


LogModel.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
test_the_log_agrees_with_its_model = LogModel.TestCase
assert SMALL.segment_bytes < 2000
