"""Connections from this replica to the other members of the quorum.

One connection a node, opened at need; the core asks a peer one thing at a time. A refused
connection is told apart from a lost one: its process is gone, and the core need not wait for it.
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sparkraft.base.errors import DecodeError, ErrorCode, KafkaError
from sparkraft.client.connection import Connection
from sparkraft.raft import events
from sparkraft.raft.voters import Node
from sparkraft.server.raft.calls import Call, write_call

if TYPE_CHECKING:
    from sparkraft.base.ids import BrokerId
    from sparkraft.client.connection import Connect

FRAME_BYTES_MAX = 64 * 1024 * 1024
"""A Fetch answer holds at most 8 MiB, but its first batch may be as large as a peer allows."""


class OnResponse(Protocol):
    """Told how a request went."""

    def __call__(self, event: events.ResponseReceived | events.RequestFailed) -> None:
        """Pass the event to the core."""
        ...


@dataclass(slots=True)
class _Peer:
    node: Node
    connection: Connection | None = None


class Peers:
    """See the module docstring."""

    def __init__(
        self,
        listener: str,
        client_id: str,
        on_response: OnResponse,
        *,
        connect: "Connect | None" = None,
    ) -> None:
        """Connect to no peer yet.

        Args:
            listener: the controllers' listener.
            client_id: of the requests.
            on_response: called with every response or failure.
            connect: opens a transport (`Network.connect`); the running loop by default.
        """
        self._connect = connect
        self._listener = listener
        self._client_id = client_id
        self._on_response = on_response
        self._peers: dict[BrokerId, _Peer] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def send(self, send: events.Send) -> None:
        """Send in the background."""
        if self._closed:
            return
        task = asyncio.get_running_loop().create_task(self._run(send))
        # The set keeps the task alive; `close` cancels what is left.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, send: events.Send) -> None:
        correlation_id = send.correlation_id
        call = write_call(send.request, self._listener)
        try:
            answer = await self._ask(send, call)
        except KafkaError as error:
            failure = _failure_of(error)
            self._on_response(events.RequestFailed(correlation_id=correlation_id, failure=failure))
            return
        except DecodeError:
            failure = events.Failure.DISCONNECTED
            self._on_response(events.RequestFailed(correlation_id=correlation_id, failure=failure))
            return
        self._on_response(events.ResponseReceived(correlation_id=correlation_id, response=answer))

    async def _ask(self, send: events.Send, call: Call) -> events.PeerResponse:
        try:
            async with asyncio.timeout(send.timeout_ms / 1000):
                connection = await self._connection(send.to, send.timeout_ms)
                try:
                    version = connection.version_for(call.key)
                except KafkaError:
                    version = -1
                if version < call.version_min:
                    return _unsupported(send.request)
                reply = await connection.send(
                    call.message, version=version, timeout_ms=send.timeout_ms
                )
        except TimeoutError as error:
            # Out here: a timeout turns into its error only as its block ends.
            self._give_up(send.to)
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"no answer of {send.to}") from error
        return call.read(reply)

    async def _connection(self, node: Node, timeout_ms: int) -> Connection:
        peer = self._peers.get(node.id)
        if peer is None or peer.node != node:
            peer = self._peers[node.id] = _Peer(node)
        if peer.connection is None or peer.connection.is_closed:
            peer.connection = await Connection.open(
                node.host,
                node.port,
                client_id=self._client_id,
                timeout_ms=timeout_ms,
                frame_bytes_max=FRAME_BYTES_MAX,
                connect=self._connect,
            )
        return peer.connection

    def _give_up(self, node: Node) -> None:
        """A peer that didn't answer in time may be gone without a word: connect anew next time."""
        peer = self._peers.get(node.id)
        if peer is not None and peer.connection is not None:
            peer.connection.abort("no answer in time")

    async def close(self) -> None:
        """Drop everything in flight."""
        self._closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for peer in self._peers.values():
            if peer.connection is not None:
                peer.connection.abort("stopping")
        self._peers.clear()


def _unsupported(request: events.PeerRequest) -> events.PeerResponse:
    """The peer is too old for what we ask."""
    if isinstance(request, events.VoteRequest):
        return events.VoteResponse(error=ErrorCode.UNSUPPORTED_VERSION, epoch=request.epoch)
    return events.Refusal(error=ErrorCode.UNSUPPORTED_VERSION)


def _failure_of(error: KafkaError) -> events.Failure:
    if error.code is ErrorCode.REQUEST_TIMED_OUT:
        return events.Failure.TIMED_OUT
    if isinstance(error.__cause__, ConnectionRefusedError):
        return events.Failure.REFUSED
    return events.Failure.DISCONNECTED
