"""A guard between the coordinator's response and the append, while leadership moves (KIP-890)."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.records.control import ControlType, EndTransaction, end_transaction_batch
from sparkraft.server.coordinator.guarded_appends import GuardedAppends
from sparkraft.server.coordinator.partition_check import AddPartitionsCheck, CheckKind
from sparkraft.storage.log import Origin
from tests.server.harness import make_env
from tests.storage.worlds import START_MS, World

AT = ("t", 0)
PRODUCER = SimpleNamespace(producer_id=7, producer_epoch=0)


class Broker:
    """Hosts one partition; `meanwhile` runs while the coordinator is asked."""

    def __init__(self, kind: CheckKind = CheckKind.ABORTABLE) -> None:
        self.code = ErrorCode.NONE
        self.world = World()
        self.partition: Any = SimpleNamespace(
            topic="t", index=0, is_leader=True, log=self.world.log()
        )
        self.is_enabled = True
        self.requests = 0
        self.meanwhile: Any = lambda: None
        replicas: Any = SimpleNamespace(hosted=lambda *_: self.partition, env=make_env())
        verification: Any = self
        self.appends = GuardedAppends(replicas, verification, kind)

    async def verify(self, check: AddPartitionsCheck) -> dict[Any, ErrorCode]:
        self.requests += 1
        self.meanwhile()
        return dict.fromkeys(check.partitions, self.code)

    def restart(self) -> None:
        """Lose the guards, which are in memory only."""
        self.world = self.world.reopen()
        self.partition.log = self.world.log()

    def end(self) -> None:
        """Append the marker of another leader, or of an earlier transaction."""
        marker = end_transaction_batch(
            EndTransaction(ControlType.ABORT, 0),
            timestamp=START_MS,
            producer_id=7,
            producer_epoch=0,
        )
        self.partition.log.append_as_leader(
            marker, leader_epoch=0, now_ms=START_MS, origin=Origin.COORDINATOR
        )

    def append(self) -> ErrorCode:
        async def verified() -> None:
            await self.appends.verify("tx", [(AT, PRODUCER)])

        asyncio.run(verified())
        try:
            self.appends.check(self.partition, PRODUCER, base_sequence=0)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE


@pytest.mark.parametrize("how", ["restart", "end"])
def test_a_guard_that_is_lost_while_the_coordinator_is_asked_is_taken_again(how: str) -> None:
    broker = Broker()
    done: list[str] = []

    def meanwhile() -> None:
        if not done:
            done.append(how)
            {"restart": broker.restart, "end": broker.end}[how]()

    broker.meanwhile = meanwhile
    assert broker.append() is ErrorCode.NONE
    assert broker.requests == 2


def test_a_guard_that_is_lost_again_and_again_rejects_the_batch() -> None:
    """INVALID_TXN_STATE, as in Kafka's ProducerAppendInfo; the client sends the batch again."""
    broker = Broker()
    broker.meanwhile = broker.restart
    assert broker.append() is ErrorCode.INVALID_TXN_STATE
    assert broker.requests == 2


def test_a_leader_that_resigns_while_the_coordinator_is_asked_appends_nothing() -> None:
    broker = Broker()

    def resign() -> None:
        broker.partition.is_leader = False
        broker.end()

    broker.meanwhile = resign
    assert broker.append() is ErrorCode.INVALID_TXN_STATE
    assert broker.requests == 1


def test_a_completion_in_progress_is_asked_about_again() -> None:
    """Only if the batch adds its partition; other clients repeat their request (KAFKA-18654)."""
    for kind in CheckKind:
        broker = Broker(kind)
        broker.code = ErrorCode.CONCURRENT_TRANSACTIONS
        assert broker.append() is ErrorCode.CONCURRENT_TRANSACTIONS
        assert broker.appends.is_concurrent is (kind is CheckKind.ADD)
    broker.appends.forget_concurrent()
    broker.code = ErrorCode.NONE
    assert broker.append() is ErrorCode.NONE
    assert broker.requests == 2
