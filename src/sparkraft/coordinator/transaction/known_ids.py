"""All transactional ids of a shard; those without a transaction are packed.

An id usually waits for its next transaction, and there may be a million of them. Packed, it takes a
string and 43 bytes, which the search for cyclic garbage does not visit.

    producer id int64 | previous one int64 | updated int64 | started int64 | timeout int32
    epoch int16 | last epoch int16 | client's transaction version int16 | state int8

Invariant: unpacked metadata equals the metadata that was stored. If it cannot be packed, it is kept
as an object.
"""

from collections.abc import Iterator, MutableMapping
from struct import Struct
from typing import NamedTuple

from sparkraft.coordinator.runtime import NO_PRODUCER_ID
from sparkraft.coordinator.transaction.metadata import TransactionMetadata
from sparkraft.coordinator.transaction.states import TransactionState

_PACKED = Struct("<qqqqihhhb")
_UPDATED = Struct("<q")
_UPDATED_AT = 16
_STATES = {state.value: state for state in TransactionState}


class Overview(NamedTuple):
    """The part of an id's metadata that lists need: a fifth of the time of all of it."""

    transactional_id: str
    producer_id: int
    state: TransactionState
    start_ms: int


class KnownIds(MutableMapping[str, TransactionMetadata]):
    """Metadata by transactional id, in the order of their first records."""

    __slots__ = ("_stored",)

    def __init__(self) -> None:
        self._stored: dict[str, bytes | TransactionMetadata] = {}

    def __getitem__(self, transactional_id: str) -> TransactionMetadata:
        stored = self._stored[transactional_id]
        return _unpacked(transactional_id, stored) if isinstance(stored, bytes) else stored

    def find(self, transactional_id: str) -> TransactionMetadata | None:
        """None for an unknown id; `get` would catch an exception."""
        stored = self._stored.get(transactional_id)
        return _unpacked(transactional_id, stored) if isinstance(stored, bytes) else stored

    def __setitem__(self, transactional_id: str, metadata: TransactionMetadata) -> None:
        self._stored[transactional_id] = _packed(metadata) if _can_be_packed(metadata) else metadata

    def __delitem__(self, transactional_id: str) -> None:
        del self._stored[transactional_id]

    def __len__(self) -> int:
        return len(self._stored)

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __contains__(self, transactional_id: object) -> bool:
        return transactional_id in self._stored

    def state_of(self, transactional_id: str) -> TransactionState | None:
        """None for an unknown id."""
        stored = self._stored.get(transactional_id)
        if isinstance(stored, bytes):
            return _STATES[stored[-1]]
        return None if stored is None else stored.state

    def overview(self, transactional_id: str) -> Overview | None:
        """None for an unknown id."""
        stored = self._stored.get(transactional_id)
        if isinstance(stored, bytes):
            producer_id, _, _, start_ms, _, _, _, _, state = _PACKED.unpack(stored)
            return Overview(transactional_id, producer_id, _STATES[state], start_ms)
        if stored is None:
            return None
        return Overview(transactional_id, stored.producer_id, stored.state, stored.start_ms)

    def has_ended_by(self, transactional_id: str, at_ms: int) -> bool:
        """Whether the id is known, has no transaction and had its last transition by then."""
        stored = self._stored.get(transactional_id)
        if isinstance(stored, bytes):
            updated_ms: int = _UPDATED.unpack_from(stored, _UPDATED_AT)[0]
            return updated_ms <= at_ms
        return stored is not None and stored.state.has_ended and stored.updated_ms <= at_ms


def _can_be_packed(metadata: TransactionMetadata) -> bool:
    return (
        metadata.state.has_ended
        and not metadata.partitions
        and metadata.next_producer_id == NO_PRODUCER_ID
    )


def _packed(metadata: TransactionMetadata) -> bytes:
    return _PACKED.pack(
        metadata.producer_id,
        metadata.previous_producer_id,
        metadata.updated_ms,
        metadata.start_ms,
        metadata.timeout_ms,
        metadata.producer_epoch,
        metadata.last_producer_epoch,
        metadata.client_version,
        metadata.state.value,
    )


def _unpacked(transactional_id: str, packed: bytes) -> TransactionMetadata:
    (
        producer_id,
        previous_producer_id,
        updated_ms,
        start_ms,
        timeout_ms,
        producer_epoch,
        last_producer_epoch,
        client_version,
        state,
    ) = _PACKED.unpack(packed)
    return TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=producer_id,
        previous_producer_id=previous_producer_id,
        updated_ms=updated_ms,
        start_ms=start_ms,
        timeout_ms=timeout_ms,
        producer_epoch=producer_epoch,
        last_producer_epoch=last_producer_epoch,
        client_version=client_version,
        state=_STATES[state],
    )
