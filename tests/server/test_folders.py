"""Folders of partitions are made and renamed by threads: what clients and newer images see."""

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.messages.k03_metadata import MetadataRequest
from sparkraft.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from sparkraft.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.server.harness import (
    FaultyDisk,
    append,
    batch,
    config_of,
    connect,
    create_topic,
    format_dir,
    make_env,
    node_in,
    run,
    running,
    until,
)


class SlowDisk(FaultyDisk):
    """Holds the disk's threads at the first matching operation until the test lets them continue.

    An operation on a folder of a partition that runs on the loop's thread fails the test.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.released = threading.Event()
        self.held: tuple[str, str] | None = None
        self.on_the_loop: list[str] = []
        self.is_watched = False
        self._loop_thread = threading.get_ident()
        self.fault = self._on_operation

    def _on_operation(self, operation: str, path: str) -> int:
        if operation not in {"mkdir", "move", "fsync_dir"}:
            return 0
        if self.is_watched and threading.get_ident() == self._loop_thread:
            self.on_the_loop.append(f"{operation} {path}")
        if self.held is not None and operation == self.held[0] and self.held[1] in path:
            self.held = None
            self.reached.set()
            self.released.wait(60)
        return 0

    @contextmanager
    def hold(self, operation: str, path: str) -> Iterator[None]:
        self.reached.clear()
        self.released.clear()
        self.held = operation, path
        try:
            yield
        finally:
            self.released.set()

    async def until_reached(self) -> None:
        await until(self.reached.is_set)


async def create(connection: Any, name: str, partitions: int = 1) -> Any:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    answer = await connection.send(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    assert answer.topics[0].error_code == 0, answer
    return answer.topics[0].topic_id


async def delete(connection: Any, *names: str) -> None:
    states = [DeleteTopicState(name=name) for name in names]
    answer = await connection.send(DeleteTopicsRequest(topics=states, timeout_ms=10_000))
    assert not any(topic.error_code for topic in answer.responses), answer


def folders(path: Path, start: str = "t-") -> list[str]:
    return sorted(name for name in os.listdir(path) if name.startswith(start))


def test_a_partition_accepts_records_once_its_folder_exists(tmp_path: Path) -> None:
    disk = SlowDisk()

    async def test() -> None:
        async with node_in(tmp_path, make_env(disk)) as node:
            connection = await connect(node)
            with disk.hold("mkdir", "/t-0"):
                topic_id = await create(connection, "t")
                await disk.until_reached()
                answer = await append(connection, topic_id, batch(b"early"))
                assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                assert node.broker.replica_manager.hosted("t", 0) is None
            await node.broker.replica_manager.settle()
            answer = await append(connection, topic_id, batch(b"x"))
            assert (answer.error_code, answer.base_offset) == (0, 0)
            assert (tmp_path / "t-0" / "partition.metadata").exists()
            await connection.close()

    run(test())


def test_no_folder_is_made_renamed_or_synced_on_the_event_loop(tmp_path: Path) -> None:
    disk = SlowDisk()

    async def test() -> None:
        async with node_in(tmp_path, make_env(disk)) as node:
            connection = await connect(node)
            await create_topic(connection, "before")
            disk.is_watched = True
            await create_topic(connection, "t", partitions=100)
            await delete(connection, "t")
            await create_topic(connection, "t", partitions=3)
            await node.broker.replica_manager.settle()
            disk.is_watched = False
            assert disk.on_the_loop == []
            names = folders(tmp_path)
            assert len([name for name in names if name.endswith("-delete")]) == 100
            assert [name for name in names if "delete" not in name] == ["t-0", "t-1", "t-2"]
            await connection.close()

    run(test())


def test_a_topic_deleted_while_its_folders_are_made_leaves_none(tmp_path: Path) -> None:
    disk = SlowDisk()

    async def test() -> None:
        async with node_in(tmp_path, make_env(disk)) as node:
            connection = await connect(node)
            with disk.hold("mkdir", "/t-0"):
                await create(connection, "t", 2)
                await disk.until_reached()
                await delete(connection, "t")
            manager = node.broker.replica_manager
            await manager.settle()
            assert manager.hosted("t", 0) is None
            assert manager.log_manager.get("t", 0) is None
            assert all(name.endswith("-delete") for name in folders(tmp_path))
            await connection.close()

    run(test())


def test_a_topic_created_again_while_the_folders_of_the_first_one_are_made(tmp_path: Path) -> None:
    disk = SlowDisk()

    async def test() -> None:
        async with node_in(tmp_path, make_env(disk)) as node:
            connection = await connect(node)
            with disk.hold("mkdir", "/t-0"):
                first = await create(connection, "t")
                await disk.until_reached()
                await delete(connection, "t")
                second = await create(connection, "t")
            manager = node.broker.replica_manager
            await manager.settle()
            assert manager.get_log("t", 0).topic_id == second != first
            answer = await append(connection, second, batch(b"x"))
            assert (answer.error_code, answer.base_offset) == (0, 0)
            (gone, kept) = sorted(folders(tmp_path), key=len, reverse=True)
            assert gone.endswith("-delete")
            assert kept == "t-0"
            await connection.close()

    run(test())


def test_a_topic_created_again_while_the_first_one_is_renamed_gets_a_folder_of_its_own(
    tmp_path: Path,
) -> None:
    disk = SlowDisk()

    async def test() -> None:
        async with node_in(tmp_path, make_env(disk)) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            await append(connection, topic_id, batch(b"old"))
            with disk.hold("move", "/t-0"):
                await delete(connection, "t")
                await disk.until_reached()
                second = await create(connection, "t")
                # Others are not held up.
                answer = await connection.send(MetadataRequest(topics=None))
                assert [topic.topic_id for topic in answer.topics] == [second]
                assert node.broker.replica_manager.hosted("t", 0) is None
            await node.broker.replica_manager.settle()
            answer = await append(connection, second, batch(b"new"))
            assert (answer.error_code, answer.base_offset) == (0, 0)
            assert len(folders(tmp_path)) == 2
            await connection.close()

    run(test())


def test_a_directory_that_fails_while_folders_are_made_takes_only_its_own(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    disk = SlowDisk()

    async def test() -> None:
        for path in (one, two):
            format_dir(path)
        async with running(config_of(one, two), make_env(disk)) as node:
            connection = await connect(node)
            disk.fault = lambda operation, path: 5 if (operation, str(two) in path) == (
                "mkdir", True) else 0  # fmt: skip
            topic_id = await create(connection, "t", 4)
            manager = node.broker.replica_manager
            await manager.settle()
            offline = [each.path for each in manager.log_manager.offline_directories]
            assert offline == [str(two)]
            codes = [
                (await append(connection, topic_id, batch(b"x"), partition=index)).error_code
                for index in range(4)
            ]
            assert set(codes) == {0, ErrorCode.KAFKA_STORAGE_ERROR}
            assert codes.count(0) == len(folders(one))
            await connection.close()

    run(test())


def test_a_stop_while_folders_are_made_waits_for_the_thread(tmp_path: Path) -> None:
    disk = SlowDisk()

    async def test() -> None:
        async with node_in(tmp_path, make_env(disk)) as node:
            connection = await connect(node)
            await create_topic(connection, "kept")
            with disk.hold("mkdir", "/t-0"):
                await create(connection, "t", 2)
                await disk.until_reached()
                await connection.close()
                stop = asyncio.create_task(node.stop())
                await asyncio.sleep(0.2)
                assert not (tmp_path / ".kafka_cleanshutdown").exists()
                assert not stop.done()
            await stop
            assert (tmp_path / ".kafka_cleanshutdown").exists()
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await until(lambda: node.broker.replica_manager.hosted("t", 1))
            assert folders(tmp_path) == ["t-0", "t-1"]
            await connection.close()

    run(test())


def test_new_partitions_are_spread_over_directories_while_their_folders_are_made(
    tmp_path: Path,
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"

    async def test() -> None:
        for path in (one, two):
            format_dir(path)
        async with running(config_of(one, two)) as node:
            connection = await connect(node)
            await create_topic(connection, "t", partitions=20)
            assert {len(folders(one)), len(folders(two))} <= {9, 10, 11}
            await connection.close()

    run(test())
