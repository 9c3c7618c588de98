"""A clean stop: dirty logs are synced side by side, and one that fails is said and recovered."""

import errno
import logging
import threading

from sparkraft.storage.disk import OsDisk, StorageFault
from tests.server.harness import (
    FaultyDisk,
    append,
    batch,
    connect,
    create_topic,
    fetch,
    make_env,
    node_in,
    run,
    values_of,
)


class FullDisk(OsDisk):
    """No room for files whose path ends with `full`."""

    full = "/no such file"

    def write(self, path, data):
        if path.endswith(self.full):
            raise OSError(errno.ENOSPC, "ENOSPC", path)
        super().write(path, data)


BARRIER_S = 60
"""How long two syncs wait for each other before they count as one behind the other."""


async def dirty(node, partitions):
    connection = await connect(node)
    topic_id = await create_topic(connection, "t", partitions=partitions)
    for partition in range(partitions):
        answer = await append(connection, topic_id, batch(b"kept"), partition=partition)
        assert answer.error_code == 0
    await connection.close()
    return topic_id


def is_segment(operation, path):
    return operation == "fsync" and "/t-" in path and path.endswith(".log")


def test_dirty_logs_are_synced_side_by_side(tmp_path):
    async def test():
        disk = FaultyDisk()
        together = threading.Barrier(2)

        def meet(operation, path):
            if is_segment(operation, path):
                together.wait(BARRIER_S)
            return 0

        async with node_in(tmp_path, make_env(disk)) as node:
            await dirty(node, 2)
            disk.fault = meet
        assert not together.broken
        assert node.failure is None
        assert (tmp_path / ".kafka_cleanshutdown").exists()

    run(test())


def test_a_sync_that_fails_at_the_stop_is_said_and_the_others_are_done(tmp_path, caplog):
    async def test():
        disk = FaultyDisk()
        async with node_in(tmp_path, make_env(disk)) as node:
            topic_id = await dirty(node, 3)
            disk.fsyncs.clear()
            disk.fault = lambda operation, path: (
                errno.EIO if is_segment(operation, path) and "/t-1/" in path else 0
            )
        assert node.failure is not None, "the process ends with a code above 0"
        assert {path.split("/")[-2] for path in disk.fsyncs if is_segment("fsync", path)} == {
            "t-0", "t-2",
        }  # fmt: skip
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            answer = await connection.send(fetch(topic_id, partitions=(0, 1, 2)))
            found = {p.partition_index: values_of(p) for p in answer.responses[0].partitions}
            assert found == {partition: [b"kept"] for partition in range(3)}
            await connection.close()

    with caplog.at_level(logging.ERROR):
        run(test())
    assert "failed during shutdown" in caplog.text


def test_a_metadata_log_that_cannot_be_closed_ends_the_node_in_order(tmp_path, caplog):
    async def test():
        disk = FullDisk()
        async with node_in(tmp_path, make_env(disk)) as node:
            topic_id = await dirty(node, 1)
            disk.full = "/__cluster_metadata-0/00000000000000000000.index"
        assert isinstance(node.failure, StorageFault), "the process ends with a code above 0"
        assert "close __cluster_metadata-0" in str(node.failure)
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
        async with node_in(tmp_path) as node:  # the locks were released
            connection = await connect(node)
            answer = await connection.send(fetch(topic_id))
            assert values_of(answer.responses[0].partitions[0]) == [b"kept"]
            await connection.close()

    with caplog.at_level(logging.CRITICAL):
        run(test())
    assert "This node stops: close __cluster_metadata-0" in caplog.text
