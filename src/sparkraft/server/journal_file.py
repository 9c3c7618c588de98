"""A journal of decisions on disk, so that it survives a restart of the node.

One JSON object per line; the oldest entries are dropped. It is for people
(docs/decisions/0008-decisions-carry-reasons.md): no decision depends on it, it is not fsynced, and
a write error does not stop the node.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sparkraft.storage.disk import StorageFault

if TYPE_CHECKING:
    from sparkraft.storage.disk import Disk

T = TypeVar("T")

log = logging.getLogger(__name__)


class JournalFile(Generic[T]):
    """See the module docstring."""

    def __init__(
        self,
        disk: "Disk",
        path: str,
        entries_max: int,
        *,
        fields_of: Callable[[T], dict[str, Any]],
        entry_of: Callable[[dict[str, Any]], T],
    ) -> None:
        """Read nothing yet.

        Args:
            disk: of the node.
            path: of the file.
            entries_max: the file is rewritten when it has twice as many lines.
            fields_of: an entry as values of JSON; empty fields are left out.
            entry_of: the opposite; raises ValueError, TypeError or AttributeError for a line that
                is torn or of another version.
        """
        self._disk = disk
        self._path = path
        self._entries_max = entries_max
        self._fields_of = fields_of
        self._entry_of = entry_of
        self._lines = 0
        self._broken = False

    def read(self) -> list[T]:
        """The entries of earlier runs, oldest first; torn and unknown lines are skipped."""
        try:
            raw = self._disk.read(self._path)
        except FileNotFoundError:
            return []
        except (StorageFault, OSError) as error:
            log.warning("Cannot read the journal %s: %s", self._path, error)
            return []
        lines = raw.split(b"\n")
        # A torn last line would corrupt the next one: rewrite the file first.
        self._lines = 2 * self._entries_max if lines[-1] else len(lines)
        return list(self._readable(lines))[-self._entries_max :]

    def append(self, entry: T, kept: Iterable[T]) -> None:
        """Write an entry; `kept` are the entries to keep, with it, if the file is rewritten."""
        if self._broken:
            return
        try:
            if self._lines >= 2 * self._entries_max:
                lines = [self._line(one) for one in kept]
                self._disk.write(self._path + ".new", b"".join(lines))
                self._disk.rename(self._path + ".new", self._path)
                self._lines = len(lines)
            else:
                self._disk.append(self._path, [self._line(entry)])
                self._lines += 1
        except (StorageFault, OSError) as error:
            self._broken = True
            log.warning("Cannot write the journal %s; keeping it in memory: %s", self._path, error)

    def _line(self, entry: T) -> bytes:
        fields = {
            name: value for name, value in self._fields_of(entry).items() if value not in ("", None)
        }
        return json.dumps(fields, separators=(",", ":")).encode() + b"\n"

    def _readable(self, lines: Iterable[bytes]) -> Iterator[T]:
        for line in lines:
            try:
                yield self._entry_of(json.loads(line))
            except (ValueError, TypeError, AttributeError):
                continue
