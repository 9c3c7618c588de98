"""Damaged logs: told of, never served, never cut; set aside where the leader has the records."""

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.records.batch import iter_batches
from sparkraft.records.record import decode_records
from tests.storage.test_log_manager import points_of
from tests.storage.worlds import LOG_DIR, TOPIC_ID, World, append, contents


def damaged_world():
    """A log whose second batch is damaged below its recovery point."""
    world = World()
    log = world.log()
    for index in range(4):
        append(log, b"%d" % index * 50)
    log.flush()
    world.manager.checkpoint()
    path = log.segments[0].log_path
    data = bytearray(world.disk.files()[path])
    data[len(data) // 4 + 80] ^= 1
    world.disk.put(path, bytes(data))
    log = world.reopen().log()
    return world, log, path, bytes(data)


def test_damage_that_a_reader_meets_is_told_of_once_and_never_served():
    world, log, path, data = damaged_world()
    told = []
    world.manager.damage.listeners.append(told.append)
    assert contents_of(log, 0, 1) == [b"0" * 50]
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            log.read(1, max_bytes=1, up_to=4)
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert told == [log]
    assert "the CRC is wrong" in world.manager.damage.reads["t", 0]
    assert contents_of(log, 2, 4) == [b"2" * 50, b"3" * 50], "the rest is served"
    assert world.disk.files()[path] == data


def contents_of(log, start, end):
    read = log.read(start, max_bytes=1 << 20, up_to=end)
    return [record.value for piece in read.pieces for record in records_in(piece)]


def records_in(piece):
    for _, view in iter_batches(piece):
        yield from decode_records(view)


def test_a_damaged_log_makes_room_for_a_new_one_and_is_kept():
    world, log, _, data = damaged_world()
    with pytest.raises(KafkaError):
        log.read(1, max_bytes=1, up_to=4)
    world.manager.damage.give_up(log)
    assert world.manager.is_offline("t", 0)
    with pytest.raises(KafkaError) as caught:
        world.log()
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert points_of(world.disk)["t", 0] == 4
    world.manager.dirs.carry_out(world.manager.damage.set_aside("t", 0))
    new = world.log()
    assert (new.log_end_offset, new.topic_id) == (0, TOPIC_ID)
    append(new, b"fetched")
    again = World(world.disk.killed_at(len(world.disk.journal)))
    assert not again.manager.damaged, "the old log's recovery point is not held against the new one"
    assert contents(again.log()) == [(0, b"fetched")]
    kept = [content for path, content in world.disk.files().items() if "-stray/" in path]
    assert data in kept


def test_a_node_with_a_damaged_log_is_as_if_it_had_not_stopped_cleanly():
    """The controller then takes its replicas out of ISR and ELR."""
    world = World()
    append(world.log(), b"v" * 50)
    world.log().flush()
    world.manager.checkpoint()
    world.manager.close(broker_epoch=7)
    world.disk.put(f"{LOG_DIR}/t-0/00000000000000000000.log", b"\xff" * 120)
    world.open()
    assert list(world.manager.damaged) == [("t", 0)]
    assert world.manager.previous_broker_epoch == -1


def test_a_topic_made_again_has_nothing_held_against_it():
    world = World()
    log = world.log()
    for _ in range(9):
        append(log, b"v")
    log.flush()
    world.manager.checkpoint()
    world.manager.delete("t", 0)
    new = world.log()
    append(new, b"w" * 90)
    again = World(world.disk.killed_at(len(world.disk.journal) - 1, 30))
    assert not again.manager.damaged
    assert contents(again.log()) == []


def test_a_topic_made_anew_is_told_of_anew():
    world, log, _, _ = damaged_world()
    with pytest.raises(KafkaError):
        log.read(1, max_bytes=1, up_to=4)
    assert world.manager.damage.reads
    world.manager.delete("t", 0)
    assert not world.manager.damage.reads
