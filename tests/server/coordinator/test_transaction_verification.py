"""AddPartitionsToTxn from this broker to a coordinator: several checks in one request (KIP-890)."""

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import TopicPartition
from sparkraft.protocol.codec import encode
from sparkraft.protocol.messages import k24_add_partitions_to_txn as k24
from sparkraft.server.coordinator.partition_check import AddPartitionsCheck, CheckKind
from sparkraft.server.coordinator.transaction_verification import TransactionVerification
from tests.server.harness import until

OWN, OTHER = 1, 2
P0, P1 = ("t", 0), ("t", 1)
NONE = ErrorCode.NONE


class Coordinator:
    """Another broker; `hold` keeps its first response back."""

    def __init__(self) -> None:
        self.requests: list[k24.AddPartitionsToTxnRequest] = []
        self.hold = asyncio.Event()
        self.error = NONE
        self.code = NONE
        self.lost = self.is_old = False
        shared: Any = self
        config: Any = SimpleNamespace(node_id=OWN)
        self.verification = TransactionVerification(
            config, lambda _: True, shared, shared, shared, self.spawn
        )

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> Any:
        return asyncio.get_running_loop().create_task(work, name=name)

    def leader_of(self, *_: Any) -> int:
        return OTHER

    async def send(
        self, broker_id: int, request: k24.AddPartitionsToTxnRequest, *, timeout_ms: int
    ) -> k24.AddPartitionsToTxnResponse:
        assert (broker_id, timeout_ms > 0) == (OTHER, True)
        self.requests.append(request)
        await self.hold.wait()
        if self.is_old:
            encode(request, 3)
        if self.lost:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        if self.error:
            return k24.AddPartitionsToTxnResponse(error_code=self.error)
        return k24.AddPartitionsToTxnResponse(
            results_by_transaction=[self._result(one) for one in request.transactions]
        )

    def _result(self, one: k24.AddPartitionsToTxnTransaction) -> k24.AddPartitionsToTxnResult:
        topics = [
            k24.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    k24.AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=self.code
                    )
                    for index in topic.partitions
                ],
            )
            for topic in one.topics
        ]
        return k24.AddPartitionsToTxnResult(
            transactional_id=one.transactional_id, topic_results=topics
        )

    def begin(
        self,
        name: str,
        partition: TopicPartition,
        *,
        epoch: int = 0,
        kind: CheckKind = CheckKind.ABORTABLE,
    ) -> "asyncio.Future[dict[TopicPartition, ErrorCode]]":
        check = AddPartitionsCheck(name, 7, epoch, [partition], kind)
        return asyncio.ensure_future(self.verification.verify(check))


async def one_result(coordinator: Coordinator, kind: CheckKind) -> ErrorCode:
    coordinator.hold.set()
    (code,) = (await coordinator.begin("x", P0, kind=kind)).values()
    return code


def test_a_coordinator_before_kafka_3_5_verifies_nothing() -> None:
    """AddPartitionsToTxnManager: `versionMismatch`. Its newest version, 3, has no verification."""

    async def test() -> None:
        coordinator = Coordinator()
        coordinator.is_old = True
        assert await one_result(coordinator, CheckKind.ABORTABLE) is NONE
        assert await one_result(coordinator, CheckKind.DEFAULT) is NONE
        assert await one_result(coordinator, CheckKind.ADD) is ErrorCode.NETWORK_EXCEPTION

    asyncio.run(test())


def test_checks_that_wait_share_the_next_request() -> None:
    """One request to a coordinator at a time; `verify_only` is of each transaction."""

    async def test() -> None:
        coordinator = Coordinator()
        first = coordinator.begin("x", P0)
        await until(lambda: coordinator.requests)
        second = coordinator.begin("y", P0)
        third = coordinator.begin("z", P1, kind=CheckKind.ADD)
        await asyncio.sleep(0)
        assert len(coordinator.requests) == 1
        coordinator.hold.set()
        assert await asyncio.gather(first, second, third) == [{P0: NONE}, {P0: NONE}, {P1: NONE}]
        shared = coordinator.requests[1].transactions
        assert [(one.transactional_id, one.verify_only) for one in shared] == [
            ("y", True),
            ("z", False),
        ]

    asyncio.run(test())


@pytest.mark.parametrize(
    ("epochs", "codes"),
    [
        ((3, 3), (ErrorCode.NETWORK_EXCEPTION, NONE)),
        ((3, 4), (ErrorCode.INVALID_PRODUCER_EPOCH, NONE)),
        ((4, 3), (NONE, ErrorCode.INVALID_PRODUCER_EPOCH)),
    ],
)
def test_of_two_checks_of_an_id_the_newer_producer_counts(
    epochs: tuple[int, int], codes: tuple[ErrorCode, ErrorCode]
) -> None:
    """AddPartitionsToTxnManager.addTxnData: of one epoch the later check; the other is retried."""

    async def test() -> None:
        coordinator = Coordinator()
        first = coordinator.begin("other", P0)
        await until(lambda: coordinator.requests)
        waiting = [coordinator.begin("x", P0, epoch=epoch) for epoch in epochs]
        await asyncio.sleep(0)
        coordinator.hold.set()
        await first
        assert await asyncio.gather(*waiting) == [{P0: code} for code in codes]
        (sent,) = coordinator.requests[1].transactions
        assert sent.producer_epoch == max(epochs)

    asyncio.run(test())


def test_a_coordinator_that_denies_the_broker_ends_the_transaction() -> None:
    """AddPartitionsToTxnHandler: the client cannot do anything about it but abort."""

    async def test() -> None:
        coordinator = Coordinator()
        coordinator.error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        for kind in CheckKind:
            assert await one_result(coordinator, kind) is ErrorCode.INVALID_TXN_STATE

    asyncio.run(test())


def test_a_lost_response_is_retried_by_the_client() -> None:
    async def test() -> None:
        coordinator = Coordinator()
        coordinator.lost = True
        assert await one_result(coordinator, CheckKind.ADD) is ErrorCode.NETWORK_EXCEPTION

    asyncio.run(test())
