"""The transaction coordinator's core: transitions, fencing, epochs, timeouts, expiry, recovery."""

from itertools import product

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.steps import complete
from sparkraft.coordinator.transaction.config import TransactionConfig
from sparkraft.coordinator.transaction.producer_ids import check_timeout
from sparkraft.coordinator.transaction.records import (
    VALUE_VERSION_MAX,
    decode_record,
    decode_record_in_steps,
)
from sparkraft.coordinator.transaction.states import LABELS, NEXT_STATES, TransactionState
from tests.coordinator.transaction.world import NAME, P0, P1, TIMEOUT_MS, World

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
INVALID = ErrorCode.INVALID_TXN_STATE
NONE = ErrorCode.NONE


def begun(version: int = 2) -> tuple[World, tuple[int, int]]:
    world = World(version)
    producer = world.init()
    assert world.add(producer, P0) is NONE
    return world, producer


@pytest.mark.parametrize(("version", "commit"), [*product((0, 1, 2), (True, False))])
def test_a_transaction_ends_once_all_markers_are_written(version: int, commit: bool) -> None:
    world, (producer_id, epoch) = begun(version)
    kind = "Commit" if commit else "Abort"
    following = (producer_id, epoch + (version == 2))
    assert world.end((producer_id, epoch), commit=commit) == following
    assert world.state == f"Prepare{kind}"
    effect = world.mark()
    assert effect.partitions == {P0}
    assert effect.metadata.producer_epoch == following[1]
    assert effect.metadata.client_version == (2 if version == 2 else 0)
    assert world.state == f"Complete{kind}"
    assert world.add(following, P1) is NONE
    assert world.state == "Ongoing"


def test_markers_are_sent_after_the_decision_is_committed() -> None:
    world, producer = begun()
    world.hold = True
    world.end(producer, commit=True)
    assert (world.state, world.effects) == ("PrepareCommit", [])
    world.commit()
    assert len(world.effects) == 1


@pytest.mark.parametrize("version", [0, 2])
def test_requests_wait_while_a_transition_is_not_committed(version: int) -> None:
    world = World(version)
    producer = world.init()
    world.hold = True
    assert world.add(producer, P0) is NONE
    for answer in (
        world.add(producer, P1),
        world.add((1, 1), P1),
        world.end(producer, commit=True),
        world.init(),
    ):
        assert answer is CONCURRENT
    assert world.verify(producer, P0) == {P0: NONE}
    world.commit()
    assert world.add(producer, P1) is NONE


@pytest.mark.parametrize("version", [0, 2])
def test_requests_wait_while_a_transaction_is_being_completed(version: int) -> None:
    world, producer = begun(version)
    following = world.end(producer, commit=True)
    for who in (producer, following):
        assert world.add(who, P0) is CONCURRENT
        assert world.end(who, commit=True) is CONCURRENT
    assert world.verify(following, P0) is CONCURRENT
    assert world.init() is CONCURRENT
    world.mark()
    assert world.init() == (following[0], following[1] + 1)


@pytest.mark.parametrize("commit", [True, False])
def test_the_wrong_producer_is_refused_while_a_transaction_is_completed(commit: bool) -> None:
    """Without epochs per transaction, as in Kafka's endTransactionWithTV1."""
    world, producer = begun(0)
    world.end(producer, commit=commit)
    assert world.end((producer[0] + 1, producer[1]), commit=commit) is MAPPING
    assert world.end((producer[0], producer[1] + 1), commit=commit) is FENCED
    assert world.end(producer, commit=commit) is CONCURRENT


def test_a_client_of_version_2_is_refused_at_version_0() -> None:
    """As in Kafka, whose record of version 0 lacks the version of the client."""
    unsupported = ErrorCode.UNSUPPORTED_VERSION
    world, producer = begun(0)
    assert world.end(producer, commit=True, client=2) is unsupported
    assert world.add(producer, P1, client=2) is unsupported
    assert world.add(producer, P0, client=2) is NONE  # nothing to write
    assert world.state == "Ongoing"
    assert world.end((producer[0] + 1, 0), commit=True, client=2) is MAPPING
    assert world.end(producer, commit=True) == producer
    world.mark()
    world.set_version(1)
    assert world.add(producer, P0, client=2) is NONE
    assert world.end(producer, commit=True, client=2) == (producer[0], producer[1] + 1)


def test_a_new_producer_fences_the_older_one() -> None:
    world = World()
    first = world.init()
    second = world.init()
    assert second == (first[0], first[1] + 1)
    assert world.add(first, P0) is FENCED
    assert world.end(first, commit=True) is FENCED
    assert world.verify(first, P0) is FENCED
    assert world.add((first[0] + 1, 0), P0) is MAPPING
    assert world.add(second, P0) is NONE


def test_unknown_ids_have_no_mapping() -> None:
    world = World()
    assert world.add((1, 0), P0) is MAPPING
    assert world.end((1, 0), commit=True) is MAPPING
    assert world.verify((1, 0), P0) is MAPPING


@pytest.mark.parametrize(("version", "bump"), [(0, 2), (1, 2), (2, 2)])
def test_init_producer_id_aborts_an_open_transaction_first(version: int, bump: int) -> None:
    """The client repeats the request, and gets a second bump (KIP-360; KAFKA-19367)."""
    world, (producer_id, epoch) = begun(version)
    assert world.init() is CONCURRENT
    assert world.state == "PrepareAbort"
    assert world.mark().metadata.producer_epoch == epoch + 1
    assert world.init() == (producer_id, epoch + bump)
    assert world.end((producer_id, epoch), commit=True) is FENCED


def test_a_producer_keeps_its_id_after_an_error_and_repeats_its_request() -> None:
    world = World()
    producer_id, epoch = world.init()
    following = world.init(producer_id, epoch)
    assert following == (producer_id, epoch + 1)
    assert world.init(producer_id, epoch) == following
    assert world.init(producer_id + 1, 0) is FENCED
    assert world.init(producer_id, epoch + 5) is FENCED
    # The last epoch is not in the record, so a new coordinator fences the repetition, as Kafka's.
    world.reload()
    assert world.init(producer_id, epoch) is FENCED


def test_a_producer_of_an_expired_id_gets_a_new_one() -> None:
    world = World()
    assert world.init(77, 5) == (1001, 0)


# What EndTxn answers in each state


ENDED = {"Empty": (), "CompleteCommit": (True,), "CompleteAbort": (False,)}


def ended(version: int, state: str) -> tuple[World, tuple[int, int], tuple[int, int]]:
    """A world in that state, the current producer, and that of a repeated request."""
    world = World(version)
    current = world.init()
    for commit in ENDED[state]:
        assert world.add(current, P0) is NONE
        current = world.end(current, commit=commit)
        world.mark()
    assert world.state == state
    return world, current, (current[0], current[1] - 1)


FIXED_EPOCH = {
    ("Empty", True): INVALID,
    ("Empty", False): INVALID,
    ("CompleteCommit", True): "same",
    ("CompleteCommit", False): INVALID,
    ("CompleteAbort", True): INVALID,
    ("CompleteAbort", False): "same",
}


@pytest.mark.parametrize(("state", "commit"), FIXED_EPOCH)
@pytest.mark.parametrize("version", [0, 1])
def test_end_txn_without_epochs_by_state(version: int, state: str, commit: bool) -> None:
    world, current, repeated = ended(version, state)
    expected = FIXED_EPOCH[state, commit]
    assert world.end(current, commit=commit) == (current if expected == "same" else expected)
    assert world.end(repeated, commit=commit) is FENCED
    assert world.state == state


WITH_EPOCHS = {
    ("Empty", True): (INVALID, FENCED),
    ("Empty", False): ("bump", FENCED),
    ("CompleteCommit", True): (INVALID, "same"),
    ("CompleteCommit", False): ("bump", INVALID),
    ("CompleteAbort", True): (INVALID, INVALID),
    ("CompleteAbort", False): ("bump", "same"),
}


@pytest.mark.parametrize(("state", "commit"), WITH_EPOCHS)
def test_end_txn_with_epochs_by_state(state: str, commit: bool) -> None:
    of_current, of_repeated = WITH_EPOCHS[state, commit]
    world, current, repeated = ended(2, state)
    answer = world.end(repeated, commit=commit)
    assert answer == (current if of_repeated == "same" else of_repeated)
    assert world.state == state
    bumped = (current[0], current[1] + 1)
    assert world.end(current, commit=commit) == (bumped if of_current == "bump" else of_current)
    if of_current == "bump":
        assert (world.state, world.mark().partitions) == ("PrepareAbort", frozenset())
        assert world.state == "CompleteAbort"


def test_a_repeated_end_txn_gets_the_same_answer_after_a_failover() -> None:
    world, producer = begun()
    following = world.end(producer, commit=True)
    world.reload()
    assert world.end(producer, commit=True) is CONCURRENT
    world.mark()
    assert world.end(producer, commit=True) == following
    world.reload()
    assert world.end(producer, commit=True) == following


# Exhausted epochs


def test_init_producer_id_takes_a_new_id_when_the_epochs_are_used_up() -> None:
    world = World()
    producer_id, _ = world.init()
    world.set_epoch(32_766)
    assert world.init() == (1002, 0)
    assert world.add((producer_id, 32_766), P0) is MAPPING


def test_a_repeated_init_producer_id_survives_the_rotation() -> None:
    world = World()
    producer_id, _ = world.init()
    world.set_epoch(32_766)
    assert world.init(producer_id, 32_766) == (1002, 0)
    assert world.init(producer_id, 32_766) == (1002, 0)
    assert world.init(producer_id, 32_765) is FENCED


@pytest.mark.parametrize("commit", [True, False])
def test_ending_a_transaction_rotates_an_exhausted_id(commit: bool) -> None:
    """Markers go out with the old id and epoch 32767; the client continues with the new id."""
    world = World()
    producer_id, _ = world.init()
    world.set_epoch(32_766)
    exhausted = (producer_id, 32_766)
    assert world.add(exhausted, P0) is NONE
    assert world.end(exhausted, commit=commit) == (1002, 0)
    assert world.add((1002, 0), P0) is CONCURRENT
    world.reload()
    assert world.end(exhausted, commit=commit) is CONCURRENT
    effect = world.mark()
    assert (effect.metadata.producer_id, effect.metadata.producer_epoch) == (producer_id, 32_767)
    assert world.end(exhausted, commit=commit) == (1002, 0)
    world.reload()
    assert world.end(exhausted, commit=commit) == (1002, 0)
    assert world.add((1002, 0), P0) is NONE
    assert world.end(exhausted, commit=commit) is MAPPING


def test_fencing_an_exhausted_id_rotates_it() -> None:
    """KAFKA-20090."""
    world = World()
    producer_id, _ = world.init()
    world.set_epoch(32_766)
    assert world.add((producer_id, 32_766), P0) is NONE
    assert world.init() is CONCURRENT
    assert world.mark().metadata.producer_epoch == 32_767
    assert world.init() == (1002, 1)


# Timeouts and expiry


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_transaction_is_aborted_after_its_timeout(version: int) -> None:
    world, producer = begun(version)
    world.advance(TIMEOUT_MS)
    assert world.state == "Ongoing"
    world.advance(10_001)
    assert world.state == "PrepareAbort"
    effect = world.mark()
    assert effect.metadata.producer_epoch == producer[1] + 1
    assert world.end(producer, commit=True) in {FENCED, INVALID}
    assert world.state == "CompleteAbort"


def test_the_timeout_counts_from_the_first_partition() -> None:
    world, producer = begun()
    world.advance(TIMEOUT_MS - 10_000)
    assert world.add(producer, P1) is NONE
    world.advance(20_001)
    assert world.state == "PrepareAbort"


def test_a_timed_out_transaction_with_an_exhausted_epoch_gets_a_new_id() -> None:
    world = World()
    producer_id, _ = world.init()
    world.set_epoch(32_766)
    assert world.add((producer_id, 32_766), P0) is NONE
    world.advance(TIMEOUT_MS + 1)
    world.allocate()
    world.mark()
    found = world.shard.get(NAME)
    assert found is not None
    assert (found.producer_id, found.producer_epoch) == (1002, 0)


def test_an_allocated_id_is_not_used_once_the_transaction_has_ended() -> None:
    world = World()
    producer_id, _ = world.init()
    world.set_epoch(32_766)
    world.add((producer_id, 32_766), P0)
    world.advance(TIMEOUT_MS + 1)
    following = world.end((producer_id, 32_766), commit=True)
    world.allocate()
    world.mark()
    assert (world.state, following) == ("CompleteCommit", (1002, 0))


def test_an_id_without_transactions_expires() -> None:
    config = TransactionConfig(id_expiration_ms=100_000, expiry_interval_ms=10_000)
    world = World(2, config)
    producer = world.init()
    world.advance(99_000)
    assert world.state == "Empty"
    world.advance(11_000)
    assert world.shard.transactional_ids() == []
    assert world.log[-1][1] is None
    assert world.add(producer, P0) is MAPPING
    world.reload()
    assert world.shard.transactional_ids() == []


def test_an_open_transaction_keeps_its_id() -> None:
    config = TransactionConfig(id_expiration_ms=1, expiry_interval_ms=10_000)
    world = World(2, config)
    producer = world.init(timeout_ms=900_000)
    world.add(producer, P0)
    world.advance(500_000)
    assert world.state == "Ongoing"
    world.end(producer, commit=True)
    world.advance(500_000)
    assert world.state == "PrepareCommit"
    world.mark()
    world.advance(10_000)
    assert world.state == ""


def test_expiry_proceeds_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparkraft.coordinator.transaction.shard.IDS_PER_STEP", 2)
    world = World(2, TransactionConfig(id_expiration_ms=1, expiry_interval_ms=10_000))
    for number in range(5):
        monkeypatch.setattr("tests.coordinator.transaction.world.NAME", f"tx{number}")
        world.init()
    world.advance(10_000)
    assert len(world.shard.transactional_ids()) == 3
    world.advance(5)
    world.advance(5)
    assert world.shard.transactional_ids() == []
    assert world.shard.wake_at is not None
    assert world.shard.wake_at > world.now_ms + 5


def test_a_step_that_expires_many_ids_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each expired id costs a record, so a step has fewer of them than it examines."""
    monkeypatch.setattr("sparkraft.coordinator.transaction.shard.EXPIRED_PER_STEP", 2)
    world = World(2, TransactionConfig(id_expiration_ms=1, expiry_interval_ms=10_000))
    for number in range(4):
        monkeypatch.setattr("tests.coordinator.transaction.world.NAME", f"tx{number}")
        world.init()
    world.advance(10_000)
    assert len(world.shard.transactional_ids()) == 2
    world.advance(499)
    assert len(world.shard.transactional_ids()) == 2
    world.advance(1)
    assert world.shard.transactional_ids() == []


# Appends that fail


def test_a_rejected_append_changes_nothing() -> None:
    world, producer = begun()
    world.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.end(producer, commit=True) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.init() is ErrorCode.NOT_ENOUGH_REPLICAS
    world.refuse = None
    assert world.state == "Ongoing"
    assert world.end(producer, commit=True) == (producer[0], producer[1] + 1)


def test_a_decision_in_the_log_is_carried_out_though_its_append_was_not_acknowledged() -> None:
    """NOT_ENOUGH_REPLICAS_AFTER_APPEND: the record stays, so the state does too."""
    world, producer = begun()
    world.hold = True
    following = world.end(producer, commit=True)
    world.commit(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    assert (world.state, world.effects) == ("PrepareCommit", [])
    world.advance(500)
    world.mark()
    assert world.end(producer, commit=True) == following


def test_a_completion_that_could_not_be_appended_is_tried_again() -> None:
    world, producer = begun()
    following = world.end(producer, commit=True)
    world.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(Exception, match="NOT_ENOUGH_REPLICAS"):
        world.mark()
    world.refuse = None
    assert world.state == "PrepareCommit"
    world.advance(500)
    world.mark()
    assert (world.state, world.add(following, P0)) == ("CompleteCommit", NONE)


def test_markers_of_an_earlier_transaction_do_not_complete_the_next_one() -> None:
    """KAFKA-16352."""
    world, producer = begun()
    following = world.end(producer, commit=True)
    late = world.effects[0]
    world.mark()
    world.add(following, P0)
    world.end(following, commit=False)
    world.run(world.shard.on_effect_completed(late, None, world.now))
    assert world.state == "PrepareAbort"
    world.mark()
    assert world.state == "CompleteAbort"


# Recovery


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_a_new_coordinator_writes_the_markers_again(version: int, commit: bool) -> None:
    world, producer = begun(version)
    world.add(producer, P1)
    world.end(producer, commit=commit)
    world.reload()
    effect = world.mark()
    assert effect.partitions == {P0, P1}
    assert effect.coordinator_epoch == 1
    assert world.state == ("CompleteCommit" if commit else "CompleteAbort")


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_new_coordinator_has_the_same_state(version: int) -> None:
    world, producer = begun(version)
    world.add(producer, P1)
    before = world.shard.get(NAME)
    assert before is not None
    world.reload()
    # Records of transaction.version 0 lack the previous producer id.
    lost = {"previous_producer_id": -1} if version == 0 else {}
    assert world.shard.get(NAME) == before._replace(**lost)
    assert world.verify(producer, P0, P1) == {P0: NONE, P1: NONE}


def test_verification_tells_partitions_that_are_not_part() -> None:
    world, producer = begun()
    assert world.verify(producer, P0, P1) == {P0: NONE, P1: ErrorCode.TRANSACTION_ABORTABLE}


# Versions of clients and of the cluster


def test_clients_of_both_versions_alternate_on_one_id() -> None:
    world = World(2)
    for client in (0, 2, 0, 2):
        producer = world.init()
        assert world.add(producer, P0, client=client) is NONE
        following = world.end(producer, commit=True, client=client)
        assert following == (producer[0], producer[1] + (client == 2))
        assert world.mark().metadata.client_version == client


def test_a_fenced_producer_does_not_get_the_epoch_of_its_successor() -> None:
    """The successor is an older client, whose transaction ends without an epoch bump (T6).

    Its predecessor has heard of the abort, and ends another transaction.
    """
    world = World(2)
    fenced = world.init()
    assert world.add(fenced, P0, client=2) is NONE
    assert world.init() is CONCURRENT
    world.mark()
    fenced = world.end(fenced, commit=False, client=2)
    successor = world.init()
    assert successor == (fenced[0], fenced[1] + 1)
    assert world.add(successor, P0, client=0) is NONE
    assert world.end(successor, commit=False, client=0) == successor
    world.mark()
    assert world.end(fenced, commit=False, client=2) is ErrorCode.PRODUCER_FENCED
    assert world.end(successor, commit=False, client=0) == successor


def test_the_transaction_version_may_change_while_transactions_are_open() -> None:
    world, producer = begun(2)
    world.set_version(0)
    assert world.end(producer, commit=True, client=2) is ErrorCode.UNSUPPORTED_VERSION
    assert world.end(producer, commit=True, client=0) == producer
    assert world.log[-1][1][:2] == b"\0\0"
    world.mark()
    producer = world.init()
    world.add(producer, P0)
    world.set_version(2)
    assert world.end(producer, commit=True, client=0) == producer
    assert world.log[-1][1][:2] == b"\0\1"


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_timeouts_out_of_range(timeout_ms: int) -> None:
    with pytest.raises(KafkaError, match="INVALID_TRANSACTION_TIMEOUT"):
        check_timeout(timeout_ms, 900_000)


@pytest.mark.parametrize("timeout_ms", [1, 900_000])
def test_timeouts_in_range(timeout_ms: int) -> None:
    check_timeout(timeout_ms, 900_000)


def test_a_value_of_a_newer_version_is_skipped() -> None:
    """Kafka's TransactionLog.readTxnRecordValue returns none for it, so that a downgrade loads."""
    world = World()
    world.init()
    key, value = world.log[-1]
    assert value is not None
    assert decode_record(key, value) is not None
    newer = (VALUE_VERSION_MAX + 1).to_bytes(2, "big") + value[2:]
    assert decode_record(key, newer) is None
    assert complete(decode_record_in_steps(key, newer)) is None


def test_every_transition_between_states() -> None:
    assert set(NEXT_STATES) == set(TransactionState) == set(LABELS)
    written = {(one.value, other.value) for one in NEXT_STATES for other in NEXT_STATES[one]}
    assert written == {
        (0, 0), (0, 1), (0, 3), (1, 1), (1, 2), (1, 3), (2, 4), (3, 5),
        (4, 0), (4, 1), (4, 3), (5, 0), (5, 1), (5, 3),
    }  # fmt: skip
