"""Settings of glibc's malloc for a process."""

import ctypes

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8


def tune_malloc(*, mapped_bytes_min: int, kept_bytes: int, arenas: int) -> None:
    """Set the thresholds; does nothing if the C library is not glibc.

    By default glibc raises the first two whenever a large buffer is freed, and makes eight arenas a
    core: memory that a thread has freed then stays with the process.

    Args:
        mapped_bytes_min: larger buffers are mapped and unmapped each time.
        kept_bytes: freed memory at the end of the heap that stays with the process.
        arenas: heaps that threads share; each reserves 64 MiB of address space.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_THRESHOLD, mapped_bytes_min)
    mallopt(_M_TRIM_THRESHOLD, kept_bytes)
    mallopt(_M_ARENA_MAX, arenas)
