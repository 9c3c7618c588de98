"""The states of a transactional id and their transitions (KIP-98, KIP-890).

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing ...
                     -> PrepareAbort  -> CompleteAbort  -> Ongoing ...

InitProducerId leads from Empty and the Complete states to Empty. With transaction version 2 a
producer may abort a transaction that has no partitions: from Empty and the Complete states to
PrepareAbort.
"""

from enum import Enum


class TransactionState(Enum):
    """State of a transactional id; the value is the number in its record."""

    EMPTY = 0
    """A producer is initialized. Ends: its first partition, InitProducerId, expiry."""
    ONGOING = 1
    """Has partitions. Ends: EndTxn, InitProducerId, or the transaction timeout."""
    PREPARE_COMMIT = 2
    """Decided. Every request gets CONCURRENT_TRANSACTIONS. Ends: all markers are written."""
    PREPARE_ABORT = 3
    """As PREPARE_COMMIT, with abort markers."""
    COMPLETE_COMMIT = 4
    """All partitions have markers. Ends: as EMPTY."""
    COMPLETE_ABORT = 5
    """As COMPLETE_COMMIT."""
    DEAD = 6
    """Kafka's name for an id whose expiry is being written; never stored, never listed."""
    PREPARE_EPOCH_FENCE = 7
    """Kafka's name for the epoch bump of an abort; never stored. Here it is part of the abort."""

    @property
    def label(self) -> str:
        """Its name on the wire."""
        return LABELS[self]

    @property
    def is_prepared(self) -> bool:
        """Whether markers are being written."""
        return self in PREPARED

    @property
    def has_ended(self) -> bool:
        """Whether a transaction may begin and the id may expire."""
        return self in ENDED


LABELS = {
    TransactionState.EMPTY: "Empty",
    TransactionState.ONGOING: "Ongoing",
    TransactionState.PREPARE_COMMIT: "PrepareCommit",
    TransactionState.PREPARE_ABORT: "PrepareAbort",
    TransactionState.COMPLETE_COMMIT: "CompleteCommit",
    TransactionState.COMPLETE_ABORT: "CompleteAbort",
    TransactionState.DEAD: "Dead",
    TransactionState.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}

PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})

ENDED = frozenset(
    {
        TransactionState.EMPTY,
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
    }
)

_FROM_ENDED = frozenset(
    {TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT}
)

NEXT_STATES: dict[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: _FROM_ENDED,
    TransactionState.ONGOING: frozenset(
        {
            TransactionState.ONGOING,
            TransactionState.PREPARE_COMMIT,
            TransactionState.PREPARE_ABORT,
        }
    ),
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.COMPLETE_COMMIT}),
    TransactionState.PREPARE_ABORT: frozenset({TransactionState.COMPLETE_ABORT}),
    TransactionState.COMPLETE_COMMIT: _FROM_ENDED,
    TransactionState.COMPLETE_ABORT: _FROM_ENDED,
    TransactionState.DEAD: frozenset(),
    TransactionState.PREPARE_EPOCH_FENCE: frozenset(),
}
"""Transitions that are written. A prepared state may also be written again, unchanged."""
