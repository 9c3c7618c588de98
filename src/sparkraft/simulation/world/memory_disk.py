"""A `Disk` in memory that journals every operation, fails on demand and can crash at any point.

Two kinds of crash:

* *kill* (`killed_at`): the process ends, the page cache stays. A prefix of the journal remains; the
  last write may be truncated at any byte.
* *power loss* (`power_lost_at`): each file keeps its synced content plus any subset of later
  writes, each perhaps torn at a sector; a lost write below a later one leaves zeros. A prefix of
  the changes of names (create, rename, remove) remains that includes at least all changes before
  the last sync of any file, as in a journaling file system.

Invariant: the live content always equals the replay of the whole journal.
"""

import errno
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sparkraft.base.env import Entropy
from sparkraft.records.batch import Buffer
from sparkraft.storage.disk import DirectoryLock, DirectoryLocked, FilePart

SECTOR = 512
"""Unit in bytes that a disk writes atomically."""

PLENTY = 1 << 50


class Operation(NamedTuple):
    """One journal entry."""

    kind: str
    """append, write, truncate, rename, unlink, mkdir, rmdir, fsync or fsync_dir."""
    path: str
    data: bytes = b""
    size: int = 0
    """The new size, for `truncate`."""
    target: str = ""
    """The new path, for `rename`."""


@dataclass(slots=True)
class Fault:
    """Makes matching operations fail; see `MemoryDisk.fail`."""

    kind: str
    path_part: str
    error: int
    skip: int
    times: int


class _File:
    """An inode: its content, the synced content, and the writes since the last sync."""

    __slots__ = ("data", "mtime_ms", "pending", "synced")

    def __init__(self, mtime_ms: int) -> None:
        self.data = bytearray()
        self.synced = b""
        self.pending: list[tuple[int, bytes]] = []
        self.mtime_ms = mtime_ms

    def put(self, at: int, data: bytes) -> None:
        self.data[at : at + len(data)] = data
        self.pending.append((at, data))

    def cut(self, size: int) -> None:
        del self.data[size:]
        self.pending.append((size, b""))

    def sync(self) -> None:
        self.synced = bytes(self.data)
        self.pending.clear()

    def survivor(self, dice: Entropy) -> bytes:
        """Return its content after a power loss."""
        content = bytearray(self.synced)
        for at, data in self.pending:
            if dice.below(2) == 0:
                continue
            if not data:
                del content[at:]
                continue
            kept = data if dice.below(4) else data[: _torn(at, len(data), dice)]
            if kept and len(content) < at:
                content.extend(bytes(at - len(content)))
            content[at : at + len(kept)] = kept
        return bytes(content)


def _torn(at: int, size: int, dice: Entropy) -> int:
    """Return the bytes of a write up to a random sector boundary within it, or 0."""
    first = SECTOR - at % SECTOR
    boundaries = list(range(first, size, SECTOR))
    return boundaries[dice.below(len(boundaries))] if boundaries else 0


@dataclass(slots=True)
class _Tree:
    """A directory tree."""

    files: dict[str, _File] = field(default_factory=dict)
    dirs: set[str] = field(default_factory=lambda: {"/"})

    def copy(self) -> "_Tree":
        return _Tree(dict(self.files), set(self.dirs))


class MemoryDisk:
    """A simulated disk.

    Args:
        now_ms: the clock for modification times.
        capacity_bytes: the size beyond which writes fail with ENOSPC.
    """

    def __init__(self, now_ms: Callable[[], int] = lambda: 0, capacity_bytes: int = PLENTY) -> None:
        self._now_ms = now_ms
        self.capacity_bytes = capacity_bytes
        self._tree = _Tree()
        self.journal: list[Operation] = []
        self._faults: list[Fault] = []
        self._locked: set[str] = set()
        self._since_sync: list[_Tree] = [self._tree.copy()]
        self._start: tuple[dict[str, bytes], set[str]] = ({}, set(self._tree.dirs))
        self.names_changed = 0
        """Number of changes of names, so that callers can cache a listing."""

    # -- control by tests ------------------------------------------------------------------------

    def fail(
        self, kind: str, *, path: str = "", error: int = errno.EIO, skip: int = 0, times: int = 1
    ) -> Fault:
        """Make operations of `kind` (also `pread`, `read`) fail on paths that contain `path`.

        Args:
            kind: as in `Operation.kind`.
            path: part of the path; empty for any.
            error: the `errno`.
            skip: the number of matching operations that succeed first.
            times: the number of operations that fail then.
        """
        fault = Fault(kind, path, error, skip, times)
        self._faults.append(fault)
        return fault

    def heal(self) -> None:
        """Remove all pending faults."""
        self._faults.clear()

    @property
    def used_bytes(self) -> int:
        """Total size of all files."""
        return sum(len(file.data) for file in self._tree.files.values())

    def files(self) -> dict[str, bytes]:
        """Return the content of every file."""
        return {path: bytes(file.data) for path, file in sorted(self._tree.files.items())}

    def synced(self, path: str) -> bytes:
        """Return the synced content of a file; empty if there is no such file."""
        file = self._tree.files.get(path)
        return b"" if file is None else file.synced

    def stored(self, path: str, size: int | None = None) -> bytes:
        """Return a file's first `size` bytes or all, without faults; empty if it does not exist."""
        file = self._tree.files.get(path)
        return b"" if file is None else bytes(memoryview(file.data)[:size])

    def put(self, path: str, data: bytes) -> None:
        """Overwrite a file without a journal entry, to damage it."""
        file = self._tree.files.setdefault(path, _File(self._now_ms()))
        file.data = bytearray(data)
        file.sync()

    def copy(self) -> "MemoryDisk":
        """Return a disk with the same content, all of it synced, and an empty journal."""
        made = MemoryDisk(self._now_ms, self.capacity_bytes)
        made._load(self.files(), self._tree.dirs)
        return made

    def _replayed(self, count: int) -> "MemoryDisk":
        made = MemoryDisk(self._now_ms, self.capacity_bytes)
        made._load(*self._start)
        for operation in self.journal[:count]:
            made._apply(operation)
        return made

    def killed_at(self, count: int, cut: int | None = None) -> "MemoryDisk":
        """Return the disk as it is if the process is killed after `count` journal entries.

        Args:
            count: the number of completed entries.
            cut: the bytes of entry `count` that were also written, if it is a write.
        """
        made = self._replayed(count)
        if cut is not None:
            torn = self.journal[count]
            made._apply(torn._replace(data=torn.data[:cut]))  # noqa: SLF001 (its own kind)
        return made.copy()

    def crash_points(self, cuts_per_write: int = 3) -> Iterator[tuple[int, int | None]]:
        """Yield (count, cut) for `killed_at`: each prefix, and each write truncated a few times."""
        for count, operation in enumerate(self.journal):
            yield count, None
            size = len(operation.data)
            if operation.kind in ("append", "write") and size > 1:
                marks = {1, size - 1, *(size * i // (cuts_per_write + 1) for i in range(1, 4))}
                for cut in sorted(marks - {0, size}):
                    yield count, cut
        yield len(self.journal), None

    def power_lost_at(self, count: int, dice: Entropy) -> "MemoryDisk":
        """Return a random outcome of a power loss after `count` journal entries."""
        replay = self._replayed(count)
        snapshots = replay._since_sync  # noqa: SLF001 (its own kind)
        names = snapshots[dice.below(len(snapshots))]
        contents = {path: file.survivor(dice) for path, file in sorted(names.files.items())}
        made = MemoryDisk(self._now_ms, self.capacity_bytes)
        made._load(contents, names.dirs)
        return made

    def lose_power(self, dice: Entropy) -> None:
        """Apply a random outcome of a power loss to this disk now."""
        names = self._since_sync[dice.below(len(self._since_sync))]
        contents = {path: file.survivor(dice) for path, file in sorted(names.files.items())}
        self._tree = _Tree()
        self.names_changed += 1
        self.journal.clear()
        self._load(contents, names.dirs)

    def _load(self, contents: dict[str, bytes], dirs: set[str]) -> None:
        for path, data in contents.items():
            file = self._tree.files[path] = _File(self._now_ms())
            file.data = bytearray(data)
            file.sync()
        self._tree.dirs = set(dirs)
        self._since_sync = [self._tree.copy()]
        self._start = (dict(contents), set(dirs))

    # -- the journal -----------------------------------------------------------------------------

    def _do(self, operation: Operation) -> None:
        self._maybe_fail(operation.kind, operation.path)
        room = self.capacity_bytes - self.used_bytes if operation.data else 0
        if operation.data and len(operation.data) > room:
            # A full disk writes what fits: the rest is missing.
            partial = operation._replace(data=operation.data[: max(room, 0)])
            self._apply(partial)
            self.journal.append(partial)
            raise OSError(errno.ENOSPC, "No space left on device", operation.path)
        self._apply(operation)
        self.journal.append(operation)

    def _maybe_fail(self, kind: str, path: str) -> None:
        for fault in self._faults:
            if fault.kind == kind and fault.path_part in path and fault.times > 0:
                if fault.skip > 0:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                raise OSError(fault.error, "injected fault", path)

    def _apply(self, operation: Operation) -> None:
        names = len(self._tree.files)
        self.names_changed += operation.kind in ("rename", "unlink", "mkdir", "rmdir")
        if operation.kind in ("rename", "unlink", "mkdir", "rmdir"):
            self._apply_to_names(operation)
            self._since_sync.append(self._tree.copy())
            return
        self._apply_to_contents(operation)
        if operation.kind in ("fsync", "fsync_dir"):
            self._since_sync = [self._tree.copy()]
        elif names != len(self._tree.files):
            self.names_changed += 1
            self._since_sync.append(self._tree.copy())

    def _apply_to_names(self, operation: Operation) -> None:
        tree, path = self._tree, operation.path
        match operation.kind:
            case "rename":
                self._rename(path, operation.target)
            case "unlink":
                del tree.files[path]
            case "mkdir":
                tree.dirs.add(path)
            case _:
                tree.dirs.discard(path)

    def _apply_to_contents(self, operation: Operation) -> None:
        path = operation.path
        match operation.kind:
            case "append":
                file = self._made(path)
                file.put(len(file.data), operation.data)
            case "write":
                file = self._made(path)
                file.cut(0)
                file.put(0, operation.data)
            case "truncate":
                self._existing(path).cut(operation.size)
            case "fsync":
                self._existing(path).sync()
            case _:
                pass  # fsync_dir has no content

    def _made(self, path: str) -> _File:
        file = self._tree.files.get(path)
        if file is None:
            if path.rpartition("/")[0] not in self._tree.dirs:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            file = self._tree.files[path] = _File(self._now_ms())
        file.mtime_ms = self._now_ms()
        return file

    def _existing(self, path: str) -> _File:
        file = self._tree.files.get(path)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return file

    def _rename(self, old: str, new: str) -> None:
        tree = self._tree
        if old in tree.files:
            tree.files[new] = tree.files.pop(old)
            return
        if old not in tree.dirs:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", old)
        inside = old + "/"
        for path in [path for path in tree.files if path.startswith(inside)]:
            tree.files[new + path[len(old) :]] = tree.files.pop(path)
        tree.dirs.remove(old)
        tree.dirs.add(new)

    # -- Disk ------------------------------------------------------------------------------------

    def listdir(self, path: str) -> list[str]:
        """See `Disk.listdir`."""
        if path not in self._tree.dirs:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        inside = path.rstrip("/") + "/"
        names = {*self._tree.files, *self._tree.dirs}
        inner = (name[len(inside) :] for name in names if name.startswith(inside))
        return sorted(name for name in inner if name and "/" not in name)

    def mkdir(self, path: str) -> None:
        """See `Disk.mkdir`."""
        parts = path.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            parent = "/" + "/".join(parts[:depth])
            if parent not in self._tree.dirs:
                self._do(Operation("mkdir", parent))

    def is_dir(self, path: str) -> bool:
        """See `Disk.is_dir`."""
        return path in self._tree.dirs

    def size(self, path: str) -> int:
        """See `Disk.size`."""
        file = self._tree.files.get(path)
        return -1 if file is None else len(file.data)

    def mtime_ms(self, path: str) -> int:
        """See `Disk.mtime_ms`."""
        return self._existing(path).mtime_ms

    def read(self, path: str) -> bytes:
        """See `Disk.read`."""
        self._maybe_fail("read", path)
        return bytes(self._existing(path).data)

    def pread(self, path: str, count: int, at: int) -> bytes:
        """See `Disk.pread`."""
        self._maybe_fail("pread", path)
        return bytes(memoryview(self._existing(path).data)[at : at + count])

    def view(self, path: str, count: int, at: int, *, grows: bool) -> Sequence[bytes | memoryview]:
        """See `Disk.view`."""
        return [self.pread(path, count, at)]

    def release_views(self, *, entirely: bool = False) -> None:
        """See `Disk.release_views`; there are none."""

    def read_part(self, path: str, count: int, at: int) -> bytes:
        """See `Disk.read_part`."""
        return self.pread(path, count, at)

    def cold_part(
        self, path: str, count: int, at: int, *, to_send: bool = False, grows: bool = False
    ) -> FilePart | None:
        """See `Disk.cold_part`; everything is in memory."""
        _ = path, count, at, to_send, grows
        return None

    def warm(self, part: FilePart) -> None:
        """See `Disk.warm`."""

    def extend(self, path: str, data: Buffer) -> None:
        """See `Disk.extend`."""
        self.append(path, [data])

    def append(self, path: str, buffers: Sequence[Buffer]) -> None:
        """See `Disk.append`."""
        self._do(Operation("append", path, b"".join(buffers)))

    def write(self, path: str, data: Buffer) -> None:
        """See `Disk.write`."""
        self._do(Operation("write", path, bytes(data)))

    def truncate(self, path: str, size: int) -> None:
        """See `Disk.truncate`."""
        self._do(Operation("truncate", path, size=size))

    def rename(self, old: str, new: str) -> None:
        """See `Disk.rename`."""
        self._do(Operation("rename", old, target=new))

    def move(self, old: str, new: str) -> None:
        """See `Disk.move`."""
        self.rename(old, new)

    def unlink(self, path: str) -> None:
        """See `Disk.unlink`."""
        if path in self._tree.files:
            self._do(Operation("unlink", path))

    def remove_tree(self, path: str) -> None:
        """See `Disk.remove_tree`."""
        if path not in self._tree.dirs:
            return
        for name in self.listdir(path):
            inner = f"{path}/{name}"
            if inner in self._tree.dirs:
                self.remove_tree(inner)
            else:
                self.unlink(inner)
        self._do(Operation("rmdir", path))

    def forget(self, path: str) -> None:
        """See `Disk.forget`; nothing is kept open."""

    def discard(self, path: str) -> None:
        """See `Disk.discard`."""
        if path in self._tree.dirs:
            self.remove_tree(path)
        else:
            self.unlink(path)

    def fsync(self, path: str) -> None:
        """See `Disk.fsync`."""
        self._existing(path)
        self._do(Operation("fsync", path))

    def fsync_dir(self, path: str) -> None:
        """See `Disk.fsync_dir`."""
        self._do(Operation("fsync_dir", path))

    def replace(self, path: str, data: bytes) -> None:
        """See `Disk.replace`."""
        fresh = path + ".tmp"
        self.write(fresh, data)
        self.fsync(fresh)
        self.rename(fresh, path)
        self.fsync_dir(path.rpartition("/")[0])

    def lock(self, path: str) -> DirectoryLock:
        """See `Disk.lock`."""
        if path in self._locked:
            raise DirectoryLocked(f"another process holds {path}")
        self._locked.add(path)
        return _MemoryLock(self._locked, path)

    def usable_bytes(self, path: str) -> tuple[int, int]:
        """See `Disk.usable_bytes`."""
        _ = path
        return self.capacity_bytes, max(self.capacity_bytes - self.used_bytes, 0)

    def share(self, *, shared: bool) -> None:
        """See `Disk.share`; this disk has only one thread."""

    def fault_point(self, point: str) -> bool:
        """See `Disk.fault_point`."""
        _ = point
        return False

    def close(self) -> None:
        """See `Disk.close`."""


class _MemoryLock:
    def __init__(self, locked: set[str], path: str) -> None:
        self._locked = locked
        self._path = path

    def release(self) -> None:
        self._locked.discard(self._path)
