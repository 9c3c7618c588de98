"""A node's log directories: start, stop, create, delete, checkpoints, identities."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import BrokerId, Uuid
from sparkraft.records.compression import Codec
from sparkraft.simulation.memory_disk import MemoryDisk
from sparkraft.storage.checkpoints import (
    DamagedCheckpoint,
    format_epochs,
    format_offsets,
    format_partition_metadata,
    parse_clean_shutdown,
    parse_epochs,
    parse_offsets,
    parse_partition_metadata,
)
from sparkraft.storage.disk import DirectoryLocked, StorageFault
from sparkraft.storage.epochs import LeaderEpochs
from sparkraft.storage.log_manager import LogManager
from sparkraft.storage.meta_properties import (
    BadMetaProperties,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from sparkraft.storage.names import marked_dir, parse_partition_dir
from tests.storage.worlds import (
    SMALL,
    START_MS,
    TOPIC_ID,
    HandClock,
    SeededDice,
    World,
    append,
    contents,
)

DIR_ONE, DIR_TWO = Uuid(b"directory-one--1"), Uuid(b"directory-two--2")


def manager(disk, *dirs):
    made = LogManager(disk, dirs or ["/logs"], SMALL, clock=HandClock(), entropy=SeededDice())
    made.lock()
    made.load()
    return made


def two_dirs():
    disk = MemoryDisk()
    for path, directory_id in (("/one", DIR_ONE), ("/two", DIR_TWO)):
        meta = MetaProperties(cluster_id="c", node_id=BrokerId(1), directory_id=directory_id)
        write_meta_properties(disk, path, meta)
    return disk, manager(disk, "/one", "/two")


def test_a_clean_stop_tells_the_next_run_its_broker_epoch_once():
    disk = MemoryDisk()
    manager(disk).close(broker_epoch=42)
    assert disk.read("/logs/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":42}'
    again = manager(disk)
    assert again.previous_broker_epoch == 42
    again.close(clean=False)
    assert manager(disk).previous_broker_epoch == -1


def test_a_directory_has_one_owner():
    disk = MemoryDisk()
    first = manager(disk)
    with pytest.raises(DirectoryLocked):
        manager(disk)
    first.close()
    manager(disk)


def test_high_watermarks_and_bounds_survive():
    world = World()
    log = world.log(flush_messages=1)
    for _ in range(30):
        append(log, bytes(100))
    log.set_high_watermark(20)
    log.delete_records_before(12)
    world.manager.checkpoint()
    world.reopen(clean=False)
    log = world.log()
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (12, 20, 30)
    assert log.topic_id == TOPIC_ID


def test_the_metadata_logs_recovery_point_is_checkpointed_beside_the_others():
    world = World()
    append(world.log(), b"a")
    (log_dir,) = world.manager.directories
    log_dir.metadata_recovery_point = lambda: 77
    world.manager.checkpoint()
    world.reopen(clean=False)
    (log_dir,) = world.manager.directories
    assert log_dir.metadata_recovery_point() == 77
    world.manager.checkpoint()
    world.reopen(clean=True)
    assert world.manager.directories[0].metadata_recovery_point() == 77


def test_a_log_that_ends_before_its_start_begins_afresh():
    world = World()
    append(world.log(), b"a")
    world.manager.close()
    world.disk.put("/logs/log-start-offset-checkpoint", format_offsets({("t", 0): 50}))
    log = world.open().log()
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    assert append(log, b"b").base_offset == 50


def test_logs_go_to_the_directory_named_or_to_the_emptiest():
    _, made = two_dirs()
    assert made.create("t", 0, TOPIC_ID, directory_id=DIR_TWO).log_dir == "/two"
    assert made.create("t", 1, TOPIC_ID).log_dir == "/one"
    assert made.create("t", 2, TOPIC_ID).log_dir == "/one"
    assert [made.create("t", index, TOPIC_ID).log_dir for index in (3, 4)] == ["/two", "/one"]


def test_a_failing_directory_takes_only_its_own_logs_along():
    disk, made = two_dirs()
    bad = made.create("t", 0, TOPIC_ID, directory_id=DIR_ONE)
    good = made.create("t", 1, TOPIC_ID, directory_id=DIR_TWO)
    disk.fail("append", path="/one/")
    with pytest.raises(StorageFault) as caught:
        append(bad, b"v")
    made.fail_directory(caught.value)
    assert made.is_offline("t", 0)
    assert not made.is_offline("t", 1)
    assert append(good, b"v").base_offset == 0
    assert [entry.online for entry in made.describe_dirs()] == [False, True]
    assert made.create("t", 2, TOPIC_ID, directory_id=DIR_ONE).log_dir == "/two"


def test_without_a_usable_directory_there_is_no_start():
    disk = MemoryDisk()
    disk.fail("mkdir", times=9)
    with pytest.raises(StorageFault):
        manager(disk)


def test_deletion_renames_at_once_and_removes_later():
    world = World(config=replace(SMALL, file_delete_delay_ms=1000))
    log = world.log()
    append(log, b"a")
    world.manager.delete("t", 0)
    assert world.manager.get("t", 0) is None
    assert all(
        path.split("/")[2].endswith("-delete") for path in world.disk.files() if "t-0" in path
    )
    with pytest.raises(KafkaError) as caught:
        append(log, b"b")
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert world.log().log_end_offset == 0, "a new incarnation may begin at once"
    world.manager.empty_trash(START_MS + 999)
    assert any("-delete" in path for path in world.disk.files())
    world.manager.empty_trash(START_MS + 1000)
    assert not any("-delete" in path for path in world.disk.files())


def test_an_interrupted_deletion_is_finished_at_the_next_start():
    world = World(config=replace(SMALL, file_delete_delay_ms=1000))
    append(world.log(), b"a")
    world.manager.delete("t", 0)
    world.reopen(clean=False)
    assert not any("-delete" in path for path in world.disk.files())
    assert world.manager.get("t", 0) is None


def test_a_stray_log_is_put_aside_and_kept():
    world = World()
    append(world.log(), b"a")
    world.manager.mark_stray("t", 0)
    world.reopen()
    assert world.manager.get("t", 0) is None
    assert [path for path in world.disk.files() if "-stray/" in path and path.endswith(".log")]


def test_files_that_are_no_logs_are_left_alone():
    world = World()
    append(world.log(), b"a")
    world.manager.close()
    for path in ("/logs/notes.txt", "/logs/lost+found/x", "/logs/__cluster_metadata-0/y"):
        world.disk.mkdir(path.rpartition("/")[0])
        world.disk.put(path, b"mine")
    world.open()
    assert [log.name for log in world.manager.logs()] == ["t-0"]
    assert world.disk.read("/logs/notes.txt") == b"mine"


def test_one_partition_in_two_directories_is_an_error():
    disk, made = two_dirs()
    made.create("t", 0, TOPIC_ID, directory_id=DIR_ONE)
    made.close()
    disk.mkdir("/two/t-0")
    again = manager(disk, "/one", "/two")
    assert [log_dir.path for log_dir in again.offline_directories] == ["/two"]


def test_a_half_finished_compaction_of_kafka_is_finished():
    world = World()
    log = world.log()
    for _ in range(40):
        append(log, bytes(50))
    assert log.segment_count > 3
    before = contents(log)
    world.manager.close()
    first, second = log.segment_base_offsets[:2]
    both = b""
    for base in (first, second):
        both += world.disk.read(f"/logs/t-0/{base:020d}.log")
    world.disk.put(f"/logs/t-0/{first:020d}.log.swap", both)
    world.disk.put(f"/logs/t-0/{log.segment_base_offsets[2]:020d}.log.cleaned", b"unfinished")
    log = world.open().log()
    assert contents(log) == before
    assert second not in log.segment_base_offsets
    assert not any(path.endswith((".swap", ".cleaned")) for path in world.disk.files())


def test_topic_configs_become_settings_once():
    made = manager(MemoryDisk())
    values = {
        "cleanup.policy": ("compact", "delete"),
        "compression.type": "zstd",
        "compression.zstd.level": 7,
        "segment.bytes": 5000,
        "segment.ms": 1,
        "segment.jitter.ms": 2,
        "segment.index.bytes": 3,
        "index.interval.bytes": 4,
        "flush.messages": 5,
        "flush.ms": 6,
        "retention.bytes": 7,
        "retention.ms": 8,
        "file.delete.delay.ms": 9,
        "max.message.bytes": 10,
        "message.timestamp.type": "LogAppendTime",
        "message.timestamp.before.max.ms": 11,
        "message.timestamp.after.max.ms": 12,
    }
    config = made.log_config(values)
    assert config is made.log_config(dict(values))
    assert (config.compression, config.compression_level) == (Codec.ZSTD, 7)
    assert config.compact
    assert config.delete
    assert config.rules.compacted
    assert config.rules.log_append_time
    assert made.log_config(values | {"compression.type": "producer"}).compression is None


# -- small files ---------------------------------------------------------------------------------

topics = st.from_regex(r"[a-z._-]{1,20}", fullmatch=True)


@given(st.dictionaries(st.tuples(topics, st.integers(0, 999)), st.integers(0, 1 << 62)))
def test_offset_checkpoints_round_trip(offsets):
    assert parse_offsets(format_offsets(offsets)) == offsets


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 1 << 62))))
def test_epoch_checkpoints_round_trip(epochs):
    assert parse_epochs(format_epochs(epochs)) == epochs


@given(st.binary(max_size=80))
def test_garbage_is_a_damaged_checkpoint(data):
    for parse in (parse_offsets, parse_epochs, parse_partition_metadata):
        try:
            parse(data)
        except DamagedCheckpoint:
            continue
    assert isinstance(parse_clean_shutdown(data), int)


def test_checkpoints_have_kafkas_bytes():
    assert format_offsets({("b", 1): 5, ("a", 0): 3}) == b"0\n2\na 0 3\nb 1 5\n"
    assert format_epochs([(1, 0), (4, 20)]) == b"0\n2\n1 0\n4 20\n"
    data = format_partition_metadata(TOPIC_ID)
    assert data == f"version: 0\ntopic_id: {TOPIC_ID}".encode()
    assert parse_partition_metadata(data) == TOPIC_ID


def test_a_promised_line_that_is_missing_is_damage():
    for data in (b"0\n2\na 0 3\n", b"0\n0\na 0 3\n", b"0\n-1\n", b"0\n1\na 0\n"):
        with pytest.raises(DamagedCheckpoint):
            parse_offsets(data)


def test_meta_properties_round_trip_and_read_javas_form():
    disk = MemoryDisk()
    meta = MetaProperties(cluster_id="abc", node_id=BrokerId(3), directory_id=DIR_ONE)
    write_meta_properties(disk, "/logs", meta)
    assert read_meta_properties(disk, "/logs") == meta
    fields = f"cluster.id=abc\ndirectory.id={DIR_ONE}\nnode.id=3\nversion=1\n"
    java = f"#\n#Fri Nov 20 20:00:00 UTC 2026\n{fields}"
    assert MetaProperties.parse(java.encode()) == meta
    assert read_meta_properties(disk, "/other") is None
    old = MetaProperties.parse(b"version=0\nbroker.id=5\n")
    assert (old.node_id, old.cluster_id, old.directory_id) == (5, "", None)


@pytest.mark.parametrize(
    "data",
    [b"", b"version=1\n", b"version=7\nnode.id=1\n", b"version=1\ncluster.id=a\nnode.id=x\n"],
)
def test_bad_meta_properties_say_what_is_wrong(data):
    with pytest.raises(BadMetaProperties, match=r"meta\.properties"):
        MetaProperties.parse(data)


@given(topics, st.integers(0, 99999))
def test_directory_names_round_trip(topic, partition):
    parsed = parse_partition_dir(f"{topic}-{partition}")
    assert parsed == (topic, partition, "")
    marked = parse_partition_dir(marked_dir(topic, partition, bytes(16), "-delete"))
    assert marked == (topic, partition, "-delete")


def test_long_topic_names_are_cut_where_a_mark_is_added():
    name = marked_dir("t" * 249, 12, bytes(16), "-delete")
    assert len(name) == 255
    assert parse_partition_dir(name).mark == "-delete"


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50)), max_size=12),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_epochs_and_starts_always_rise(entries, low, high):
    epochs = LeaderEpochs(entries)
    epochs.truncate_from_end(high)
    epochs.truncate_from_start(low)
    found = epochs.entries
    assert found == sorted(found)
    assert len({start for _, start in found}) == len(found) == len({epoch for epoch, _ in found})
