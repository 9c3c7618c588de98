"""One client's connection: frames in, handlers called, responses out in order.

    size i32 | request header | request …   →   size i32 | correlation_id i32 | [tags] | response

* Every whole frame of a received chunk is handled before anything is written.
* Frames of a client are handled while the loop's iteration has time (`loop_budget`), whatever the
  occasion: bytes that arrived, a response that was awaited, room in the socket.
* A Produce may start before the response to an earlier one is known. If the earlier one was refused
  for a reason that may be temporary, the later one must not succeed: it would leave a gap. Such
  refusals are kept until their response leaves (`pipelined_refusals`); Kafka, which takes requests
  one by one, does not need this.
* Bytes that are not a request close the connection, with a line in the log that describes them.

Not here: bytes to frames (`frames`), the order of responses (`responses`), which handler responds
(`dispatch`), accepting and limits of a listener (`listener`), the listener's interface (`owner`).
"""

import asyncio
import logging
import struct
from functools import partial
from types import GeneratorType
from typing import TYPE_CHECKING, Any, cast

from sparkraft.base.errors import DecodeError, InvariantBroken, KafkaError
from sparkraft.base.loop_work import LoopBound
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import decode_few, decode_slices
from sparkraft.protocol.errors import EncodeError
from sparkraft.server.api.registry import RequestContext, Steps
from sparkraft.server.loop_monitor import LONG_PIECE_MS
from sparkraft.server.network.dispatch import (
    HEADER,
    Route,
    encode_response,
    skip_tagged_fields,
)
from sparkraft.server.network.frames import BadLengthError, FrameReader
from sparkraft.server.network.quota_meter import (
    error_in_bytes,
    is_unlimited,
    report_in_bytes,
    report_throttle,
    throttle_of_request,
    throttle_of_response,
)
from sparkraft.server.network.refusals import log_bad_length, log_malformed, log_unserved
from sparkraft.server.network.request_time import (
    LoopTime,
    Metered,
    charge_forwarded,
    record_overhead,
    record_rest,
    throttle_of_time,
)
from sparkraft.server.network.responses import RUN_BYTES_MAX, PendingResponse, ResponseQueue
from sparkraft.server.network.sending import Sender, sender_of
from sparkraft.server.network.slices import SLICE_UNITS_MAX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sparkraft.security.session import Session
    from sparkraft.server.network.gathering import Gathering
    from sparkraft.server.network.owner import ConnectionOwner
    from sparkraft.server.network.sasl_gate import SaslGate

log = logging.getLogger(__name__)

WHOLE_BYTES_MAX: LoopBound = 64 * 1024
"""Requests up to this are decoded in one piece: at most 5 ms, for 30,000 names of one byte."""

WHOLE_ELEMENTS_MAX: LoopBound = 1_000
"""Topics and partitions of a longer Produce that is decoded in one piece; its records are not."""

_ROUTE_CODE = struct.Struct(">i")
"""The first bytes of a frame, key and version, as `Routes.by_code` has them."""


class Connection(asyncio.Protocol):
    """See the module docstring. Made by a `Listener`, one per accepted socket.

    Attributes:
        listener: its owner.
        session: on whose behalf its requests run; set in `connection_made`.
        client_host: the peer's IP address.
        client_name: software name and version from ApiVersions (KIP-511).
        last_active_ms: monotonic time of the last request or the last response bytes that left.
        requests: how many were received.
        pipelined_refusals: see `ResponseQueue.refusals`.
    """

    __slots__ = (
        "_closed",
        "_deferred",
        "_flush_due",
        "_frame_size",
        "_gate",
        "_handled",
        "_metered",
        "_mute_timer",
        "_name",
        "_node",
        "_overhead",
        "_queue_ms",
        "_queued_ms",
        "_reader",
        "_reading_paused",
        "_responses",
        "_route",
        "_route_requests",
        "_routes",
        "_running",
        "_sender",
        "client_host",
        "client_name",
        "last_active_ms",
        "listener",
        "pipelined_refusals",
        "requests",
        "session",
        "transport",
    )

    def __init__(self, listener: "ConnectionOwner") -> None:
        self.listener = listener
        self.session: Session
        self.transport: asyncio.Transport | None = None
        self.client_host = ""
        self.client_name: tuple[str, str] | None = None
        self.last_active_ms = 0
        self.requests = 0
        self._name = ""
        self._routes = listener.routes
        self._route: Route | None = None
        """Of the last request; its frame had `_frame_size` bytes."""
        self._frame_size = 0
        self._route_requests = 0
        """Requests of `_route` in this run that did not have to wait."""
        self._handled: list[tuple[Route, int]] = []
        """The same of the routes before it."""
        self._queued_ms: int | None = None
        """Since when its bytes wait for an iteration with time for them."""
        self._queue_ms = 0
        """How long those of this run have waited."""
        self._gate: SaslGate | None = None
        """Takes the frames until the client has authenticated, and all if its session expires."""
        self._metered: RequestContext | None = None
        """The last request whose time was measured."""
        self._overhead: LoopTime | None = None
        """The time of this run beside its requests, such as its write."""
        self._mute_timer: asyncio.TimerHandle | None = None
        """Ends the time in which a quota holds the client up."""
        self._node = listener.node
        self._sender: Sender | None = None
        self._responses = ResponseQueue()
        self._reader = FrameReader(
            listener.memory,
            listener.request_bytes_max,
            on_wait=self.pause_reading,
            on_memory=self.run,
            on_give_way=self._give_way,
        )
        self.pipelined_refusals = self._responses.refusals
        self._deferred = False
        """Frames wait in the reader."""
        self._running = False
        self._flush_due = False
        self._reading_paused = False
        self._closed = False

    def __str__(self) -> str:
        """`local:port-peer:port-number`, as Kafka names connections."""
        return self._name

    @property
    def is_idle(self) -> bool:
        """No request waits for its response; responses that are not read make it no busier."""
        return self._closed or not (self._responses.pending or self._mute_timer)

    @property
    def unsent(self) -> int:
        """Bytes of responses that wait for the client to read."""
        return self._responses.unsent

    @property
    def takes_views(self) -> bool:
        """Whether responses may hold parts mapped from files (`sending`)."""
        return self._sender is not None and self._sender.takes_views

    @property
    def response_room(self) -> int:
        """Bytes of records that a response should have at most (`response_memory`)."""
        return self.listener.response_room

    @property
    def gathering(self) -> "Gathering":
        """Lets fetches wait while the event loop is busy."""
        return self.listener.gathering

    # ---- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=64 * 1024, low=0)
        self._sender = sender_of(transport, self._on_room, self.listener.on_unreadable)
        self._responses.bind(self._sender, self.listener.request_log, self.listener.clock)
        peer = transport.get_extra_info("peername") or ("?", 0)
        local = transport.get_extra_info("sockname") or ("?", 0)
        self.client_host = str(peer[0])
        self.session = self.listener.session_of(self.client_host)
        self._name = self.listener.on_open(self, local, peer)
        if not self._closed:
            self._gate = self.listener.gate_of(self)
        self.last_active_ms = self.listener.clock.mono_ms()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget everything that waits; long polls are cancelled."""
        self._closed = True
        if self._mute_timer is not None:
            self._mute_timer.cancel()
        if self._gate is not None:
            self._gate.on_lost()
        self._responses.close()
        self._sender = None
        self._reader.close()
        self.listener.on_close(self)

    def data_received(self, data: bytes) -> None:
        """Handle every whole frame, unless this client must wait for the next iteration."""
        if self._closed:
            return
        try:
            if not self._reader.feed(data):
                return
        except BadLengthError as error:
            self._close_for_length(error)
            return
        if self.listener.try_run(self):
            self.run()
        else:
            self._queue()

    def pause_writing(self) -> None:
        """The transport holds enough: this client does not read."""
        if self._sender is not None:
            self._sender.pause()

    def resume_writing(self) -> None:
        """The transport has room: send the backlog first, then handle the requests that waited."""
        if self._sender is not None:
            self._sender.resume()
        self._on_room()

    def _on_room(self) -> None:
        self.last_active_ms = self.listener.clock.mono_ms()
        self._responses.count_sent(self.last_active_ms)
        self.listener.on_backlog(self, self._responses.backlog)
        if self._deferred or self._reading_paused:
            self._run_when_allowed()

    def eof_received(self) -> bool:
        """The peer sends no more: close, since Kafka's protocol has no half-closed connections."""
        return False

    # ---- frames in

    def run(self) -> None:
        """Handle whole frames until there are none, or one must wait; then write once."""
        if self._running or self._closed:
            return
        self._running = True
        if self.listener.quotas.measures_time:
            self._overhead = LoopTime(asyncio.get_running_loop().time)
        try:
            self._run_frames()
        except BadLengthError as error:
            self._close_for_length(error)
        finally:
            self._running = False
        self._flush()
        if self._overhead is not None:
            self._record_overhead(self._overhead)
        elapsed_ms = self.listener.clock.mono_ms() - self.last_active_ms
        self._count_handled(elapsed_ms)
        if elapsed_ms >= LONG_PIECE_MS:
            describe = partial(self._describe, self._route, self._frame_size)
            self.listener.monitor.on_piece(elapsed_ms, describe)

    def _record_overhead(self, overhead: LoopTime) -> None:
        """Record it for the client of the last request, like Kafka's time of network threads."""
        self._overhead = None
        if self._metered is not None:
            record_overhead(self.listener.quotas, self._metered, overhead)
            self._metered = None

    def _describe(self, route: Route | None, size: int) -> str:
        """Name a request for the log, by API, size and client."""
        api = "a request" if route is None else f"{route.api.key.name} v{route.version}"
        software = "" if self.client_name is None else f" ({' '.join(self.client_name)})"
        return f"{api} of {size} bytes from {self._name}{software}"

    def _run_frames(self) -> None:
        reader, responses = self._reader, self._responses
        self.last_active_ms = now = self.listener.clock.mono_ms()
        if self._queued_ms is not None:
            self._queue_ms = now - self._queued_ms
            self._queued_ms = None
        while (frame := reader.next()) is not None:
            gate = self._gate
            if (
                self._mute_timer
                or (gate is not None and gate.is_busy)
                or ((responses.pending or responses.backlog) and self._must_wait(frame))
            ):
                reader.put_back(frame)
                self._defer()
                return
            try:
                if gate is None or not gate.takes(frame, now):
                    self._dispatch(frame, now)
            except DecodeError as error:
                log_malformed(self, error, frame)
                self.listener.on_bad_request()
                self.close()
            if self._closed:
                return
            if responses.bytes > RUN_BYTES_MAX:
                self._flush()
            if reader.end - reader.at >= 4 and self.listener.must_yield(self):  # noqa: PLR2004 (a length prefix)
                self._queue()
                return
        reader.put_aside()
        self._deferred = False
        if self._reading_paused and not reader.awaits_memory and self.transport is not None:
            self._reading_paused = False
            self.transport.resume_reading()

    def _must_wait(self, frame: memoryview) -> bool:
        """Whether the request in `frame` has to wait for responses before it."""
        pipelined = False
        if len(frame) >= _ROUTE_CODE.size:
            route = self._routes.by_code.get(_ROUTE_CODE.unpack_from(frame)[0])
            pipelined = route is not None and route.pipelined
        return self._responses.must_wait(pipelined=pipelined)

    def _run_when_allowed(self) -> None:
        """Handle frames if there is time; write responses that are ready in any case."""
        if self.listener.try_run(self):
            self.run()
        else:
            self._flush()

    def _queue(self) -> None:
        """Leave the frames for an iteration that has time for them."""
        if self._queued_ms is None:
            self._queued_ms = self.listener.clock.mono_ms()
        self._defer()

    def _defer(self) -> None:
        """Leave the frames that are left for later, and read no more until then."""
        self._deferred = True
        self.pause_reading()

    def pause_reading(self) -> None:
        """Read no more until a `run` that leaves nothing to wait for."""
        if not self._reading_paused and self.transport is not None:
            self._reading_paused = True
            self.transport.pause_reading()

    def _give_way(self) -> None:
        self.close("its request does not arrive, and others wait for the memory it has taken")

    # ---- requests

    def admit(self, session: "Session") -> None:
        """The client has authenticated: handle its requests, on behalf of `session`."""
        self.session = session
        self._gate = None if session.expires_at_ms is None else self._gate
        self.limit_frames(self.listener.request_bytes_max)

    def limit_frames(self, bytes_max: int) -> None:
        """Close instead of reading a longer frame."""
        self._reader.limit(bytes_max)

    def write(self, parts: list[Any]) -> None:
        """Send bytes that are not a response with a header: a SASL token after SaslHandshake v0."""
        self._responses.add(None, parts)

    def _dispatch(self, frame: memoryview, now: int) -> None:  # noqa: C901, PLR0912 (calls cost time)
        if len(frame) < HEADER.size:
            raise DecodeError("a request shorter than its header", at=len(frame))
        key, version, correlation_id, id_size = HEADER.unpack_from(frame)
        self.requests += 1
        route = self._routes.by_code.get(key << 16 | version) or self._routes.find(key, version)
        if route is None:
            self._refuse_route(key, version, correlation_id)
            return
        if route is not self._route:
            self._change_route(route)
        self._route_requests += 1
        self._frame_size = len(frame)
        at = id_end = 10 + id_size if id_size > 0 else 10
        if at > len(frame):
            raise DecodeError("client_id ends after its frame", path="client_id", at=10)
        if route.flexible_request:
            if at < len(frame) and frame[at] == 0:
                at += 1
            else:
                at = skip_tagged_fields(frame, at)
        body = frame[at:]
        session = self.session
        response = None
        if (
            route.fast is not None
            and session.is_unhindered
            and not self.pipelined_refusals
            and not self.listener.request_log.is_on
            and (not self.listener.quotas.is_active or self._is_unlimited(frame[10:id_end]))
        ):
            if self._overhead is not None:
                self._overhead.end()
            response = route.fast(self._node, version, body, session)
            if type(response) is bytes and not self._responses.pending:
                self._responses.add_small(route, correlation_id, response)
                if self._overhead is not None:
                    self._overhead.begin()
                return
        context = RequestContext(
            key,
            version,
            correlation_id,
            None if id_size < 0 else self._routes.client_id(bytes(frame[10:id_end])),
            session=session,
            connection=self,
            received_ms=now,
        )
        self._meter(route, context, len(frame))
        if response is None:
            self._call(route, context, body)
        else:
            self.respond(route, context, None, response)
        if self._overhead is not None:
            record_rest(self.listener.quotas, context)
            self._overhead.begin()

    def _is_unlimited(self, client_id: memoryview) -> bool:
        name = self._routes.client_id(bytes(client_id))
        return is_unlimited(self.listener.quotas, self.session.principal.name, name)

    def begin(self, route: Route) -> None:
        """Count a request that `_dispatch` did not see: one of the SASL gate."""
        if route is not self._route:
            self._change_route(route)
        self._route_requests += 1

    def _change_route(self, route: Route) -> None:
        if self._route is not None and self._route_requests:
            self._handled.append((self._route, self._route_requests))
            self._route_requests = 0
        self._route = route

    def _count_handled(self, elapsed_ms: int) -> None:
        """Count the requests of this run that had their responses at once."""
        queue_ms, self._queue_ms = self._queue_ms, 0
        for route, count in self._handled:
            route.times.on_handled(count, queue_ms, elapsed_ms)
        self._handled.clear()
        if self._route is not None and self._route_requests:
            self._route.times.on_handled(self._route_requests, queue_ms, elapsed_ms)
            self._route_requests = 0

    def _meter(self, route: Route, context: RequestContext, size: int) -> None:
        quotas = self.listener.quotas
        if quotas.is_active and (self._gate is None or not self._gate.is_authenticating):
            if self._overhead is not None:
                self._overhead.end()
                client = context.principal.name, context.client_id
                context.measure_time(LoopTime(asyncio.get_running_loop().time, client))
                self._metered = context
            context.throttle_by(throttle_of_request(quotas, route, context, size))
            self.mute(context.throttle_ms)

    def _call(self, route: Route, context: RequestContext, body: memoryview) -> None:
        request = self._decode(route, body)
        if request is None:
            self._call_large(route, context, body)
            return
        try:
            response = route.handle(self._node, context, request)
            if type(response) is GeneratorType:
                response = self._start_slices(context, response, self._on_last_slice)
                if isinstance(response, asyncio.Future):
                    self._respond_after_slices(self._slot(route, context, request), response)
                    return
        except Exception as error:  # the root of a request's work
            response = self._failed(route, context, request, error)
            if isinstance(response, asyncio.Future):
                slot = self._slot(route, context, request)
                slot.refuse()
                self._respond_later(slot, response)
                return
        self.respond(route, context, request, response)

    @staticmethod
    def _decode(route: Route, body: memoryview) -> Any:
        """The request; None if it takes too long to decode it in one piece."""
        if len(body) <= WHOLE_BYTES_MAX:
            return route.decode(route.request_class, route.version, body, 0)[0]
        if not route.pipelined:
            return None
        return decode_few(route.request_class, route.version, body, WHOLE_ELEMENTS_MAX)

    def _slot(self, route: Route, context: RequestContext, request: Any) -> PendingResponse:
        """The place of a response that has to wait; its time is counted when it leaves."""
        self._route_requests -= 1
        handled_ms = self.listener.clock.mono_ms()
        return PendingResponse(
            route, context, request, queue_ms=self._queue_ms, handled_ms=handled_ms
        )

    def _call_large(self, route: Route, context: RequestContext, body: memoryview) -> None:
        """Decode a large request in slices, too."""
        slot = self._slot(route, context, None)

        def steps() -> Steps:
            yield SLICE_UNITS_MAX  # the request takes its place before anything can fail
            request = yield from decode_slices(route.request_class, route.version, body)
            slot.decoded(request)
            response = route.handle(self._node, context, request)
            if type(response) is GeneratorType:
                response = yield from response
            return response

        work = self._start_slices(context, steps(), self._on_last_slice)
        self._respond_after_slices(slot, work)

    def _start_slices(
        self, context: RequestContext, steps: Steps, on_end: "Callable[[], None] | None" = None
    ) -> Any:
        if context.loop_time is not None:
            steps = cast("Steps", Metered(steps, context.loop_time))
        return self.listener.start_slices(steps, on_end)

    def _respond_after_slices(self, slot: PendingResponse, work: "asyncio.Future[Any]") -> None:
        """Respond later. A pipelined request is carried out even if its client leaves."""
        if not slot.route.pipelined:
            slot.end_with_connection()
        self._responses.begin_work()
        self._respond_later(slot, work)

    def _on_last_slice(self) -> None:
        """Requests that waited for the effects of one in slices may follow."""
        self._responses.end_work()
        if self._deferred and not self._closed:
            asyncio.get_running_loop().call_soon(self.resume)

    def respond(self, route: Route, context: RequestContext, request: Any, response: Any) -> None:
        """Send a response, or keep it until it is next."""
        responses = self._responses
        if response is None:
            responses.forget_refusals(context)
        elif hasattr(response, "__await__"):
            self._respond_later(self._slot(route, context, request), response)
        elif (parts := self._encode(route, context, request, response)) is None:
            return
        elif responses.pending:
            slot = self._slot(route, context, None)
            slot.complete(parts)
            responses.add_in_order(slot)
        else:
            responses.forget_refusals(context)
            responses.add(route, parts)
            if self.listener.request_log.is_on:
                elapsed_ms = self.listener.clock.mono_ms() - context.received_ms
                self.listener.request_log.on_response(route, context, self._queue_ms, elapsed_ms, 0)

    def _encode(
        self, route: Route, context: RequestContext, request: Any, response: Any
    ) -> list[Any] | None:
        """A response frame; None if it cannot be encoded, and the connection is closed.

        That is a response of 2 GB or one without memory for it, or a bug of ours: better to close
        than to never respond.
        """
        quotas = self.listener.quotas
        if context.loop_time is not None:
            throttle_ms = throttle_of_time(quotas, route, context, request)
            context.throttle_by(max(throttle_ms, context.throttle_ms))
            self.mute(throttle_ms)
        if context.throttle_ms:
            report_throttle(route, response, context.throttle_ms)
        if code := getattr(response, "error_code", 0) or error_in_bytes(route, response):
            route.on_error(code)
        try:
            parts = encode_response(route, context.correlation_id, response)
        except (EncodeError, MemoryError) as problem:
            log.exception("The response to %s can't be encoded", route.api.key.name)
            self.close(f"its response can't be encoded: {problem!r}")
            return None
        if context.throttle_ms:
            report_in_bytes(route, response, parts, context.throttle_ms)
        if quotas.is_active and request is not None:
            now = self.listener.clock.mono_ms()
            self.mute(throttle_of_response(quotas, route, context, request, parts, now))
        return parts

    def charge_forwarded(self, context: RequestContext, client: RequestContext) -> int:
        """The throttle, in ms, of the client whose request is in an Envelope."""
        return charge_forwarded(self.listener.quotas, context, client)

    def mute(self, throttle_ms: int) -> None:
        """Handle no requests for that time, but send responses that are pending (KIP-219)."""
        if throttle_ms <= 0 or self._closed:
            return
        loop = asyncio.get_running_loop()
        if self._mute_timer is not None:
            if self._mute_timer.when() >= loop.time() + throttle_ms / 1000:
                return
            self._mute_timer.cancel()
        self._mute_timer = loop.call_later(throttle_ms / 1000, self._end_mute)
        self.session.mute()

    def _end_mute(self) -> None:
        self._mute_timer = None
        self.session.unmute()
        if self._deferred and not self._closed:
            self._run_when_allowed()

    def set_client_software(self, name: str, version: str) -> None:
        """Record the client's software from its ApiVersions request (KIP-511)."""
        self.client_name = (name, version)

    def _respond_later(self, slot: PendingResponse, response: "Awaitable[Any]") -> None:
        self._responses.wait_for(slot)
        if asyncio.iscoroutine(response):
            describe = partial(self._describe, slot.route, self._frame_size)
            if slot.context.loop_time is not None:
                response = Metered(response, slot.context.loop_time)
            response = self.listener.monitor.timed(response, describe)
        future = asyncio.ensure_future(response)
        slot.wait_for(future)
        future.add_done_callback(lambda future: self._on_response(slot, future))

    def _on_response(self, slot: PendingResponse, future: "asyncio.Future[Any]") -> None:
        if self._closed:
            if not future.cancelled() and future.exception() is not None:
                self._log_late_failure(slot, future.exception())
            return
        if future.cancelled():
            self.close("its request was cancelled")
            return
        error = future.exception()
        if isinstance(error, DecodeError):
            log.warning("Closing %s: %s", self._name, error)
            self.listener.on_bad_request()
            self.close()
            return
        response = future.result() if error is None else self._late(slot, error)
        if isinstance(response, asyncio.Future):  # a refusal in slices
            slot.refuse()
            slot.wait_for(response)
            response.add_done_callback(lambda future: self._on_response(slot, future))
            return
        context = slot.context
        if context.loop_time is not None:
            context.loop_time.begin()
        parts: list[Any] | None = []
        if response is not None:
            parts = self._encode(slot.route, context, slot.request, response)
        if context.loop_time is not None:
            record_rest(self.listener.quotas, context)
        if parts is not None:
            slot.complete(parts)
            self._release()

    def _late(self, slot: PendingResponse, error: BaseException) -> Any:
        if not isinstance(error, Exception):
            raise error
        if slot.is_refused:
            log.error("Failed to refuse %s", slot.route.api.key.name, exc_info=error)
            self.close("its request could not be refused")
            return None
        return self._failed(slot.route, slot.context, slot.request, error)

    def _release(self) -> None:
        """Send the responses that are next, then continue with the requests after them."""
        if not self._responses.release(self.listener.clock.mono_ms()):
            self.resume()
        elif not self._flush_due:
            # At the end of this iteration: a high watermark ends many produces' waits at once.
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self.resume)

    def resume(self) -> None:
        """Write what is ready, and handle the frames that waited for it."""
        self._flush_due = False
        if self._running:
            return
        if self._deferred:
            self._run_when_allowed()
        else:
            self._flush()

    def _flush(self) -> None:
        if not self._closed and (sent := self._responses.flush()):
            self.listener.on_sent(sent)
            if self._responses.backlog:
                self.listener.on_backlog(self, self._responses.backlog)

    # ---- failures

    def _failed(self, route: Route, context: RequestContext, request: Any, error: Exception) -> Any:
        """The response to a request whose handler raised, or a future of it."""
        if isinstance(error, InvariantBroken | AssertionError):
            self.listener.on_invariant_broken(error)
            raise error
        if not isinstance(error, KafkaError):
            error = self.listener.translate(error, f"{route.api.key.name} of {self._name}")
        if context.loop_time is not None:
            context.loop_time.fail(error.code)
        try:
            refusal = route.api.refuse(route.response_class, request, route.version, error)
            steps = type(refusal) is GeneratorType
            return self._start_slices(context, refusal) if steps else refusal
        except AttributeError:  # this response has no field for an error: Kafka closes, too
            self.close(f"{route.api.key.name} failed: {error}")
            return None

    def _log_late_failure(self, slot: PendingResponse, error: BaseException | None) -> None:
        if isinstance(error, InvariantBroken | AssertionError):
            self.listener.on_invariant_broken(error)
        elif not isinstance(error, KafkaError):
            log.error("%s failed after its client left", slot.route.api.key.name, exc_info=error)

    def _refuse_route(self, key: int, version: int, correlation_id: int) -> None:
        if key == ApiKey.API_VERSIONS:
            from sparkraft.server.api.k18_api_versions import too_new_body

            body = too_new_body()
            size = (4 + len(body)).to_bytes(4, "big")
            head = size + correlation_id.to_bytes(4, "big", signed=True)
            self._responses.add(None, [head + body])
            return
        log_unserved(self, key, version, self.listener.name)
        self.close()

    def _close_for_length(self, error: BadLengthError) -> None:
        key = "socket.request.max.bytes" if self._gate is None else self._gate.frame_limit_config
        log_bad_length(self, error, f"{key} is {self._reader.bytes_max}")
        self.listener.on_bad_request()
        self.close()

    # ---- closing

    def hold(self) -> None:
        """Serve nothing, until the listener aborts it."""
        self.pause_reading()
        self._closed = True

    def close(self, why: str = "") -> None:
        """Write what is ready and close; requests that wait are dropped."""
        if self._closed or self._sender is None:
            return
        if why:
            log.info("Closing %s: %s", self._name, why)
        self._flush()
        self._closed = True
        self._sender.close()

    def expire(self, why: str) -> None:
        """Close for idleness; drop responses the client has not read in all that time."""
        if self._closed or (self._sender is not None and self._sender.waits):
            log.info("Dropping %s and its unread responses: %s", self._name, why)
            self.abort()
        else:
            self.close(why)

    def drop_unread(self, why: str) -> None:
        """Close at once: this client does not read, and its responses take too much memory."""
        log.info("Closing %s: %s", self._name, why)
        self.abort()

    def abort(self) -> None:
        """Close at once and drop unsent responses."""
        if self.transport is not None:
            self.transport.abort()
