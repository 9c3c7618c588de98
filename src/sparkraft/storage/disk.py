"""Files as storage sees them: a `Disk` that can be the machine's or a faulty one in memory.

Paths are absolute strings joined by `/`. Every method blocks and raises `OSError` as `os` does.

Threads: `fsync`, `fsync_dir`, `replace`, `read`, `read_part`, `warm`, `extend`, `discard`, `size`,
`mkdir`, `listdir` and `move` may be called from any thread, and so may `write` and `rename` for
files that are not open. All other methods belong to the one thread that owns the logs, because they
share the cache of open files.
"""

import fcntl
import os
import resource
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock
from typing import NamedTuple, Protocol

from sparkraft.records.batch import Buffer
from sparkraft.storage.mapped import CAN_MAP, VIEW_BYTES_MIN, MappedFiles
from sparkraft.storage.names import BOOTSTRAP_CHECKPOINT, METADATA_DIR
from sparkraft.storage.page_cache import PageCache


class FilePart(NamedTuple):
    """Bytes of a file."""

    path: str
    at: int
    size: int


class StorageFault(Exception):  # noqa: N818 (a fault of the disk, not of the caller)
    """A disk failed or its contents are damaged; the log directory goes offline.

    Args:
        log_dir: the directory of `log.dirs` it happened in.
        operation: the failed operation, such as `append to flights-0`.
        cause: the `OSError`, or a sentence.
    """

    def __init__(self, log_dir: str, operation: str, cause: OSError | str) -> None:
        """Name the place and the cause."""
        super().__init__(f"{operation} in {log_dir}: {cause}")
        self.log_dir = log_dir
        self.operation = operation
        self.cause = cause


class DirectoryLocked(Exception):  # noqa: N818 (a sentence for the operator)
    """Another process holds the lock of a directory."""


class DirectoryLock(Protocol):
    """A held `.lock` file."""

    def release(self) -> None:
        """Let another process have it."""
        ...


class Disk(Protocol):
    """A file system, as far as logs need one."""

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, sorted; `FileNotFoundError` if there is none."""
        ...

    def mkdir(self, path: str) -> None:
        """Make a directory and its parents; quiet if it exists."""
        ...

    def is_dir(self, path: str) -> bool:
        """Whether there is a directory of this name."""
        ...

    def size(self, path: str) -> int:
        """Bytes in a file, -1 if there is none."""
        ...

    def mtime_ms(self, path: str) -> int:
        """Last modification, ms since 1970."""
        ...

    def read(self, path: str) -> bytes:
        """A whole small file; `FileNotFoundError` if there is none."""
        ...

    def pread(self, path: str, count: int, at: int) -> bytes:
        """Up to `count` bytes from `at`; fewer at the end of the file."""
        ...

    def view(self, path: str, count: int, at: int, *, grows: bool) -> Sequence[bytes | memoryview]:
        """As `pread`, in pieces that may be mapped: to be handed to a socket, and never read.

        `grows`: whether the file may yet become longer.
        """
        ...

    def read_part(self, path: str, count: int, at: int) -> bytes:
        """As `pread`, from any thread: for long walks beside the owner of the logs."""
        ...

    def cold_part(
        self, path: str, count: int, at: int, *, to_send: bool = False, grows: bool = False
    ) -> "FilePart | None":
        """The part to `warm` so that reading these bytes does not wait for the device, or None.

        `to_send`: they will be read by `view`, which may map more than them. The bytes must be
        within the file. None also if the system does not know.
        """
        ...

    def warm(self, part: "FilePart") -> None:
        """Read a part of a file into the page cache, from any thread; quiet if that fails.

        The read that follows gets the error.
        """
        ...

    def append(self, path: str, buffers: Sequence[Buffer]) -> None:
        """Write all buffers at the end of a file, which is made if needed; not synced."""
        ...

    def extend(self, path: str, data: Buffer) -> None:
        """Append from any thread, to a file that no other thread has open."""
        ...

    def write(self, path: str, data: Buffer) -> None:
        """Make or overwrite a file; neither atomic nor synced."""
        ...

    def truncate(self, path: str, size: int) -> None:
        """Cut a file to `size` bytes."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory, replacing a file."""
        ...

    def move(self, old: str, new: str) -> None:
        """Rename a directory after `forget`, from any thread."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file; quiet if there is none."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory and the files in it; quiet if there is none."""
        ...

    def forget(self, path: str) -> None:
        """Keep no handle of a file or of the files in a directory, before `discard` or `move`."""
        ...

    def discard(self, path: str) -> None:
        """Remove a file or a directory after `forget`, from any thread; quiet if there is none.

        Freeing the blocks of a large file takes a disk long: 0.2 s for 1 GB on ext4.
        """
        ...

    def fsync(self, path: str) -> None:
        """Make a file's bytes survive a power loss; `FileNotFoundError` if there is none."""
        ...

    def fsync_dir(self, path: str) -> None:
        """Make a directory's entries survive a power loss."""
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Put a new file in place of an old one: after a crash it is old or new, never mixed."""
        ...

    def lock(self, path: str) -> DirectoryLock:
        """Hold the file `path` against other processes; `DirectoryLocked` if one has it."""
        ...

    def usable_bytes(self, path: str) -> tuple[int, int]:
        """(total, usable) bytes of the volume a directory lies on."""
        ...

    def share(self, *, shared: bool) -> None:
        """Let every method be called from any thread, or no more; files are not kept open then."""
        ...

    def release_views(self, *, entirely: bool = False) -> None:
        """Unmap views that were not requested since the last call, or all of them."""
        ...

    def fault_point(self, point: str) -> bool:
        """A fault point by name; False on a machine (see `base.env.FaultPoint`)."""
        ...

    def close(self) -> None:
        """Close every cached file."""
        ...


SPARE_FILES = 256
"""Descriptors left to sockets and libraries when the cache of open files is sized."""

CACHED_FILES_MAX = 8192
"""No more open files than this, whatever the limit allows."""

CACHED_FILES_MIN = 64

_BUFFERS_PER_CALL = 512  # Linux takes 1024

USELESS_WARMS_MAX = 8
"""Parts in a row that were not in the page cache just after they were read: then the file system
does not use it, as ZFS, and all reads are done in place."""

WARM_BYTES = 256 * 1024
"""Read at a time into a page cache that lacks them; the buffer is of this size, too."""


class FileLimitTooLow(Exception):  # noqa: N818 (a sentence for the operator)
    """RLIMIT_NOFILE is too low to run a node."""


def raise_file_limit() -> int:
    """Raise the soft limit of open files to the hard one and return it.

    Raises:
        FileLimitTooLow: even that is fewer than a node can run with.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError):  # some systems refuse an unlimited soft value
            pass
    limit = 1 << 20 if soft == resource.RLIM_INFINITY else soft
    if limit < SPARE_FILES + CACHED_FILES_MIN:
        raise FileLimitTooLow(
            f"this process may open only {limit} files (ulimit -n); "
            f"it needs at least {SPARE_FILES + CACHED_FILES_MIN}, better 100000"
        )
    return limit


class OsDisk:
    """The machine's file system, with a bounded cache of open files.

    Args:
        open_files_max: files kept open; by default a quarter of the process's limit.
    """

    def __init__(self, open_files_max: int | None = None) -> None:
        """Start with nothing open."""
        if open_files_max is None:
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            open_files_max = min(CACHED_FILES_MAX, max(CACHED_FILES_MIN, limit // 4))
        self._open_files_max = open_files_max
        self._files: OrderedDict[str, int] = OrderedDict()
        self._in_folder: dict[str, set[str]] = {}
        """Folder → its files among `_files`."""
        self._mapped = MappedFiles()
        self._page_cache = PageCache()
        self._useless_warms = 0
        # Guards closing against `fsync` from another thread, which duplicates the descriptor.
        self._closing = Lock()
        self._replaced: list[str] = []
        self._shared = False

    def listdir(self, path: str) -> list[str]:
        """See `Disk.listdir`."""
        return sorted(os.listdir(path))

    def mkdir(self, path: str) -> None:
        """See `Disk.mkdir`."""
        os.makedirs(path, exist_ok=True)

    def is_dir(self, path: str) -> bool:
        """See `Disk.is_dir`."""
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        """See `Disk.size`."""
        try:
            return os.stat(path).st_size
        except FileNotFoundError:
            return -1

    def mtime_ms(self, path: str) -> int:
        """See `Disk.mtime_ms`."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def read(self, path: str) -> bytes:
        """See `Disk.read`."""
        with open(path, "rb", buffering=0) as file:
            return file.readall()

    def pread(self, path: str, count: int, at: int) -> bytes:
        """See `Disk.pread`."""
        if self._shared:
            return self.read_part(path, count, at)
        return os.pread(self._fd_of(path), count, at)

    def _fd_of(self, path: str) -> int:
        """An open file, which must be there."""
        if self._replaced:
            self._drop_replaced()
        files = self._files
        fd = files.get(path)
        if fd is None:
            return self._open(path, os.O_RDWR)
        files.move_to_end(path)
        return fd

    def view(self, path: str, count: int, at: int, *, grows: bool) -> Sequence[bytes | memoryview]:
        """See `Disk.view`."""
        if count < VIEW_BYTES_MIN or self._shared or not CAN_MAP:
            return [self.pread(path, count, at)]
        fd = self._fd_of(path)
        return self._mapped.views(fd, path, count, at, grows=grows) or [os.pread(fd, count, at)]

    def release_views(self, *, entirely: bool = False) -> None:
        """See `Disk.release_views`."""
        if entirely:
            self._mapped.clear()
        else:
            self._mapped.forget_unused()

    def read_part(self, path: str, count: int, at: int) -> bytes:
        """See `Disk.read_part`."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(fd, count, at)
        finally:
            os.close(fd)

    def cold_part(
        self, path: str, count: int, at: int, *, to_send: bool = False, grows: bool = False
    ) -> FilePart | None:
        """See `Disk.cold_part`."""
        if self._shared or self._useless_warms >= USELESS_WARMS_MAX:
            return None
        fd = self._fd_of(path)
        if to_send and count >= VIEW_BYTES_MIN and CAN_MAP:
            at, count = self._mapped.to_map(fd, path, count, at, grows=grows)
        return None if self._page_cache.holds(fd, count, at) else FilePart(path, at, count)

    def warm(self, part: FilePart) -> None:
        """See `Disk.warm`."""
        buffer = memoryview(bytearray(min(part.size, WARM_BYTES)))
        end = part.at + part.size
        with suppress(OSError):
            fd = os.open(part.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                # The device gets the whole part at once; the reads wait for it.
                os.posix_fadvise(fd, part.at, part.size, os.POSIX_FADV_WILLNEED)
                for at in range(part.at, end, WARM_BYTES):
                    os.preadv(fd, [buffer[: end - at]], at)
                helped = PageCache().holds(fd, part.size, part.at)
                self._useless_warms = 0 if helped else self._useless_warms + 1
            finally:
                os.close(fd)

    def extend(self, path: str, data: Buffer) -> None:
        """See `Disk.extend`."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _mode_of(path))
        try:
            _write_rest(fd, [data], 0)
        finally:
            os.close(fd)

    def append(self, path: str, buffers: Sequence[Buffer]) -> None:
        """See `Disk.append`."""
        if self._shared:
            self.extend(path, b"".join(buffers))
            return
        if self._replaced:
            self._drop_replaced()
        files = self._files
        fd = files.get(path)
        if fd is None:
            fd = self._open(path, os.O_RDWR | os.O_CREAT)
        else:
            files.move_to_end(path)
        total = 0
        for buffer in buffers:
            total += len(buffer)
        if len(buffers) <= _BUFFERS_PER_CALL:
            written = os.writev(fd, buffers)
            if written == total:
                return
        else:
            written = 0
        _write_rest(fd, buffers, written)

    def write(self, path: str, data: Buffer) -> None:
        """See `Disk.write`."""
        self._forget(path)
        _write_file(path, data, synced=False)

    def truncate(self, path: str, size: int) -> None:
        """See `Disk.truncate`."""
        self._mapped.forget(path)
        os.truncate(path, size)

    def rename(self, old: str, new: str) -> None:
        """See `Disk.rename`."""
        self._mapped.forget(old)
        self._forget(old)
        self._forget(new)
        self._forget_folder(old)
        os.rename(old, new)

    def move(self, old: str, new: str) -> None:
        """See `Disk.move`."""
        os.rename(old, new)

    def unlink(self, path: str) -> None:
        """See `Disk.unlink`."""
        self._forget(path)
        with suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """See `Disk.remove_tree`."""
        try:
            names = os.listdir(path)
        except FileNotFoundError:
            return
        for name in names:
            inner = f"{path}/{name}"
            if os.path.isdir(inner) and not os.path.islink(inner):
                self.remove_tree(inner)
            else:
                self.unlink(inner)
        os.rmdir(path)

    def forget(self, path: str) -> None:
        """See `Disk.forget`."""
        self._forget(path)
        self._forget_folder(path)

    def discard(self, path: str) -> None:
        """See `Disk.discard`."""
        if not os.path.isdir(path) or os.path.islink(path):
            with suppress(FileNotFoundError):
                os.unlink(path)
            return
        for name in os.listdir(path):
            self.discard(f"{path}/{name}")
        os.rmdir(path)

    def fsync(self, path: str) -> None:
        """See `Disk.fsync`."""
        with self._closing:
            cached = None if path in self._replaced else self._files.get(path)
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if cached is None else os.dup(cached)
        try:
            os.fdatasync(fd)
        finally:
            os.close(fd)

    def fsync_dir(self, path: str) -> None:
        """See `Disk.fsync_dir`."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def replace(self, path: str, data: bytes) -> None:
        """See `Disk.replace`."""
        fresh = path + ".tmp"
        _write_file(fresh, data, synced=True)
        os.rename(fresh, path)
        self._replaced.append(path)
        self.fsync_dir(os.path.dirname(path))

    def lock(self, path: str) -> DirectoryLock:
        """See `Disk.lock`."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # Java's FileChannel.lock is a POSIX record lock; only the same kind excludes it.
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise DirectoryLocked(f"another process holds {path}") from error
        return _OsLock(fd)

    def usable_bytes(self, path: str) -> tuple[int, int]:
        """See `Disk.usable_bytes`."""
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize

    def share(self, *, shared: bool) -> None:
        """See `Disk.share`."""
        self.close()
        self._shared = shared

    def fault_point(self, point: str) -> bool:
        """See `Disk.fault_point`."""
        _ = point
        return False

    def close(self) -> None:
        """See `Disk.close`."""
        with self._closing:
            for fd in self._files.values():
                os.close(fd)
            self._files.clear()
            self._in_folder.clear()
        self._mapped.clear()

    @property
    def open_files(self) -> int:
        """How many files the cache holds open."""
        return len(self._files)

    def _open(self, path: str, flags: int) -> int:
        if len(self._files) >= self._open_files_max:
            with self._closing:
                name, oldest = self._files.popitem(last=False)
                self._leave_folder(name)
                os.close(oldest)
        fd = os.open(path, flags | os.O_APPEND | os.O_CLOEXEC, _mode_of(path))
        self._files[path] = fd
        self._in_folder.setdefault(path.rpartition("/")[0], set()).add(path)
        return fd

    def _drop_replaced(self) -> None:
        """Close what `replace`, in whichever thread, has put another file in place of."""
        while self._replaced:
            self._forget(self._replaced.pop())

    def _forget(self, path: str) -> None:
        """Close `path`, as it is about to mean another file."""
        self._mapped.forget(path)
        if path in self._files:
            with self._closing:
                os.close(self._files.pop(path))
            self._leave_folder(path)

    def _forget_folder(self, path: str) -> None:
        """Close the files in a folder."""
        for name in list(self._in_folder.get(path, ())):
            self._forget(name)

    def _leave_folder(self, path: str) -> None:
        folder = path.rpartition("/")[0]
        inside = self._in_folder[folder]
        inside.discard(path)
        if not inside:
            del self._in_folder[folder]


class _OsLock:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        os.close(self._fd)


def _mode_of(path: str) -> int:
    """The permissions of a new file, before the umask.

    The metadata log, its snapshots and `bootstrap.checkpoint` contain passwords of dynamic configs
    in clear text, and keys of SCRAM: only their owner reads them. In Kafka the umask decides.
    """
    folder, _, name = path.rpartition("/")
    is_private = folder.endswith(f"/{METADATA_DIR}") or name.startswith(BOOTSTRAP_CHECKPOINT)
    return 0o600 if is_private else 0o644


def _write_file(path: str, data: Buffer, *, synced: bool) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _mode_of(path))
    try:
        _write_rest(fd, [data], 0)
        if synced:
            os.fsync(fd)
    finally:
        os.close(fd)


def _write_rest(fd: int, buffers: Sequence[Buffer], written: int) -> None:
    """Write what a short write left over; a full disk shows as `OSError` on the next call."""
    for buffer in buffers:
        size = len(buffer)
        if written >= size:
            written -= size
            continue
        view = memoryview(buffer)[written:]
        written = 0
        while view:
            view = view[os.write(fd, view) :]
