"""Producer ids, from blocks of 1,000 that the controller hands out (KIP-730)."""

import asyncio
from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from sparkraft.server.broker.services import BrokerServices


class ProducerIds:
    """Hands out ids that nobody in the cluster has had."""

    def __init__(self, broker: "BrokerServices") -> None:
        """Have no block yet."""
        self._broker = broker
        self._next = 0
        self._end = 0
        self._fetching: asyncio.Lock | None = None

    def take(self) -> int | None:
        """An id of the current block; None where it is used up."""
        if self._next >= self._end:
            return None
        self._next += 1
        return self._next - 1

    async def take_from_next_block(self) -> int:
        """An id, after fetching a block if no other request just did.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS where the controller gave none: try again.
        """
        if self._fetching is None:
            self._fetching = asyncio.Lock()
        async with self._fetching:
            ready = self.take()
            if ready is None:
                await self._fetch()
                ready = self.take()
            if ready is None:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no producer id block")
            return ready

    async def _fetch(self) -> None:
        from sparkraft.protocol.messages.k67_allocate_producer_ids import (
            AllocateProducerIdsRequest,
        )

        request = AllocateProducerIdsRequest(
            broker_id=self._broker.node_id, broker_epoch=self._broker.lifecycle.broker_epoch
        )
        try:
            answer = await self._broker.channel.send(
                request,
                ApiKey.ALLOCATE_PRODUCER_IDS,
                timeout_ms=self._broker.config.number("request.timeout.ms"),
            )
        except KafkaError as error:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.detail) from error
        self._broker.env.fault_point("producer_ids_given_before_used")
        if not answer.error_code:
            self._next = answer.producer_id_start
            self._end = self._next + answer.producer_id_len
