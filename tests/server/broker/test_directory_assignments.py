"""Reports of log directories: what a request contains, and how it is gathered."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from sparkraft.base.ids import Uuid
from sparkraft.metadata.apply import apply
from sparkraft.metadata.image import EMPTY_IMAGE
from sparkraft.protocol.messages import k73_assign_replicas_to_dirs as k73
from sparkraft.protocol.messages.metadata_records import (
    FeatureLevelRecord,
    PartitionRecord,
    TopicRecord,
)
from sparkraft.server.broker import directory_assignments
from sparkraft.server.broker.directory_assignments import DirectoryAssignments
from sparkraft.server.loop_turns import LoopTurns, Turn

TOPIC_ID = Uuid(bytes(15) + b"\1")
HERE = Uuid(bytes(15) + b"\2")


class Turns(LoopTurns):
    """Counts the slices."""

    slices = 0

    async def next(self) -> None:
        self.slices += 1
        await super().next()


class World:
    """Broker 1 has this many replicas; the controller accepts all that `refused` does not name."""

    def __init__(self, partitions: int) -> None:
        self.image = EMPTY_IMAGE
        self.requests: list[list[int]] = []
        self.refused: set[int] = set()
        self.turns = Turns()
        for record in (
            FeatureLevelRecord(name="metadata.version", feature_level=25),
            TopicRecord(name="t", topic_id=TOPIC_ID),
            *(
                PartitionRecord(topic_id=TOPIC_ID, partition_id=n, replicas=[1], isr=[1], leader=1)
                for n in range(partitions)
            ),
        ):
            self.image = apply(self.image, record)
        env = SimpleNamespace(
            work_max=SimpleNamespace(partitions=4),
            turn=lambda units: Turn(self.turns, SimpleNamespace(mono_ms=lambda: 0), units),  # type: ignore[arg-type]
        )
        self.assignments = DirectoryAssignments(
            SimpleNamespace(node_id=1, number=lambda _key: 1_000),  # type: ignore[arg-type]
            env,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            SimpleNamespace(value=5),  # type: ignore[arg-type]
        )

    def note(self, index: int, directory: Uuid = HERE) -> None:
        hosted: Any = SimpleNamespace(topic_id=TOPIC_ID, index=index)
        self.assignments.note(hosted, bytes(16), directory)

    async def send(self, request: Any, _key: Any, *, timeout_ms: int) -> Any:
        assert timeout_ms
        (directory,) = request.directories
        (topic,) = directory.topics
        indexes = [each.partition_index for each in topic.partitions]
        self.requests.append(indexes)
        partitions = [
            k73.AssignReplicasToDirsResponsePartitionData(
                partition_index=index, error_code=int(index in self.refused)
            )
            for index in indexes
        ]
        topics = [
            k73.AssignReplicasToDirsResponseTopicData(topic_id=TOPIC_ID, partitions=partitions)
        ]
        data = k73.AssignReplicasToDirsResponseDirectoryData(id=directory.id, topics=topics)
        return k73.AssignReplicasToDirsResponse(directories=[data])


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_assignments, "GATHER_MS", 0)
    monkeypatch.setattr(directory_assignments, "RETRY_MS", 0)


@asynccontextmanager
async def running(world: World) -> AsyncIterator[None]:
    task = asyncio.ensure_future(world.assignments.run())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never holds")


async def reported(world: World) -> None:
    """Run until nothing is left to report."""
    async with running(world):
        await until(lambda: not world.assignments._pending)


def test_assignments_are_examined_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_assignments, "ASSIGNMENTS_MAX", 30)
    world = World(40)
    for index in range(40):
        world.note(index)
    asyncio.run(reported(world))
    assert world.requests == [list(range(30)), list(range(30, 40))]
    assert world.turns.slices == 30 // 4 + 10 // 4


def test_removed_replicas_are_not_reported() -> None:
    world = World(2)
    for index in range(4):
        world.note(index)
    asyncio.run(reported(world))
    assert world.requests == [[0, 1]]


def test_refused_assignments_are_sent_again() -> None:
    world = World(3)
    world.refused = {1}
    for index in range(3):
        world.note(index)

    async def scenario() -> None:
        async with running(world):
            await until(lambda: len(world.requests) > 1)

    asyncio.run(scenario())
    assert world.requests[:2] == [[0, 1, 2], [1]]


def test_an_assignment_that_is_known_meanwhile_is_not_sent() -> None:
    world = World(8)
    for index in range(8):
        world.note(index)

    async def scenario() -> None:
        async with running(world):
            await until(lambda: world.turns.slices > 0)
            hosted: Any = SimpleNamespace(topic_id=TOPIC_ID, index=7)
            world.assignments.note(hosted, HERE, HERE)
            await until(lambda: bool(world.requests))

    asyncio.run(scenario())
    assert world.requests == [list(range(7))]
