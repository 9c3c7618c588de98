"""What a decision hands back (D7)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.controller.leader_election import Election

VersionedRecord = tuple[Any, int]
"""A metadata record and the version it is written in."""

RECORDS_MAX = 10_000
"""Records of one user operation: it becomes one batch of the metadata log, as in Kafka."""

BYTES_MAX = 8 * 1024 * 1024
"""Bytes of one batch of the metadata log, as in Kafka."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A decision that has yet to be carried out.

    The driver appends `records`, replays them onto the controller, waits for their commit, and
    only then lets `response` go. Without records it waits for the highest offset the decision
    could have read.

    Attributes:
        records: to append, in this order.
        response: what the caller gets.
        atomic: all records stand or fall together (one batch); else they may be split.
        elections: leaders that the records change, with reasons, for the journal.
    """

    records: tuple[VersionedRecord, ...] = ()
    response: Any = None
    atomic: bool = True
    elections: tuple[Election, ...] = ()


def check_room(records: Sequence[VersionedRecord], more: Sequence[VersionedRecord]) -> None:
    """Refuse what would make one operation's batch too large.

    Raises:
        KafkaError: POLICY_VIOLATION.
    """
    if len(records) + len(more) > RECORDS_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"One operation may write {RECORDS_MAX} records at most."
        )
