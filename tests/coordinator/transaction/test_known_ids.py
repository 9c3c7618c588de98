"""Ids without a transaction are packed, and nothing is lost.

Not here: their memory (`tests/server/test_many_transactional_ids.py`).
"""

import gc
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sparkraft.base.ids import Offset
from sparkraft.coordinator.transaction.config import TransactionConfig
from sparkraft.coordinator.transaction.known_ids import KnownIds
from sparkraft.coordinator.transaction.metadata import TransactionMetadata
from sparkraft.coordinator.transaction.records import TransactionRecord
from sparkraft.coordinator.transaction.shard import TransactionShard
from sparkraft.coordinator.transaction.states import TransactionState


def integers(bits: int) -> Any:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


METADATA = st.builds(
    TransactionMetadata,
    transactional_id=st.just("tx"),
    producer_id=integers(64),
    producer_epoch=integers(16),
    timeout_ms=integers(32),
    updated_ms=integers(64),
    state=st.sampled_from(TransactionState),
    previous_producer_id=integers(64),
    next_producer_id=st.one_of(st.just(-1), integers(64)),
    last_producer_epoch=integers(16),
    partitions=st.frozensets(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), max_size=2),
    start_ms=integers(64),
    client_version=integers(16),
)


@given(METADATA, integers(64))
def test_what_is_read_equals_what_was_written(metadata: TransactionMetadata, at_ms: int) -> None:
    known = KnownIds()
    known["tx"] = metadata
    assert known["tx"] == metadata
    assert known.state_of("tx") is metadata.state
    assert known.overview("tx") == ("tx", metadata.producer_id, metadata.state, metadata.start_ms)
    is_over = metadata.state.has_ended and metadata.updated_ms <= at_ms
    assert known.has_ended_by("tx", at_ms) is is_over


def test_an_unknown_id_has_no_state_and_does_not_expire() -> None:
    known = KnownIds()
    assert known.get("tx") is None
    assert known.state_of("tx") is None
    assert known.overview("tx") is None
    assert not known.has_ended_by("tx", 1 << 62)


def test_ids_keep_the_order_of_their_first_records() -> None:
    known = KnownIds()
    for name in ("b", "a", "b"):
        known[name] = TransactionMetadata(
            transactional_id=name, producer_id=1, producer_epoch=0, timeout_ms=1, updated_ms=1
        )
    assert list(known) == ["b", "a"]
    del known["b"]
    assert list(known) == ["a"]
    assert len(known) == 1
    assert "b" not in known


def test_an_id_without_a_transaction_is_nothing_that_a_search_for_garbage_visits() -> None:
    shard = TransactionShard(TransactionConfig(), 0)
    gc.collect()
    before = len(gc.get_objects())
    for number in range(1_000):
        shard.replay(Offset(number), _record(f"producer-{number}", number))
    gc.collect()
    assert len(gc.get_objects()) - before < 100


def _record(name: str, number: int) -> Any:
    metadata = TransactionMetadata(
        transactional_id=name,
        producer_id=1_000_000 + number,
        previous_producer_id=1_000_000 + number,
        producer_epoch=7,
        timeout_ms=60_000,
        updated_ms=1_790_000_000_000 + number,
        start_ms=1_790_000_000_000 + number,
        state=TransactionState.COMPLETE_COMMIT,
        client_version=2,
    )
    return TransactionRecord(transactional_id=name, metadata=metadata)
