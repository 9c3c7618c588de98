"""Races of the transaction coordinator: lost responses, failovers, timeouts and clocks.

Each test plays one interleaving of requests, appends, markers and timers, and its counterpart in
the other order.
"""

from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.coordinator.transaction.config import TransactionConfig
from sparkraft.coordinator.transaction.records import decode_record
from tests.coordinator.transaction.test_shard import begun
from tests.coordinator.transaction.world import NAME, P0, P1, TIMEOUT_MS, World

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
INVALID = ErrorCode.INVALID_TXN_STATE
NONE = ErrorCode.NONE
VERSIONS = (0, 1, 2)


def states(world: World) -> list[str]:
    """The state in each record of the log."""
    records = [decode_record(*entry) for entry in world.log]
    return [one.metadata.state.label for one in records if one and one.metadata]


# The response of EndTxn is lost


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_txn_that_is_repeated_in_the_next_transaction_does_not_end_it(commit: bool) -> None:
    """TransactionCoordinator.endTransaction: Ongoing accepts the current epoch only (KIP-890)."""
    world, producer = begun()
    following = world.end(producer, commit=commit)
    world.mark()
    assert world.add(following, P1) is NONE
    for repeated in (commit, not commit):
        assert world.end(producer, commit=repeated) is FENCED
    assert world.state == "Ongoing"
    world.reload()
    assert world.end(producer, commit=commit) is FENCED
    assert world.end(following, commit=True) == (following[0], following[1] + 1)


@pytest.mark.parametrize("version", [0, 1])
def test_without_epochs_a_late_end_txn_ends_the_next_transaction(version: int) -> None:
    """The hole that KIP-890 closes: both transactions have the same epoch, as in Kafka."""
    world, producer = begun(version)
    world.end(producer, commit=True)
    world.mark()
    assert world.add(producer, P1) is NONE
    assert world.end(producer, commit=True) == producer
    assert world.mark().partitions == {P1}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("is_replicated", [True, False])
def test_a_coordinator_that_moves_with_an_uncommitted_decision(
    version: int, commit: bool, is_replicated: bool
) -> None:
    """The new leader has the Prepare record or not; the repeated request ends it as requested."""
    world, producer = begun(version)
    world.hold = True
    promised = world.end(producer, commit=commit)
    assert world.effects == []
    if not is_replicated:
        world.log.pop()
    world.reload()
    if is_replicated:
        assert world.end(producer, commit=commit) is CONCURRENT
    else:
        assert (world.state, world.effects) == ("Ongoing", [])
        assert world.end(producer, commit=commit) == promised
    assert world.mark().metadata.producer_epoch == promised[1]
    assert world.end(producer, commit=commit) == promised
    assert states(world).count("PrepareCommit" if commit else "PrepareAbort") == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_a_lost_decision_may_be_decided_otherwise_if_no_client_has_its_response(
    version: int,
) -> None:
    """The record of the commit was not replicated, so the new producer's abort is the only one."""
    world, producer = begun(version)
    world.hold = True
    world.end(producer, commit=True)
    world.log.pop()
    world.reload()
    assert world.init() is CONCURRENT
    assert world.mark().partitions == {P0}
    assert world.state == "CompleteAbort"
    assert world.end(producer, commit=True) in {FENCED, INVALID}
    assert "PrepareCommit" not in states(world)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_lost_completion_repeats_the_markers_of_the_same_epoch(version: int) -> None:
    world, producer = begun(version)
    following = world.end(producer, commit=True)
    first = world.mark()
    world.log.pop()
    world.reload()
    assert world.state == "PrepareCommit"
    assert world.add(following, P1) is CONCURRENT
    second = world.mark()
    assert (second.metadata.producer_epoch, second.partitions) == (
        first.metadata.producer_epoch,
        first.partitions,
    )
    assert second.coordinator_epoch == first.coordinator_epoch + 1
    assert world.end(producer, commit=True) == following


# A second producer, and timeouts


@pytest.mark.parametrize("version", VERSIONS)
def test_a_new_producer_waits_for_the_end_of_the_transaction_of_the_older_one(version: int) -> None:
    world, producer = begun(version)
    world.hold = True
    following = world.end(producer, commit=True)
    assert world.init() is CONCURRENT
    assert world.end(producer, commit=True) is CONCURRENT
    world.commit()
    assert world.init() is CONCURRENT
    assert world.state == "PrepareCommit"
    world.mark()
    assert world.init() == (following[0], following[1] + 1)
    assert world.end(producer, commit=True) is FENCED
    assert world.end(following, commit=True) is FENCED
    assert states(world)[-3:] == ["PrepareCommit", "CompleteCommit", "Empty"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_new_producer_aborts_if_the_end_could_not_be_appended(version: int) -> None:
    world, producer = begun(version)
    world.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.end(producer, commit=True) is ErrorCode.NOT_ENOUGH_REPLICAS
    world.refuse = None
    assert world.init() is CONCURRENT
    world.mark()
    assert world.end(producer, commit=True) in {FENCED, INVALID}
    assert world.state == "CompleteAbort"


def late(version: int) -> tuple[World, tuple[int, int]]:
    """A transaction that has timed out, right before the search for it."""
    world, producer = begun(version)
    world.now_ms += TIMEOUT_MS + 10_000
    return world, producer


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("is_committed", [True, False])
def test_a_commit_right_before_the_timeout_stays(version: int, is_committed: bool) -> None:
    world, producer = late(version)
    world.hold = not is_committed
    following = world.end(producer, commit=True)
    world.advance(0)
    world.commit()
    assert world.state == "PrepareCommit"
    world.mark()
    assert (world.state, world.end(producer, commit=True)) == ("CompleteCommit", following)
    assert "PrepareAbort" not in states(world)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("is_committed", [True, False])
def test_a_commit_right_after_the_timeout_is_refused(version: int, is_committed: bool) -> None:
    world, producer = late(version)
    world.hold = not is_committed
    world.advance(0)
    # Without epochs per transaction the epoch is checked first, and it is the fenced one.
    assert world.end(producer, commit=True) is (CONCURRENT if version == 2 else FENCED)
    world.commit()
    world.mark()
    assert world.end(producer, commit=True) is (INVALID if version == 2 else FENCED)
    assert world.state == "CompleteAbort"
    assert "PrepareCommit" not in states(world)


def test_a_transaction_that_begins_while_timeouts_are_searched_is_not_aborted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The search lists ids first; a listed one may have ended and begun again."""
    monkeypatch.setattr("sparkraft.coordinator.transaction.shard.IDS_PER_STEP", 1)
    world = World()
    producers = {}
    for name in ("first", "second"):
        monkeypatch.setattr("tests.coordinator.transaction.world.NAME", name)
        producers[name] = world.init()
        world.add(producers[name], P0)
    world.advance(TIMEOUT_MS + 1)
    found = world.shard.get("first")
    assert found is not None
    assert found.state.label == "PrepareAbort"
    following = world.end(producers["second"], commit=True)
    world.mark()
    world.mark()
    assert world.add(following, P1) is NONE
    world.advance(5)
    world.advance(5)
    assert world.state == "Ongoing"


# The epoch is used up while responses are lost


def repeated(world: World, producer: tuple[int, int], *, commit: bool) -> Any:
    """End a transaction; each response is lost, and the coordinator moves after each of them."""
    assert world.add(producer, P0) is NONE
    promised = world.end(producer, commit=commit)
    for _ in range(2):
        assert world.end(producer, commit=commit) is CONCURRENT
        world.reload()
    world.mark()
    for _ in range(2):
        assert world.end(producer, commit=commit) == promised
        world.reload()
    return promised


@pytest.mark.parametrize("commit", [True, False])
def test_epochs_run_out_while_every_response_is_lost(commit: bool) -> None:
    """32765, 32766, then epoch 0 of the next producer id, and on (KIP-890)."""
    world = World()
    producer_id, _ = world.init()
    world.set_epoch(32_765)
    last = repeated(world, (producer_id, 32_765), commit=commit)
    assert last == (producer_id, 32_766)
    rotated = repeated(world, last, commit=commit)
    assert rotated == (1002, 0)
    after = repeated(world, rotated, commit=commit)
    assert after == (1002, 1)
    assert world.end(last, commit=commit) is MAPPING
    assert world.add(after, P0) is NONE


@pytest.mark.parametrize("version", VERSIONS)
def test_epochs_run_out_while_every_response_of_init_producer_id_is_lost(version: int) -> None:
    """KIP-360: a repeated request gets the same response, also after the rotation.

    Each transition replaces the previous producer id (TransactionMetadata.prepareTransitionTo), so
    a second repetition of the request that rotated it is fenced, as in Kafka.
    """
    world = World(version)
    producer_id, _ = world.init()
    world.set_epoch(32_765)
    for expected, following in (
        ((producer_id, 32_765), (producer_id, 32_766)),
        ((producer_id, 32_766), (1002, 0)),
        ((1002, 0), (1002, 1)),
    ):
        for _ in range(2):
            assert world.init(*expected) == following
    assert world.init(producer_id, 32_766) is FENCED
    assert world.add((producer_id, 32_766), P0) is MAPPING


# Expiry


@pytest.mark.parametrize("is_stored", [True, False])
def test_an_id_is_used_again_while_its_tombstone_is_not_committed(is_stored: bool) -> None:
    """TransactionStateManager.removeExpiredTransactionalIds: it has the pending state Dead."""
    config = TransactionConfig(id_expiration_ms=100_000, expiry_interval_ms=10_000)
    world = World(2, config)
    producer = world.init()
    world.hold = True
    world.advance(110_000)
    assert world.log[-1][1] is None
    for answer in (
        world.init(),
        world.add(producer, P0),
        world.end(producer, commit=True),
        world.verify(producer, P0),
    ):
        assert answer is CONCURRENT
    if is_stored:
        world.commit()
        assert world.add(producer, P0) is MAPPING
        assert world.init() == (producer[0] + 1, 0)
    else:
        world.log.pop()
        world.reload()
        assert world.init() == (producer[0], 1)


def test_an_id_whose_tombstone_could_not_be_appended_stays() -> None:
    config = TransactionConfig(id_expiration_ms=100_000, expiry_interval_ms=10_000)
    world = World(2, config)
    producer = world.init()
    world.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(KafkaError):
        world.advance(110_000)
    world.refuse = None
    assert world.add(producer, P0) is NONE


# transaction.version and clocks


@pytest.mark.parametrize("version", [0, 1])
def test_a_transaction_of_version_2_times_out_after_a_downgrade(version: int) -> None:
    """Its marker follows the rules of the version in which it is aborted."""
    world, producer = begun(2)
    world.set_version(version)
    world.reload()
    assert world.state == "Ongoing"
    world.advance(TIMEOUT_MS + 10_001)
    effect = world.mark()
    assert effect.metadata.client_version == 0
    assert effect.metadata.producer_epoch == producer[1] + 1
    assert world.end(producer, commit=True, client=0) is FENCED
    assert world.init() == (producer[0], producer[1] + 2)


def test_a_wall_clock_that_is_set_back_delays_a_timeout_and_stops_no_search() -> None:
    """Starts of transactions are wall-clock times in records, as in Kafka; timers are monotonic."""
    world, _ = begun()
    world.wall_offset_ms = -3_600_000
    world.advance(TIMEOUT_MS + 10_001)
    assert world.state == "Ongoing"
    world.wall_offset_ms = 0
    world.advance(10_001)
    assert world.state == "PrepareAbort"


def test_a_transaction_of_a_fast_clock_times_out_after_the_coordinator_has_moved() -> None:
    """It began in the future of the next coordinator, which counts from its load (seed 149, T9)."""
    world = World()
    world.wall_offset_ms = 3_600_000
    producer = world.init()
    assert world.add(producer, P0) is NONE
    world.wall_offset_ms = 0
    world.reload()
    world.advance(10_001)
    assert world.add(producer, P1) is NONE
    world.advance(TIMEOUT_MS - 20_000)
    assert world.state == "Ongoing"
    for _ in range(3):
        world.advance(10_001)
    assert world.state == "PrepareAbort"


def test_a_transaction_after_that_of_a_fast_clock_has_its_own_timeout() -> None:
    world = World()
    world.wall_offset_ms = 3_600_000
    producer = world.init()
    assert world.add(producer, P0) is NONE
    world.wall_offset_ms = 0
    world.reload()
    world.advance(TIMEOUT_MS - 20_000)
    following = world.end(producer, commit=True)
    world.mark()
    assert world.add(following, P0) is NONE
    for _ in range(4):
        world.advance(10_001)
    assert world.state == "Ongoing"


def test_a_wall_clock_that_is_set_back_lets_no_id_expire() -> None:
    config = TransactionConfig(id_expiration_ms=100_000, expiry_interval_ms=10_000)
    world = World(2, config)
    producer = world.init()
    world.wall_offset_ms = -200_000
    world.advance(190_000)
    assert world.shard.transactional_ids() == [NAME]
    assert world.add(producer, P0) is NONE
    following = world.end(producer, commit=True)
    world.mark()
    assert world.init(*following) == (following[0], following[1] + 1)
