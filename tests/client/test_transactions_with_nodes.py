"""Our transactional producer and KIP-848 consumer against real nodes."""

import asyncio
import uuid
from collections import Counter
from itertools import count

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster
from sparkraft.client.consumer import Consumer, ConsumerSettings
from sparkraft.client.errors import AbortableTransactionError, ProducerFencedError
from sparkraft.client.groups import Groups
from sparkraft.client.producer import Producer, ProducerSettings
from sparkraft.client.subscription import CLASSIC, CONSUMER, GroupSettings
from sparkraft.client.transaction_admin import TransactionAdmin
from sparkraft.client.transactional_producer import TransactionalProducer
from sparkraft.client.values import LATEST, ConfigOperation, NewTopic, ResourceType
from tests.support.nodes import KafkaNode, SparkraftNode
from tests.support.transactions import HangingProducer

pytestmark = pytest.mark.real_clients

SECONDS = 120
QUICK_GROUPS = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "2000",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.assignment.interval.ms": "0",
    "transaction.state.log.num.partitions": "3",
}
_names = count()


@pytest.fixture(scope="module", params=["sparkraft", pytest.param("kafka", marks=pytest.mark.java)])
def node(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "kafka":
        jars = request.getfixturevalue("kafka_jars")
        made_node = KafkaNode(directory, overrides=QUICK_GROUPS, jars=jars)
    else:
        made_node = SparkraftNode(directory, overrides=QUICK_GROUPS)
    with made_node as running:
        yield running


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def version(request, node) -> int:
    """transaction.version, finalized at this level."""
    run(node.bootstrap, lambda cluster: set_version(cluster, request.param))
    return request.param


async def set_version(cluster: Cluster, level: int) -> None:
    admin = Admin(cluster)
    finalized = (await admin.describe_features()).finalized["transaction.version"]
    if finalized == level:
        return
    kind = 1 if level > finalized else 2
    outcome = await admin.update_features({"transaction.version": level}, upgrade_type=kind)
    assert outcome["transaction.version"] is None, outcome

    async def is_seen() -> bool:
        return (await admin.describe_features()).finalized["transaction.version"] == level

    await until(is_seen)


async def until(condition) -> None:
    while True:
        if await condition():
            return
        await asyncio.sleep(0.05)


def run(bootstrap: str, test) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(SECONDS), Cluster(bootstrap) as cluster:
            await test(cluster)

    asyncio.run(bounded())


async def made(cluster: Cluster, partitions: int = 2, **configs: str) -> str:
    name = f"transactions-{next(_names)}"
    topic = NewTopic(
        name=name,
        partitions=partitions,
        configs={key.replace("_", "."): value for key, value in configs.items()},
    )
    outcome = await Admin(cluster).create_topics([topic])
    assert not isinstance(outcome[name], KafkaError), outcome
    return name


def producer(cluster: Cluster, name: str, **settings) -> TransactionalProducer:
    return TransactionalProducer(cluster, ProducerSettings(transactional_id=name, **settings))


async def values(cluster: Cluster, topic: str, *, read_committed: bool = True) -> list[bytes]:
    """Values of the whole topic, up to the end that is visible."""
    isolation = int(read_committed)
    info = await cluster.topic(topic)
    partitions = [(topic, index) for index in info.partitions]
    ends = await Admin(cluster).list_offsets(
        dict.fromkeys(partitions, LATEST), isolation_level=isolation
    )
    settings = ConsumerSettings(auto_offset_reset="earliest", read_committed=read_committed)
    consumer = Consumer(cluster, settings)
    consumer.assign(partitions)
    found = []
    while any((consumer.position(tp) or 0) < ends[tp].offset for tp in partitions):
        found += [record.value for record in await consumer.poll(200)]
    await consumer.close()
    return found


def test_committed_records_are_visible_and_aborted_ones_are_not(node, version):
    async def write(cluster):
        topic = await made(cluster)
        name = f"visible-{version}"
        async with producer(cluster, name) as sender:
            await sender.init_transactions()
            epochs = []
            for number in range(4):
                sender.begin_transaction()
                for index in range(2):
                    await sender.send(topic, b"%d" % number, partition=index)
                if number % 2:
                    await sender.flush()
                    await sender.abort_transaction()
                else:
                    await sender.commit_transaction()
                epochs.append(sender.producer_id_and_epoch[1])
        assert Counter(await values(cluster, topic)) == Counter([b"0", b"0", b"2", b"2"])
        everything = await values(cluster, topic, read_committed=False)
        assert Counter(everything) == Counter([b"0", b"1", b"2", b"3"] * 2)
        start = epochs[0]
        # KIP-890: each end of a transaction raises the epoch.
        expected = [start, start + 1, start + 2, start + 3] if version > 1 else [start] * 4
        assert epochs == expected
        described = await TransactionAdmin(cluster).describe(name)
        assert described.state == "CompleteAbort"

    run(node.bootstrap, write)


@pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER])
def test_offsets_move_with_their_transaction(node, version, protocol):
    async def move(cluster):
        source, target = await made(cluster, 1), await made(cluster, 1)
        group_id = f"moved-{version}-{protocol}"
        group = GroupSettings(group_id=group_id, protocol=protocol)
        settings = ConsumerSettings(group=group, auto_offset_reset="earliest", read_committed=True)
        async with producer(cluster, f"moves-{version}") as sender:
            await sender.init_transactions()
            async with sender.transaction():
                for number in range(6):
                    await sender.send(source, b"%d" % number)
            async with Consumer(cluster, settings) as consumer:
                consumer.subscribe([source])
                records = []
                while len(records) < 6:
                    records += await consumer.poll()
                sender.begin_transaction()
                await sender.send(target, b"dropped")
                await sender.send_offsets_to_transaction({(source, 0): 3}, consumer.group_metadata)
                await sender.abort_transaction()
                assert await Groups(cluster).offsets(group_id) == {}
                async with sender.transaction():
                    await sender.send(target, b"kept")
                    metadata = consumer.group_metadata
                    await sender.send_offsets_to_transaction({(source, 0): 4}, metadata)
            async with Consumer(cluster, settings) as consumer:
                consumer.subscribe([source])
                left = []
                while len(left) < 2:
                    left += await consumer.poll()
        assert [record.value for record in left] == [b"4", b"5"]
        assert await values(cluster, target) == [b"kept"]

    run(node.bootstrap, move)


def test_a_second_producer_fences_the_first(node, version):
    async def fence(cluster):
        topic = await made(cluster, 1)
        name = f"fenced-{version}"
        first, second = producer(cluster, name), producer(cluster, name)
        await first.init_transactions()
        first.begin_transaction()
        await (await first.send(topic, b"first"))
        await second.init_transactions()
        await first.send(topic, b"late")
        with pytest.raises(KafkaError):
            await first.commit_transaction()
        with pytest.raises(ProducerFencedError):
            await first.abort_transaction()
        async with second.transaction():
            await second.send(topic, b"second")
        for sender in (first, second):
            await sender.close()
        assert await values(cluster, topic) == [b"second"]

    run(node.bootstrap, fence)


async def send_two(sender: TransactionalProducer, topic: str) -> None:
    """The second record is too large for the topic."""
    async with sender.transaction():
        await sender.send(topic, b"small")
        await sender.flush()
        await sender.send(topic, b"x" * 500)


def test_a_refused_record_aborts_its_transaction_and_the_next_one_works(node, version):
    async def refuse(cluster):
        topic = await made(cluster, 1, max_message_bytes="200")
        async with producer(cluster, f"refused-{version}", linger_ms=0) as sender:
            await sender.init_transactions()
            with pytest.raises(AbortableTransactionError, match="MESSAGE_TOO_LARGE"):
                await send_two(sender, topic)
            async with sender.transaction():
                await sender.send(topic, b"after")
        assert await values(cluster, topic) == [b"after"]

    run(node.bootstrap, refuse)


def test_a_transaction_that_is_ended_from_outside_is_aborted(node, version):
    async def end(cluster):
        topic = await made(cluster, 1)
        name = f"ended-{version}"
        sender = producer(cluster, name)
        await sender.init_transactions()
        sender.begin_transaction()
        await (await sender.send(topic, b"lost"))
        admin = TransactionAdmin(cluster)
        found = {each.transactional_id: each for each in await admin.list_transactions()}
        listed = found[name]
        assert listed.state == "Ongoing"
        assert (await admin.describe(name)).partitions == ((topic, 0),)
        (active,) = (await admin.producers([(topic, 0)]))[topic, 0]
        assert (active.producer_id, active.start_offset) == (listed.producer_id, 0)
        await admin.force_terminate(name)
        with pytest.raises(ProducerFencedError):
            await sender.commit_transaction()
        await sender.close()
        assert await values(cluster, topic) == []

    run(node.bootstrap, end)


def test_a_hanging_transaction_needs_verification_off_and_is_found_and_ended(node):
    async def hang(cluster):
        topic = await made(cluster, 1)
        async with producer(cluster, "creates-the-internal-topic") as sender:
            await sender.init_transactions()
        hanging = HangingProducer(cluster)
        with pytest.raises(KafkaError):
            await (await hanging.send(topic, b"refused"))
        key = "transaction.partition.verification.enable"
        admin, broker = Admin(cluster), (ResourceType.BROKER, "1")
        await admin.alter_configs({broker: [(key, ConfigOperation.SET, "false")]})
        await hanging.write(topic, b"hangs")
        await admin.alter_configs({broker: [(key, ConfigOperation.DELETE, None)]})
        await hanging.close()
        transactions = TransactionAdmin(cluster)
        (found,) = await transactions.find_hanging([(topic, 0)], older_than_ms=0, now_ms=10)
        assert (found.partition, found.producer.start_offset) == ((topic, 0), 0)
        await transactions.abort(
            (topic, 0),
            producer_id=found.producer.producer_id,
            producer_epoch=found.producer.producer_epoch,
            coordinator_epoch=0,
        )
        assert await transactions.find_hanging([(topic, 0)], older_than_ms=0, now_ms=10) == []
        assert await values(cluster, topic) == []

    run(node.bootstrap, hang)


# groups of KIP-848


def member(cluster: Cluster, group_id: str, **group) -> Consumer:
    return Consumer(
        cluster,
        ConsumerSettings(
            group=GroupSettings(group_id=group_id, protocol=CONSUMER, **group),
            auto_offset_reset="earliest",
            auto_commit_interval_ms=100,
        ),
    )


async def write(cluster: Cluster, topic: str, count: int) -> None:
    async with Producer(cluster) as sender:
        for number in range(count):
            await sender.send(topic, b"%d" % number, partition=number % 4)


class Changes:
    """Notes the partitions given and taken."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []

    async def on_partitions_revoked(self, partitions):
        self.events.append(("revoked", len(partitions)))

    async def on_partitions_lost(self, partitions):
        self.events.append(("lost", len(partitions)))

    async def on_partitions_assigned(self, partitions):
        self.events.append(("assigned", len(partitions)))


async def settle(*members: Consumer, on: int) -> list:
    """Poll until the members share the partitions evenly and none is doubled."""
    records = []
    while True:
        for each in members:
            records += await each.poll(50)
        owned = [tp for each in members for tp in each.assignment]
        if sorted(len(each.assignment) for each in members) == [on // len(members)] * len(members):
            assert len(set(owned)) == on
            return records


def test_members_share_partitions_and_take_over_those_of_one_that_leaves(node):
    async def share(cluster):
        topic = await made(cluster, 4)
        group_id = f"shared-{topic}"
        changes = Changes()
        first, second = member(cluster, group_id), member(cluster, group_id)
        first.subscribe([topic], listener=changes)
        await settle(first, on=4)
        second.subscribe([topic])
        records = await settle(first, second, on=4)
        assert changes.events == [("assigned", 4), ("revoked", 2)]
        await write(cluster, topic, 40)
        while len(records) < 40:
            records += await first.poll(50) + await second.poll(50)
        described = await Groups(cluster).describe(group_id)
        assert (described.kind, described.state, len(described.members)) == (
            "consumer", "Stable", 2,
        )  # fmt: skip
        await second.close()
        await settle(first, on=4)
        await write(cluster, topic, 40)
        while len(records) < 80:
            records += await first.poll(50)
        await first.close()
        # Nothing twice: the partitions were handed over with their offsets.
        assert Counter(record.value for record in records) == Counter(
            [b"%d" % number for number in range(40)] * 2
        )

    run(node.bootstrap, share)


@pytest.mark.long  # a coordinator looks for new topics every ten seconds
def test_a_pattern_finds_topics_that_come_later(node):
    async def find(cluster):
        prefix = f"found-{uuid.uuid4().hex[:8]}"
        consumer = member(cluster, prefix)
        consumer.subscribe(pattern=f"{prefix}-.*")
        await consumer.poll(100)
        topic = NewTopic(name=f"{prefix}-a", partitions=2, replication_factor=1)
        await Admin(cluster).create_topics([topic])
        while len(consumer.assignment) < 2:
            await consumer.poll(100)
        await consumer.close()

    run(node.bootstrap, find)


def test_a_static_member_comes_back_to_its_partitions(node):
    async def come_back(cluster):
        topic = await made(cluster, 4)
        group_id = f"static-{topic}"
        first = member(cluster, group_id, instance_id="a")
        second = member(cluster, group_id, instance_id="b")
        for each in (first, second):
            each.subscribe([topic])
        await settle(first, second, on=4)
        had = set(first.assignment)
        await first.close()
        again = member(cluster, group_id, instance_id="a")
        again.subscribe([topic])
        while set(again.assignment) != had:
            await again.poll(50)
            await second.poll(50)
        copy = member(cluster, group_id, instance_id="a")
        copy.subscribe([topic])
        with pytest.raises(KafkaError) as raised:
            await settle(copy, on=4)
        assert raised.value.code is ErrorCode.UNRELEASED_INSTANCE_ID
        for each in (again, second):
            await each.close()

    run(node.bootstrap, come_back)


def test_a_member_that_is_removed_joins_again_and_reads_on(node):
    async def remove(cluster):
        topic = await made(cluster, 4)
        group_id = f"removed-{topic}"
        changes = Changes()
        consumer = member(cluster, group_id)
        consumer.subscribe([topic], listener=changes)
        await settle(consumer, on=4)
        await consumer.membership._stop()  # as if frozen for longer than its session

        async def is_removed() -> bool:
            return not (await Groups(cluster).describe(group_id)).members

        await until(is_removed)
        while changes.events.count(("assigned", 4)) < 2:
            await consumer.poll(50)
        assert ("lost", 4) in changes.events
        await write(cluster, topic, 4)
        records = []
        while len(records) < 4:
            records += await consumer.poll(50)
        await consumer.close()

    run(node.bootstrap, remove)
