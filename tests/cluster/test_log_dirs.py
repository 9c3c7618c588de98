"""Two log directories a node: replicas move between them, and outlive the failure of one."""

import errno
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.leadership import LeadershipAdmin
from sparkraft.client.values import ConfigOperation, LogDir, ResourceType
from tests.cluster.conftest import STEADY
from tests.support.clusters import Cluster, Member, SparkraftMember
from tests.support.failing_disk import FailingDisk
from tests.support.outside_tools import Missing
from tests.support.ports import wait_until
from tests.support.replicas import (
    is_subsequence,
    log_folders,
    partition_of,
    read_partition,
    records_produced_throughout,
    until_equal,
    until_in_sync,
    until_read,
)

pytestmark = pytest.mark.real_clients

IDS = (1, 2, 3)


class TwoDirsMember(SparkraftMember):
    """A node with the directories `data/a`, which has the metadata too, and `data/b`."""

    def write_properties(self) -> None:
        self.overrides["log.dirs"] = f"{self.log_dir}/a,{self.log_dir}/b"
        super().write_properties()


class TwoDirsCluster(Cluster):
    kinds = {"sparkraft": TwoDirsMember}  # noqa: RUF012


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> dict[int, FailingDisk]:
    made = {}
    for node in IDS:
        disk = FailingDisk.in_folder(tmp_path_factory.mktemp(f"disk-{node}"))
        if isinstance(disk, Missing):
            pytest.skip(str(disk))
        made[node] = disk
    return made


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, disks: dict[int, FailingDisk]
) -> Iterator[Cluster]:
    overrides = {**STEADY, "min.insync.replicas": "2", "default.replication.factor": "3"}
    made = TwoDirsCluster(
        tmp_path_factory.mktemp("dirs"), [Member(n) for n in IDS], overrides=overrides
    )
    for node, disk in disks.items():
        made.nodes[node].environment = disk.environment
    with made:
        yield made


def directory(cluster: Cluster, node: int, name: str) -> str:
    return f"{cluster.nodes[node].log_dir}/{name}"


def dirs_of(cluster: Cluster, node: int) -> dict[str, LogDir]:
    """By the last part of their paths."""

    async def work(admin: Admin) -> dict[str, LogDir]:
        found = (await admin.describe_log_dirs([node]))[node]
        if isinstance(found, KafkaError):
            raise found
        return {Path(each.path).name: each for each in found}

    return cluster.ask(work)


def places(cluster: Cluster, node: int, topic: str, partition: int) -> list[tuple[str, bool]]:
    """(directory, is a copy) of a replica."""
    return [
        (name, replica.is_future)
        for name, each in sorted(dirs_of(cluster, node).items())
        for replica in each.replicas
        if (replica.topic, replica.partition) == (topic, partition)
    ]


def move(cluster: Cluster, node: int, topic: str, partition: int, path: str) -> ErrorCode:
    async def work(admin: Admin) -> ErrorCode:
        asked = ((topic, partition), node)
        return (await LeadershipAdmin(admin.cluster).move_replicas({asked: path}))[asked]

    return cluster.ask(work)


def other(name: str) -> str:
    return "b" if name == "a" else "a"


def test_replicas_of_a_topic_spread_over_the_directories(cluster: Cluster) -> None:
    cluster.create_topic("spread", partitions=6, replicas=3)
    until_in_sync(cluster, "spread", 6, 3)
    for node in IDS:
        where = [places(cluster, node, "spread", index) for index in range(6)]
        assert sorted(name for ((name, _),) in where) == ["a", "a", "a", "b", "b", "b"]


def test_moving_replicas_under_load_keeps_every_record(cluster: Cluster) -> None:
    """A leader's and a follower's replica, there and back, while a producer never stops."""
    cluster.create_topic("moved", partitions=1, replicas=3)
    until_in_sync(cluster, "moved", 1, 3)
    leader = partition_of(cluster, "moved").leader
    follower = next(n for n in IDS if n != leader)
    with records_produced_throughout(cluster, "moved", 1) as stream:
        stream.goes_on(2_000)
        for node in (leader, follower, leader, follower):
            ((before, _),) = places(cluster, node, "moved", 0)
            target = other(before)
            assert move(cluster, node, "moved", 0, directory(cluster, node, target)) is (
                ErrorCode.NONE
            )
            wait_until(
                lambda n=node, t=target: places(cluster, n, "moved", 0) == [(t, False)],
                f"the replica of node {node} is in {target}",
                90,
            )
            stream.goes_on(500)
        sent = stream.stop()[0]
        assert not stream.failures
    until_equal(cluster, "moved", 0, list(IDS))
    until_read(cluster, "moved", 0, sent)
    assert partition_of(cluster, "moved").leader == leader, "moving a replica elects nobody"
    for node in (leader, follower):
        assert len(log_folders(cluster.nodes[node], "moved", 0)) == 1


def slow_down(cluster: Cluster, bytes_per_second: int | None) -> None:
    """Copies between directories take their time, or as little as they can."""
    operation = ConfigOperation.DELETE if bytes_per_second is None else ConfigOperation.SET

    async def work(admin: Admin) -> None:
        resource = (ResourceType.BROKER, "")
        value = None if bytes_per_second is None else str(bytes_per_second)
        changes = {resource: [(RATE, operation, value)]}
        refused = (await admin.alter_configs(changes))[resource]
        assert refused is None, refused

    cluster.ask(work)
    slow = bytes_per_second is not None
    for node in cluster.serving:
        wait_until(lambda n=node: is_slow(cluster, n) == slow, f"node {node} has heard")


RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


def is_slow(cluster: Cluster, node: int) -> bool:
    """Whether a node knows of a rate for copies."""

    async def work(admin: Admin) -> bool:
        resource = (ResourceType.BROKER, str(node))
        entries = (await admin.describe_configs([resource]))[resource]
        assert not isinstance(entries, KafkaError), entries
        return RATE in {entry.name for entry in entries}

    return cluster.ask(work)


@pytest.fixture
def half_moved(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[tuple[str, int, str]]:
    """A topic, a node and the directory its replica leaves, with a copy that has begun."""
    topic = f"half-{request.node.name.removeprefix('test_')[:30]}"
    cluster.create_topic(topic, partitions=1, replicas=3)
    until_in_sync(cluster, topic, 1, 3)
    with records_produced_throughout(cluster, topic, 1) as stream:
        stream.goes_on(40_000)
    until_equal(cluster, topic, 0, list(IDS))
    node = partition_of(cluster, topic).leader
    before = "a"
    move(cluster, node, topic, 0, directory(cluster, node, before))
    wait_until(lambda: places(cluster, node, topic, 0) == [(before, False)], "it is in a", 90)
    # The copy takes longer than a machine with other work needs to see it.
    slow_down(cluster, 200_000)
    try:
        wait_until(
            lambda: (
                move(cluster, node, topic, 0, directory(cluster, node, other(before)))
                is ErrorCode.NONE
            ),
            "the move begins",
        )
        both = sorted([(before, False), (other(before), True)])
        wait_until(lambda: places(cluster, node, topic, 0) == both, "the copy is there")
        yield topic, node, before
    finally:
        slow_down(cluster, None)


def test_a_node_killed_while_a_replica_moves_goes_on_with_it(
    cluster: Cluster, half_moved: tuple[str, int, str]
) -> None:
    topic, node, before = half_moved
    cluster.kill(node)
    slow_down(cluster, None)
    cluster.start([node])
    until_in_sync(cluster, topic, 1, 3)
    wait_until(lambda: places(cluster, node, topic, 0) == [(other(before), False)], "it moved", 90)
    until_equal(cluster, topic, 0, list(IDS))
    said = cluster.nodes[node].output_path.read_text().splitlines()
    begun = [line for line in said if f"Moving {topic}-0 from " in line and "data/b (" in line]
    assert len(begun) == 2, "before the kill and after it"


def test_a_move_is_taken_back_by_moving_to_where_the_replica_is(
    cluster: Cluster, half_moved: tuple[str, int, str]
) -> None:
    topic, node, before = half_moved
    assert move(cluster, node, topic, 0, directory(cluster, node, before)) is ErrorCode.NONE
    assert places(cluster, node, topic, 0) == [(before, False)]
    assert f"Abandoned the move of {topic}-0" in cluster.nodes[node].output_path.read_text()
    until_equal(cluster, topic, 0, list(IDS))


def test_a_topic_deleted_while_it_moves_leaves_nothing(
    cluster: Cluster, half_moved: tuple[str, int, str]
) -> None:
    topic, node, _ = half_moved
    cluster.ask(lambda admin: admin.delete_topics([topic]))
    wait_until(lambda: places(cluster, node, topic, 0) == [], "it is gone")
    wait_until(lambda: log_folders(cluster.nodes[node], topic, 0) == [], "and its folders")


def test_the_directory_a_replica_moves_to_fails_and_the_replica_stays(
    cluster: Cluster, half_moved: tuple[str, int, str], disks: dict[int, FailingDisk]
) -> None:
    topic, node, before = half_moved
    with records_produced_throughout(cluster, topic, 1) as stream:
        stream.goes_on(500)
        disks[node].fail("write", errno.EIO, f"{cluster.nodes[node].log_dir}/b/")
        told = f"Abandoned the move of {topic}-0: its new directory failed"
        wait_until(lambda: told in cluster.nodes[node].output_path.read_text(), told, 90)
        stream.goes_on(500)
        assert not stream.failures
    assert places(cluster, node, topic, 0) == [(before, False)]
    assert partition_of(cluster, topic).leader == node
    disks[node].heal()
    cluster.stop(node)
    cluster.start([node])
    until_in_sync(cluster, topic, 1, 3)
    assert places(cluster, node, topic, 0)[0] == (before, False)
    until_equal(cluster, topic, 0, list(IDS))


def test_the_controller_learns_where_a_replica_went(cluster: Cluster) -> None:
    """So a restart finds the replica where it is, and the old directory's failure is no loss."""
    cluster.create_topic("known", partitions=1, replicas=3)
    until_in_sync(cluster, "known", 1, 3)
    node = partition_of(cluster, "known").leader
    ((before, _),) = places(cluster, node, "known", 0)
    move(cluster, node, "known", 0, directory(cluster, node, other(before)))
    wait_until(
        lambda: places(cluster, node, "known", 0) == [(other(before), False)], "it moved", 90
    )
    with records_produced_throughout(cluster, "known", 1) as stream:
        stream.goes_on(200)
    cluster.stop(node)
    cluster.start([node])
    until_in_sync(cluster, "known", 1, 3)
    assert places(cluster, node, "known", 0) == [(other(before), False)]
    until_read(cluster, "known", 0, stream.acknowledged[0])


@pytest.mark.parametrize(
    ("topic", "path", "code"),
    [
        ("refused", "/no/such/dir", ErrorCode.LOG_DIR_NOT_FOUND),
        ("nobody", "a", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("x" * 249, "a", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_moves_that_are_refused(cluster: Cluster, topic: str, path: str, code: ErrorCode) -> None:
    if "refused" not in cluster.topics():
        cluster.create_topic("refused", partitions=1, replicas=3)
    target = path if path.startswith("/") else directory(cluster, 1, path)
    assert move(cluster, 1, topic, 0, target) is code


def test_a_move_to_where_the_replica_is_changes_nothing(cluster: Cluster) -> None:
    cluster.create_topic("stays", partitions=1, replicas=3)
    until_in_sync(cluster, "stays", 1, 3)
    ((name, _),) = places(cluster, 1, "stays", 0)
    assert move(cluster, 1, "stays", 0, directory(cluster, 1, name)) is ErrorCode.NONE
    assert places(cluster, 1, "stays", 0) == [(name, False)]


def test_the_failure_of_one_directory_takes_only_its_replicas_along(
    cluster: Cluster, disks: dict[int, FailingDisk]
) -> None:
    """Leaderships that lay there move, the rest goes on; a restart with a whole disk heals it."""
    cluster.create_topic("outlives", partitions=4, replicas=3)
    until_in_sync(cluster, "outlives", 4, 3)
    node = partition_of(cluster, "outlives").leader
    lost = [p for p in range(4) if places(cluster, node, "outlives", p) == [("b", False)]]
    kept = [p for p in range(4) if p not in lost]
    assert lost
    assert kept
    with records_produced_throughout(cluster, "outlives", 4) as stream:
        stream.goes_on(1_000)
        disks[node].fail("write", errno.EIO, f"{cluster.nodes[node].log_dir}/b/")
        wait_until(
            lambda: all(
                node not in partition_of(cluster, "outlives", p).isr
                and partition_of(cluster, "outlives", p).leader >= 0
                for p in lost
            ),
            "others lead and follow what lay in the failed directory",
            90,
        )
        stream.goes_on(1_000)
        found = dirs_of(cluster, node)
        assert found["b"].error is ErrorCode.KAFKA_STORAGE_ERROR
        assert found["a"].error is ErrorCode.NONE
        for partition in kept:
            assert node in partition_of(cluster, "outlives", partition).isr
        disks[node].heal()
        cluster.stop(node)
        cluster.start([node])
        until_in_sync(cluster, "outlives", 4, 3)
        stream.goes_on(500)
        sent = stream.stop()
        assert not stream.failures
    for partition in range(4):
        until_equal(cluster, "outlives", partition, list(IDS))
        found_records = read_partition(cluster.bootstrap, "outlives", partition)
        assert is_subsequence(sent[partition], found_records)
        assert len(found_records) == len(sent[partition])


def cordon(cluster: Cluster, node: int, paths: str | None) -> None:
    operation = ConfigOperation.DELETE if paths is None else ConfigOperation.SET

    async def work(admin: Admin) -> None:
        resource = (ResourceType.BROKER, str(node))
        changes = {resource: [("cordoned.log.dirs", operation, paths)]}
        refused = (await admin.alter_configs(changes))[resource]
        assert refused is None, refused

    cluster.ask(work)


def test_a_cordoned_directory_gets_no_new_replicas(cluster: Cluster) -> None:
    """What lies there stays; moving something in is refused (KIP-1066)."""
    cluster.create_topic("before", partitions=4, replicas=3)
    until_in_sync(cluster, "before", 4, 3)
    before = {p: places(cluster, 1, "before", p) for p in range(4)}
    moving = next(p for p in range(4) if before[p] == [("a", False)])
    cordon(cluster, 1, directory(cluster, 1, "b"))
    try:
        # Asked for what isn't there, nothing moves where the broker doesn't know yet.
        wait_until(
            lambda: (
                move(cluster, 1, "nobody", 0, directory(cluster, 1, "b"))
                is ErrorCode.INVALID_REPLICA_ASSIGNMENT
            ),
            "the broker knows",
        )
        refused = move(cluster, 1, "before", moving, directory(cluster, 1, "b"))
        assert refused is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        cluster.create_topic("after", partitions=4, replicas=3)
        until_in_sync(cluster, "after", 4, 3)
        assert all(places(cluster, 1, "after", p) == [("a", False)] for p in range(4))
        assert {p: places(cluster, 1, "before", p) for p in range(4)} == before
    finally:
        cordon(cluster, 1, None)


def test_a_broker_whose_directories_are_all_cordoned_gets_no_replicas(cluster: Cluster) -> None:
    cordon(cluster, 2, "*")
    try:

        def avoided() -> bool:
            name = f"avoids-{time.monotonic_ns()}"
            cluster.create_topic(name, partitions=3, replicas=2)
            found = [partition_of(cluster, name, p).replicas for p in range(3)]
            return all(2 not in replicas for replicas in found)

        wait_until(avoided, "the controller places nothing on node 2")
    finally:
        cordon(cluster, 2, None)


def test_a_broker_that_can_tell_nobody_of_a_failed_directory_stops(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The controller would let it lead what it can't read (log.dir.failure.timeout.ms)."""
    disk = FailingDisk.in_folder(tmp_path_factory.mktemp("disk"))
    if isinstance(disk, Missing):
        pytest.skip(str(disk))
    made = TwoDirsCluster(
        tmp_path_factory.mktemp("untold"),
        [Member(9, roles="controller"), Member(1, roles="broker")],
        overrides={**STEADY, "log.dir.failure.timeout.ms": "1000"},
    )
    made.nodes[1].environment = disk.environment
    with made as cluster:
        cluster.create_topic("read", partitions=2)
        cluster.kill(9)
        disk.fail("write", errno.EIO, f"{cluster.nodes[1].log_dir}/b/")
        with records_produced_throughout(cluster, "read", 2, acks="1") as stream:
            assert cluster.nodes[1].wait(seconds=150) == 1
            stream.abandon()
        said = cluster.nodes[1].output_path.read_text()
        assert "report a failed log directory to the controller" in said
