"""One connection to one node: frames out, frames in, answers matched to requests.

    [length: int32][request header | body]  ->
    <-  [length: int32][response header | body]

Kafka answers the requests of a connection in order, so the pending requests are a queue, and
an answer that carries another correlation id than the oldest request is a broken peer.

Invariants:
    * A request whose timer ran out closes the connection: what is behind it would wait as well.
    * A cancelled request keeps its place in the queue; its answer is dropped when it comes.
    * Memory for a frame grows as its bytes arrive, never by what its length promises.

Not here: which node to ask and whether to ask again (`cluster`).    Not done: TLS, SASL.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

import sparkraft
from sparkraft.base.errors import DecodeError, ErrorCode, KafkaError
from sparkraft.protocol import codec, headers
from sparkraft.protocol.api_keys import API_INFO, ApiInfo, ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

REQUEST_TIMEOUT_MS = 30_000
"""Kafka's `request.timeout.ms`."""

CONNECT_TIMEOUT_MS = 10_000
"""Kafka's `socket.connection.setup.timeout.ms`."""

FRAME_BYTES_MAX = 256 << 20
"""A longer answer is refused: Kafka's `fetch.max.bytes` is 50 MiB, one batch more may follow."""

PENDING_MAX = 1_000
"""Requests in flight on one connection; more is a caller that forgot to wait."""

_CLIENT_SOFTWARE = "sparkraft"
_LENGTH_BYTES = 4
_CORRELATION_BYTES = 4
_CORRELATION_ID_MAX = 0x7FFFFFFF

Reply = TypeVar("Reply")


class _Pending:
    """A request that waits for its answer."""

    __slots__ = ("correlation_id", "future", "header_version", "response_class", "version")

    def __init__(self, correlation_id: int, info: ApiInfo, version: int) -> None:
        self.correlation_id = correlation_id
        self.version = version
        self.header_version = headers.response_header_version(info.key, version)
        self.response_class = info.response_class()
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class _Frames:
    """Cuts a stream of chunks into frames."""

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._head = bytearray()
        self._body = bytearray()
        self._missing = 0

    def feed(self, chunk: bytes) -> list[memoryview]:
        """The frames that `chunk` completes, without their length; `DecodeError` if too long."""
        frames: list[memoryview] = []
        view = memoryview(chunk)
        at = 0
        while at < len(view):
            if self._missing:
                at = self._fill_body(view, at, frames)
            elif not self._head and len(view) - at >= _LENGTH_BYTES:
                length = self._checked(view[at : at + _LENGTH_BYTES])
                at += _LENGTH_BYTES
                if len(view) - at >= length:
                    frames.append(view[at : at + length])
                    at += length
                else:
                    self._missing = length
            else:
                at = self._fill_head(view, at)
        return frames

    @property
    def in_frame(self) -> bool:
        """Whether a frame has begun and not ended."""
        return bool(self._missing or self._head)

    def _fill_head(self, view: memoryview, at: int) -> int:
        taken = view[at : at + _LENGTH_BYTES - len(self._head)]
        self._head += taken
        if len(self._head) == _LENGTH_BYTES:
            self._missing = self._checked(self._head)
            self._head.clear()
        return at + len(taken)

    def _fill_body(self, view: memoryview, at: int, frames: list[memoryview]) -> int:
        taken = view[at : at + self._missing]
        self._body += taken
        self._missing -= len(taken)
        if not self._missing:
            # The array goes to its reader as it is, without another copy.
            frames.append(memoryview(self._body))
            self._body = bytearray()
        return at + len(taken)

    def _checked(self, raw: memoryview | bytearray) -> int:
        length = int.from_bytes(raw, "big", signed=True)
        if not _CORRELATION_BYTES <= length <= self._frame_bytes_max:
            raise DecodeError(f"a frame of {length} bytes is not a Kafka response")
        return length


class Connection(asyncio.Protocol):
    """A connection that is ready for requests; made by `Connection.open`.

    Failures are `KafkaError`s: NETWORK_EXCEPTION when the connection is or gets lost,
    REQUEST_TIMED_OUT when no answer came in time, UNSUPPORTED_VERSION when the peer and we have
    no version of a request in common.
    """

    def __init__(self, host: str, port: int, *, client_id: str, frame_bytes_max: int) -> None:
        """Prepare; `open` connects."""
        self.host = host
        self.port = port
        self.client_id = client_id
        self.versions: dict[int, tuple[int, int]] = {}
        """API key → lowest and highest version the peer takes; empty without negotiation."""
        self.api_versions: Any = None
        """The peer's whole ApiVersions answer; None without negotiation."""
        self.on_close: Callable[[], None] | None = None
        """Called once, when the connection is gone."""
        self._frames = _Frames(frame_bytes_max)
        self._pending: deque[_Pending] = deque()
        self._correlation_id = 0
        self._transport: asyncio.Transport | None = None
        self._lost: KafkaError | None = None
        self._gone = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    def __repr__(self) -> str:
        """Whom it connects and whether it still does."""
        return f"<Connection {self.host}:{self.port}{' closed' if self.is_closed else ''}>"

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str = "sparkraft",
        timeout_ms: int = CONNECT_TIMEOUT_MS,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        negotiate: bool = True,
    ) -> Connection:
        """Connect, and ask which versions the peer speaks unless `negotiate` is false.

        Raises:
            KafkaError: NETWORK_EXCEPTION if nobody listens there or the peer is no Kafka node,
                REQUEST_TIMED_OUT if it takes longer than `timeout_ms`.
        """
        made = cls(host, port, client_id=client_id, frame_bytes_max=frame_bytes_max)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await asyncio.get_running_loop().create_connection(lambda: made, host, port)
                if negotiate:
                    await made._negotiate(timeout_ms)
        except TimeoutError as error:
            made.abort("the connection took too long to set up")
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"{host}:{port} did not answer within {timeout_ms} ms"
            ) from error
        except OSError as error:
            raise KafkaError(
                ErrorCode.NETWORK_EXCEPTION, f"can't connect to {host}:{port}: {_why(error)}"
            ) from error
        except BaseException:
            made.abort("negotiation failed")
            raise
        return made

    @property
    def is_closed(self) -> bool:
        """Whether it is of no more use."""
        return self._lost is not None

    @property
    def is_receiving(self) -> bool:
        """Whether an answer has begun to arrive and hasn't ended."""
        return self._frames.in_frame

    @property
    def pending_count(self) -> int:
        """Requests that wait for their answer."""
        return len(self._pending)

    def version_for(self, key: ApiKey, *, at_most: int | None = None) -> int:
        """The highest version of `key` that both sides know, not above `at_most`.

        Raises:
            KafkaError: UNSUPPORTED_VERSION where there is none.
        """
        info = API_INFO[key]
        highest = info.max_version if at_most is None else min(info.max_version, at_most)
        lowest = info.min_version
        if self.versions and not info.is_own:  # ours are never advertised
            theirs = self.versions.get(int(key))
            if theirs is None:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"{self.host}:{self.port} does not serve {info.name}",
                )
            lowest, highest = max(lowest, theirs[0]), min(highest, theirs[1])
        if lowest > highest:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self.host}:{self.port} and we have no version of {info.name} in common",
            )
        return highest

    async def send(
        self, request: Any, *, version: int | None = None, timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> Any:
        """Send `request` and wait for its answer, an instance of the response's class.

        Args:
            request: a request message.
            version: the version to encode it in; the highest both sides know by default.
            timeout_ms: how long to wait; the connection is closed when it runs out.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._writable.wait()
                return await self.send_nowait(request, version=version)
        except TimeoutError as error:
            name = type(request).__name__
            self.abort(f"no answer to {name} within {timeout_ms} ms")
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{self.host}:{self.port} did not answer {name} within {timeout_ms} ms",
            ) from error

    def send_nowait(self, request: Any, *, version: int | None = None) -> asyncio.Future[Any]:
        """Send `request` now, behind those in flight; the future is its answer.

        For pipelining. Nothing bounds the wait: put a timeout around the future.
        """
        info = _info_of(request)
        if version is None:
            version = self.version_for(info.key)
        pending = self._write(request, info, version)
        self._pending.append(pending)
        return pending.future

    def send_without_answer(self, request: Any, *, version: int | None = None) -> None:
        """Send a request that the peer does not answer: Produce with acks=0."""
        info = _info_of(request)
        self._write(request, info, self.version_for(info.key) if version is None else version)

    def abort(self, reason: str) -> None:
        """Close at once; pending requests fail with NETWORK_EXCEPTION and `reason`."""
        self._fail(KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{self.host}:{self.port}: {reason}"))
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Close, and return when the socket is gone."""
        self._fail(KafkaError(ErrorCode.NETWORK_EXCEPTION, "the connection was closed here"))
        if self._transport is None:
            return
        self._transport.close()
        try:
            # One second: a peer that reads nothing must not hold up our end.
            async with asyncio.timeout(1):
                await self._gone.wait()
        except TimeoutError:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Return when the connection is gone, whoever ended it."""
        await self._gone.wait()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Bytes came: finish what they complete."""
        try:
            for frame in self._frames.feed(data):
                self._on_frame(frame)
        except DecodeError as error:
            self.abort(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        reason = str(exc) if exc else "the peer closed the connection"
        self._fail(KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{self.host}:{self.port}: {reason}"))
        self._writable.set()
        self._gone.set()
        if self.on_close is not None:
            self.on_close()

    def pause_writing(self) -> None:
        """The peer reads slower than we write."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The peer caught up."""
        self._writable.set()

    # inner works

    def _write(self, request: Any, info: ApiInfo, version: int) -> _Pending:
        if self._lost is not None:
            raise KafkaError(self._lost.code, self._lost.detail)
        if len(self._pending) >= PENDING_MAX:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{PENDING_MAX} requests wait already")
        assert self._transport is not None, "not connected"
        self._correlation_id = (self._correlation_id + 1) & _CORRELATION_ID_MAX
        header = headers.RequestHeader(
            request_api_key=int(info.key),
            request_api_version=version,
            correlation_id=self._correlation_id,
            client_id=self.client_id,
        )
        head = codec.encode(header, headers.request_header_version(info.key, version))
        parts = codec.encode_parts(request, version)
        length = len(head) + sum(map(len, parts))
        pending = _Pending(self._correlation_id, info, version)
        self._transport.writelines([length.to_bytes(_LENGTH_BYTES, "big"), head, *parts])
        return pending

    def _on_frame(self, frame: memoryview) -> None:
        if not self._pending:
            raise DecodeError("an answer to no request")
        pending = self._pending.popleft()
        correlation_id = int.from_bytes(frame[:_CORRELATION_BYTES], "big", signed=True)
        if correlation_id != pending.correlation_id:
            self._pending.appendleft(pending)
            raise DecodeError(f"answer {correlation_id} where {pending.correlation_id} is due")
        if pending.future.done():
            return
        try:
            at = _end_of_header(frame, pending.header_version)
            answer = _decode(pending, frame[at:])
        except DecodeError:
            self._pending.appendleft(pending)
            raise
        pending.future.set_result(answer)

    def _fail(self, error: KafkaError) -> None:
        if self._lost is not None:
            return
        self._lost = error
        for pending in self._pending:
            if not pending.future.done():
                # Each its own: an exception that is raised twice grows its traceback.
                pending.future.set_exception(KafkaError(error.code, error.detail))
        self._pending.clear()

    async def _negotiate(self, timeout_ms: int) -> None:
        """Ask for the peer's versions; KIP-511: one that knows only older ones answers in v0."""
        highest = API_INFO[ApiKey.API_VERSIONS].max_version
        answer = await self._ask_versions(highest, timeout_ms)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            known = {entry.api_key: entry.max_version for entry in answer.api_keys}
            fallback = min(known.get(int(ApiKey.API_VERSIONS), 0), highest)
            answer = await self._ask_versions(fallback, timeout_ms)
        if answer.error_code:
            raise KafkaError(
                ErrorCode(answer.error_code), f"{self.host}:{self.port} refused ApiVersions"
            )
        self.versions = {
            entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys
        }
        self.api_versions = answer

    async def _ask_versions(self, version: int, timeout_ms: int) -> Any:
        request = API_INFO[ApiKey.API_VERSIONS].request_class()(
            client_software_name=_CLIENT_SOFTWARE, client_software_version=sparkraft.__version__
        )
        return await self.send(request, version=version, timeout_ms=timeout_ms)


def _why(error: OSError) -> str:
    """In the system's words: asyncio puts its own and the addresses once more in their place."""
    numbers = re.findall(r"\[Errno (\d+)\]", str(error))
    said = dict.fromkeys(os.strerror(int(each)) for each in numbers)
    return ", ".join(said) or error.strerror or str(error)


def _decode(pending: _Pending, body: memoryview) -> Any:
    is_versions = pending.response_class.__name__ == "ApiVersionsResponse"
    refused = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
    version = 0 if is_versions and body[:2] == refused else pending.version
    return codec.decode(pending.response_class, version, body)


def _end_of_header(frame: memoryview, header_version: int) -> int:
    """Where the body starts; header v1 has tagged fields, of which Kafka defines none."""
    if header_version == 0:
        return _CORRELATION_BYTES
    if len(frame) > _CORRELATION_BYTES and frame[_CORRELATION_BYTES] == 0:
        return _CORRELATION_BYTES + 1
    count, at = _read_unsigned(frame, _CORRELATION_BYTES)
    for _ in range(count):
        _, at = _read_unsigned(frame, at)
        size, at = _read_unsigned(frame, at)
        at += size
    return at


def _read_unsigned(frame: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(frame):
            break
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 (the continuation bit)
            return value, at
    raise DecodeError("a response header that ends early", at=at)


def _info_of(request: Any) -> ApiInfo:
    return API_INFO[ApiKey(request.SCHEMA.key)]
