"""Producers and consumers of a simulated cluster, which record what they see (`history`).

    p0, p1  idempotent producers, acks=all: one batch in flight per partition, retried with the
            same sequence until its result is known; p1 compresses
    u0      a producer that never retries, with acks=1 or all: it leaves uncommitted log tails;
            NOT_ENOUGH_REPLICAS means that the value was not written
    c0, c1  consumers that read each partition from its leader, from offset 0
    g       commits rising offsets for a group, and fetches them

They use only the network; values are `producer.partition.number`.
"""

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkraft.base.errors import ErrorCode
from sparkraft.client.connection import Connection
from sparkraft.protocol.messages import k00_produce as k00
from sparkraft.protocol.messages import k01_fetch as k01
from sparkraft.protocol.messages import k02_list_offsets as k02
from sparkraft.protocol.messages import k08_offset_commit as k08
from sparkraft.protocol.messages import k09_offset_fetch as k09
from sparkraft.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from sparkraft.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from sparkraft.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from sparkraft.records.batch import iter_batches
from sparkraft.records.compression import Codec
from sparkraft.records.record import BatchBuilder, decode_records
from sparkraft.simulation.workload.history import UNKNOWN_OFFSET, History, Poll, Result, Send
from sparkraft.simulation.workload.node_clients import FAILURES, REQUEST_MS

if TYPE_CHECKING:
    from sparkraft.simulation.workload.client_env import ClientEnv

TOPIC = "records"
PARTITIONS = 3
GROUP = "readers"
PRODUCERS = 2
CONSUMERS = 2
BATCH_RECORDS_MAX = 3
FETCH_BYTES = 64 * 1024

COMPRESSED_BY = {"p1": Codec.GZIP}
"""Producer → codec: brokers check its batches in a thread."""

METADATA_AGE_S = 30
"""Age at which clients refresh their metadata: `metadata.max.age.ms`, five minutes in Kafka. It
matters only if a leader stays partitioned for good and never learns of its successor."""

LOST_TRACK = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
    }
)
"""The leader has lost track of this producer: the batch in flight may be written or not."""


class Batch(NamedTuple):
    """Values in flight, and the batch that is retried until there is a response."""

    values: list[str]
    first: int
    raw: bytes


class Client:
    """The connections of one client, and its metadata about leaders."""

    def __init__(self, world: "ClientEnv", topic: str = TOPIC) -> None:
        """Create a client without connections that looks up the leaders of `topic`."""
        self.world = world
        self.topic = topic
        self._connections: dict[str, Connection] = {}
        self._leaders: dict[int, str] = {}
        self._epochs: dict[int, int] = {}

    async def run(self) -> None:
        """Run until the world ends."""

    async def pause(self, low: float, high: float) -> None:
        """Wait between `low` and `high` seconds."""
        await asyncio.sleep(self.world.dice.uniform(low, high))

    def some_host(self) -> str:
        """Return a random broker that is not broken for good."""
        return self.world.dice.choice(self.world.hosts)

    async def ask(self, host: str, request: Any, version: int | None = None) -> Any:
        """Send a request to `host` and return its response; a failed connection is closed."""
        connection = await self.connected(host)
        self.world.on_request(request)
        try:
            answer = await connection.send(request, version=version, timeout_ms=REQUEST_MS)
        except FAILURES:
            connection.abort("request failed")
            raise
        self.world.on_response(host, request, answer)
        return answer

    async def connected(self, host: str) -> Connection:
        """Return the open connection to `host`; open one if there is none."""
        connection = self._connections.get(host)
        if connection is None or connection.is_closed:
            connection = self._connections[host] = await self.connect(host)
        return connection

    async def connect(self, host: str) -> Connection:
        """Open a connection to `host`."""
        return await Connection.open(*self.world.address(host), timeout_ms=REQUEST_MS)

    async def leader(self, partition: int) -> str | None:
        """Return the partition's leader from cached or new metadata; None if there is none.

        Metadata with an older leader epoch than the known one is ignored, as in Kafka's clients
        (KIP-320).
        """
        if partition not in self._leaders:
            self._leaders = {}
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name=self.topic)], allow_auto_topic_creation=False
            )
            answer = await self.ask(self.some_host(), request)
            hosts = {each.node_id: each.host for each in answer.brokers}
            for topic in answer.topics:
                for found in topic.partitions:
                    index, epoch = found.partition_index, found.leader_epoch
                    if found.leader_id >= 0 and epoch >= self._epochs.get(index, 0):
                        self._epochs[index] = epoch
                        leader = found.leader_id
                        self._leaders[index] = self.world.host_of(leader, hosts.get(leader))
        return self._leaders.get(partition)

    def forget(self, partition: int) -> None:
        """Drop the cached leader of `partition`."""
        self._leaders.pop(partition, None)


class Producer(Client):
    """See the module docstring."""

    def __init__(self, world: "ClientEnv", name: str, history: History) -> None:
        super().__init__(world)
        self._name = name
        self._history = history
        self._number = 0
        self._ids: dict[int, tuple[int, int]] = {}
        """Partition → producer id, next sequence."""
        self._pending: dict[int, Batch] = {}

    async def run(self) -> None:
        """Send to all partitions until the world drains; batches in flight are completed."""
        async with asyncio.TaskGroup() as group:
            for partition in range(PARTITIONS):
                group.create_task(self._feed(partition))

    async def _feed(self, partition: int) -> None:
        while not self.world.draining:
            await self.pause(0.02, 0.5)
            producer_id, sequence = await self._identity(partition)
            batch = self._batch(partition, producer_id, sequence)
            self._pending[partition] = batch
            result, offset = await self._until_known(partition, batch)
            for place, value in enumerate(batch.values):
                at = offset + place if offset >= 0 else UNKNOWN_OFFSET
                self._history.sent(self._name, partition, Send(value, result, at))
            if result is Result.OK:
                self.world.on_acknowledged(TOPIC, partition, offset + len(batch.values))
                self.world.counts["records acknowledged"] += len(batch.values)
                self._ids[partition] = (producer_id, sequence + len(batch.values))
            else:
                self._ids.pop(partition)
            self._pending.pop(partition)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight."""
        return not self._pending

    def give_up(self) -> None:
        """Record the batches in flight at the end of the run as unknown."""
        for partition, batch in self._pending.items():
            for value in batch.values:
                self._history.sent(self._name, partition, Send(value, Result.UNKNOWN))

    async def _identity(self, partition: int) -> tuple[int, int]:
        while partition not in self._ids:
            request = InitProducerIdRequest(transactional_id=None, producer_epoch=-1)
            try:
                answer = await self.ask(self.some_host(), request)
            except FAILURES:
                await self.pause(0.05, 0.5)
                continue
            if answer.error_code == 0:
                self.world.on_producer_id(answer.producer_id)
                self._ids[partition] = (answer.producer_id, 0)
        return self._ids[partition]

    def _batch(self, partition: int, producer_id: int, sequence: int) -> Batch:
        builder = BatchBuilder(
            codec=COMPRESSED_BY.get(self._name, Codec.NONE),
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
        values = []
        for _ in range(self.world.dice.randint(1, BATCH_RECORDS_MAX)):
            self._number += 1
            value = f"{self._name}.{partition}.{self._number}"
            values.append(value)
            builder.append(self.world.timestamp_ms(), None, value.encode())
        return Batch(values, sequence, builder.build())

    async def _until_known(self, partition: int, batch: Batch) -> tuple[Result, int]:
        while True:
            try:
                code, offset = await self._try(partition, batch)
            except FAILURES:
                code, offset = ErrorCode.NETWORK_EXCEPTION, UNKNOWN_OFFSET
            if code is ErrorCode.NONE:
                return Result.OK, offset
            if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                return Result.OK, UNKNOWN_OFFSET
            if code in LOST_TRACK:
                self._complain(partition, batch, code)
                return Result.UNKNOWN, UNKNOWN_OFFSET
            self.forget(partition)
            await self.pause(0.05, 0.5)

    def _complain(self, partition: int, batch: Batch, code: ErrorCode) -> None:
        """Record a violation: acknowledged batches are never lost, so every leader has them."""
        text = f"{self._name} gets {code.name} at {batch.first} in {TOPIC}-{partition}"
        self.world.demand(False, "P11", text)  # noqa: FBT003 (it is one)

    async def _try(self, partition: int, batch: Batch) -> tuple[ErrorCode, int]:
        leader = await self.leader(partition)
        if leader is None:
            return ErrorCode.LEADER_NOT_AVAILABLE, UNKNOWN_OFFSET
        data = k00.PartitionProduceData(index=partition, records=batch.raw)
        request = k00.ProduceRequest(
            acks=-1,
            timeout_ms=2_000,
            topic_data=[k00.TopicProduceData(name=TOPIC, partition_data=[data])],
        )
        answer = await self.ask(leader, request, version=9)
        found = answer.responses[0].partition_responses[0]
        return ErrorCode(found.error_code), found.base_offset


class Careless(Client):
    """A producer without retries: each value is written at most once."""

    def __init__(self, world: "ClientEnv", name: str, history: History) -> None:
        super().__init__(world)
        self._name = name
        self._history = history

    async def run(self) -> None:
        """Send one value at a time until the world drains."""
        number = 0
        while not self.world.draining:
            await self.pause(0.05, 0.4)
            number += 1
            partition = self.world.dice.randrange(PARTITIONS)
            value = f"{self._name}.{partition}.{number}"
            self._history.sent(value, partition, Send(value, Result.UNKNOWN))
            builder = BatchBuilder()
            builder.append(self.world.timestamp_ms(), None, value.encode())
            try:
                code = await self._write(partition, builder.build())
            except FAILURES:
                code = ErrorCode.NETWORK_EXCEPTION
            if code is ErrorCode.NOT_ENOUGH_REPLICAS:
                self.world.counts["records refused"] += 1
                self._history.sends[value, partition] = [Send(value, Result.FAILED)]
            if code is not ErrorCode.NONE:
                self.forget(partition)

    async def _write(self, partition: int, raw: bytes) -> ErrorCode:
        leader = await self.leader(partition)
        if leader is None:
            return ErrorCode.LEADER_NOT_AVAILABLE
        data = k00.PartitionProduceData(index=partition, records=raw)
        topic = k00.TopicProduceData(name=TOPIC, partition_data=[data])
        acks = self.world.dice.choice([1, -1])
        request = k00.ProduceRequest(acks=acks, timeout_ms=2_000, topic_data=[topic])
        answer = await self.ask(leader, request, version=9)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)


class Consumer(Client):
    """Reads everything; `positions` has the next offset for each partition."""

    def __init__(self, world: "ClientEnv", name: str, history: History) -> None:
        super().__init__(world)
        self._name = name
        self._history = history
        self.positions = dict.fromkeys(range(PARTITIONS), 0)
        self._latest = dict.fromkeys(range(PARTITIONS), 0)

    async def run(self) -> None:
        """Poll all partitions until the run ends."""
        async with asyncio.TaskGroup() as group:
            for partition in range(PARTITIONS):
                group.create_task(self._follow(partition))

    async def _follow(self, partition: int) -> None:
        clock = asyncio.get_running_loop().time
        asked = clock()
        while True:
            await self.pause(0.02, 0.3)
            try:
                known = await self._poll(partition)
            except FAILURES:
                known = False
            if self.world.has_deaf_leaders and clock() - asked > METADATA_AGE_S:
                known = False
            if not known:
                asked = clock()
                self.forget(partition)
                await self.pause(0.05, 0.5)

    async def _poll(self, partition: int) -> bool:
        leader = await self.leader(partition)
        if leader is None:
            return False
        if self.world.dice.random() < 0.1:  # noqa: PLR2004 (now and then)
            await self._ask_latest(leader, partition)
        position = self.positions[partition]
        wanted = k01.FetchPartition(
            partition=partition, fetch_offset=position, partition_max_bytes=FETCH_BYTES
        )
        request = k01.FetchRequest(
            max_wait_ms=300,
            min_bytes=1,
            topics=[k01.FetchTopic(topic=TOPIC, partitions=[wanted])],
        )
        answer = await self.ask(leader, request, version=11)
        if answer.error_code:
            return False
        found = answer.responses[0].partitions[0]
        if found.error_code:
            self.world.counts[f"consumer: {ErrorCode(found.error_code).name}"] += 1
            return False
        self._take(partition, position, found)
        return True

    def _take(self, partition: int, position: int, found: Any) -> None:
        records: list[tuple[int, str]] = []
        for header, view in iter_batches(found.records or b""):
            self._check_visible(partition, header.last_offset, found.high_watermark)
            records += [
                (record.offset, bytes(record.value or b"").decode())
                for record in decode_records(view)
                if record.offset >= position
            ]
        if records:
            self.world.counts["records read"] += len(records)
            self._history.polled(self._name, partition, Poll(tuple(records)))
            self.positions[partition] = records[-1][0] + 1

    def _check_visible(self, partition: int, offset: int, high_watermark: int) -> None:
        self.world.demand(
            offset < high_watermark,
            "P8",
            f"{self._name} gets offset {offset} of {TOPIC}-{partition}, HW={high_watermark}",
        )

    async def _ask_latest(self, leader: str, partition: int) -> None:
        """Check that the end offset that consumers see never goes back (KIP-207).

        The leader epoch of the response is cached, as in OffsetFetcherUtils. Later requests
        therefore never go to an earlier leader that has not learned of its successor.
        """
        asked = k02.ListOffsetsPartition(partition_index=partition, timestamp=-1)
        topics = [k02.ListOffsetsTopic(name=TOPIC, partitions=[asked])]
        answer = await self.ask(leader, k02.ListOffsetsRequest(replica_id=-1, topics=topics))
        found = answer.topics[0].partitions[0]
        if found.error_code:
            return
        self._epochs[partition] = max(self._epochs.get(partition, 0), found.leader_epoch)
        known = self._latest[partition]
        self.world.demand(
            found.offset >= known,
            "P7",
            f"the end of {TOPIC}-{partition} was {known}, {leader} returns {found.offset}",
        )
        self._latest[partition] = found.offset


class Committer(Client):
    """Commits rising offsets; no fetch may return less than an acknowledged offset (G4)."""

    def __init__(self, world: "ClientEnv") -> None:
        super().__init__(world)
        self._next = 0
        self._acknowledged = -1
        self._coordinator: str | None = None

    async def run(self) -> None:
        """Commit and fetch in random order until the run ends."""
        while True:
            await self.pause(0.05, 0.8)
            try:
                known = await self._once()
            except FAILURES:
                known = False
            if not known:
                self._coordinator = None

    async def _once(self) -> bool:
        if self._coordinator is None:
            request = FindCoordinatorRequest(coordinator_keys=[GROUP], key_type=0)
            answer = await self.ask(self.some_host(), request, version=4)
            found = answer.coordinators[0]
            if found.error_code:
                return False
            self._coordinator = f"n{found.node_id}"
        if self.world.dice.random() < 0.6:  # noqa: PLR2004 (commits rather more often)
            return await self._commit(self._coordinator)
        return await self._fetch(self._coordinator)

    async def _commit(self, host: str) -> bool:
        self._next += 1
        offset = self._next
        wanted = k08.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        topics = [k08.OffsetCommitRequestTopic(name=TOPIC, partitions=[wanted])]
        request = k08.OffsetCommitRequest(group_id=GROUP, member_id="", topics=topics)
        answer = await self.ask(host, request, version=8)
        if answer.topics[0].partitions[0].error_code:
            return False
        self._acknowledged = offset
        self.world.counts["offsets committed"] += 1
        return True

    async def _fetch(self, host: str) -> bool:
        topics = [k09.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
        groups = [k09.OffsetFetchRequestGroup(group_id=GROUP, topics=topics)]
        answer = await self.ask(host, k09.OffsetFetchRequest(groups=groups), version=8)
        group = answer.groups[0]
        found = group.topics[0].partitions[0] if group.topics else None
        if group.error_code or found is None or found.error_code:
            return False
        self.world.demand(
            self._acknowledged <= found.committed_offset <= self._next,
            "G4",
            f"{self._acknowledged} was committed last, {host} returns {found.committed_offset}",
        )
        return True
