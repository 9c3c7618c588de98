"""Parts of files as memory, for those who only hand them on to a socket.

A record that is read into this process and sent from there is moved twice; from a mapping the
kernel takes it straight out of the page cache. Files are mapped in windows, which stay for a while:
making one and letting it go costs about as much as a copy.

Only system calls may read a view of a window. If the file was truncated, reading the view in this
process raises SIGBUS and ends it, while a system call fails with EFAULT. The last window of a
growing file is not mapped, because it would have to be mapped again after each append. Each window
is read once when it is mapped, so that a disk error surfaces there.

Not here: which reads may be views (`storage.disk`, `storage.segment`).
"""

import mmap
import os
import sys
from collections import OrderedDict
from weakref import WeakSet

from sparkraft.base.loop_work import LoopBound

WINDOW_BYTES: LoopBound = 4 << 20
"""Mapped at once: a few answers' worth. A multiple of every page size."""

WINDOWS_MAX = 64
"""Kept at once: 256 MiB of addresses, and as many open files at most."""

UNREAD_WINDOWS_MAX = 16
"""Windows that are not kept, but belong to responses that clients have not read. While there are so
many, nothing more is mapped: records are copied instead, and count as memory for responses. Clients
that do not read would otherwise take all addresses and open files."""

VIEW_BYTES_MIN = 64 * 1024
"""Less is copied: cheaper than a further buffer, and what is small is joined on its way."""

_MADV_POPULATE_READ = 22  # Linux 5.14; Python 3.11 doesn't name it


class MappedFiles:
    """The windows of one thread's files, the last used first; see the module's docstring."""

    __slots__ = ("_mapped", "_unused", "_windows")

    def __init__(self) -> None:
        """Nothing is mapped."""
        self._windows: OrderedDict[tuple[str, int], memoryview] = OrderedDict()
        self._mapped: WeakSet[mmap.mmap] = WeakSet()
        """Of the windows that are kept, and of those that only views refer to."""
        self._unused: set[tuple[str, int]] = set()

    def views(
        self, fd: int, path: str, count: int, at: int, *, grows: bool
    ) -> list[bytes | memoryview] | None:
        """`count` bytes from `at` of the file `path`, open as `fd`, in pieces.

        None if they are not available: beyond the file's end, in the last window of a growing file,
        unreadable (`pread` then raises the error), or if unread responses hold too many windows.
        """
        pieces: list[bytes | memoryview] = []
        end = at + count
        while at < end:
            index, start = divmod(at, WINDOW_BYTES)
            window = self._window(fd, path, index, grows=grows)
            if window is None:
                return None
            piece: bytes | memoryview = window[start : min(start + end - at, WINDOW_BYTES)]
            if len(piece) < VIEW_BYTES_MIN:  # at the border of two: it will be joined with others
                piece = os.pread(fd, len(piece), at)
            if not piece:
                return None
            pieces.append(piece)
            at += len(piece)
        return pieces

    def _window(self, fd: int, path: str, index: int, *, grows: bool) -> memoryview | None:
        key = path, index
        found = self._windows.get(key)
        if found is not None:
            self._windows.move_to_end(key)
            self._unused.discard(key)
            return found
        if len(self._mapped) - len(self._windows) >= UNREAD_WINDOWS_MAX:
            return None
        offset = index * WINDOW_BYTES
        try:
            size = WINDOW_BYTES if grows else min(WINDOW_BYTES, os.fstat(fd).st_size - offset)
            if size <= 0:
                return None
            mapped = mmap.mmap(fd, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ, offset=offset)
            mapped.madvise(_MADV_POPULATE_READ)
        except (ValueError, OSError):  # beyond the end; unreadable, or no memory, or an old kernel
            return None
        if len(self._windows) >= WINDOWS_MAX:
            oldest, _ = self._windows.popitem(last=False)
            self._unused.discard(oldest)
        self._mapped.add(mapped)
        window = self._windows[key] = memoryview(mapped)
        return window

    def to_map(self, fd: int, path: str, count: int, at: int, *, grows: bool) -> tuple[int, int]:
        """(position, bytes) that `views` of this part reads: windows that are new, as a whole."""
        end = at + count
        first, last = at // WINDOW_BYTES, (end - 1) // WINDOW_BYTES
        if (path, first) not in self._windows or (path, last) not in self._windows:
            size = os.fstat(fd).st_size
            if (path, first) not in self._windows:
                at = first * WINDOW_BYTES
            if (path, last) not in self._windows and (
                not grows or (last + 1) * WINDOW_BYTES <= size
            ):
                end = min((last + 1) * WINDOW_BYTES, size)
        return at, end - at

    def forget(self, path: str) -> None:
        """Give no more views of what is mapped of `path`, a file or a directory; from any thread.

        Files are renamed and removed by others too; none of them is read by views meanwhile.
        """
        inside = path + "/"
        for key in list(self._windows):
            if key[0] == path or key[0].startswith(inside):
                self._windows.pop(key, None)
                self._unused.discard(key)

    def forget_unused(self) -> None:
        """Unmap windows that were not used since the last call."""
        for key in list(self._unused):
            self._windows.pop(key, None)
        self._unused = set(self._windows)

    def clear(self) -> None:
        """Unmap all windows; views that a caller still holds stay valid."""
        self._windows.clear()
        self._unused.clear()

    def __len__(self) -> int:
        """Windows kept."""
        return len(self._windows)


CAN_MAP = sys.platform == "linux"
"""Elsewhere a window can't be read when it is made."""
