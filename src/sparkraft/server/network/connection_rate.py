"""How fast connections are accepted (KIP-612): max.connection.creation.rate, as ConnectionQuotas.

    accepted → AcceptLine.enter → under every limit: served at once
                                → over one: waits in line, unread, and so do those after it

A node's broker listeners share one limit, and each has one of its own, under its prefix. The rate
is measured over a few windows, so a burst passes after a quiet time; each connection beyond it
makes its listener wait, for at most a window, as Kafka's acceptor does before it accepts the next.

Here the kernel has accepted the connection by then: while it waits in line it holds a socket and
counts for max.connections.

Not here: quotas of single addresses (`security.connection_quotas`).
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.base.env import Clock
    from sparkraft.server.config import NodeConfig
RATE = "max.connection.creation.rate"

UNLIMITED = (1 << 31) - 1
"""Kafka's default for every rate of connections."""


class Waiting(Protocol):
    """A connection that may have to wait before it is served."""

    def pause_reading(self) -> None: ...

    def run(self) -> None: ...


class CreationRate:
    """Recently accepted connections, and the limit they are held to."""

    def __init__(self, *, windows: int, window_ms: int, per_second_max: int = UNLIMITED) -> None:
        """Start without connections.

        Args:
            windows: `quota.window.num`, how many are kept.
            window_ms: their length, `quota.window.size.seconds` in ms.
            per_second_max: the limit; it may change at any time.
        """
        self.per_second_max = per_second_max
        self._window_ms = window_ms
        self._windows_max = windows
        self._windows: deque[tuple[int, int]] = deque()
        """Start and count of each, the newest last."""

    def set_limit(self, per_second_max: int) -> None:
        """Hold connections to `per_second_max` from now on."""
        self.per_second_max = per_second_max

    def record(self, now: int) -> int:
        """Count a connection at `now`, monotonic ms; how many ms to wait before it is served."""
        limit = self.per_second_max
        if limit >= UNLIMITED:
            return 0
        self._count(now)
        total = sum(count for _, count in self._windows)
        elapsed_ms = max(now - self._windows[0][0], (self._windows_max - 1) * self._window_ms, 1)
        if limit > 0 and total * 1000 <= limit * elapsed_ms:
            return 0
        excess_ms = total * 1000 // limit - elapsed_ms if limit > 0 else self._window_ms
        return max(1, min(excess_ms, self._window_ms))

    def _count(self, now: int) -> None:
        windows = self._windows
        oldest = now - self._windows_max * self._window_ms
        while windows and windows[0][0] <= oldest:
            windows.popleft()
        if windows and now < windows[-1][0] + self._window_ms:
            start, before = windows.pop()
            windows.append((start, before + 1))
        else:
            windows.append((now, 1))


class ConnectionRates:
    """The limits of a node: each listener's, and one that its broker listeners share.

    As in Kafka, controller listeners share another one, and connections to
    inter.broker.listener.name are exempt from the shared limit if clients have another listener.
    """

    def __init__(self, config: "NodeConfig") -> None:
        self._config = config
        self._shared = {True: self._rate(), False: self._rate()}
        """By whether a listener is for controllers."""
        self._own = {address.name: self._rate() for address in config.listeners}
        self.limit(config.number, config.number_of)

    def _rate(self) -> CreationRate:
        return CreationRate(
            windows=self._config.number("quota.window.num"),
            window_ms=self._config.number("quota.window.size.seconds") * 1000,
        )

    def of(self, listener: str) -> tuple[CreationRate, ...]:
        """The limits that connections of `listener` are held to."""
        config = self._config
        own = self._own[listener]
        is_protected = (
            listener == config.inter_broker_listener_name and len(config.broker_listeners) > 1
        )
        shared = self._shared[listener in config.controller_listener_names]
        return (own,) if is_protected else (own, shared)

    def limit(self, number: "Callable[[str], int]", number_of: "Callable[[str, str], int]") -> None:
        """Apply the current configs: `number(key)`, and `number_of(listener, key)`."""
        for rate in self._shared.values():
            rate.set_limit(number(RATE))
        for listener, rate in self._own.items():
            rate.set_limit(number_of(listener, RATE))


class AcceptLine:
    """The connections of one listener that are not served yet."""

    def __init__(self, rates: Sequence[CreationRate], clock: "Clock") -> None:
        """Hold connections to `rates`, each of them."""
        self._rates = rates
        self._clock = clock
        self._waiting: deque[Waiting] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, connection: Waiting) -> None:
        """Serve a new connection now, or when the rates allow it."""
        if self._waiting:
            connection.pause_reading()
            self._waiting.append(connection)
        elif wait_ms := self._record():
            connection.pause_reading()
            self._waiting.append(connection)
            self._admit_in(wait_ms)

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def close(self) -> None:
        """Serve none of them."""
        if self._timer is not None:
            self._timer.cancel()
        self._waiting.clear()

    def _record(self) -> int:
        now = self._clock.mono_ms()
        return max((rate.record(now) for rate in self._rates), default=0)

    def _admit_in(self, wait_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(wait_ms / 1000, self._admit)

    def _admit(self) -> None:
        """Serve the first in line, which is counted already, and others as the rates allow."""
        while self._waiting:
            self._waiting.popleft().run()
            wait_ms = self._record() if self._waiting else 0
            if wait_ms:
                self._admit_in(wait_ms)
                return
