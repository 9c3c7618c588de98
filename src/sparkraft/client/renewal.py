"""When a client authenticates again: before its session expires (KIP-368).

As in Kafka's `SaslClientAuthenticator`, at a random time between 85 and 95 % of the session's
lifetime, so that the clients of a restarted node do not all do it at once.

Not here: the requests of it (`connection`, `wire_exchange`).
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.security.login import Credentials

FACTOR_MIN = 0.85
FACTOR_RANGE = 0.10

_RANDOM = random.SystemRandom()


def renewal_ms(lifetime_ms: int) -> int:
    """How long after an authentication the next one begins; the session lasts `lifetime_ms`."""
    return int(lifetime_ms * (FACTOR_MIN + FACTOR_RANGE * _RANDOM.random()))


class Renewal:
    """The re-authentication of one connection.

    Attributes:
        is_running: it has begun and has not ended.
    """

    def __init__(self, start: Callable[[Credentials], None]) -> None:
        """Call `start` when it begins."""
        self._start = start
        self._login: Credentials | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.is_running = False

    def schedule(self, login: Credentials, lifetime_ms: int) -> None:
        """A session of that lifetime has begun; 0: it does not expire."""
        self._login = login
        if lifetime_ms > 0:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(renewal_ms(lifetime_ms) / 1000, self._begin)

    def complete(self, lifetime_ms: int) -> None:
        """It has ended, and the new session has that lifetime."""
        assert self._login is not None
        self.is_running = False
        self.schedule(self._login, lifetime_ms)

    def cancel(self) -> None:
        """The connection is lost."""
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self) -> None:
        assert self._login is not None
        self.is_running = True
        self._start(self._login)
