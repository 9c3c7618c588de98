"""Notifications of changes: sequential znodes below one znode (`ZkNodeChangeNotificationListener`).

    ROOT/PREFIX0000000017, with data   → applied once, in the order of the numbers

A notification means that something must be read again, so those from before the first read need not
be applied. One that fails is logged and counts as applied. Each broker deletes notifications older
than 15 minutes.
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
"""Age from which a notification is deleted: Kafka's `changeExpirationMs`."""


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
            clock: the wall clock, for the age of notifications.
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
        self._created_ms: dict[int, int] = {}
        """When the notifications that were read were created, so that each is read once."""
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
        for gone in [each for each in self._created_ms if each not in numbers]:
            del self._created_ms[gone]
        for number, path in numbers.items():
            if number > self._last or number not in self._created_ms:
                await self._read(number, path)
            await self._maybe_delete(number, path)

    async def _read(self, number: int, path: str) -> None:
        """Read a notification, and apply it unless it was there at the last `skip`."""
        try:
            data, stat = await self._submit(GetData(path=path))
        except NoNodeError:
            return  # another broker has deleted it
        self._created_ms[number] = stat.ctime
        if number <= self._last:
            return
        self._last = number
        try:
            await self._apply(path, data)
        except ZnodeError as error:
            log.warning("A notification is ignored: %s", error)

    async def _maybe_delete(self, number: int, path: str) -> None:
        created_ms = self._created_ms.get(number)
        if created_ms is None or self._clock.wall_ms() - created_ms < KEEP_MS:
            return
        with suppress(NoNodeError):
            await self._submit(Delete(path=path))

    async def _submit(self, request: "Request") -> Any:
        return await self._session.client.submit_until_connected(request)
