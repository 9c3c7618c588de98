"""Records that are not in the page cache are read in a thread, and the fetch starts over then."""

import asyncio
import threading
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.messages.k18_api_versions import ApiVersionsRequest
from sparkraft.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from sparkraft.server.api import fetch_work
from sparkraft.server.broker.cold_reads import ATTEMPTS_MAX
from sparkraft.storage.disk import FilePart
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
    until,
    values_of,
)

SOFTWARE = ApiVersionsRequest(client_software_name="test", client_software_version="1")


class SlowDisk(FaultyDisk):
    """Segments of partitions in `cold` are not in the page cache until they have been warmed."""

    def __init__(self) -> None:
        super().__init__()
        self.cold: set[str] = set()
        self.stays_cold = False
        self.device = threading.Event()
        """Reads of the device wait for it."""
        self.device.set()
        self.warming: list[FilePart] = []

    def cold_part(self, path: str, count: int, at: int, **_: Any) -> FilePart | None:
        is_cold = path.endswith(".log") and path.split("/")[-2] in self.cold
        return FilePart(path, at, count) if is_cold and count > 0 else None

    def warm(self, part: FilePart) -> None:
        self.warming.append(part)
        assert self.device.wait(60)
        if not self.stays_cold:
            self.cold.discard(part.path.split("/")[-2])
        super().warm(part)


@asynccontextmanager
async def cold_node(tmp_path, partitions: int = 1):
    """A node, its disk, a connection, and a topic `t` with a record in each partition."""
    disk = SlowDisk()
    async with node_in(tmp_path, env=make_env(disk)) as node:
        connection = await connect(node)
        topic_id = await create_topic(connection, "t", partitions=partitions)
        for index in range(partitions):
            await append(connection, topic_id, batch(b"%d" % index), partition=index)
        yield node, disk, connection, topic_id
        disk.device.set()
        await connection.close()


def parts_of(response: Any) -> list[Any]:
    return [part for topic in response.responses for part in topic.partitions]


@pytest.mark.parametrize("whole_partitions_max", [1_000, 0], ids=["small", "in slices"])
def test_others_are_served_while_a_fetch_waits_for_the_disk(
    tmp_path, monkeypatch, whole_partitions_max
):
    monkeypatch.setattr(fetch_work, "WHOLE_PARTITIONS_MAX", whole_partitions_max)

    async def test():
        async with cold_node(tmp_path) as (node, disk, connection, topic_id):
            disk.cold.add("t-0")
            disk.device.clear()
            waiting = asyncio.ensure_future(connection.send(fetch(topic_id)))
            after_it = asyncio.ensure_future(connection.send(SOFTWARE))
            await until(lambda: disk.warming)
            other = await connect(node)
            assert (await append(other, topic_id, batch(b"more"))).base_offset == 1
            assert not waiting.done()
            assert not after_it.done(), "responses keep the order of their requests"
            disk.device.set()
            (part,) = parts_of(await waiting)
            assert values_of(part) == [b"0", b"more"], "what is there now, not what was"
            assert (await after_it).error_code == 0
            assert node.broker.cold_reads.reads == 1
            await other.close()

    run(test())


def test_everything_is_checked_again_after_the_wait(tmp_path):
    async def test():
        async with cold_node(tmp_path) as (node, disk, connection, topic_id):
            disk.cold.add("t-0")
            disk.device.clear()
            waiting = asyncio.ensure_future(connection.send(fetch(topic_id, max_wait_ms=10_000)))
            await until(lambda: disk.warming)
            other = await connect(node)
            deleted = DeleteTopicsRequest(
                topics=[DeleteTopicState(topic_id=topic_id)], timeout_ms=10_000
            )
            assert (await other.send(deleted)).responses[0].error_code == 0
            await until(lambda: topic_id not in node.broker.image.topics_by_id)
            disk.device.set()
            (part,) = parts_of(await waiting)
            assert part.error_code == ErrorCode.UNKNOWN_TOPIC_ID
            assert not part.records
            await other.close()

    run(test())


def test_records_that_are_cached_do_not_wait_for_others(tmp_path):
    async def test():
        async with cold_node(tmp_path, partitions=2) as (node, disk, connection, topic_id):
            disk.cold.add("t-0")
            disk.device.clear()
            request = fetch(topic_id, partitions=(0, 1), session_epoch=0)
            first = await connection.send(request)
            found = {part.partition_index: values_of(part) for part in parts_of(first)}
            assert found == {0: [], 1: [b"1"]}
            await until(lambda: disk.warming)
            disk.device.set()
            await until(lambda: not node.broker.cold_reads._known)
            again = fetch(
                topic_id, 1, partitions=(1,), session_id=first.session_id, session_epoch=1
            )
            (part,) = parts_of(await connection.send(again))
            assert (part.partition_index, values_of(part)) == (0, [b"0"])

    run(test())


def test_a_session_that_ends_meanwhile_has_no_response(tmp_path):
    async def test():
        async with cold_node(tmp_path) as (node, disk, connection, topic_id):
            disk.cold.add("t-0")
            disk.device.clear()
            waiting = asyncio.ensure_future(connection.send(fetch(topic_id, session_epoch=0)))
            await until(lambda: disk.warming)
            (session_id,) = node.broker.fetch_sessions._sessions
            node.broker.fetch_sessions.end(session_id)
            disk.device.set()
            assert (await waiting).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    run(test())


def test_a_client_may_leave_while_its_part_is_read(tmp_path):
    async def test():
        async with cold_node(tmp_path) as (node, disk, connection, topic_id):
            disk.cold.add("t-0")
            disk.device.clear()
            leaving = await connect(node)
            left = asyncio.ensure_future(leaving.send(fetch(topic_id)))
            await until(lambda: disk.warming)
            stays = asyncio.ensure_future(connection.send(fetch(topic_id)))
            await leaving.close()
            with pytest.raises(Exception):  # noqa: B017, PT011 (whatever a closed connection raises)
                await left
            disk.device.set()
            (part,) = parts_of(await stays)
            assert values_of(part) == [b"0"]
            assert node.broker.cold_reads.reads == 1

    run(test())


def test_what_does_not_stay_in_memory_is_read_in_place(tmp_path):
    async def test():
        async with cold_node(tmp_path) as (_node, disk, connection, topic_id):
            disk.cold.add("t-0")
            disk.stays_cold = True
            (part,) = parts_of(await connection.send(fetch(topic_id)))
            assert values_of(part) == [b"0"]
            assert len(disk.warming) == ATTEMPTS_MAX

    run(test())
