"""A coordinator of very many transactional ids: listed in slices, in little memory, expired."""

import asyncio
import struct
import tracemalloc
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import Millis, Offset
from sparkraft.coordinator.runtime import Instant
from sparkraft.coordinator.transaction.config import TransactionConfig
from sparkraft.coordinator.transaction.metadata import TransactionMetadata
from sparkraft.coordinator.transaction.records import (
    TransactionRecord,
    decode_record,
    encode_record,
)
from sparkraft.coordinator.transaction.shard import (
    EXPIRED_PER_STEP,
    EXPIRY_PAUSE_MS,
    TransactionShard,
)
from sparkraft.coordinator.transaction.states import TransactionState
from sparkraft.metadata.image import EMPTY_IMAGE
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import decode
from sparkraft.protocol.messages.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from tests.server.harness import connect, create_topic, node_in, run
from tests.server.test_large_requests import STEP_UNITS_MAX, work_on
from tests.server.test_transaction_coordinator import Client

START_MS = 1_700_000_000_000
SAMPLE = 3_000
"""Ids whose memory is traced, which takes ten times as long."""

BYTES_MAX = 300
"""Memory of an id at most; a node is promised 700. Its record in the log has about 130 bytes."""


def record_of(number: int) -> TransactionRecord:
    """The record of an id that has committed a transaction."""
    metadata = TransactionMetadata(
        transactional_id=f"orders-service-{number:07d}-producer",
        producer_id=4_000 + number,
        producer_epoch=number % 30_000,
        previous_producer_id=4_000 + number,
        timeout_ms=60_000,
        updated_ms=START_MS + number,
        start_ms=START_MS + number - 5,
        state=TransactionState.COMPLETE_COMMIT,
        client_version=2,
    )
    return TransactionRecord(transactional_id=metadata.transactional_id, metadata=metadata)


def load(shard: Any, count: int, first: int = 0) -> None:
    """Replay the records of the ids from number `first` up to `count` from their bytes."""
    for number in range(first, count):
        record = decode_record(*encode_record(record_of(number)))
        assert record is not None
        shard.replay(Offset(number), record)


def init_frame(name: str) -> bytes:
    """InitProducerId v2, whatever the length of the id."""
    length, prefix = len(name) + 1, bytearray()
    while length >= 0x80:
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    prefix.append(length)
    frame = struct.pack(">hhihcx", 22, 2, 1, 1, b"x")
    frame += prefix + name.encode() + struct.pack(">ix", 60_000)
    return len(frame).to_bytes(4, "big") + frame


def at(ms: int) -> Instant:
    return Instant(Millis(ms), Millis(START_MS + ms))


@pytest.mark.parametrize("count", [3_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_an_id_takes_little_memory_and_many_expire_in_small_steps(count: int) -> None:
    day_ms = 86_400_000
    config = TransactionConfig(id_expiration_ms=day_ms, expiry_interval_ms=3_600_000)
    shard = TransactionShard(config, 0)
    tracemalloc.start()
    load(shard, SAMPLE)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used / SAMPLE <= BYTES_MAX
    load(shard, count, first=SAMPLE)
    assert shard.counts == {TransactionState.COMPLETE_COMMIT: count}
    shard.loaded(EMPTY_IMAGE, at(0))
    now_ms, steps, steps_max = 0, 0, count // EXPIRED_PER_STEP
    last_ms = day_ms + count + config.expiry_interval_ms + steps_max * EXPIRY_PAUSE_MS
    while steps < steps_max:
        assert shard.wake_at is not None
        now_ms = int(shard.wake_at)
        assert now_ms <= last_ms
        for decision in shard.on_timers(at(now_ms)):
            assert len(decision.records) <= EXPIRED_PER_STEP
            steps += bool(decision.records)
            for record in decision.records:
                assert record.metadata is None
                shard.replay(Offset(0), record)
            if decision.append_callback is not None:
                shard.on_append_completed(decision.append_callback, None, at(now_ms))
    assert shard.transactional_ids() == []
    assert shard.counts.total() == 0


def test_many_ids_are_listed_in_slices(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await Client(connection, epochs=True).init()
            runtime = next(iter(node.broker.transactions.loaded_shards()))
            load(runtime.shard, 5_000)
            request = ListTransactionsRequest()
            units, buffers = work_on(node, ApiKey.LIST_TRANSACTIONS, request, 2)
            assert max(units) <= STEP_UNITS_MAX
            assert sum(units) == 5_001
            found = decode(ListTransactionsResponse, 2, b"".join(buffers))
            listed = (await connection.send(request)).transaction_states
            assert listed == found.transaction_states
            ids = [one.transactional_id for one in listed]
            assert len(ids) == len(set(ids)) == 5_001
            wanted = ListTransactionsRequest(transactional_id_pattern=".*-000499[0-9]-.*")
            listed = (await connection.send(wanted)).transaction_states
            assert len(listed) == 10
            await connection.close()

    run(test())


def test_the_longest_transactional_id(tmp_path):
    """A string of the protocol has 32,767 bytes at most; a longer one closes the connection."""

    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await Client(connection, epochs=True).init()
            longest = Client(connection, epochs=True, name="x" * 32_767)
            assert await longest.init() is ErrorCode.NONE
            await create_topic(connection, "t")
            assert await longest.produce("t", b"value") is ErrorCode.NONE
            assert await longest.end(commit=True) is ErrorCode.NONE
            for length in (32_767, 32_768, 2_000_000):
                reader, writer = await asyncio.open_connection("127.0.0.1", node.ports["PLAINTEXT"])
                writer.write(init_frame("x" * length))
                async with asyncio.timeout(10):
                    assert bool(await reader.read(4)) is (length == 32_767)
                writer.close()
            listed = await connection.send(ListTransactionsRequest())
            assert len(listed.transaction_states) == 2
            await connection.close()

    run(test())
