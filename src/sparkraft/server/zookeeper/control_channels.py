"""Connections of a ZooKeeper controller to the brokers: one queue and one connection each.

    Send ─► queue of the broker ─► connection, one request in flight ─► response ─► event

As Kafka 3.9 (`ControllerChannelManager`, `RequestSendThread`):
    * Requests reach a broker in the order of the decisions, each after the response to the one
      before.
    * A request that fails is sent again `RETRY_MS` later, without an end, until the broker leaves.
    * Versions follow `inter.broker.protocol.version`; brokers are not asked for theirs.
    * The own broker is reached over its listener, as all others.

A queue belongs to one registration of a broker: requests to an earlier one (another epoch) are
dropped with its queue. It has no bound, as in Kafka: each request changes what the broker must
know, and the session of a broker that hangs ends.
"""

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.zookeeper.controller.control_messages import (
    MissingListenerError,
    encoded_message,
    leader_and_isr_errors,
    stop_replica_errors,
)
from sparkraft.zookeeper.controller.events import LeaderAndIsrResponded, StopReplicaResponded
from sparkraft.zookeeper.controller.requests import (
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from sparkraft.zookeeper.controller.steps import pieces

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping

    from sparkraft.base.env import Clock
    from sparkraft.base.ids import TopicPartition
    from sparkraft.client.connection import Connection
    from sparkraft.security.login import Credentials
    from sparkraft.tls.dialing import Connect
    from sparkraft.zookeeper.controller.control_messages import ControlMessage, Sender
    from sparkraft.zookeeper.controller.events import Event
    from sparkraft.zookeeper.controller.requests import ControlRequest
    from sparkraft.zookeeper.controller.values import Broker

T = TypeVar("T")

log = logging.getLogger(__name__)

RETRY_MS = 100
"""Between attempts: Kafka's pause."""


class MetadataOfBatch:
    """UpdateMetadata of one batch, which is encoded once.

    The requests of a batch to all brokers differ in the broker epoch only.
    """

    def __init__(self, request: UpdateMetadataRequest) -> None:
        self._first = request
        self._turn = asyncio.Lock()
        self._encoded: ControlMessage | None = None

    def contains(self, request: UpdateMetadataRequest) -> bool:
        """Whether a request has the content of this batch."""
        first = self._first
        return (
            request.partitions is first.partitions
            and request.live_brokers is first.live_brokers
            and request.scope == first.scope
            and request.controller_epoch == first.controller_epoch
        )

    async def message_to(
        self,
        request: UpdateMetadataRequest,
        encode: "Callable[[ControlRequest], Awaitable[ControlMessage]]",
    ) -> "ControlMessage":
        """Return the message with the epoch of the receiver; `encode` makes the first one."""
        async with self._turn:
            if self._encoded is None:
                self._encoded = await encode(request)
        return self._encoded.to_another_broker(request.broker_epoch)


class Queued(NamedTuple):
    """A request that waits."""

    request: "ControlRequest"
    queued_ms: int
    metadata: MetadataOfBatch | None
    """Of an UpdateMetadata request."""


class ControlChannels:
    """See the module docstring.

    Attributes:
        by_broker: the channel of each broker that requests were sent to.
        clock: of the node.
        timeout_ms: of one attempt.
    """

    def __init__(  # noqa: PLR0913 (every collaborator, by name)
        self,
        sender: "Sender",
        clock: "Clock",
        *,
        connect: "Connect",
        login: "Credentials | None",
        timeout_ms: int,
        brokers: "Callable[[], Mapping[int, Broker]]",
        put: "Callable[[Event], None]",
        on_worked: "Callable[[int], Awaitable[None]]",
        spawn: "Callable[[Coroutine[Any, Any, Any], str], asyncio.Task[Any]]",
    ) -> None:
        """Connect at the first request.

        Args:
            sender: this controller.
            clock: measures how long requests wait.
            connect: opens connections to the inter-broker listeners.
            login: authenticates each of them; None: they are not authenticated.
            timeout_ms: `controller.socket.timeout.ms`.
            brokers: returns the registered brokers, as the controller knows them.
            put: takes the events of responses.
            on_worked: awaited after a piece of work with its units, to let other tasks run.
            spawn: runs a task of the node.
        """
        self.by_broker: dict[int, BrokerChannel] = {}
        self._sender = sender
        self.clock = clock
        self._connect = connect
        self._login = login
        self.timeout_ms = timeout_ms
        self._brokers = brokers
        self._put = put
        self._on_worked = on_worked
        self._spawn = spawn

    @property
    def queued(self) -> int:
        """Requests that wait or are in flight, to all brokers."""
        return sum(len(each.queue) for each in self.by_broker.values())

    def send(self, requests: "tuple[ControlRequest, ...]") -> None:
        """Queue requests."""
        now = self.clock.mono_ms()
        shared: MetadataOfBatch | None = None
        for request in requests:
            metadata = None
            if isinstance(request, UpdateMetadataRequest):
                if shared is None or not shared.contains(request):
                    shared = MetadataOfBatch(request)
                metadata = shared
            channel = self.by_broker.get(request.broker)
            if channel is None or channel.broker_epoch != request.broker_epoch:
                channel = self._open(request)
            channel.put(Queued(request, now, metadata))

    def _open(self, request: "ControlRequest") -> "BrokerChannel":
        self._close(request.broker)
        channel = BrokerChannel(self, request.broker, request.broker_epoch)
        self.by_broker[request.broker] = channel
        channel.start(self._spawn)
        return channel

    def _close(self, broker: int) -> None:
        channel = self.by_broker.pop(broker, None)
        if channel is not None:
            channel.close()

    def retain(self, brokers: "Mapping[int, Broker]") -> None:
        """Close the channels of all brokers but these, and drop what waits in them."""
        for broker in [each for each in self.by_broker if each not in brokers]:
            self._close(broker)

    # ---- for the channels

    def endpoint_of(self, broker: int) -> tuple[str, int] | None:
        """Host and port of a broker's inter-broker listener; None if it has none."""
        registered = self._brokers().get(broker)
        if registered is None:
            return None
        named = (each for each in registered.endpoints if each.listener == self._sender.listener)
        return next(((each.host, each.port) for each in named), None)

    async def message_of(self, queued: Queued) -> "ControlMessage":
        """A request as Kafka's message, its arrays encoded; other tasks run in between.

        Raises:
            MissingListenerError: see `control_message`.
        """
        if queued.metadata is None:
            return await self._encode(queued.request)
        assert isinstance(queued.request, UpdateMetadataRequest)
        return await queued.metadata.message_to(queued.request, self._encode)

    async def _encode(self, request: "ControlRequest") -> "ControlMessage":
        return await self._complete(encoded_message(request, self._sender))

    async def _complete(self, steps: "Generator[int, None, T]") -> T:
        """Do work in pieces; other tasks run in between."""
        while True:
            try:
                units = next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            await self._on_worked(units)

    async def open_connection(self, host: str, port: int) -> "Connection":
        """Connect to a broker; it is not asked for its versions."""
        from sparkraft.client.connection import Connection

        return await Connection.open(
            host,
            port,
            client_id=str(self._sender.id),
            timeout_ms=self.timeout_ms,
            negotiate=False,
            connect=self._connect,
            login=self._login,
        )

    async def on_response(self, request: "ControlRequest", response: Any) -> None:
        """Pass the results of a response to the controller; other tasks run in between."""
        error = response.error_code
        if isinstance(request, LeaderAndIsrRequest):
            errors = await self._complete(leader_and_isr_errors(response, request.topic_ids))
            self._put(LeaderAndIsrResponded(request.broker, error, errors))
        elif isinstance(request, StopReplicaRequest):
            errors = await self._complete(_of_deleted(request, response))
            if errors:
                self._put(StopReplicaResponded(request.broker, error, errors))
        elif error:
            log.warning("UpdateMetadata to broker %d: %s", request.broker, ErrorCode(error).name)


def _of_deleted(
    request: StopReplicaRequest, response: Any
) -> "Generator[int, None, dict[TopicPartition, int]]":
    """The error codes of the partitions whose deletion was requested."""
    errors = yield from stop_replica_errors(response)
    deleted: dict[TopicPartition, int] = {}
    for piece in pieces(request.partitions.items()):
        deleted.update((at, errors[at]) for at, each in piece if each.delete and at in errors)
        yield len(piece)
    return deleted


class BrokerChannel:
    """The requests to one registration of a broker.

    Attributes:
        broker: its id.
        broker_epoch: of the registration.
        queue: requests without a response, oldest first.
        sent: responses so far.
        waited_ms: how long requests waited for their turn, in all.
    """

    def __init__(self, channels: ControlChannels, broker: int, broker_epoch: int) -> None:
        self.broker = broker
        self.broker_epoch = broker_epoch
        self.queue: deque[Queued] = deque()
        self.sent = 0
        self.waited_ms = 0
        self._channels = channels
        self._wake = asyncio.Event()
        self._task: asyncio.Task[Any] | None = None
        self._connection: Connection | None = None

    def start(self, spawn: "Callable[[Coroutine[Any, Any, Any], str], asyncio.Task[Any]]") -> None:
        """Send from now on, in a task of the node."""
        self._task = spawn(self.run(), f"controller requests to {self.broker}")

    def put(self, queued: Queued) -> None:
        """Append a request."""
        self.queue.append(queued)
        self._wake.set()

    def close(self) -> None:
        """Stop, and drop all waiting requests."""
        self.queue.clear()
        if self._task is not None:
            self._task.cancel()

    async def run(self) -> None:
        """Send until cancelled."""
        try:
            while True:
                while not self.queue:
                    self._wake.clear()
                    await self._wake.wait()
                queued = self.queue[0]
                self.waited_ms += self._channels.clock.mono_ms() - queued.queued_ms
                await self._send(queued)
                self.queue.popleft()
                self.sent += 1
        finally:
            if self._connection is not None:
                self._connection.abort("the controller left this broker")

    async def _send(self, queued: Queued) -> None:
        """Send a request until it is answered."""
        try:
            message = await self._channels.message_of(queued)
        except MissingListenerError as error:
            # Kafka's decision fails (BrokerEndPointNotAvailableException); the brokers learn of the
            # partitions when that broker has registered with the listener.
            log.warning("A request to broker %d is dropped: %s", self.broker, error)
            return
        while True:
            try:
                connection = await self._connected()
                response = await connection.send(
                    message.message, version=message.version, timeout_ms=self._channels.timeout_ms
                )
            except KafkaError as error:
                log.warning(
                    "%s to broker %d: %s", type(message.message).__name__, self.broker, error
                )
                await self._disconnect()
                await asyncio.sleep(RETRY_MS / 1000)
            else:
                await self._channels.on_response(queued.request, response)
                return

    async def _connected(self) -> "Connection":
        if self._connection is not None and not self._connection.is_closed:
            return self._connection
        endpoint = self._channels.endpoint_of(self.broker)
        if endpoint is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "it has no inter-broker listener")
        self._connection = await self._channels.open_connection(*endpoint)
        return self._connection

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
