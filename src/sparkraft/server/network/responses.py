"""The responses of one connection: in the order of its requests, written in few pieces.

* A request that must wait (for replication, an fsync, a timer) holds the following ones back, as in
  Kafka, except if both are `pipelined` (Produce): their effects have happened, only the responses
  wait. While one works in slices, its effects have not all happened, and the following ones wait.
* Responses of one received chunk leave in one write; large pieces are handed on as they are.
* While a response is leaving, the next requests are served already, so that the socket never runs
  dry; but a client that does not read fills its backlog, and then its requests wait in the kernel.

Not here: how bytes reach the socket (`sending`), what a failed request is answered (`connection`).
"""

import struct
from collections import deque
from typing import TYPE_CHECKING, Any

from sparkraft.base.loop_work import LoopBound
from sparkraft.server.network.dispatch import RESPONSE_HEAD

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Hashable, Sized

    from sparkraft.base.env import Clock
    from sparkraft.base.errors import KafkaError
    from sparkraft.server.api.registry import RequestContext
    from sparkraft.server.network.dispatch import Route
    from sparkraft.server.network.request_log import RequestLog
    from sparkraft.server.network.sending import Sender

IN_FLIGHT_MAX = 256
"""Requests of a connection that may wait at once: beyond it the client waits in the kernel."""

_FRAME_SIZE = struct.Struct(">i")

RUN_BYTES_MAX: LoopBound = 2 << 20
"""Responses collected before a write: two of 1 MB leave together a tenth faster than apart, since
the peer is woken less often; more gains nothing and holds memory."""

BACKLOG_AHEAD_MAX = 1 << 20
"""Unsent bytes up to which the next request is served all the same: one large response's worth."""


class PendingResponse:
    """A response that is not complete or not next in order, and the request it belongs to."""

    __slots__ = (
        "context",
        "ends_with_connection",
        "future",
        "handled_ms",
        "is_refused",
        "parts",
        "queue_ms",
        "ready",
        "request",
        "route",
    )

    def __init__(
        self,
        route: "Route",
        context: "RequestContext",
        request: Any,
        *,
        queue_ms: int = 0,
        handled_ms: int = 0,
    ) -> None:
        """Begin to wait; `queue_ms` and `handled_ms` (the time of now) are for its times."""
        self.queue_ms = queue_ms
        self.handled_ms = handled_ms
        self.route = route
        self.context = context
        self.request = request
        self.future: asyncio.Future[Any] | None = None
        self.ends_with_connection = route.api.dies_with_connection
        """Whether the future is cancelled when the client leaves."""
        self.is_refused = False
        """Whether the response that it waits for is an error."""
        self.parts: list[Any] | None = None
        self.ready = False

    def end_with_connection(self) -> None:
        """Nothing is done for it once the connection is lost."""
        self.ends_with_connection = True

    def refuse(self) -> None:
        """The response that it waits for now has an error of each of the request's items."""
        self.is_refused = True

    def decoded(self, request: Any) -> None:
        """Take the request, decoded after the slot was made."""
        self.request = request

    def wait_for(self, future: "asyncio.Future[Any]") -> None:
        """Record the future of the response, which may be cancelled with the connection."""
        self.future = future

    def complete(self, parts: list[Any]) -> None:
        """It may be sent once it is next; no parts: the request has no response."""
        self.parts = parts
        self.ready = True

    def count(self, now_ms: int, request_log: "RequestLog | None") -> None:
        """It leaves: count its times."""
        local_ms = self.handled_ms - self.context.received_ms
        remote_ms = now_ms - self.handled_ms
        self.route.times.on_waited(self.queue_ms, local_ms, remote_ms)
        if request_log is not None:
            request_log.on_response(self.route, self.context, self.queue_ms, local_ms, remote_ms)


class ResponseQueue:
    """See the module docstring.

    Attributes:
        pending: requests without a response yet, in order.
        bytes: of the responses that the next `flush` writes.
        refusals: errors by what they concern, until the client has the response
            (`RequestContext.refuse_pipelined_after`).
        backlog: the sender's: parts that wait for the client to read.
    """

    __slots__ = (
        "_all_pipelined",
        "_clock",
        "_handed",
        "_log",
        "_out",
        "_routes",
        "_sender",
        "_unsent",
        "_works",
        "backlog",
        "bytes",
        "pending",
        "refusals",
    )

    def __init__(self) -> None:
        self.pending: deque[PendingResponse] = deque()
        self.bytes = 0
        self.refusals: dict[Hashable, KafkaError] = {}
        self.backlog: Sized = ()
        self._all_pipelined = True
        self._works = False
        """Whether the last request is worked on in slices; only one is at a time."""
        self._out: list[Any] = []
        self._routes: list[Route | None] = []
        """Of the responses in `_out`; None for what is not counted."""
        self._handed = 0
        """Bytes given to the sender so far."""
        self._unsent: deque[tuple[Route, int, int]] = deque()
        """Responses that the socket has not taken: the end of each in `_handed`, and the time."""
        self._sender: Sender | None = None
        self._log: RequestLog | None = None
        self._clock: Clock | None = None

    def bind(self, sender: "Sender", request_log: "RequestLog", clock: "Clock") -> None:
        """Write to `sender`, and report to `request_log`."""
        self._sender = sender
        self._log = request_log
        self._clock = clock
        self.backlog = sender.backlog

    def must_wait(self, *, pipelined: bool) -> bool:
        """Whether the next request has to wait; `pipelined`: whether it is of that kind."""
        if self.backlog and self.unsent > BACKLOG_AHEAD_MAX:
            return True
        pending = self.pending
        if not pending:
            return False
        if self._works or len(pending) >= IN_FLIGHT_MAX:
            return True
        return not (pipelined and self._all_pipelined)

    def begin_work(self) -> None:
        """The next request that waits is worked on in slices."""
        self._works = True

    def end_work(self) -> None:
        """It has had its effects; its response may still wait."""
        self._works = False

    @property
    def unsent(self) -> int:
        """Bytes of responses that wait for the client to read."""
        return 0 if self._sender is None else self._sender.unsent

    def add_small(self, route: "Route", correlation_id: int, body: bytes) -> None:
        """`encode_response` and `add` in one, for the fast path; nothing may be pending."""
        if route.flexible_response:
            frame = RESPONSE_HEAD.pack(len(body) + 5, correlation_id) + b"\0" + body
        else:
            frame = RESPONSE_HEAD.pack(len(body) + 4, correlation_id) + body
        self._out.append(frame)
        self._routes.append(route)
        self.bytes += len(frame)

    def add(self, route: "Route | None", parts: list[Any]) -> None:
        """Write a whole response with the next `flush`; it must be next in order."""
        self._out += parts
        self._routes.append(route)
        for part in parts:
            self.bytes += len(part)

    def wait_for(self, slot: PendingResponse) -> None:
        """Keep the place of a request whose response comes later."""
        self.pending.append(slot)
        self._all_pipelined = slot.route.pipelined

    def add_in_order(self, slot: PendingResponse) -> None:
        """Keep a complete response until those before it have left."""
        self.pending.append(slot)

    def release(self, now_ms: int) -> bool:
        """Add the responses that are next in order; whether the last of them was pipelined."""
        pending = self.pending
        pipelined = False
        while pending and pending[0].ready:
            slot = pending.popleft()
            pipelined = slot.route.pipelined
            self.forget_refusals(slot.context)
            slot.count(now_ms, self._log)
            if slot.parts:
                self.add(slot.route, slot.parts)
        if not pending:
            self._all_pipelined = True
        return pipelined

    def forget_refusals(self, context: "RequestContext") -> None:
        """The client learns of them now."""
        for what in context.refused:
            self.refusals.pop(what, None)

    def flush(self) -> int:
        """Give what was added to the sender; how many bytes it was."""
        out = self._out
        if not out:
            return 0
        self._out = []
        total, self.bytes = self.bytes, 0
        sender = self._sender
        assert sender is not None
        sender.send(out, total)
        self._handed += total
        if sender.unsent:
            self._note_unsent(out, total)
        self._routes.clear()
        return total

    def _note_unsent(self, out: list[Any], total: int) -> None:
        """Measure from now on how long the responses in `out` take that have not left."""
        assert self._sender is not None
        assert self._clock is not None
        now = self._clock.mono_ms()
        left_to, end, at = self._handed - self._sender.unsent, self._handed - total, 0
        for route in self._routes:
            while len(out[at]) == 0:
                at += 1
            size = _FRAME_SIZE.size + _FRAME_SIZE.unpack_from(out[at])[0]
            end += size
            while size > 0:
                size -= len(out[at])
                at += 1
            if end > left_to and route is not None:
                route.times.on_unsent()
                self._unsent.append((route, end, now))

    def count_sent(self, now_ms: int) -> None:
        """The socket had room: count the send times of the responses that have left."""
        unsent = self._unsent
        left_to = self._handed - self.unsent
        while unsent and unsent[0][1] <= left_to:
            route, _, since = unsent.popleft()
            route.times.on_sent(now_ms - since)

    def close(self) -> None:
        """The connection is lost: drop everything, and cancel long polls that wait."""
        for slot in self.pending:
            if slot.future is not None and slot.ends_with_connection:
                slot.future.cancel()
        self.pending.clear()
        self._out = []
        if self._sender is not None:
            self._sender.drop()
            self._sender = None
        self._unsent.clear()
