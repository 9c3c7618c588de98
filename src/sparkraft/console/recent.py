"""Answers that are kept: of the last moments, and about earlier moments of the metadata log.

Pages that request the same at once share one request.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

Json = dict[str, Any]

ANSWER_SECONDS = 2.0

ANSWERS_MAX = 256
"""Entries kept; each is the document of one screen."""


PAST_ANSWERS_MAX = 128
"""Documents of earlier moments; one is seldom larger than 100 kB."""


@dataclass(slots=True)
class _Entry:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    value: Json = field(default_factory=dict)
    valid_until: float = float("-inf")


class RecentAnswers:
    """Documents by key, each made at most once per `ANSWER_SECONDS`."""

    def __init__(self) -> None:
        self._entries: dict[Hashable, _Entry] = {}

    async def get(self, key: Hashable, make: Callable[[], Awaitable[Json]]) -> Json:
        """Return the recent answer of `key`, or the one that `make` returns."""
        loop = asyncio.get_running_loop()
        self._make_room(loop.time())
        entry = self._entries.setdefault(key, _Entry())
        async with entry.lock:
            if entry.valid_until <= loop.time():
                entry.value = await make()
                entry.valid_until = loop.time() + ANSWER_SECONDS
            return entry.value

    def forget(self) -> None:
        """Make every answer again: the cluster was changed. Earlier requests end as they began."""
        self._entries = {}

    def _make_room(self, now: float) -> None:
        if len(self._entries) < ANSWERS_MAX:
            return
        for key, entry in list(self._entries.items()):
            if entry.valid_until <= now and not entry.lock.locked():
                del self._entries[key]


class PastAnswers:
    """Documents of earlier moments, which stay true; the longest unused ones are dropped.

    A key must contain the cluster id and the epoch of the moment's offset: another cluster, or a
    log that was truncated, has other records there.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, Json] = {}

    async def get(
        self,
        key: Hashable,
        make: Callable[[], Awaitable[Json]],
        *,
        is_final: Callable[[Json], bool],
    ) -> Json:
        """Return the kept answer of `key`, or the one that `make` returns, kept if it is final."""
        found = self._kept.pop(key, None)
        if found is None:
            found = await make()
            if not is_final(found):
                return found
        self._kept[key] = found
        while len(self._kept) > PAST_ANSWERS_MAX:
            del self._kept[next(iter(self._kept))]
        return found
