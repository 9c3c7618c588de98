"""Whether bytes of a file are in the page cache, so that reading them does not wait for a device.

Two questions of about 1 µs each:

    cachestat   how many pages of the part are cached, or being read (Linux 6.5)
    preadv2     RWF_NOWAIT: a page can be read now, without waiting for a read that has begun

If one of them is missing, the other one decides. Without both, every part counts as cached and is
read in place.

Not here: how a part gets into the page cache (`server.broker.cold_reads`).
"""

import ctypes
import os
import sys

PAGE_BYTES = os.sysconf("SC_PAGESIZE")

PROBE_BYTES = 128 * 1024
"""One page of each stretch of this size is probed, and the last one: Linux reads ahead in such
steps."""

_CACHESTAT = 451
"""The number of the system call, the same on every architecture that is listed."""

_ARCHITECTURES = frozenset({"x86_64", "aarch64", "riscv64", "ppc64le", "s390x"})


class _Part(ctypes.Structure):
    """`struct cachestat_range`."""

    _fields_ = (("at", ctypes.c_uint64), ("count", ctypes.c_uint64))


class _Pages(ctypes.Structure):
    """`struct cachestat`: pages by state."""

    _fields_ = tuple(
        (state, ctypes.c_uint64)
        for state in ("cached", "dirty", "written", "evicted", "recently_evicted")
    )


class PageCache:
    """Asks the kernel about parts of open files; for one thread."""

    __slots__ = ("_byte", "_can_probe", "_pages", "_part", "_references", "_syscall")

    def __init__(self, *, counts: bool = True, probes: bool = True) -> None:
        """Use `cachestat` if `counts`, and RWF_NOWAIT if `probes`, as far as they exist here."""
        linux = sys.platform == "linux"
        self._part, self._pages = _Part(), _Pages()
        self._references = ctypes.byref(self._part), ctypes.byref(self._pages)
        self._syscall = None
        if counts and linux and os.uname().machine in _ARCHITECTURES:
            self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._can_probe = probes and linux and hasattr(os, "RWF_NOWAIT")
        self._byte = [bytearray(1)]

    def holds(self, fd: int, count: int, at: int) -> bool:
        """Whether `count` bytes from `at`, all within the file, can be read without waiting."""
        if count <= 0:
            return True
        last = at + count - 1
        if self._syscall is not None:
            self._part.at, self._part.count = at, count
            if self._syscall(_CACHESTAT, fd, *self._references, 0):
                self._syscall = None  # an older kernel, or one that does not allow it
            elif self._pages.cached <= last // PAGE_BYTES - at // PAGE_BYTES:
                return False
        return not self._can_probe or (
            all(self._reads(fd, each) for each in range(at, last, PROBE_BYTES))
            and self._reads(fd, last)
        )

    def _reads(self, fd: int, at: int) -> bool:
        try:
            os.preadv(fd, self._byte, at, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError:  # a file system without RWF_NOWAIT; errors surface when the part is read
            self._can_probe = False
        return True
