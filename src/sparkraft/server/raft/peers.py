"""Connections from this replica to the other members of the quorum.

One connection per node, opened on demand; the core has one request in flight to a peer. A refused
connection is reported as such: the process has stopped, so the core need not wait for it.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sparkraft.base.errors import DecodeError, ErrorCode, KafkaError
from sparkraft.client.connection import ChannelTraffic, Connection
from sparkraft.raft import events
from sparkraft.raft.voters import Node
from sparkraft.server.raft.calls import Call, write_call

if TYPE_CHECKING:
    from sparkraft.base.ids import BrokerId
    from sparkraft.security.login import Credentials
    from sparkraft.tls.dialing import Connect

log = logging.getLogger(__name__)

_REFUSED_LOGINS = frozenset(
    {
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        ErrorCode.ILLEGAL_SASL_STATE,
    }
)

FRAME_BYTES_MAX = 64 * 1024 * 1024
"""A Fetch response has at most 8 MiB, but its first batch may be as large as a peer allows."""


class OnResponse(Protocol):
    """Called with the outcome of each request."""

    def __call__(self, event: events.ResponseReceived | events.RequestFailed) -> None:
        """Pass the event to the core."""
        ...


@dataclass(slots=True)
class _Peer:
    node: Node
    connection: Connection | None = None

    def use(self, connection: Connection) -> None:
        """Send requests on `connection` from now on."""
        self.connection = connection


class Peers:
    """See the module docstring."""

    def __init__(
        self,
        listener: str,
        client_id: str,
        on_response: OnResponse,
        *,
        connect: "Connect | None" = None,
        login: "Credentials | None" = None,
        traffic: ChannelTraffic | None = None,
    ) -> None:
        """Create without connections; they are opened on demand.

        Args:
            listener: the controller listener.
            client_id: the client id of the requests.
            on_response: called with every response or failure.
            connect: opens a transport (`Network.connect`); the running loop by default.
            login: authenticates each connection; None: they are not authenticated.
            traffic: counts requests and responses.
        """
        self._traffic = traffic
        self._connect = connect
        self._login = login
        self._listener = listener
        self._client_id = client_id
        self._on_response = on_response
        self._peers: dict[BrokerId, _Peer] = {}
        self._refused_logins: dict[BrokerId, str] = {}
        """Peers that refuse our credentials, and why."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def send(self, send: events.Send) -> None:
        """Send a request in the background."""
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
            response = await self._request(send, call)
        except KafkaError as error:
            self._log_refused_login(send.to, error)
            failure = _failure_of(error)
            self._on_response(events.RequestFailed(correlation_id=correlation_id, failure=failure))
            return
        except DecodeError:
            failure = events.Failure.DISCONNECTED
            self._on_response(events.RequestFailed(correlation_id=correlation_id, failure=failure))
            return
        self._on_response(events.ResponseReceived(correlation_id=correlation_id, response=response))

    async def _request(self, send: events.Send, call: Call) -> events.PeerResponse:
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
            # Here, because a timeout becomes a TimeoutError only at the end of its block.
            self._give_up(send.to)
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"no response from {send.to}") from error
        return call.read(reply)

    async def _connection(self, node: Node, timeout_ms: int) -> Connection:
        peer = self._peers.get(node.id)
        if peer is None or peer.node != node:
            peer = self._peers[node.id] = _Peer(node)
        if peer.connection is None or peer.connection.is_closed:
            opened = await Connection.open(
                node.host,
                node.port,
                client_id=self._client_id,
                timeout_ms=timeout_ms,
                frame_bytes_max=FRAME_BYTES_MAX,
                connect=self._connect,
                login=self._login,
                traffic=self._traffic,
            )
            peer.use(opened)
            self._refused_logins.pop(node.id, None)
            return opened
        return peer.connection

    def _log_refused_login(self, node: Node, error: KafkaError) -> None:
        """Log that a peer refuses our credentials, once until it accepts them."""
        if error.code in _REFUSED_LOGINS and self._refused_logins.get(node.id) != str(error):
            self._refused_logins[node.id] = str(error)
            log.error("Authentication at quorum node %d failed: %s", node.id, error)

    def _give_up(self, node: Node) -> None:
        """Close the connection after a timeout: the peer's machine may have failed silently."""
        peer = self._peers.get(node.id)
        if peer is not None and peer.connection is not None:
            peer.connection.abort("request timed out")

    async def close(self) -> None:
        """Cancel all requests in flight and close the connections."""
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
    """The response for a peer that does not support the request's version."""
    if isinstance(request, events.VoteRequest):
        return events.VoteResponse(error=ErrorCode.UNSUPPORTED_VERSION, epoch=request.epoch)
    return events.Refusal(error=ErrorCode.UNSUPPORTED_VERSION)


def _failure_of(error: KafkaError) -> events.Failure:
    if error.code is ErrorCode.REQUEST_TIMED_OUT:
        return events.Failure.TIMED_OUT
    if isinstance(error.__cause__, ConnectionRefusedError):
        return events.Failure.REFUSED
    return events.Failure.DISCONNECTED
