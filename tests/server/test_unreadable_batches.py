"""Batches that contradict themselves: refused by default; a consumer can go past stored ones."""

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.client.cluster import Cluster
from sparkraft.client.consumer import Consumer, ConsumerSettings
from sparkraft.client.errors import UnreadableBatchError
from sparkraft.records.batch import BATCH_OVERHEAD, CRC_AT
from sparkraft.records.compression import Codec
from sparkraft.records.crc import crc32c
from tests.server.harness import append, batch, connect, create_topic, node_in, run


def sealed(data: bytes) -> bytes:
    """With the right CRC."""
    changed = bytearray(data)
    changed[CRC_AT : CRC_AT + 4] = crc32c(bytes(changed[CRC_AT + 4 :])).to_bytes(4, "big")
    return bytes(changed)


def garbage(data: bytes, *, codec: Codec = Codec.NONE) -> bytes:
    """A batch with random bytes in place of its records."""
    head = bytearray(data[:BATCH_OVERHEAD])
    head[22] = int(codec)
    return sealed(bytes(head) + bytes(range(100, 100 + len(data) - BATCH_OVERHEAD)))


def lying(data: bytes, count: int, delta: int) -> bytes:
    changed = bytearray(data)
    changed[57:61] = count.to_bytes(4, "big")
    changed[23:27] = delta.to_bytes(4, "big")
    return sealed(bytes(changed))


BATCHES = [
    (lying(batch(b"v"), (1 << 31) - 1, (1 << 31) - 2), ErrorCode.INVALID_RECORD),
    (garbage(batch(*[b"v"] * 5)), ErrorCode.INVALID_RECORD),
    (garbage(batch(b"value"), codec=Codec.GZIP), ErrorCode.UNKNOWN_SERVER_ERROR),
    (lying(batch(b"v"), 5, 4), ErrorCode.INVALID_RECORD),
]


@pytest.mark.parametrize(("bad", "code"), BATCHES)
def test_they_are_refused_with_kafkas_codes(tmp_path, bad, code):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            answer = await append(connection, topic_id, bad)
            assert (answer.error_code, answer.base_offset) == (code, -1)
            assert (await append(connection, topic_id, batch(b"good"))).base_offset == 0

    run(test())


def test_a_consumer_names_a_stored_one_and_continues_after_it(tmp_path):
    async def test():
        async with node_in(tmp_path, **{"sparkraft.record.validation": "header"}) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            for data in (batch(b"a"), garbage(batch(b"b", b"b")), batch(b"c")):
                assert (await append(connection, topic_id, data)).error_code == 0
            async with Cluster(f"127.0.0.1:{node.ports['PLAINTEXT']}") as cluster:
                consumer = Consumer(cluster, ConsumerSettings(auto_offset_reset="earliest"))
                consumer.assign([("t", 0)])
                values = []

                async def read(wanted):
                    while len(values) < wanted:
                        values.extend(record.value for record in await consumer.poll(1000))

                with pytest.raises(UnreadableBatchError) as caught:
                    await read(2)
                assert values == [b"a"]
                error = caught.value
                assert (error.topic, error.partition) == ("t", 0)
                assert (error.base_offset, error.next_offset) == (1, 3)
                assert "seek to offset 3" in str(error)
                consumer.seek((error.topic, error.partition), error.next_offset)
                await read(2)
                assert values == [b"a", b"c"]
                await consumer.close()

    run(test())
