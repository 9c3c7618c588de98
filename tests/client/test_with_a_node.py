"""Our client against a real node, and side by side with librdkafka."""

import asyncio
from collections import Counter
from itertools import count

import pytest
from confluent_kafka import Consumer as OtherConsumer
from confluent_kafka import Producer as OtherProducer

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster
from sparkraft.client.consumer import Consumer, ConsumerSettings
from sparkraft.client.group_lag import committed_lags
from sparkraft.client.groups import Groups
from sparkraft.client.producer import Producer, ProducerSettings
from sparkraft.client.subscription import GroupSettings
from sparkraft.client.values import (
    EARLIEST,
    LATEST,
    Committed,
    ConfigOperation,
    ConfigSource,
    NewTopic,
    ResourceType,
)
from sparkraft.records.compression import Codec

pytestmark = pytest.mark.real_clients

SECONDS = 120
_names = count()


def fresh(prefix: str = "client") -> str:
    return f"{prefix}-{next(_names)}"


def run(bootstrap: str, test) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(SECONDS), Cluster(bootstrap) as cluster:
            await test(cluster)

    asyncio.run(bounded())


async def made(cluster: Cluster, partitions: int = 3) -> str:
    name = fresh()
    outcome = await Admin(cluster).create_topics([NewTopic(name=name, partitions=partitions)])
    assert not isinstance(outcome[name], KafkaError), outcome
    return name


async def read_all(consumer: Consumer, wanted: int) -> list:
    records = []
    while len(records) < wanted:
        records += await consumer.poll(1_000)
    return records


@pytest.mark.parametrize("codec", list(Codec))
def test_what_we_write_in_each_codec_we_and_librdkafka_read(sparkraft_cluster, codec):
    sent = [(b"k%d" % (i % 7), b"v%d" % i, [("h", b"x"), ("none", None)]) for i in range(500)]
    topics = []

    async def write_and_read(cluster: Cluster) -> None:
        name = await made(cluster)
        topics.append(name)
        async with Producer(cluster, ProducerSettings(codec=codec, batch_bytes=2_000)) as producer:
            for key, value, headers in sent:
                await producer.send(name, value, key=key, headers=headers)
        consumer = Consumer(cluster, ConsumerSettings(auto_offset_reset="earliest"))
        consumer.assign([(name, index) for index in range(3)])
        records = await read_all(consumer, len(sent))
        await consumer.close()
        found = Counter((r.key, r.value, tuple(map(tuple, r.headers))) for r in records)
        assert found == Counter((k, v, tuple(h)) for k, v, h in sent)

    run(sparkraft_cluster.bootstrap, write_and_read)
    other = OtherConsumer(
        {
            "bootstrap.servers": sparkraft_cluster.bootstrap,
            "group.id": fresh("group"),
            "auto.offset.reset": "earliest",
        }
    )
    other.subscribe(topics)
    values = set()
    while len(values) < len(sent):
        message = other.poll(SECONDS)
        assert message is not None, "librdkafka reads no more"
        assert message.error() is None
        values.add(message.value())
    other.close()
    assert values == {value for _, value, _ in sent}


def test_a_key_goes_where_librdkafkas_murmur2_puts_it(sparkraft_cluster):
    async def test(cluster: Cluster) -> None:
        name = await made(cluster, partitions=5)
        keys = [b"key-%d" % i for i in range(50)]
        other = OtherProducer(
            {"bootstrap.servers": sparkraft_cluster.bootstrap, "partitioner": "murmur2_random"}
        )
        theirs = {}
        for key in keys:
            other.produce(
                name, b"", key, on_delivery=lambda _, m: theirs.__setitem__(m.key(), m.partition())
            )
        assert other.flush(SECONDS) == 0
        async with Producer(cluster) as producer:
            ours = {key: await producer.send(name, b"", key=key) for key in keys}
        assert {key: future.result().partition for key, future in ours.items()} == theirs

    run(sparkraft_cluster.bootstrap, test)


def test_records_of_a_partition_keep_the_order_they_were_sent_in(sparkraft_cluster):
    async def test(cluster: Cluster) -> None:
        name = await made(cluster, partitions=1)
        async with Producer(cluster, ProducerSettings(batch_bytes=500, linger_ms=0)) as producer:
            futures = [await producer.send(name, b"%d" % i) for i in range(1_000)]
        assert [future.result().offset for future in futures] == list(range(1_000))

    run(sparkraft_cluster.bootstrap, test)


def test_the_idempotent_producer_loses_and_repeats_nothing_over_a_kill(fresh_sparkraft_cluster):
    async def test(cluster: Cluster) -> None:
        name = await made(cluster, partitions=1)
        futures = []
        async with Producer(cluster, ProducerSettings(batch_bytes=300)) as producer:
            for i in range(300):
                futures.append(await producer.send(name, b"%d" % i))
                if i == 150:
                    await asyncio.to_thread(fresh_sparkraft_cluster.kill)
                    await asyncio.to_thread(fresh_sparkraft_cluster.restart)
        assert [future.result().offset for future in futures] == list(range(300))
        consumer = Consumer(cluster, ConsumerSettings(auto_offset_reset="earliest"))
        consumer.assign([(name, 0)])
        records = await read_all(consumer, 300)
        await consumer.close()
        assert [int(record.value) for record in records] == list(range(300))

    run(fresh_sparkraft_cluster.bootstrap, test)


def test_a_batch_the_node_refuses_fails_its_records_and_the_next_goes_through(sparkraft_cluster):
    async def test(cluster: Cluster) -> None:
        name = await made(cluster, partitions=1)
        settings = ProducerSettings(batch_bytes=100)
        async with Producer(cluster, settings) as producer:
            too_big = await producer.send(name, bytes(3 << 20))
            fine = await producer.send(name, b"fine")
            with pytest.raises(KafkaError) as refused:
                await too_big
            assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
            assert (await fine).offset == 0

    run(sparkraft_cluster.bootstrap, test)


def test_a_group_shares_partitions_and_takes_over_from_who_leaves(sparkraft_cluster):
    async def test(cluster: Cluster) -> None:
        name, group_id = await made(cluster, partitions=4), fresh("group")
        settings = ConsumerSettings(
            group=GroupSettings(group_id=group_id, heartbeat_interval_ms=100),
            auto_offset_reset="earliest",
        )
        async with Cluster(sparkraft_cluster.bootstrap) as second_cluster:
            first, second = Consumer(cluster, settings), Consumer(second_cluster, settings)
            for consumer in (first, second):
                consumer.subscribe([name])

            async def poll_both_until(condition) -> None:
                # Each in a loop of its own: a join waits until the other one has polled again.
                async def poll(consumer: Consumer) -> None:
                    while not condition():
                        await consumer.poll(50)

                await asyncio.gather(poll(first), poll(second))

            await poll_both_until(
                lambda: len(first.assignment) == 2 and len(second.assignment) == 2
            )
            assert {*first.assignment, *second.assignment} == {(name, i) for i in range(4)}
            described = await Groups(cluster).describe(group_id)
            assert (described.state, len(described.members)) == ("Stable", 2)
            await second.close()
            while len(first.assignment) != 4:
                await first.poll(50)
            await first.close()
        assert (await Groups(cluster).describe(group_id)).state == "Empty"

    run(sparkraft_cluster.bootstrap, test)


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky"])
def test_each_assignor_is_voted_and_used(sparkraft_cluster, assignor):
    async def test(cluster: Cluster) -> None:
        name, group_id = await made(cluster), fresh("group")
        group = GroupSettings(group_id=group_id, assignors=(assignor,))
        async with Consumer(cluster, ConsumerSettings(group=group)) as consumer:
            consumer.subscribe([name])
            await consumer.poll(100)
            assert len(consumer.assignment) == 3
            assert (await Groups(cluster).describe(group_id)).assignor == assignor

    run(sparkraft_cluster.bootstrap, test)


def test_a_group_goes_on_where_it_committed(sparkraft_cluster):
    async def test(cluster: Cluster) -> None:
        name, group_id = await made(cluster, partitions=1), fresh("group")
        async with Producer(cluster) as producer:
            for i in range(10):
                await producer.send(name, b"%d" % i)
        settings = ConsumerSettings(
            group=GroupSettings(group_id=group_id), auto_offset_reset="earliest", max_poll_records=4
        )
        async with Consumer(cluster, settings) as consumer:
            consumer.subscribe([name])
            assert len(await read_all(consumer, 4)) == 4
            await consumer.commit()
        async with Consumer(cluster, settings) as consumer:
            consumer.subscribe([name])
            assert (await read_all(consumer, 1))[0].value == b"4"

    run(sparkraft_cluster.bootstrap, test)


def test_seek_by_time_and_to_the_ends(sparkraft_cluster):
    async def test(cluster: Cluster) -> None:
        name = await made(cluster, partitions=1)
        async with Producer(cluster) as producer:
            for i in range(10):
                await producer.send(name, b"%d" % i, timestamp=1_000 + i)
        admin, tp = Admin(cluster), (name, 0)
        assert (await admin.list_offsets({tp: 1_004}))[tp].offset == 4
        assert (await admin.list_offsets({tp: 9_999}))[tp].offset == -1
        consumer = Consumer(cluster)
        consumer.assign([tp])
        for asked, expected in ((7, b"7"), (EARLIEST, b"0"), (9, b"9")):
            consumer.seek(tp, asked)
            assert (await read_all(consumer, 1))[0].value == expected
        consumer.seek(tp, LATEST)
        assert await consumer.poll(50) == []
        assert consumer.position(tp) == 10
        await consumer.close()

    run(sparkraft_cluster.bootstrap, test)


def test_an_offset_that_is_gone_is_reset_or_raised(sparkraft_cluster):
    async def test(cluster: Cluster) -> None:
        name = await made(cluster, partitions=1)
        async with Producer(cluster) as producer:
            for i in range(10):
                await producer.send(name, b"%d" % i)
        tp = (name, 0)
        assert await Admin(cluster).delete_records({tp: 6}) == {tp: 6}
        lenient = Consumer(cluster, ConsumerSettings(auto_offset_reset="earliest"))
        lenient.assign([tp])
        lenient.seek(tp, 2)
        assert (await read_all(lenient, 1))[0].offset == 6
        await lenient.close()
        strict = Consumer(cluster, ConsumerSettings(auto_offset_reset="none"))
        strict.assign([tp])
        strict.seek(tp, 2)
        with pytest.raises(KafkaError) as refused:
            await read_all(strict, 1)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        await strict.close()

    run(sparkraft_cluster.bootstrap, test)


def test_admin_answers_per_thing(sparkraft_cluster):
    async def test(cluster: Cluster) -> None:
        admin, name = Admin(cluster), await made(cluster)
        again = await admin.create_topics([NewTopic(name=name), NewTopic(name="no/name")])
        assert again[name].code is ErrorCode.TOPIC_ALREADY_EXISTS
        assert again["no/name"].code is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert await admin.create_partitions({name: 5}) == {name: None}
        found = await admin.describe_topics([name, "nowhere"])
        assert len(found[name].partitions) == 5
        assert found["nowhere"].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        resource = (ResourceType.TOPIC, name)
        change = [("retention.ms", ConfigOperation.SET, "12345")]
        assert await admin.alter_configs({resource: change}) == {resource: None}
        configs = {c.name: c for c in (await admin.describe_configs([resource]))[resource]}
        assert configs["retention.ms"].value == "12345"
        assert configs["retention.ms"].source is ConfigSource.DYNAMIC_TOPIC_CONFIG
        wrong = [("retention.ms", ConfigOperation.SET, "soon")]
        outcome = await admin.alter_configs({resource: wrong})
        assert outcome[resource].code is ErrorCode.INVALID_CONFIG
        assert await admin.delete_topics([name]) == {name: None}

    run(sparkraft_cluster.bootstrap, test)


def test_admin_sees_quorum_features_and_log_dirs(sparkraft_cluster):
    async def test(cluster: Cluster) -> None:
        admin, name = Admin(cluster), await made(cluster)
        quorum = await admin.describe_quorum()
        assert (quorum.leader_id, [voter.id for voter in quorum.voters]) == (1, [1])
        features = await admin.describe_features()
        assert features.finalized["metadata.version"] == features.supported["metadata.version"][1]
        # Folders of partitions are created after the topic.
        found: set[tuple[str, int]] = set()
        while found != {(name, partition) for partition in range(3)}:
            (log_dir,) = (await admin.describe_log_dirs([1], topics=[name]))[1]
            found = {(replica.topic, replica.partition) for replica in log_dir.replicas}
        nodes = (await admin.describe_cluster()).nodes
        assert [node.id for node in nodes] == [1]

    run(sparkraft_cluster.bootstrap, test)


def test_the_lag_of_several_groups_by_their_committed_offsets(sparkraft_cluster):
    """Of as many groups as have few enough partitions, and with one look-up of the ends."""

    async def test(cluster: Cluster) -> None:
        groups, name, other = Groups(cluster), await made(cluster), await made(cluster)
        async with Producer(cluster) as producer:
            for _ in range(5):
                await (await producer.send(name, b"x", partition=0))
        late, early, nothing = fresh("group"), fresh("group"), fresh("group")
        await groups.commit(late, {(name, 0): Committed(offset=2), (name, 1): Committed(offset=0)})
        await groups.commit(
            early, {(name, 0): Committed(offset=5), (other, 2): Committed(offset=0)}
        )
        found = await committed_lags(cluster, [late, early, nothing], partitions_max=4)
        assert {
            group_id: [(row.topic, row.partition, row.offset, row.lag) for row in rows]
            for group_id, rows in found.items()
        } == {
            late: [(name, 0, 2, 3), (name, 1, 0, 0)],
            early: sorted([(name, 0, 5, 0), (other, 2, 0, 0)]),
            nothing: [],
        }
        found = await committed_lags(cluster, [late, early, nothing], partitions_max=3)
        assert found.keys() == {late, nothing}
        assert await committed_lags(cluster, [], partitions_max=3) == {}

    run(sparkraft_cluster.bootstrap, test)


def test_offsets_of_an_idle_group_are_set_read_and_deleted(sparkraft_cluster):
    async def test(cluster: Cluster) -> None:
        groups, group_id, name = Groups(cluster), fresh("group"), await made(cluster)
        offsets = {(name, i): Committed(offset=i, metadata=f"m{i}") for i in range(3)}
        assert set((await groups.commit(group_id, offsets)).values()) == {None}
        found = await groups.offsets(group_id)
        assert {tp: (c.offset, c.metadata) for tp, c in found.items()} == {
            tp: (c.offset, c.metadata) for tp, c in offsets.items()
        }
        assert group_id in [group.id for group in await groups.list()]
        assert await groups.delete_offsets(group_id, [(name, 0)]) == {(name, 0): None}
        assert len(await groups.offsets(group_id)) == 2
        assert await groups.delete([group_id]) == {group_id: None}
        gone = await groups.delete([group_id])
        assert gone[group_id].code is ErrorCode.GROUP_ID_NOT_FOUND
        with pytest.raises(KafkaError) as refused:
            await groups.describe(group_id)
        assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND

    run(sparkraft_cluster.bootstrap, test)
