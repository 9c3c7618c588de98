"""Limits of the process: open files, malloc's thresholds, address space.

* By default malloc maps and unmaps large buffers (1 MB fetches) each time; higher thresholds keep
  them, which is 4-5 times faster (docs/PERFORMANCE.md).
* What a burst has freed is returned to the system within seconds (`MemoryTrimmer`): malloc keeps it
  for as long as a small allocation lies above it.
* The soft limit of open files is raised to the hard limit; connections may use what the logs' files
  leave.
"""

import asyncio
import ctypes
import gc
import logging
import socket
from contextlib import suppress
from typing import Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.malloc import tune_malloc
from sparkraft.storage.disk import CACHED_FILES_MAX, SPARE_FILES, raise_file_limit

log = logging.getLogger(__name__)

_ARENAS = 2
"""Threads allocate few buffers and large ones, so they can share one beside the main thread's."""

_KEPT_BYTES = 32 << 20
"""Freed memory that stays with the process: enough for a few large fetches."""


def keep_freed_buffers(kept_bytes: int = _KEPT_BYTES) -> None:
    """Keep freed buffers, up to `kept_bytes`."""
    tune_malloc(mapped_bytes_min=kept_bytes, kept_bytes=kept_bytes, arenas=_ARENAS)


TRIM_CHECK_SECONDS = 5.0
"""Interval of the checks for freed memory; a check takes microseconds."""

TRIM_BYTES_MIN = 64 << 20
"""Freed bytes that are worth a trim, which takes milliseconds in a thread: twice `_KEPT_BYTES`."""


_YOUNG = 1
"""The generation of objects that are younger than a few checks. A busy node makes that many in
seconds; to look at them takes some milliseconds."""

_MALLINFO2_FIELDS = (
    *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
    *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
)


class _MallInfo2(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_size_t) for name in _MALLINFO2_FIELDS)


class MemoryTrimmer:
    """Returns freed memory to the system; does nothing if the C library is not glibc 2.33 or later.

    Trimmed memory still counts as free in malloc's figures, so the measure is how much more is free
    than at the lowest point since the last trim.
    """

    def __init__(self) -> None:
        self.trims = 0
        self._lowest = 0
        self._info: Any = None
        self._trim: Any = None
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(None)
            self._info, self._trim = library.mallinfo2, library.malloc_trim
            self._info.restype = _MallInfo2

    def start(self) -> None:
        """Check regularly, for as long as the running loop runs."""
        if self._info is not None:
            self._lowest = self.free_bytes
            self._later()

    @property
    def free_bytes(self) -> int:
        """Bytes that malloc has and nothing uses; 0 if unknown."""
        return 0 if self._info is None else int(self._info().fordblks)

    def _later(self) -> None:
        asyncio.get_running_loop().call_later(TRIM_CHECK_SECONDS, self._check)

    def _check(self) -> None:
        # The frames of a refused request's exception may hold its data, in a cycle.
        gc.collect(_YOUNG)
        free = self.free_bytes
        self._lowest = min(self._lowest, free)
        if free - self._lowest >= TRIM_BYTES_MIN:
            self._lowest = free
            self.trims += 1
            with suppress(RuntimeError):  # no thread can be started
                # ctypes releases the interpreter meanwhile.
                asyncio.get_running_loop().run_in_executor(None, self._trim, 0)
        self._later()


def connections_max(configured: int, *, listeners: int) -> int:
    """`max.connections` of one listener, at most its share of the files the process may open.

    Listeners get equal shares, so that clients cannot use up the quorum's connections.

    Raises:
        FileLimitTooLow: the limit is too low for any node.
    """
    limit = raise_file_limit()
    cached = min(CACHED_FILES_MAX, limit // 4)
    room = limit - cached - SPARE_FILES // 2
    return max(1, min(configured, room // listeners))


def per_ip_overrides(text: str) -> dict[str, int]:
    """`max.connections.per.ip.overrides` by address: `host:count` pairs, with names resolved now.

    Raises:
        KafkaError: INVALID_CONFIG for a malformed pair or an unknown host.
    """
    limits: dict[str, int] = {}
    for pair in filter(None, (each.strip() for each in text.split(","))):
        host, colon, count = pair.rpartition(":")
        if not colon or not host or not count.isdecimal():
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"max.connections.per.ip.overrides: {pair!r} is not host:count",
            )
        try:
            found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
        except OSError as error:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"max.connections.per.ip.overrides: {host} has no address: {error}",
            ) from error
        limits.update((str(address[0]), int(count)) for *_, address in found)
    return limits
