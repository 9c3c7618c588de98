"""Produce in transactions: every version, verified by the coordinator or added by it (KIP-890)."""

from collections.abc import Callable, Iterator

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.declare import Message
from sparkraft.protocol.messages import k00_produce as k00
from tests.interop.differential.building import TOPIC, batch, is_final
from tests.interop.differential.transaction_cases import (
    add,
    begins,
    client_versions,
    end,
    keep,
    producer,
    settles,
    unsupported_versions,
)
from tests.interop.differential.world import Case, World

ADDING_FROM = 12
"""From this version on the leader adds the partition."""

PARTITION = 2


def produce(
    name: str,
    sequence: int,
    *,
    transactional_id: str | None = None,
    topic: str = TOPIC,
    partition: int = PARTITION,
    transactional: bool = True,
    **changes: int,
) -> Callable[[World], Message]:
    """Two records of the id's producer."""

    def build(world: World) -> Message:
        producer_id, epoch = producer(world, name, **changes)
        records = batch(2, producer=(producer_id, epoch, sequence), transactional=transactional)
        data = k00.PartitionProduceData(index=partition, records=records)
        return k00.ProduceRequest(
            transactional_id=name if transactional_id is None else transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[
                k00.TopicProduceData(
                    name=topic, topic_id=world.topic_id(topic), partition_data=[data]
                )
            ],
        )

    return build


def transactional_produces(level: int = 2) -> Iterator[Case]:
    """A transaction in each version, and batches that must not be in it."""
    key = ApiKey.PRODUCE
    for version in client_versions(key, level):
        if version < 3:
            continue  # Advertised, but without transactions.
        name = f"produce-{version}"
        yield from begins(name)
        adds = version >= ADDING_FROM
        if not adds:
            yield Case("not added", key, version, produce(name, 0), until=is_final)
            one = add(name, (TOPIC, PARTITION))
            yield Case("its place", ApiKey.ADD_PARTITIONS_TO_TXN, 3, one, until=is_final)
        for label, build in {
            "unknown id, first": produce(name, 0, transactional_id="stranger"),
            "wrong epoch, first": produce(name, 0, by_epoch=7),
            "wrong producer, first": produce(name, 0, by_id=10**6),
            "first": produce(name, 0),
            "first again": produce(name, 0),
            "second": produce(name, 2),
            "a gap": produce(name, 9),
            "wrong epoch": produce(name, 4, by_epoch=7),
            "wrong producer": produce(name, 4, by_id=10**6),
            "unknown topic": produce(name, 4, topic="nowhere"),
            "unknown partition": produce(name, 4, partition=99),
            "not transactional": produce(name, 4, transactional=False),
        }.items():
            yield Case(f"transaction: {label}", key, version, build, until=is_final)
        end_version = 5 if adds else 4
        yield Case(
            "what was sent", ApiKey.END_TXN, end_version, end(name), keep(name), until=is_final
        )
        yield from settles(name)
        late = produce(name, 4, by_epoch=-1 if adds else 0)
        yield Case("transaction: late", key, version, late, until=is_final)
    if not level:
        yield from _unsupported()


def _unsupported() -> Iterator[Case]:
    """Produce of new clients at transaction.version 0: the coordinator adds nothing for them."""
    for version in unsupported_versions(ApiKey.PRODUCE):
        name = f"produce-of-a-new-client-{version}"
        yield from begins(name)
        first = produce(name, 0)
        yield Case("transaction: at level 0", ApiKey.PRODUCE, version, first, until=is_final)
