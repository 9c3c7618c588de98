"""All clients of a workload that writes and reads records, with their shared history.

The cluster may be simulated or made of real processes (see `client_env`).
"""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.messages import k19_create_topics as k19
from sparkraft.simulation.workload.compaction_clients import KEYED, SHORT, CompactionClient
from sparkraft.simulation.workload.group_clients import MEMBERS, Ledger, Member
from sparkraft.simulation.workload.history import History, Result
from sparkraft.simulation.workload.node_clients import FAILURES, REQUEST_MS
from sparkraft.simulation.workload.record_clients import (
    CONSUMERS,
    PARTITIONS,
    PRODUCERS,
    TOPIC,
    Careless,
    Client,
    Committer,
    Consumer,
    Producer,
)

if TYPE_CHECKING:
    from sparkraft.simulation.workload.client_env import ClientEnv


async def create_topic(world: "ClientEnv", name: str = TOPIC, partitions: int = PARTITIONS) -> None:
    """Create the topic of the records, or another one; return once it exists."""
    client = Client(world)
    topic = k19.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=world.replicas
    )
    done = {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}
    while True:
        await client.pause(0.1, 0.5)
        try:
            request = k19.CreateTopicsRequest(topics=[topic], timeout_ms=REQUEST_MS)
            answer = await client.ask(client.some_host(), request)
        except FAILURES:
            continue
        if answer.topics[0].error_code in done:
            return


async def after_topic(run: Callable[[], Coroutine[Any, Any, None]], world: "ClientEnv") -> None:
    """Run a client once the topic of the records exists."""
    await create_topic(world)
    await run()


class Workload:
    """The clients of one run, and their history."""

    def __init__(self, world: "ClientEnv", *others: Client, is_small: bool = False) -> None:
        """Create the clients without starting them.

        Args:
            world: the cluster.
            others: run in addition to the usual ones.
            is_small: whether only one producer and one consumer run.
        """
        self.history = History()
        self.compaction_clients: list[CompactionClient] = []
        if is_small:
            self.producers = [Producer(world, "p0", self.history)]
            self.consumers = [Consumer(world, "c0", self.history)]
            self._at_work: tuple[Client, ...] = (*self.producers, *self.consumers, *others)
            return
        self.producers = [Producer(world, f"p{i}", self.history) for i in range(PRODUCERS)]
        self.consumers = [Consumer(world, f"c{i}", self.history) for i in range(CONSUMERS)]
        careless, committer = Careless(world, "u0", self.history), Committer(world)
        ledger = Ledger(world)
        members = [Member(world, ledger) for _ in range(MEMBERS)]
        self.compaction_clients = [CompactionClient(world, topic) for topic in (KEYED, SHORT)]
        at_work = (*self.producers, careless, *self.consumers, committer, *members, *others)
        self._at_work = (*at_work, *self.compaction_clients)

    @property
    def clients(self) -> list[Callable[[Any], Coroutine[Any, Any, None]]]:
        """The functions that run the clients; `NodesWorld.start_all` calls each with the world."""
        return [partial(after_topic, client.run) for client in self._at_work]

    @property
    def is_idle(self) -> bool:
        """Whether no producer waits for a response."""
        return all(producer.is_idle for producer in self.producers)

    def all_read(self) -> bool:
        """Whether each consumer and each compaction client has read all acknowledged records."""
        if not all(keeper.is_done for keeper in self.compaction_clients):
            return False
        ends = dict.fromkeys(range(PARTITIONS), 0)
        for (_, partition), sends in self.history.sends.items():
            for send in sends:
                if send.result is Result.OK and send.offset >= ends[partition]:  # type: ignore[index]
                    ends[partition] = send.offset + 1  # type: ignore[index]
        return all(
            consumer.positions[partition] >= ends[partition]
            for consumer in self.consumers
            for partition in range(PARTITIONS)
        )

    def finish(self) -> None:
        """Record every send that is still without a response as unknown."""
        for producer in self.producers:
            producer.give_up()
