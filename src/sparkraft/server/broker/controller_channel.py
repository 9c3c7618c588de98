"""The channel to the active controller: a local call if it is in this process, else a connection.

A `ControllerTarget` knows the controller: the leader of a quorum (`QuorumTarget`), or a broker in
ZooKeeper mode (`server.zookeeper.controllers`).

A request is retried until its deadline: if no controller is known, it moved, or the connection
broke, wait briefly and try again. Only responses of the active controller are returned.

    broker → ControllerChannel.send(request) → [local handler | Connection → controller listener]

The controller serves the requests of a connection in order, so heartbeats have a channel of their
own: they must not wait for other requests' commits. A lost heartbeat closes the other connection
too (`reconnect`): it may be broken as well, and a forwarded request would take much longer to find
out. So does a new controller (`on_leader`), after a grace period for responses in flight.
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from sparkraft.base.errors import DecodeError, ErrorCode, KafkaError
from sparkraft.protocol import codec
from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.security.session import NodeSession
from sparkraft.server.api.registry import RequestContext, load_api
from sparkraft.server.broker.envelope import EnvelopeError, open_envelope, seal_envelope
from sparkraft.server.raft.leader_description import describe_leader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkraft.client.connection import Connection
    from sparkraft.security.login import Credentials
    from sparkraft.server.api.registry import Api
    from sparkraft.server.env import Env
    from sparkraft.server.loop_turns import Turn
    from sparkraft.tls.dialing import Connect

RETRY_MS_FIRST = 10
RETRY_MS_MAX = 200
"""Pauses between attempts: short at first, because a controller starts in milliseconds."""

LAST_ANSWERS_MS = 2_000
"""How long requests in flight to the old controller may still complete once there is a new one:
Kafka's controller.quorum.request.timeout.ms, the quorum's own request timeout."""


class ControllerTarget(Protocol):
    """The controller that requests go to, and how to connect to it.

    Attributes:
        leader_and_epoch: with `leader_id`; None or negative: no controller is known.
        leader_node: its id, host and port; None if its endpoint is not known.
        connect: opens a connection.
        login: authenticates it; None: it is not authenticated.
        takes_envelopes: whether a client's request is sent in an Envelope (KIP-590).
    """

    @property
    def leader_and_epoch(self) -> Any: ...
    @property
    def leader_node(self) -> Any: ...
    @property
    def connect(self) -> "Connect": ...
    @property
    def login(self) -> "Credentials | None": ...
    @property
    def takes_envelopes(self) -> bool: ...
    def describe(self) -> str:
        """A sentence about it, for clients."""


class QuorumTarget:
    """The leader of the metadata quorum."""

    takes_envelopes = True

    def __init__(self, raft: Any, connect: "Connect", login: "Credentials | None" = None) -> None:
        """Follow the leader that `raft` knows; see `ControllerTarget` for the others."""
        self._raft = raft
        self.connect = connect
        self.login = login

    @property
    def leader_and_epoch(self) -> Any:
        """See `ControllerTarget`."""
        return self._raft.leader_and_epoch

    @property
    def leader_node(self) -> Any:
        """See `ControllerTarget`."""
        return self._raft.leader_node

    def describe(self) -> str:
        """See `ControllerTarget`."""
        return describe_leader(self._raft)


class RequestSender(Protocol):
    """Sends this broker's own requests: to the controller, or to what decides in its place."""

    async def send(self, request: Any, key: ApiKey, *, timeout_ms: int) -> Any:
        """Return the response; `KafkaError` if there was none in time."""


class ControllerChannel:
    """Sends requests to the active controller."""

    def __init__(
        self,
        env: "Env",
        target: ControllerTarget,
        *,
        node_id: int,
        local: Any,
        controller_listener: str,
        load: "Callable[[ApiKey], Api | None] | None" = None,
    ) -> None:
        """Connect on first use.

        Args:
            env: the clock.
            target: knows the controller.
            node_id: of this node.
            local: the controller services of this process; None without that role.
            controller_listener: the listener's name, for contexts of local calls.
            load: returns how the local controller serves a key; by default as a quorum's.
        """
        self._env = env
        self._target = target
        self._node_id = node_id
        self._local = local
        self._session = NodeSession(controller_listener)
        self._load = load or partial(load_api, controller_listener=True)
        self._connection: tuple[int, Connection] | None = None
        self._opening: tuple[int, asyncio.Task[Connection]] | None = None
        self.waiting = 0
        """Requests without a response yet."""

    @property
    def forwarded_versions(self) -> "Mapping[int, tuple[int, int]] | None":
        """The ranges that the controller serves, by API key; None if none is connected.

        None as well for a controller that is in this process, or takes no Envelopes.
        """
        if self._connection is None or not self._target.takes_envelopes:
            return None
        leader, connection = self._connection
        is_present = leader == self._target.leader_and_epoch.leader_id
        return connection.versions if is_present and not connection.is_closed else None

    def newest_version(self, key: ApiKey) -> int:
        """The newest version of a forwarded request that this broker and the controller serve."""
        newest = API_INFO[key].max_version
        theirs = (self.forwarded_versions or {}).get(key)
        return newest if theirs is None else min(newest, theirs[1])

    async def send(
        self,
        request: Any,
        key: ApiKey,
        *,
        timeout_ms: int,
        tries_ms: int | None = None,
        version: int | None = None,
        context: RequestContext | None = None,
    ) -> Any:
        """The controller's response to `request`.

        Args:
            request: a request message.
            key: its API key.
            timeout_ms: for all attempts together.
            tries_ms: no attempt starts later; `timeout_ms` by default.
            version: of the message; by default the newest both sides support.
            context: of the client whose request is forwarded; None: the broker itself.

        Raises:
            KafkaError: REQUEST_TIMED_OUT if there was no response in time.
            EnvelopeError: the controller refused a forwarded request's envelope.
        """
        limits = timeout_ms, tries_ms
        response = await self._send_in_time(request, key, version, context, limits)
        if not isinstance(response, memoryview):
            return response
        assert version is not None
        steps = codec.decode_slices(
            API_INFO[key].response_class(), version, response, codec.RESPONSE_ELEMENT_BUDGET
        )
        try:
            return await self._turn().carry_out(steps)
        except DecodeError as error:
            raise EnvelopeError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error

    async def send_encoded(
        self,
        request: Any,
        context: RequestContext,
        *,
        timeout_ms: int,
        tries_ms: int | None = None,
    ) -> list[Any]:
        """The buffers of the encoded response to a client's request, in the request's version.

        A response that came in an Envelope is returned as it came: it is not decoded.

        Args:
            request: the client's.
            context: of the client.
            timeout_ms: see `send`.
            tries_ms: see `send`.

        Raises:
            KafkaError: see `send`.
        """
        key, version = ApiKey(context.api_key), context.api_version
        limits = timeout_ms, tries_ms
        response = await self._send_in_time(request, key, version, context, limits)
        if isinstance(response, memoryview):
            return [response]
        return await self.encode(response, version)

    async def encode(self, response: Any, version: int) -> list[Any]:
        """The buffers of a response, which may be large; it is encoded between other work."""
        found = await self._turn().carry_out(codec.encode_arrays(response, version))
        return list(codec.encode_parts(found, version))

    def _turn(self) -> "Turn":
        return self._env.turn(self._env.work_max.partitions)

    async def _send_in_time(
        self,
        request: Any,
        key: ApiKey,
        version: int | None,
        context: RequestContext | None,
        limits: tuple[int, int | None],
    ) -> Any:
        """The response: a message, or if it came in an Envelope its bytes."""
        timeout_ms, tries_ms = limits
        now = self._env.clock.mono_ms()
        last_try = now + (timeout_ms if tries_ms is None else min(tries_ms, timeout_ms))
        times = (last_try, now + timeout_ms)
        self.waiting += 1
        try:
            return await self._send_with_retries(request, key, version, context, times)
        finally:
            self.waiting -= 1

    async def _send_with_retries(
        self,
        request: Any,
        key: ApiKey,
        version: int | None,
        context: Any,
        times: tuple[int, int],
    ) -> Any:
        last_try, deadline = times
        pause = RETRY_MS_FIRST
        why = "no controller is known"
        while True:
            now = self._env.clock.mono_ms()
            if now >= last_try:
                raise KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"{key.name} to the controller: {why}. {self._target.describe()}",
                )
            try:
                answer = await self._try(request, key, version, context, deadline - now)
            except EnvelopeError:
                raise
            except KafkaError as error:
                why = str(error)
            else:
                lost = self._env.fault_point("answer_of_the_controller_lost")
                if not lost and getattr(answer, "error_code", 0) != ErrorCode.NOT_CONTROLLER:
                    return answer
                why = "the controller moved, or its response was lost"
            await asyncio.sleep(min(pause, last_try - now) / 1000)
            pause = min(pause * 2, RETRY_MS_MAX)

    async def _try(
        self, request: Any, key: ApiKey, version: int | None, context: Any, timeout_ms: int
    ) -> Any:
        leader = self._target.leader_and_epoch.leader_id
        if leader is None or leader < 0:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "no controller is elected")
        if leader == self._node_id:
            return await self._call_locally(request, key, version, context)
        connection = await self._connect(leader, timeout_ms)
        if context is not None and self._target.takes_envelopes:
            return await self._send_envelope(connection, request, key, version, context, timeout_ms)
        if context is not None:
            version = None  # the client's may be one that this controller does not serve
        return await connection.send(request, version=version, timeout_ms=timeout_ms)

    async def _call_locally(
        self, request: Any, key: ApiKey, version: int | None, context: RequestContext | None
    ) -> Any:
        api = self._load(key)
        if api is None or self._local is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"no controller here serves {key.name}")
        if version is None:
            version = api.version_range()[1]
        try:
            answer: Any = api.call(self._local, context or self._own_context(key, version), request)
            if hasattr(answer, "__await__"):
                answer = await answer
        except KafkaError as error:
            if error.code == ErrorCode.NOT_CONTROLLER:
                raise  # elected, but not active yet: retry
            answer = api.refuse_now(API_INFO[key].response_class(), request, version, error)
        return answer

    def _own_context(self, key: ApiKey, version: int) -> RequestContext:
        return RequestContext(
            int(key),
            version,
            0,
            f"broker-{self._node_id}",
            session=self._session,
            connection=None,
            received_ms=self._env.clock.mono_ms(),
        )

    async def _send_envelope(
        self,
        connection: "Connection",
        request: Any,
        key: ApiKey,
        version: int | None,
        context: RequestContext,
        timeout_ms: int,
    ) -> memoryview:
        assert version is not None
        envelope = await self._turn().carry_out(seal_envelope(request, key, version, context))
        answer = await connection.send(envelope, timeout_ms=timeout_ms)
        return open_envelope(answer, key, version, context.correlation_id)

    async def _connect(self, leader: int, timeout_ms: int) -> "Connection":
        """The connection to `leader`; concurrent requests share one attempt to open it.

        The kernel accepts connections to a controller that hangs. So each request waits only for
        its own timeout, and the attempt is cancelled as soon as another leader is known.
        """
        if self._connection is not None:
            known, connection = self._connection
            if known == leader and not connection.is_closed:
                return connection
            self._connection = None
            await connection.close()
        if self._opening is None or self._opening[0] != leader:
            self._begin_opening(leader)
        assert self._opening is not None
        attempt = self._opening[1]
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await asyncio.shield(attempt)
        except TimeoutError as error:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"controller {leader} did not accept the connection within {timeout_ms} ms",
            ) from error
        except asyncio.CancelledError as error:
            if not attempt.cancelled() or _is_cancelled():
                raise
            raise KafkaError(
                ErrorCode.NOT_CONTROLLER, f"{leader} is no longer the leader"
            ) from error

    def _begin_opening(self, leader: int) -> None:
        node = self._target.leader_node
        if node is None or node.id != leader:
            raise KafkaError(
                ErrorCode.NOT_CONTROLLER, f"the endpoint of controller {leader} is unknown"
            )
        if self._opening is not None:
            self._opening[1].cancel()
        attempt = asyncio.get_running_loop().create_task(self._open(leader, node))
        attempt.add_done_callback(self._on_attempt)
        self._opening = (leader, attempt)

    async def _open(self, leader: int, node: Any) -> "Connection":
        from sparkraft.client.connection import Connection

        client_id = f"broker-{self._node_id}"
        connection = await Connection.open(
            node.host,
            node.port,
            client_id=client_id,
            connect=self._target.connect,
            login=self._target.login,
        )
        self._connection = (leader, connection)
        return connection

    def _on_attempt(self, attempt: "asyncio.Task[Connection]") -> None:
        if self._opening is not None and self._opening[1] is attempt:
            self._opening = None
        if not attempt.cancelled():
            attempt.exception()  # retrieved: no request may be waiting for it

    def on_leader(self, leader_id: int | None) -> None:
        """Leave the old controller for a new one; None: there is none yet."""
        if leader_id is None:
            return
        if self._opening is not None and self._opening[0] != leader_id:
            self._opening[1].cancel()
        if self._connection is not None and self._connection[0] != leader_id:
            delay_s = LAST_ANSWERS_MS / 1000
            asyncio.get_running_loop().call_later(delay_s, self._leave, *self._connection)

    def _leave(self, known: int, connection: "Connection") -> None:
        if self._target.leader_and_epoch.leader_id != known:
            connection.abort(f"controller {known} is no longer the leader")

    def reconnect(self, why: str) -> None:
        """Abort the connection or the attempt to open one; its requests are retried on another."""
        if self._opening is not None:
            self._opening[1].cancel()
        if self._connection is not None:
            self._connection[1].abort(why)

    async def close(self) -> None:
        """Close the connection and cancel an attempt to open one."""
        if self._opening is not None:
            self._opening[1].cancel()
        if self._connection is not None:
            _, connection = self._connection
            self._connection = None
            await connection.close()


def _is_cancelled() -> bool:
    """Whether the running task itself was cancelled, not only the future it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
