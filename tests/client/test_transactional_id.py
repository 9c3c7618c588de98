"""A transactional id against scripted coordinators: both flows, and what each error means."""

import asyncio
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.errors import (
    AbortableTransactionError,
    FatalTransactionError,
    ProducerFencedError,
)
from sparkraft.client.transactional_id import NEXT_STATES, TransactionalId, TransactionState
from sparkraft.client.values import Committed, GroupMetadata
from sparkraft.protocol.messages import k22_init_producer_id as k22
from sparkraft.protocol.messages import k24_add_partitions_to_txn as k24
from sparkraft.protocol.messages import k25_add_offsets_to_txn as k25
from sparkraft.protocol.messages import k26_end_txn as k26
from sparkraft.protocol.messages import k28_txn_offset_commit as k28
from tests.client.fake_coordinator import FakeCluster

TP = ("t", 0)
GROUP = GroupMetadata(group_id="g", generation=3, member_id="m")
READY = k22.InitProducerIdResponse(producer_id=7, producer_epoch=0)


def init(epoch: int, producer_id: int = 7) -> Any:
    return k22.InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


def added(code: ErrorCode = ErrorCode.NONE) -> Any:
    result = k24.AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=code)
    topic = k24.AddPartitionsToTxnTopicResult(name="t", results_by_partition=[result])
    return k24.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])


def ended(code: ErrorCode = ErrorCode.NONE, producer: tuple[int, int] = (-1, -1)) -> Any:
    return k26.EndTxnResponse(error_code=code, producer_id=producer[0], producer_epoch=producer[1])


def offsets_stored(code: ErrorCode = ErrorCode.NONE) -> Any:
    entry = k28.TxnOffsetCommitResponsePartition(partition_index=0, error_code=code)
    topic = k28.TxnOffsetCommitResponseTopic(name="t", partitions=[entry])
    return k28.TxnOffsetCommitResponse(topics=[topic])


def names(cluster: FakeCluster) -> list[tuple[str, int | None]]:
    return [(type(request).__name__.removesuffix("Request"), v) for request, v in cluster.asked]


async def end(transaction: TransactionalId, *, committed: bool) -> None:
    transaction.start_end(committed=committed)
    await transaction.finish_end()


def run(scenario, *script: Any, level: int = 2) -> tuple[FakeCluster, TransactionalId]:
    cluster = FakeCluster(list(script), level=level)
    transaction = TransactionalId(cluster, "id")
    asyncio.run(scenario(transaction))
    assert not cluster.script
    return cluster, transaction


def test_the_new_flow_takes_the_epoch_of_each_end_and_adds_nothing_itself():
    async def scenario(transaction):
        await transaction.init()
        for _ in range(2):
            transaction.begin()
            await transaction.add_partitions([TP])
            await transaction.send_offsets({TP: Committed(offset=5)}, GROUP)
            await end(transaction, committed=True)

    cluster, transaction = run(
        scenario, READY, offsets_stored(), ended(producer=(7, 1)), offsets_stored(),
        ended(producer=(8, 0)),
    )  # fmt: skip
    assert names(cluster) == [
        ("InitProducerId", 5), ("TxnOffsetCommit", 99), ("EndTxn", 99), ("TxnOffsetCommit", 99),
        ("EndTxn", 99),
    ]  # fmt: skip
    assert cluster.asked[3][0].producer_epoch == 1
    assert transaction.producer == (8, 0)
    assert transaction.state is TransactionState.READY


def test_the_old_flow_adds_partitions_and_groups_once_in_versions_that_select_it():
    async def scenario(transaction):
        await transaction.init()
        transaction.begin()
        await transaction.add_partitions([TP])
        await transaction.add_partitions([TP])
        for offset in (5, 6):
            await transaction.send_offsets({TP: Committed(offset=offset)}, GROUP)
        await end(transaction, committed=True)

    cluster, transaction = run(
        scenario, READY, added(), k25.AddOffsetsToTxnResponse(), offsets_stored(),
        offsets_stored(), ended(), level=1,
    )  # fmt: skip
    assert names(cluster) == [
        ("InitProducerId", 5), ("AddPartitionsToTxn", 3), ("AddOffsetsToTxn", 4),
        ("TxnOffsetCommit", 4), ("TxnOffsetCommit", 4), ("EndTxn", 4),
    ]  # fmt: skip
    assert transaction.producer == (7, 0)


def test_a_transaction_without_records_sends_no_end():
    async def scenario(transaction):
        await transaction.init()
        for committed in (True, False):
            transaction.begin()
            await end(transaction, committed=committed)

    for level in (1, 2):
        cluster, _ = run(scenario, READY, level=level)
        assert names(cluster) == [("InitProducerId", 5)]


def test_a_lost_batch_raises_the_epoch_in_the_old_flow_after_the_abort():
    async def scenario(transaction):
        await transaction.init()
        transaction.begin()
        await transaction.add_partitions([TP])
        transaction.on_lost_batch(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "late"))
        with pytest.raises(AbortableTransactionError, match="late"):
            transaction.start_end(committed=True)
        await end(transaction, committed=False)

    cluster, transaction = run(scenario, READY, added(), ended(), init(1), level=1)
    renewed = cluster.asked[3][0]
    assert (renewed.producer_id, renewed.producer_epoch) == (7, 0)
    assert transaction.producer == (7, 1)


def test_a_change_to_the_new_flow_between_transactions_raises_the_epoch_once():
    async def scenario(transaction):
        await transaction.init()
        transaction.begin()
        await transaction.add_partitions([TP])
        transaction.cluster.level = 2
        await end(transaction, committed=True)
        assert transaction.is_by_brokers

    cluster, transaction = run(scenario, READY, added(), ended(), init(1), level=1)
    assert names(cluster)[2] == ("EndTxn", 4)  # ends as it began
    assert transaction.producer == (7, 1)


def test_the_next_transaction_waits_until_the_last_one_has_its_markers():
    async def scenario(transaction):
        await transaction.init()
        transaction.begin()
        await transaction.add_partitions([TP])

    run(scenario, READY, added(ErrorCode.CONCURRENT_TRANSACTIONS), added(), level=1)


def test_a_moved_coordinator_is_looked_up_again():
    async def scenario(transaction):
        await transaction.init()
        transaction.begin()
        await transaction.add_partitions([TP])
        await end(transaction, committed=True)

    cluster, _ = run(
        scenario, READY, ended(ErrorCode.NOT_COORDINATOR),
        KafkaError(ErrorCode.NETWORK_EXCEPTION), ended(producer=(7, 1)),
    )  # fmt: skip
    assert cluster.forgotten == ["id"]


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_fenced_producer_sends_nothing_more(code):
    async def scenario(transaction):
        await transaction.init()
        transaction.begin()
        await transaction.add_partitions([TP])
        with pytest.raises(ProducerFencedError, match="another producer has taken"):
            await end(transaction, committed=True)
        for call in (transaction.begin, lambda: transaction.start_end(committed=False)):
            with pytest.raises(ProducerFencedError):
                call()

    _, transaction = run(scenario, READY, ended(code))
    assert transaction.state is TransactionState.FATAL_ERROR


@pytest.mark.parametrize(
    "code",
    [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID],
)
def test_offsets_of_a_member_that_the_group_has_left_behind_need_an_abort(code):
    async def scenario(transaction):
        await transaction.init()
        transaction.begin()
        with pytest.raises(AbortableTransactionError) as raised:
            await transaction.send_offsets({TP: Committed(offset=5)}, GROUP)
        assert raised.value.code is code
        await end(transaction, committed=False)

    run(scenario, READY, offsets_stored(code), ended(producer=(7, 1)))


def test_only_the_offsets_that_are_not_stored_are_sent_again():
    async def scenario(transaction):
        await transaction.init()
        transaction.begin()
        wanted = {("t", 0): Committed(offset=5), ("t", 1): Committed(offset=6)}
        await transaction.send_offsets(wanted, GROUP)

    partly = offsets_stored()
    partly.topics[0].partitions.append(
        k28.TxnOffsetCommitResponsePartition(
            partition_index=1, error_code=ErrorCode.CONCURRENT_TRANSACTIONS
        )
    )
    cluster, _ = run(scenario, READY, partly, offsets_stored())
    sent = [p.partition_index for p in cluster.asked[2][0].topics[0].partitions]
    assert sent == [1]


def test_an_unknown_outcome_of_adding_partitions_needs_an_abort_and_a_new_epoch():
    async def scenario(transaction):
        await transaction.init()
        transaction.begin()
        with pytest.raises(AbortableTransactionError):
            await transaction.add_partitions([TP])
        await end(transaction, committed=False)

    lost = [KafkaError(ErrorCode.NETWORK_EXCEPTION, "gone")] * 5
    cluster, transaction = run(scenario, READY, *lost, init(1), level=1)
    assert "EndTxn" not in dict(names(cluster))
    assert transaction.producer == (7, 1)


def test_a_refused_id_is_fatal_and_names_the_reason():
    async def scenario(transaction):
        with pytest.raises(FatalTransactionError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            await transaction.init()

    refused = k22.InitProducerIdResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    run(scenario, refused)


def test_a_commit_that_ran_out_of_time_can_be_called_again_but_not_turned_into_an_abort():
    async def scenario(transaction):
        await transaction.init()
        transaction.begin()
        await transaction.add_partitions([TP])
        with pytest.raises(KafkaError) as raised:
            await end(transaction, committed=True)
        assert raised.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
        with pytest.raises(KafkaError, match="cannot abort"):
            transaction.start_end(committed=False)
        await end(transaction, committed=True)

    busy = [ended(ErrorCode.CONCURRENT_TRANSACTIONS)] * 5
    run(scenario, READY, *busy, ended(producer=(7, 1)))


def test_the_refused_partition_is_named_not_those_that_were_not_attempted():
    async def scenario(transaction):
        await transaction.init()
        transaction.begin()
        with pytest.raises(AbortableTransactionError) as raised:
            await transaction.add_partitions([TP])
        assert raised.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED

    answer = added(ErrorCode.OPERATION_NOT_ATTEMPTED)
    answer.results_by_topic_v3_and_below.append(
        added(ErrorCode.TOPIC_AUTHORIZATION_FAILED).results_by_topic_v3_and_below[0]
    )
    run(scenario, READY, answer, level=1)


def test_an_epoch_refused_for_a_batch_is_decided_by_the_abort():
    async def scenario(transaction):
        await transaction.init()
        transaction.begin()
        await transaction.add_partitions([TP])
        transaction.on_lost_batch(KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH))
        assert transaction.state is TransactionState.ABORTABLE_ERROR
        with pytest.raises(ProducerFencedError):
            await end(transaction, committed=False)

    run(scenario, READY, ended(ErrorCode.PRODUCER_FENCED))


def test_misuse_says_what_the_producer_is_doing():
    async def scenario(transaction):
        with pytest.raises(KafkaError, match="cannot begin a transaction: the producer is uninit"):
            transaction.begin()
        await transaction.init()
        with pytest.raises(KafkaError, match="initialized already"):
            await transaction.init()
        with pytest.raises(KafkaError, match="cannot send a record: the producer is ready"):
            transaction.require_open("send a record")

    run(scenario, READY)


def test_every_pair_of_states_is_allowed_or_an_assertion():
    for source in TransactionState:
        for target in TransactionState:
            transaction = TransactionalId(FakeCluster(), "id")
            transaction.state = source
            if target in NEXT_STATES[source]:
                transaction._move(target)
                assert transaction.state is target
            else:
                with pytest.raises(AssertionError):
                    transaction._move(target)
    # Nothing leaves a fatal error, and only an abort leads out of an abortable one.
    assert NEXT_STATES[TransactionState.FATAL_ERROR] == {TransactionState.FATAL_ERROR}
    assert TransactionState.COMMITTING not in NEXT_STATES[TransactionState.ABORTABLE_ERROR]
