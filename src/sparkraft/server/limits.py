"""What the process gets from the machine: open files, and how malloc behaves.

* Large buffers (1 MB fetches) would be mapped and unmapped each time; raising malloc's thresholds
  keeps them, which is 4-5 times quicker (docs/PERFORMANCE.md).
* The soft limit of open files is raised to the hard one; connections are bounded by what is left
  after the log's files.
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
"""Freed memory up to it stays with the process: a few large fetches, and no more than that."""


def tune_malloc(kept_bytes: int = _KEPT_BYTES) -> None:
    """Keep freed buffers, up to `kept_bytes`; does nothing where the C library is not glibc."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_THRESHOLD, kept_bytes)
    mallopt(_M_TRIM_THRESHOLD, kept_bytes)


def connections_max(configured: int, *, listeners: int) -> int:
    """`max.connections`, but never more than the process may open files for.

    What there is room for is shared out evenly: clients can't take the quorum's connections away.

    Raises:
        FileLimitTooLow: the limit is too low for a node at all.
    """
    limit = raise_file_limit()
    cached = min(CACHED_FILES_MAX, limit // 4)
    room = limit - cached - SPARE_FILES // 2
    return max(1, min(configured, room // listeners))


def per_ip_overrides(text: str) -> dict[str, int]:
    """`max.connections.per.ip.overrides` by address: `host:count` pairs, names looked up now.

    Raises:
        KafkaError: INVALID_CONFIG, for a pair that can't be read or a host that isn't known.
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
