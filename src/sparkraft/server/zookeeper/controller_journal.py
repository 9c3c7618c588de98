"""The controller's journals on disk, in the first log directory.

`sparkraft-controller.jsonl`, its decisions:

{"kind": "attempt", "text": "won epoch 8", "at_ms": 1795210247989}

`sparkraft-partitions.jsonl`, changes of leaders and ISRs; `before` and `after` are leader, ISR,
leader epoch, partition epoch and recovery state:

{"topic": "t", "id": "K1JnEJoQTlqwu3Ev0Sy4Dw", "partition": 0, "before": [1, [1, 2], 4, 7, 0], …}
"""

import asyncio
from typing import TYPE_CHECKING, Any

from sparkraft.base.ids import Uuid
from sparkraft.controller.leader_election import Cause, CauseKind, ChosenBy, ElectionKind, Reason
from sparkraft.server.journal_file import JournalFile
from sparkraft.zookeeper.controller.journal import ENTRIES_MAX, Entry
from sparkraft.zookeeper.controller.partition_journal import (
    ENTRIES_MAX as CHANGES_MAX,
)
from sparkraft.zookeeper.controller.partition_journal import (
    PartitionChange,
    PartitionJournal,
)
from sparkraft.zookeeper.controller.steps import PIECE_MAX
from sparkraft.zookeeper.controller.values import LeaderAndIsr, ReplicaAssignment

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.storage.disk import Disk

FILE_NAME = "sparkraft-controller.jsonl"
PARTITIONS_FILE_NAME = "sparkraft-partitions.jsonl"


def controller_journal_file(disk: "Disk", directory: str) -> JournalFile[Entry]:
    """Return the file in a directory; see `JournalFile`."""
    return JournalFile(
        disk, f"{directory}/{FILE_NAME}", ENTRIES_MAX, fields_of=_fields, entry_of=_entry
    )


def _fields(entry: Entry) -> dict[str, Any]:
    return {**entry._asdict(), "brokers": list(entry.brokers) or None}


def _entry(fields: dict[str, Any]) -> Entry:
    return Entry(**{**fields, "brokers": tuple(fields.get("brokers", ()))})


class PartitionJournalFile:
    """Stores the changes of a `PartitionJournal`, in pieces."""

    def __init__(
        self, disk: "Disk", directory: str, journal: PartitionJournal, now: "Callable[[], int]"
    ) -> None:
        """Continue the journal with the changes of earlier runs; `now` is the wall clock in ms."""
        self._file = JournalFile(
            disk,
            f"{directory}/{PARTITIONS_FILE_NAME}",
            CHANGES_MAX,
            fields_of=change_fields,
            entry_of=change_of,
        )
        self._journal = journal
        self._wake = asyncio.Event()
        journal.keep(self._file.read(), now)

    def wake(self) -> None:
        """Have new changes written soon."""
        if self._journal.unwritten:
            self._wake.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._journal.unwritten:
                self._write_some()
                await asyncio.sleep(0)

    async def close(self) -> None:
        """Write what is left, after the last decision."""
        while self._journal.unwritten:
            self._write_some()
            await asyncio.sleep(0)

    def _write_some(self) -> None:
        unwritten = self._journal.unwritten
        count = min(len(unwritten), PIECE_MAX)
        self._file.append(*[unwritten.popleft() for _ in range(count)])


def change_fields(change: PartitionChange) -> dict[str, Any]:
    """Return a change as values of JSON."""
    reason = change.reason
    return {
        "topic": change.topic,
        "id": str(change.topic_id),
        "partition": change.partition,
        "before": change.before,
        "after": change.after,
        "assignment": change.assignment,
        "controller_epoch": change.controller_epoch,
        "cause": [change.cause.kind.value, change.cause.text],
        "reason": None if reason is None else _reason_fields(reason),
        "at_ms": change.at_ms,
    }


def _reason_fields(reason: Reason) -> dict[str, Any]:
    return {
        "kind": reason.kind.value,
        "chosen_by": reason.chosen_by.value,
        "candidates": reason.candidates,
        "isr": reason.isr,
        "live": reason.live,
        "ruled_out": reason.ruled_out,
    }


def change_of(fields: dict[str, Any]) -> PartitionChange:
    """Return the change of values of JSON.

    Raises:
        ValueError, TypeError, AttributeError: they are of another version.
    """
    try:
        kind, text = fields["cause"]
        cause = Cause(CauseKind(kind), text)
        before, reason = fields.get("before"), fields.get("reason")
        return PartitionChange(
            topic=fields["topic"],
            topic_id=Uuid.parse(fields["id"]),
            partition=fields["partition"],
            before=None if before is None else _state(before),
            after=_state(fields["after"]),
            assignment=ReplicaAssignment(*(tuple(part) for part in fields["assignment"])),
            controller_epoch=fields["controller_epoch"],
            cause=cause,
            reason=None if reason is None else _reason(reason, cause),
            at_ms=fields["at_ms"],
        )
    except KeyError as missing:
        raise ValueError(f"without {missing}") from missing


def _state(values: list[Any]) -> LeaderAndIsr:
    leader, isr, *epochs = values
    return LeaderAndIsr(leader, tuple(isr), *epochs)


def _reason(fields: dict[str, Any], cause: Cause) -> Reason:
    return Reason(
        kind=ElectionKind(fields["kind"]),
        chosen_by=ChosenBy(fields["chosen_by"]),
        candidates=tuple(fields["candidates"]),
        isr=tuple(fields["isr"]),
        elr=(),
        live=tuple(fields["live"]),
        ruled_out=tuple((replica, why) for replica, why in fields["ruled_out"]),
        cause=cause,
    )
