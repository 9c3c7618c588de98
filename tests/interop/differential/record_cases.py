"""Records: batches that are good, odd and broken, and every way to read them back."""

from collections.abc import Iterator
from typing import Any

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.declare import Message
from sparkraft.protocol.messages import (
    k00_produce as k00,
)
from sparkraft.protocol.messages import (
    k01_fetch as k01,
)
from sparkraft.protocol.messages import (
    k02_list_offsets as k02,
)
from sparkraft.protocol.messages import (
    k21_delete_records as k21,
)
from sparkraft.protocol.messages import (
    k22_init_producer_id as k22,
)
from sparkraft.protocol.messages import (
    k23_offset_for_leader_epoch as k23,
)
from sparkraft.protocol.messages import (
    k61_describe_producers as k61,
)
from sparkraft.records.compression import Codec
from sparkraft.records.record import BatchBuilder
from tests.interop.differential.building import (
    BASE_MS,
    COMPACTED,
    EMPTY,
    TOPIC,
    batch,
    every_version,
)
from tests.interop.differential.world import SILENCE_SECONDS, Case, World


def produces() -> Iterator[Case]:
    """Records that are written, and many that must not be."""
    key = ApiKey.PRODUCE

    def request(
        records: bytes | None,
        *,
        topic: str = TOPIC,
        partition: int = 0,
        acks: int = -1,
        tid: str | None = None,
    ) -> Any:
        return lambda w: k00.ProduceRequest(
            transactional_id=tid,
            acks=acks,
            timeout_ms=5_000,
            topic_data=[k00.TopicProduceData(
                name=topic, topic_id=w.topic_id(topic),
                partition_data=[k00.PartitionProduceData(index=partition, records=records)],
            )],
        )  # fmt: skip

    yield from every_version(key, "three records", request(batch()))
    yield from every_version(key, "acks 1", request(batch(1), acks=1))
    for codec in Codec:
        if codec is not Codec.NONE:
            yield Case(f"codec {codec.name}", key, 9, request(batch(50, codec=codec), partition=1))
    good = batch()
    bad: dict[str, Any] = {
        "unknown topic": request(good, topic="nowhere"),
        "unknown partition": request(good, partition=7),
        "acks 2": request(good, acks=2),
        "no records": request(None),
        "empty records": request(b""),
        "wrong crc": request(spoil(good, 25, good[25] ^ 1)),
        "magic 1": request(spoil(good, 16, 1)),
        "magic 3": request(spoil(good, 16, 3)),
        "half a batch": request(good[: len(good) // 2]),
        "header only": request(good[:61]),
        "two batches": request(good + batch(2)),
        "too large": request(large()),
        "keyless for compacted": request(batch(2, keys=False), topic=COMPACTED),
        "far future": request(batch(1, first_ms=33_000_000_000_000)),
        "control batch": request(control_batch()),
        "lying last offset delta": request(lying_delta()),
        "zero records": request(zero_records()),
    }
    for version in (3, 9, 12, 13):
        for label, build in bad.items():
            if label != "no records":
                yield Case(label, key, version, build)
            elif version == 9:  # Kafka leaves it unanswered: slow.
                yield Case(label, key, version, build, seconds=SILENCE_SECONDS)
    yield Case("keyed for compacted", key, 9, request(batch(2), topic=COMPACTED))

    def idempotent(sequence: int, *, epoch: int = 0, delta_id: int = 0) -> Any:
        def build(w: World) -> Message:
            producer = (w.numbers.get("producer", 0) + delta_id, epoch, sequence)
            message: Message = request(batch(2, producer=producer), partition=2)(w)
            return message

        return build

    def keep_producer(world: World, response: Any) -> None:
        world.numbers["producer"] = response.producer_id

    init = k22.InitProducerIdRequest
    yield from every_version(ApiKey.INIT_PRODUCER_ID, "idempotent", lambda _: init(
        transactional_id=None, transaction_timeout_ms=60_000), after=keep_producer)  # fmt: skip
    yield from every_version(ApiKey.INIT_PRODUCER_ID, "id without epoch", lambda _: init(
        transactional_id=None, transaction_timeout_ms=60_000, producer_id=5, producer_epoch=-1), since=3)  # fmt: skip
    for label, build in {
        "sequence 0": idempotent(0), "sequence 2": idempotent(2), "sequence 2 again": idempotent(2),
        "sequence 0 again": idempotent(0), "a gap": idempotent(9), "newer epoch not from 0": idempotent(4, epoch=1),
        "newer epoch": idempotent(0, epoch=1), "older epoch": idempotent(4, epoch=0),
        "unknown producer": idempotent(5, delta_id=1),
    }.items():  # fmt: skip
        yield Case(label, key, 9, build)
    producers = k61.DescribeProducersRequest
    yield Case("producers", ApiKey.DESCRIBE_PRODUCERS, 0, lambda _: producers(topics=[
        k61.TopicRequest(name=TOPIC, partition_indexes=[0, 2, 9]),
        k61.TopicRequest(name="nowhere", partition_indexes=[0])]))  # fmt: skip


def large() -> bytes:
    """A batch above the default max.message.bytes."""
    builder = BatchBuilder()
    builder.append(BASE_MS, b"k", b"x" * 1_100_000, [])
    return builder.build()


def _rebuilt(data: bytes, at: int, new: bytes) -> bytes:
    """`data` with `new` at `at`, and the CRC right again."""
    import crc32c

    changed = data[:at] + new + data[at + len(new) :]
    return changed[:17] + crc32c.crc32c(changed[21:]).to_bytes(4, "big") + changed[21:]


def control_batch() -> bytes:
    """A batch that claims to be the broker's own."""
    return _rebuilt(batch(1), 21, (0x20).to_bytes(2, "big"))


def lying_delta() -> bytes:
    """Three records, a last offset delta of 7."""
    return _rebuilt(batch(3), 23, (7).to_bytes(4, "big"))


def zero_records() -> bytes:
    """A header that counts no records."""
    return _rebuilt(_rebuilt(batch(1), 57, bytes(4)), 23, (0xFFFFFFFF).to_bytes(4, "big"))


def spoil(data: bytes, at: int, value: int) -> bytes:
    """`data` with one byte replaced."""
    return data[:at] + bytes([value]) + data[at + 1 :]


def reads() -> Iterator[Case]:
    """Fetch, ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""
    key = ApiKey.FETCH

    def fetch(
        *places: tuple[str, int, int],
        wait: int = 50,
        session: tuple[int, int] = (0, -1),
        level: int = 0,
        size: int = 1_000_000,
        epoch: int = -1,
        minimum: int = 1,
        replica: int = -1,
    ) -> Any:
        def build(w: World) -> Message:
            topics: dict[str, k01.FetchTopic] = {}
            for topic, partition, offset in places:
                entry = topics.setdefault(
                    topic, k01.FetchTopic(topic=topic, topic_id=w.topic_id(topic), partitions=[])
                )
                entry.partitions.append(k01.FetchPartition(
                    partition=partition, fetch_offset=offset, partition_max_bytes=size,
                    current_leader_epoch=epoch))  # fmt: skip
            session_id = w.numbers.get("session", 0) if session[0] else 0
            return k01.FetchRequest(
                replica_id=replica, replica_state=k01.ReplicaState(replica_id=replica),
                max_wait_ms=wait, min_bytes=minimum, max_bytes=10_000_000,
                isolation_level=level, session_id=session_id, session_epoch=session[1],
                topics=list(topics.values()),
            )  # fmt: skip

        return build

    yield from every_version(key, "from the start", fetch((TOPIC, 0, 0), (TOPIC, 1, 0)))
    yield from every_version(key, "committed only", fetch((TOPIC, 0, 0), level=1))
    yield from every_version(key, "at the end", fetch((TOPIC, 0, 10_000_000)))
    yield from every_version(key, "unknown topic", fetch(("nowhere", 0, 0)))
    yield from every_version(key, "unknown partition", fetch((TOPIC, 9, 0)))
    yield from every_version(key, "one byte", fetch((TOPIC, 0, 1), size=1))
    yield from every_version(key, "empty partition", fetch((EMPTY, 0, 0)))
    yield from every_version(key, "newer epoch", fetch((TOPIC, 0, 0), epoch=9), since=9)
    yield from every_version(key, "negative offset", fetch((TOPIC, 0, -5)), since=11)

    # Replicas that there are not: a stranger, the leader itself, and ids that mean consumers.
    for replica in (7, 1, -2, -9):
        yield from every_version(
            key, f"as replica {replica}", fetch((TOPIC, 0, 0), (EMPTY, 0, 0), replica=replica)
        )
        yield from every_version(
            key, f"as replica {replica} with an epoch",
            fetch((TOPIC, 0, 0), epoch=0, replica=replica), since=9,
        )  # fmt: skip

    def keep_session(world: World, response: Any) -> None:
        world.numbers["session"] = response.session_id

    for version in (7, 12, 13, 17):
        yield Case(
            "session opens",
            key,
            version,
            fetch((TOPIC, 0, 0), (TOPIC, 2, 0), session=(0, 0)),
            keep_session,
        )
        yield Case("session goes on", key, version, fetch(session=(1, 1)))
        yield Case("session adds", key, version, fetch((EMPTY, 0, 0), session=(1, 2)))
        yield Case("session epoch wrong", key, version, fetch(session=(1, 9)))
        yield Case("session closes", key, version, fetch(session=(1, -1)))
        yield Case("session is gone", key, version, fetch(session=(1, 3)))

    offsets = ApiKey.LIST_OFFSETS

    def listed(
        stamp: int, *, topic: str = TOPIC, partition: int = 0, epoch: int = -1, replica: int = -1
    ) -> Any:
        return lambda _: k02.ListOffsetsRequest(replica_id=replica, topics=[k02.ListOffsetsTopic(name=topic, partitions=[
            k02.ListOffsetsPartition(partition_index=partition, timestamp=stamp, current_leader_epoch=epoch)])])  # fmt: skip

    for label, stamp in {
        "latest": -1,
        "earliest": -2,
        "by time": BASE_MS + 1,
        "after all": BASE_MS * 2,
    }.items():
        yield from every_version(offsets, label, listed(stamp))
    for special in (-3, -4, -5, -6, -7):
        yield from every_version(offsets, f"special {special}", listed(special), since=7)
    yield from every_version(offsets, "unknown topic", listed(-1, topic="nowhere"), since=5)
    yield from every_version(offsets, "unknown partition", listed(-1, partition=9), since=5)
    yield from every_version(offsets, "newer epoch", listed(-1, epoch=9), since=5)

    def epoch_of(epoch: int, *, current: int = -1, topic: str = TOPIC) -> Any:
        place = k23.OffsetForLeaderPartition(
            partition=0, leader_epoch=epoch, current_leader_epoch=current
        )
        return lambda _: k23.OffsetForLeaderEpochRequest(replica_id=-1, topics=[
            k23.OffsetForLeaderTopic(topic=topic, partitions=[place])])  # fmt: skip

    ends = ApiKey.OFFSET_FOR_LEADER_EPOCH
    for label, build in {"epoch 0": epoch_of(0), "epoch 9": epoch_of(9), "none": epoch_of(-1),
                         "fenced": epoch_of(0, current=9), "unknown topic": epoch_of(0, topic="nowhere")}.items():  # fmt: skip
        yield from every_version(ends, label, build)

    def delete(offset: int, *, topic: str = TOPIC, partition: int = 0) -> Any:
        return lambda _: k21.DeleteRecordsRequest(timeout_ms=5_000, topics=[k21.DeleteRecordsTopic(name=topic, partitions=[
            k21.DeleteRecordsPartition(partition_index=partition, offset=offset)])])  # fmt: skip

    erase = ApiKey.DELETE_RECORDS
    for label, build in {"below 2": delete(2), "below 1, already gone": delete(1), "too far": delete(10**9), "negative": delete(-3),
                         "unknown topic": delete(1, topic="nowhere"), "unknown partition": delete(1, partition=9),
                         "compacted": delete(1, topic=COMPACTED)}.items():  # fmt: skip
        yield from every_version(erase, label, build)
    yield from every_version(erase, "all of it", delete(-1, partition=1))
    yield from every_version(key, "below the start", fetch((TOPIC, 0, 0)), since=11)
