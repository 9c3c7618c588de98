"""The controller's journal on disk (`sparkraft-controller.jsonl`, the first log directory).

{"kind": "attempt", "text": "won epoch 8", "at_ms": 1795210247989}
"""

from typing import TYPE_CHECKING, Any

from sparkraft.server.journal_file import JournalFile
from sparkraft.zookeeper.controller.journal import ENTRIES_MAX, Entry

if TYPE_CHECKING:
    from sparkraft.storage.disk import Disk

FILE_NAME = "sparkraft-controller.jsonl"


def controller_journal_file(disk: "Disk", directory: str) -> JournalFile[Entry]:
    """Return the file in a directory; see `JournalFile`."""
    return JournalFile(
        disk, f"{directory}/{FILE_NAME}", ENTRIES_MAX, fields_of=Entry._asdict, entry_of=_entry
    )


def _entry(fields: dict[str, Any]) -> Entry:
    return Entry(**fields)
