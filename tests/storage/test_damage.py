"""Damaged files: indexes give the same answers, synced data is never cut off silently."""

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.records.errors import CorruptRecords
from sparkraft.simulation.world.memory_disk import MemoryDisk
from sparkraft.storage.disk import StorageFault
from tests.storage.worlds import START_MS, World, append, contents

RECORDS = 60


def filled():
    world = World(MemoryDisk())
    log = world.log(file_delete_delay_ms=0)
    for index in range(RECORDS):
        append(log, b"%d" % index * 7, timestamp=START_MS + index // 2 * 10, epoch=index // 20)
    return world


def answers(log):
    """What readers can see of the indexes."""
    by_offset = [
        log.read(offset, max_bytes=1, up_to=RECORDS).pieces[0][:8] for offset in range(RECORDS)
    ]
    by_time = [log.offset_for_timestamp(START_MS + time) for time in range(0, 310, 5)]
    return by_offset, by_time, log.offset_of_max_timestamp(), log.leader_epochs


@pytest.fixture(scope="module")
def right():
    world = filled()
    return answers(world.log())


def index_files(world):
    return [path for path in sorted(world.disk.files()) if path.endswith("index")]


def cut(data, dice):
    return data[: dice.draw(st.integers(0, len(data)))]


def zero_tail(data, dice):
    kept = cut(data, dice)
    return kept + bytes(len(data) - len(kept))


def other_bytes(data, dice):
    changed = bytearray(data)
    for _ in range(3 if data else 0):
        changed[dice.draw(st.integers(0, len(data) - 1))] = dice.draw(st.integers(0, 255))
    return bytes(changed)


def nudge(data, dice):
    """Entries that still rise but are off by a little: the hardest to notice."""
    changed = bytearray(data)
    for _ in range(2 if data else 0):
        at = dice.draw(st.integers(0, len(data) // 4 - 1)) * 4 + 3
        changed[at] = (changed[at] + dice.draw(st.sampled_from([-2, -1, 1, 2]))) % 256
    return bytes(changed)


MANGLERS = {
    "missing": lambda data, dice: None,
    "empty": lambda data, dice: b"",
    "cut": cut,
    "zeros": lambda data, dice: bytes(len(data)),
    "zero tail": zero_tail,
    "preallocated": lambda data, dice: data + bytes(10 << 10),
    "random": lambda data, dice: dice.draw(st.binary(min_size=len(data), max_size=len(data))),
    "bytes": other_bytes,
    "nudge": nudge,
}


@pytest.mark.parametrize("how", MANGLERS)
@given(dice=st.data())
@settings(max_examples=40, deadline=None)
def test_any_mutilation_of_indexes_gives_the_same_answers(how, dice, right):
    world = filled()
    world.manager.close()
    chosen = dice.draw(st.sets(st.sampled_from(index_files(world)), min_size=1))
    for path in sorted(chosen):
        data = MANGLERS[how](world.disk.read(path), dice)
        if data is None:
            world.disk.unlink(path)
        else:
            world.disk.put(path, data)
    log = world.open().log()
    assert answers(log) == right
    assert append(log, b"more", epoch=5).base_offset == RECORDS


def test_an_index_of_another_segment_gives_the_same_answers(right):
    world = filled()
    world.manager.close()
    files = [path for path in index_files(world) if path.endswith("0.index")]
    first, *others = [path for path in index_files(world) if path.endswith(".index")]
    for path in others:
        world.disk.put(path, world.disk.read(first))
    assert files
    assert answers(world.open().log()) == right


@pytest.mark.parametrize("content", [b"", b"garbage", b"0\n5\n1 1\n", b"9\n0\n", b"0\n1\nx y\n"])
def test_a_damaged_epoch_checkpoint_is_rebuilt(content, right):
    world = filled()
    world.manager.close(clean=False)
    world.disk.put(f"{world.log().directory}/leader-epoch-checkpoint", content)
    assert answers(world.open().log()) == right


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
        ".kafka_cleanshutdown",
    ],
)
@pytest.mark.parametrize("content", [b"", b"garbage\n", b"0\n1\nt 0 x\n", b'{"version":0}'])
def test_damaged_node_checkpoints_cost_nothing_but_time(name, content, right):
    world = filled()
    world.manager.close()
    world.disk.put(f"/logs/{name}", content)
    assert answers(world.open().log()) == right


def damage(world, offset):
    """Flip a bit in the batch that holds `offset`."""
    log = world.log()
    base = max(base for base in log.segment_base_offsets if base <= offset)
    path = f"{log.directory}/{base:020d}.log"
    data = bytearray(world.disk.read(path))
    at = 0
    while int.from_bytes(data[at : at + 8], "big") < offset:
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    data[at + 65] ^= 1
    return path, bytes(data)


@pytest.mark.parametrize("offset", [3, 30])
def test_damage_in_synced_segments_is_found_by_readers_and_kept(offset):
    world = filled()
    path, data = damage(world, offset)
    world.manager.close()
    world.disk.put(path, data)
    log = world.open().log()
    assert (log.log_start_offset, log.log_end_offset) == (0, RECORDS)
    with pytest.raises(CorruptRecords) as caught:
        log.read(offset, max_bytes=100, up_to=RECORDS)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert log.read(offset + 25, max_bytes=10_000, up_to=RECORDS).size > 0
    assert log.log_end_offset == RECORDS, "nothing was cut off"


def test_damage_below_the_recovery_point_takes_the_log_offline_not_the_data():
    world = filled()
    world.log().flush()
    world.manager.checkpoint()
    path, data = damage(world, RECORDS - 2)
    world.manager.close(clean=False)
    world.disk.put(path, data)
    world.open()
    assert list(world.manager.damaged) == [("t", 0)]
    with pytest.raises(KafkaError) as caught:
        world.log()
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert world.manager.is_offline("t", 0)
    assert world.disk.read(path) == data
    assert world.log("other").log_end_offset == 0, "other logs go on"


def test_damage_above_the_recovery_point_ends_the_log_there():
    world = filled()
    path, data = damage(world, 30)
    world.manager.close(clean=False)
    world.disk.put(path, data)
    log = world.open().log()
    assert [offset for offset, _ in contents(log)] == list(range(30))


# -- failing disks -------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_failed_append_is_a_fault_and_the_log_refuses_from_then_on(error):
    world = filled()
    log = world.log()
    world.disk.fail("append", path=".log", error=error)
    with pytest.raises(StorageFault) as caught:
        append(log, b"lost")
    assert caught.value.log_dir == "/logs"
    assert caught.value.cause.errno == error
    for attempt in (lambda: append(log, b"no"), lambda: log.read(0, max_bytes=9, up_to=9)):
        with pytest.raises(KafkaError) as refused:
            attempt()
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    world.manager.close(clean=False)
    assert world.open().log().log_end_offset == RECORDS


def test_a_full_disk_loses_nothing_that_was_acknowledged():
    world = World(MemoryDisk(capacity_bytes=20_000))
    log = world.log()
    acknowledged = 0
    while log.fault is None and acknowledged < 1000:
        try:
            append(log, bytes(100))
        except StorageFault:
            break
        acknowledged += 1
    assert log.fault is not None
    world.manager.close(clean=False)
    world.disk.capacity_bytes = 1 << 20
    log = world.open().log()
    assert log.log_end_offset == acknowledged
    assert append(log, b"on").base_offset == acknowledged


def test_a_failed_fsync_is_never_tried_again():
    world = filled()
    log = world.log()
    world.disk.fail("fsync", path=".log")
    with pytest.raises(StorageFault):
        log.flush()
    assert log.recovery_point < RECORDS
    with pytest.raises(KafkaError) as caught:
        log.flush()
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_failing_checkpoint_takes_its_directory_offline():
    world = filled()
    world.disk.fail("fsync", path="recovery-point")
    world.manager.checkpoint()
    [log_dir] = world.manager.offline_directories
    assert log_dir.path == "/logs"
    with pytest.raises(KafkaError):
        append(world.log(), b"no")


def test_a_read_error_is_a_fault():
    world = filled()
    log = world.log()
    world.disk.fail("pread")
    with pytest.raises(StorageFault):
        log.read(0, max_bytes=100, up_to=RECORDS)
