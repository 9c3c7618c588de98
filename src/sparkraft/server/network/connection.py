"""One client's connection: frames in, answers out, in order, each with a bound (DESIGN D2).

    size i32 | request header | request …   →   size i32 | correlation_id i32 | [tags] | response

* Every whole frame of a received chunk is handled before anything is written; answers of the chunk
  leave in one write. Large pieces are handed to the transport as they are, never joined.
* Answers keep the order of their requests. A request that must wait (for replication, an fsync, a
  timer) holds the following ones back, as in Kafka, except where both are `pipelined` (Produce):
  their effects have happened, only the answers wait. What such a one was refused is remembered
  until its answer leaves (`refused`): Kafka would not have looked at the next ones before.
* While an answer is leaving, the next requests are served already, so that the socket never runs
  dry; but a client that doesn't read fills its backlog, and then its requests rest in the kernel.
* Frames of a client are handled while the round of the loop has time (`Turns`), whatever brought
  their turn: bytes that came, an answer before them, room in the socket.
* Bytes of an unfinished frame are kept as they arrive: a length prefix allocates nothing. All such
  frames share queued.max.request.bytes (`request_memory`).
* Bytes that are no request close the connection, with a line in the log that says what came.

Not here: which handler answers (`dispatch`), accepting and limits of a listener (`listener`).
"""

import asyncio
import logging
import struct
from collections import deque
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import DecodeError, InvariantBroken, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.errors import EncodeError
from sparkraft.server.api.registry import RequestContext
from sparkraft.server.network.dispatch import (
    ANSWER_HEAD,
    HEADER,
    Route,
    encode_response,
    skip_tagged_fields,
)
from sparkraft.server.network.hexdump import hexdump
from sparkraft.server.network.sending import Sender, sender_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Hashable

    from sparkraft.security.session import Session
    from sparkraft.server.network.listener import Listener

log = logging.getLogger(__name__)

IN_FLIGHT_MAX = 256
"""Requests of a connection that may wait at once: beyond it the client waits in the kernel."""

RUN_BYTES_MAX = 2 << 20
"""Answers collected before a write: two of 1 MB leave together a tenth faster than apart, since the
peer is woken less often; more gains nothing and holds memory."""

BACKLOG_AHEAD_MAX = 1 << 20
"""Unsent bytes behind which the next request is served all the same: one large answer's worth."""

SMALL_CHUNK_BYTES = 4096
"""Received pieces below it are gathered, so that a slow dribble costs no object per byte."""

_SIZE = struct.Struct(">i")
_HTTP = (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"PATC", b"CONN", b"PRI ")


class _Slot:
    """An answer that is not there yet, and the request it belongs to."""

    __slots__ = ("context", "future", "parts", "ready", "request", "route")

    def __init__(self, route: Route, context: RequestContext, request: Any) -> None:
        self.route = route
        self.context = context
        self.request = request
        self.future: asyncio.Future[Any] | None = None
        self.parts: list[Any] | None = None
        self.ready = False


class Connection(asyncio.Protocol):
    """See the module docstring. Made by a `Listener`, one per accepted socket."""

    __slots__ = (
        "_at",
        "_awaits_memory",
        "_backlog",
        "_buffer",
        "_chunk_bytes",
        "_chunks",
        "_closed",
        "_flush_due",
        "_gathered_bytes",
        "_handled_bytes",
        "_held",
        "_name",
        "_needed",
        "_node",
        "_out",
        "_out_bytes",
        "_pending",
        "_reading_paused",
        "_routes",
        "_running",
        "_sender",
        "_slots_pipelined",
        "awaits_turn",
        "client_host",
        "client_name",
        "last_active_ms",
        "listener",
        "refused",
        "requests",
        "session",
        "transport",
    )

    def __init__(self, listener: "Listener") -> None:
        """Belong to `listener`; nothing is known of the peer before `connection_made`."""
        self.listener = listener
        self._routes = listener.routes
        self._node = listener.node
        self._name = ""
        self.client_host = ""
        self.session: Session
        """Set once the peer is known, in `connection_made`."""
        self.transport: asyncio.Transport | None = None
        self.last_active_ms = 0
        self.requests = 0
        self.awaits_turn = False
        """Whether `Turns` has it in its queue; nobody else assigns it."""
        self.client_name: tuple[str, str] | None = None
        """Software name and version from ApiVersions (KIP-511)."""
        self._chunks: list[bytes | bytearray] = []
        self._chunk_bytes = 0
        self._needed = 0
        self._gathered_bytes = 0
        """Taken of `RequestMemory` for the frame in `_chunks`."""
        self._handled_bytes = 0
        """The same for what is in `_buffer`; given back once that is handled."""
        self._awaits_memory = False
        self._buffer: bytes | bytearray = b""
        self._at = 0
        self._out: list[Any] = []
        self._out_bytes = 0
        self._pending: deque[_Slot] = deque()
        self._slots_pipelined = True
        self._held = False
        self._running = False
        self._sender: Sender | None = None
        self._backlog: Collection[Any] = ()
        """The sender's: what waits for the client to read."""
        self._flush_due = False
        self._reading_paused = False
        self._closed = False
        self.refused: dict[Hashable, KafkaError] = {}
        """Refusals that their sender doesn't know of yet (`RequestContext.refuse_behind`)."""

    def __str__(self) -> str:
        """`local:port-peer:port-number`, as Kafka names connections."""
        return self._name

    @property
    def is_idle(self) -> bool:
        """No request waits for its answer; answers that nobody reads make it no busier."""
        return self._closed or not self._pending

    @property
    def unsent(self) -> int:
        """Bytes of answers that wait for the client to read."""
        return 0 if self._sender is None else self._sender.unsent

    @property
    def takes_views(self) -> bool:
        """Whether answers may hold parts mapped from files (`sending`)."""
        return self._sender is not None and self._sender.takes_views

    # ---- what asyncio tells us

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection in, or close it where the listener is full."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=64 * 1024, low=0)
        self._sender = sender_of(transport, self._on_room, self.listener.on_unreadable)
        self._backlog = self._sender.backlog
        peer = transport.get_extra_info("peername") or ("?", 0)
        local = transport.get_extra_info("sockname") or ("?", 0)
        self.client_host = str(peer[0])
        self.session = self.listener.session_of(self.client_host)
        self._name = self.listener.on_open(self, local, peer)
        self.last_active_ms = self.listener.clock.mono_ms()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget everything that waits; parked long polls die here."""
        self._closed = True
        for slot in self._pending:
            if slot.future is not None and slot.route.api.dies_with_connection:
                slot.future.cancel()
        self._pending.clear()
        if self._sender is not None:
            self._sender.drop()
            self._sender = None
        self._chunks.clear()
        self._buffer = b""
        self._out = []
        self._handled_bytes += self._gathered_bytes
        self._gathered_bytes = 0
        if self._handled_bytes:
            self._give_back()
        self.listener.on_close(self)

    def data_received(self, data: bytes) -> None:
        """Gather frames; handle all that are whole, unless this client must wait its turn."""
        if self._closed:
            return
        if self._chunks:
            self._gather(data)
            if self._chunk_bytes < self._needed:
                return
            data = b"".join(self._chunks)
            self._chunks.clear()
            self._chunk_bytes = 0
            self._handled_bytes += self._gathered_bytes
            self._gathered_bytes = 0
        if self._buffer:  # held back by an earlier request or by a slow reader: in front of us
            data = bytes(memoryview(self._buffer)[self._at :]) + data
        self._buffer = data
        self._at = 0
        if self.listener.takes_turn(self):
            self.run()
        else:
            self._hold()

    def _run_in_turn(self) -> None:
        """As `run`, once there is time; what is ready leaves at once."""
        if self.listener.takes_turn(self):
            self.run()
        else:
            self._flush()

    def pause_writing(self) -> None:
        """The transport holds enough: this client doesn't read."""
        if self._sender is not None:
            self._sender.pause()

    def resume_writing(self) -> None:
        """The transport has room: what waits first, then the requests that rested."""
        if self._sender is not None:
            self._sender.resume()
        self._on_room()

    def _on_room(self) -> None:
        """The client reads: some of what waited has left."""
        self.last_active_ms = self.listener.clock.mono_ms()
        if self._held or self._reading_paused:
            self._run_in_turn()

    def eof_received(self) -> bool:
        """The peer sends no more: close, as nobody half-closes in this protocol."""
        return False

    # ---- frames in

    def _gather(self, data: bytes) -> None:
        last = self._chunks[-1]
        if len(data) >= SMALL_CHUNK_BYTES:
            self._chunks.append(data)
        elif isinstance(last, bytearray):
            last += data
        else:
            self._chunks.append(bytearray(data))
        self._chunk_bytes += len(data)
        if self._needed < 4 <= self._chunk_bytes:  # noqa: PLR2004 (the length prefix)
            self._needed = self._frame_end(b"".join(self._chunks), 0)
            self._take_memory()

    def _take_memory(self) -> None:
        """Have room for the rest of the frame in `_chunks`, or read nothing until there is."""
        missing = self._needed > self._chunk_bytes
        if not missing or self.listener.memory.take(self, self._needed):
            self._gathered_bytes = self._needed if missing else 0
            return
        self._awaits_memory = True
        self.rest()

    def on_memory(self, count: int) -> bool:
        """There are `count` bytes for the frame that waits; whether they are still wanted."""
        if self._closed:
            return False
        self._awaits_memory = False
        self._gathered_bytes = count
        self.run()
        return True

    def _give_back(self) -> None:
        count, self._handled_bytes = self._handled_bytes, 0
        self.listener.memory.give_back(count)

    def rest(self) -> None:
        """Read no more until the next `run` that leaves nothing to wait for."""
        if not self._reading_paused and self.transport is not None:
            self._reading_paused = True
            self.transport.pause_reading()

    def _frame_end(self, buffer: bytes | bytearray, at: int) -> int:
        """Where the frame at `at` ends; -1 for a length nobody may send, and it is closed."""
        (size,) = _SIZE.unpack_from(buffer, at)
        if 0 <= size <= self.listener.request_bytes_max:
            return at + 4 + int(size)
        self._refuse_length(size, bytes(buffer[at : at + 64]))
        return -1

    def run(self) -> None:
        """Handle whole frames until there are none, or one must wait; then write once."""
        if self._running or self._closed:
            return
        self._running = True
        try:
            self._run_frames()
        finally:
            self._running = False
        self._flush()

    def _run_frames(self) -> None:
        buffer = self._buffer
        end = len(buffer)
        view = memoryview(buffer)
        self.last_active_ms = now = self.listener.clock.mono_ms()
        needed = 4
        while end - self._at >= 4:  # noqa: PLR2004 (the length prefix)
            at = self._at
            frame_end = self._frame_end(buffer, at)
            if frame_end < 0:
                return
            if frame_end > end:
                needed = frame_end - at
                break
            if (self._pending or self._backlog) and self._must_wait(view, at):
                self._hold()
                return
            self._at = frame_end
            if not self._on_frame(view[at + 4 : frame_end], now):
                return
            if self._out_bytes > RUN_BYTES_MAX:
                self._flush()
            if end - self._at >= 4 and self.listener.ends_turn(self):  # noqa: PLR2004 (as above)
                self._hold()
                return
        self._keep_rest(buffer, needed)

    def _keep_rest(self, buffer: bytes | bytearray, needed: int) -> None:
        """Put the start of an unfinished frame aside and read on."""
        rest = bytes(memoryview(buffer)[self._at :])
        self._buffer = b""
        self._at = 0
        self._held = False
        if self._handled_bytes:
            self._give_back()
        if rest:
            self._chunks.append(rest)
            self._chunk_bytes = len(rest)
            self._needed = needed
            if needed > 4:  # noqa: PLR2004 (the length prefix)
                self._take_memory()
        if self._reading_paused and not self._awaits_memory and self.transport is not None:
            self._reading_paused = False
            self.transport.resume_reading()

    def _must_wait(self, view: memoryview, at: int) -> bool:
        """Whether the frame at `at` has to wait for answers before it."""
        if self._backlog and self.unsent > BACKLOG_AHEAD_MAX:
            return True
        if not self._pending:
            return False
        if len(self._pending) >= IN_FLIGHT_MAX or not self._slots_pipelined:
            return True
        return view[at + 4] != 0 or view[at + 5] != 0  # only Produce (key 0) is pipelined

    def _hold(self) -> None:
        self._held = True
        self.rest()

    def _on_frame(self, frame: memoryview, now: int) -> bool:
        """Handle one request; whether the connection is still open."""
        try:
            self._dispatch(frame, now)
        except DecodeError as error:
            self._refuse_bytes(error, frame)
        return not self._closed

    def _dispatch(self, frame: memoryview, now: int) -> None:
        if len(frame) < HEADER.size:
            raise DecodeError("a request shorter than its header", at=len(frame))
        key, version, correlation_id, id_size = HEADER.unpack_from(frame)
        self.requests += 1
        route = self._routes.by_code.get(key << 16 | version)
        if route is None:
            route = self._routes.find(key, version)
            if route is None:
                self._refuse_route(key, version, correlation_id)
                return
        at = id_end = 10 + id_size if id_size > 0 else 10
        if at > len(frame):
            raise DecodeError("client_id ends after its frame", path="client_id", at=10)
        if route.flexible_request:
            if at < len(frame) and frame[at] == 0:
                at += 1
            else:
                at = skip_tagged_fields(frame, at)
        body = frame[at:]
        answer = None
        session = self.session
        if route.fast is not None and session.is_unrestricted and not self.refused:
            answer = route.fast(self._node, version, body, session)
            if type(answer) is bytes and not self._pending:
                self._emit_small(route, correlation_id, answer)
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
        if answer is None:
            self._call(route, context, body)
        else:
            self._answer(route, context, None, answer)

    def _call(self, route: Route, context: RequestContext, body: memoryview) -> None:
        request, _ = route.decode(route.request_class, route.version, body, 0)
        try:
            answer = route.handle(self._node, context, request)
        except Exception as error:  # the root of a request's work
            answer = self._failed(route, context, request, error)
        self._answer(route, context, request, answer)

    def _answer(self, route: Route, context: RequestContext, request: Any, answer: Any) -> None:
        """Send an answer, or keep it for its turn."""
        if answer is None:
            self._forget_refused(context)
        elif hasattr(answer, "__await__"):
            self._park(route, context, request, answer)
        elif self._pending:
            slot = _Slot(route, context, None)
            slot.parts = encode_response(route, context.correlation_id, answer)
            slot.ready = True
            self._pending.append(slot)
        else:
            self._forget_refused(context)
            self._emit(encode_response(route, context.correlation_id, answer))

    # ---- answers out

    def _forget_refused(self, context: RequestContext) -> None:
        """The client is told of them now."""
        for what in context.refused:
            self.refused.pop(what, None)

    def _park(
        self, route: Route, context: RequestContext, request: Any, answer: "Awaitable[Any]"
    ) -> None:
        """Remember a request whose answer comes later."""
        slot = _Slot(route, context, request)
        self._pending.append(slot)
        self._slots_pipelined = route.pipelined
        slot.future = asyncio.ensure_future(answer)
        slot.future.add_done_callback(lambda future: self._on_answer(slot, future))

    def _on_answer(self, slot: _Slot, future: "asyncio.Future[Any]") -> None:
        if self._closed:
            if not future.cancelled() and future.exception() is not None:
                self._note_late_failure(slot, future.exception())
            return
        if future.cancelled():
            self.close("its request was cancelled")
            return
        error = future.exception()
        answer = future.result() if error is None else self._late(slot, error)
        try:
            slot.parts = (
                []
                if answer is None
                else encode_response(slot.route, slot.context.correlation_id, answer)
            )
        except EncodeError as problem:  # a bug of ours: better no answer than none for ever
            log.exception("The answer to %s can't be written", slot.route.api.key.name)
            self.close(f"its answer can't be written: {problem}")
            return
        slot.ready = True
        self._release()

    def _late(self, slot: _Slot, error: BaseException) -> Any:
        if not isinstance(error, Exception):
            raise error
        return self._failed(slot.route, slot.context, slot.request, error)

    def _release(self) -> None:
        """Send the answers that are next in order, then go on with the requests behind them."""
        pending = self._pending
        pipelined = False
        while pending and pending[0].ready:
            slot = pending.popleft()
            pipelined = slot.route.pipelined
            self._forget_refused(slot.context)
            if slot.parts:
                self._emit(slot.parts)
        if not pending:
            self._slots_pipelined = True
        if not pipelined:
            self._go_on()
        elif not self._flush_due:
            # At the end of this round: a high watermark ends the waits of many produces at once.
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """Write what is there, and handle what waited for it."""
        self._flush_due = False
        if self._running:
            return
        if self._held:
            self._run_in_turn()
        else:
            self._flush()

    def _emit_small(self, route: Route, correlation_id: int, body: bytes) -> None:
        """`encode_response` and `_emit` for the fast way."""
        if route.flexible_response:
            answer = ANSWER_HEAD.pack(len(body) + 5, correlation_id) + b"\0" + body
        else:
            answer = ANSWER_HEAD.pack(len(body) + 4, correlation_id) + body
        self._out.append(answer)
        self._out_bytes += len(answer)

    def _emit(self, parts: list[Any]) -> None:
        self._out += parts
        for part in parts:
            self._out_bytes += len(part)

    def _flush(self) -> None:
        """Hand collected answers to the transport: small ones joined, large ones as they are."""
        out = self._out
        if not out or self._closed:
            return
        self._out = []
        total, self._out_bytes = self._out_bytes, 0
        self.listener.bytes_out += total
        assert self._sender is not None
        self._sender.send(out, total)

    # ---- refusals

    def _failed(self, route: Route, context: RequestContext, request: Any, error: Exception) -> Any:
        """The answer to a request whose handler raised."""
        if isinstance(error, InvariantBroken | AssertionError):
            self.listener.on_invariant_broken(error)
            raise error
        if not isinstance(error, KafkaError):
            error = self.listener.translate(error, f"{route.api.key.name} of {self._name}")
        try:
            return route.api.refuse(route.response_class, request, route.version, error)
        except AttributeError:  # no place for an error in this response: Kafka closes, too
            self.close(f"{route.api.key.name} failed: {error}")
            return None

    def _note_late_failure(self, slot: _Slot, error: BaseException | None) -> None:
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
            self._emit([head + body])
            return
        try:
            name = ApiKey(key).name
        except ValueError:
            name = "no such API"
        log.warning(
            "Closing %s: it asked for key %d (%s) version %d, which listener %s does not serve",
            self._name, key, name, version, self.listener.name,
        )  # fmt: skip
        self.close()

    def _refuse_bytes(self, error: DecodeError, frame: memoryview) -> None:
        log.warning("Closing %s: a request of %d bytes is invalid: %s", self, len(frame), error)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("What came:\n%s", hexdump(bytes(frame[:4096]), error.at))
        self.listener.bad_requests += 1
        self.close()

    def _refuse_length(self, size: int, start: bytes) -> None:
        if start[:4] in _HTTP:
            what = "it speaks HTTP, and this is a Kafka listener"
        elif start[0] == 0x16 and start[1] == 3:  # noqa: PLR2004 (a TLS handshake record)
            what = "it speaks TLS, and this is a PLAINTEXT listener"
        elif size < 0:
            what = f"a request of negative length {size}"
        else:
            what = f"a request of {size} bytes; socket.request.max.bytes is " + str(
                self.listener.request_bytes_max
            )
        log.warning("Closing %s: %s", self, what)
        self.listener.bad_requests += 1
        self.close()

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
        """Close for idleness; what nobody has read in all that time is dropped."""
        if self._closed or (self._sender is not None and self._sender.waits):
            log.info("Dropping %s and what it doesn't read: %s", self._name, why)
            self.abort()
        else:
            self.close(why)

    def abort(self) -> None:
        """Close at once, unsent answers and all."""
        if self.transport is not None:
            self.transport.abort()
