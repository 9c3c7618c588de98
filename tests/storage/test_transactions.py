"""Open, committed and aborted transactions in a log: stable offset, index, recovery (KIP-98)."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.records.control import ControlType, EndTransaction, end_transaction_batch
from sparkraft.storage.index import AbortedTransaction
from sparkraft.storage.log import Origin
from tests.storage.worlds import SMALL, START_MS, SeededDice, World, append, batch, with_offsets

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT
CONFIG = replace(SMALL, segment_bytes=600, index_interval_bytes=100)


@pytest.fixture
def world():
    return World(config=CONFIG)


@pytest.fixture
def log(world):
    return world.log()


def send(log, producer, *, epoch=0, sequence=0, count=1):
    data = batch([b"v"] * count, producer=(producer, epoch, sequence), transactional=True)
    return log.append_as_leader(data, leader_epoch=0, now_ms=START_MS, origin=Origin.COORDINATOR)


def end(log, producer, kind, *, epoch=0, coordinator_epoch=1):
    data = end_transaction_batch(
        EndTransaction(kind, coordinator_epoch),
        timestamp=START_MS,
        producer_id=producer,
        producer_epoch=epoch,
    )
    return log.append_as_leader(data, leader_epoch=0, now_ms=START_MS, origin=Origin.COORDINATOR)


def replicate(log):
    log.set_high_watermark(log.log_end_offset)


def refused(log, *arguments, **more):
    before = log.log_end_offset
    with pytest.raises(KafkaError) as caught:
        end(log, *arguments, **more)
    assert log.log_end_offset == before
    return caught.value.code


def test_the_stable_offset_stays_below_the_oldest_open_transaction(log):
    append(log, b"before")
    send(log, 1)
    send(log, 2)
    replicate(log)
    assert (log.last_stable_offset, log.high_watermark) == (1, 3)
    end(log, 1, COMMIT)
    assert log.last_stable_offset == 1, "the marker is not replicated yet"
    replicate(log)
    assert log.last_stable_offset == 2
    end(log, 2, ABORT)
    replicate(log)
    assert log.last_stable_offset == log.high_watermark == 5


def test_an_aborted_transaction_is_named_where_its_records_are_read(log):
    append(log, b"a")
    send(log, 1, count=3)
    append(log, b"b")
    end(log, 1, ABORT)
    append(log, b"c")
    replicate(log)
    entry = AbortedTransaction(1, 1, 5, 6)
    assert log.aborted_transactions(0, 7) == [entry]
    assert log.aborted_transactions(0, 1) == [], "it begins behind what is read"
    assert log.aborted_transactions(5, 7) == [entry]
    assert log.aborted_transactions(6, 7) == []
    read = log.read(0, max_bytes=1, up_to=7)
    assert log.aborted_in(6, 100, 7) == []
    assert log.aborted_in(1, read.size, 7) == [entry]
    assert log.aborted_in(1, 0, 7) == []


def test_committed_and_empty_transactions_are_not_in_the_index(world, log):
    send(log, 1)
    end(log, 1, COMMIT)
    end(log, 2, ABORT)
    assert log.aborted_transactions(0, 9) == []
    assert not [path for path in world.disk.files() if path.endswith(".txnindex")]


def test_a_late_coordinator_is_fenced(log):
    send(log, 1)
    end(log, 1, COMMIT, coordinator_epoch=5)
    send(log, 1, sequence=1)
    assert refused(log, 1, ABORT, coordinator_epoch=4) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    end(log, 1, ABORT, coordinator_epoch=5)


def test_a_marker_of_an_older_producer_epoch_is_refused(log):
    send(log, 1, epoch=3)
    assert refused(log, 1, ABORT, epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    end(log, 1, ABORT, epoch=4)
    assert refused(log, 1, COMMIT, epoch=3) == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(
    ("version", "epoch", "allowed"), [(1, 3, True), (2, 3, False), (2, 4, True)]
)
def test_from_version_2_a_marker_comes_in_an_epoch_of_its_own(log, version, epoch, allowed):
    send(log, 1, epoch=3)
    ending = EndTransaction(COMMIT, 0)
    if allowed:
        log.check_marker(1, epoch, ending, transaction_version=version)
        return
    with pytest.raises(KafkaError) as caught:
        log.check_marker(1, epoch, ending, transaction_version=version)
    assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_repeated_marker_of_version_2_finds_no_transaction_and_is_accepted(log):
    """KAFKA-19999: a coordinator that has lost the answer sends it again."""
    send(log, 1, epoch=3)
    ending = EndTransaction(COMMIT, 1)
    log.check_marker(1, 4, ending, transaction_version=2)
    end(log, 1, COMMIT, epoch=4)
    log.check_marker(1, 4, ending, transaction_version=2)
    send(log, 1, epoch=4)
    with pytest.raises(KafkaError) as caught:
        log.check_marker(1, 4, ending, transaction_version=2)
    assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH


def late_marker(log, *, version, epoch):
    """Append a repeated marker of the first transaction, or return its error."""
    try:
        log.check_marker(1, epoch, EndTransaction(ABORT, 1), transaction_version=version)
    except KafkaError as error:
        return error.code
    end(log, 1, ABORT, epoch=epoch)
    return ErrorCode.NONE


def test_without_epochs_a_late_marker_ends_the_next_transaction(log):
    """The hole that KIP-890 closes: the coordinator's retry arrives after the next batch."""
    send(log, 1, epoch=3)
    end(log, 1, ABORT, epoch=3)
    send(log, 1, epoch=3, sequence=1)
    assert late_marker(log, version=1, epoch=3) is ErrorCode.NONE
    replicate(log)
    assert log.last_stable_offset == log.high_watermark
    assert [one.first_offset for one in log.aborted_transactions(0, 9)] == [0, 2]


@pytest.mark.parametrize("ended", [False, True])
def test_from_version_2_a_late_marker_ends_no_later_transaction(log, ended):
    """Neither the next one (KIP-1228) nor, after its marker, one more."""
    send(log, 1, epoch=3)
    end(log, 1, ABORT, epoch=4)
    send(log, 1, epoch=4)
    if ended:
        end(log, 1, COMMIT, epoch=5)
        send(log, 1, epoch=5)
    assert late_marker(log, version=2, epoch=4) is ErrorCode.INVALID_PRODUCER_EPOCH
    replicate(log)
    assert log.last_stable_offset == log.high_watermark - 1
    assert [one.first_offset for one in log.aborted_transactions(0, 9)] == [0]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_guard_ends_with_the_leadership_that_gave_it(world, log, restarts):
    """A former leader replays the marker of the next one; producer snapshots have no guards."""
    send(log, 1)
    end(log, 1, COMMIT)
    replicate(log)
    guard = log.producers.begin_verification(1)
    assert log.producers.is_verified(1, guard)
    if restarts:
        log = world.reopen().log()
    else:
        marker = end_transaction_batch(
            EndTransaction(ABORT, 2), timestamp=START_MS, producer_id=1, producer_epoch=0
        )
        log.append_as_follower(with_offsets(marker, log.log_end_offset, 1))
    assert not log.producers.is_verified(1, guard)
    assert log.producers.get(1).coordinator_epoch == (1 if restarts else 2)


def test_the_largest_epoch_may_end_its_own_transaction(log):
    send(log, 1, epoch=32_767)
    log.check_marker(1, 32_767, EndTransaction(COMMIT, 0), transaction_version=2)


def test_a_guard_without_an_append_expires(log):
    producers = log.producers
    guard = producers.begin_verification(7)
    log.expire_producers(START_MS)
    assert producers.is_verified(7, guard)
    log.expire_producers(START_MS)
    assert not producers.is_verified(7, guard)


def test_a_record_outside_an_open_transaction_is_refused(log):
    send(log, 1)
    with pytest.raises(KafkaError) as caught:
        append(log, b"v", producer=(1, 0, 1))
    assert caught.value.code == ErrorCode.INVALID_TXN_STATE


def test_removing_the_tail_reopens_the_transaction(log):
    send(log, 1)
    end(log, 1, ABORT)
    replicate(log)
    log.truncate_to(1)
    assert log.aborted_transactions(0, 9) == []
    append(log, b"x")
    replicate(log)
    assert log.last_stable_offset == 0
    end(log, 1, COMMIT)
    replicate(log)
    assert log.last_stable_offset == 3
    assert log.aborted_transactions(0, 9) == []


def history(log, steps):
    """Play steps; the aborted transactions as a scan of the markers would tell them."""
    opened, sequences, aborted = {}, {}, []
    for producer, action in steps:
        if action == "send":
            at = send(log, producer, sequence=sequences.get(producer, 0)).base_offset
            sequences[producer] = sequences.get(producer, 0) + 1
            opened.setdefault(producer, at)
        elif action == "plain":
            append(log, b"plain")
        else:
            at = end(log, producer, ABORT if action == "abort" else COMMIT).base_offset
            first = opened.pop(producer, None)
            if first is not None and action == "abort":
                stable = min(opened.values(), default=at + 1)
                aborted.append(AbortedTransaction(producer, first, at, stable))
    return opened, aborted


STEPS = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from(["send", "send", "plain", "abort", "commit"])),
    max_size=40,
)


@given(STEPS, st.booleans(), st.integers(0, 40))
@settings(max_examples=60, deadline=None)
def test_a_reopened_log_knows_the_same_transactions(steps, clean, flushed):
    """T2, T3, S5: whatever was synced, index and stable offset are those of the markers."""
    world = World(config=CONFIG)
    log = world.log()
    opened, aborted = history(log, steps)
    log.flush(flushed)
    world.manager.checkpoint()
    before = log.aborted_transactions(0, 1 << 40)
    assert before == aborted
    again = world.reopen(clean=clean).log()
    assert again.aborted_transactions(0, 1 << 40) == aborted
    replicate(again)
    assert again.last_stable_offset == min(opened.values(), default=again.log_end_offset)
    for offset in range(again.log_end_offset):
        for up_to in (offset + 1, again.log_end_offset):
            needed = [e for e in aborted if e.first_offset < up_to and e.last_offset >= offset]
            assert again.aborted_transactions(offset, up_to) == needed


@pytest.mark.parametrize("seed", range(30))
def test_a_power_loss_leaves_index_and_batches_in_agreement(seed):
    dice = SeededDice(seed)
    world = World(config=CONFIG)
    log = world.log()
    kinds = ["send", "send", "plain", "abort", "commit"]
    steps = [(1 + dice.below(4), kinds[dice.below(5)]) for _ in range(60)]
    history(log, steps[:30])
    log.flush()
    world.manager.checkpoint()
    _, aborted = history_after(log, steps)
    disk = world.disk.power_lost_at(len(world.disk.journal), dice)
    found = World(disk, config=CONFIG).log()
    end_offset = found.log_end_offset
    expected = [entry for entry in aborted if entry.last_offset < end_offset]
    assert found.aborted_transactions(0, 1 << 40) == expected


def history_after(log, steps):
    """Go on with the second half; what the whole history aborted, from a log of its own."""
    whole = World(config=CONFIG).log()
    opened, aborted = history(whole, steps)
    sequences = {}
    for producer, action in steps[:30]:
        if action == "send":
            sequences[producer] = sequences.get(producer, 0) + 1
    for producer, action in steps[30:]:
        if action == "send":
            send(log, producer, sequence=sequences.get(producer, 0))
            sequences[producer] = sequences.get(producer, 0) + 1
        elif action == "plain":
            append(log, b"plain")
        else:
            end(log, producer, ABORT if action == "abort" else COMMIT)
    assert log.log_end_offset == whole.log_end_offset
    return opened, aborted


DAMAGES = {
    "cut inside an entry": lambda data: data[:-5],
    "zeros": lambda data: bytes(len(data)),
    "another version": lambda data: b"\x00\x07" + data[2:],
    "a marker that is elsewhere": lambda data: data[:18] + bytes(8) + data[26:],
    "another producer": lambda data: data[:2] + bytes(8) + data[10:],
    "a stable offset too high": lambda data: data[:26] + b"\x01" + data[27:],
    "doubled": lambda data: data + data,
    "longer": lambda data: data + b"\xff" * 34,
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_transaction_index_is_derived_anew(world, damage, clean):
    log = world.log()
    for turn in range(6):
        send(log, 1, sequence=turn * 2)
        append(log, b"x" * 150)
        send(log, 1, sequence=turn * 2 + 1)
        end(log, 1, ABORT)
    expected = log.aborted_transactions(0, 99)
    assert len(expected) == 6
    log.flush()
    world.manager.close(clean=clean)
    paths = [path for path in world.disk.files() if path.endswith(".txnindex")]
    assert len(paths) > 2
    world.disk.put(paths[1], DAMAGES[damage](world.disk.files()[paths[1]]))
    log = world.open().log()
    assert log.aborted_transactions(0, 99) == expected
    stored = b"".join(data for path, data in world.disk.files().items() if "txnindex" in path)
    assert stored == b"".join(entry.to_bytes() for entry in expected)
