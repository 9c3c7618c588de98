"""The transaction coordinator of one node over the wire: transactions, and offsets in them."""

import asyncio
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.messages import k24_add_partitions_to_txn as k24
from sparkraft.protocol.messages import k28_txn_offset_commit as k28
from sparkraft.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from sparkraft.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from sparkraft.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from sparkraft.protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from sparkraft.protocol.messages.k26_end_txn import EndTxnRequest
from sparkraft.protocol.messages.k65_describe_transactions import DescribeTransactionsRequest
from sparkraft.protocol.messages.k66_list_transactions import ListTransactionsRequest
from sparkraft.records.batch import iter_batches
from sparkraft.records.record import decode_records
from sparkraft.server.api import k24_add_partitions_to_txn
from tests.server.harness import (
    batch,
    connect,
    create_topic,
    fetch,
    node_in,
    produce,
    run,
    until,
)

NAME = "tx"
NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


class Client:
    """A transactional producer by hand; `epochs` as transaction.version 2 has them (KIP-890)."""

    def __init__(self, connection: Any, *, epochs: bool, name: str = NAME) -> None:
        self.connection = connection
        self.epochs = epochs
        self.name = name
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[Any, int] = {}

    async def init(self, **given: Any) -> ErrorCode:
        await self.coordinator_of(self.name, 1)
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=60_000, **given
        )
        answer = await self.retried(request)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences = {}
        return ErrorCode(answer.error_code)

    async def coordinator_of(self, key: str, key_type: int) -> None:
        async def found() -> bool:
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            answer = (await self.connection.send(request)).coordinators[0]
            return answer.error_code == 0

        await until(found)

    async def retried(self, request: Any, version: int | None = None) -> Any:
        """The first answer that is not a retriable error."""
        retriable = {
            CONCURRENT,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        }
        while True:
            answer = await self.connection.send(request, version=version)
            if answer.error_code not in retriable:
                return answer
            await asyncio.sleep(0.002)

    async def add(self, *partitions: tuple[str, int]) -> set[int]:
        """Error codes of AddPartitionsToTxn v3."""
        while True:
            answer = await self.connection.send(
                k24.AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=self.name,
                    v3_and_below_producer_id=self.producer_id,
                    v3_and_below_producer_epoch=self.epoch,
                    v3_and_below_topics=[
                        k24.AddPartitionsToTxnTopic(name=topic, partitions=[index])
                        for topic, index in partitions
                    ],
                ),
                version=3,
            )
            codes = {
                part.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for part in topic.results_by_partition
            }
            if codes != {CONCURRENT}:
                return codes
            await asyncio.sleep(0.002)

    async def produce(self, topic: str, *values: bytes, partition: int = 0) -> ErrorCode:
        key = (topic, partition)
        sequence = self.sequences.get(key, 0)
        request = produce(
            topic,
            batch(
                *values,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=sequence,
                transactional=True,
            ),
            partition=partition,
        )
        request.transactional_id = self.name
        while True:
            answer = await self.connection.send(request, version=12 if self.epochs else 11)
            code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
            if code not in {CONCURRENT, ErrorCode.NOT_ENOUGH_REPLICAS}:
                break
            await asyncio.sleep(0.002)
        if code is NONE:
            self.sequences[key] = sequence + len(values)
        return code

    async def end(self, *, commit: bool) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        answer = await self.retried(request, 5 if self.epochs else 4)
        if self.epochs and not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences = {}
        return ErrorCode(answer.error_code)

    async def commit_offset(self, group: str, topic: str, offset: int, **member: Any) -> ErrorCode:
        await self.coordinator_of(group, 0)
        if not self.epochs:
            request: Any = AddOffsetsToTxnRequest(
                transactional_id=self.name,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=group,
            )
            code = (await self.retried(request)).error_code
            if code:
                return ErrorCode(code)
        request = k28.TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[
                k28.TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        k28.TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=offset
                        )
                    ],
                )
            ],
            **member,
        )
        while True:
            answer = await self.connection.send(request, version=5 if self.epochs else 4)
            code = ErrorCode(answer.topics[0].partitions[0].error_code)
            # A broker that is the leader in the metadata may not have opened the new log yet.
            waits = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
            if code not in {CONCURRENT, *waits}:
                return code
            await asyncio.sleep(0.002)


async def committed(connection: Any, topic_id: Any) -> list[bytes]:
    """The records that a read_committed consumer gets, in all segments."""
    found: list[bytes] = []
    open_aborted: set[int] = set()
    at, end = 0, 1
    while at < end:
        request = fetch(topic_id, at, isolation_level=1)
        part = (await connection.send(request)).responses[0].partitions[0]
        end = part.last_stable_offset
        starts = {(one.producer_id, one.first_offset) for one in part.aborted_transactions}
        for header, view in iter_batches(part.records or b""):
            at = header.next_offset
            if header.is_control:
                open_aborted.discard(header.producer_id)
                continue
            if (header.producer_id, header.base_offset) in starts:
                open_aborted.add(header.producer_id)
            if header.producer_id not in open_aborted:
                found += [bytes(record.value or b"") for record in decode_records(view)]
    return found


async def stable_offset(connection: Any, group: str, topic: str) -> tuple[ErrorCode, int]:
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=group,
                topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])],
            )
        ],
        require_stable=True,
    )
    answer = (await connection.send(request, version=9)).groups[0].topics[0].partitions[0]
    return ErrorCode(answer.error_code), answer.committed_offset


@pytest.mark.parametrize("epochs", [False, True])
def test_transactions_are_read_whole_or_not_at_all(tmp_path, epochs):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            ids = {name: await create_topic(connection, name) for name in ("a", "b")}
            client = Client(connection, epochs=epochs)
            assert await client.init() is NONE
            expected = []
            for turn in range(6):
                value = b"%d" % turn
                if not epochs:
                    assert await client.add(("a", 0), ("b", 0)) == {0}
                for topic in ids:
                    assert await client.produce(topic, value) is NONE
                commit = turn % 2 == 0
                assert await client.end(commit=commit) is NONE
                expected += [value] if commit else []

            async def all_read() -> bool:
                found = [await committed(connection, ids[name]) for name in ids]
                return found == [expected, expected]

            await until(all_read)
            assert client.epoch == (6 if epochs else 0)
            await connection.close()

    run(test())


@pytest.mark.parametrize("epochs", [False, True])
def test_offsets_count_once_their_transaction_commits(tmp_path, epochs):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "in")
            client = Client(connection, epochs=epochs)
            await client.init()
            assert await client.commit_offset("g", "in", 5) is NONE
            assert await stable_offset(connection, "g", "in") == (
                ErrorCode.UNSTABLE_OFFSET_COMMIT,
                -1,
            )
            assert await client.end(commit=True) is NONE

            async def is_at(offset: int) -> bool:
                return await stable_offset(connection, "g", "in") == (NONE, offset)

            await until(lambda: is_at(5))
            assert await client.commit_offset("g", "in", 9) is NONE
            assert await client.end(commit=False) is NONE
            await until(lambda: is_at(5))
            wrong = await client.commit_offset("g", "in", 9, generation_id=3, member_id="m")
            assert wrong is ErrorCode.UNKNOWN_MEMBER_ID
            await connection.close()

    run(test())


def test_offsets_in_a_transaction_need_a_group_and_partitions_that_exist(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "in")
            client = Client(connection, epochs=True)
            await client.init()
            assert await client.commit_offset("g", "in", 5) is NONE
            for group, code in (("g", NONE), ("", ErrorCode.INVALID_GROUP_ID)):
                request = k28.TxnOffsetCommitRequest(
                    transactional_id=NAME,
                    group_id=group,
                    producer_id=client.producer_id,
                    producer_epoch=client.epoch,
                    topics=[
                        k28.TxnOffsetCommitRequestTopic(
                            name=name,
                            partitions=[
                                k28.TxnOffsetCommitRequestPartition(
                                    partition_index=0, committed_offset=1
                                )
                            ],
                        )
                        for name in ("in", "gone")
                    ],
                )
                answer = await connection.send(request, version=5)
                codes = {topic.name: topic.partitions[0].error_code for topic in answer.topics}
                assert codes == {"in": code, "gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            await connection.close()

    run(test())


def test_a_transactional_id_must_not_be_empty(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "t")
            client = Client(connection, epochs=True)
            await client.init()
            client.name = ""
            invalid = ErrorCode.INVALID_REQUEST
            assert await client.produce("t", b"x") is invalid
            assert await client.commit_offset("g", "t", 5) is invalid
            asked = k24.AddPartitionsToTxnTransaction(
                transactional_id="",
                verify_only=True,
                topics=[k24.AddPartitionsToTxnTopic(name="t", partitions=[0])],
            )
            assert await checked(connection, [asked]) == {("", 0): invalid}
            await connection.close()

    run(test())


def test_the_coordinator_continues_after_a_restart(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            client = Client(connection, epochs=True)
            await client.init()
            assert await client.produce("t", b"a") is NONE
            await connection.close()
        async with node_in(tmp_path) as node:
            client.connection = connection = await connect(node)
            assert await client.produce("t", b"b") is NONE
            assert await client.end(commit=True) is NONE

            async def all_read() -> bool:
                return await committed(connection, topic_id) == [b"a", b"b"]

            await until(all_read)
            before = client.epoch
            assert await client.init() is NONE
            assert client.epoch == before + 1
            await connection.close()

    run(test())


def test_a_second_producer_fences_the_first_and_aborts_its_transaction(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            first, second = (Client(connection, epochs=epochs) for epochs in (True, True))
            await first.init()
            assert await first.produce("t", b"lost") is NONE
            assert await second.init() is NONE
            assert await first.end(commit=True) is ErrorCode.PRODUCER_FENCED
            assert await first.produce("t", b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
            assert await second.produce("t", b"kept") is NONE
            assert await second.end(commit=True) is NONE

            async def all_read() -> bool:
                return await committed(connection, topic_id) == [b"kept"]

            await until(all_read)
            await connection.close()

    run(test())


def test_a_timed_out_transaction_is_aborted(tmp_path):
    async def test():
        overrides = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": "50"}
        async with node_in(tmp_path, **overrides) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            client = Client(connection, epochs=True)
            await client.coordinator_of(NAME, 1)
            request = InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=100)
            answer = await client.retried(request)
            client.producer_id, client.epoch = answer.producer_id, answer.producer_epoch
            assert await client.produce("t", b"lost") is NONE

            async def is_stable() -> bool:
                part = (await connection.send(fetch(topic_id))).responses[0].partitions[0]
                return part.last_stable_offset == 2

            await until(is_stable)
            assert await committed(connection, topic_id) == []
            assert await client.end(commit=True) is ErrorCode.INVALID_TXN_STATE
            await connection.close()

    run(test())


def test_partitions_that_a_client_adds_must_exist(tmp_path, monkeypatch):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "t")
            client = Client(connection, epochs=False)
            await client.init()
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            not_attempted = ErrorCode.OPERATION_NOT_ATTEMPTED
            for few in (50, 0):  # without slices and with them
                monkeypatch.setattr(k24_add_partitions_to_txn, "FEW", few)
                assert await client.add(("t", 0), ("t", 7)) == {unknown, not_attempted}
            internal = ("__consumer_offsets", 0)
            assert await client.add(internal) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
            assert await client.produce("t", b"x") is ErrorCode.TRANSACTION_ABORTABLE
            await connection.close()

    run(test())


def test_brokers_verify_and_add_several_transactions_at_once(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "t", partitions=2)
            clients = [Client(connection, epochs=True, name=f"tx{n}") for n in range(3)]
            for client in clients:
                await client.init()
            ask = [
                k24.AddPartitionsToTxnTransaction(
                    transactional_id=one.name,
                    producer_id=one.producer_id,
                    producer_epoch=one.epoch + (one is clients[2]),
                    verify_only=False,
                    topics=[k24.AddPartitionsToTxnTopic(name="t", partitions=[0])],
                )
                for one in clients
            ]
            codes = await checked(connection, ask)
            fenced = ErrorCode.PRODUCER_FENCED
            assert codes == {("tx0", 0): NONE, ("tx1", 0): NONE, ("tx2", 0): fenced}
            for one in ask:
                one.verify_only = True
                one.topics[0].partitions = [0, 1]
            abortable = ErrorCode.TRANSACTION_ABORTABLE
            codes = await checked(connection, ask[:1])
            assert codes == {("tx0", 0): NONE, ("tx0", 1): abortable}
            codes = await checked(connection, ask[:1], version=4)
            assert codes == {("tx0", 0): NONE, ("tx0", 1): abortable}
            await connection.close()

    run(test())


async def checked(connection: Any, ask: Any, version: int = 5) -> dict[Any, ErrorCode]:
    request = k24.AddPartitionsToTxnRequest(transactions=ask)
    answer = await connection.send(request, version=version)
    return {
        (one.transactional_id, part.partition_index): ErrorCode(part.partition_error_code)
        for one in answer.results_by_transaction
        for topic in one.topic_results
        for part in topic.results_by_partition
    }


def test_transactions_are_described_and_listed(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "t", partitions=2)
            first = Client(connection, epochs=True, name="one")
            second = Client(connection, epochs=True, name="two")
            await first.init()
            await second.init()
            assert await first.produce("t", b"a", partition=1) is NONE
            request = DescribeTransactionsRequest(transactional_ids=["one", "absent", ""])
            one, absent, empty = (await connection.send(request)).transaction_states
            assert (one.transaction_state, one.producer_id) == ("Ongoing", first.producer_id)
            assert (one.transaction_timeout_ms, one.producer_epoch) == (60_000, 0)
            assert one.transaction_start_time_ms > 0
            assert [(each.topic, each.partitions) for each in one.topics] == [("t", [1])]
            assert absent.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            assert empty.error_code == ErrorCode.INVALID_REQUEST

            async def listed(**filters: Any) -> list[Any]:
                answer = await connection.send(ListTransactionsRequest(**filters))
                assert answer.error_code == 0
                states = sorted(
                    (each.transactional_id, each.transaction_state)
                    for each in answer.transaction_states
                )
                return [states, answer.unknown_state_filters]

            ongoing, idle = ("one", "Ongoing"), ("two", "Empty")
            assert await listed() == [[ongoing, idle], []]
            assert await listed(state_filters=["Empty", "Odd"]) == [[idle], ["Odd"]]
            assert await listed(state_filters=["Odd", "Odd"]) == [[], ["Odd"]]
            assert await listed(producer_id_filters=[first.producer_id]) == [[ongoing], []]
            assert await listed(duration_filter=3_600_000) == [[idle], []]
            assert await listed(transactional_id_pattern="o.*") == [[ongoing], []]
            assert await listed(transactional_id_pattern="o") == [[], []]
            bad = await connection.send(ListTransactionsRequest(transactional_id_pattern="("))
            assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
            await connection.close()

    run(test())


def test_no_transactions_are_listed_while_a_partition_is_loading(tmp_path):
    """Not even with a state that does not exist (TransactionStateManager.listTransactionStates)."""

    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await Client(connection, epochs=True).init()
            request = ListTransactionsRequest(state_filters=["Odd"])
            assert (await connection.send(request)).unknown_state_filters == ["Odd"]
            runtime = next(iter(node.broker.transactions.runtimes.values()))
            runtime._loaded = False
            loading = await connection.send(request)
            assert loading.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert loading.unknown_state_filters == []
            runtime._loaded = True
            await connection.close()

    run(test())


def test_any_broker_refuses_a_timeout_out_of_range(tmp_path):
    """TransactionCoordinator.handleInitProducerId checks it before the id's coordinator."""

    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=900_000)
            assert (await connection.send(request)).error_code == ErrorCode.NOT_COORDINATOR
            request.transaction_timeout_ms += 1
            refused = await connection.send(request)
            assert refused.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
            await connection.close()

    run(test())


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (InitProducerIdRequest(transactional_id=""), ErrorCode.INVALID_REQUEST),
        (
            InitProducerIdRequest(transactional_id="x", producer_id=5),
            ErrorCode.INVALID_REQUEST,
        ),
        (
            InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=900_001),
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ),
        (EndTxnRequest(transactional_id=""), ErrorCode.INVALID_REQUEST),
        (EndTxnRequest(transactional_id="x"), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (
            AddOffsetsToTxnRequest(transactional_id="x", group_id="g"),
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ),
    ],
)
def test_requests_that_make_no_sense(tmp_path, request_, code):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await Client(connection, epochs=True).init()

            async def answered() -> bool:
                answer = await connection.send(request_)
                return answer.error_code == code

            await until(answered)
            await connection.close()

    run(test())
