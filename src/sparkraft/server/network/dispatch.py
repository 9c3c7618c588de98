"""From a frame's first bytes to the handler of its request.

A `Route` has everything for one (key, version) on one kind of listener; routes are made at first
use and kept in a dict, so that later requests cost one lookup.

Unserved keys and versions have no route: the connection is closed, as in Kafka. Only ApiVersions
has a response to unknown versions: a v0 body with error 35 (KIP-511).
"""

import struct
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import DecodeError
from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.protocol.codec import decode_from, encode_parts
from sparkraft.protocol.errors import EncodeError
from sparkraft.protocol.headers import request_header_version
from sparkraft.protocol.positions import fixed_position, has_field
from sparkraft.server.api.authorization import is_of_nodes
from sparkraft.server.api.registry import Api, load_api
from sparkraft.server.network.request_times import RequestTimes

if TYPE_CHECKING:
    from collections.abc import Callable

HEADER = struct.Struct(">hhih")
"""request_api_key, request_api_version, correlation_id, length of client_id."""

HEADER_V0_SIZE = 8
"""Bytes of a header without a client id."""

RESPONSE_HEAD = struct.Struct(">ii")
"""size, correlation_id."""

RESPONSE_BYTES_MAX = 0x7FFFFFFF
"""The length prefix is signed; Kafka fails to allocate such a response, and closes."""

HEADER_TAGS_MAX = 16
"""Tagged fields of one request header; Kafka 4.3 defines none, so anything more is an attack."""

CLIENT_IDS_KEPT_MAX = 1024
"""Client ids kept as text, so that a busy client's is decoded once."""


class Route:
    """How requests of one key and version are decoded, handled and responded to on a listener.

    Attributes:
        lacks_client_id: their header has version 0.
        is_exempt: their time has no quota, unless they are denied.
        reports_throttle: responses have a throttle.
        throttle_at: its position in an encoded response; -1: not a fixed one.
        error_at: the same of the error code of a response that a controller has encoded.
        times: how long they took.
        errors: error code → responses with it at the top level.
    """

    __slots__ = (
        "api",
        "decode",
        "error_at",
        "errors",
        "fast",
        "flexible_request",
        "flexible_response",
        "handle",
        "is_exempt",
        "lacks_client_id",
        "pipelined",
        "reports_throttle",
        "request_class",
        "response_class",
        "throttle_at",
        "times",
        "version",
    )

    def __init__(self, api: Api, version: int, *, forwarded: bool = False) -> None:
        """Load the messages of `api` for `version`; `forwarded`: the controller handles it."""
        info = API_INFO[api.key]
        flexible = info.flexible_from is not None and version >= info.flexible_from
        self.api = api
        self.version = version
        self.times = RequestTimes()
        self.errors: dict[int, int] = {}
        self.handle = (api.forward_by or _forward) if forwarded else api.handler
        self.fast = None if forwarded else api.fast
        self.pipelined = api.pipelined
        self.request_class = info.request_class()
        self.response_class = info.response_class()
        self.is_exempt = is_of_nodes(api.authorize) or (api.is_exempt_from_time and not forwarded)
        self.reports_throttle = has_field(self.response_class, version, "throttle_time_ms")
        self.throttle_at = fixed_position(self.response_class, version, "throttle_time_ms")
        self.error_at = -1
        if forwarded:
            self.error_at = fixed_position(self.response_class, version, "error_code")
        self.flexible_request = flexible
        self.lacks_client_id = request_header_version(api.key, version) == 0
        # KIP-511: a client must read this response before it knows the broker's versions.
        self.flexible_response = flexible and api.key != ApiKey.API_VERSIONS
        # Bytes after the request are ignored, as in Kafka: librdkafka's Metadata v13 has some.
        self.decode: Callable[[type, int, Any, int], tuple[Any, int]] = decode_from

    def on_error(self, code: int) -> None:
        """Count a response with an error."""
        self.errors[code] = self.errors.get(code, 0) + 1


class Routes:
    """The routes of one kind of listener."""

    def __init__(
        self, *, controller_listener: bool, zookeeper: bool = False, telemetry: bool = False
    ) -> None:
        """Start empty; routes are added at first use.

        Args:
            controller_listener: whether the listener is for controllers.
            zookeeper: whether the node is a broker in ZooKeeper mode.
            telemetry: whether ApiVersions names the requests of client metrics (KIP-714).
        """
        self.telemetry = telemetry
        self.controller_listener = controller_listener
        self.zookeeper = zookeeper
        self.by_code: dict[int, Route] = {}
        """Key and version as `key << 16 | version` → route, for those used so far."""
        self._client_ids: dict[bytes, str] = {}

    def find(self, key: int, version: int) -> Route | None:
        """The route of `key` and `version`; None if this listener does not serve it."""
        code = key << 16 | (version & 0xFFFF)
        route = self.by_code.get(code)
        if route is None:
            route = self._make(key, version)
            if route is not None:  # an unserved code is not kept: a peer could send 2**32 of them
                self.by_code[code] = route
        return route

    def _make(self, key: int, version: int) -> Route | None:
        if key not in ApiKey.__members__.values():
            return None
        api = load_api(
            ApiKey(key), controller_listener=self.controller_listener, zookeeper=self.zookeeper
        )
        if api is None:
            return None
        lowest, highest = api.version_range()
        if not lowest <= version <= highest:
            return None
        forwarded = api.forward or (self.zookeeper and api.zookeeper_forward)
        return Route(api, version, forwarded=forwarded and not self.controller_listener)

    def client_id(self, raw: bytes) -> str:
        """`raw` as text; DecodeError if it is not UTF-8."""
        known = self._client_ids.get(raw)
        if known is not None:
            return known
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            raise DecodeError("not UTF-8", path="client_id", at=10) from error
        if len(self._client_ids) < CLIENT_IDS_KEPT_MAX and len(raw) <= 256:  # noqa: PLR2004
            self._client_ids[raw] = text
        return text


def _forward(node: Any, context: Any, request: Any) -> Any:
    """Forward the request to the active controller (KIP-590)."""
    return node.forwarding.forward(context, request)


def skip_tagged_fields(frame: memoryview, at: int) -> int:
    """The position after the tagged fields that start at `at` of a request header."""
    count, at = _uvarint(frame, at)
    if count > HEADER_TAGS_MAX:
        raise DecodeError(f"{count} tagged fields in a request header", at=at)
    for _ in range(count):
        _, at = _uvarint(frame, at)
        size, at = _uvarint(frame, at)
        at += size
        if at > len(frame):
            raise DecodeError("a tagged field ends after its frame", at=len(frame))
    return at


def _uvarint(frame: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    for _ in range(5):
        if at >= len(frame):
            raise DecodeError("the frame ends within its header", at=at)
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 (the continuation bit)
            return value, at
        shift += 7
    raise DecodeError("a varint of more than 5 bytes", at=at)


def encode_response(route: Route, correlation_id: int, body: Any) -> list[Any]:
    """A whole response frame as buffers in order; `body` is a message or its encoded buffers."""
    if isinstance(body, bytes):
        parts: list[Any] = [body]
    elif isinstance(body, list):
        parts = body
    else:
        parts = list(encode_parts(body, route.version))
    size = 4 + route.flexible_response
    for part in parts:
        size += len(part)
    if size > RESPONSE_BYTES_MAX:
        raise EncodeError(f"{size} bytes are more than a response may have")
    head = size.to_bytes(4, "big") + correlation_id.to_bytes(4, "big", signed=True)
    if route.flexible_response:
        head += b"\0"
    if len(parts) == 1 and len(parts[0]) < 65536:  # noqa: PLR2004 (small: a copy beats two writes)
        return [head + parts[0]]
    return [head, *parts]
