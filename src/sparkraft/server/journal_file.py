"""A journal of decisions on disk, so that it survives a restart of the node.

One JSON object per line. A file with `entries_max` lines is renamed (`x.jsonl` to `x.1.jsonl`, an
older one is replaced), so nothing is rewritten and no call grows with the journal.

It is for people (docs/decisions/0008-decisions-carry-reasons.md): no decision depends on it, it is
not fsynced, and a write error does not stop the node.
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
            path: of the file; ends in `.jsonl`.
            entries_max: lines of a file; two files are kept.
            fields_of: an entry as values of JSON; empty fields are left out.
            entry_of: the opposite; raises ValueError, TypeError or AttributeError for a line that
                is torn or of another version.
        """
        self._disk = disk
        self._path = path
        self._older = path.removesuffix(".jsonl") + ".1.jsonl"
        self._entries_max = entries_max
        self._fields_of = fields_of
        self._entry_of = entry_of
        self._lines = 0
        self._broken = False

    def read(self) -> list[T]:
        """The newest entries of earlier runs, oldest first; torn and unknown lines are skipped."""
        lines = self._lines_of(self._path)
        # A torn last line would corrupt the next one: start another file.
        self._lines = self._entries_max if lines[-1] else len(lines) - 1
        found = list(self._readable(lines))
        if len(found) < self._entries_max:
            found = [*self._readable(self._lines_of(self._older)), *found]
        return found[-self._entries_max :]

    def append(self, *entries: T) -> None:
        """Write entries, oldest first."""
        if self._broken:
            return
        try:
            if self._lines >= self._entries_max:
                self._disk.rename(self._path, self._older)
                self._lines = 0
            self._disk.append(self._path, [self._line(entry) for entry in entries])
            self._lines += len(entries)
        except (StorageFault, OSError) as error:
            self._broken = True
            log.warning("Cannot write the journal %s; keeping it in memory: %s", self._path, error)

    def _line(self, entry: T) -> bytes:
        fields = {
            name: value for name, value in self._fields_of(entry).items() if value not in ("", None)
        }
        return json.dumps(fields, separators=(",", ":")).encode() + b"\n"

    def _lines_of(self, path: str) -> list[bytes]:
        """The lines of a file, and what follows the last line end; at least one."""
        try:
            return self._disk.read(path).split(b"\n")
        except FileNotFoundError:
            return [b""]
        except (StorageFault, OSError) as error:
            log.warning("Cannot read the journal %s: %s", path, error)
            return [b""]

    def _readable(self, lines: Iterable[bytes]) -> Iterator[T]:
        for line in lines:
            try:
                yield self._entry_of(json.loads(line))
            except (ValueError, TypeError, AttributeError):
                continue
