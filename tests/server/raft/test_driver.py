"""The driver over real files and sockets: commits, restarts, snapshots, several voters."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from itertools import count
from pathlib import Path
from threading import get_ident
from typing import Any

import pytest
from immutables import Map

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Offset, Uuid
from sparkraft.metadata.image import EMPTY_IMAGE, ClusterImage, Topic
from sparkraft.metadata.partition_state import PartitionState
from sparkraft.protocol.messages.metadata_records import NoOpRecord, TopicRecord
from sparkraft.server.config import NodeConfig
from sparkraft.server.controller.snapshots import MetadataSnapshots
from sparkraft.server.env import Env, real_env
from sparkraft.server.network.listener import Limits, Listener
from sparkraft.server.network.loop_budget import LoopBudget
from sparkraft.server.raft.driver import RaftDriver
from sparkraft.server.raft.metadata_log_listener import CommittedBatch
from sparkraft.server.raft.setup import open_raft
from sparkraft.storage.disk import StorageFault
from sparkraft.storage.snapshot_files import open_snapshot
from tests.support.ports import lasting_ports

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
WAIT_SECONDS_MAX = 60


class Names:
    """A listener that keeps the names of topics, and what it was told."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.leaders: list[tuple[int | None, int]] = []
        self.loaded: list[int] = []
        self.next_offset = 0
        self.epoch = 0

    def on_commit(self, batch: CommittedBatch) -> None:
        assert batch.base_offset >= self.next_offset
        self.next_offset = batch.last_offset + 1
        self.epoch = batch.epoch
        self.names += [record.name for record in batch.records if hasattr(record, "name")]

    def on_snapshot(self, image: ClusterImage) -> None:
        self.next_offset = image.offset + 1
        self.loaded.append(self.next_offset)
        topics = sorted(image.topics_by_id.values(), key=lambda topic: topic.id)
        self.names = [topic.name for topic in topics]

    def on_leader_change(self, leader_id: int | None, epoch: int) -> None:
        self.leaders.append((leader_id, epoch))


def topics(names: Iterable[str]) -> list[tuple[TopicRecord, int]]:
    """Records of a snapshot with topics of these names."""
    ids = (Uuid(number.to_bytes(16, "big")) for number in count(1))
    return [(TopicRecord(name=name, topic_id=next(ids)), 0) for name in names]


class Member:
    """A driver with its directory and listener."""

    def __init__(self, node_id: int, ports: list[int], root: Path, **settings: Any) -> None:
        self.node_id = node_id
        self.root = root / f"n{node_id}"
        self.root.mkdir(exist_ok=True)
        voters = ",".join(f"{at + 1}@127.0.0.1:{port}" for at, port in enumerate(ports))
        port = ports[node_id - 1]
        properties = {
            "process.roles": "controller",
            "node.id": str(node_id),
            "controller.quorum.voters": voters,
            "listeners": f"CONTROLLER://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.root),
            **{key.replace("_", "."): str(value) for key, value in settings.items()},
        }
        self.config = NodeConfig(properties)
        self.failures: list[BaseException] = []
        self.port = port
        self.driver: RaftDriver
        self.names: Names
        self.env: Env
        self.server: Any = None

    async def start(self) -> None:
        self.env = real_env()
        self.driver = open_raft(
            self.config,
            self.env,
            cluster_id=CLUSTER,
            directory_id=Uuid(bytes([7] * 15 + [self.node_id])),
            on_fatal=self.failures.append,
        )
        self.names = Names()
        self.driver.register(self.names)
        self.server = await serve(self.driver, self.env, self.config, self.port)
        await self.driver.start()

    async def stop(self) -> None:
        await self.server.close()
        await self.driver.stop(timeout_ms=100)
        self.env.executor.shutdown(wait=True)

    async def add(self, *names: str) -> int:
        records = [(TopicRecord(name=name), 0) for name in names]
        epoch = self.driver.leader_and_epoch.epoch
        offset = await self.driver.append(records, epoch=epoch)
        await until(lambda: self.driver.high_watermark > offset)
        return offset


async def serve(driver: RaftDriver, env: Env, of_node: NodeConfig, port: int) -> Any:
    """The controller listener, with no more behind it than the quorum's handlers ask for."""

    class Services:
        raft = driver
        config = of_node
        image = EMPTY_IMAGE
        processes = None

    def give_up(error: BaseException) -> None:
        raise error

    def translate(error: Exception, where: str) -> KafkaError:
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{where}: {error!r}")

    listener = Listener(
        "CONTROLLER",
        controller_listener=True,
        limits=Limits(
            connections_max=100,
            connections_per_ip_max=100,
            request_bytes_max=1 << 20,
            idle_ms_max=600_000,
        ),
        clock=env.clock,
        budget=LoopBudget(env.clock),
        on_invariant_broken=give_up,
        translate=translate,
    )
    await listener.bind(env.network, "127.0.0.1", port)
    await listener.serve(Services())
    return listener


async def until(reached: Callable[[], bool]) -> None:
    """Return once `reached`; a bounded wait."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while not reached():  # noqa: ASYNC110 (several nodes, none of which knows of the test)
            await asyncio.sleep(0.002)


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(3 * WAIT_SECONDS_MAX):
            await work()

    asyncio.run(bounded())


def test_a_quorum_of_one_leads_when_start_returns_and_remembers_everything(tmp_path: Path) -> None:
    ports = lasting_ports(1)

    async def work() -> None:
        first = Member(1, ports, tmp_path)
        await first.start()
        assert first.driver.leader_and_epoch == (1, 1)
        await first.add("a", "b")
        await first.add("c")
        assert first.names.names == ["a", "b", "c"]
        assert first.names.leaders == [(1, 1)]
        await first.stop()
        second = Member(1, ports, tmp_path)
        await second.start()
        await until(lambda: second.names.leaders == [(1, 2)])
        assert second.names.names == ["a", "b", "c"]
        await second.stop()
        assert not first.failures
        assert not second.failures

    run(work)


def test_appends_are_refused_in_another_epoch_and_by_size(tmp_path: Path) -> None:
    async def work() -> None:
        member = Member(1, lasting_ports(1), tmp_path)
        await member.start()
        driver = member.driver
        with pytest.raises(KafkaError) as refused:
            await driver.append([(NoOpRecord(), 0)], epoch=7)
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        with pytest.raises(KafkaError):
            await driver.append([], epoch=1)
        with pytest.raises(KafkaError):
            await driver.append([(NoOpRecord(), 0)] * 10_001, epoch=1)
        await member.stop()

    run(work)


@pytest.mark.parametrize(("linger_ms", "fsyncs"), [(None, 2), (0, 2), (500, 1)])
def test_records_wait_for_more_before_their_fsync_where_that_is_configured(
    tmp_path: Path, linger_ms: int | None, fsyncs: int
) -> None:
    """Without a linger the first has its own fsync, and what comes meanwhile shares the next."""

    async def work() -> None:
        ports = lasting_ports(1)
        settings = {} if linger_ms is None else {"controller_quorum_append_linger_ms": linger_ms}
        member = Member(1, ports, tmp_path, **settings)
        await member.start()
        driver, flushed = member.driver, []
        await until(lambda: driver.high_watermark > 0)
        flush = driver.log.flush

        def slowly(up_to: Offset) -> None:
            flushed.append(up_to)
            time.sleep(0.05)
            flush(up_to)

        driver.log.flush = slowly  # type: ignore[method-assign]
        for number in range(10):
            await driver.append([(TopicRecord(name=f"t{number}"), 0)], epoch=1)
            await asyncio.sleep(0)
        await until(lambda: len(member.names.names) == 10)
        assert len(flushed) == fsyncs
        await member.stop()
        assert not member.failures

    run(work)


def test_an_election_does_not_linger(tmp_path: Path) -> None:
    hour_ms = 3_600_000

    async def work() -> None:
        ports = lasting_ports(3)
        members = [
            Member(node_id, ports, tmp_path, controller_quorum_append_linger_ms=hour_ms)
            for node_id in (1, 2, 3)
        ]
        for member in members:
            await member.start()
        await until(lambda: any(m.driver.high_watermark > 0 for m in members))
        leader = next(m for m in members if m.driver.is_leader)
        # Its own fsync is far off, but the two others are a majority.
        await leader.add("a")
        assert leader.driver.recovery_point < leader.driver.log_end_offset
        for member in members:
            await member.stop()
            assert not member.failures

    run(work)


def test_a_restart_loads_the_snapshot_and_then_the_log(tmp_path: Path) -> None:
    ports = lasting_ports(1)

    async def work() -> None:
        first = Member(1, ports, tmp_path)
        await first.start()
        offset = await first.add(*[f"t{number}" for number in range(1200)])
        records = topics(first.names.names)
        assert await first.driver.create_snapshot(offset + 1, 1, records)
        assert not await first.driver.create_snapshot(offset + 1, 1, [])
        with pytest.raises(KafkaError):
            await first.driver.create_snapshot(offset, 1, [])
        with pytest.raises(KafkaError):
            await first.driver.create_snapshot(offset + 100, 1, [])
        await first.add("last")
        await first.stop()
        second = Member(1, ports, tmp_path)
        await second.start()
        await until(lambda: bool(second.names.leaders))
        assert second.names.loaded == [offset + 1]
        assert second.names.names == [*(f"t{number}" for number in range(1200)), "last"]
        await second.stop()

    run(work)


class Walked(dict[Uuid, Topic]):
    """Topics by id, and how many of them were looked up in each turn of the loop."""

    def __init__(self, topics: list[Topic]) -> None:
        super().__init__((topic.id, topic) for topic in topics)
        self.turn = 0
        self.looked_up: Counter[int] = Counter()

    def __getitem__(self, topic_id: Uuid) -> Topic:
        self.looked_up[self.turn] += 1
        return super().__getitem__(topic_id)

    async def count_turns(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)


def test_the_loop_has_its_turns_while_a_large_image_is_written(tmp_path: Path) -> None:
    topics_max = 10  # in one turn: a thousand records, some milliseconds
    partition = PartitionState((1, 2), (1, 2), (), (), 1, 0, 0, (Uuid.ZERO,) * 2, (), (), 0)
    partitions = Map(dict.fromkeys(range(100), partition))
    walked = Walked(
        [Topic(f"t{at:03}", Uuid(at.to_bytes(16, "big")), partitions) for at in range(1, 301)]
    )
    names = Map({topic.name: topic.id for topic in walked.values()})

    async def work() -> None:
        member = Member(1, lasting_ports(1), tmp_path)
        await member.start()
        offset = await member.add("a")
        image = EMPTY_IMAGE._replace(topics_by_id=walked, topics_by_name=names)  # type: ignore[arg-type]
        snapshots = MetadataSnapshots(member.driver, lambda: image.at(offset, 1), member.env.clock)
        disk = member.env.disk
        loops_thread = get_ident()
        wrote: set[tuple[str, bool]] = set()

        def watched(name: str) -> Callable[..., None]:
            method = getattr(disk, name)

            def write(path: str, *more: Any) -> None:
                if ".checkpoint" in path:
                    wrote.add((name, get_ident() == loops_thread))
                method(path, *more)

            return write

        for name in ("append", "extend", "fsync"):
            setattr(disk, name, watched(name))
        counting = asyncio.create_task(walked.count_turns())
        await snapshots.create()
        counting.cancel()
        assert max(walked.looked_up.values()) <= topics_max
        # In the executor, so not by `append`: open files belong to the loop's thread.
        assert wrote == {("extend", False), ("fsync", False)}
        made = member.driver.latest_snapshot
        assert made is not None
        assert made.offset == offset + 1
        await member.stop()
        (path,) = member.root.glob("__cluster_metadata-0/*-0000000001.checkpoint")
        written = [record for batch in open_snapshot(disk, str(path)).records() for record in batch]
        assert len(written) == len(walked) * (1 + len(partitions))

    run(work)


def test_a_failing_disk_ends_the_node(tmp_path: Path) -> None:
    async def work() -> None:
        member = Member(1, lasting_ports(1), tmp_path)
        await member.start()
        await member.add("a")

        def broken(path: str) -> None:
            raise OSError(5, "I/O error", path)

        member.env.disk.fsync = broken
        await member.driver.append([(TopicRecord(name="b"), 0)], epoch=1)
        await until(lambda: bool(member.failures))
        assert isinstance(member.failures[0], StorageFault)
        assert member.names.names == ["a"]
        await member.stop()

    run(work)


def test_three_voters_replicate_over_sockets_and_survive_their_leader(tmp_path: Path) -> None:
    ports = lasting_ports(3)

    async def work() -> None:
        members = [Member(node_id, ports, tmp_path) for node_id in (1, 2, 3)]
        for member in members:
            await member.start()

        def leaders(among: list[Member]) -> list[Member]:
            return [member for member in among if member.driver.is_leader]

        await until(lambda: len(leaders(members)) == 1)
        leader = leaders(members)[0]
        await until(lambda: leader.driver.high_watermark > 0)
        await leader.add("a", "b")
        await until(lambda: all(member.names.names == ["a", "b"] for member in members))
        others = [member for member in members if member is not leader]
        await leader.stop()
        await until(lambda: len(leaders(others)) == 1)
        heir = leaders(others)[0]
        await until(lambda: heir.names.leaders[-1][0] == heir.node_id)
        await heir.add("c")
        await until(lambda: all(member.names.names == ["a", "b", "c"] for member in others))
        records = topics("abc")
        assert await heir.driver.create_snapshot(heir.names.next_offset, heir.names.epoch, records)
        # The third comes back with an empty disk: it can only learn by the snapshot.
        for path in sorted(leader.root.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        back = Member(leader.node_id, ports, tmp_path)
        await back.start()
        await until(lambda: back.names.names == ["a", "b", "c"])
        assert back.names.loaded
        described = heir.driver.describe()
        assert described is not None
        assert [voter.key.id for voter in described.voters] == [1, 2, 3]
        for member in (*others, back):
            assert not member.failures
            await member.stop()

    run(work)
