"""The journal of group decisions on disk (`sparkraft-groups.jsonl`, metadata log directory).

{"at_ms": 1795210247989, "group_id": "g", "generation": 4, "kind": "joined", "reason": …}
"""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sparkraft.coordinator.group.journal import JournalEntry, Move
from sparkraft.server.journal_file import JournalFile

if TYPE_CHECKING:
    from sparkraft.storage.disk import Disk

FILE_NAME = "sparkraft-groups.jsonl"


def group_journal_file(disk: "Disk", directory: str, entries_max: int) -> JournalFile[JournalEntry]:
    """Return the file in a directory; see `JournalFile`."""
    return JournalFile(
        disk, f"{directory}/{FILE_NAME}", entries_max, fields_of=asdict, entry_of=_entry
    )


def _entry(fields: dict[str, Any]) -> JournalEntry:
    fields["moves"] = tuple(Move(*one) for one in fields.get("moves", ()))
    fields["candidates"] = tuple(fields.get("candidates", ()))
    fields.setdefault("reason", "")
    return JournalEntry(**fields)
