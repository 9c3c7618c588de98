"""Topics that lose old records: by compaction, by retention time and by DeleteRecords.

    k0  writes rising numbers with a few keys to `keyed`, which is compacted throughout the run
    s0  writes rising numbers to `short`, which retains them for seconds, and deletes some itself

S6  at the end each key still has its last acknowledged number, and numbers rise with offsets

The age of a record depends on a machine's wall clock, which may be an hour off here. Retention may
therefore delete any records of `short` that are below the high watermark (P11).
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.messages import k00_produce as k00
from sparkraft.protocol.messages import k01_fetch as k01
from sparkraft.protocol.messages import k02_list_offsets as k02
from sparkraft.protocol.messages import k19_create_topics as k19
from sparkraft.protocol.messages import k21_delete_records as k21
from sparkraft.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from sparkraft.records.batch import iter_batches
from sparkraft.records.record import BatchBuilder, decode_records
from sparkraft.simulation.workload.node_clients import FAILURES, REQUEST_MS
from sparkraft.simulation.workload.record_clients import LOST_TRACK, Client

if TYPE_CHECKING:
    from sparkraft.simulation.workload.client_env import ClientEnv

KEYED = "keyed"
SHORT = "short"
KEYS = 4
CONFIGS = {
    KEYED: {
        "cleanup.policy": "compact",
        "segment.ms": "1500",
        "min.cleanable.dirty.ratio": "0.01",
        "file.delete.delay.ms": "500",
    },
    SHORT: {"retention.ms": "4000", "segment.ms": "1500", "file.delete.delay.ms": "500"},
}


class CompactionClient(Client):
    """Writes one batch at a time with acks=all and retries it until it is acknowledged."""

    def __init__(self, world: "ClientEnv", topic: str) -> None:
        """Create a client of `topic`, which is `KEYED` or `SHORT`."""
        super().__init__(world, topic)
        self._number = 0
        self._last: dict[bytes, int] = {}
        """Key → its last acknowledged number."""
        self._end = 0
        self._identity: tuple[int, int] | None = None
        """Producer id and next sequence."""
        self.is_done = False
        """Whether everything is written and read back."""

    async def run(self) -> None:
        """Create the topic, write until the world drains, then read the remaining records."""
        await self._create()
        while not self.world.draining:
            await self.pause(0.1, 0.6)
            await self._write(str(self.world.dice.randrange(KEYS)).encode())
            if self.topic == SHORT and self.world.dice.random() < 0.1:  # noqa: PLR2004 (seldom)
                await self._delete()
        await self._read_all()
        self.is_done = True

    async def _create(self) -> None:
        topic = k19.CreatableTopic(
            name=self.topic,
            num_partitions=1,
            replication_factor=self.world.replicas,
            configs=[
                k19.CreatableTopicConfig(name=name, value=value)
                for name, value in CONFIGS[self.topic].items()
            ],
        )
        done = {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}
        while True:
            try:
                request = k19.CreateTopicsRequest(topics=[topic], timeout_ms=REQUEST_MS)
                answer = await self.ask(self.some_host(), request)
                if answer.topics[0].error_code in done:
                    return
            except FAILURES:
                pass
            await self.pause(0.1, 0.5)

    async def _write(self, key: bytes) -> None:
        """Write the next number with `key`, and retry until it is acknowledged."""
        producer, sequence = await self._who()
        self._number += 1
        builder = BatchBuilder(producer_id=producer, producer_epoch=0, base_sequence=sequence)
        builder.append(self.world.timestamp_ms(), key, str(self._number).encode())
        raw = builder.build()
        while True:
            try:
                code, offset = await self._try(raw)
            except FAILURES:
                code, offset = ErrorCode.NETWORK_EXCEPTION, -1
            if code in LOST_TRACK:
                text = f"{code.name} at {sequence} in {self.topic}"
                self.world.demand(False, "P11", text)  # noqa: FBT003 (it is a violation)
            if code in {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}:
                break
            self.forget(0)
            await self.pause(0.1, 0.5)
        self._identity = (producer, sequence + 1)
        self._last[key] = self._number
        self._end = max(self._end, offset + 1)
        self.world.on_acknowledged(self.topic, 0, self._end)
        self.world.counts[f"records of {self.topic}"] += 1

    async def _who(self) -> tuple[int, int]:
        while self._identity is None:
            request = InitProducerIdRequest(transactional_id=None, producer_epoch=-1)
            try:
                answer = await self.ask(self.some_host(), request)
            except FAILURES:
                await self.pause(0.1, 0.5)
                continue
            if answer.error_code == 0:
                self.world.on_producer_id(answer.producer_id)
                self._identity = (answer.producer_id, 0)
        return self._identity

    async def _try(self, raw: bytes) -> tuple[ErrorCode, int]:
        leader = await self.leader(0)
        if leader is None:
            return ErrorCode.LEADER_NOT_AVAILABLE, -1
        data = k00.PartitionProduceData(index=0, records=raw)
        topic = k00.TopicProduceData(name=self.topic, partition_data=[data])
        request = k00.ProduceRequest(acks=-1, timeout_ms=2_000, topic_data=[topic])
        answer = await self.ask(leader, request, version=9)
        found = answer.responses[0].partition_responses[0]
        return ErrorCode(found.error_code), found.base_offset

    async def _delete(self) -> None:
        """Delete all records but the last few."""
        target = self._end - self.world.dice.randint(1, 4)
        partition = k21.DeleteRecordsPartition(partition_index=0, offset=target)
        topics = [k21.DeleteRecordsTopic(name=self.topic, partitions=[partition])]
        try:
            leader = await self.leader(0)
            if leader is None or target <= 0:
                return
            request = k21.DeleteRecordsRequest(topics=topics, timeout_ms=1_000)
            answer = await self.ask(leader, request)
            if not answer.topics[0].partitions[0].error_code:
                self.world.counts["records deleted"] += 1
        except FAILURES:
            self.forget(0)

    # ---- at the end

    async def _read_all(self) -> None:
        """Read all remaining records from the log start offset, then check them."""
        found: list[tuple[bytes, int]] = []
        position = 0
        while position < self._end:
            try:
                position = await self._read(position, found)
            except FAILURES:
                self.forget(0)
                await self.pause(0.1, 0.5)
        self._check(found)
        self.world.counts[f"{self.topic} read"] += 1

    async def _read(self, position: int, found: list[tuple[bytes, int]]) -> int:
        leader = await self.leader(0)
        if leader is None:
            await self.pause(0.1, 0.5)
            return position
        wanted = k01.FetchPartition(
            partition=0, fetch_offset=position, partition_max_bytes=64 * 1024
        )
        topics = [k01.FetchTopic(topic=self.topic, partitions=[wanted])]
        request = k01.FetchRequest(max_wait_ms=300, min_bytes=1, topics=topics)
        answer = await self.ask(leader, request, version=11)
        part = answer.responses[0].partitions[0]
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return max(position, await self._start(leader))
        if part.error_code:
            self.forget(0)
            await self.pause(0.1, 0.5)
            return position
        for header, view in iter_batches(part.records or b""):
            found += [
                (bytes(record.key or b""), int(record.value or b""))
                for record in decode_records(view)
                if record.offset >= position
            ]
            position = header.last_offset + 1
        return position

    async def _start(self, leader: str) -> int:
        asked = k02.ListOffsetsPartition(partition_index=0, timestamp=-2)
        topics = [k02.ListOffsetsTopic(name=self.topic, partitions=[asked])]
        answer = await self.ask(leader, k02.ListOffsetsRequest(replica_id=-1, topics=topics))
        return int(answer.topics[0].partitions[0].offset)

    def _check(self, found: list[tuple[bytes, int]]) -> None:
        require = self.world.demand
        numbers = [number for _, number in found]
        require(numbers == sorted(numbers), "S6", f"{self.topic} is out of order: {numbers}")
        last = dict(found)
        for key, number in sorted(self._last.items()):
            if self.topic == KEYED:
                held = last.get(key, -1)
                require(held >= number, "S6", f"{key!r} was {number} last, {self.topic} has {held}")
