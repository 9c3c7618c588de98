"""Read a topic, change each record, write another topic: each input once, whatever happens.

python worker.py localhost:9092 [classic|consumer]

Output records and the offsets of their inputs are committed in one transaction. Kill the worker at
any moment and start it again: the new one fences the old one by the transactional id, the open
transaction is aborted, and reading continues from the offsets of the last committed transaction.
"""

import asyncio
import sys

from sparkraft.client.cluster import Cluster
from sparkraft.client.consumer import Consumer, ConsumerSettings
from sparkraft.client.errors import AbortableTransactionError
from sparkraft.client.producer import ProducerSettings
from sparkraft.client.subscription import GroupSettings
from sparkraft.client.transactional_producer import TransactionalProducer
from sparkraft.client.values import EARLIEST

SOURCE, TARGET, GROUP = "readings", "readings-doubled", "doubler"
RECORDS_PER_TRANSACTION_MAX = 20


def group(protocol: str) -> GroupSettings:
    """A classic static member takes its predecessor's place at once.

    In a group of KIP-848 the place is free once the predecessor's session has timed out.
    """
    instance = "worker-0" if protocol == "classic" else None
    return GroupSettings(group_id=GROUP, protocol=protocol, instance_id=instance)


async def work(bootstrap: str, protocol: str) -> None:
    """Run until killed."""
    consumer_settings = ConsumerSettings(
        group=group(protocol),
        auto_offset_reset="earliest",
        read_committed=True,
        max_poll_records=RECORDS_PER_TRANSACTION_MAX,
    )
    producer_settings = ProducerSettings(transactional_id="doubler-0")
    async with (
        Cluster(bootstrap) as cluster,
        TransactionalProducer(cluster, producer_settings) as producer,
        Consumer(cluster, consumer_settings) as consumer,
    ):
        await producer.init_transactions()
        consumer.subscribe([SOURCE])
        while True:
            records = await consumer.poll()
            if not records:
                continue
            try:
                async with producer.transaction():
                    for record in records:
                        doubled = str(2 * int(record.value or b"0")).encode()
                        await producer.send(TARGET, doubled, key=record.key)
                    offsets = {(r.topic, r.partition): r.offset + 1 for r in records}
                    await producer.send_offsets_to_transaction(offsets, consumer.group_metadata)
            except AbortableTransactionError as error:
                print(f"starting over: {error}", file=sys.stderr)
                await rewind(consumer)


async def rewind(consumer: Consumer) -> None:
    """Read again what the aborted transaction had read."""
    committed = await consumer.committed(consumer.assignment)
    for tp in consumer.assignment:
        consumer.seek(tp, committed.get(tp, EARLIEST))


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "classic"))  # noqa: PLR2004
