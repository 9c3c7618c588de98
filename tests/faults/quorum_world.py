"""A quorum of real processes under faults, and what must hold in every round.

    round = strike → (a majority is left: a leader and creations) → heal → recovery without help

Checked: every acknowledged creation is known to every node, no epoch has two leaders in any node's
journal, and after the fault every node is back within `RECOVERY_SECONDS_MAX`, untouched.
"""

import asyncio
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster as Client
from sparkraft.client.values import NewTopic
from sparkraft.protocol.messages.k10000_describe_elections import DescribeElectionsRequest
from sparkraft.server.raft.election_journal import FILE_NAME
from tests.cluster.conftest import QUICK
from tests.faults.stalls import Stalls
from tests.support.broken_networks import ProxiedCluster
from tests.support.clusters import Member
from tests.support.ports import wait_until

PROGRESS_SECONDS_MAX = 60
"""A majority elects in 2 to 5 s by Kafka's timers; the rest is for two busy cores."""

RECOVERY_SECONDS_MAX = 60
"""Restarts, sessions of 4 s, Kafka's back-offs."""

FETCH_SECONDS = 2.0
"""controller.quorum.fetch.timeout.ms: so long a follower waits for its leader."""

SESSION_SECONDS = int(QUICK["broker.session.timeout.ms"]) / 1000

TRY_MS = 2_500
"""One attempt to create or ask during a fault."""

NEVER_MS = 1 << 62
"""Wall-clock; nothing of the journal is newer."""

PACE_SECONDS = 0.2
"""Between creations of the background clients."""


class Creations:
    """Creates topics one after another, through any broker; remembers what was acknowledged."""

    def __init__(self, cluster: ProxiedCluster) -> None:
        self.acknowledged: list[str] = []
        self._cluster = cluster
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._failure: BaseException | None = None

    async def _run(self) -> None:
        count = 0
        try:
            while not self._stop.is_set():
                await self._while_it_answers(count)
                count += 1_000_000
        except BaseException as error:
            self._failure = error
            raise

    async def _while_it_answers(self, count: int) -> None:
        """Over one client, until an attempt fails: the next client looks for brokers anew."""
        brokers = self._cluster.bootstrap.split(",")
        bootstrap = ",".join(random.sample(brokers, len(brokers)))
        try:
            async with Client(bootstrap, client_id="creates", api_timeout_ms=TRY_MS) as client:
                while not self._stop.is_set():
                    count += 1
                    name = f"throughout-{count}"
                    await create(Admin(client), name)
                    self.acknowledged.append(name)
                    await asyncio.sleep(PACE_SECONDS)
        except KafkaError:
            await asyncio.sleep(PACE_SECONDS)

    def __enter__(self) -> "Creations":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        assert self._failure is None, self._failure


async def create(admin: Admin, name: str, partitions: int = 1) -> None:
    """Return when it is acknowledged; KafkaError where nobody says that it is there."""
    new = NewTopic(name=name, partitions=partitions, replication_factor=1)
    outcome = (await admin.create_topics([new]))[name]
    if isinstance(outcome, KafkaError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
        raise outcome


@dataclass
class World:
    """A cluster, its clients, and what is known of it so far."""

    cluster: ProxiedCluster
    creations: Creations
    dice: random.Random
    leaders: dict[int, int] = field(default_factory=dict)
    """Epoch → who led it, by all journals."""
    recovery_seconds: list[float] = field(default_factory=list)
    made: int = 0
    flood_seconds: float = 1.5 * SESSION_SECONDS
    """Longer than a broker's session, and many times what an election takes."""

    @property
    def ids(self) -> list[int]:
        return list(self.cluster.nodes)

    @property
    def majority(self) -> int:
        return len(self.ids) // 2 + 1

    def others(self, *ids: int) -> list[int]:
        return [n for n in self.ids if n not in ids]

    def leader(self) -> int:
        return self.cluster.leader(seconds=PROGRESS_SECONDS_MAX)

    def victims(self, count: int, *, with_leader: bool = True) -> list[int]:
        """So many nodes, the leader among them."""
        leader = self.leader()
        rest = self.dice.sample(self.others(leader), count - with_leader)
        return [leader, *rest] if with_leader else rest

    # ---- one round

    def round(self, fault: "Fault") -> None:
        with fault(self) as makes_progress:
            if makes_progress is not None:
                self.must_create(makes_progress)
        begun = time.monotonic()
        self.must_recover()
        self.recovery_seconds.append(time.monotonic() - begun)

    def try_to_create(self, through: int) -> bool:
        name = f"made-{self.made}"
        try:
            self.cluster.ask(lambda admin: create(admin, name), of=through, timeout_ms=TRY_MS)
        except KafkaError:
            return False
        self.made += 1
        self.creations.acknowledged.append(name)
        return True

    def must_create(self, through: list[int]) -> None:
        """One of these brokers gets a topic created, fault or not."""
        wait_until(
            lambda: any(self.try_to_create(node) for node in through),
            f"a topic is created through one of {through}\n{self.cluster.tails()}",
            PROGRESS_SECONDS_MAX,
        )

    def must_not_create(self) -> None:
        """There is no majority: whatever runs acknowledges nothing."""
        for node in self.cluster.running:
            assert not self.try_to_create(node), f"node {node} created a topic without a majority"

    def must_recover(self) -> None:
        """All nodes are as if nothing had been; says what they printed where that isn't so."""
        try:
            self._recovers()
        except AssertionError as error:
            seen = {node: self._sees(node) for node in self.ids}
            raise AssertionError(f"{error}\n{seen}\n{self.cluster.tails()}") from None

    def _recovers(self) -> None:
        deadline = time.monotonic() + RECOVERY_SECONDS_MAX
        for node in self.ids:
            left = deadline - time.monotonic()
            wait_until(partial(self._is_whole, node), f"node {node} sees all", left)
        for node in self.ids:
            left = deadline - time.monotonic()
            wait_until(partial(self.try_to_create, node), f"{node} creates topics", left)
        known = set(self.creations.acknowledged)
        for node in self.ids:
            wait_until(
                partial(self._knows, node, known),
                f"node {node} knows every acknowledged topic",
                max(5.0, deadline - time.monotonic()),
            )
        self.check_leaders()

    def _knows(self, node: int, topics: set[str]) -> bool:
        return topics <= self.cluster.topics(of=node)

    def _is_whole(self, node: int) -> bool:
        """Whether `node` has a leader and sees every broker unfenced."""
        seen = self._sees(node)
        return isinstance(seen, tuple) and seen[0] >= 0 and seen[1] == set(self.ids)

    def is_fenced(self, node: int, *, by: int) -> bool:
        """Whether one broker has heard that another's session is over."""
        seen = self._sees(by)
        return isinstance(seen, tuple) and node not in seen[1]

    def _sees(self, node: int) -> object:
        async def work(admin: Admin) -> tuple[int, set[int]]:
            cluster = await admin.describe_cluster()
            quorum = await admin.describe_quorum()
            return quorum.leader_id, {broker.id for broker in cluster.nodes}

        try:
            return self.cluster.ask(work, of=node, timeout_ms=TRY_MS)
        except KafkaError as error:
            return str(error)

    def must_keep_its_leader(self, disturb: Callable[[], object], times: int = 5) -> None:
        """Topics are created all along, and nobody needs an election for it."""
        before = self.epoch()
        with Stalls(self.cluster.directory) as stalls:
            for _ in range(times):
                disturb()
                self.must_create(self.ids)
            self.assert_no_election_since(before, stalls)

    def assert_no_election_since(self, epoch: int, stalls: Stalls) -> None:
        """Nobody was replaced, unless the machine itself stood still for about a timeout."""
        now = self.epoch()
        message = (
            f"an election for nothing: epoch {epoch} → {now}, {self._reasons(epoch)}, {stalls}"
        )
        assert now == epoch or stalls.excuse(FETCH_SECONDS), f"{message}\n{self.cluster.tails()}"

    def _reasons(self, epoch: int) -> str:
        """Why nodes left `epoch`, in order, with the seconds since the first one."""
        entries = [
            (entry["at"], node, entry["kind"], entry.get("reason", ""))
            for node in self.ids
            for entry in journal(self.cluster.nodes[node].log_dir)
            if entry["epoch"] >= epoch and entry["kind"] in {"prospective", "candidate", "resigned"}
        ]
        first = min((at for at, *_ in entries), default=0)
        return "; ".join(
            f"node {node} {kind} after {(at - first) / 1000:.1f} s: {reason}"
            for at, node, kind, reason in sorted(entries)[:5]
        )

    def epoch(self) -> int:
        """The newest one that any running node knows."""
        return max(int(self._witness(node).epoch) for node in self.cluster.running)

    def state(self, node: int) -> str:
        """What a node is in the quorum, by its own word."""
        return str(self._witness(node).state)

    def _witness(self, node: int) -> Any:
        async def work(admin: Admin) -> Any:
            connection = await admin.cluster.any_connection()
            return await connection.send(DescribeElectionsRequest(since_ms=NEVER_MS))

        return self.cluster.ask(work, of=node)

    def registrations(self) -> list[tuple[int, str]]:
        """(offset, record type) of every registration, fencing and unfencing that is in the log."""
        log_dir = self.cluster.nodes[self.ids[0]].log_dir / "__cluster_metadata-0"
        segments = ",".join(str(path) for path in sorted(log_dir.glob("*.log")))
        decode = ["--cluster-metadata-decoder", "--output", "json", "--files", segments]
        told = self._told("dump-log", *decode)
        return [
            (record["offset"], record["payload"]["type"])
            for line in told.splitlines()
            for record in json.loads(line).get("records", [])
            if "BROKER" in (record.get("payload") or {}).get("type", "")
        ]

    def refused(self, epoch: int) -> set[tuple[int, str]]:
        """(candidate, reason) of every pre-vote that was refused in `epoch`, by the account that
        `explain quorum` makes of all nodes.
        """
        asked = ["--bootstrap-server", self.cluster.bootstrap, "--output", "json"]
        account = json.loads(self._told("explain", "quorum", *asked))
        return {
            (ballot["candidate"], ballot["reason"])
            for told in account["epochs"]
            if told["epoch"] == epoch
            for ballot in told["preVotes"]
            if not ballot["granted"]
        }

    def _told(self, *command: str) -> str:
        """What one of our own commands prints."""
        return subprocess.run(
            [sys.executable, "-m", "sparkraft.cli.main", *command],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout

    # ---- journals

    def check_leaders(self) -> None:
        """No epoch has two leaders, whoever tells of it."""
        for node in self.ids:
            for entry in journal(self.cluster.nodes[node].log_dir):
                leader = entry["leader"]
                if leader >= 0 and entry["kind"] in {"leader", "follower", "log"}:
                    known = self.leaders.setdefault(entry["epoch"], leader)
                    assert known == leader, f"epoch {entry['epoch']}: {known} and {leader} lead"


def journal(log_dir: Path) -> Iterator[dict[str, Any]]:
    """A node's journal as it lies on disk; the last line may be cut off by a kill."""
    path = next(log_dir.rglob(FILE_NAME))
    for line in path.read_text().splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


Fault = Callable[[World], AbstractContextManager[list[int] | None]]
"""Strikes as it is entered, heals as it is left. Gives the nodes through one of which topics can be
created meanwhile; None where no majority is left."""


@contextmanager
def world(directory: Path, nodes: int, *, seed: int = 1) -> Iterator[World]:
    """A cluster that runs, and clients that create topics."""
    members = [Member(n) for n in range(1, nodes + 1)]
    with (
        ProxiedCluster(directory, members, overrides=QUICK) as cluster,
        Creations(cluster) as creations,
    ):
        made = World(cluster, creations, random.Random(seed))
        made.must_recover()
        yield made
