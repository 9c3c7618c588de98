"""One client's connection: frames in, requests handled as there is time, responses out.

    size i32 | request header | request …   →   size i32 | correlation_id i32 | [tags] | response

* Every whole frame of a received chunk is handled before anything is written.
* Frames of a client are handled while the loop's iteration has time (`loop_budget`), whatever the
  occasion: bytes that arrived, a response that was awaited, room in the socket.
* A Produce may start before the response to an earlier one is known. If the earlier one was refused
  for a reason that may be temporary, the later one must not succeed: it would leave a gap. Such
  refusals are kept until their response leaves (`pipelined_refusals`); Kafka, which takes requests
  one by one, does not need this.
* Bytes that are not a request close the connection, with a line in the log that describes them.

Not here: bytes to frames (`frames`), how a request is carried out (`calls`), the order of responses
(`responses`), which handler responds (`dispatch`), accepting and limits of a listener (`listener`),
the listener's interface (`owner`).
"""

import asyncio
import logging
import struct
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import DecodeError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.server.api.registry import RequestContext
from sparkraft.server.loop_monitor import LONG_PIECE_MS
from sparkraft.server.network.calls import RequestCalls
from sparkraft.server.network.dispatch import (
    HEADER,
    HEADER_V0_SIZE,
    Route,
    skip_tagged_fields,
)
from sparkraft.server.network.frames import BadLengthError, FrameReader
from sparkraft.server.network.quota_meter import (
    is_unlimited,
    throttle_of_request,
)
from sparkraft.server.network.refusals import log_bad_length, log_malformed, log_unserved
from sparkraft.server.network.request_time import (
    TimeBesideRequests,
    charge_forwarded,
    record_rest,
)
from sparkraft.server.network.responses import RUN_BYTES_MAX, ResponseQueue
from sparkraft.server.network.sending import Sender, sender_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.security.session import Session
    from sparkraft.server.network.gathering import Gathering
    from sparkraft.server.network.owner import ConnectionOwner
    from sparkraft.server.network.sasl_gate import SaslGate

log = logging.getLogger(__name__)

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
        "_beside",
        "_calls",
        "_closed",
        "_deferred",
        "_flush_due",
        "_frame_size",
        "_gate",
        "_handled",
        "_mute_timer",
        "_name",
        "_node",
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
        self._beside = TimeBesideRequests(listener.wakes)
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
        self._calls = RequestCalls(self, self._responses)
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
    def is_closed(self) -> bool:
        """Whether nothing is sent any more."""
        return self._closed

    @property
    def queue_ms(self) -> int:
        """How long the frames of this run have waited."""
        return self._queue_ms

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
            self._beside.start()
        try:
            self._run_frames()
        except BadLengthError as error:
            self._close_for_length(error)
        finally:
            self._running = False
        self._flush()
        if self._beside.is_on:
            self._beside.stop(self.listener.quotas, self.listener.clock.mono_ms())
        elapsed_ms = self.listener.clock.mono_ms() - self.last_active_ms
        self._count_handled(elapsed_ms)
        if elapsed_ms >= LONG_PIECE_MS:
            self.listener.monitor.on_piece(elapsed_ms, self.describe_last(self._route))

    def describe_last(self, route: Route | None) -> "Callable[[], str]":
        """A function that names the last request, of `route`, for the log."""
        return partial(self._describe, route, self._frame_size)

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
        """Leave the frames for an iteration that has time for them.

        Reading pauses with the next bytes that arrive meanwhile: most clients wait for a response
        before they send more, and to pause and to resume are system calls.
        """
        if self._queued_ms is None:
            self._queued_ms = self.listener.clock.mono_ms()
            self._deferred = True
        else:
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

    def _dispatch(self, frame: memoryview, now: int) -> None:  # noqa: C901, PLR0912, PLR0915 (calls cost time)
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
        if route.lacks_client_id:
            id_size, at, id_end = 0, HEADER_V0_SIZE, HEADER.size
        elif at > len(frame):
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
            if self._beside.is_on:
                self._beside.leave()
            response = route.fast(self._node, version, body, session)
            if type(response) is bytes and not self._responses.pending:
                self._responses.add_small(route, correlation_id, response)
                if self._beside.is_on:
                    self._beside.come_back()
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
            self._calls.call(route, context, body)
        else:
            self._calls.respond(route, context, None, response)
        if self._beside.is_on:
            record_rest(self.listener.quotas, context)
            self._beside.come_back()

    def _is_unlimited(self, client_id: memoryview) -> bool:
        name = self._routes.client_id(bytes(client_id))
        return is_unlimited(self.listener.quotas, self.session.principal.name, name)

    def begin(self, route: Route) -> None:
        """Count a request that `_dispatch` did not see: one of the SASL gate."""
        if route is not self._route:
            self._change_route(route)
        self._route_requests += 1

    def respond(self, route: Route, context: RequestContext, request: Any, response: Any) -> None:
        """See `RequestCalls.respond`."""
        self._calls.respond(route, context, request, response)

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
            if self._beside.is_on:
                self._beside.measure(context)
            context.throttle_by(throttle_of_request(quotas, route, context, size))
            self.mute(context.throttle_ms)

    def take_wait(self) -> int:
        """The response to the last request waits: how long the request was queued, in ms.

        Its time is counted when the response leaves.
        """
        self._route_requests -= 1
        return self._queue_ms

    def on_last_slice(self) -> None:
        """Requests that waited for the effects of one in slices may follow."""
        self._responses.end_work()
        if self._deferred and not self._closed:
            asyncio.get_running_loop().call_soon(self.resume)

    def release(self) -> None:
        """Send the responses that are next, then continue with the requests after them."""
        if not self._responses.release(self.listener.clock.mono_ms()):
            self.resume()
        elif not self._flush_due:
            # At the end of this iteration: a high watermark ends many produces' waits at once.
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self.resume)

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
