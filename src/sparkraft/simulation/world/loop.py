"""An asyncio loop without a clock, sockets or threads: time jumps to the next timer.

Every callback belongs to the *incarnation* of some machine, which a context variable identifies.
A killed incarnation runs nothing more, not even a `finally`, as after SIGKILL. A paused one queues
its callbacks. When it resumes, it runs those of the network before its timers, as a real loop does
that wakes up late.

Each incarnation has its own clock: `loop.time()` returns the caller's, so timers drift with it.

Not here: the network (`network`) and executors (`machine`).
"""

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any, Protocol

CURRENT: "contextvars.ContextVar[Incarnation | None]" = contextvars.ContextVar(
    "incarnation", default=None
)


_TASKS_KEPT = 20_000
_CLOSES_MAX = 20


class Incarnation:
    """One run of a process; `rate` is the speed of its clock."""

    def __init__(self, name: str, *, rate: float = 1.0, offset_s: float = 0.0) -> None:
        self.name = name
        self.rate = rate
        self.offset_s = offset_s
        self.dead = False
        self.silent = False
        """Whether its machine has no power, so that it does not even refuse connections."""
        self.paused = False
        self.backlog: list[asyncio.Handle] = []
        self.backlog_network: list[asyncio.Handle] = []
        self.pieces = 0
        """Callbacks that ran: pieces of work on its event loop."""
        self.off_loop = False
        """Whether the present callback stands for another thread."""
        self.signals: dict[int, Callable[[], Any]] = {}
        self.disk_delay: Callable[[], float] = lambda: 0.0
        self.context = contextvars.copy_context()
        self.context.run(CURRENT.set, self)

    def local(self, world_s: float) -> float:
        """Return its local time at a world time."""
        return self.offset_s + world_s * self.rate

    def turn(self, world_s: float, rate: float) -> None:
        """Change the rate of its clock without a jump."""
        now = self.local(world_s)
        self.rate = rate
        self.offset_s = now - world_s * rate

    def world(self, local_s: float) -> float:
        """Return the world time at the local time `local_s`."""
        return (local_s - self.offset_s) / self.rate


class _Guard:
    """A callback of an incarnation, which may be killed or paused before it runs."""

    __slots__ = ("callback", "handle", "incarnation", "network")

    def __init__(self, callback: Any, incarnation: Incarnation, *, network: bool) -> None:
        self.callback = callback
        self.incarnation = incarnation
        self.network = network
        self.handle: asyncio.Handle | None = None

    def __call__(self, *args: Any) -> None:
        incarnation = self.incarnation
        if incarnation.dead:
            return
        if incarnation.paused:
            assert self.handle is not None
            kind = incarnation.backlog_network if self.network else incarnation.backlog
            kind.append(self.handle)
            return
        incarnation.pieces += 1
        self.callback(*args)


class Connector(Protocol):
    """Opens connections; the simulated network implements it."""

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> Any:
        """Open a connection; return its transport and protocol."""
        ...


class _NoSelector:
    """Lets time jump instead of waiting for sockets."""

    def __init__(self, loop: "SimLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        """Advance the clock to the next timer."""
        if timeout is None:
            self._loop.stop()  # Nothing will ever happen again.
        elif timeout > 0:
            self._loop.jump()
        return []

    def close(self) -> None:
        """Do nothing."""


class SimLoop(asyncio.BaseEventLoop):
    """See the module docstring."""

    network: Connector

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.callbacks = 0
        self._all_tasks: list[asyncio.Task[Any]] = []
        self._selector = _NoSelector(self)
        self._clock_resolution = 1e-9

    def jump(self) -> None:
        """Set the clock to the exact time of the next timer."""
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        self.now = max(self.now, scheduled[0].when())

    def time(self) -> float:
        """Return the time of the caller's own clock."""
        current = CURRENT.get()
        return self.now if current is None else current.local(self.now)

    # ---- tasks

    def create_task(self, coro: Any, **options: Any) -> "asyncio.Task[Any]":
        """See `asyncio`; keeps the task, so that tasks of killed incarnations are not collected."""
        task: asyncio.Task[Any] = super().create_task(coro, **options)
        self._all_tasks.append(task)
        if len(self._all_tasks) > _TASKS_KEPT:
            self._all_tasks = [kept for kept in self._all_tasks if not kept.done()]
        return task

    def bury_tasks(self) -> None:
        """Close all unfinished tasks silently at the end of the world."""
        for task in self._all_tasks:
            if task.done():
                continue
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
            coroutine: Any = task.get_coro()
            for _ in range(_CLOSES_MAX):  # a `finally` that awaits has to be closed again
                try:
                    contextvars.copy_context().run(coroutine.close)
                except BaseException:
                    continue
                break
        self._all_tasks.clear()

    # ---- callbacks belong to incarnations

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """See `asyncio`."""
        guard = self._guard(callback, context)
        handle = super().call_soon(guard, *args, context=context)
        if isinstance(guard, _Guard):
            guard.handle = handle
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """See `asyncio`; `when` is on the caller's clock."""
        current = CURRENT.get()
        at = when if current is None else current.world(when)
        return self._call_at_world(at, self._guard(callback, context), args, context)

    def _call_at_world(
        self, at: float, guard: Any, args: Any, context: contextvars.Context | None
    ) -> asyncio.TimerHandle:
        handle = super().call_at(at, guard, *args, context=context)
        if isinstance(guard, _Guard):
            guard.handle = handle
        return handle

    def _guard(self, callback: Any, context: contextvars.Context | None) -> Any:
        self.callbacks += 1
        owner = CURRENT.get() if context is None else context.get(CURRENT)
        return callback if owner is None else _Guard(callback, owner, network=False)

    def after(
        self, delay_s: float, callback: Callable[..., Any], *args: Any, of: Incarnation | None
    ) -> asyncio.TimerHandle:
        """Schedule a callback of the world, or a network callback of the incarnation `of`."""
        context = _WORLD if of is None else of.context
        guard = callback if of is None else _Guard(callback, of, network=True)
        return self._call_at_world(self.now + delay_s, guard, args, context)

    def resume(self, incarnation: Incarnation) -> None:
        """Resume a paused incarnation: network callbacks run before its timers."""
        incarnation.paused = False
        waiting = incarnation.backlog_network + incarnation.backlog
        incarnation.backlog_network, incarnation.backlog = [], []
        self._ready.extend(waiting)  # type: ignore[attr-defined]

    # ---- loop functions for nodes

    async def create_connection(self, factory: Any, host: Any, port: Any, **_: Any) -> Any:  # type: ignore[override]
        """Connect over the simulated network."""
        return await self.network.connect(factory, host, port)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        """Run `func` at once after the delay of `executor`, or of the disk if it has none."""
        current = CURRENT.get()
        assert current is not None
        future: asyncio.Future[Any] = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            current.off_loop = True
            try:
                result = func(*args)
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(result)
            finally:
                current.off_loop = False

        delay_s = getattr(executor, "delay_s", None) or current.disk_delay
        self.call_later(delay_s(), work)
        return future

    def add_signal_handler(  # type: ignore[override]
        self, sig: int, callback: Any, *args: Any
    ) -> None:
        """Register a handler for `Machine.terminate`."""
        current = CURRENT.get()
        assert current is not None
        current.signals[sig] = lambda: callback(*args)

    def remove_signal_handler(self, sig: int) -> bool:
        """Remove a handler; return whether there was one."""
        current = CURRENT.get()
        return current is not None and current.signals.pop(sig, None) is not None

    def _process_events(self, event_list: Any) -> None:
        """Do nothing: there are no sockets."""

    def _write_to_self(self) -> None:
        """Do nothing: the loop never blocks."""

    # ---- running

    def run_until_world(self, at: float) -> None:
        """Let time pass until `at`, or until no callback is scheduled."""
        timer = self._call_at_world(at, self.stop, (), _WORLD)
        self.run_forever()
        timer.cancel()
        self.now = max(self.now, at) if timer.when() <= self.now else self.now


_WORLD = contextvars.Context()
"""The context of callbacks without an incarnation."""
