"""The result of a decision function."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.loop_work import LoopBound
from sparkraft.controller.leader_election import Election

VersionedRecord = tuple[Any, int]
"""A metadata record and the version it is written in."""

RECORDS_MAX: LoopBound = 10_000
"""Maximum records of one user operation: it is one batch of the metadata log, as in Kafka."""

RECORDS_PER_BATCH: LoopBound = 250
"""Records in each batch of a decision that need not be atomic. Kafka writes 10,000; a batch is
appended, replayed and published as a whole, at up to 20 µs a record."""

BYTES_MAX = 8 * 1024 * 1024
"""Maximum bytes of one batch of the metadata log, as in Kafka."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Records and a response; nothing has been written yet.

    The driver appends `records`, replays them onto the controller, waits for their commit, and
    then sends `response`. Without records it waits for the highest offset that the decision could
    have read.

    Attributes:
        records: records to append, in this order.
        response: the response message; None if no request is waiting.
        atomic: append all records in one batch; if False, the driver splits them.
        elections: changes of leaders that the records contain, with reasons, for the journal.
    """

    records: tuple[VersionedRecord, ...] = ()
    response: Any = None
    atomic: bool = True
    elections: tuple[Election, ...] = ()


def check_room(records: Sequence[VersionedRecord], more: Sequence[VersionedRecord]) -> None:
    """Reject an operation whose batch would be too large.

    Raises:
        KafkaError: POLICY_VIOLATION.
    """
    if len(records) + len(more) > RECORDS_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"One operation may write at most {RECORDS_MAX} records."
        )
