"""Bugs planted in the coordinator's core, historic ones among them: the properties find each."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from sparkraft.coordinator.runtime import Decision
from sparkraft.coordinator.transaction import producer_ids
from sparkraft.coordinator.transaction.decision import NOTHING
from sparkraft.coordinator.transaction.metadata import TransactionMetadata
from sparkraft.coordinator.transaction.shard import TransactionShard
from tests.coordinator.transaction.test_properties import TransactionalIds

QUICK = settings(
    # Most are found within a hundred examples; which these are depends on the modules that are
    # loaded, since Hypothesis draws constants from them.
    max_examples=1_500,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)

Patch = pytest.MonkeyPatch


def init_keeps_the_epoch(patch: Patch) -> None:
    """InitProducerId does not fence the older producer."""

    def same(known: Any, *_: Any) -> tuple[int, int, int]:
        return known.producer_id, max(known.producer_epoch, 0), -1

    patch.setattr(producer_ids, "_next", same)


def markers_are_not_repeated_after_loading(patch: Patch) -> None:
    """A new coordinator leaves decided transactions as they are."""
    loaded = TransactionShard.loaded

    def without(self: Any, *given: Any) -> Any:
        return replace(loaded(self, *given), effects=())

    patch.setattr(TransactionShard, "loaded", without)


def timeouts_are_not_checked(patch: Patch) -> None:
    """A producer that died keeps its partitions unstable forever."""
    patch.setattr(TransactionShard, "_must_abort", lambda *_: False)


def an_exhausted_id_is_not_rotated(patch: Patch) -> None:
    """The fence of an exhausted producer keeps its id (KAFKA-20090)."""
    patch.setattr(TransactionMetadata, "is_exhausted", False)


def markers_of_any_transaction_complete(patch: Patch) -> None:
    """The answer of an earlier attempt completes the next transaction (KAFKA-16352)."""

    def on_effect_completed(self: Any, effect: Any, result: Any, now: Any) -> Any:
        known = self._known["tx"]
        return self._transition(effect.metadata.completed(now.wall_ms)) if known else NOTHING

    patch.setattr(TransactionShard, "on_effect_completed", on_effect_completed)


def complete_is_written_with_the_decision(patch: Patch) -> None:
    """The transaction is complete before its markers are written."""
    end = TransactionShard.handle_end_transaction

    def both(self: Any, transactional_id: str, request: Any, new: Any, now: Any) -> Any:
        decision = end(self, transactional_id, request, new, now)
        if not decision.records:
            return decision
        (record,) = decision.records
        return Decision(
            response=decision.response,
            records=(replace(record, metadata=record.metadata.completed(now.wall_ms)),),
            append_callback=decision.append_callback,
        )

    patch.setattr(TransactionShard, "handle_end_transaction", both)


def replay_forgets_prepared_ids(patch: Patch) -> None:
    """The last record of an id is not recognized as a decision."""
    replay = TransactionShard.replay

    def forgetful(self: Any, *given: Any) -> None:
        replay(self, *given)
        self._prepared.clear()

    patch.setattr(TransactionShard, "replay", forgetful)


BUGS = [
    init_keeps_the_epoch,
    markers_are_not_repeated_after_loading,
    timeouts_are_not_checked,
    an_exhausted_id_is_not_rotated,
    markers_of_any_transaction_complete,
    complete_is_written_with_the_decision,
    replay_forgets_prepared_ids,
]


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: Any, monkeypatch: Patch) -> None:
    bug(monkeypatch)
    with pytest.raises(BaseException):  # noqa: B017, PT011 (each has its own)
        run_state_machine_as_test(TransactionalIds, settings=QUICK)
