"""Bytes of Produce requests and Fetch responses against the quotas of their client (KIP-219).

A response leaves at once with `throttle_time_ms`, and the connection then reads no requests for
that time (`Connection.mute`). Kafka sends an empty response to a Fetch that exceeds its quota; ours
has its records, and the client waits afterwards. Fetches of replicas have no quota.

Not here: the time of requests (`request_time`).
"""

from typing import TYPE_CHECKING, Any

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.security.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from sparkraft.server.network.request_time import is_replicas

if TYPE_CHECKING:
    from sparkraft.security.client_quotas import ClientQuotas
    from sparkraft.server.api.registry import RequestContext
    from sparkraft.server.network.dispatch import Route

THROTTLE_BYTES = 4

_HEAD_BYTES = 8
"""Size and correlation id; a flexible response has one more byte."""


def throttle_of_request(
    quotas: "ClientQuotas", route: "Route", context: "RequestContext", size: int
) -> int:
    """Record a request of `size` bytes, and return its client's throttle in ms."""
    if route.api.key is not ApiKey.PRODUCE:
        return 0
    user = context.principal.name
    return quotas.record(PRODUCER_BYTE_RATE, user, context.client_id, size, context.received_ms)


def is_unlimited(quotas: "ClientQuotas", user: str, client_id: str) -> bool:
    """Whether Produce requests of a client need no record, although some quota is set."""
    if not quotas.is_active:
        return True
    if quotas.limit_of(PRODUCER_BYTE_RATE, user, client_id) is not None:
        return False
    return not quotas.measures_time or quotas.limit_of(REQUEST_PERCENTAGE, user, client_id) is None


def report_throttle(route: "Route", response: Any, throttle_ms: int) -> None:
    """Put a throttle into a response that is not encoded yet, if its version has a place for it."""
    if not isinstance(response, bytes | list) and route.reports_throttle:
        response.throttle_time_ms = max(throttle_ms, response.throttle_time_ms)


def error_in_bytes(route: "Route", response: Any) -> int:
    """The error code of a response that a controller has encoded; 0: none, or not forwarded."""
    at = route.error_at
    if at < 0 or not isinstance(response, list):
        return 0
    return int.from_bytes(response[0][at : at + 2], "big", signed=True)


def report_in_bytes(route: "Route", response: Any, parts: list[Any], throttle_ms: int) -> None:
    """Put a throttle into the frame of a response that was encoded by its handler."""
    if isinstance(response, bytes | list) and route.throttle_at >= 0:
        at = _HEAD_BYTES + route.flexible_response + route.throttle_at
        _put_throttle(parts, at, throttle_ms)


def throttle_of_response(
    quotas: "ClientQuotas",
    route: "Route",
    context: "RequestContext",
    request: Any,
    parts: list[Any],
    now: int,
) -> int:
    """Record a response frame, put its client's throttle into it, and return it in ms."""
    if route.api.key is not ApiKey.FETCH or is_replicas(context, request):
        return 0
    size = sum(map(len, parts))
    user = context.principal.name
    throttle_ms = quotas.record(CONSUMER_BYTE_RATE, user, context.client_id, size, now)
    if throttle_ms > context.throttle_ms:
        _put_throttle(parts, _HEAD_BYTES + route.flexible_response, throttle_ms)
    return throttle_ms


def _put_throttle(parts: list[Any], at: int, throttle_ms: int) -> None:
    """Replace the throttle of a response frame, which begins at `at`."""
    place = 0
    if at >= len(parts[0]):
        place, at = 1, at - len(parts[0])
    piece = memoryview(parts[place])
    start, end = bytes(piece[:at]), piece[at + THROTTLE_BYTES :]
    parts[place : place + 1] = [start + throttle_ms.to_bytes(THROTTLE_BYTES, "big"), end]
