"""How long requests keep the event loop, against `request_percentage` of their client (KIP-124).

    arrival ── handle ──┐ wait ┌── a slice, a step of a coroutine ──┐ wait ┌── encode ──▶ response
               counted  │      │              counted               │      │   counted

100 % is the event loop's whole time, as it is one thread's in Kafka; work of other threads, such as
reads of cold records, is not counted. As in Kafka, the throttle is decided before the response is
encoded, is at most one window, and what the response itself takes counts afterwards, with the work
of the connection beside its requests: waking up for it (`loop_wakes`), framing, the write, and what
it does with requests that arrive during a throttle. Exempt are requests of nodes, which
need CLUSTER_ACTION, and fetches of replicas, unless they are denied; requests before
authentication; and Produce without acks. Kafka exempts fewer requests of nodes (not heartbeats, for
example), so a quota of all users can fence brokers there. It exempts denied fetches of replicas.

The time of an Envelope counts for the client whose request is inside (`charge_forwarded`). The
broker's connection is never throttled for it: it carries the requests of all its clients.

Not here: rates and quotas (`security.client_quotas`), bytes (`quota_meter`).
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.security.acls import AclOperation, AclResourceType

if TYPE_CHECKING:
    from sparkraft.security.client_quotas import ClientQuotas
    from sparkraft.server.api.registry import RequestContext
    from sparkraft.server.network.dispatch import Route
    from sparkraft.server.network.loop_wakes import LoopWakes


Client = tuple[str, str | None]
"""The name of a user, and a client id."""


class LoopTime:
    """The time that one request has kept the loop, in pieces.

    Attributes:
        client: whose quota it counts against.
        error: of the request as a whole.
        is_charged: its throttle is decided; further time counts in those of later requests.
    """

    __slots__ = ("_clock", "_seconds", "_since", "_wakes", "client", "error", "is_charged")

    def __init__(
        self, clock: Callable[[], float], wakes: "LoopWakes", client: Client = ("", None)
    ) -> None:
        """Begin the first piece; `clock` returns seconds."""
        self._clock = clock
        self._wakes = wakes
        self._seconds = 0.0
        self._since: float | None = clock()
        self.client = client
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
            self._wakes.end()

    def add(self, seconds: float) -> None:
        """Add time that was measured elsewhere."""
        self._seconds += seconds

    def fail(self, error: ErrorCode) -> None:
        """The request failed as a whole."""
        self.error = error

    def charge(self, client: Client | None = None) -> float:
        """The seconds so far; `client`: whose they are from now on, if not the sender's."""
        self.is_charged = True
        self.client = client or self.client
        return self.take()

    def take(self) -> float:
        """The seconds since the last call."""
        if self._since is not None:
            now = self._clock()
            self._seconds += now - self._since
            self._since = now
        seconds, self._seconds = self._seconds, 0.0
        return seconds


class TimeBesideRequests:
    """The time of a connection's runs without that of its requests.

    It counts for the client of the last request, unless that is exempt, like the time of Kafka's
    network threads.

    Attributes:
        is_on: a run is measured.
    """

    __slots__ = ("_last", "_payer", "_time", "_wakes", "is_on")

    def __init__(self, wakes: "LoopWakes") -> None:
        self.is_on = False
        self._wakes = wakes
        self._time: LoopTime | None = None
        self._last: RequestContext | None = None
        """The last request of this run."""
        self._payer: Client | None = None

    def start(self) -> None:
        """A run begins."""
        self.is_on = True
        self._time = LoopTime(asyncio.get_running_loop().time, self._wakes)
        self._time.add(self._wakes.take())

    def leave(self) -> None:
        """A request begins, whose time is not beside it."""
        if self._time is not None:
            self._time.end()

    def come_back(self) -> None:
        """The request has been handled, or waits."""
        if self._time is not None:
            self._time.begin()

    def measure(self, context: "RequestContext") -> None:
        """The request that begins is measured, for its sender."""
        self.leave()
        client = context.principal.name, context.client_id
        context.measure_time(LoopTime(asyncio.get_running_loop().time, self._wakes, client))
        self._last = context

    def stop(self, quotas: "ClientQuotas", now: int) -> None:
        """The run ends at `now`, monotonic ms."""
        self.is_on = False
        time, self._time = self._time, None
        if time is None:
            return
        time.end()
        if self._last is not None:
            loop_time = self._last.loop_time
            self._payer = None if loop_time is None else loop_time.client
            self._last = None
        if self._payer is not None:
            quotas.record_time(*self._payer, time.take(), now)


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
    if time is None or time.is_charged:
        return 0
    if _is_exempt(route, context, request, time.error):
        context.measure_time(None)
        return 0
    return _charge(quotas, context, time, time.client)


def charge_forwarded(
    quotas: "ClientQuotas", context: "RequestContext", client: "RequestContext"
) -> int:
    """Count the time of an Envelope for the client of the request inside; its throttle in ms.

    As Kafka's controllers, which report the throttle in the response inside and leave it to the
    broker to hold its client up (`RequestHandlerHelper`).

    Args:
        quotas: of the controller's clients.
        context: of the Envelope.
        client: of the request inside.
    """
    time = context.loop_time
    if time is None:
        return 0
    return _charge(quotas, context, time, (client.principal.name, client.client_id))


def _charge(
    quotas: "ClientQuotas", context: "RequestContext", time: LoopTime, client: Client
) -> int:
    now = context.connection.listener.clock.mono_ms()
    return quotas.record_time(*client, time.charge(client), now)


def record_rest(quotas: "ClientQuotas", context: "RequestContext") -> None:
    """A piece of a request ends; after its response it is recorded, without a throttle."""
    time = context.loop_time
    if time is None:
        return
    time.end()
    if time.is_charged:
        user, client_id = time.client
        now = context.connection.listener.clock.mono_ms()
        quotas.record_time(user, client_id, time.take(), now)


def _is_exempt(
    route: "Route", context: "RequestContext", request: Any, error: ErrorCode | None
) -> bool:
    if route.is_exempt:
        return error is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    is_fetch = route.api.key is ApiKey.FETCH and request is not None
    return is_fetch and is_replicas(context, request)


def is_replicas(context: "RequestContext", request: Any) -> bool:
    """Whether a Fetch request is a replica's, by its field and by the rights of its client.

    Otherwise any client could write a broker's id there, to be exempt.
    """
    names_replica = request.replica_id >= 0 or request.replica_state.replica_id >= 0
    if not names_replica:
        return False
    return context.is_allowed(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, logs=False)
