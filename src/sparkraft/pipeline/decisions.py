"""Decisions about the batches of an exactly-once query: their values, JSON and names.

docs/formats/decisions.md shows the records.

Not here: making decisions and finishing them (`exactly_once`).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from sparkraft.base.ids import by_topic
from sparkraft.pipeline.places import OptionError
from sparkraft.pipeline.transactions import ProducerEpoch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparkraft.base.ids import TopicPartition


class NotDecidedError(RuntimeError):
    """A batch cannot be committed: nothing of it will be visible; run it again."""


class LostTransactionsError(RuntimeError):
    """Transactions of a decided batch were aborted, so a part of the batch is missing."""


class QueryBatch(NamedTuple):
    """A batch of a query; a repeated batch has the same name."""

    query: str
    number: int


class Slot(NamedTuple):
    """A task's transaction, open and complete."""

    slot: int
    transactional_id: str
    producer: ProducerEpoch
    partitions: tuple[TopicPartition, ...]
    records: int

    def to_json(self) -> dict[str, Any]:
        """Its form in a decision."""
        return {
            "slot": self.slot,
            "id": self.transactional_id,
            "producer": list(self.producer),
            "partitions": by_topic(self.partitions),
            "records": self.records,
        }

    @classmethod
    def from_json(cls, read: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        grouped = read["partitions"].items()
        return cls(
            slot=read["slot"],
            transactional_id=read["id"],
            producer=ProducerEpoch(*read["producer"]),
            partitions=tuple((topic, number) for topic, numbers in grouped for number in numbers),
            records=read["records"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """The part of a driver's state that the tasks of a batch need.

    Args:
        driver: its epoch; a newer driver has another one.
        proofs_from: the end of the partition of proofs before the batch.
        last: the newest batch that is decided, and so in the topics.
    """

    prefix: str
    driver: ProducerEpoch
    proofs_from: int
    last: QueryBatch | None

    def has(self, batch: QueryBatch) -> bool:
        """Whether the batch is in the topics already.

        Raises:
            NotDecidedError: a later one is. Spark repeats only the last batch of a checkpoint, so
                this checkpoint is an old copy, and its batches may have other records.
        """
        last = self.last
        if last is None or last.query != batch.query or last.number < batch.number:
            return False
        if last.number > batch.number:
            raise NotDecidedError(
                f"batch {batch.number} of query {batch.query} is not written: batch {last.number} "
                f"is in the topics already, so the checkpoint is older than the topics of "
                f"{self.prefix}; restore the newest checkpoint, or start with a new one"
            )
        return True


class Decision(NamedTuple):
    """A batch, which is complete once its transactions are committed."""

    batch: QueryBatch
    proofs_from: int
    slots: tuple[Slot, ...]

    def encode(self) -> bytes:
        return json.dumps(
            {
                "query": self.batch.query,
                "batch": self.batch.number,
                "proofs_from": self.proofs_from,
                "slots": [each.to_json() for each in self.slots],
            }
        ).encode()

    @classmethod
    def decode(cls, value: bytes) -> Self:
        read = json.loads(value)
        slots = tuple(map(Slot.from_json, read["slots"]))
        return cls(QueryBatch(read["query"], read["batch"]), read["proofs_from"], slots)


def lost_text(prefix: str, decision: Decision, lost: Sequence[Slot]) -> str:
    ids = ", ".join(each.transactional_id for each in lost)
    partitions = sorted({each for slot in lost for each in slot.partitions})
    names = ", ".join(f"{topic}-{number}" for topic, number in partitions)
    number = decision.batch.number
    return (
        f"batch {number} of query {decision.batch.query} was decided, but the transactions of "
        f"{ids} were aborted before they could be committed, by kafka.transaction.timeout.ms or "
        f"by another program; their records in {names} are missing. To write the whole batch "
        "again, although its other records are visible, stop the query and run: sparkraft pipeline "
        f"reset FILE --replay {number}, or without a pipeline file: sparkraft pipeline recover "
        f"--bootstrap-server SERVERS --transactional-id-prefix {prefix} --replay {number}"
    )


_PREFIX: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
"""Legal in the name of a topic; `re.escape` makes a pattern of it that RE2 understands."""


def checked_prefix(prefix: str) -> str:
    """Return a legal prefix; `OptionError` otherwise."""
    if not _PREFIX.fullmatch(prefix):
        raise OptionError(
            "transactionalIdPrefix must be 1 to 200 letters, digits, '.', '_' and '-', "
            f"not {prefix!r}"
        )
    return prefix


def decisions_topic(prefix: str) -> str:
    """The topic of decisions and proofs."""
    return f"{prefix}.decisions"


def driver_id(prefix: str) -> str:
    """The transactional id of the driver, whose transactions are the decisions."""
    return f"{prefix}.driver"
