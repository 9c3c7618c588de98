"""Random requests, failures and failovers of one transactional id: the invariants T1 to T15.

The names are those of docs/invariants.md. Clients are honest: each uses the producer id and epoch
of its last successful answer, or repeats a request whose answer was lost.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sparkraft.base.errors import ErrorCode
from sparkraft.coordinator.transaction.decision import WriteMarkers
from sparkraft.coordinator.transaction.metadata import EXHAUSTED_EPOCH, TransactionMetadata
from sparkraft.coordinator.transaction.records import decode_record
from sparkraft.coordinator.transaction.states import NEXT_STATES, PREPARED, TransactionState
from tests.coordinator.transaction.world import NAME, P0, P1, TIMEOUT_MS, World

COMMIT, ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT

MOSTLY = st.sampled_from([True, True, True, False])
SELDOM = st.sampled_from([False] * 5 + [True])
CLIENTS = st.sampled_from([0, 0, 0, 1])


@dataclass
class Client:
    """One producer: its identity, and the end of its transaction that it has requested.

    Attributes:
        ending: whether it wants to commit, from the first request to the answer.
        starts: start times of the transactions that its partitions were added to.
    """

    version: int
    producer: tuple[int, int] | None = None
    ending: bool | None = None
    starts: set[int] = field(default_factory=set)

    def became(self, producer: tuple[int, int]) -> None:
        self.producer, self.ending, self.starts = producer, None, set()


class TransactionalIds(RuleBasedStateMachine):
    """Two clients of one id take turns; the coordinator fails, moves and loses answers."""

    @initialize(version=st.sampled_from([0, 1, 2]), epoch=st.sampled_from([0, 32_764]))
    def begin(self, version: int, epoch: int) -> None:
        self.world = World(version)
        self.clients = [Client(2 if version == 2 else 0), Client(0)]
        self.owners: dict[tuple[int, int], int] = {}
        self.latest: int | None = None
        """The client that must not be fenced: nothing has happened since its last answer."""
        self.ended: list[WriteMarkers] = []
        self.world.init()
        if epoch:
            self.world.set_epoch(epoch)

    # Clients

    @rule(number=CLIENTS, answered=MOSTLY, knows=st.booleans(), settled=MOSTLY, again=SELDOM)
    def init(self, number: int, answered: bool, knows: bool, settled: bool, again: bool) -> None:
        if self.clients[number].producer is not None and not again:
            return
        self._begin(settled=settled)
        client, self.latest = self.clients[number], None
        expected = client.producer if knows and client.producer is not None else (-1, -1)
        result = self.world.init(*expected)
        if isinstance(result, ErrorCode):
            assert result in {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED}
        elif answered:
            self._take(number, result)

    def _begin(self, *, settled: bool) -> None:
        """Every request comes at a time of its own, mostly when the coordinator is idle."""
        self.world.now_ms += 1
        if settled:
            self.world.commit()
            while self.world.effects:
                self.effect()

    def _take(self, number: int, producer: tuple[int, int]) -> None:
        """T6: an identity has one owner."""
        assert self.owners.setdefault(producer, number) == number, producer
        self.clients[number].became(producer)
        self.latest = number

    @rule(number=CLIENTS, partition=st.sampled_from([P0, P1]), held=SELDOM, settled=MOSTLY)
    def add(self, number: int, partition: Any, held: bool, settled: bool) -> None:
        self._begin(settled=settled)
        client = self.clients[number]
        if client.producer is None or client.ending is not None:
            return
        self.world.hold = held
        code = self.world.add(client.producer, partition, client=client.version)
        self.world.hold = False
        if self.latest == number:
            assert code in {ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS}
        if code is ErrorCode.NONE:
            known = self.world.shard.get(NAME)
            assert known is not None
            client.starts.add(known.start_ms)
        elif code is not ErrorCode.CONCURRENT_TRANSACTIONS:
            client.producer = None  # Fatal for a client: it starts over with InitProducerId.

    @rule(
        number=CLIENTS,
        commit=st.booleans(),
        answered=MOSTLY,
        held=SELDOM,
        settled=MOSTLY,
    )
    def end(self, number: int, commit: bool, answered: bool, held: bool, settled: bool) -> None:
        self._begin(settled=settled)
        client = self.clients[number]
        if client.producer is None or not client.starts:
            return
        if client.ending is None:
            client.ending = commit
        self.world.hold = held
        result = self.world.end(client.producer, commit=client.ending, client=client.version)
        self.world.hold = False
        if isinstance(result, ErrorCode):
            if result is not ErrorCode.CONCURRENT_TRANSACTIONS:
                client.producer = None
            return
        if not answered:
            return
        self._check_decision(client)
        if client.version == 2:
            self._take(number, result)
        else:
            client.became(client.producer)
            self.latest = number

    def _check_decision(self, client: Client) -> None:
        """T1, T3, T4: all partitions were in one transaction, which the log ends as answered."""
        wanted, other = (COMMIT, ABORT) if client.ending else (ABORT, COMMIT)
        if client.ending:
            assert len(client.starts) == 1, client.starts
        states = {
            one.state
            for one in self._history()
            if one is not None and one.start_ms in client.starts and one.state in PREPARED
        }
        assert other not in states
        assert wanted in states or not client.ending

    # The coordinator

    @precondition(lambda self: self.world.effects)
    @rule()
    def effect(self) -> None:
        if isinstance(self.world.effects[0], WriteMarkers):
            self.ended.append(self.world.mark())
        else:
            self.world.allocate()

    @precondition(lambda self: self.ended)
    @rule()
    def repeat_an_effect(self) -> None:
        """An effect may end twice, and late."""
        before = len(self.world.log)
        self.world.run(self.world.shard.on_effect_completed(self.ended[-1], None, self.world.now))
        assert len(self.world.log) == before

    @rule(ms=st.sampled_from([500, 10_000, TIMEOUT_MS]))
    def wait(self, ms: int) -> None:
        self.latest = None
        self.world.advance(ms)

    @precondition(lambda self: self.world.uncommitted)
    @rule(lost=st.booleans())
    def commit_held(self, lost: bool) -> None:
        self.world.commit(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if lost else None)

    @precondition(lambda self: not self.world.uncommitted)
    @rule()
    def move(self) -> None:
        before = self.world.shard.get(NAME)
        self.world.reload()
        loaded = self.world.shard.get(NAME)
        assert (before is None) == (loaded is None)
        if before is None or loaded is None:
            return
        # T15: everything but the fields that records lack.
        assert (loaded.state, loaded.partitions, loaded.producer_id, loaded.producer_epoch) == (
            before.state,
            before.partitions,
            before.producer_id,
            before.producer_epoch,
        )

    # What must hold

    def _history(self) -> list[TransactionMetadata | None]:
        return [self._metadata(key, value) for key, value in self.world.log]

    @staticmethod
    def _metadata(key: bytes, value: bytes | None) -> TransactionMetadata | None:
        record = decode_record(key, value)
        assert record is not None
        return record.metadata

    @invariant()
    def log_is_legal(self) -> None:
        if not hasattr(self, "world"):
            return
        history = self._history()
        for before, after in pairwise(history):
            if before is None or after is None or before == after:
                continue
            self._check_succession(before, after)

    @staticmethod
    def _check_succession(before: TransactionMetadata, after: TransactionMetadata) -> None:
        """T5, and T2: a decision is never followed by the other one."""
        is_planted = before.state is after.state is TransactionState.EMPTY
        assert after.state in NEXT_STATES[before.state] or before.state is after.state
        if before.state in PREPARED:
            assert after.state is not (ABORT if before.state is COMMIT else COMMIT)
        if after.producer_id == before.producer_id:
            assert after.producer_epoch >= before.producer_epoch
            assert is_planted or after.producer_epoch <= before.producer_epoch + 1
        else:
            assert after.producer_epoch == 0
            assert before.producer_epoch >= EXHAUSTED_EPOCH

    @invariant()
    def markers_follow_committed_decisions(self) -> None:
        """T11 and T12: nothing is completed twice, nor before its markers."""
        if not hasattr(self, "world"):
            return
        known = self.world.shard.get(NAME)
        if known is not None and known.state in PREPARED and not self.world.uncommitted:
            waits = self.world.shard.wake_at is not None
            assert self.world.effects or waits

    def teardown(self) -> None:
        """T9: once clients stop, the transaction ends."""
        if not hasattr(self, "world"):
            return
        self.world.commit()
        for _ in range(20):
            self.world.advance(TIMEOUT_MS)
            while self.world.effects:
                self.effect()
        assert self.world.state not in {"Ongoing", "PrepareCommit", "PrepareAbort"}


TestTransactionalIds = TransactionalIds.TestCase
TestTransactionalIds.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
