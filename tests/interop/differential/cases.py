"""The requests that both nodes get, in order: every key of the single node, every version, good and bad.

Cases build on one another (a topic is created before it is read), so they are run as one
conversation. Where an answer depends on the node (ids, members), `after` keeps it for later ones.
"""

from collections.abc import Callable, Iterator
from typing import Any

from sparkraft.protocol.api_keys import API_INFO, ApiKey
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
    k03_metadata as k03,
)
from sparkraft.protocol.messages import (
    k08_offset_commit as k08,
)
from sparkraft.protocol.messages import (
    k09_offset_fetch as k09,
)
from sparkraft.protocol.messages import (
    k10_find_coordinator as k10,
)
from sparkraft.protocol.messages import (
    k11_join_group as k11,
)
from sparkraft.protocol.messages import (
    k12_heartbeat as k12,
)
from sparkraft.protocol.messages import (
    k13_leave_group as k13,
)
from sparkraft.protocol.messages import (
    k14_sync_group as k14,
)
from sparkraft.protocol.messages import (
    k15_describe_groups as k15,
)
from sparkraft.protocol.messages import (
    k16_list_groups as k16,
)
from sparkraft.protocol.messages import (
    k17_sasl_handshake as k17,
)
from sparkraft.protocol.messages import (
    k18_api_versions as k18,
)
from sparkraft.protocol.messages import (
    k19_create_topics as k19,
)
from sparkraft.protocol.messages import (
    k20_delete_topics as k20,
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
    k29_describe_acls as k29,
)
from sparkraft.protocol.messages import (
    k32_describe_configs as k32,
)
from sparkraft.protocol.messages import (
    k33_alter_configs as k33,
)
from sparkraft.protocol.messages import (
    k35_describe_log_dirs as k35,
)
from sparkraft.protocol.messages import (
    k37_create_partitions as k37,
)
from sparkraft.protocol.messages import (
    k42_delete_groups as k42,
)
from sparkraft.protocol.messages import (
    k44_incremental_alter_configs as k44,
)
from sparkraft.protocol.messages import (
    k46_list_partition_reassignments as k46,
)
from sparkraft.protocol.messages import (
    k47_offset_delete as k47,
)
from sparkraft.protocol.messages import (
    k48_describe_client_quotas as k48,
)
from sparkraft.protocol.messages import (
    k55_describe_quorum as k55,
)
from sparkraft.protocol.messages import (
    k57_update_features as k57,
)
from sparkraft.protocol.messages import (
    k60_describe_cluster as k60,
)
from sparkraft.protocol.messages import (
    k61_describe_producers as k61,
)
from sparkraft.protocol.messages import (
    k66_list_transactions as k66,
)
from sparkraft.protocol.messages import (
    k74_list_config_resources as k74,
)
from sparkraft.protocol.messages import (
    k75_describe_topic_partitions as k75,
)
from sparkraft.records.compression import Codec
from sparkraft.records.record import BatchBuilder
from tests.interop.differential.world import Case, World

TOPIC, EMPTY, COMPACTED = "orders", "empty", "compacted"
GROUP = "readers"
BASE_MS = 1_700_000_000_000


def batch(
    count: int = 3,
    *,
    codec: Codec = Codec.NONE,
    first_ms: int = BASE_MS,
    keys: bool = True,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """A record batch as a producer sends it."""
    builder = BatchBuilder(
        codec=codec, producer_id=producer[0], producer_epoch=producer[1], base_sequence=producer[2]
    )
    for number in range(count):
        key = f"k{number}".encode() if keys else None
        builder.append(first_ms + number, key, f"value-{number}".encode(), [("h", b"x")])
    return builder.build()


def spoil(data: bytes, at: int, value: int) -> bytes:
    """`data` with one byte replaced."""
    return data[:at] + bytes([value]) + data[at + 1 :]


def with_version(number: int) -> Callable[[bytes], bytes]:
    """Changes the version that a frame's header claims."""
    return lambda frame: frame[:2] + number.to_bytes(2, "big") + frame[4:]


def every_version(
    key: ApiKey,
    label: str,
    build: Callable[[World], Message],
    *,
    since: int = 0,
    until: int = 99,
    after: Callable[[World, Any], None] | None = None,
) -> Iterator[Case]:
    """The same request in each version of `key` from `since` to `until`."""
    info = API_INFO[key]
    last = info.max_version - int(info.latest_version_unstable)
    for version in range(max(info.min_version, since), min(last, until) + 1):
        yield Case(label, key, version, build, after)


def subscription() -> bytes:
    """What a consumer says when it joins: ConsumerProtocolSubscription v0 of one topic."""
    return b"\x00\x00" + b"\x00\x00\x00\x01\x00\x06orders" + b"\xff\xff\xff\xff"


def plan() -> bytes:
    """What the leader gives it: ConsumerProtocolAssignment v0 of one partition."""
    place = b"\x00\x00\x00\x01\x00\x06orders\x00\x00\x00\x01\x00\x00\x00\x00"
    return b"\x00\x00" + place + b"\xff\xff\xff\xff"


def handshakes() -> Iterator[Case]:
    """What a client asks before it knows anything."""
    key = ApiKey.API_VERSIONS
    name = {"client_software_name": "differential", "client_software_version": "1.0"}
    yield from every_version(key, "hello", lambda _: k18.ApiVersionsRequest(**name))
    yield from every_version(
        key, "bad name", lambda _: k18.ApiVersionsRequest(client_software_name="--"), since=3
    )
    yield Case(
        "too new",
        key,
        3,
        lambda _: k18.ApiVersionsRequest(**name),
        raw=with_version(99),
        answered_in=0,
    )
    yield from every_version(
        ApiKey.SASL_HANDSHAKE, "on PLAINTEXT", lambda _: k17.SaslHandshakeRequest(mechanism="PLAIN")
    )


def creatable(name: str, partitions: int = 1, **more: Any) -> k19.CreatableTopic:
    """A topic to create, replication factor 1 where nothing else is said."""
    return k19.CreatableTopic(
        name=name, num_partitions=partitions, **{"replication_factor": 1, **more}
    )


def remember_ids(world: World, response: Any) -> None:
    """Keep the ids of topics that were created or described."""
    for topic in response.topics:
        name = getattr(topic, "name", None)
        if name and any(topic.topic_id):
            world.topic_ids[name] = topic.topic_id


def creations() -> Iterator[Case]:
    """Topics that are created, and many that must not be."""
    key = ApiKey.CREATE_TOPICS

    def config(name: str, value: str | None) -> k19.CreatableTopicConfig:
        return k19.CreatableTopicConfig(name=name, value=value)

    def request(*topics: k19.CreatableTopic, validate_only: bool = False) -> Any:
        return lambda _: k19.CreateTopicsRequest(
            topics=list(topics), timeout_ms=10_000, validate_only=validate_only
        )

    yield Case("three topics", key, 7, request(
        creatable(TOPIC, 3), creatable(EMPTY, 1),
        creatable(COMPACTED, 1, configs=[config("cleanup.policy", "compact")]),
    ), remember_ids)  # fmt: skip
    assignment = k19.CreatableReplicaAssignment
    bad = {
        "exists": creatable(TOPIC),
        "empty name": creatable(""),
        "dot": creatable("."),
        "two dots": creatable(".."),
        "bad letters": creatable("so so"),
        "slash": creatable("a/b"),
        "too long": creatable("x" * 250),
        "no partitions": creatable("p0", 0),
        "negative partitions": creatable("p-2", -2),
        "factor 2 of 1 broker": creatable("r2", replication_factor=2),
        "factor 0": creatable("r0", replication_factor=0),
        "factor -2": creatable("r-2", replication_factor=-2),
        "unknown config": creatable("c1", configs=[config("no.such.config", "1")]),
        "malformed config": creatable("c2", configs=[config("retention.ms", "soon")]),
        "config out of range": creatable("c3", configs=[config("segment.bytes", "3")]),
        "config not in list": creatable("c4", configs=[config("cleanup.policy", "shred")]),
        "null config": creatable("c5", configs=[config("retention.ms", None)]),
        "assigned to nobody": creatable("a1", -1, replication_factor=-1,
            assignments=[assignment(partition_index=0, broker_ids=[9])]),
        "assignment with a gap": creatable("a2", -1, replication_factor=-1,
            assignments=[assignment(partition_index=1, broker_ids=[1])]),
        "assignment twice": creatable("a3", -1, replication_factor=-1,
            assignments=[assignment(partition_index=0, broker_ids=[1, 1])]),
        "assignment and count": creatable("a4", 2,
            assignments=[assignment(partition_index=0, broker_ids=[1])]),
    }  # fmt: skip
    for label, topic in bad.items():
        yield Case(label, key, 7, request(topic))
    yield Case("same name twice", key, 7, request(creatable("twin"), creatable("twin")))
    yield Case("colliding names", key, 7, request(creatable("a.b"), creatable("a_b")))
    yield Case("nothing", key, 7, request())
    info = API_INFO[key]
    for version in range(info.min_version, info.max_version + 1):
        name = f"made-by-v{version}"
        yield Case("validate only", key, version, request(creatable(name), validate_only=True))
        yield Case("good", key, version, request(
            creatable(name, 2, configs=[config("retention.ms", "86400000")])), remember_ids)  # fmt: skip
        yield Case("again", key, version, request(creatable(name)))
    yield Case("defaults", key, 7, request(creatable("by-default", -1, replication_factor=-1)),
               remember_ids)  # fmt: skip
    yield Case("own assignment", key, 7, request(creatable("assigned", -1, replication_factor=-1,
        assignments=[assignment(partition_index=i, broker_ids=[1]) for i in range(2)])),
        remember_ids)  # fmt: skip


def metadata() -> Iterator[Case]:
    """Topics by name and by id, all of them, none, and unknown ones."""
    key = ApiKey.METADATA
    yield Case(
        "settled",
        key,
        12,
        lambda _: k03.MetadataRequest(topics=[k03.MetadataRequestTopic(name="assigned")]),
        until=lambda answer: answer["topics"][0]["errorCode"] == 0,
    )

    def by_name(*names: str, auto: bool = False) -> Any:
        return lambda _: k03.MetadataRequest(
            topics=[k03.MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=auto,
        )

    yield from every_version(key, "by name", by_name(TOPIC, "made-by-v5"))
    yield from every_version(key, "unknown name", by_name("nowhere"), since=4)
    yield from every_version(key, "invalid name", by_name("so so", auto=True), since=4)
    yield from every_version(
        key,
        "no topics",
        lambda _: k03.MetadataRequest(topics=[], allow_auto_topic_creation=False),
        since=1,
    )
    yield from every_version(key, "all topics", lambda _: k03.MetadataRequest(topics=None), since=1)
    yield from every_version(
        key, "authorised operations", lambda _: k03.MetadataRequest(
            topics=[k03.MetadataRequestTopic(name=TOPIC)],
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        ), since=8,
    )  # fmt: skip
    yield from every_version(
        key, "by id", lambda w: k03.MetadataRequest(topics=[
            k03.MetadataRequestTopic(topic_id=w.topic_id(TOPIC), name=None),
            k03.MetadataRequestTopic(topic_id=w.topic_id("?"), name=None),
        ]), since=12,
    )  # fmt: skip
    describe = ApiKey.DESCRIBE_TOPIC_PARTITIONS
    request, named = k75.DescribeTopicPartitionsRequest, k75.TopicRequest
    yield Case(
        "two topics",
        describe,
        0,
        lambda _: request(topics=[named(name=TOPIC), named(name="nowhere")]),
    )
    yield Case("all", describe, 0, lambda _: request(topics=[]))
    yield Case(
        "limit and cursor",
        describe,
        0,
        lambda _: request(topics=[named(name=TOPIC)], response_partition_limit=1),
    )
    yield Case("from a cursor", describe, 0, lambda _: request(
        topics=[named(name=TOPIC)], cursor=k75.Cursor(topic_name=TOPIC, partition_index=1)))  # fmt: skip
    cluster = ApiKey.DESCRIBE_CLUSTER
    yield from every_version(cluster, "brokers", lambda _: k60.DescribeClusterRequest())
    yield from every_version(cluster, "operations", lambda _: k60.DescribeClusterRequest(
        include_cluster_authorized_operations=True))  # fmt: skip
    yield from every_version(cluster, "controllers", lambda _: k60.DescribeClusterRequest(
        endpoint_type=2), since=1)  # fmt: skip
    yield from every_version(cluster, "fenced too", lambda _: k60.DescribeClusterRequest(
        include_fenced_brokers=True), since=2)  # fmt: skip


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
            if label != "no records" or version == 9:  # Kafka leaves it unanswered: slow.
                yield Case(label, key, version, build)
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
                replica_id=-1, max_wait_ms=wait, min_bytes=minimum, max_bytes=10_000_000,
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


def groups() -> Iterator[Case]:
    """One classic group's life, and what must be refused on the way."""
    yield from every_version(ApiKey.FIND_COORDINATOR, "of a group", lambda _: k10.FindCoordinatorRequest(
        key=GROUP, coordinator_keys=[GROUP]))  # fmt: skip
    yield from every_version(ApiKey.FIND_COORDINATOR, "bad type", lambda _: k10.FindCoordinatorRequest(
        key=GROUP, key_type=7, coordinator_keys=[GROUP]), since=1)  # fmt: skip
    yield from every_version(ApiKey.FIND_COORDINATOR, "two groups", lambda _: k10.FindCoordinatorRequest(
        coordinator_keys=[GROUP, "other"]), since=4)  # fmt: skip

    def commit(
        offset: int,
        *,
        group: str = "simple",
        topic: str = TOPIC,
        partition: int = 0,
        label: str = "",
        generation: int = -1,
    ) -> Any:
        return lambda w: k08.OffsetCommitRequest(
            group_id=group, member_id=w.member(label), generation_id_or_member_epoch=w.generations.get(label, generation),
            topics=[k08.OffsetCommitRequestTopic(name=topic, topic_id=w.topic_id(topic), partitions=[
                k08.OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="note")])],
        )  # fmt: skip

    key = ApiKey.OFFSET_COMMIT
    yield from every_version(key, "without a group", commit(5))
    yield from every_version(key, "unknown topic", commit(5, topic="nowhere"))
    yield from every_version(key, "unknown partition", commit(5, partition=9))
    yield from every_version(key, "empty group", commit(5, group=""))
    yield from every_version(key, "unknown member", fit_commit)

    def fetched(group: str, topics: list[str] | None, stable: bool = False) -> Any:
        def build(w: World) -> Message:
            old = (
                None
                if topics is None
                else [k09.OffsetFetchRequestTopic(name=t, partition_indexes=[0, 1]) for t in topics]
            )
            new = (
                None
                if topics is None
                else [
                    k09.OffsetFetchRequestTopics(
                        name=t, topic_id=w.topic_id(t), partition_indexes=[0, 1]
                    )
                    for t in topics
                ]
            )
            return k09.OffsetFetchRequest(
                group_id=group,
                topics=old,
                groups=[k09.OffsetFetchRequestGroup(group_id=group, topics=new)],
                require_stable=stable,
            )

        return build

    key = ApiKey.OFFSET_FETCH
    yield from every_version(key, "committed", fetched("simple", [TOPIC]))
    yield from every_version(key, "never seen", fetched("stranger", [TOPIC]))
    yield from every_version(key, "unknown topic", fetched("simple", ["nowhere"]))
    yield from every_version(key, "everything", fetched("simple", None), since=2)
    yield from every_version(key, "stable", fetched("simple", [TOPIC], True), since=7)

    def join(
        label: str,
        *,
        group: str = GROUP,
        session: int = 10_000,
        protocol: str = "range",
        kind: str = "consumer",
        instance: str | None = None,
    ) -> Any:
        return lambda w: k11.JoinGroupRequest(
            group_id=group, session_timeout_ms=session, rebalance_timeout_ms=10_000, member_id=w.member(label),
            group_instance_id=instance, protocol_type=kind,
            protocols=[k11.JoinGroupRequestProtocol(name=protocol, metadata=subscription())] if protocol else [],
        )  # fmt: skip

    def keep(label: str) -> Callable[[World, Any], None]:
        def remember(world: World, response: Any) -> None:
            if response.member_id:
                world.members[label] = response.member_id
            if response.error_code == 0:
                world.generations[label] = response.generation_id

        return remember

    def sync(label: str, group: str, *, generation: int | None = None) -> Any:
        return lambda w: k14.SyncGroupRequest(
            group_id=group, generation_id=w.generations.get(label, 0) if generation is None else generation,
            member_id=w.member(label), protocol_type="consumer", protocol_name="range",
            assignments=[k14.SyncGroupRequestAssignment(member_id=w.member(label), assignment=plan())],
        )  # fmt: skip

    def beat(label: str, group: str, *, generation: int | None = None) -> Any:
        return lambda w: k12.HeartbeatRequest(group_id=group, member_id=w.member(label),
            generation_id=w.generations.get(label, 0) if generation is None else generation)  # fmt: skip

    def leave(label: str, group: str) -> Any:
        return lambda w: k13.LeaveGroupRequest(group_id=group, member_id=w.member(label),
            members=[k13.MemberIdentity(member_id=w.member(label))])  # fmt: skip

    info = API_INFO[ApiKey.JOIN_GROUP]
    for version in range(info.min_version, info.max_version + 1):
        group = label = f"joined-by-v{version}"
        yield Case("joins", ApiKey.JOIN_GROUP, version, join(label, group=group), keep(label))
        if version >= 4:
            yield Case(
                "joins with its id",
                ApiKey.JOIN_GROUP,
                version,
                join(label, group=group),
                keep(label),
            )
        yield Case("syncs", ApiKey.SYNC_GROUP, min(version, 5), sync(label, group))
        yield Case("beats", ApiKey.HEARTBEAT, min(version, 4), beat(label, group))
        yield Case(
            "beats in an old generation",
            ApiKey.HEARTBEAT,
            min(version, 4),
            beat(label, group, generation=0),
        )
        yield Case(
            "syncs in an old generation",
            ApiKey.SYNC_GROUP,
            min(version, 5),
            sync(label, group, generation=0),
        )
        yield Case(
            "commits",
            ApiKey.OFFSET_COMMIT,
            min(version + 2, 9),
            commit(3, group=group, label=label),
        )
        yield Case("commits in an old generation", ApiKey.OFFSET_COMMIT, min(version + 2, 9),
                   lambda w, g=group, n=label: fit_commit(w, g, w.member(n), 77))  # fmt: skip
        yield Case(
            "described",
            ApiKey.DESCRIBE_GROUPS,
            min(version, 6),
            lambda _, g=group: k15.DescribeGroupsRequest(groups=[g]),
        )
        yield Case(
            "busy, can't be deleted",
            ApiKey.DELETE_GROUPS,
            min(version, 2),
            lambda _, g=group: k42.DeleteGroupsRequest(groups_names=[g]),
        )
        yield Case("leaves", ApiKey.LEAVE_GROUP, min(version, 5), leave(label, group))
        yield Case("leaves again", ApiKey.LEAVE_GROUP, min(version, 5), leave(label, group))
    for label, build in {
        "session too short": join("x1", session=1), "session too long": join("x2", session=10**8),
        "empty group": join("x3", group=""), "no protocols": join("x4", protocol=""), "no type": join("x5", kind=""),
        "unknown member": lambda _: k11.JoinGroupRequest(group_id=GROUP, session_timeout_ms=10_000, rebalance_timeout_ms=10_000,
            member_id="stranger", protocol_type="consumer", protocols=[k11.JoinGroupRequestProtocol(name="range", metadata=b"")]),
    }.items():  # fmt: skip
        yield from every_version(ApiKey.JOIN_GROUP, label, build, since=4)
    stranger = {"member_id": "stranger", "group_id": "never-was"}
    yield from every_version(
        ApiKey.HEARTBEAT,
        "unknown group",
        lambda _: k12.HeartbeatRequest(generation_id=1, **stranger),
    )
    yield from every_version(ApiKey.SYNC_GROUP, "unknown group", lambda _: k14.SyncGroupRequest(
        generation_id=1, protocol_type="consumer", protocol_name="range", **stranger))  # fmt: skip
    yield from every_version(ApiKey.LEAVE_GROUP, "unknown group", lambda _: k13.LeaveGroupRequest(
        members=[k13.MemberIdentity(member_id="stranger")], **stranger))  # fmt: skip
    yield Case(
        "static joins", ApiKey.JOIN_GROUP, 5, join("s1", group="static", instance="one"), keep("s1")
    )
    yield Case("static syncs", ApiKey.SYNC_GROUP, 3, lambda w: k14.SyncGroupRequest(
        group_id="static", generation_id=w.generations.get("s1", 0), member_id=w.member("s1"), group_instance_id="one",
        assignments=[k14.SyncGroupRequestAssignment(member_id=w.member("s1"), assignment=plan())]))  # fmt: skip
    yield Case("static comes back", ApiKey.JOIN_GROUP, 9, lambda _: k11.JoinGroupRequest(
        group_id="static", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, group_instance_id="one", protocol_type="consumer",
        protocols=[k11.JoinGroupRequestProtocol(name="range", metadata=subscription())]), keep("s2"))  # fmt: skip
    yield Case("the old one is fenced", ApiKey.HEARTBEAT, 3, lambda w: k12.HeartbeatRequest(
        group_id="static", member_id=w.member("s1"), generation_id=w.generations.get("s1", 0), group_instance_id="one"))  # fmt: skip
    yield Case("static leaves by instance", ApiKey.LEAVE_GROUP, 5, lambda _: k13.LeaveGroupRequest(
        group_id="static", members=[k13.MemberIdentity(group_instance_id="one")]))  # fmt: skip

    yield from every_version(
        ApiKey.DESCRIBE_GROUPS,
        "three",
        lambda _: k15.DescribeGroupsRequest(groups=["simple", "never-was", ""]),
    )
    yield from every_version(ApiKey.DESCRIBE_GROUPS, "operations", lambda _: k15.DescribeGroupsRequest(
        groups=["simple"], include_authorized_operations=True), since=3)  # fmt: skip
    yield from every_version(ApiKey.LIST_GROUPS, "all", lambda _: k16.ListGroupsRequest())
    yield from every_version(
        ApiKey.LIST_GROUPS,
        "stable ones",
        lambda _: k16.ListGroupsRequest(states_filter=["Stable"]),
        since=4,
    )
    yield from every_version(
        ApiKey.LIST_GROUPS,
        "classic ones",
        lambda _: k16.ListGroupsRequest(types_filter=["classic"]),
        since=5,
    )
    yield from every_version(ApiKey.LIST_GROUPS, "odd filters", lambda _: k16.ListGroupsRequest(
        states_filter=["Asleep"], types_filter=["odd"]), since=5)  # fmt: skip
    erase = k47.OffsetDeleteRequest
    yield Case("an offset", ApiKey.OFFSET_DELETE, 0, lambda _: erase(group_id="simple", topics=[k47.OffsetDeleteRequestTopic(
        name=TOPIC, partitions=[k47.OffsetDeleteRequestPartition(partition_index=0), k47.OffsetDeleteRequestPartition(partition_index=9)])]))  # fmt: skip
    yield Case(
        "of an unknown group",
        ApiKey.OFFSET_DELETE,
        0,
        lambda _: erase(group_id="never-was", topics=[]),
    )
    yield from every_version(
        ApiKey.DELETE_GROUPS,
        "one and a stranger",
        lambda _: k42.DeleteGroupsRequest(groups_names=["simple", "never-was"]),
    )
    yield from every_version(ApiKey.OFFSET_FETCH, "after deletion", fetched("simple", [TOPIC]))


def fit_commit(
    world: World, group: str = "simple", member: str = "stranger", generation: int = 4
) -> Message:
    """A commit by a member that the group does not have in this generation."""
    return k08.OffsetCommitRequest(
        group_id=group, member_id=member, generation_id_or_member_epoch=generation,
        topics=[k08.OffsetCommitRequestTopic(name=TOPIC, topic_id=world.topic_id(TOPIC), partitions=[
            k08.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)])],
    )  # fmt: skip


def administration() -> Iterator[Case]:
    """Configs, partitions, features, the quorum, and what tools ask on the side."""
    key = ApiKey.DESCRIBE_CONFIGS

    def described(kind: int, name: str, *keys: str, **more: bool) -> Any:
        return lambda _: k32.DescribeConfigsRequest(resources=[k32.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)], **more)  # fmt: skip

    yield from every_version(key, "a topic", described(2, TOPIC))
    yield from every_version(
        key,
        "some keys",
        described(
            2, COMPACTED, "cleanup.policy", "retention.ms", "no.such.key", include_synonyms=True
        ),
    )
    yield from every_version(key, "the broker", described(4, "1"))
    yield from every_version(key, "another broker", described(4, "9"))
    yield from every_version(key, "all brokers", described(4, ""))
    yield from every_version(key, "synonyms", described(2, TOPIC, include_synonyms=True))
    yield from every_version(key, "unknown topic", described(2, "nowhere"))
    yield from every_version(key, "invalid topic", described(2, "so so"))
    yield from every_version(key, "unknown kind", described(77, "x"))
    yield from every_version(key, "a group", described(32, GROUP, include_synonyms=True))
    yield from every_version(key, "client metrics", described(16, "metrics"))

    def alter(
        topic: str, changes: list[tuple[str, int, str | None]], *, kind: int = 2, only: bool = False
    ) -> Any:
        return lambda _: k44.IncrementalAlterConfigsRequest(validate_only=only, resources=[k44.AlterConfigsResource(
            resource_type=kind, resource_name=topic,
            configs=[k44.AlterableConfig(name=n, config_operation=op, value=v) for n, op, v in changes])])  # fmt: skip

    key = ApiKey.INCREMENTAL_ALTER_CONFIGS
    for label, build in {
        "set": alter(EMPTY, [("retention.ms", 0, "1000000")]), "validate": alter(EMPTY, [("retention.ms", 0, "5")], only=True),
        "append": alter(EMPTY, [("cleanup.policy", 2, "compact")]), "subtract": alter(EMPTY, [("cleanup.policy", 3, "delete")]),
        "delete": alter(EMPTY, [("cleanup.policy", 1, None), ("retention.ms", 1, None)]),
        "append to a number": alter(EMPTY, [("retention.ms", 2, "5")]), "bad value": alter(EMPTY, [("retention.ms", 0, "soon")]),
        "unknown config": alter(EMPTY, [("no.such", 0, "1")]), "unknown topic": alter("nowhere", [("retention.ms", 0, "5")]),
        "bad operation": alter(EMPTY, [("retention.ms", 9, "5")]), "null value": alter(EMPTY, [("retention.ms", 0, None)]),
        "twice": alter(EMPTY, [("retention.ms", 0, "5"), ("retention.ms", 0, "6")]),
        "broker dynamic": alter("1", [("log.cleaner.threads", 0, "2")], kind=4),
        "cluster default": alter("", [("message.max.bytes", 0, "1048600")], kind=4),
        "broker read-only": alter("1", [("node.id", 0, "2")], kind=4),
        "unknown broker": alter("abc", [("log.cleaner.threads", 0, "2")], kind=4),
        "unknown kind": alter("x", [("a", 0, "1")], kind=77),
    }.items():  # fmt: skip
        yield from every_version(key, label, build)
    yield from every_version(
        ApiKey.DESCRIBE_CONFIGS,
        "the broker, changed",
        described(4, "1", "log.cleaner.threads", "message.max.bytes", include_synonyms=True),
    )
    legacy = k33.AlterConfigsRequest

    def replace(topic: str, configs: list[tuple[str, str | None]], only: bool = False) -> Any:
        return lambda _: legacy(validate_only=only, resources=[k33.AlterConfigsResource(resource_type=2, resource_name=topic,
            configs=[k33.AlterableConfig(name=n, value=v) for n, v in configs])])  # fmt: skip

    for label, build in {"replace": replace(EMPTY, [("segment.ms", "1000000")]), "to nothing": replace(EMPTY, []),
                         "bad": replace(EMPTY, [("segment.ms", "x")]), "unknown topic": replace("nowhere", [])}.items():  # fmt: skip
        yield from every_version(ApiKey.ALTER_CONFIGS, label, build)

    def grow(
        topic: str, count: int, *, assigned: list[list[int]] | None = None, only: bool = False
    ) -> Any:
        lists = (
            None
            if assigned is None
            else [k37.CreatePartitionsAssignment(broker_ids=ids) for ids in assigned]
        )
        return lambda _: k37.CreatePartitionsRequest(timeout_ms=10_000, validate_only=only,
            topics=[k37.CreatePartitionsTopic(name=topic, count=count, assignments=lists)])  # fmt: skip

    for version in range(4):
        yield Case("one more", ApiKey.CREATE_PARTITIONS, version, grow("by-default", 2 + version))
    for label, build in {"fewer": grow(TOPIC, 1), "as many": grow(TOPIC, 3), "none": grow(TOPIC, 0), "unknown": grow("nowhere", 9),
                         "to nobody": grow(TOPIC, 4, assigned=[[9]]), "too many lists": grow(TOPIC, 4, assigned=[[1], [1]]),
                         "only validate": grow(TOPIC, 5, only=True)}.items():  # fmt: skip
        yield from every_version(ApiKey.CREATE_PARTITIONS, label, build)

    yield from every_version(
        ApiKey.DESCRIBE_LOG_DIRS, "all", lambda _: k35.DescribeLogDirsRequest(topics=None)
    )
    yield from every_version(ApiKey.DESCRIBE_LOG_DIRS, "one", lambda _: k35.DescribeLogDirsRequest(
        topics=[k35.DescribableLogDirTopic(topic=TOPIC, partitions=[0])]))  # fmt: skip
    acl = k29.DescribeAclsRequest
    yield from every_version(ApiKey.DESCRIBE_ACLS, "any", lambda _: acl(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1))  # fmt: skip
    yield from every_version(
        ApiKey.DESCRIBE_CLIENT_QUOTAS, "all", lambda _: k48.DescribeClientQuotasRequest()
    )
    yield from every_version(ApiKey.DESCRIBE_CLIENT_QUOTAS, "of users", lambda _: k48.DescribeClientQuotasRequest(
        components=[k48.ComponentData(entity_type="user", match_type=2)]))  # fmt: skip
    yield Case(
        "none under way",
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        lambda _: k46.ListPartitionReassignmentsRequest(topics=None),
    )
    yield from every_version(
        ApiKey.LIST_TRANSACTIONS, "all", lambda _: k66.ListTransactionsRequest()
    )
    yield from every_version(
        ApiKey.LIST_TRANSACTIONS,
        "odd filter",
        lambda _: k66.ListTransactionsRequest(state_filters=["Odd"]),
    )
    yield from every_version(
        ApiKey.LIST_CONFIG_RESOURCES, "all", lambda _: k74.ListConfigResourcesRequest()
    )
    yield from every_version(
        ApiKey.LIST_CONFIG_RESOURCES,
        "topics",
        lambda _: k74.ListConfigResourcesRequest(resource_types=[2]),
        since=1,
    )
    yield from every_version(ApiKey.DESCRIBE_QUORUM, "cluster metadata", lambda _: k55.DescribeQuorumRequest(
        topics=[k55.DescribeQuorumRequestTopicData(topic_name="__cluster_metadata", partitions=[k55.DescribeQuorumRequestPartitionData(partition_index=0)])]))  # fmt: skip
    yield from every_version(ApiKey.DESCRIBE_QUORUM, "another topic", lambda _: k55.DescribeQuorumRequest(
        topics=[k55.DescribeQuorumRequestTopicData(topic_name=TOPIC, partitions=[k55.DescribeQuorumRequestPartitionData(partition_index=0)])]))  # fmt: skip

    def feature(name: str, level: int, kind: int = 1, only: bool = True) -> Any:
        return lambda _: k57.UpdateFeaturesRequest(timeout_ms=10_000, validate_only=only, feature_updates=[
            k57.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)])  # fmt: skip

    for label, build in {"same level": feature("metadata.version", 30), "unknown feature": feature("no.such", 1),
                         "too high": feature("metadata.version", 99), "down by upgrade": feature("group.version", 0),
                         "safe downgrade": feature("share.version", 0, 2)}.items():  # fmt: skip
        yield from every_version(ApiKey.UPDATE_FEATURES, label, build, since=1)


def deletions() -> Iterator[Case]:
    """Topics go, by name and by id."""
    key = ApiKey.DELETE_TOPICS

    def named(*names: str) -> Any:
        return lambda _: k20.DeleteTopicsRequest(timeout_ms=10_000, topic_names=list(names),
            topics=[k20.DeleteTopicState(name=name) for name in names])  # fmt: skip

    for version in range(1, 7):
        yield Case("by name", key, version, named(f"made-by-v{min(version + 1, 7)}"))
    yield Case("unknown", key, 6, named("nowhere"))
    yield Case("twice", key, 6, named(COMPACTED, COMPACTED))
    yield Case("by id", key, 6, lambda w: k20.DeleteTopicsRequest(timeout_ms=10_000, topics=[
        k20.DeleteTopicState(name=None, topic_id=w.topic_id("assigned")), k20.DeleteTopicState(name=None, topic_id=w.topic_id("?"))]))  # fmt: skip
    yield Case("by both", key, 6, lambda w: k20.DeleteTopicsRequest(timeout_ms=10_000, topics=[
        k20.DeleteTopicState(name=TOPIC, topic_id=w.topic_id(TOPIC))]))  # fmt: skip
    gone = {f"made-by-v{version}" for version in range(2, 8)} | {"assigned"}
    yield Case(
        "afterwards",
        ApiKey.METADATA,
        12,
        lambda _: k03.MetadataRequest(topics=None),
        until=lambda answer: not gone & {topic["name"] for topic in answer["topics"]},
    )


def broken_frames() -> Iterator[Case]:
    """Frames that mean nothing; each ends its connection."""
    hello = lambda _: k18.ApiVersionsRequest()  # noqa: E731 (a builder like the others)
    everything = lambda _: k03.MetadataRequest(topics=None)  # noqa: E731 (a builder like the others)

    def with_key(number: int) -> Callable[[bytes], bytes]:
        return lambda frame: number.to_bytes(2, "big") + frame[2:]

    for number in (4, 5, 6, 7, 52, 62, 94, 999):
        yield Case(f"key {number}", ApiKey.METADATA, 8, everything, raw=with_key(number))
    for number in (14, 99, 32767):
        yield Case(f"version {number}", ApiKey.METADATA, 8, everything, raw=with_version(number))
    for number in (3, 18, 20, 19):
        yield Case(
            f"cut by {number}",
            ApiKey.METADATA,
            9,
            everything,
            raw=lambda frame, n=number: frame[:-1] if n == 3 else frame[:n],
        )
    yield Case("too much", ApiKey.API_VERSIONS, 0, hello, raw=lambda frame: frame + b"more")


def all_cases() -> list[Case]:
    """The whole conversation, in order."""
    parts = (
        handshakes, creations, metadata, produces, reads, groups, administration, deletions, broken_frames
    )  # fmt: skip
    return [case for part in parts for case in part()]
