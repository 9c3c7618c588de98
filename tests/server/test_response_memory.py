"""Responses that clients do not read: which connections are closed for them."""

import mmap
from typing import Any

from sparkraft.base.ids import Millis
from sparkraft.server.network.response_memory import (
    PATIENCE_MS,
    ROOM_MIN,
    ResponseMemory,
    memory_of,
)
from tests.server.harness import (
    append,
    batch,
    connect,
    create_topic,
    fetch,
    node_in,
    run,
    values_of,
)

BOUND = 1_000
LATER = Millis(PATIENCE_MS)


class Client:
    """A connection as the memory sees it."""

    def __init__(self) -> None:
        self.dropped: list[str] = []

    def drop_unread(self, why: str) -> None:
        self.dropped.append(why)


def waiting(memory: ResponseMemory, *sizes: int, at: int = 0) -> list[Client]:
    clients = [Client() for _ in sizes]
    for client, size in zip(clients, sizes, strict=True):
        memory.on_backlog(client, [bytes(size)], Millis(at))
    return clients


def dropped(clients: list[Client]) -> list[bool]:
    return [bool(client.dropped) for client in clients]


def test_nobody_is_dropped_within_the_bound() -> None:
    memory = ResponseMemory(BOUND)
    clients = waiting(memory, 500, 500)
    memory.check_progress(LATER)
    assert dropped(clients) == [False, False]
    assert memory.bytes == BOUND


def test_above_the_bound_those_that_do_not_read_are_dropped_largest_first() -> None:
    memory = ResponseMemory(BOUND)
    clients = waiting(memory, 300, 500, 400)
    memory.check_progress(Millis(LATER - 1))
    assert dropped(clients) == [False, False, False]
    memory.check_progress(LATER)
    assert dropped(clients) == [False, True, False]
    assert (memory.bytes, memory.dropped) == (700, 1)


def test_one_that_reads_is_not_dropped() -> None:
    memory = ResponseMemory(BOUND)
    reader, other = waiting(memory, 900, 600)
    memory.on_backlog(reader, [bytes(800)], Millis(1))
    memory.check_progress(LATER)
    assert dropped([reader, other]) == [False, True]


def test_far_above_the_bound_the_largest_is_dropped_at_once() -> None:
    memory = ResponseMemory(BOUND)
    clients = waiting(memory, 700, 900, 401)
    assert dropped(clients) == [False, True, False]
    assert memory.bytes == 1_101


def test_what_is_sent_or_closed_counts_no_more() -> None:
    memory = ResponseMemory(BOUND)
    sent, closed = waiting(memory, 600, 600)
    memory.on_backlog(sent, [], Millis(1))
    memory.forget(closed)
    memory.forget(closed)
    assert memory.bytes == 0
    memory.check_progress(LATER)
    assert dropped([sent, closed]) == [False, False]


def test_without_a_bound_nobody_is_dropped() -> None:
    memory = ResponseMemory(0)
    clients = waiting(memory, 1 << 20, 1 << 20)
    memory.check_progress(LATER)
    assert dropped(clients) == [False, False]


def test_a_buffer_that_is_sent_repeatedly_counts_once() -> None:
    shared = bytes(100)
    assert memory_of([shared, memoryview(shared)[40:], shared, bytes(7)]) == 107


def test_mapped_parts_do_not_count() -> None:
    with mmap.mmap(-1, 4096) as mapped:
        parts: list[Any] = [b"1234", memoryview(b"56"), bytearray(3), memoryview(mapped)]
        assert memory_of(parts) == 9
        parts.clear()


def test_a_part_that_is_sent_repeatedly_counts_once() -> None:
    shared, other = bytes(1_000), bytes(500)
    assert memory_of([shared, other, shared, shared]) == 1_500


def test_the_room_is_what_is_left_of_the_bound_but_never_too_little_to_progress() -> None:
    memory = ResponseMemory(4 * ROOM_MIN)
    assert memory.room == 4 * ROOM_MIN
    waiting(memory, ROOM_MIN, ROOM_MIN // 2)
    assert memory.room == 5 * ROOM_MIN // 2
    waiting(memory, 2 * ROOM_MIN)
    assert memory.room == ROOM_MIN
    assert ResponseMemory(0).room > 1 << 40


def test_a_consumer_gets_no_more_records_than_there_is_room_for(tmp_path, monkeypatch) -> None:
    async def test() -> None:
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            for value in (b"a", b"b", b"c"):
                await append(connection, topic_id, batch(value))
            (topic,) = (await connection.send(fetch(topic_id))).responses
            assert values_of(topic.partitions[0]) == [b"a", b"b", b"c"]
            monkeypatch.setattr(ResponseMemory, "room", 1)
            (topic,) = (await connection.send(fetch(topic_id))).responses
            assert values_of(topic.partitions[0]) == [b"a"]
            await connection.close()

    run(test())
