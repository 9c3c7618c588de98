"""The request log: slow requests, and each request if its logger is at DEBUG.

Kafka's `kafka.request.logger`; ours is `sparkraft.request`. Its level can change at run time
(KIP-412). At DEBUG each response is one line, and requests take the long path, which knows their
client; so this is for a look at a few clients, not for a busy node.

A request is slow after `SLOW_MS`, unless it waits on purpose (`_WAITING`).
At most one line per `LOGGED_EACH_MS`, which counts the others.
"""

import logging
from typing import TYPE_CHECKING

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.server.loop_monitor import LOGGED_EACH_MS

if TYPE_CHECKING:
    from sparkraft.base.env import Clock
    from sparkraft.server.api.registry import RequestContext
    from sparkraft.server.network.dispatch import Route

log = logging.getLogger("sparkraft.request")

SLOW_MS = 1_000
"""Ten times what a Produce to three replicas takes on a bad day."""


_WAITING = frozenset({ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""Requests that wait for records, or for the other members of a group."""


class RequestLog:
    """See the module docstring; shared by the connections of a listener.

    Attributes:
        is_on: the logger is at DEBUG, as of the last `refresh`.
    """

    def __init__(self, clock: "Clock") -> None:
        self._clock = clock
        self.is_on = False
        self._logged_ms = -LOGGED_EACH_MS
        self._unlogged = 0

    def refresh(self) -> None:
        """Look at the logger's level."""
        self.is_on = log.isEnabledFor(logging.DEBUG)

    def on_response(
        self,
        route: "Route",
        context: "RequestContext",
        queue_ms: int,
        local_ms: int,
        remote_ms: int,
    ) -> None:
        """A response leaves."""
        total_ms = queue_ms + local_ms + remote_ms
        if self.is_on:
            text = _described(route, context, total_ms, queue_ms, local_ms, remote_ms)
            log.debug("Completed %s", text)
        elif total_ms >= SLOW_MS and route.api.key not in _WAITING:
            self._warn(_described(route, context, total_ms, queue_ms, local_ms, remote_ms))

    def _warn(self, text: str) -> None:
        now_ms = self._clock.mono_ms()
        if now_ms - self._logged_ms < LOGGED_EACH_MS:
            self._unlogged += 1
            return
        more = f"; {self._unlogged} more since the last line" if self._unlogged else ""
        log.warning("Slow request: %s%s", text, more)
        self._logged_ms = now_ms
        self._unlogged = 0


def _described(
    route: "Route", context: "RequestContext", total_ms: int, queue_ms: int, local_ms: int,
    remote_ms: int,
) -> str:  # fmt: skip
    return (
        f"{route.api.key.name} v{route.version} correlation {context.correlation_id} of client "
        f"{context.client_id!r} as {context.principal} on {context.connection_id} took {total_ms} "
        f"ms: queue {queue_ms}, local {local_ms}, remote {remote_ms}"
    )
