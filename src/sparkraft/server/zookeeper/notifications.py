"""Notifications of changes: sequential znodes below one znode (`ZkNodeChangeNotificationListener`).

    ROOT/PREFIX0000000017, with data   → applied once, in the order of the numbers

A notification means that something must be read again, so those from before the first read need not
be applied. One that fails is logged and counts as applied. Each broker deletes notifications that
it has known for 15 minutes. Kafka compares the time of their creation with the broker's wall clock:
a broker whose clock is ahead deletes those that others have not read yet.
"""

import asyncio
import logging
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sparkraft.zookeeper.errors import NoNodeError, SessionExpiredError, ZooKeeperError
from sparkraft.zookeeper.exchange import EventType
from sparkraft.zookeeper.requests import Delete, GetChildren, GetData
from sparkraft.zookeeper.znodes.json_form import ZnodeError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sparkraft.base.env import Clock
    from sparkraft.server.zookeeper.session import EnsembleSession
    from sparkraft.zookeeper.exchange import WatchEvent
    from sparkraft.zookeeper.requests import Request

log = logging.getLogger(__name__)

KEEP_MS = 15 * 60_000
"""Time after which a known notification is deleted: Kafka's `changeExpirationMs`."""


class ChangeNotifications:
    """See the module docstring."""

    def __init__(
        self,
        session: "EnsembleSession",
        clock: "Clock",
        prefix: str,
        apply: "Callable[[str, bytes], Awaitable[None]]",
    ) -> None:
        """Follow nothing yet.

        Args:
            session: with the ensemble.
            clock: measures how long notifications are known.
            prefix: the path of a notification without its number.
            apply: called with path and data of each; ZnodeError if it is malformed.
        """
        self._session = session
        self._clock = clock
        self._root, _, name = prefix.rpartition("/")
        self._number = re.compile(re.escape(name) + "([0-9]{10})")
        self._apply = apply
        self._last = -1
        """Number of the last notification that was applied, or was there at the last `skip`."""
        self._known_ms: dict[int, int] = {}
        """Since when each present notification is known, by the monotonic clock."""
        self._wake = asyncio.Event()
        session.add_watcher(self._on_event)

    def _on_event(self, event: "WatchEvent") -> None:
        if event.path == self._root and event.type is EventType.NODE_CHILDREN_CHANGED:
            self._wake.set()

    async def skip(self) -> None:
        """Watch, and leave out the notifications so far: call this before reading everything."""
        self._last = max(await self._numbers(), default=self._last)

    async def run(self) -> None:
        """Apply notifications until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._apply_new()
            except SessionExpiredError:
                continue  # the next session reads everything
            except ZooKeeperError as error:
                log.warning("Notifications of %s could not be read: %s", self._root, error)

    async def _numbers(self) -> dict[int, str]:
        """Number → path of each notification, in order; sets the watch."""
        names, _ = await self._submit(GetChildren(path=self._root, watch=True))
        matches = filter(None, map(self._number.fullmatch, names))
        return dict(sorted((int(each[1]), f"{self._root}/{each[0]}") for each in matches))

    async def _apply_new(self) -> None:
        numbers = await self._numbers()
        for gone in [each for each in self._known_ms if each not in numbers]:
            del self._known_ms[gone]
        for number, path in numbers.items():
            self._known_ms.setdefault(number, self._clock.mono_ms())
            if number > self._last:
                await self._read(number, path)
            await self._maybe_delete(number, path)

    async def _read(self, number: int, path: str) -> None:
        """Read a notification and apply it."""
        try:
            data, _ = await self._submit(GetData(path=path))
        except NoNodeError:
            return  # another broker has deleted it
        self._last = number
        try:
            await self._apply(path, data)
        except ZnodeError as error:
            log.warning("A notification is ignored: %s", error)

    async def _maybe_delete(self, number: int, path: str) -> None:
        if self._clock.mono_ms() - self._known_ms[number] < KEEP_MS:
            return
        with suppress(NoNodeError):
            await self._submit(Delete(path=path))

    async def _submit(self, request: "Request") -> Any:
        return await self._session.client.submit_until_connected(request)
