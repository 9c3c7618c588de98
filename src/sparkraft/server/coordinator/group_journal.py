"""The journal of group decisions on disk, so that it survives a restart of the broker.

    {"at_ms": 1795210247989, "group_id": "g", "generation": 4, "kind": "joined", "reason": …}

One JSON object per line in `sparkraft-groups.jsonl`, in the metadata log directory; the oldest
entries are dropped. It is for people (docs/decisions/0008-decisions-carry-reasons.md): no decision
depends on it, it is not fsynced, and a write error does not stop the node.
"""

import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from sparkraft.coordinator.group.journal import JournalEntry, Move
from sparkraft.storage.disk import StorageFault

if TYPE_CHECKING:
    from sparkraft.storage.disk import Disk

FILE_NAME = "sparkraft-groups.jsonl"

log = logging.getLogger(__name__)


class GroupJournalFile:
    """See the module docstring."""

    def __init__(self, disk: "Disk", directory: str, entries_max: int) -> None:
        """Read nothing yet; rewrite the file when it has twice `entries_max` lines."""
        self._disk = disk
        self._path = f"{directory}/{FILE_NAME}"
        self._entries_max = entries_max
        self._lines = 0
        self._broken = False

    def read(self) -> list[JournalEntry]:
        """The entries of earlier runs, oldest first; torn and unknown lines are skipped."""
        try:
            raw = self._disk.read(self._path)
        except FileNotFoundError:
            return []
        except (StorageFault, OSError) as error:
            log.warning("Cannot read the group journal: %s", error)
            return []
        lines = raw.split(b"\n")
        # A torn last line would corrupt the next one: rewrite the file first.
        self._lines = 2 * self._entries_max if lines[-1] else len(lines)
        return list(_readable(lines))[-self._entries_max :]

    def append(self, entry: JournalEntry, kept: Iterable[JournalEntry]) -> None:
        """Write an entry; `kept` are the entries to keep, with it, if the file is rewritten."""
        if self._broken:
            return
        try:
            if self._lines >= 2 * self._entries_max:
                lines = [_line(one) for one in kept]
                self._disk.write(self._path + ".new", b"".join(lines))
                self._disk.rename(self._path + ".new", self._path)
                self._lines = len(lines)
            else:
                self._disk.append(self._path, [_line(entry)])
                self._lines += 1
        except (StorageFault, OSError) as error:
            self._broken = True
            log.warning("Cannot write the group journal; keeping it in memory: %s", error)


def _line(entry: JournalEntry) -> bytes:
    fields = {name: value for name, value in asdict(entry).items() if value not in ("", None)}
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def _readable(lines: Iterable[bytes]) -> Iterator[JournalEntry]:
    for line in lines:
        try:
            fields = json.loads(line)
            fields["moves"] = tuple(Move(*one) for one in fields.get("moves", ()))
            fields["candidates"] = tuple(fields.get("candidates", ()))
            fields.setdefault("reason", "")
            yield JournalEntry(**fields)
        except (ValueError, TypeError, AttributeError):
            continue  # torn by a crash, or of another version
