"""Snapshots that listeners get whole while the loop goes on, and what waits for them."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparkraft.base.errors import DecodeError
from sparkraft.base.ids import BrokerId, LeaderEpoch, Millis, Offset, Uuid
from sparkraft.metadata.image import ClusterImage
from sparkraft.protocol.framing import encode_metadata_record
from sparkraft.protocol.messages.metadata_records import PartitionRecord, TopicRecord
from sparkraft.raft.events import LeaderAndEpoch
from sparkraft.records.record import BatchBuilder
from sparkraft.server.raft import commit_publisher, snapshot_load
from sparkraft.server.raft.commit_publisher import CommitPublisher
from sparkraft.server.raft.metadata_log_listener import CommittedBatch
from sparkraft.storage.snapshot_files import SnapshotData, SnapshotId, snapshot_batches

PIECE = 10
"""Records of a snapshot in one iteration."""

ITERATIONS_MAX = 2_000


def topic(number: int) -> TopicRecord:
    return TopicRecord(name=f"t{number}", topic_id=Uuid(number.to_bytes(16, "big")))


def file_of(records: list[Any]) -> bytes:
    batches = snapshot_batches(
        [encode_metadata_record(record, 0) for record in records],
        epoch=LeaderEpoch(1),
        now=Millis(0),
        last_contained_log_timestamp=Millis(0),
    )
    return b"".join(batches)


class Log:
    """A log that begins with a snapshot, as far as a publisher reads it."""

    def __init__(self) -> None:
        self.start = Offset(0)
        self.latest_snapshot: SnapshotId | None = None
        self.batches: list[tuple[int, bytes]] = []
        self.files: dict[SnapshotId, bytes] = {}

    def install(self, offset: int, records: list[Any]) -> None:
        """A snapshot from the leader replaces everything."""
        snapshot = SnapshotId(Offset(offset), LeaderEpoch(1))
        self.files = {snapshot: file_of(records)}
        self.latest_snapshot, self.start = snapshot, Offset(offset)
        self.batches = []

    def append(self, offset: int, *records: Any) -> None:
        builder = BatchBuilder(base_offset=offset, leader_epoch=1)
        for record in records:
            builder.append(0, None, encode_metadata_record(record, 0))
        self.batches.append((offset, builder.build()))

    def open_snapshot(self, snapshot: SnapshotId) -> SnapshotData:
        size = len(self.files[snapshot])
        return SnapshotData(
            "snapshot", size, lambda at, count: self.files[snapshot][at : at + count]
        )

    def read(self, offset: int, *, up_to: int, max_bytes: int) -> list[memoryview]:
        del max_bytes
        return [memoryview(raw) for at, raw in self.batches if offset <= at < up_to]


class Seen:
    """A listener that notes its calls."""

    def __init__(self, *, pieces: int = 0) -> None:
        self.calls: list[Any] = []
        self.images: list[ClusterImage] = []
        self.prepared = 0
        self._pieces = pieces

    def prepare_snapshot(self, image: ClusterImage) -> Iterator[None]:
        assert image.topics_by_name
        for _ in range(self._pieces):
            self.prepared += 1
            yield

    def on_snapshot(self, image: ClusterImage) -> None:
        self.images.append(image)
        self.calls.append(("snapshot", image.offset))

    def on_commit(self, batch: CommittedBatch) -> None:
        self.calls.append(("commit", batch.base_offset))

    def on_leader_change(self, leader_id: BrokerId | None, epoch: LeaderEpoch) -> None:
        self.calls.append(("leader", leader_id, epoch))


class Preparing(Seen):
    """Prepares large batches record by record."""

    def prepare_commit(self, batch: CommittedBatch) -> Iterator[int]:
        for _ in batch.records:
            self.prepared += 1
            yield 1


class World:
    def __init__(self, *listeners: Seen, piece: int = PIECE) -> None:
        self.log = Log()
        self.failures: list[Exception] = []
        self.publisher = CommitPublisher(
            self.log,  # type: ignore[arg-type]
            BrokerId(1),
            self.failures.append,
            lambda _: None,
            snapshot_records_max=piece,
        )
        for listener in listeners:
            self.publisher.register(listener)

    def commit(self, high_watermark: int) -> None:
        self.publisher.set_high_watermark(Offset(high_watermark))
        self.publisher.advance()

    def elect(self, leader_id: int | None, epoch: int) -> None:
        leader = LeaderAndEpoch(
            None if leader_id is None else BrokerId(leader_id), LeaderEpoch(epoch)
        )
        self.publisher.set_leader(leader, self.log.start)
        self.publisher.advance()

    async def until(self, reached: Callable[[], object]) -> int:
        """The iterations that it took."""
        for iterations in range(ITERATIONS_MAX):
            if reached():
                return iterations
            await asyncio.sleep(0)
        raise AssertionError("it did not happen")


def test_a_snapshot_is_loaded_between_other_work_and_seen_whole() -> None:
    async def work() -> None:
        first, second = Seen(), Seen()
        world = World(first, second)
        world.log.install(5_000, [topic(n) for n in range(1, 1_001)])
        world.log.append(5_000, topic(2_000))
        world.commit(5_001)
        assert not first.calls, "the first piece is not the whole"
        iterations = await world.until(lambda: first.images)
        assert iterations >= 1_000 // PIECE
        assert second.images == first.images, "both in one iteration"
        (image,) = first.images
        assert image.offset == 4_999
        assert image.epoch == 1
        assert len(image.topics_by_id) == 1_000
        await world.until(lambda: len(first.calls) == 2)
        assert first.calls == second.calls == [("snapshot", 4_999), ("commit", 5_000)]

    asyncio.run(work())


def test_long_records_make_short_pieces() -> None:
    brokers = list(range(1_000))
    long = [
        PartitionRecord(partition_id=n, topic_id=topic(1).topic_id, replicas=brokers, isr=brokers)
        for n in range(100)
    ]
    size = sum(len(encode_metadata_record(record, 0)) for record in long)

    async def work() -> None:
        listener = Seen()
        world = World(listener, piece=1_000)
        world.log.install(5_000, [topic(1), *long])
        world.commit(5_000)
        iterations = await world.until(lambda: listener.images)
        assert iterations >= size // snapshot_load.BYTES_PER_ITERATION > 2

    asyncio.run(work())


def test_commits_wait_for_the_snapshot_and_new_leaders_do_not() -> None:
    async def work() -> None:
        listener = Seen()
        world = World(listener)
        world.log.append(0, topic(1))
        world.commit(1)
        assert listener.calls == [("commit", 0)]
        world.elect(1, epoch=1)
        world.log.install(100, [topic(n) for n in range(1, 201)])
        world.commit(100)
        world.log.append(100, topic(500))
        world.commit(101)
        world.elect(2, epoch=2)
        await asyncio.sleep(0)
        assert listener.calls[1:] == [("leader", 1, 1), ("leader", 2, 2)]
        await world.until(lambda: listener.calls[-1] == ("commit", 100))
        assert listener.calls[3:] == [("snapshot", 99), ("commit", 100)]

    asyncio.run(work())


def test_this_nodes_own_leadership_waits_for_the_snapshot() -> None:
    async def work() -> None:
        listener = Seen()
        world = World(listener)
        world.log.install(100, [topic(n) for n in range(1, 201)])
        world.log.append(100, topic(500))
        world.elect(1, epoch=2)
        world.commit(101)
        await world.until(lambda: len(listener.calls) == 3)
        assert listener.calls == [("snapshot", 99), ("commit", 100), ("leader", 1, 2)]

    asyncio.run(work())


def test_a_newer_snapshot_replaces_one_that_is_half_loaded() -> None:
    async def work() -> None:
        listener = Seen(pieces=3)
        world = World(listener)
        world.log.install(100, [topic(n) for n in range(1, 201)])
        world.commit(100)
        for _ in range(5):
            await asyncio.sleep(0)
        world.log.install(300, [topic(n) for n in range(400, 450)])
        world.commit(300)
        await world.until(lambda: listener.images)
        (image,) = listener.images
        assert sorted(image.topics_by_name) == [f"t{n}" for n in range(400, 450)]
        assert listener.calls == [("snapshot", 299)]
        assert listener.prepared == 3

    asyncio.run(work())


def test_an_installed_snapshot_waits_until_it_is_known_to_be_committed() -> None:
    async def work() -> None:
        listener = Seen()
        world = World(listener)
        world.log.append(0, topic(1))
        world.commit(1)
        world.log.install(100, [topic(1), topic(2)])
        world.publisher.advance()
        world.log.append(100, topic(3))
        for _ in range(5):
            await asyncio.sleep(0)
        assert listener.calls == [("commit", 0)]
        world.commit(101)
        await world.until(lambda: len(listener.calls) == 3)
        assert listener.calls[1:] == [("snapshot", 99), ("commit", 100)]

    asyncio.run(work())


def test_listeners_prepare_in_pieces_before_any_of_them_gets_the_image() -> None:
    async def work() -> None:
        first, second = Seen(), Seen(pieces=20)
        world = World(first, second)
        world.log.install(100, [topic(1)])
        world.commit(100)
        await world.until(lambda: second.prepared)
        assert await world.until(lambda: second.images) >= 19
        assert first.images == second.images

    asyncio.run(work())


@pytest.mark.parametrize("ends", ["stopped", "damaged"])
def test_a_load_that_cannot_end_shows_nothing(ends: str) -> None:
    async def work() -> None:
        listener = Seen()
        world = World(listener)
        world.log.install(100, [topic(n) for n in range(1, 201)])
        ((snapshot, file),) = world.log.files.items()
        if ends == "damaged":
            world.log.files[snapshot] = file[:-20]
        world.commit(100)
        await asyncio.sleep(0)
        if ends == "stopped":
            world.publisher.stop()
        for _ in range(100):
            await asyncio.sleep(0)
        world.publisher.advance()
        assert not listener.calls
        assert [type(failure) for failure in world.failures] == (
            [DecodeError] if ends == "damaged" else []
        )

    asyncio.run(work())


# ---- large batches


@pytest.fixture
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_publisher, "RECORDS_PER_ITERATION", 10)


@pytest.mark.usefixtures("_small_pieces")
def test_a_large_batch_is_prepared_in_pieces_and_published_whole() -> None:
    async def scenario() -> None:
        first, second = Preparing(), Seen()
        world = World(first, second)
        world.log.append(0, topic(0))
        world.log.append(1, *(topic(n) for n in range(1, 31)))
        world.log.append(31, topic(31))
        world.commit(32)
        assert first.calls == [("commit", 0)]
        await world.until(lambda: first.prepared == 15)
        assert second.calls == [("commit", 0)]
        world.elect(2, 5)  # does not wait
        await asyncio.sleep(0)
        assert second.calls == [("commit", 0), ("leader", 2, 5)]
        iterations = await world.until(lambda: ("commit", 31) in first.calls)
        assert iterations > 10
        assert first.prepared == 30
        assert [call for call in second.calls if call[0] == "commit"] == [
            ("commit", 0),
            ("commit", 1),
            ("commit", 31),
        ]

    asyncio.run(scenario())


@pytest.mark.usefixtures("_small_pieces")
def test_an_own_large_batch_is_prepared_too() -> None:
    async def scenario() -> None:
        seen = Preparing()
        world = World(seen)
        records = [topic(n) for n in range(20)]
        batch = CommittedBatch(Offset(0), Offset(19), LeaderEpoch(1), Millis(0), 100, records)
        world.publisher.remember(batch)
        world.commit(20)
        assert not seen.calls
        await world.until(lambda: seen.calls)
        assert seen.prepared == 20

    asyncio.run(scenario())


@pytest.mark.usefixtures("_small_pieces")
def test_a_truncation_abandons_a_batch_that_is_being_prepared() -> None:
    async def scenario() -> None:
        seen = Preparing()
        world = World(seen)
        world.log.append(0, *(topic(n) for n in range(30)))
        world.commit(30)
        await world.until(lambda: seen.prepared == 15)
        world.publisher.forget()
        world.log.batches.clear()
        world.log.append(0, topic(0))
        world.commit(1)
        await world.until(lambda: seen.calls)
        assert seen.calls == [("commit", 0)]

    asyncio.run(scenario())
