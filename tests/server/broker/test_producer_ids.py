"""Blocks of producer ids from the controller."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.server.broker.broker_epoch import BrokerEpoch
from sparkraft.server.broker.producer_ids import ProducerIds


class Controller:
    """Fails `failures` requests, then allocates blocks of two ids."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.requests = 0

    async def send(self, *_: Any, **__: Any) -> Any:
        self.requests += 1
        assert self.requests < 10, "asks without end"
        if self.requests <= self.failures:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        start = 100 * self.requests
        return SimpleNamespace(error_code=0, producer_id_start=start, producer_id_len=2)


def ids_of(controller: Controller) -> ProducerIds:
    config: Any = SimpleNamespace(node_id=1, number=lambda _: 30_000)
    channel: Any = controller
    return ProducerIds(config, channel, BrokerEpoch(), fault_point=lambda _: False)


def test_requests_that_wait_share_a_block() -> None:
    async def test() -> None:
        controller = Controller()
        ids = ids_of(controller)
        assert ids.take() is None
        found = await asyncio.gather(*(ids.take_from_next_block() for _ in range(2)))
        assert (sorted(found), controller.requests) == ([100, 101], 1)

    asyncio.run(test())


def test_a_block_that_is_not_allocated_is_an_error() -> None:
    """Clients repeat InitProducerId; the coordinator does not wait meanwhile (KAFKA-14694)."""

    async def test() -> None:
        ids = ids_of(Controller(failures=1))
        with pytest.raises(KafkaError) as failed:
            await ids.take_from_next_block()
        assert failed.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await ids.take_from_next_block() == 200

    asyncio.run(test())
