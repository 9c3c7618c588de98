"""Which image may be acted on, while metadata transactions open, end and abort."""

import pytest

from sparkraft.base.errors import InvariantBroken
from sparkraft.metadata import replay as replay_module
from sparkraft.metadata.replay import Replay
from sparkraft.protocol.messages import metadata_records as m

A, B, C = "group.version", "share.version", "streams.version"


def feature(name: str, level: int = 1) -> m.FeatureLevelRecord:
    return m.FeatureLevelRecord(name=name, feature_level=level)


def test_stable_waits_for_the_commit():
    replay = Replay()
    replay.replay_batch([feature(A)], last_offset=0, epoch=1)
    assert A in replay.latest.features
    assert A not in replay.stable.features
    assert replay.commit(0)
    assert replay.stable is replay.latest


def test_stable_stays_before_an_open_transaction():
    replay = Replay()
    replay.replay_batch(
        [feature(A), m.BeginTransactionRecord(), feature(B)], last_offset=2, epoch=1
    )
    assert not replay.commit(2)
    assert A not in replay.stable.features
    replay.replay_batch([m.EndTransactionRecord()], last_offset=3, epoch=1)
    assert replay.commit(3)
    assert {A, B} <= set(replay.stable.features)


def test_abort_goes_back_to_before_the_transaction():
    replay = Replay()
    replay.replay_batch(
        [feature(A), m.BeginTransactionRecord(), feature(B), m.AbortTransactionRecord()],
        last_offset=3,
        epoch=1,
    )
    assert replay.commit(3)
    assert set(replay.stable.features) == {A}
    assert not replay.in_transaction


def test_revert_forgets_what_was_not_committed():
    replay = Replay()
    replay.replay_batch([feature(A)], last_offset=0, epoch=1)
    replay.commit(0)
    replay.replay_batch([feature(B)], last_offset=1, epoch=1)
    replay.revert()
    assert set(replay.latest.features) == {A}
    assert replay.latest.offset == 0
    replay.replay_batch([feature(C)], last_offset=1, epoch=2)
    assert replay.commit(1)
    assert set(replay.stable.features) == {A, C}


def test_revert_keeps_the_committed_part_of_an_open_transaction():
    replay = Replay()
    replay.replay_batch([m.BeginTransactionRecord(), feature(A)], last_offset=1, epoch=1)
    replay.commit(1)
    replay.replay_batch([feature(B)], last_offset=2, epoch=1)
    replay.revert()
    assert replay.in_transaction
    assert set(replay.latest.features) == {A}
    replay.replay_batch([m.EndTransactionRecord()], last_offset=2, epoch=2)
    replay.commit(2)
    assert set(replay.stable.features) == {A}


@pytest.mark.parametrize(
    "records",
    [
        [m.EndTransactionRecord()],
        [m.AbortTransactionRecord()],
        [m.BeginTransactionRecord(), m.BeginTransactionRecord()],
    ],
)
def test_transactions_that_do_not_match_stop_the_node(records):
    with pytest.raises(InvariantBroken):
        Replay().replay_batch(records, last_offset=0, epoch=1)


# ---- large batches


def test_a_batch_is_replayed_in_pieces_without_an_effect_before_its_end(monkeypatch):
    monkeypatch.setattr(replay_module, "RECORDS_PER_PIECE", 2)
    records = [feature(A), m.BeginTransactionRecord(), feature(B), feature(C), feature(A, 0)]
    replay, whole = Replay(), Replay()
    before = replay.latest
    assert list(replay.prepare(records)) == [2, 2, 1]
    assert replay.latest is before
    assert not replay.in_transaction
    applied = []
    monkeypatch.setattr(replay_module, "apply", lambda *_: applied.append(1))
    replay.replay_batch(records, last_offset=4, epoch=1)
    assert not applied
    monkeypatch.undo()
    whole.replay_batch(records, last_offset=4, epoch=1)
    assert replay.latest == whole.latest
    assert replay.in_transaction


def test_what_was_prepared_for_another_image_is_not_used():
    replay, records = Replay(), [feature(C)]
    replay.replay_batch([feature(A)], last_offset=0, epoch=1)
    list(replay.prepare(records))
    replay.replay_batch([feature(B)], last_offset=1, epoch=1)
    replay.replay_batch(records, last_offset=2, epoch=1)
    assert set(replay.latest.features) == {A, B, C}


def test_what_was_prepared_before_a_revert_is_not_used():
    replay, records = Replay(), [feature(C)]
    replay.replay_batch([feature(A)], last_offset=0, epoch=1)
    list(replay.prepare(records))
    replay.revert()
    replay.replay_batch(records, last_offset=0, epoch=2)
    assert set(replay.latest.features) == {C}


def test_what_was_prepared_for_other_records_is_not_used():
    replay = Replay()
    list(replay.prepare([feature(C)]))
    replay.replay_batch([feature(B)], last_offset=0, epoch=1)
    assert set(replay.latest.features) == {B}
