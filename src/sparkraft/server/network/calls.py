"""The requests of one connection: handlers are called, and their responses handed over in order.

    call ── decode ── handle ─┬─ a response ─────────────────────▶ encode ─▶ the queue of responses
                              ├─ slices (`loop_budget`) ─┐           ▲
                              └─ an awaitable ───────────┴─ later ───┘

A handler that fails gives the request's refusal, by `Api.refuse`. A response that cannot be encoded
closes the connection: better than to never respond.

Not here: which frames are handled when, and Produce's and Fetch's fast path (`connection`), the
order of responses (`responses`).
"""

import asyncio
import logging
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Protocol, cast

from sparkraft.base.errors import DecodeError, InvariantBroken, KafkaError
from sparkraft.base.loop_work import LoopBound
from sparkraft.protocol.codec import decode_few, decode_slices
from sparkraft.protocol.errors import EncodeError
from sparkraft.server.api.registry import RequestContext, Steps
from sparkraft.server.network.dispatch import Route, encode_response
from sparkraft.server.network.quota_meter import (
    error_in_bytes,
    report_in_bytes,
    report_throttle,
    throttle_of_response,
)
from sparkraft.server.network.request_time import Metered, record_rest, throttle_of_time
from sparkraft.server.network.responses import PendingResponse, ResponseQueue
from sparkraft.server.network.slices import SLICE_UNITS_MAX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sparkraft.server.network.owner import ConnectionOwner

log = logging.getLogger(__name__)

WHOLE_BYTES_MAX: LoopBound = 64 * 1024
"""Requests up to this are decoded in one piece: at most 5 ms, for 30,000 names of one byte."""

WHOLE_ELEMENTS_MAX: LoopBound = 1_000
"""Topics and partitions of a longer Produce that is decoded in one piece; its records are not."""


class Caller(Protocol):
    """The connection that requests come from."""

    listener: "ConnectionOwner"

    @property
    def is_closed(self) -> bool: ...

    def take_wait(self) -> int: ...

    @property
    def queue_ms(self) -> int: ...

    def describe_last(self, route: Route) -> "Callable[[], str]": ...

    def mute(self, throttle_ms: int) -> None: ...

    def release(self) -> None: ...

    def on_last_slice(self) -> None: ...

    def close(self, why: str = "") -> None: ...


class RequestCalls:
    """See the module docstring."""

    __slots__ = ("_connection", "_listener", "_node", "_responses")

    def __init__(self, connection: Caller, responses: ResponseQueue) -> None:
        """Call for the requests of `connection`; its responses go to `responses`."""
        self._connection = connection
        self._listener = connection.listener
        self._node = connection.listener.node
        self._responses = responses

    def call(self, route: Route, context: RequestContext, body: memoryview) -> None:
        """Carry out a request and send its response, now or later."""
        request = self._decode(route, body)
        if request is None:
            self._call_large(route, context, body)
            return
        try:
            response = route.handle(self._node, context, request)
            if type(response) is GeneratorType:
                response = self._start_slices(context, response, self._connection.on_last_slice)
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
        queue_ms = self._connection.take_wait()
        handled_ms = self._listener.clock.mono_ms()
        return PendingResponse(route, context, request, queue_ms=queue_ms, handled_ms=handled_ms)

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

        work = self._start_slices(context, steps(), self._connection.on_last_slice)
        self._respond_after_slices(slot, work)

    def _start_slices(
        self, context: RequestContext, steps: Steps, on_end: "Callable[[], None] | None" = None
    ) -> Any:
        if context.loop_time is not None:
            steps = cast("Steps", Metered(steps, context.loop_time))
        return self._listener.start_slices(steps, on_end)

    def _respond_after_slices(self, slot: PendingResponse, work: "asyncio.Future[Any]") -> None:
        """Respond later. A pipelined request is carried out even if its client leaves."""
        if not slot.route.pipelined:
            slot.end_with_connection()
        self._responses.begin_work()
        self._respond_later(slot, work)

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
            if self._listener.request_log.is_on:
                elapsed_ms = self._listener.clock.mono_ms() - context.received_ms
                queue_ms = self._connection.queue_ms
                self._listener.request_log.on_response(route, context, queue_ms, elapsed_ms, 0)

    def _encode(
        self, route: Route, context: RequestContext, request: Any, response: Any
    ) -> list[Any] | None:
        """A response frame; None if it cannot be encoded, and the connection is closed.

        That is a response of 2 GB or one without memory for it, or a bug of ours: better to close
        than to never respond.
        """
        quotas = self._listener.quotas
        if context.loop_time is not None:
            throttle_ms = throttle_of_time(quotas, route, context, request)
            context.throttle_by(max(throttle_ms, context.throttle_ms))
            self._connection.mute(throttle_ms)
        if context.throttle_ms:
            report_throttle(route, response, context.throttle_ms)
        if code := getattr(response, "error_code", 0) or error_in_bytes(route, response):
            route.on_error(code)
        try:
            parts = encode_response(route, context.correlation_id, response)
        except (EncodeError, MemoryError) as problem:
            log.exception("The response to %s can't be encoded", route.api.key.name)
            self._connection.close(f"its response can't be encoded: {problem!r}")
            return None
        if context.throttle_ms:
            report_in_bytes(route, response, parts, context.throttle_ms)
        if quotas.is_active and request is not None:
            now = self._listener.clock.mono_ms()
            self._connection.mute(throttle_of_response(quotas, route, context, request, parts, now))
        return parts

    def _respond_later(self, slot: PendingResponse, response: "Awaitable[Any]") -> None:
        self._responses.wait_for(slot)
        if asyncio.iscoroutine(response):
            describe = self._connection.describe_last(slot.route)
            if slot.context.loop_time is not None:
                response = Metered(response, slot.context.loop_time)
            response = self._listener.monitor.timed(response, describe)
        future = asyncio.ensure_future(response)
        slot.wait_for(future)
        future.add_done_callback(lambda future: self._on_response(slot, future))

    def _on_response(self, slot: PendingResponse, future: "asyncio.Future[Any]") -> None:
        if self._connection.is_closed:
            if not future.cancelled() and future.exception() is not None:
                self._log_late_failure(slot, future.exception())
            return
        if future.cancelled():
            self._connection.close("its request was cancelled")
            return
        error = future.exception()
        if isinstance(error, DecodeError):
            log.warning("Closing %s: %s", self._connection, error)
            self._listener.on_bad_request()
            self._connection.close()
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
            record_rest(self._listener.quotas, context)
        if parts is not None:
            slot.complete(parts)
            self._connection.release()

    def _late(self, slot: PendingResponse, error: BaseException) -> Any:
        if not isinstance(error, Exception):
            raise error
        if slot.is_refused:
            log.error("Failed to refuse %s", slot.route.api.key.name, exc_info=error)
            self._connection.close("its request could not be refused")
            return None
        return self._failed(slot.route, slot.context, slot.request, error)

    def _failed(self, route: Route, context: RequestContext, request: Any, error: Exception) -> Any:
        """The response to a request whose handler raised, or a future of it."""
        if isinstance(error, InvariantBroken | AssertionError):
            self._listener.on_invariant_broken(error)
            raise error
        if not isinstance(error, KafkaError):
            error = self._listener.translate(error, f"{route.api.key.name} of {self._connection}")
        if context.loop_time is not None:
            context.loop_time.fail(error.code)
        try:
            refusal = route.api.refuse(route.response_class, request, route.version, error)
            steps = type(refusal) is GeneratorType
            return self._start_slices(context, refusal) if steps else refusal
        except AttributeError:  # this response has no field for an error: Kafka closes, too
            self._connection.close(f"{route.api.key.name} failed: {error}")
            return None

    def _log_late_failure(self, slot: PendingResponse, error: BaseException | None) -> None:
        if isinstance(error, InvariantBroken | AssertionError):
            self._listener.on_invariant_broken(error)
        elif not isinstance(error, KafkaError):
            log.error("%s failed after its client left", slot.route.api.key.name, exc_info=error)
