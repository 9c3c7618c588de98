"""Transactional clients of a simulated cluster, over the network (KIP-98, KIP-360, KIP-890).

    x0, x1, x2  take a transactional id, write some transactions with it and commit or abort them;
                they use the same ids, so they fence each other, and at times they stand still for
                longer than the transaction timeout or leave a transaction open; in some runs they
                abort transactions that they have not begun
    r0          reads all partitions with isolation level read_committed
    g0          fetches the offsets that the transactions commit, with `require_stable`

Half of the sessions use the requests of transaction.version 0 and 1, which add partitions first;
the others those of version 2, in which each transaction ends with a new epoch.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.messages import k00_produce as k00
from sparkraft.protocol.messages import k01_fetch as k01
from sparkraft.protocol.messages import k09_offset_fetch as k09
from sparkraft.protocol.messages import k24_add_partitions_to_txn as k24
from sparkraft.protocol.messages import k25_add_offsets_to_txn as k25
from sparkraft.protocol.messages import k26_end_txn as k26
from sparkraft.protocol.messages import k28_txn_offset_commit as k28
from sparkraft.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from sparkraft.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from sparkraft.records.batch import BatchHeader, iter_batches
from sparkraft.records.control import parse_end_transaction
from sparkraft.records.record import BatchBuilder, decode_records
from sparkraft.simulation.workload.node_clients import FAILURES
from sparkraft.simulation.workload.record_clients import PARTITIONS, TOPIC, Client
from sparkraft.simulation.workload.transaction_ledger import (
    Outcome,
    Transaction,
    TransactionLedger,
)

if TYPE_CHECKING:
    from sparkraft.simulation.workload.client_env import ClientEnv

IDS = ("t0", "t1", "t2")
"""Transactional ids; the offsets of the id at an index are those of that partition."""
CLIENTS = 3
GROUP = "exactly-once"
TIMEOUT_MS = 3_000
SESSION_TRANSACTIONS_MAX = 8
GIVE_UP_S = 20.0
"""How long a request is retried."""
FETCH_BYTES = 64 * 1024
READ_COMMITTED = 1
OF_GROUPS, OF_TRANSACTIONS = 0, 1
"""Key types of FindCoordinator."""

FENCED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
ABORTABLE = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
DONE = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
NOT_ACCEPTED = frozenset(
    {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
"""Errors after which the coordinator has not acted on the request."""


class Settled(NamedTuple):
    """The end of a request that was retried.

    Attributes:
        code: the last error code; NETWORK_EXCEPTION if the retries ended without one.
        answer: the last response, if any.
        unsure: whether an earlier attempt, or the last one, may have been accepted.
        host: the broker of the last response.
    """

    code: ErrorCode
    answer: Any
    unsure: bool
    host: str = ""


class Session:
    """A transactional id in the hands of one client, with its producer id and epoch."""

    def __init__(self, name: str, transactional_id: str, *, has_epochs: bool) -> None:
        self.name = name
        self.transactional_id = transactional_id
        self.has_epochs = has_epochs
        self.producer_id = -1
        self.epoch = -1
        self.sequences: Counter[int] = Counter()
        """Partition → next sequence in this epoch."""

    def take(self, producer_id: int, epoch: int) -> None:
        """Use an identity; sequences start again with a new one."""
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch


class CoordinatedClient(Client):
    """A client that finds coordinators and retries its requests."""

    def __init__(self, world: "ClientEnv", name: str) -> None:
        super().__init__(world)
        self.name = name
        self._coordinators: dict[tuple[int, str], str] = {}

    async def coordinator(self, key_type: int, key: str) -> str | None:
        """Return the coordinator from the cache or by FindCoordinator; None if there is none."""
        if (key_type, key) not in self._coordinators:
            request = FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type)
            answer = await self.ask(self.some_host(), request, version=4)
            found = answer.coordinators[0]
            if found.error_code:
                return None
            self._coordinators[key_type, key] = f"n{found.node_id}"
        return self._coordinators[key_type, key]

    def forget_coordinator(self, key_type: int, key: str) -> None:
        """Look it up again for the next request."""
        self._coordinators.pop((key_type, key), None)

    async def settle(
        self,
        host_of: Callable[[], Awaitable[str | None]],
        forget: Callable[[], None],
        request: Any,
        version: int,
    ) -> Settled:
        """Send a request until its result is definite, or for `GIVE_UP_S`."""
        end = asyncio.get_running_loop().time() + GIVE_UP_S
        unsure = False
        while asyncio.get_running_loop().time() < end:
            code, answer, host = ErrorCode.NETWORK_EXCEPTION, None, None
            try:
                host = await host_of()
                if host is None:
                    code = ErrorCode.CONCURRENT_TRANSACTIONS  # nothing was sent
                else:
                    answer = await self.ask(host, request, version=version)
                    code = code_of(answer)
            except FAILURES:
                pass
            if code in DONE or code in FENCED or code in ABORTABLE:
                return Settled(code, answer, unsure, host or "")
            unsure = unsure or code not in NOT_ACCEPTED
            self.world.counts[f"transactions: {code.name}"] += 1
            forget()
            await self.pause(0.02, 0.3)
        return Settled(ErrorCode.NETWORK_EXCEPTION, None, unsure)


def code_of(answer: Any) -> ErrorCode:
    """The error code of a response about one partition or one transactional id."""
    match answer:
        case k00.ProduceResponse():
            code = answer.responses[0].partition_responses[0].error_code
        case k24.AddPartitionsToTxnResponse():
            topic = answer.results_by_topic_v3_and_below[0]
            code = topic.results_by_partition[0].partition_error_code
        case k28.TxnOffsetCommitResponse():
            code = answer.topics[0].partitions[0].error_code
        case _:
            code = answer.error_code
    return ErrorCode(code)


class TransactionClient(CoordinatedClient):
    """See the module docstring."""

    def __init__(
        self, world: "ClientEnv", name: str, ledger: TransactionLedger, *, aborts_nothing: bool
    ) -> None:
        """`aborts_nothing`: it aborts a transaction now and then that it has not begun."""
        super().__init__(world, name)
        self._ledger = ledger
        self._aborts_nothing = aborts_nothing
        self._sessions = 0
        self.is_done = False
        """Whether it has finished because the world drains."""

    async def run(self) -> None:
        """Work in sessions until the world drains."""
        while not self.world.draining:
            await self.pause(0.05, 0.5)
            await self._session()
            if self.world.dice.random() < 0.3:  # noqa: PLR2004 (others get their turn)
                await self.pause(0.5, 3)
        self.is_done = True

    async def _session(self) -> None:
        self._sessions += 1
        dice = self.world.dice
        name = f"{self.name}.{self._sessions}"
        session = Session(name, dice.choice(IDS), has_epochs=dice.random() < 0.5)  # noqa: PLR2004
        if not await self._initialize(session):
            return
        for _ in range(dice.randint(1, SESSION_TRANSACTIONS_MAX)):
            if self.world.draining or not await self._transaction(session):
                return
            await self.pause(0.01, 0.3)

    async def _initialize(self, session: Session, *, renews: bool = False) -> bool:
        """Get a producer id and an epoch; `renews` those of the session (KIP-360)."""
        request = InitProducerIdRequest(
            transactional_id=session.transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            producer_id=session.producer_id if renews else -1,
            producer_epoch=session.epoch if renews else -1,
        )
        settled = await self._ask_coordinator(session, request, 4)
        if settled.code is not ErrorCode.NONE:
            return False
        session.take(settled.answer.producer_id, settled.answer.producer_epoch)
        self._note_identity(session)
        self.world.counts["producers initialized"] += 1
        return True

    def _note_identity(self, session: Session) -> None:
        self._ledger.on_identity(
            session.transactional_id, session.name, session.producer_id, session.epoch
        )

    async def _ask_coordinator(self, session: Session, request: Any, version: int) -> Settled:
        key = (OF_TRANSACTIONS, session.transactional_id)
        return await self.settle(
            lambda: self.coordinator(*key), lambda: self.forget_coordinator(*key), request, version
        )

    # ---- one transaction

    async def _transaction(self, session: Session) -> bool:
        """Write and end one transaction; return whether the session may continue."""
        dice, ledger = self.world.dice, self._ledger
        if self._aborts_nothing and session.has_epochs and dice.random() < 0.1:  # noqa: PLR2004
            return await self._abort_nothing(session)
        transaction = ledger.begin(session.transactional_id, session.producer_id, session.epoch)
        code = await self._write(session, transaction)
        roll = dice.random()
        if code in FENCED or roll < 0.06:  # noqa: PLR2004 (leaves it open)
            ledger.end(transaction, Outcome.ABORTED)
            return False
        if roll < 0.12:  # noqa: PLR2004 (stands still)
            await self.pause(0.8 * TIMEOUT_MS / 1000, 1.6 * TIMEOUT_MS / 1000)
        commits = code is ErrorCode.NONE and dice.random() < 0.7  # noqa: PLR2004 (mostly)
        if not await self._end(session, transaction, commits=commits):
            return False
        if code is not ErrorCode.NONE and not session.has_epochs:
            # A batch without a response could arrive in the next transaction of the same epoch.
            return await self._initialize(session, renews=True)
        return True

    async def _abort_nothing(self, session: Session) -> bool:
        """End a transaction that was not begun: the next epoch, as after any other (KIP-890)."""
        request = k26.EndTxnRequest(
            transactional_id=session.transactional_id,
            producer_id=session.producer_id,
            producer_epoch=session.epoch,
            committed=False,
        )
        settled = await self._ask_coordinator(session, request, 5)
        if settled.code is not ErrorCode.NONE:
            return False
        session.take(settled.answer.producer_id, settled.answer.producer_epoch)
        self._note_identity(session)
        self.world.counts["transactions without a begin"] += 1
        return True

    async def _write(self, session: Session, transaction: Transaction) -> ErrorCode:
        """Write batches and perhaps an offset; return the first error."""
        dice = self.world.dice
        partitions = dice.sample(range(PARTITIONS), dice.randint(1, 2))
        for place in range(dice.randint(1, 3)):
            partition = dice.choice(partitions)
            if dice.random() < 0.04:  # noqa: PLR2004 (stands still)
                await self.pause(0.8 * TIMEOUT_MS / 1000, 1.6 * TIMEOUT_MS / 1000)
            code = await self._write_batch(session, transaction, partition, place)
            if code is not ErrorCode.NONE:
                return code
        if coin(self.world):
            return await self._send_offset(session, transaction)
        return ErrorCode.NONE

    async def _write_batch(
        self, session: Session, transaction: Transaction, partition: int, place: int
    ) -> ErrorCode:
        if not session.has_epochs:
            code = await self._add_partition(session, partition)
            if code is not ErrorCode.NONE:
                return code
        value = f"{transaction.number}.{partition}.{place}"
        builder = BatchBuilder(
            producer_id=session.producer_id,
            producer_epoch=session.epoch,
            base_sequence=session.sequences[partition],
            transactional=True,
        )
        builder.append(self.world.timestamp_ms(), None, value.encode())
        data = k00.PartitionProduceData(index=partition, records=builder.build())
        request = k00.ProduceRequest(
            transactional_id=session.transactional_id,
            acks=-1,
            timeout_ms=2_000,
            topic_data=[k00.TopicProduceData(name=TOPIC, partition_data=[data])],
        )
        transaction.values.append((partition, value))
        settled = await self.settle(
            lambda: self.leader(partition),
            lambda: self.forget(partition),
            request,
            12 if session.has_epochs else 11,
        )
        if settled.code not in DONE:
            return settled.code
        session.sequences[partition] += 1
        found = settled.answer.responses[0].partition_responses[0]
        if settled.code is ErrorCode.NONE and found.base_offset >= 0:
            self.world.on_acknowledged(TOPIC, partition, found.base_offset + 1)
        self.world.counts["records acknowledged"] += 1
        return ErrorCode.NONE

    async def _add_partition(self, session: Session, partition: int) -> ErrorCode:
        request = k24.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=session.transactional_id,
            v3_and_below_producer_id=session.producer_id,
            v3_and_below_producer_epoch=session.epoch,
            v3_and_below_topics=[k24.AddPartitionsToTxnTopic(name=TOPIC, partitions=[partition])],
        )
        return (await self._ask_coordinator(session, request, 3)).code

    async def _send_offset(self, session: Session, transaction: Transaction) -> ErrorCode:
        """Send the number of the transaction as the offset of its id's partition."""
        if not session.has_epochs:
            request = k25.AddOffsetsToTxnRequest(
                transactional_id=session.transactional_id,
                producer_id=session.producer_id,
                producer_epoch=session.epoch,
                group_id=GROUP,
            )
            code = (await self._ask_coordinator(session, request, 3)).code
            if code is not ErrorCode.NONE:
                return code
        wanted = k28.TxnOffsetCommitRequestPartition(
            partition_index=IDS.index(session.transactional_id),
            committed_offset=transaction.number,
            committed_metadata="",
        )
        commit = k28.TxnOffsetCommitRequest(
            transactional_id=session.transactional_id,
            group_id=GROUP,
            producer_id=session.producer_id,
            producer_epoch=session.epoch,
            topics=[k28.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[wanted])],
        )
        transaction.offset = transaction.number
        settled = await self.settle(
            lambda: self.coordinator(OF_GROUPS, GROUP),
            lambda: self.forget_coordinator(OF_GROUPS, GROUP),
            commit,
            5 if session.has_epochs else 4,
        )
        if settled.code is ErrorCode.NONE:
            transaction.offset_host = settled.host
            self.world.counts["offsets sent"] += 1
        return settled.code

    async def _end(self, session: Session, transaction: Transaction, *, commits: bool) -> bool:
        """Commit or abort; return whether the session may continue."""
        request = k26.EndTxnRequest(
            transactional_id=session.transactional_id,
            producer_id=session.producer_id,
            producer_epoch=session.epoch,
            committed=commits,
        )
        if not transaction.values and not session.has_epochs:
            self._ledger.end(transaction, Outcome.ABORTED)
            return False
        transaction.commit_sent = commits
        version = 5 if session.has_epochs else 4
        settled = await self._ask_coordinator(session, request, version)
        if settled.code is not ErrorCode.NONE:
            unsure = commits and settled.unsure
            self._ledger.end(transaction, Outcome.UNKNOWN if unsure else Outcome.ABORTED)
            return False
        self._ledger.end(transaction, Outcome.COMMITTED if commits else Outcome.ABORTED)
        if session.has_epochs:
            session.take(settled.answer.producer_id, settled.answer.producer_epoch)
            self._note_identity(session)
            if self.world.dice.random() < 0.2:  # noqa: PLR2004 (now and then)
                await self._repeat(session, request)
        return True

    async def _repeat(self, session: Session, request: k26.EndTxnRequest) -> None:
        """Send EndTxn again, as after a lost response: it gets the same response (T16)."""
        settled = await self._ask_coordinator(session, request, 5)
        answer = settled.answer
        if settled.code is ErrorCode.NONE:
            given = (answer.producer_id, answer.producer_epoch)
            self.world.demand(
                given == (session.producer_id, session.epoch),
                "T16",
                f"{session.name} ends a transaction twice: {given}, at first "
                f"{(session.producer_id, session.epoch)}",
            )
        self.world.demand(
            settled.code not in ABORTABLE,
            "T16",
            f"{session.name} ends a transaction twice: {settled.code.name}",
        )


def coin(world: "ClientEnv") -> bool:
    """Return a random bool."""
    return world.dice.random() < 0.5  # noqa: PLR2004 (a coin)


class CommittedReader(Client):
    """Reads all partitions with isolation level read_committed, as a consumer filters them."""

    def __init__(self, world: "ClientEnv", name: str, ledger: TransactionLedger) -> None:
        super().__init__(world)
        self._name = name
        self._ledger = ledger
        self.values: Counter[str] = Counter()
        self._positions = dict.fromkeys(range(PARTITIONS), 0)
        self.ends: dict[int, tuple[int, int, int]] = {}
        """Partition → position, last stable offset and high watermark of the last response."""

    async def run(self) -> None:
        """Poll all partitions until the run ends."""
        async with asyncio.TaskGroup() as group:
            for partition in range(PARTITIONS):
                group.create_task(self._follow(partition))

    def has_read_all(self) -> bool:
        """Whether it is at the end of each partition, with no transaction open."""
        return len(self.ends) == PARTITIONS and all(
            position >= stable == mark for position, stable, mark in self.ends.values()
        )

    async def _follow(self, partition: int) -> None:
        while True:
            await self.pause(0.05, 0.4)
            try:
                known = await self._poll(partition)
            except FAILURES:
                known = False
            if not known:
                self.ends.pop(partition, None)
                self.forget(partition)
                await self.pause(0.05, 0.5)

    async def _poll(self, partition: int) -> bool:
        leader = await self.leader(partition)
        if leader is None:
            return False
        position = self._positions[partition]
        wanted = k01.FetchPartition(
            partition=partition, fetch_offset=position, partition_max_bytes=FETCH_BYTES
        )
        request = k01.FetchRequest(
            max_wait_ms=300,
            min_bytes=1,
            isolation_level=READ_COMMITTED,
            topics=[k01.FetchTopic(topic=TOPIC, partitions=[wanted])],
        )
        answer = await self.ask(leader, request, version=11)
        found = None if answer.error_code else answer.responses[0].partitions[0]
        if found is None or found.error_code:
            return False
        self._take(partition, position, found)
        self.ends[partition] = (
            self._positions[partition], found.last_stable_offset, found.high_watermark
        )  # fmt: skip
        return True

    def _take(self, partition: int, position: int, found: Any) -> None:
        aborted = sorted(found.aborted_transactions or (), key=lambda one: one.first_offset)
        skipped: set[int] = set()
        for header, view in iter_batches(found.records or b""):
            while aborted and aborted[0].first_offset <= header.last_offset:
                skipped.add(aborted.pop(0).producer_id)
            self._take_batch(header, view, position, skipped)
            self._positions[partition] = header.last_offset + 1

    def _take_batch(
        self, header: BatchHeader, view: memoryview, position: int, skipped: set[int]
    ) -> None:
        if header.is_control:
            end = parse_end_transaction(view)
            if end is not None and end.aborted:
                skipped.discard(header.producer_id)
            return
        if header.is_transactional and header.producer_id in skipped:
            return
        for record in decode_records(view):
            if record.offset >= position:
                value = bytes(record.value or b"").decode()
                self.values[value] += 1
                self.world.counts["records read"] += 1
                self._ledger.on_value(self._name, value)


class StableOffsetReader(CoordinatedClient):
    """Fetches the group's offsets with `require_stable` (KIP-447)."""

    def __init__(self, world: "ClientEnv", name: str, ledger: TransactionLedger) -> None:
        super().__init__(world, name)
        self._ledger = ledger
        self.is_done = False
        """Whether it has fetched stable offsets since all clients were done."""

    async def run(self) -> None:
        """Fetch now and then until the run ends."""
        while True:
            await self.pause(0.1, 0.8)
            try:
                known = await self._fetch()
            except FAILURES:
                known = False
            if not known:
                self.forget_coordinator(OF_GROUPS, GROUP)

    async def _fetch(self) -> bool:
        host = await self.coordinator(OF_GROUPS, GROUP)
        if host is None:
            return False
        drained = self.world.draining
        least = [self._ledger.least_offset(one, None if drained else host) for one in IDS]
        topics = [k09.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(range(len(IDS))))]
        request = k09.OffsetFetchRequest(
            groups=[k09.OffsetFetchRequestGroup(group_id=GROUP, topics=topics)],
            require_stable=True,
        )
        answer = await self.ask(host, request, version=8)
        group = answer.groups[0]
        if group.error_code or not group.topics:
            return False
        stable = 0
        for found in group.topics[0].partitions:
            self.world.counts[f"offsets: {ErrorCode(found.error_code).name}"] += 1
            if not found.error_code:
                stable += 1
                index = found.partition_index
                self._ledger.on_offset(IDS[index], found.committed_offset, least[index], host)
        self.is_done = drained and stable == len(IDS)
        return True


class TransactionWorkload:
    """The clients of one run."""

    def __init__(self, world: "ClientEnv", *, aborts_nothing: bool = False) -> None:
        self.ledger = TransactionLedger(world)
        self.writers = [
            TransactionClient(world, f"x{i}", self.ledger, aborts_nothing=aborts_nothing)
            for i in range(CLIENTS)
        ]
        self.reader = CommittedReader(world, "r0", self.ledger)
        self.offset_reader = StableOffsetReader(world, "g0", self.ledger)

    @property
    def all_clients(self) -> list[Client]:
        """Writers and readers."""
        return [*self.writers, self.reader, self.offset_reader]

    @property
    def is_idle(self) -> bool:
        """Whether every writer has finished."""
        return all(writer.is_done for writer in self.writers)

    def has_ended(self) -> bool:
        """Whether no transaction is open, and everything that was committed has been read."""
        return self.reader.has_read_all() and self.offset_reader.is_done

    def finish(self) -> None:
        """Check what the reader has read against what the writers know."""
        self.ledger.check_reads("r0", self.reader.values)
