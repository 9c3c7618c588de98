"""Requests between brokers: one in flight per broker; waiting items share the next one."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.loop_work import LoopBound
from sparkraft.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from sparkraft.client.connection import Connection
    from sparkraft.server.coordinator.external_coordinators import ExternalCoordinators
    from sparkraft.server.coordinator.host import ImageSource

SIZE_MAX: LoopBound = 1_000
"""Partitions in one request, which is made, encoded and decoded in one piece each."""

T = TypeVar("T")
R = TypeVar("R")


class BrokerConnections:
    """Connections to other brokers, opened on demand and shared."""

    def __init__(self, metadata: "ImageSource", external: "ExternalCoordinators") -> None:
        self._metadata = metadata
        self._external = external
        self._open: dict[int, Connection] = {}

    async def send(
        self, broker_id: int, request: Any, *, timeout_ms: int, at_most: int | None = None
    ) -> Any:
        """The response of a broker; KafkaError if it does not come in time.

        Args:
            broker_id: of the broker.
            request: a request message.
            timeout_ms: for the response.
            at_most: the newest version to send; None: the newest both sides support.
        """
        connection = await self._connected(broker_id)
        try:
            version = None
            if at_most is not None:
                version = connection.version_for(ApiKey(request.SCHEMA.key), at_most=at_most)
            return await connection.send(request, version=version, timeout_ms=timeout_ms)
        except KafkaError:
            if self._open.get(broker_id) is connection:
                del self._open[broker_id]
            await connection.close()
            raise

    async def _connected(self, broker_id: int) -> "Connection":
        known = self._open.get(broker_id)
        if known is not None and not known.is_closed:
            return known
        registration = self._metadata.image.brokers.get(broker_id)
        if registration is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is unknown")
        opened = await self._external.connect(registration)
        other = self._open.get(broker_id)
        if other is not None and not other.is_closed:  # Opened by another request meanwhile.
            await opened.close()
            return other
        self._open[broker_id] = opened
        return opened

    async def close(self) -> None:
        """Close all connections."""
        for broker_id in sorted(self._open):
            with suppress(KafkaError):
                await self._open[broker_id].close()
        self._open.clear()


class BrokerBatches(Generic[T, R]):
    """See the module docstring."""

    def __init__(
        self,
        send: Callable[[int, list[T]], Awaitable[list[R]]],
        spawn: Callable[[Coroutine[Any, Any, None], str], Any],
        name: str,
        *,
        size_of: Callable[[T], int],
    ) -> None:
        """Send nothing yet.

        Args:
            send: (broker id, items) → the result of each item.
            spawn: runs a task of the node.
            name: of the tasks.
            size_of: partitions of an item; one has at most `SIZE_MAX`.
        """
        self._size_of = size_of
        self._send = send
        self._spawn = spawn
        self._name = name
        self._waiting: dict[int, list[tuple[T, asyncio.Future[R]]]] = {}
        self._sending: set[int] = set()

    async def submit(self, broker_id: int, item: T) -> R:
        """The result of `item` from that broker; KafkaError if it did not answer."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(broker_id, []).append((item, future))
        if broker_id not in self._sending:
            self._sending.add(broker_id)
            self._spawn(self._drain(broker_id), f"{self._name} to broker {broker_id}")
        return await future

    async def _drain(self, broker_id: int) -> None:
        try:
            while waiting := self._waiting.pop(broker_id, None):
                count = self._count(waiting)
                if rest := waiting[count:]:
                    self._waiting[broker_id] = rest
                await self._send_batch(broker_id, waiting[:count])
        finally:
            self._sending.discard(broker_id)

    def _count(self, waiting: "list[tuple[T, asyncio.Future[R]]]") -> int:
        """How many items the next request has: at least one."""
        size = 0
        for count, (item, _) in enumerate(waiting):
            size += self._size_of(item) + 1
            if size > SIZE_MAX and count:
                return count
        return len(waiting)

    async def _send_batch(self, broker_id: int, batch: list[tuple[T, "asyncio.Future[R]"]]) -> None:
        try:
            results = await self._send(broker_id, [item for item, _ in batch])
        except KafkaError as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), result in zip(batch, results, strict=True):
            if not future.done():
                future.set_result(result)
