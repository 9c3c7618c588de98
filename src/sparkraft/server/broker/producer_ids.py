"""Producer ids, from blocks of 1,000 that the controller allocates (KIP-730).

In ZooKeeper mode with inter.broker.protocol.version below 3.0 each broker allocates them itself.
"""

import asyncio
from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from sparkraft.base.env import FaultPoint
    from sparkraft.server.broker.broker_epoch import BrokerEpoch
    from sparkraft.server.broker.controller_channel import RequestSender
    from sparkraft.server.config import NodeConfig


class ProducerIds:
    """Hands out ids that are unique in the cluster."""

    def __init__(
        self,
        config: "NodeConfig",
        channel: "RequestSender",
        broker_epoch: "BrokerEpoch",
        *,
        fault_point: "FaultPoint",
    ) -> None:
        self._node_id = config.node_id
        self._timeout_ms = config.number("request.timeout.ms")
        self._channel = channel
        self._broker_epoch = broker_epoch
        self._fault_point = fault_point
        self._next = 0
        self._end = 0
        self._fetching: asyncio.Lock | None = None

    def take(self) -> int | None:
        """An id of the current block; None if the block is used up."""
        if self._next >= self._end:
            return None
        self._next += 1
        return self._next - 1

    async def take_from_next_block(self) -> int:
        """An id, after fetching a block if no other request just did.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS, which clients retry, if the controller
                allocated no block.
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
            broker_id=self._node_id, broker_epoch=self._broker_epoch.value
        )
        try:
            response = await self._channel.send(
                request, ApiKey.ALLOCATE_PRODUCER_IDS, timeout_ms=self._timeout_ms
            )
        except KafkaError as error:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.detail) from error
        self._fault_point("producer_ids_given_before_used")
        if not response.error_code:
            self._next = response.producer_id_start
            self._end = self._next + response.producer_id_len
