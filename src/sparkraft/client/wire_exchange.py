"""Requests and responses of one connection, without I/O: the core of every client.

    [length: int32][request header | body]  ->
    <-  [length: int32][response header | body]

A Kafka node responds to the requests of a connection in order, so the requests in flight are a
queue; a response with a correlation id other than the oldest request's means a broken peer.

    exchange = WireExchange("localhost:9092", client_id="me")
    for each request:    buffers, in_flight = exchange.encode(request, version)
    for each frame:      in_flight = exchange.match(frame)
                         response = decode_response(in_flight, frame)

The asyncio client (`connection`, also used between nodes) and Spark's blocking client
(`sparkraft.pipeline.wire`) are shells around it: they own the socket, timeouts and waiting callers.

Not here: sockets; choosing the node and retrying (`cluster`).
"""

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import sparkraft
from sparkraft.base.errors import DecodeError, ErrorCode, KafkaError
from sparkraft.base.loop_work import LoopBound
from sparkraft.protocol import codec, headers
from sparkraft.protocol.api_keys import API_INFO, ApiInfo, ApiKey
from sparkraft.security.sasl import SaslError

if TYPE_CHECKING:
    from sparkraft.security.login import Credentials
    from sparkraft.security.sasl import SaslClient

Result = TypeVar("Result")
Step = tuple[Any, int]
"""A request and its version."""
Steps = Generator[Step, Any, Result]
"""Requests one after another, each depending on the response to the one before."""

FRAME_BYTES_MAX = 256 << 20
"""Longest response accepted: Kafka's `fetch.max.bytes` is 50 MiB, and one batch may exceed it."""

LENGTH_BYTES = 4
_CORRELATION_BYTES = 4
_CORRELATION_ID_MAX = 0x7FFFFFFF
_CLIENT_SOFTWARE = "sparkraft"


def info_of(request: Any) -> ApiInfo:
    """Return the API of a request message."""
    return API_INFO[ApiKey(request.SCHEMA.key)]


def checked_length(raw: bytes | bytearray | memoryview, frame_bytes_max: int) -> int:
    """Return the length in a frame's prefix; DecodeError if no response can have it."""
    length = int.from_bytes(raw, "big", signed=True)
    if not _CORRELATION_BYTES <= length <= frame_bytes_max:
        raise DecodeError(f"a frame of {length} bytes is not a Kafka response")
    return length


@dataclass(frozen=True, slots=True)
class End(Generic[Result]):
    """The result of `Steps`."""

    value: Result


def advance(steps: Steps[Result], response: Any) -> Step | End[Result]:
    """Give `steps` a response, None at first: the next request, or the end.

    Unlike a `StopIteration`, the end can be the result of a future.
    """
    try:
        return steps.send(response)
    except StopIteration as end:
        return End(end.value)


class InFlightRequest:
    """A request without a response yet.

    Attributes:
        waiter: belongs to the shell, such as the future of the caller.
    """

    __slots__ = ("correlation_id", "header_version", "response_class", "version", "waiter")

    def __init__(self, correlation_id: int, info: ApiInfo, version: int) -> None:
        self.correlation_id = correlation_id
        self.version = version
        self.header_version = headers.response_header_version(info.key, version)
        self.response_class = info.response_class()
        self.waiter: Any = None


class WireExchange:
    """The requests of one connection.

    Args:
        peer: `host:port`, named in errors.
        client_id: sent in every request header.
    """

    def __init__(self, peer: str, *, client_id: str) -> None:
        self.peer = peer
        self.client_id = client_id
        self.versions: dict[int, tuple[int, int]] = {}
        """API key → lowest and highest version of the peer; empty before the negotiation."""
        self.api_versions: Any = None
        """The peer's whole ApiVersions response; None before the negotiation."""
        self.in_flight: deque[InFlightRequest] = deque()
        """Oldest first."""
        self._correlation_id = 0

    def version_for(self, key: ApiKey, *, at_most: int | None = None) -> int:
        """Return the highest version of `key` that both sides support, not above `at_most`.

        Raises:
            KafkaError: UNSUPPORTED_VERSION if there is none.
        """
        info = API_INFO[key]
        highest = info.max_version if at_most is None else min(info.max_version, at_most)
        lowest = info.min_version
        if self.versions and not info.is_own:  # our own APIs are never advertised
            theirs = self.versions.get(int(key))
            if theirs is None:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, self._unserved(info.name))
            lowest, highest = max(lowest, theirs[0]), min(highest, theirs[1])
        if lowest > highest:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self.peer} and this client have no version of {info.name} in common",
            )
        return highest

    def _unserved(self, name: str) -> str:
        # BrokerRegistration is served on controller listeners only, Metadata on those of brokers.
        is_controller = ApiKey.BROKER_REGISTRATION in self.versions
        if is_controller and ApiKey.METADATA not in self.versions:
            return f"{self.peer} is a controller and does not serve {name}; connect to a broker"
        return f"{self.peer} does not serve {name}"

    def encode(self, request: Any, version: int) -> tuple[list[Any], InFlightRequest]:
        """Encode a request as buffers to write in order; it is not in flight yet.

        The caller appends the second value to `in_flight` unless the peer sends no response, as
        for Produce with acks=0.
        """
        info = info_of(request)
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
        in_flight = InFlightRequest(self._correlation_id, info, version)
        return [length.to_bytes(LENGTH_BYTES, "big"), head, *parts], in_flight

    def match(self, frame: memoryview) -> InFlightRequest:
        """Take the oldest request out of flight, whose response `frame` must be.

        Raises:
            DecodeError: it is not; the queue stays as it is.
        """
        if not self.in_flight:
            raise DecodeError("a response without a request")
        oldest = self.in_flight[0]
        correlation_id = int.from_bytes(frame[:_CORRELATION_BYTES], "big", signed=True)
        if correlation_id != oldest.correlation_id:
            raise DecodeError(
                f"expected the response to request {oldest.correlation_id}, got {correlation_id}"
            )
        return self.in_flight.popleft()

    def negotiation(self) -> Generator[tuple[Any, int], Any, None]:
        """Negotiate versions: yields ApiVersions requests with their version, is sent responses.

        A peer that does not support our version of ApiVersions responds in v0 and names its own,
        in which the request is repeated (KIP-511).

        Raises:
            KafkaError: the peer refused.
        """
        highest = API_INFO[ApiKey.API_VERSIONS].max_version
        response = yield _versions_request(), highest
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            known = {entry.api_key: entry.max_version for entry in response.api_keys}
            response = yield (
                _versions_request(),
                min(known.get(int(ApiKey.API_VERSIONS), 0), highest),
            )
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code), f"{self.peer} refused ApiVersions")
        self.versions = {
            entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys
        }
        self.api_versions = response

    def authentication(self, login: "Credentials", nonce: str, host: str) -> Steps[int]:
        """Authenticate by SASL, after the negotiation: as `negotiation` (KIP-43, KIP-152).

        Returns the time in ms after which the peer refuses requests, unless the client
        authenticates again on the same connection (KIP-368); 0: never. `nonce` is random, printable
        and without a comma; `host` is the peer's name, for Kerberos. If the credentials block, so
        does this generator.

        Raises:
            KafkaError: UNSUPPORTED_SASL_MECHANISM if the peer does not offer the mechanism,
                SASL_AUTHENTICATION_FAILED if it refuses the credentials.
        """
        key = ApiKey.SASL_HANDSHAKE
        handshake = API_INFO[key].request_class()(mechanism=login.mechanism)
        response = yield handshake, self.version_for(key)
        if response.error_code:
            offered = ", ".join(response.mechanisms) or "none"
            raise KafkaError(
                ErrorCode(response.error_code),
                f"{self.peer} refused SASL mechanism {login.mechanism}; it offers {offered}",
            )
        try:
            return (yield from self._tokens(login.client(nonce, host)))
        except SaslError as failure:
            raise KafkaError(
                ErrorCode.SASL_AUTHENTICATION_FAILED, f"{self.peer}: {failure}"
            ) from None

    def _tokens(self, client: "SaslClient") -> Steps[int]:
        key = ApiKey.SASL_AUTHENTICATE
        token: bytes | None = client.first()
        lifetime_ms = 0
        while token is not None:
            request = API_INFO[key].request_class()(auth_bytes=token)
            response = yield request, self.version_for(key)
            if response.error_code:
                text = response.error_message or "authentication failed"
                raise KafkaError(ErrorCode(response.error_code), f"{self.peer}: {text}")
            lifetime_ms = response.session_lifetime_ms
            token = client.respond(bytes(response.auth_bytes))
        return lifetime_ms


def _versions_request() -> Any:
    return API_INFO[ApiKey.API_VERSIONS].request_class()(
        client_software_name=_CLIENT_SOFTWARE, client_software_version=sparkraft.__version__
    )


WHOLE_BYTES_MAX: LoopBound = 64 * 1024
"""Responses up to this are decoded in one piece: at most 5 ms, for 30,000 names of one byte."""

WHOLE_ELEMENTS_MAX: LoopBound = 1_000
"""Topics and partitions of a longer response that is decoded in one piece; records are not."""


def decode_response(in_flight: InFlightRequest, frame: memoryview) -> Any:
    """Decode the response to a request; DecodeError if the bytes are not one."""
    version, body = _body_of(in_flight, frame)
    return codec.decode(in_flight.response_class, version, body)


def begin_decoding(in_flight: InFlightRequest, frame: memoryview) -> Any:
    """Decode a response, or return the steps to it if it has very many elements.

    The steps yield the elements that they have decoded.

    Raises:
        DecodeError: the bytes are not a response; also raised by the steps.
    """
    version, body = _body_of(in_flight, frame)
    cls = in_flight.response_class
    if len(body) <= WHOLE_BYTES_MAX:
        return codec.decode(cls, version, body)
    few = codec.decode_few(cls, version, body, WHOLE_ELEMENTS_MAX)
    if few is not None:
        return few
    return codec.decode_slices(cls, version, body, codec.RESPONSE_ELEMENT_BUDGET)


def _body_of(in_flight: InFlightRequest, frame: memoryview) -> tuple[int, memoryview]:
    """The version of a response, and its body."""
    body = frame[_end_of_header(frame, in_flight.header_version) :]
    is_versions = in_flight.response_class.__name__ == "ApiVersionsResponse"
    refused = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
    version = 0 if is_versions and body[:2] == refused else in_flight.version
    return version, body


def _end_of_header(frame: memoryview, header_version: int) -> int:
    """Return the start of the body; header v1 has tagged fields, of which Kafka defines none."""
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
    raise DecodeError("the frame ends within its response header", at=at)


class FrameReader:
    """Splits a stream of received chunks into frames.

    Memory for a frame grows as its bytes arrive, never by the length it announces.
    """

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._head = bytearray()
        self._body = bytearray()
        self._missing = 0

    def feed(self, chunk: bytes) -> list[memoryview]:
        """Return the frames that `chunk` completes, without length; DecodeError if one is too long.

        A frame is a view of `chunk`, or of an array that is not used again.
        """
        frames: list[memoryview] = []
        view = memoryview(chunk)
        at = 0
        while at < len(view):
            if self._missing:
                at = self._fill_body(view, at, frames)
            elif not self._head and len(view) - at >= LENGTH_BYTES:
                length = checked_length(view[at : at + LENGTH_BYTES], self._frame_bytes_max)
                at += LENGTH_BYTES
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
        taken = view[at : at + LENGTH_BYTES - len(self._head)]
        self._head += taken
        if len(self._head) == LENGTH_BYTES:
            self._missing = checked_length(self._head, self._frame_bytes_max)
            self._head.clear()
        return at + len(taken)

    def _fill_body(self, view: memoryview, at: int, frames: list[memoryview]) -> int:
        taken = view[at : at + self._missing]
        self._body += taken
        self._missing -= len(taken)
        if not self._missing:
            frames.append(memoryview(self._body))  # handed over without another copy
            self._body = bytearray()
        return at + len(taken)
