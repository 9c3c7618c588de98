"""A node's log directories: start, stop, create, delete, checkpoints, identities."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import BrokerId, Uuid
from sparkraft.records.compression import Codec
from sparkraft.simulation.world.memory_disk import MemoryDisk
from sparkraft.storage.checkpoints import (
    DamagedCheckpoint,
    format_epochs,
    format_offsets,
    format_partition_metadata,
    parse_clean_shutdown,
    parse_epochs,
    parse_offsets,
    parse_partition_metadata,
    read_offsets,
)
from sparkraft.storage.disk import DirectoryLocked, OsDisk, StorageFault
from sparkraft.storage.epochs import LeaderEpochs
from sparkraft.storage.loading import LoadOptions
from sparkraft.storage.log_manager import LogManager
from sparkraft.storage.meta_properties import (
    BadMetaProperties,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from sparkraft.storage.names import marked_dir, parse_partition_dir
from tests.storage.worlds import (
    LOG_DIR,
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
    assert made.get_or_create("t", 0, TOPIC_ID, directory_id=DIR_TWO).log_dir == "/two"
    assert made.get_or_create("t", 1, TOPIC_ID).log_dir == "/one"
    assert made.get_or_create("t", 2, TOPIC_ID).log_dir == "/one"
    assert [made.get_or_create("t", index, TOPIC_ID).log_dir for index in (3, 4)] == [
        "/two",
        "/one",
    ]


def test_a_failing_directory_takes_only_its_own_logs_along():
    disk, made = two_dirs()
    bad = made.get_or_create("t", 0, TOPIC_ID, directory_id=DIR_ONE)
    good = made.get_or_create("t", 1, TOPIC_ID, directory_id=DIR_TWO)
    disk.fail("append", path="/one/")
    with pytest.raises(StorageFault) as caught:
        append(bad, b"v")
    made.fail_directory(caught.value)
    assert made.is_offline("t", 0)
    assert not made.is_offline("t", 1)
    assert append(good, b"v").base_offset == 0
    assert [entry.online for entry in made.describe_dirs()] == [False, True]
    with pytest.raises(KafkaError) as refused:
        made.get_or_create("t", 0, TOPIC_ID, directory_id=DIR_ONE)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_log_is_not_made_anew_while_it_may_lie_in_a_directory_that_is_offline():
    disk, made = two_dirs()
    made.fail_directory(StorageFault("/one", "test", "broken"))
    unassigned = Uuid((1).to_bytes(16, "big"))
    assert made.get_or_create("t", 0, TOPIC_ID, directory_id=unassigned).log_dir == "/two"
    assert made.get_or_create("t", 1, TOPIC_ID, directory_id=DIR_TWO).log_dir == "/two"
    assert made.get_or_create("t", 2, TOPIC_ID).log_dir == "/two"
    with pytest.raises(KafkaError) as refused:
        made.get_or_create("t", 3, TOPIC_ID, directory_id=DIR_ONE)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert [name for name in disk.listdir("/two") if name == "t-3"] == []


def test_a_log_of_a_directory_that_is_gone_for_good_is_made_in_another():
    """No directory is offline: an operator has taken that one out of the configuration."""
    _, made = two_dirs()
    gone = Uuid(b"directory-gone-3")
    assert made.get_or_create("t", 0, TOPIC_ID, directory_id=gone).log_dir == "/one"


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
    world.manager.removal.empty_trash(START_MS + 999)
    assert any("-delete" in path for path in world.disk.files())
    world.manager.removal.empty_trash(START_MS + 1000)
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
    world.manager.dirs.carry_out(world.manager.mark_stray("t", 0))
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


def test_of_one_partition_in_two_directories_the_log_that_went_further_stays():
    disk, made = two_dirs()
    append(made.get_or_create("t", 0, TOPIC_ID, directory_id=DIR_ONE), b"old", epoch=3)
    made.close()
    disk.mkdir("/two/t-0")
    for path in [path for path in disk.files() if path.startswith("/one/t-0/")]:
        disk.put(path.replace("/one/", "/two/"), disk.read(path))
    made = manager(disk, "/two")
    append(made.get("t", 0), b"new", epoch=4)
    made.close()
    again = manager(disk, "/one", "/two")
    assert again.offline_directories == []
    assert again.get("t", 0).log_dir == "/two"
    assert contents(again.get("t", 0)) == [(0, b"old"), (1, b"new")]
    (stray,) = [name for name in disk.listdir("/one") if name.endswith("-stray")]
    assert disk.size(f"/one/{stray}/00000000000000000000.log") > 0


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
        "delete.retention.ms": 13,
        "min.cleanable.dirty.ratio": 0.25,
        "min.compaction.lag.ms": 14,
        "max.compaction.lag.ms": 15,
    }
    config = made.log_config(values)
    assert config is made.log_config(dict(values))
    assert (config.compression, config.compression_level) == (Codec.ZSTD, 7)
    assert config.compact
    assert config.delete
    assert config.rules.compacted
    assert (config.delete_retention_ms, config.min_cleanable_dirty_ratio) == (13, 0.25)
    assert (config.min_compaction_lag_ms, config.max_compaction_lag_ms) == (14, 15)
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


def test_an_fsync_that_meets_a_deletion_is_no_failure_of_the_disk():
    """It runs in another thread, and finds the files of its log renamed."""
    world = World()
    log = world.log()
    append(log, b"a")
    sync = world.disk.fsync

    def delete_then_sync(path):
        if world.manager.get("t", 0) is log:
            world.manager.delete("t", 0)
        sync(path)

    world.disk.fsync = delete_then_sync
    with pytest.raises(KafkaError) as refused:
        log.flush()
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.manager.offline_directories == []


# -- checkpoints that outlive what they speak of ---------------------------------------------------


def points_of(disk):
    return read_offsets(disk, f"{LOG_DIR}/recovery-point-offset-checkpoint")


def test_a_truncation_takes_the_recovery_point_back_before_the_log_goes_on():
    """A torn write behind it would else be damage below the recovery point."""
    world = World()
    log = world.log()
    for _ in range(10):
        append(log, b"v" * 50)
    log.flush()
    world.manager.checkpoint()
    assert points_of(world.disk) == {("t", 0): 10}
    log.truncate_to(4)
    assert points_of(world.disk) == {("t", 0): 4}
    append(log, b"w" * 50)
    count = len(world.disk.journal)
    append(log, b"x" * 50)
    again = World(world.disk.killed_at(count, 20))
    assert not again.manager.damaged
    assert [value for _, value in contents(again.log())] == [b"v" * 50] * 4 + [b"w" * 50]


def test_a_log_that_starts_over_forgets_where_it_was():
    world = World()
    log = world.log()
    for _ in range(10):
        append(log, b"v")
    log.set_high_watermark(10)
    log.delete_records_before(7)
    log.flush()
    world.manager.checkpoint()
    world.manager.directories[0].cleaned["t", 0] = 9
    log.truncate_fully_and_start_at(3)
    assert points_of(world.disk) == {("t", 0): 3}
    # It has no file yet that could say so.
    assert read_offsets(world.disk, f"{LOG_DIR}/log-start-offset-checkpoint") == {("t", 0): 3}
    assert world.manager.directories[0].cleaned == {("t", 0): 3}


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_retention_emptied_goes_on_where_it_ended(*, clean: bool):
    world = World()
    log = world.log(retention_ms=1000)
    for _ in range(10):
        append(log, b"v")
    log.set_high_watermark(10)
    log.flush()
    world.clock.now_ms += 5000
    assert world.manager.removal.retention(world.clock.now_ms) == 1
    assert (log.log_start_offset, log.log_end_offset) == (10, 10)
    world.manager.checkpoint()
    world.reopen(clean=clean)
    log = world.log()
    assert (log.log_start_offset, log.log_end_offset) == (10, 10)
    assert append(log, b"w").base_offset == 10


def test_a_topic_id_that_a_power_loss_took_is_written_again():
    world = World()
    world.log()
    world.manager.close(clean=False)
    world.disk.put(f"{LOG_DIR}/t-0/partition.metadata", b"\0" * 43)
    log = world.open().log()
    assert log.topic_id == TOPIC_ID
    append(log, b"v")
    log.flush()
    world.reopen(clean=True)
    assert not world.manager.damaged
    assert world.manager.get("t", 0).topic_id == TOPIC_ID


def test_a_topic_id_that_a_power_loss_took_may_stay_unknown_until_a_clean_stop():
    """The broker may stop before it learns which partitions it hosts."""
    world = World()
    append(world.log(), b"v")
    world.manager.close(clean=False)
    world.disk.put(f"{LOG_DIR}/t-0/partition.metadata", b"")
    world.open()
    world.reopen(clean=True)
    assert not world.manager.damaged
    log = world.log()
    assert (log.topic_id, log.log_end_offset) == (TOPIC_ID, 1)


def test_deleted_records_stay_deleted_after_a_kill():
    world = World()
    log = world.log()
    for _ in range(10):
        append(log, b"v")
    log.set_high_watermark(10)
    log.delete_records_before(7)
    world.keep_log_starts()
    entries = len(world.disk.journal)
    world.keep_log_starts()
    assert len(world.disk.journal) == entries, "nothing moved: nothing is written"
    assert World(world.disk.killed_at(entries)).log().log_start_offset == 7


def test_an_emptied_log_claims_no_older_epoch_after_a_kill():
    """A leader would tell it where that one ended, which is below its own start."""
    world = World()
    log = world.log(retention_ms=1)
    append(log, b"v", epoch=4)
    log.flush()
    append(log, b"v", epoch=5)
    log.set_high_watermark(2)
    assert log.apply_retention(START_MS * 2, world.keep_log_starts) > 0
    assert log.leader_epochs == [(5, 2)]
    again = World(world.disk.killed_at(len(world.disk.journal))).log()
    assert (again.log_start_offset, again.log_end_offset) == (2, 2)
    assert again.leader_epochs == [], "of what is not there it need not know the epoch"


def test_damage_shows_at_every_start_until_somebody_repairs_it():
    """The checkpoints keep what they said of it: else damage would look like a torn tail."""
    world = World()
    log = world.log()
    for _ in range(10):
        append(log, b"v" * 50)
    log.set_high_watermark(10)
    log.delete_records_before(2)
    log.flush()
    world.manager.checkpoint()
    world.manager.close(clean=False)
    path = log.segments[0].log_path
    data = bytearray(world.disk.files()[path])
    data[-60] ^= 1
    world.disk.put(path, bytes(data))
    for _ in range(3):
        world.open()
        assert list(world.manager.damaged) == [("t", 0)]
        world.manager.checkpoint()
        assert points_of(world.disk)["t", 0] == 10
        world.manager.close(clean=False)
        assert world.disk.files()[path] == bytes(data)


# -- loading ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 3])
def test_logs_are_recovered_side_by_side_and_each_is_told_of(tmp_path, threads):
    clock = HandClock()
    disk = OsDisk(open_files_max=4)

    def manager():
        return LogManager(disk, [str(tmp_path)], SMALL, clock=clock, entropy=SeededDice())

    first = manager()
    first.load()
    for partition in range(12):
        for index in range(30):
            append(first.get_or_create("t", partition, TOPIC_ID), b"%d-%d" % (partition, index))
    first.close(clean=False)
    told = []
    with ThreadPoolExecutor(8) as executor:

        def run_all(works):
            for running in [executor.submit(work) for work in works]:
                running.result()

        again = manager()
        again.load(options=LoadOptions(threads=threads, run_all=run_all, progress=told.append))
    assert sorted(each.name for each in told) == sorted(f"t-{n}" for n in range(12))
    assert max(each.done for each in told) == 12
    assert {each.total for each in told} == {12}
    for log in again.logs():
        expected = [(n, b"%d-%d" % (log.partition, n)) for n in range(30)]
        assert contents(log) == expected
    append(again.get("t", 3), b"more")
    assert again.get("t", 3).read(30, max_bytes=1, up_to=31).size > 0
    again.close()


def test_a_disk_that_fails_while_logs_are_recovered_takes_the_directory_offline():
    world = World()
    for partition in range(3):
        append(world.log("t", partition), b"v")
    world.manager.close(clean=False)
    world.disk.fail("pread", path="t-1/")
    manager = LogManager(world.disk, [LOG_DIR], SMALL, clock=world.clock, entropy=SeededDice())
    with pytest.raises(StorageFault):
        manager.load()
    assert manager.offline_directories


def test_closed_segments_are_to_be_synced():
    world = World()
    log = world.log()
    while log.segment_count < 3:
        append(log, b"v" * 100)
    ((found, up_to),) = world.manager.rolled()
    assert (found, up_to) == (log, log.segment_base_offsets[-1])
    log.flush(up_to)
    assert log.recovery_point == up_to
    assert world.manager.rolled() == []
