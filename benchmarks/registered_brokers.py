"""Brokers that exist for the controllers only: registered and heartbeating, without any replica.

They speak BrokerRegistration and BrokerHeartbeat like a node's `BrokerLifecycle`, and look for the
next controller when theirs is gone. Their heartbeats come from a thread with a loop of its own, so
that they go on whatever the benchmark waits for.
"""

import asyncio
import contextlib
import secrets
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.client.connection import Connection
from sparkraft.metadata.features import SUPPORTED_FEATURES
from sparkraft.protocol.messages.k62_broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from sparkraft.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from tests.support.nodes import CLUSTER_ID
from tests.support.ports import wait_until

HOST = "127.0.0.1"
HEARTBEAT_SECONDS = 2.0
"""Kafka's `broker.heartbeat.interval.ms`."""

UNFENCE_RETRY_SECONDS = 0.02
SEARCH_SECONDS = 0.05
"""Between two looks for the active controller."""

REQUEST_MS_MAX = 4_500
"""Half a broker session: then the next controller is tried."""


class RegisteredBrokers:
    """So many brokers, alive as long as the block lasts."""

    def __init__(self, controller_ports: Sequence[int], ids: Sequence[int]) -> None:
        """Nothing happens before the block begins.

        Args:
            controller_ports: where the controllers listen, on loopback.
            ids: of the brokers; no real broker may have one of them.
        """
        self._ports = tuple(controller_ports)
        self._brokers = [_Broker(number, self._ports) for number in ids]
        self._thread = threading.Thread(target=self._run, name="registered brokers", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._failure: BaseException | None = None

    @property
    def alive(self) -> int:
        """How many are unfenced, as far as they were told."""
        return sum(not broker.is_fenced for broker in self._brokers)

    def __enter__(self) -> Self:
        """Start them, and return when the controller has unfenced all."""
        self._thread.start()
        wait_until(self._all_alive, "the registered brokers are unfenced")
        return self

    def _all_alive(self) -> bool:
        if self._failure is not None:
            raise self._failure
        return self.alive == len(self._brokers)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """End them without a word, as by kill -9."""
        if self._loop is not None and self._end is not None:
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(30)

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as failure:
            self._failure = failure

    async def _live(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        # A controller may knock at a broker's door to see whether it lives.
        door = await asyncio.start_server(lambda _, writer: writer.close(), HOST, 0)
        for broker in self._brokers:
            broker.port = door.sockets[0].getsockname()[1]
        lives = [asyncio.create_task(broker.live()) for broker in self._brokers]
        ended = asyncio.create_task(self._end.wait())
        done, _ = await asyncio.wait([*lives, ended], return_when=asyncio.FIRST_COMPLETED)
        door.close()
        for task in (*lives, ended):
            task.cancel()
        await asyncio.gather(*lives, ended, return_exceptions=True)
        for task in done:
            task.result()


class _Broker:
    """One of them."""

    def __init__(self, number: int, ports: Sequence[int]) -> None:
        self._id = number
        self._ports = ports
        self._at = number % len(ports)
        self._connection: Connection | None = None
        self._incarnation = _random_id()
        self._directory = _random_id()
        self._epoch = -1
        self.is_fenced = True
        self.port = 0
        """Where it says that it listens: something accepts there, and closes again."""

    async def live(self) -> None:
        """Register, then heartbeat, until cancelled."""
        try:
            while True:
                if self._epoch < 0:
                    self._epoch = (await self._ask(self._registration())).broker_epoch
                answer = await self._ask(self._heartbeat(), may_be_stale=True)
                if answer.error_code:
                    self._epoch = -1
                    continue
                self.is_fenced = answer.is_fenced
                await asyncio.sleep(UNFENCE_RETRY_SECONDS if self.is_fenced else HEARTBEAT_SECONDS)
        finally:
            if self._connection is not None:
                self._connection.abort("the benchmark ended")

    async def _ask(self, request: Any, *, may_be_stale: bool = False) -> Any:
        """The active controller's answer, whoever that is by now."""
        while True:
            with contextlib.suppress(KafkaError):
                if self._connection is None or self._connection.is_closed:
                    port = self._ports[self._at]
                    self._connection = await Connection.open(HOST, port, client_id="bench-broker")
                answer = await self._connection.send(request, timeout_ms=REQUEST_MS_MAX)
                if not answer.error_code:
                    return answer
                if may_be_stale and answer.error_code == ErrorCode.STALE_BROKER_EPOCH:
                    return answer
            await self._try_next()

    async def _try_next(self) -> None:
        if self._connection is not None:
            self._connection.abort("not the active controller")
            self._connection = None
        self._at = (self._at + 1) % len(self._ports)
        await asyncio.sleep(SEARCH_SECONDS)

    def _registration(self) -> BrokerRegistrationRequest:
        return BrokerRegistrationRequest(
            broker_id=self._id,
            cluster_id=CLUSTER_ID,
            incarnation_id=self._incarnation,
            listeners=[Listener(name="PLAINTEXT", host=HOST, port=self.port, security_protocol=0)],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in sorted(SUPPORTED_FEATURES.items())
            ],
            rack=None,
            log_dirs=[self._directory],
        )

    def _heartbeat(self) -> BrokerHeartbeatRequest:
        return BrokerHeartbeatRequest(
            broker_id=self._id, broker_epoch=self._epoch, current_metadata_offset=self._epoch
        )


def _random_id() -> Uuid:
    return Uuid(secrets.token_bytes(16))
