"""Transactions over the wire whose topics do not exist yet, or are deleted before they end."""

from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.coordinator.internal_topics import GROUP_METADATA_TOPIC
from sparkraft.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from sparkraft.protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from sparkraft.protocol.messages.k65_describe_transactions import DescribeTransactionsRequest
from tests.server.harness import connect, create_topic, node_in, run, until
from tests.server.test_transaction_coordinator import NAME, NONE, Client, committed


def test_offsets_are_added_before_their_topic_exists(tmp_path):
    """The coordinator must know the topic, or it would write no marker to the group's partition."""

    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            client = Client(connection, epochs=False)
            await client.init()

            async def add(epoch: int) -> ErrorCode:
                request = AddOffsetsToTxnRequest(
                    transactional_id=NAME,
                    producer_id=client.producer_id,
                    producer_epoch=epoch,
                    group_id="g",
                )
                return ErrorCode((await connection.send(request)).error_code)

            assert await add(client.epoch + 1) is ErrorCode.PRODUCER_FENCED
            assert node.broker.image.topic(GROUP_METADATA_TOPIC) is None
            assert await add(client.epoch) is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert await state(connection) == "Empty"
            await until(lambda: node.broker.image.topic(GROUP_METADATA_TOPIC) is not None)
            assert await add(client.epoch) is NONE
            assert await state(connection) == "Ongoing"
            await connection.close()

    run(test())


async def delete(connection: Any, name: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=10_000)
    assert (await connection.send(request)).responses[0].error_code == 0


async def state(connection: Any) -> str:
    request = DescribeTransactionsRequest(transactional_ids=[NAME])
    found: str = (await connection.send(request)).transaction_states[0].transaction_state
    return found


@pytest.mark.parametrize("epochs", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_a_topic_of_an_open_transaction_is_deleted(tmp_path, epochs, again):
    """Its partitions need no marker; a new topic of that name gets one for nothing, as in Kafka."""

    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            ids = {name: await create_topic(connection, name) for name in ("a", "b")}
            client = Client(connection, epochs=epochs)
            await client.init()
            if not epochs:
                assert await client.add(("a", 0), ("b", 0)) == {0}
            for topic in ids:
                assert await client.produce(topic, b"first") is NONE
            await delete(connection, "a")
            if again:
                ids["a"] = await create_topic(connection, "a")
                client.sequences.pop(("a", 0))
            assert await client.end(commit=True) is NONE

            async def has_ended() -> bool:
                return await state(connection) == "CompleteCommit"

            await until(has_ended)
            assert await committed(connection, ids["b"]) == [b"first"]
            if again:
                assert await committed(connection, ids["a"]) == []
                if not epochs:
                    assert await client.add(("a", 0)) == {0}
                assert await client.produce("a", b"second") is NONE
                assert await client.end(commit=True) is NONE
                await until(has_ended)
                assert await committed(connection, ids["a"]) == [b"second"]
            elif not epochs:
                unknown = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.value}
                assert await client.add(("a", 0)) == unknown
            await connection.close()

    run(test())
