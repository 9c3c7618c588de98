"""Produce and Fetch requests one by one, of which none is sent twice: what each of them met.

    request → answer → append, or read on
            → NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH, and who leads where (KIP-951)
                → the next request goes there
            → UNKNOWN_LEADER_EPOCH: that node hasn't heard yet, and is asked again
            → the connection is refused or closed → Metadata of another node tells who leads

For each partition one task writes and one reads. A client of Kafka's would repeat what failed and
tell nobody; here `failures` has it. An idle connection may be closed by a node that leads no more.
"""

import asyncio
import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.client.connection import Connection
from sparkraft.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from sparkraft.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from sparkraft.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from sparkraft.records.batch import iter_batches
from sparkraft.records.record import BatchBuilder, decode_records

HOST = "127.0.0.1"
MOVED = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH}
ANSWER_MS_MAX = 30_000
POLL_MS = 500
PAUSE_SECONDS = 0.01
"""Between requests of a task: some hundred a second of all tasks, and room for the nodes."""


class Lost(NamedTuple):
    """A request that nobody answered, from when it was wanted to when that was clear."""

    what: str
    wanted: float
    clear: float


class SingleRequests:
    """See the module docstring; they begin and end with the `with` block."""

    def __init__(self, ports: Mapping[int, int], topic: str, topic_id: Uuid, partitions: int):
        """Send nothing yet; `ports` are the client listeners of the brokers by their ids."""
        self.ports = dict(ports)
        self.topic = topic
        self.topic_id = topic_id
        self.failures: list[str] = []
        """Requests that were answered with anything else, or not at all by a node that leads."""
        self.lost: list[Lost] = []
        """Requests that a node which leads no more did not answer: it was closing already."""
        self.moved = 0
        """Answers that told who leads instead."""
        self.acknowledged: list[list[tuple[int, bytes]]] = [[] for _ in range(partitions)]
        """By partition: (offset, value), in the order of sending."""
        self.read: list[list[tuple[int, bytes]]] = [[] for _ in range(partitions)]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._broken: BaseException | None = None

    async def _run(self) -> None:
        tasks = [
            task(self, partition).run(self._stop)
            for partition in range(len(self.read))
            for task in (_Writer, _Reader)
        ]
        try:
            await asyncio.gather(*tasks)
        except BaseException as error:
            self._broken = error

    def __enter__(self) -> Self:
        """Start."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop; the last answers are waited for."""
        self._stop.set()
        self._thread.join(90)
        assert not self._thread.is_alive()
        assert self._broken is None, self._broken


class _Task:
    """Sends one request after another to whom it takes for the leader of a partition."""

    def __init__(self, owner: SingleRequests, partition: int) -> None:
        self.owner = owner
        self.partition = partition
        self._leader = -1
        self._epoch = -1
        self._connection: Connection | None = None

    async def run(self, stop: threading.Event) -> None:
        await self._look_up(avoid=-1)
        while not stop.is_set():
            connection = await self._connected()
            if connection is not None:
                await self._send(connection)
            await asyncio.sleep(PAUSE_SECONDS)
        if self._connection is not None:
            await self._connection.close()

    async def request(self, connection: Connection) -> tuple[Any, Any]:
        """One request's answer, and the part of it that tells of the partition."""
        raise NotImplementedError

    def accept(self, entry: Any) -> None:
        """What came without an error."""
        raise NotImplementedError

    async def _send(self, connection: Connection) -> None:
        leader, wanted = self._leader, time.monotonic()
        try:
            answer, entry = await self.request(connection)
        except KafkaError as error:
            clear = time.monotonic()
            await self._look_up(avoid=leader)
            what = self._named(f"node {leader} did not answer: {error}")
            if self._leader == leader:
                self.owner.failures.append(what)
            else:
                self.owner.lost.append(Lost(what, wanted, clear))
            return
        code = ErrorCode(entry.error_code)
        if code is ErrorCode.NONE:
            self.accept(entry)
        elif code in MOVED:
            self._follow(leader, code, entry.current_leader, answer.node_endpoints)
        elif code is not ErrorCode.UNKNOWN_LEADER_EPOCH:
            self._fail(f"node {leader} answered {code.name} in epoch {self._epoch}: {entry}")

    def _follow(self, told_by: int, code: ErrorCode, hint: Any, endpoints: Any) -> None:
        """Take the hint; an older one is of a node that hasn't heard yet, and asked again."""
        places = {endpoint.node_id: endpoint.port for endpoint in endpoints}
        if self.owner.ports.get(hint.leader_id, -1) != places.get(hint.leader_id):
            self._fail(f"node {told_by} answered {code.name} with {hint} at {places}")
            return
        self.owner.moved += 1
        if hint.leader_epoch > self._epoch:
            self._leader, self._epoch = hint.leader_id, hint.leader_epoch

    async def _connected(self) -> Connection | None:
        port, leader = self.owner.ports[self._leader], self._leader
        if self._connection is not None and self._connection.port != port:
            await self._connection.close()
            self._connection = None
        if self._connection is None or self._connection.is_closed:
            try:
                self._connection = await Connection.open(HOST, port, client_id="single")
            except KafkaError as error:
                await self._look_up(avoid=leader)
                if self._leader == leader:
                    self._fail(f"node {leader} leads and refuses connections: {error}")
                return None
        return self._connection

    async def _look_up(self, *, avoid: int) -> None:
        """Ask the others who leads."""
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=self.owner.topic)])
        for node in sorted(self.owner.ports.keys() - {avoid}):
            try:
                connection = await Connection.open(HOST, self.owner.ports[node])
                answer = await connection.send(wanted)
                await connection.close()
            except KafkaError:
                continue
            for place in answer.topics[0].partitions:
                if place.partition_index == self.partition and place.leader_epoch > self._epoch:
                    self._leader, self._epoch = place.leader_id, place.leader_epoch

    def _fail(self, what: str) -> None:
        self.owner.failures.append(self._named(what))

    def _named(self, what: str) -> str:
        return f"{type(self).__name__.removeprefix('_')} of partition {self.partition}: {what}"


class _Writer(_Task):
    """Every record is a request with acks=all; what an answer doesn't confirm is left behind."""

    _count = 0

    async def request(self, connection: Connection) -> tuple[Any, Any]:
        self._count += 1
        builder = BatchBuilder()
        # Retention would take a record of 1970 as soon as it looks, half a minute from the start.
        builder.append(time.time_ns() // 1_000_000, None, self._value, [])
        place = PartitionProduceData(index=self.partition, records=builder.build())
        topic = TopicProduceData(
            name=self.owner.topic, topic_id=self.owner.topic_id, partition_data=[place]
        )
        request = ProduceRequest(acks=-1, timeout_ms=ANSWER_MS_MAX, topic_data=[topic])
        answer = await connection.send(request, timeout_ms=2 * ANSWER_MS_MAX)
        return answer, answer.responses[0].partition_responses[0]

    def accept(self, entry: Any) -> None:
        self.owner.acknowledged[self.partition].append((entry.base_offset, self._value))

    @property
    def _value(self) -> bytes:
        return b"%d" % self._count


class _Reader(_Task):
    """Polls from where the last answer ended."""

    _offset = 0

    async def request(self, connection: Connection) -> tuple[Any, Any]:
        place = FetchPartition(
            partition=self.partition,
            # Without it a node that leads no more would serve us as a follower (KIP-392).
            current_leader_epoch=self._epoch,
            fetch_offset=self._offset,
            partition_max_bytes=1 << 20,
        )
        request = FetchRequest(
            max_wait_ms=POLL_MS,
            min_bytes=1,
            topics=[
                FetchTopic(topic=self.owner.topic, topic_id=self.owner.topic_id, partitions=[place])
            ],
        )
        answer = await connection.send(request, timeout_ms=ANSWER_MS_MAX)
        if not answer.responses:
            raise KafkaError(ErrorCode(answer.error_code), "an answer without the partition")
        return answer, answer.responses[0].partitions[0]

    def accept(self, entry: Any) -> None:
        for _, batch in iter_batches(entry.records or b""):
            for record in decode_records(batch):
                if record.offset >= self._offset:
                    self._offset = record.offset + 1
                    found = (record.offset, bytes(record.value or b""))
                    self.owner.read[self.partition].append(found)
