"""Decisions of a transaction shard: append callbacks, effects, a missing producer id."""

from dataclasses import dataclass
from typing import TypeVar

from sparkraft.base.ids import TopicPartition
from sparkraft.coordinator.runtime import AppendCallback, Decision, Effect
from sparkraft.coordinator.transaction.metadata import TransactionMetadata
from sparkraft.coordinator.transaction.records import TransactionRecord

T = TypeVar("T")

TransactionDecision = Decision[TransactionRecord, T]

NOTHING: TransactionDecision[None] = Decision(response=None)


class ProducerIdNeeded(Exception):  # noqa: N818 (not an error: the caller repeats the call)
    """The request needs a new producer id: repeat the call with one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionAppended(AppendCallback):
    """One transition of an id; later requests get CONCURRENT_TRANSACTIONS until it is committed."""

    metadata: TransactionMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class IdsExpired(AppendCallback):
    """Tombstones of expired ids."""

    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteMarkers(Effect):
    """Write a marker to every partition of a prepared transaction.

    The result is None once all partitions have it, except those that have been deleted.

    Attributes:
        metadata: the prepared transaction that is committed in `__transaction_state`.
        coordinator_epoch: leader epoch of the transaction's partition of `__transaction_state`.
    """

    metadata: TransactionMetadata
    coordinator_epoch: int

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """That get the marker."""
        return self.metadata.partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerId(Effect):
    """Get a producer id to abort a timed-out transaction whose epoch is exhausted."""

    metadata: TransactionMetadata


TransactionEffect = WriteMarkers | AllocateProducerId
