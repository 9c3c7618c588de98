"""Transactional Produce: verified with a coordinator elsewhere before it is appended (KIP-890)."""

import asyncio

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.server.api.k00_transactional import check_kind, produce_error
from sparkraft.server.coordinator import transaction_verification as verification_module
from sparkraft.server.coordinator.partition_check import AddPartitionsCheck, CheckKind
from tests.server.harness import (
    append,
    batch,
    connect,
    create_topic,
    node_in,
    produce,
    run,
    until,
)
from tests.server.test_transactions import PRODUCER, data, mark, read_committed


class Coordinator:
    """What the coordinator says, and what it was asked; `meanwhile` and `hold` come in between."""

    def __init__(self, node):
        self.questions = []
        self.code = ErrorCode.NONE
        self.hold = None
        self.meanwhile = None
        node.broker.verification.verify = self.ask

    async def ask(self, question):
        self.questions.append(question)
        await asyncio.sleep(0)  # as a request to another broker
        if self.meanwhile is not None:
            await self.meanwhile()
        if self.hold is not None:
            await self.hold.wait()
        return dict.fromkeys(question.partitions, self.code)


async def send(connection, topic_id, *values, version=None, transactional_id="tx", **given):
    request = produce(topic_id, data(*values, **given))
    request.transactional_id = transactional_id
    answer = await connection.send(request, version=version)
    return answer.responses[0].partition_responses[0]


def test_an_answer_has_the_log_start_only_if_the_batch_reached_the_log(tmp_path):
    """As in Kafka's ReplicaManager: not with an error of the coordinator."""

    async def test():
        async with node_in(tmp_path) as node:
            coordinator = Coordinator(node)
            connection = await connect(node)
            await create_topic(connection, "t")
            invalid = ErrorCode.INVALID_PRODUCER_EPOCH
            coordinator.code = invalid
            refused = await send(connection, "t", b"a", version=11)
            assert (refused.error_code, refused.log_start_offset) == (invalid, -1)
            coordinator.code = ErrorCode.NONE
            assert (await send(connection, "t", b"a", version=11)).error_code == 0
            stale = await send(connection, "t", b"b", version=11, epoch=-1, sequence=1)
            assert (stale.error_code, stale.log_start_offset) == (invalid, 0)
            outside = produce(
                "t", batch(b"x", producer_id=PRODUCER, producer_epoch=0, base_sequence=1)
            )
            part = (await connection.send(outside, version=11)).responses[0].partition_responses[0]
            state = ErrorCode.INVALID_TXN_STATE
            assert (part.error_code, part.log_start_offset) == (state, 0)
            await connection.close()

    run(test())


@pytest.mark.parametrize(
    ("version", "kind"),
    [(10, CheckKind.DEFAULT), (11, CheckKind.ABORTABLE), (12, CheckKind.ADD), (13, CheckKind.ADD)],
)
def test_the_coordinator_is_asked_once_a_transaction(tmp_path, version, kind):
    async def test():
        async with node_in(tmp_path) as node:
            coordinator = Coordinator(node)
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            topic = topic_id if version >= 13 else "t"
            for sequence in range(3):
                answer = await send(connection, topic, b"a", sequence=sequence, version=version)
                assert (answer.error_code, answer.base_offset) == (0, sequence)
            (question,) = coordinator.questions
            assert question == ("tx", PRODUCER, 0, [("t", 0)], kind)
            seen = await read_committed(connection, topic_id)
            assert seen.last_stable_offset == 0
            assert await mark(connection, "t", commit=True) == {("t", 0): ErrorCode.NONE}
            assert (await read_committed(connection, topic_id)).last_stable_offset == 4
            assert (
                await send(connection, topic, b"b", sequence=3, version=version)
            ).error_code == 0
            assert len(coordinator.questions) == 2
            await connection.close()

    run(test())


REFUSALS = (
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.TRANSACTION_ABORTABLE,
)


@pytest.mark.parametrize("code", REFUSALS)
def test_what_the_coordinator_refuses_is_not_appended(tmp_path, code):
    async def test():
        async with node_in(tmp_path) as node:
            coordinator = Coordinator(node)
            coordinator.code = code
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            answer = await send(connection, topic_id, b"a")
            assert (answer.error_code, answer.base_offset) == (code, -1)
            assert node.broker.replica_manager.get_log("t", 0).log_end_offset == 0
            coordinator.code = ErrorCode.NONE
            assert (await send(connection, topic_id, b"a")).error_code == 0
            await connection.close()

    run(test())


@pytest.mark.parametrize(
    ("markers", "said", "told"),
    [
        (1, ErrorCode.NONE, ErrorCode.NONE),
        (1, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (2, ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_an_answer_that_a_marker_makes_outdated_is_asked_for_anew(tmp_path, markers, said, told):
    """Else the batch would hang behind the marker (KIP-890), or be refused for the one before.

    A producer is told of a decision before its markers are written, and goes on: the marker may
    come between the question about the next transaction and the answer.
    """

    async def test():
        async with node_in(tmp_path) as node:
            coordinator = Coordinator(node)
            connection, other = await connect(node), await connect(node)
            topic_id = await create_topic(connection, "t")

            async def meanwhile():
                coordinator.code = ErrorCode.NONE if len(coordinator.questions) == 1 else said
                if len(coordinator.questions) <= markers:
                    assert await mark(other, "t", epoch=1) == {("t", 0): ErrorCode.NONE}

            coordinator.meanwhile = meanwhile
            answer = await send(connection, topic_id, b"late", epoch=1)
            assert (answer.error_code, len(coordinator.questions)) == (told, 2)
            log = node.broker.replica_manager.get_log("t", 0)
            assert log.last_stable_offset == markers
            assert log.log_end_offset == markers + (told is ErrorCode.NONE)
            for each in (connection, other):
                await each.close()

    run(test())


def test_batches_of_a_producer_stay_in_order_while_the_first_is_asked_about(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            coordinator = Coordinator(node)
            coordinator.hold = asyncio.Event()
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            sends = [
                asyncio.ensure_future(send(connection, topic_id, b"%d" % n, sequence=n))
                for n in range(5)
            ]
            await until(lambda: coordinator.questions)
            coordinator.hold.set()
            answers = await asyncio.gather(*sends)
            assert [(a.error_code, a.base_offset) for a in answers] == [(0, n) for n in range(5)]
            assert len(coordinator.questions) == 1
            await connection.close()

    run(test())


def test_sequences_and_producers_that_can_t_be_are_refused(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            Coordinator(node)
            connection = await connect(node)
            topic_id = await create_topic(connection, "t", partitions=2)
            answer = await send(connection, topic_id, b"a", sequence=4)
            assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            one, two = produce(topic_id, data(b"a")), produce(topic_id, data(b"a"), partition=1)
            stranger = batch(b"x", producer_id=77, producer_epoch=0, base_sequence=0,
                             transactional=True)  # fmt: skip
            two.topic_data[0].partition_data[0].records = stranger
            both = one
            both.topic_data[0].partition_data += two.topic_data[0].partition_data
            both.transactional_id = "tx"
            answer = await connection.send(both)
            codes = {p.error_code for p in answer.responses[0].partition_responses}
            assert codes == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
            refused = await append(connection, topic_id, data(b"a"))
            assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            await connection.close()

    run(test())


def test_without_a_coordinator_the_client_retries(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            answer = await send(connection, topic_id, b"a")
            assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
            await connection.close()

    run(test())


@pytest.mark.parametrize(
    ("said", "version", "told"),
    [
        (ErrorCode.NONE, 13, ErrorCode.NONE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 13, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NETWORK_EXCEPTION, 13, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 12, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.PRODUCER_FENCED, 12, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 12, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_a_coordinators_words_become_a_producers(said, version, told):
    kind = check_kind(version)
    assert produce_error(verification_module._translated(said, kind), kind) is told


def test_a_completion_in_progress_is_waited_for_a_little(tmp_path):
    """A client that adds partitions by producing would often meet it (KAFKA-18654)."""

    async def test():
        async with node_in(tmp_path) as node:
            coordinator = Coordinator(node)
            coordinator.code = ErrorCode.CONCURRENT_TRANSACTIONS
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            answer = await send(connection, topic_id, b"a")
            assert answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
            assert len(coordinator.questions) > 2

            async def meanwhile():
                if len(coordinator.questions) > 2:
                    coordinator.code = ErrorCode.NONE

            coordinator.questions, coordinator.meanwhile = [], meanwhile
            coordinator.code = ErrorCode.CONCURRENT_TRANSACTIONS
            assert (await send(connection, topic_id, b"a")).error_code == 0
            coordinator.questions, coordinator.meanwhile = [], None
            coordinator.code = ErrorCode.CONCURRENT_TRANSACTIONS
            assert await mark(connection, "t", commit=True) == {("t", 0): ErrorCode.NONE}
            answer = await send(connection, "t", b"b", sequence=1, version=11)
            assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
            assert len(coordinator.questions) == 1
            await connection.close()

    run(test())


@pytest.mark.parametrize(("version", "asked"), [(10, 0), (11, 0), (12, 1)])
def test_without_verification_only_additions_are_sent(tmp_path, version, asked):
    async def test():
        overrides = {"transaction_partition_verification_enable": "false"}
        async with node_in(tmp_path, **overrides) as node:
            coordinator = Coordinator(node)
            connection = await connect(node)
            await create_topic(connection, "t")
            assert (await send(connection, "t", b"a", version=version)).error_code == 0
            assert len(coordinator.questions) == asked
            await connection.close()

    run(test())


def test_a_coordinator_that_can_t_be_reached_is_to_be_tried_again(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            question = AddPartitionsCheck("tx", 1, 0, [("t", 0)], CheckKind.ADD)
            said = await node.broker.verification.verify(question)
            assert said == {("t", 0): ErrorCode.COORDINATOR_NOT_AVAILABLE}

    run(test())
