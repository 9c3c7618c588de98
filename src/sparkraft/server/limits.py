"""Limits of the process: open files and malloc's thresholds.

* By default malloc maps and unmaps large buffers (1 MB fetches) each time; higher thresholds keep
  them, which is 4-5 times faster (docs/PERFORMANCE.md).
* The soft limit of open files is raised to the hard limit; connections may use what the logs' files
  leave.
"""

import ctypes
import logging
import socket

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.storage.disk import CACHED_FILES_MAX, SPARE_FILES, raise_file_limit

log = logging.getLogger(__name__)

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEPT_BYTES = 32 << 20
"""Freed memory that stays with the process: enough for a few large fetches."""


def tune_malloc(kept_bytes: int = _KEPT_BYTES) -> None:
    """Keep freed buffers, up to `kept_bytes`; does nothing if the C library is not glibc."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_THRESHOLD, kept_bytes)
    mallopt(_M_TRIM_THRESHOLD, kept_bytes)


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
