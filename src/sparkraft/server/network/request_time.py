"""How long requests keep the event loop, against `request_percentage` of their client (KIP-124).

    arrival ── handle ──┐ wait ┌── a slice, a step of a coroutine ──┐ wait ┌── encode ──▶ response
               counted  │      │              counted               │      │   counted

100 % is the event loop's whole time, as it is one thread's in Kafka; work of other threads, such as
reads of cold records, is not counted. As in Kafka, the throttle is decided before the response is
encoded, is at most one window, and what the response itself takes counts afterwards, with the work
of the connection beside its requests: framing and the write. Exempt are requests of nodes, which
need CLUSTER_ACTION, unless they are denied; fetches of replicas; and Produce without acks. Kafka
exempts fewer of these (not heartbeats, for example): there a quota of all users can fence brokers.

Not here: rates and quotas (`security.client_quotas`), bytes (`quota_meter`).
"""

from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from sparkraft.security.client_quotas import ClientQuotas
    from sparkraft.server.api.registry import RequestContext
    from sparkraft.server.network.dispatch import Route


class LoopTime:
    """The time that one request has kept the loop, in pieces.

    Attributes:
        error: of the request as a whole.
        is_charged: its throttle is decided; further time counts in those of later requests.
    """

    __slots__ = ("_clock", "_seconds", "_since", "error", "is_charged")

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin the first piece; `clock` returns seconds."""
        self._clock = clock
        self._seconds = 0.0
        self._since: float | None = clock()
        self.error: ErrorCode | None = None
        self.is_charged = False

    def begin(self) -> bool:
        """Begin a piece, unless one has begun."""
        if self._since is not None:
            return False
        self._since = self._clock()
        return True

    def end(self) -> None:
        """End a piece."""
        if self._since is not None:
            self._seconds += self._clock() - self._since
            self._since = None

    def fail(self, error: ErrorCode) -> None:
        """The request failed as a whole."""
        self.error = error

    def charge(self) -> float:
        """The seconds so far."""
        self.is_charged = True
        return self.take()

    def take(self) -> float:
        """The seconds since the last call."""
        if self._since is not None:
            now = self._clock()
            self._seconds += now - self._since
            self._since = now
        seconds, self._seconds = self._seconds, 0.0
        return seconds


class Metered(Coroutine[Any, Any, Any]):
    """A coroutine, or the steps of sliced work, whose steps count as pieces."""

    __slots__ = ("_time", "_work")

    def __init__(
        self, work: "Coroutine[Any, Any, Any] | Generator[Any, Any, Any]", time: LoopTime
    ) -> None:
        self._work = work
        self._time = time

    def send(self, value: Any) -> Any:
        begun = self._time.begin()
        try:
            return self._work.send(value)
        finally:
            if begun:
                self._time.end()

    def __next__(self) -> Any:
        return self.send(None)

    def throw(self, *error: Any) -> Any:
        begun = self._time.begin()
        try:
            return self._work.throw(*error)
        finally:
            if begun:
                self._time.end()

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Any:
        raise NotImplementedError("the loop sends to it")


def throttle_of_time(
    quotas: "ClientQuotas",
    route: "Route",
    context: "RequestContext",
    request: Any,
) -> int:
    """Record what a request has taken so far, and return its client's throttle in ms."""
    time = context.loop_time
    if time is None:
        return 0
    if _is_exempt(route, request, time.error):
        context.measure_time(None)
        return 0
    user, now = context.principal.name, context.connection.listener.clock.mono_ms()
    return quotas.record_time(user, context.client_id, time.charge(), now)


def record_rest(quotas: "ClientQuotas", context: "RequestContext") -> None:
    """A piece of a request ends; after its response it is recorded, without a throttle."""
    time = context.loop_time
    if time is None:
        return
    time.end()
    if time.is_charged:
        now = context.connection.listener.clock.mono_ms()
        quotas.record_time(context.principal.name, context.client_id, time.take(), now)


def record_overhead(quotas: "ClientQuotas", context: "RequestContext", overhead: LoopTime) -> None:
    """Record what a connection took beside its requests, unless the last of them is exempt."""
    if context.loop_time is not None:
        now = context.connection.listener.clock.mono_ms()
        quotas.record_time(context.principal.name, context.client_id, overhead.take(), now)


def _is_exempt(route: "Route", request: Any, error: ErrorCode | None) -> bool:
    if route.is_of_nodes:
        return error is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return route.api.key is ApiKey.FETCH and request is not None and is_replica(request)


def is_replica(request: Any) -> bool:
    """Whether a Fetch request is a replica's."""
    return bool(request.replica_id >= 0 or request.replica_state.replica_id >= 0)
