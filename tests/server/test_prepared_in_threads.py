"""Topics whose batches are rewritten or checked in a thread, against a whole node."""

import asyncio
import random

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from sparkraft.records.batch import iter_batches
from sparkraft.records.compression import Codec
from tests.server.harness import (
    append,
    batch,
    connect,
    create_topic,
    fetch,
    node_in,
    produce,
    run,
    values_of,
)

LARGE = random.Random(1).randbytes(6000)


def headers_of(partition):
    return [header for header, _ in iter_batches(bytes(partition.records))]


@pytest.mark.parametrize("codec", ["zstd", "gzip", "lz4", "snappy", "uncompressed"])
def test_a_topic_converts_large_batches_and_keeps_their_order(tmp_path, codec):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            configs = {"compression.type": codec}
            topic_id = await create_topic(connection, "t", **configs)
            sent = [LARGE, b"small", LARGE + b"2", b"small2", b"x" * 9000]
            producer_codec = Codec.GZIP if codec != "gzip" else Codec.NONE
            requests = [
                produce(
                    topic_id,
                    batch(
                        value,
                        codec=producer_codec,
                        producer_id=7,
                        producer_epoch=0,
                        base_sequence=sequence,
                    ),
                )
                for sequence, value in enumerate(sent)
            ]
            answers = await asyncio.gather(*(connection.send(one) for one in requests))
            parts = [answer.responses[0].partition_responses[0] for answer in answers]
            assert [(part.error_code, part.base_offset) for part in parts] == [
                (0, offset) for offset in range(len(sent))
            ]
            answer = await connection.send(fetch(topic_id, 0))
            read = answer.responses[0].partitions[0]
            assert values_of(read) == sent
            expected = Codec.NONE if codec == "uncompressed" else Codec[codec.upper()]
            assert {header.codec for header in headers_of(read)} == {expected}

    run(test())


def test_a_config_that_changes_applies_to_the_batches_after_it(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t", **{"compression.type": "zstd"})
            assert (await append(connection, topic_id, batch(LARGE))).error_code == 0
            change = AlterableConfig(name="compression.type", config_operation=0, value="lz4")
            resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
            await connection.send(IncrementalAlterConfigsRequest(resources=[resource]))
            assert (await append(connection, topic_id, batch(LARGE))).error_code == 0
            answer = await connection.send(fetch(topic_id, 0))
            headers = headers_of(answer.responses[0].partitions[0])
            assert [header.codec for header in headers] == [Codec.ZSTD, Codec.LZ4]

    run(test())


def test_a_batch_that_a_thread_refuses_has_its_error(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t", **{"cleanup.policy": "compact"})
            keyless = await append(connection, topic_id, batch(LARGE * 20, codec=Codec.LZ4))
            assert keyless.error_code == ErrorCode.INVALID_RECORD
            assert keyless.base_offset == -1
            taken = await append(connection, topic_id, batch(LARGE * 20, key=b"k", codec=Codec.LZ4))
            assert (taken.error_code, taken.base_offset) == (0, 0)

    run(test())
