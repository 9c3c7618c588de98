"""Transactional batches in requests of a known shape: the short way admits what the long does."""

from contextlib import asynccontextmanager
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.security.acls import AclResourceType
from tests.server.harness import connect, create_topic, node_in, run
from tests.server.test_authorization import put
from tests.server.test_transaction_coordinator import Client
from tests.support.sessions import Deciding

NONE = ErrorCode.NONE


class LongWays:
    """Counts the transactional requests that took the long way, which is under a lock."""

    def __init__(self, node: Any) -> None:
        self.count = 0
        self._lock_of = node.broker.verification.lock_of
        node.broker.verification.lock_of = self.lock_of

    def lock_of(self, producer_id: int) -> Any:
        self.count += 1
        return self._lock_of(producer_id)


@asynccontextmanager
async def client_of(tmp_path: Any, *, epochs: bool = False) -> Any:
    """A client whose requests of one transaction have been learned, and the long ways since."""
    async with node_in(tmp_path) as node:
        connection = await connect(node)
        await create_topic(connection, "t")
        client = Client(connection, epochs=epochs)
        assert await client.init() is NONE
        await transaction(client, b"a", b"b")
        yield client, LongWays(node), node
        await connection.close()


async def transaction(client: Client, *values: bytes, commit: bool = True) -> None:
    if not client.epochs:
        assert await client.add(("t", 0)) == {0}
    for value in values:
        assert await client.produce("t", value) is NONE
    assert await client.end(commit=commit) is NONE


def test_each_batch_of_a_later_transaction_takes_the_short_way(tmp_path):
    async def test():
        async with client_of(tmp_path) as (client, long, node):
            await transaction(client, b"c", b"d")
            await transaction(client, b"e", commit=False)
            assert long.count == 0
            log = node.broker.replica_manager.get_log("t", 0)
            assert log.last_stable_offset == log.log_end_offset

    run(test())


def test_only_the_first_batch_of_a_transaction_that_adds_its_partition_takes_the_long_way(tmp_path):
    """KIP-890: the coordinator has to append the partition first."""

    async def test():
        async with client_of(tmp_path, epochs=True) as (client, long, _):
            await transaction(client, b"c", b"d", b"e")
            await transaction(client, b"f", b"g")
            assert long.count == 2

    run(test())


def test_a_batch_that_belongs_to_no_transaction_is_refused(tmp_path):
    """Outside of any, of a fenced producer, and without the right to the transactional id."""

    async def test():
        async with client_of(tmp_path) as (client, _, node):
            assert await client.produce("t", b"c") is ErrorCode.TRANSACTION_ABORTABLE
            assert await client.add(("t", 0)) == {0}
            successor = Client(client.connection, epochs=False)
            assert await successor.init() is NONE
            assert await client.produce("t", b"c") is ErrorCode.INVALID_PRODUCER_EPOCH
            assert await successor.add(("t", 0)) == {0}
            assert await client.produce("t", b"c") is ErrorCode.INVALID_PRODUCER_EPOCH
            denied: set[AclResourceType] = set()
            put(node, Deciding(lambda _operation, kind, _name: kind not in denied))
            successor.connection = await connect(node)
            assert await successor.produce("t", b"c") is NONE
            denied.add(AclResourceType.TRANSACTIONAL_ID)
            refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            assert await successor.produce("t", b"d") is refused
            await successor.connection.close()

    run(test())


def test_a_producer_with_a_request_on_the_long_way_stays_there(tmp_path):
    """Its batches are appended in the order of its requests."""

    async def test():
        async with client_of(tmp_path) as (client, long, _):
            assert await client.add(("t", 0)) == {0}
            lock = long._lock_of(client.producer_id)
            assert await client.produce("t", b"c") is NONE
            assert long.count == 1
            del lock
            assert await client.produce("t", b"d") is NONE
            assert long.count == 1

    run(test())


def test_what_is_not_committed_is_not_read_at_once(tmp_path):
    async def test():
        async with client_of(tmp_path) as (client, _, node):
            assert await client.add(("t", 0)) == {0}
            given = (client.name, client.producer_id, client.epoch, ("t", 0))
            service = node.broker.transactions
            assert service.is_part(*given)
            runtime = service.shard_for(client.name)
            for part, state in ((runtime._uncommitted, "is_empty"), (runtime, "is_serving")):
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(type(part), state, False)
                    assert not service.is_part(*given)
            assert not service.is_part("another", *given[1:])
            assert not service.is_part(*given[:3], ("t", 1))

    run(test())
