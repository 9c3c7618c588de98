"""Runs the controller of one node: one event at a time, in the order of arrival.

    watch events, responses of brokers, requests ─► queue ─► decision ─► ensemble, brokers, answers

As Kafka 3.9 (`ControllerEventManager`, `KafkaController`):
    * A decision runs to its end before the next event is handled; it awaits replies of ZooKeeper.
    * A decision uses the session of its start. When that session ends, so does the decision:
      nothing is written under a new session with the epoch of the old one.
    * `expire` is the barrier before a new session: all waiting events are dropped, their submitters
      are answered, and the controller resigns.
    * An exception ends its event only. If it left requests that were not sent, brokers no longer
      know what ZooKeeper has, and after a failover that failed, the controller does not know the
      cluster; so the controller gives its role away.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.zookeeper.controller import election
from sparkraft.zookeeper.controller.events import ControlledShutdown, EventQueue, Expired, event_of
from sparkraft.zookeeper.driver import execute
from sparkraft.zookeeper.errors import SessionExpiredError, ZooKeeperError
from sparkraft.zookeeper.znodes.json_form import ZnodeError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sparkraft.base.env import Clock
    from sparkraft.zookeeper.client import ZooKeeperClient
    from sparkraft.zookeeper.controller.controller import Controller
    from sparkraft.zookeeper.controller.events import Event, RequestEvent, Waiting
    from sparkraft.zookeeper.controller.requests import ControlRequest
    from sparkraft.zookeeper.exchange import WatchEvent

_LOG = logging.getLogger(__name__)


class ControllerTask:
    """See the module docstring.

    Attributes:
        controller: the core.
        queue: events that wait.
    """

    def __init__(
        self,
        controller: Controller,
        clock: Clock,
        *,
        client: Callable[[], ZooKeeperClient],
        send: Callable[[tuple[ControlRequest, ...]], None],
        on_handled: Callable[[str, int, int], None] = lambda *_: None,
        on_worked: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        """Handle nothing yet.

        Args:
            controller: the core.
            clock: wall time for znodes, monotonic time for `on_handled`.
            client: returns the present session.
            send: queues requests to brokers; must not block.
            on_handled: called after each event with the name of its state, and with how long it
                waited and took, in ms.
            on_worked: see `execute`.
        """
        self.controller = controller
        self.queue = EventQueue()
        self._clock = clock
        self._client = client
        self._send = send
        self._on_handled = on_handled
        self._on_worked = on_worked
        self._wake = asyncio.Event()

    @property
    def is_active(self) -> bool:
        """Whether this node is the controller, as far as it knows."""
        return self.controller.active.is_active

    def on_watch(self, watched: WatchEvent) -> None:
        """Queue the event of a watch."""
        event = event_of(watched)
        if event is not None:
            self.put(event)

    def put(self, event: Event) -> None:
        """Queue an event."""
        self.queue.put(event, self._clock.mono_ms())
        self._wake.set()

    async def request(self, event: RequestEvent) -> Any:
        """Queue a request and return its response.

        Raises:
            KafkaError: it was refused; NOT_CONTROLLER if this node is not the controller, or
                STALE_CONTROLLER_EPOCH for ControlledShutdown.
        """
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.queue.put(event, self._clock.mono_ms(), partial(_answer, waiter))
        self._wake.set()
        return await waiter

    async def expire(self) -> None:
        """Resign because the session has ended; return when nothing of it is in progress."""
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        now = self._clock.mono_ms()
        for preempted in self.queue.clear_and_put(Expired(), now, partial(_answer, waiter)):
            _refuse(preempted, "the session of the controller has expired")
        self._wake.set()
        await waiter

    async def run(self) -> None:
        """Handle events until cancelled."""
        while True:
            waiting = self.queue.take()
            if waiting is None:
                self._wake.clear()
                await self._wake.wait()
                continue
            begun = self._clock.mono_ms()
            await self._handle(waiting)
            ended = self._clock.mono_ms()
            self._on_handled(waiting.event.state, begun - waiting.queued_ms, ended - begun)

    def stop(self) -> None:
        """Answer all that wait; call it when `run` was cancelled."""
        while (waiting := self.queue.take()) is not None:
            _refuse(waiting, "this node is stopping")

    async def _handle(self, waiting: Waiting) -> None:
        client = self._client()
        decision = self.controller.handle(waiting.event, self._clock.wall_ms())
        answer = waiting.answer or (lambda _: None)
        try:
            await execute(client, decision, self._send, answer, self._on_worked)
            if isinstance(waiting.event, Expired):
                answer(None)
        except SessionExpiredError:
            _LOG.info("The session ended during %s", type(waiting.event).__name__)
            _refuse(waiting, "the session of the controller has expired")
        except asyncio.CancelledError:
            _refuse(waiting, "this node is stopping")
            raise
        except Exception as error:
            _LOG.exception("The controller could not handle %s", waiting.event)
            answer(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
            await self._give_away(client)

    async def _give_away(self, client: ZooKeeperClient) -> None:
        """Resign if requests are left that were not sent, or the failover did not succeed.

        Kafka 3.9: `IllegalStateException` of a batch, and any exception in `elect`.
        """
        active = self.controller.active
        if not active.batch.is_empty:
            reason = "a decision failed before its requests were sent"
        elif active.is_active and not active.has_taken_over:
            reason = "the failover failed"
        else:
            return
        active.batch.clear()
        decision = election.move_away(active, reason)
        try:
            await execute(client, decision, self._send)
        except (ZooKeeperError, ZnodeError) as error:
            _LOG.warning("The controller could not give its role away: %s", error)


def _answer(waiter: asyncio.Future[Any], value: Any) -> None:
    if waiter.done():
        return
    if isinstance(value, KafkaError):
        waiter.set_exception(value)
    else:
        waiter.set_result(value)


def _refuse(waiting: Waiting, why: str) -> None:
    """Answer a submitter whose event is not handled; `preempt` in Kafka, which answers some."""
    if waiting.answer is None:
        return
    is_shutdown = isinstance(waiting.event, ControlledShutdown)
    code = ErrorCode.STALE_CONTROLLER_EPOCH if is_shutdown else ErrorCode.NOT_CONTROLLER
    waiting.answer(KafkaError(code, why))
