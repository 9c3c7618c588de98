"""What a fetcher asks its leader for, and what becomes of a copy whose replica is truncated.

Two whole nodes in one event loop, with real sockets and files. Node 1 is the controller too; node
2, which the tests look at, has two log directories.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sparkraft.base.errors import KafkaError
from sparkraft.client.cluster import Cluster
from sparkraft.client.connection import Connection
from sparkraft.client.leadership import PREFERRED, LeadershipAdmin
from sparkraft.client.values import ConfigOperation, NewTopic, ResourceType
from sparkraft.protocol.messages.k01_fetch import FetchRequest
from sparkraft.replication.directory_move import MoveStage
from sparkraft.server.broker import fetchers
from sparkraft.server.broker.follower_client import FollowerClient
from sparkraft.server.broker.log_dir_moves import RATE
from tests.server.harness import append, batch, config_of, connect, format_dir, run, running, until
from tests.support.ports import lasting_ports

LEADER, FOLLOWER = 1, 2
SETTINGS = {
    "broker_session_timeout_ms": "60000",
    # Who is in sync is changed by hand.
    "replica_lag_time_max_ms": "300000",
    "auto_leader_rebalance_enable": "false",
}


class Pair:
    """Both nodes, and clients of theirs."""

    def __init__(self, nodes: dict[int, Any], clients: dict[int, Connection], admin: Any) -> None:
        self.nodes = nodes
        self.clients = clients
        self.admin: LeadershipAdmin = admin
        self.topic_id: Any = None

    def hosted(self, node: int, index: int = 0) -> Any:
        """The replica of the topic on a node."""
        return self.nodes[node].broker.replica_manager.hosted("t", index)

    async def create(self, *replicas: list[int]) -> None:
        """The topic, a partition for each assignment, led by the first of it."""
        assignment = dict(enumerate(replicas))
        made = (await self.admin.create_topics([NewTopic(name="t", assignment=assignment)]))["t"]
        assert not isinstance(made, KafkaError), made
        for index, (leader, *others) in assignment.items():
            await until(lambda n=leader, i=index: self.hosted(n, i) and self.hosted(n, i).is_leader)
            for node in others:
                await until(lambda n=node, i=index: self.hosted(n, i))
        image = self.nodes[LEADER].broker.image
        self.topic_id = image.topics_by_name["t"]

    async def reassign(self, replicas: list[int], partitions: int = 1) -> None:
        """Give every partition these replicas."""
        wanted = {("t", index): replicas for index in range(partitions)}
        assert set((await self.admin.reassign(wanted)).values()) == {None}

    async def append(self, node: int, *values: bytes, index: int = 0) -> None:
        """Write a batch to a leader, which waits for nobody."""
        answer = await append(
            self.clients[node], self.topic_id, batch(*values), acks=1, partition=index
        )
        assert answer.error_code == 0, answer

    def fetcher(self) -> fetchers.LeaderFetcher:
        """Of the node that follows, its only one."""
        (found,) = self.nodes[FOLLOWER].broker.fetchers.in_order()
        return found

    async def slow_down(self, rate: str | None) -> None:
        """Hold copies between directories to so many bytes a second; None: to nothing."""
        operation = ConfigOperation.DELETE if rate is None else ConfigOperation.SET
        resource = (ResourceType.BROKER, str(FOLLOWER))
        refused = await self.admin.alter_configs({resource: [(RATE, operation, rate)]})
        assert refused[resource] is None, refused
        moves = self.nodes[FOLLOWER].broker.log_dir_moves
        await until(lambda: moves._rate() == (None if rate is None else int(rate)))

    async def half_move(self) -> Any:
        """Begin to move node 2's replica to its other directory; it stops after the first chunk."""
        await self.slow_down("1")
        broker = self.nodes[FOLLOWER].broker
        replica = self.hosted(FOLLOWER)
        paths = {directory.path for directory in broker.log_manager.directories}
        (target,) = paths - {replica.log.log_dir}
        await broker.log_dir_moves.alter("t", 0, target)
        (move,) = broker.log_dir_moves.in_order()
        await until(lambda: move.core.copied_bytes)
        assert move.core.stage is MoveStage.COPYING
        return move

    async def end_move(self, move: Any) -> None:
        """Let it go on; both nodes have the same in the end, and the copy is node 2's replica."""
        await self.slow_down(None)
        await until(lambda: self.hosted(FOLLOWER).log is move.core.copy)
        await until(lambda: self.end_of(FOLLOWER) == self.end_of(LEADER))
        assert log_of(self.hosted(LEADER)).endswith(log_of(self.hosted(FOLLOWER)))
        starts = {self.hosted(node).log.log_start_offset for node in self.nodes}
        assert len(starts) == 1

    def end_of(self, node: int) -> int:
        end: int = self.hosted(node).log.log_end_offset
        return end


def log_of(hosted: Any) -> bytes:
    """The batches of a replica's files."""
    folder = Path(hosted.log.log_dir) / "t-0"
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


class Held:
    """A fetcher that waits before its next request until it is let go."""

    def __init__(self, fetcher: fetchers.LeaderFetcher) -> None:
        self._fetch = fetcher._fetch
        self.reached = asyncio.Event()
        self.let_go = asyncio.Event()
        fetcher._fetch = self  # type: ignore[method-assign]

    async def __call__(self, request: FetchRequest) -> Any:
        self.reached.set()
        await self.let_go.wait()
        return await self._fetch(request)


async def hold(fetcher: fetchers.LeaderFetcher) -> Held:
    """Return once it asks for nothing more."""
    held = Held(fetcher)
    await held.reached.wait()
    return held


@asynccontextmanager
async def pair(path: Path, **settings: str) -> AsyncIterator[Pair]:
    """Both nodes, unfenced; `settings` are those of node 2 alone."""
    first = config_of(path / "one", **SETTINGS)
    (port,) = lasting_ports(1)
    second = {
        **first,
        "process.roles": "broker",
        "node.id": str(FOLLOWER),
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": f"{path / 'two-a'},{path / 'two-b'}",
        **{key.replace("_", "."): value for key, value in settings.items()},
    }
    format_dir(path / "one")
    for name in ("two-a", "two-b"):
        format_dir(path / name, node_id=FOLLOWER)
    async with running(first) as leader, running(second) as follower:
        nodes = {LEADER: leader, FOLLOWER: follower}
        clients = {number: await connect(node) for number, node in nodes.items()}
        bootstrap = f"127.0.0.1:{leader.ports['PLAINTEXT']}"
        async with Cluster(bootstrap, client_id="test") as cluster:
            try:
                await until(lambda: all(both_alive(node) for node in nodes.values()))
                yield Pair(nodes, clients, LeadershipAdmin(cluster))
            finally:
                for client in clients.values():
                    await client.close()


def both_alive(node: Any) -> bool:
    known = node.broker.image.brokers
    return all(number in known and not known[number].fenced for number in (LEADER, FOLLOWER))


RESPONSE_BYTES = 10_000
BATCHES = 12


def test_an_answer_to_a_follower_keeps_to_the_size_it_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four partitions have more than an answer may hold: each gives one batch, the last none."""
    asked: list[int] = []
    answers: list[list[int]] = []

    async def watched(client: Any, connection: Any, request: FetchRequest, **names: Any) -> Any:
        asked.append(request.max_bytes)
        answer = await original(client, connection, request, **names)
        parts = [part for topic in answer.responses for part in topic.partitions]
        answers.append([len(part.records) for part in parts if part.records])
        return answer

    original = FollowerClient.fetch
    monkeypatch.setattr(FollowerClient, "fetch", watched)

    async def test() -> None:
        sizes = {
            "replica_fetch_max_bytes": "3500",
            "replica_fetch_response_max_bytes": str(RESPONSE_BYTES),
        }
        async with pair(tmp_path, **sizes) as there:
            await there.create(*[[LEADER]] * 4)
            for index in range(4):
                for _ in range(BATCHES):
                    await there.append(LEADER, bytes(3_000), index=index)
            await there.append(LEADER, bytes(2 * RESPONSE_BYTES))
            await there.reassign([LEADER, FOLLOWER], 4)
            await until(
                lambda: all(
                    there.hosted(FOLLOWER, index)
                    and there.hosted(FOLLOWER, index).log.log_end_offset
                    == there.hosted(LEADER, index).log.log_end_offset
                    for index in range(4)
                )
            )

    run(test())
    assert set(asked) == {RESPONSE_BYTES}
    large = [sizes for sizes in answers if sum(sizes) > RESPONSE_BYTES]
    assert {len(sizes) for sizes in large} == {1}, "a batch that is larger comes alone"
    assert max(map(len, answers)) == 3, "as many batches as there is room for"


def test_a_copy_is_truncated_with_its_replica(tmp_path: Path) -> None:
    """Else it would keep records of an epoch whose leader nobody followed."""

    async def test() -> None:
        async with pair(tmp_path, replica_fetch_max_bytes="4000") as there:
            await there.create([FOLLOWER, LEADER])
            for number in range(4):
                await there.append(FOLLOWER, b"kept %d" % number)
            await until(lambda: there.end_of(LEADER) == 4)
            (fetcher,) = there.nodes[LEADER].broker.fetchers.in_order()
            await hold(fetcher)
            for number in range(60):
                await there.append(FOLLOWER, b"lost %d" % number * 10)
            move = await there.half_move()
            copied = move.core.copy.log_end_offset
            assert 4 < copied < there.end_of(FOLLOWER)

            await there.reassign([LEADER, FOLLOWER])
            await there.admin.elect_leaders(PREFERRED, [("t", 0)])
            await until(lambda: there.hosted(LEADER).is_leader)
            for number in range(90):
                await there.append(LEADER, b"new %d" % number * 10)
            await until(lambda: there.end_of(FOLLOWER) == there.end_of(LEADER))
            assert move.core.copy.log_end_offset == copied, "it stood still throughout"
            assert there.end_of(FOLLOWER) > copied, "nor is it found out by its length"
            await there.end_move(move)

    run(test())


def test_a_copy_begins_anew_with_its_replica(tmp_path: Path) -> None:
    """The leader has deleted what a follower lacks: that goes on where the leader's log begins."""

    async def test() -> None:
        async with pair(tmp_path, replica_fetch_max_bytes="4000") as there:
            await there.create([LEADER, FOLLOWER])
            for number in range(60):
                await there.append(LEADER, b"old %d" % number * 10)
            await until(lambda: there.end_of(FOLLOWER) == 60)
            move = await there.half_move()
            assert move.core.lag > 0
            held = await hold(there.fetcher())
            await there.append(LEADER, b"never fetched")
            leading = there.hosted(LEADER)
            leading.followers[FOLLOWER].last_caught_up_ms -= 300_001
            there.nodes[LEADER].broker.replica_manager.maybe_shrink_isrs()
            await until(lambda: leading.log.high_watermark == 61)
            deleted = leading.delete_records(-1, 100_000)
            held.let_go.set()
            await deleted
            assert there.hosted(FOLLOWER).log.log_start_offset == 61
            assert move.core.stage is MoveStage.TRUNCATING, "the copy hears of it at once"
            await there.append(LEADER, b"fetched")
            await until(lambda: there.end_of(FOLLOWER) == 62)
            await there.end_move(move)

    run(test())
