"""One asyncio connection to one node: requests out, responses matched to their callers.

Invariants:
    * A request that times out closes the connection: every later response would be late as well.
    * A cancelled request stays in flight; its response is dropped when it arrives.
    * While the client authenticates again, requests are held back: the peer accepts only tokens.
    * A response with very many elements is decoded in slices; smaller ones may overtake it.

Not here: encoding and matching (`wire_exchange`); choosing the node and retrying (`cluster`).
TLS is below: `connect` of `Connection.open` provides the transport (`client.security`).
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from types import GeneratorType
from typing import TYPE_CHECKING, Any, TypeVar

from sparkraft.base.errors import DecodeError, ErrorCode, KafkaError
from sparkraft.client.renewal import Renewal
from sparkraft.client.wire_exchange import (
    FRAME_BYTES_MAX,
    WHOLE_ELEMENTS_MAX,
    End,
    FrameReader,
    InFlightRequest,
    WireExchange,
    advance,
    begin_decoding,
    info_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from sparkraft.client.wire_exchange import Step, Steps
    from sparkraft.protocol.api_keys import ApiKey
    from sparkraft.security.login import Credentials
    from sparkraft.tls.dialing import Connect

Result = TypeVar("Result")

REQUEST_TIMEOUT_MS = 30_000
"""Kafka's `request.timeout.ms`."""

CONNECT_TIMEOUT_MS = 10_000
"""Kafka's `socket.connection.setup.timeout.ms`."""

PENDING_MAX = 1_000
"""Requests in flight on one connection; a caller that exceeds it does not wait for responses."""


LOGIN_THREADS = 4
"""For logins that wait for a KDC or a token endpoint, which nothing else has to wait for."""


@cache
def _login_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(LOGIN_THREADS, "login")


class ChannelTraffic:
    """Counters of the connections that share it."""

    __slots__ = ("bytes_in", "bytes_out", "requests", "responses")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.requests = 0
        self.responses = 0


class Connection(asyncio.Protocol):
    """A connection that is ready for requests; created by `Connection.open`.

    Failures are `KafkaError`s: NETWORK_EXCEPTION if the connection is lost, REQUEST_TIMED_OUT if
    no response arrived in time, UNSUPPORTED_VERSION if both sides have no version of a request in
    common.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        frame_bytes_max: int,
        traffic: ChannelTraffic | None = None,
    ) -> None:
        self._traffic = traffic
        self.host = host
        self.port = port
        self.on_close: Callable[[], None] | None = None
        """Called once, when the connection is closed."""
        self._exchange = WireExchange(f"{host}:{port}", client_id=client_id)
        self._frames = FrameReader(frame_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._lost: KafkaError | None = None
        self._closed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._renewal = Renewal(self._start_renewal)
        self._held: list[tuple[list[Any], InFlightRequest | None]] = []
        """Encoded requests that follow the re-authentication."""

    def __repr__(self) -> str:
        return f"<Connection {self.host}:{self.port}{' closed' if self.is_closed else ''}>"

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        """API key → lowest and highest version of the peer; empty without negotiation."""
        return self._exchange.versions

    @property
    def api_versions(self) -> Any:
        """The peer's whole ApiVersions response; None without negotiation."""
        return self._exchange.api_versions

    @classmethod
    async def open(  # noqa: PLR0913 (all but the first two have defaults)
        cls,
        host: str,
        port: int,
        *,
        client_id: str = "sparkraft",
        timeout_ms: int = CONNECT_TIMEOUT_MS,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        negotiate: bool = True,
        connect: Connect | None = None,
        login: Credentials | None = None,
        traffic: ChannelTraffic | None = None,
    ) -> Connection:
        """Connect, negotiate versions unless `negotiate` is false, and authenticate with `login`.

        `connect` opens the transport, by default the running loop's `create_connection`. `traffic`
        counts what is sent and received.

        Raises:
            KafkaError: NETWORK_EXCEPTION if the connection is refused or the peer is not a Kafka
                node, REQUEST_TIMED_OUT if it takes longer than `timeout_ms`,
                SASL_AUTHENTICATION_FAILED or UNSUPPORTED_SASL_MECHANISM if it refuses the login.
        """
        made = cls(
            host, port, client_id=client_id, frame_bytes_max=frame_bytes_max, traffic=traffic
        )
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                dial = connect or asyncio.get_running_loop().create_connection
                await dial(lambda: made, host, port)
                if negotiate:
                    await made._take_steps(made._exchange.negotiation(), timeout_ms)
                if login is not None:
                    steps = made._authentication(login)
                    made._renewal.schedule(
                        login, await made._take_steps(steps, timeout_ms, blocks=login.blocks)
                    )
        except TimeoutError as error:
            made.abort("the connection took too long to set up")
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"{host}:{port} did not respond within {timeout_ms} ms"
            ) from error
        except OSError as error:
            raise KafkaError(
                ErrorCode.NETWORK_EXCEPTION, f"cannot connect to {host}:{port}: {_reason(error)}"
            ) from error
        except BaseException:
            made.abort("it was not set up")
            raise
        return made

    @property
    def is_closed(self) -> bool:
        return self._lost is not None

    @property
    def is_receiving(self) -> bool:
        """Whether part of a response has arrived."""
        return self._frames.in_frame

    def version_for(self, key: ApiKey, *, at_most: int | None = None) -> int:
        """Return the highest version of `key` that both sides support; see `WireExchange`."""
        return self._exchange.version_for(key, at_most=at_most)

    async def send(
        self, request: Any, *, version: int | None = None, timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> Any:
        """Send `request` and return its response, an instance of the response's class.

        Args:
            request: a request message.
            version: the version to encode it in; by default the highest both sides support.
            timeout_ms: the connection is closed if the response takes longer.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._writable.wait()
                return await self.send_nowait(request, version=version)
        except TimeoutError as error:
            name = type(request).__name__
            self.abort(f"no response to {name} within {timeout_ms} ms")
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{self.host}:{self.port} did not respond to {name} within {timeout_ms} ms",
            ) from error

    def send_nowait(self, request: Any, *, version: int | None = None) -> asyncio.Future[Any]:
        """Send `request` now, after those in flight; the future gets its response.

        For pipelining. Nothing bounds the wait: put a timeout around the future.
        """
        buffers, in_flight = self._encode(request, version)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        in_flight.waiter = future
        self._write(buffers, in_flight)
        return future

    def send_without_answer(self, request: Any, *, version: int | None = None) -> None:
        """Send a request that has no response: Produce with acks=0."""
        self._write(self._encode(request, version)[0], None)

    def abort(self, reason: str) -> None:
        """Close at once; requests in flight fail with NETWORK_EXCEPTION and `reason`."""
        self._fail(KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{self.host}:{self.port}: {reason}"))
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Close, and return when the socket is closed."""
        self._fail(KafkaError(ErrorCode.NETWORK_EXCEPTION, "the connection was closed here"))
        if self._transport is None:
            return
        self._transport.close()
        try:
            # One second: a peer that does not read must not delay us.
            async with asyncio.timeout(1):
                await self._closed.wait()
        except TimeoutError:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Return when the connection is closed, by either side."""
        await self._closed.wait()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        traffic = self._traffic
        if traffic is not None:
            traffic.bytes_in += len(data)
        try:
            for frame in self._frames.feed(data):
                if traffic is not None:
                    traffic.responses += 1
                self._on_frame(frame)
        except DecodeError as error:
            self.abort(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        reason = str(exc) if exc else "the peer closed the connection"
        self._fail(KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{self.host}:{self.port}: {reason}"))
        self._writable.set()
        self._closed.set()
        if self.on_close is not None:
            self.on_close()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _encode(self, request: Any, version: int | None) -> tuple[list[Any], InFlightRequest]:
        if self._lost is not None:
            raise KafkaError(self._lost.code, self._lost.detail)
        if len(self._exchange.in_flight) + len(self._held) >= PENDING_MAX:
            raise KafkaError(
                ErrorCode.NETWORK_EXCEPTION, f"{PENDING_MAX} requests are already in flight"
            )
        assert self._transport is not None, "not connected"
        if version is None:
            version = self.version_for(info_of(request).key)
        return self._exchange.encode(request, version)

    def _write(self, buffers: list[Any], in_flight: InFlightRequest | None) -> None:
        """Send an encoded request, or hold it back; `in_flight` is None if it has no response."""
        if self._renewal.is_running:
            self._held.append((buffers, in_flight))
            return
        self._transmit(buffers, in_flight)

    def _transmit(self, buffers: list[Any], in_flight: InFlightRequest | None) -> None:
        assert self._transport is not None
        if self._traffic is not None:
            self._traffic.requests += 1
            self._traffic.bytes_out += sum(map(len, buffers))
        self._transport.writelines(buffers)
        if in_flight is not None:
            self._exchange.in_flight.append(in_flight)

    # ---- re-authentication

    def _authentication(self, login: Credentials) -> Steps[int]:
        return self._exchange.authentication(login, secrets.token_urlsafe(24), self.host)

    def _start_renewal(self, login: Credentials) -> None:
        """Authenticate again, by callbacks: a task would outlive the connection."""
        self._renew(self._authentication(login), None, blocks=login.blocks)

    def _renew(self, steps: Steps[int], response: Any, *, blocks: bool) -> None:
        """Continue with the response to the last request; in a thread if the steps block.

        A refusal is taken at once: the peer closes the connection after it.
        """
        refusal: int = getattr(response, "error_code", 0)
        if not blocks or refusal:
            self._on_renewal_step(steps, partial(advance, steps, response), blocks=blocks)
            return
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(_login_threads(), advance, steps, response)
        work.add_done_callback(lambda done: self._on_renewal_step(steps, done.result, blocks=True))

    def _on_renewal_step(
        self, steps: Steps[int], result: Callable[[], Step | End[int]], *, blocks: bool
    ) -> None:
        try:
            found = result()
        except KafkaError as error:
            self._fail(error)
            if self._transport is not None:
                self._transport.abort()
            return
        if self._lost is not None:
            return
        if isinstance(found, End):
            self._renewal.complete(found.value)
            held, self._held = self._held, []
            for buffers, in_flight in held:
                self._transmit(buffers, in_flight)
            return
        buffers, in_flight = self._exchange.encode(*found)
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        in_flight.waiter = waiter

        def on_response(done: asyncio.Future[Any]) -> None:
            if not done.cancelled() and done.exception() is None:  # else the connection is lost
                self._renew(steps, done.result(), blocks=blocks)

        waiter.add_done_callback(on_response)
        self._transmit(buffers, in_flight)

    def _on_frame(self, frame: memoryview) -> None:
        in_flight = self._exchange.match(frame)
        if in_flight.waiter.done():
            return
        try:
            response = begin_decoding(in_flight, frame)
        except DecodeError:
            self._exchange.in_flight.appendleft(in_flight)  # fails with the connection
            raise
        if isinstance(response, GeneratorType):
            self._decode_slice(in_flight, response)
        else:
            in_flight.waiter.set_result(response)

    def _decode_slice(self, in_flight: InFlightRequest, steps: Generator[int, None, Any]) -> None:
        """Decode a part of a response with very many elements; the rest in the next iteration."""
        waiter = in_flight.waiter
        if waiter.done():
            return
        try:
            elements = 0
            while elements < WHOLE_ELEMENTS_MAX:
                elements += next(steps)
        except StopIteration as end:
            waiter.set_result(end.value)
        except DecodeError as error:
            text = f"{self.host}:{self.port}: {error}"
            waiter.set_exception(KafkaError(ErrorCode.NETWORK_EXCEPTION, text))
            self.abort(str(error))
        else:
            asyncio.get_running_loop().call_soon(self._decode_slice, in_flight, steps)

    def _fail(self, error: KafkaError) -> None:
        if self._lost is not None:
            return
        self._lost = error
        self._renewal.cancel()
        held = [in_flight for _, in_flight in self._held if in_flight is not None]
        for in_flight in (*self._exchange.in_flight, *held):
            if not in_flight.waiter.done():
                # One error each: an exception that is raised twice grows its traceback.
                in_flight.waiter.set_exception(KafkaError(error.code, error.detail))
        self._exchange.in_flight.clear()
        self._held.clear()

    async def _take_steps(
        self, steps: Steps[Result], timeout_ms: int, *, blocks: bool = False
    ) -> Result:
        """Send the requests of `steps`; they continue in a thread if they block."""
        response = None
        while True:
            if blocks:
                loop = asyncio.get_running_loop()
                found = await loop.run_in_executor(_login_threads(), advance, steps, response)
            else:
                found = advance(steps, response)
            if isinstance(found, End):
                return found.value
            request, version = found
            response = await self.send(request, version=version, timeout_ms=timeout_ms)


def _reason(error: OSError) -> str:
    """Return the system's text: asyncio's own repeats the addresses."""
    numbers = re.findall(r"\[Errno (\d+)\]", str(error))
    texts = dict.fromkeys(os.strerror(int(each)) for each in numbers)
    return ", ".join(texts) or error.strerror or str(error)
