"""Commits and deletions of very many offsets are checked and answered in pieces."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.protocol.codec import decode
from sparkraft.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from sparkraft.protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from sparkraft.protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from sparkraft.server.api import k28_txn_offset_commit as k28
from sparkraft.server.api.encoded_array import CHUNK
from tests.server.coordinator.fake_broker import TOPIC_ID, FakeBroker, image_without_topics

COUNT = 10 * CHUNK
UNKNOWN = 9


async def carried_out(steps: Any, key: ApiKey) -> tuple[list[int], Any]:
    """The units of each piece, and the decoded response."""
    units: list[int] = []
    sent: Any = None
    failed: KafkaError | None = None
    while True:
        try:
            got = steps.throw(failed) if failed is not None else steps.send(sent)
        except StopIteration as end:
            info = API_INFO[key]
            return units, decode(info.response_class(), info.max_version, b"".join(end.value))
        sent = failed = None
        if isinstance(got, int):
            units.append(got)
            continue
        try:
            sent = await got
        except KafkaError as error:
            failed = error


def codes_of(response: Any) -> list[tuple[int, ErrorCode]]:
    return [
        (one.partition_index, ErrorCode(one.error_code))
        for topic in response.topics
        for one in topic.partitions
    ]


def check_pieces(units: list[int]) -> None:
    assert max(units) <= CHUNK
    assert len(units) > 2 * COUNT // CHUNK


def commit_request() -> OffsetCommitRequest:
    """Many commits to one partition, and one to a partition that does not exist."""
    partitions = [
        OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        for offset in range(COUNT)
    ]
    partitions.append(OffsetCommitRequestPartition(partition_index=UNKNOWN, committed_offset=1))
    topic = OffsetCommitRequestTopic(topic_id=TOPIC_ID, partitions=partitions)
    return OffsetCommitRequest(group_id="g", topics=[topic])


@pytest.mark.parametrize("is_led", [True, False])
def test_a_large_commit_is_answered_in_pieces(
    is_led: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compared(*_: Any) -> bool:
        raise AssertionError("partitions of a request were compared with each other")

    monkeypatch.setattr(OffsetCommitRequestPartition, "__eq__", compared)

    async def test() -> None:
        broker = FakeBroker()
        if is_led:
            broker.lead(0)
        steps = broker.steps(ApiKey.OFFSET_COMMIT, commit_request())
        units, response = await carried_out(steps, ApiKey.OFFSET_COMMIT)
        check_pieces(units)
        of_group = ErrorCode.NONE if is_led else ErrorCode.NOT_COORDINATOR
        expected = [(0, of_group)] * COUNT
        missing = (UNKNOWN, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert codes_of(response) == [missing, *expected]

    asyncio.run(test())


def test_a_large_commit_in_a_transaction_is_refused_in_pieces() -> None:
    async def test() -> None:
        partitions = [
            TxnOffsetCommitRequestPartition(partition_index=index % 2, committed_offset=index)
            for index in range(COUNT)
        ]
        topic = TxnOffsetCommitRequestTopic(name="t", partitions=partitions)
        request = TxnOffsetCommitRequest(transactional_id="x", group_id="g", topics=[topic])
        steps = FakeBroker().steps(ApiKey.TXN_OFFSET_COMMIT, request)
        units, response = await carried_out(steps, ApiKey.TXN_OFFSET_COMMIT)
        check_pieces(units)
        refused = [(1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)] * (COUNT // 2)
        assert codes_of(response) == refused + [(0, ErrorCode.NOT_COORDINATOR)] * (COUNT // 2)

    asyncio.run(test())


def test_a_topic_may_be_deleted_while_a_large_commit_in_a_transaction_is_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Refusing:
        def __init__(self, *_: Any) -> None: ...

        async def verify(self, *_: Any) -> None:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)

    monkeypatch.setattr(k28, "GuardedAppends", Refusing)

    async def test() -> None:
        broker: Any = FakeBroker()
        broker.lead(0)
        broker.verification = SimpleNamespace(lock_of=lambda _: asyncio.Lock())
        broker.replica_manager = None
        partitions = [
            TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=index)
            for index in range(COUNT)
        ]
        topic = TxnOffsetCommitRequestTopic(name="t", partitions=partitions)
        request = TxnOffsetCommitRequest(transactional_id="x", group_id="g", topics=[topic])
        steps = broker.steps(ApiKey.TXN_OFFSET_COMMIT, request)
        assert isinstance(next(steps), int)
        broker.image = image_without_topics()
        _, response = await carried_out(steps, ApiKey.TXN_OFFSET_COMMIT)
        assert codes_of(response) == [(0, ErrorCode.INVALID_TXN_STATE)] * COUNT

    asyncio.run(test())


def test_a_large_deletion_is_answered_in_pieces() -> None:
    async def test() -> None:
        broker = FakeBroker()
        broker.lead(0)
        await broker.ask(ApiKey.OFFSET_COMMIT, commit_request())
        partitions = [OffsetDeleteRequestPartition(partition_index=i % 2) for i in range(COUNT)]
        topic = OffsetDeleteRequestTopic(name="t", partitions=partitions)
        request = OffsetDeleteRequest(group_id="g", topics=[topic])
        steps = broker.steps(ApiKey.OFFSET_DELETE, request)
        units, response = await carried_out(steps, ApiKey.OFFSET_DELETE)
        check_pieces(units)
        refused = [(1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)] * (COUNT // 2)
        assert codes_of(response) == refused + [(0, ErrorCode.NONE)] * (COUNT // 2)

    asyncio.run(test())
