"""Exactly-once into topics: the transactions of a batch, committed by the driver's decision.

    driver   open: fence older drivers, finish the last decided batch, fence what is left over
    tasks    begin a transaction each, write rows and a proof; return it open
    driver   commit: check that all are open, write the decision in a transaction of its own,
             with the source's offsets for lag tools if asked to, then end each task's transaction,
             and fence tasks that still run, such as the slower copies if Spark speculates
    driver   abort: fence the tasks of the batch, also those that still run

    PREFIX.driver           the transactional id of the driver
    PREFIX.SLOT.ATTEMPT     the transactional id of a task's attempt; a slot is a partition of the
                            rows in Spark
    PREFIX.decisions        a compacted topic. Partition 0 has decisions, partition 1 proofs, so
                            that open transactions of tasks do not hide decisions

Spark runs a batch again unless its own commit file is written. So the decision, not Spark,
determines whether a batch is in the topics: a decided batch is finished and skipped, one that is
not decided is aborted and written again.

A proof names the query, the batch and the slot, and is a part of the slot's transaction. If
the coordinator no longer knows whether a decided transaction was committed, because another
one has begun with the id, the proof's presence for read_committed readers is the answer.

Invariants:
    * A decision is written only while each of its transactions is open.
    * A task begins no transaction after a newer driver has started: it checks the epoch of
      PREFIX.driver before and after its own InitProducerId, and a driver raises that epoch before
      it fences the tasks' ids.
    * Ids are used again only after the batch of the last decision is finished.

Readers of committed records see the transactions of a batch one after another.

Not here: decisions (`decisions`); the requests (`transactions`); Spark (`sink`, `sinks`).
"""

from __future__ import annotations

import json
import logging
import re
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.pipeline.decisions import (
    Decision,
    LostTransactionsError,
    NotDecidedError,
    QueryBatch,
    Slot,
    Ticket,
    checked_prefix,
    decisions_topic,
    driver_id,
    lost_text,
)
from sparkraft.pipeline.fetch import RangeReader
from sparkraft.pipeline.offsets import Range
from sparkraft.pipeline.options import Isolation, source_options
from sparkraft.pipeline.places import EARLIEST, LATEST, OptionError
from sparkraft.pipeline.produce import Producer
from sparkraft.pipeline.transactions import (
    NOT_COMMITTED,
    ONGOING,
    Described,
    OpenTransaction,
    ProducerEpoch,
    TransactionCalls,
)
from sparkraft.pipeline.wire import shared_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from sparkraft.pipeline.options import ClientOptions, SinkOptions, SourceOptions
    from sparkraft.pipeline.transactions import GroupOffsets
    from sparkraft.pipeline.wire import Cluster

log = logging.getLogger(__name__)

_DECISIONS: Final = 0
_PROOFS: Final = 1

_TOPIC_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 << 20),
    "segment.ms": "3600000",
}

_TAIL_OFFSETS: Final = 64
"""Limit of the first search for the last decision, in offsets before the end of its partition."""

_FENCE_ROUNDS_MAX: Final = 100
_ROUND_SECONDS: Final = 0.1
"""Bounds on waiting until no transaction is open."""


class Recovery(NamedTuple):
    """The result of finishing what a driver has left.

    Args:
        last: the newest decided batch.
        committed: ids whose transactions belonged to it and were still open.
        aborted: ids whose transactions were open and did not belong to it.
    """

    last: QueryBatch | None
    committed: list[str]
    aborted: list[str]


_RETRIES_MIN: Final = 600
"""With the default pause, a minute: a new leader of a partition may need seconds."""


def patient(client: ClientOptions) -> ClientOptions:
    """Client options for drivers and tasks: a failed request costs the whole batch."""
    return replace(client, retries_max=max(client.retries_max, _RETRIES_MIN))


class SlotWriter:
    """A task's side of a batch: send rows to `producer`, then `finish`."""

    def __init__(
        self, calls: TransactionCalls, ticket: Ticket, batch: QueryBatch, *, slot: int, attempt: int
    ) -> None:
        """Prepare; the transaction begins with the first record."""
        self._calls = calls
        self._ticket = ticket
        self._batch = batch
        self._slot = slot
        name = f"{ticket.prefix}.{slot}.{attempt}"
        self._transaction = OpenTransaction(calls, name, self._take_id)
        self.producer = Producer(calls.cluster, spread_from=slot, transaction=self._transaction)

    def finish(self) -> Slot | None:
        """Add the proof, return when all is stored; None if there were no records.

        The transaction stays open: only the driver ends it.
        """
        records = self.producer.records
        if not records:
            return None
        transaction = self._transaction
        proof = {
            "query": self._batch.query,
            "batch": self._batch.number,
            "slot": self._slot,
            "producer": list(transaction.producer),
        }
        self.producer.send(
            decisions_topic(self._ticket.prefix),
            transaction.transactional_id.encode(),
            json.dumps(proof).encode(),
            partition=_PROOFS,
            timestamp_ms=_now_ms(),
        )
        self.producer.flush()
        return Slot(
            slot=self._slot,
            transactional_id=transaction.transactional_id,
            producer=transaction.producer,
            partitions=tuple(sorted(transaction.partitions)),
            records=records,
        )

    def _take_id(self) -> ProducerEpoch:
        self._require_driver()
        producer = self._calls.init(self._transaction.transactional_id)
        self._require_driver()
        return producer

    def _require_driver(self) -> None:
        driver = driver_id(self._ticket.prefix)
        found = self._calls.describe(driver)
        if found is None or found.producer != self._ticket.driver:
            raise KafkaError(
                ErrorCode.PRODUCER_FENCED, f"a newer driver has taken transactional id {driver}"
            )


class Committer:
    """The driver's side: `open` before the tasks of a batch, `commit` or `abort` after them."""

    def __init__(self, calls: TransactionCalls, prefix: str) -> None:
        """Prepare; nothing is sent."""
        self._calls = calls
        self._cluster = calls.cluster
        self._prefix = checked_prefix(prefix)
        self._topic = decisions_topic(prefix)
        self._driver = driver_id(prefix)
        self._finished: Ticket | None = None
        """The ticket of the last batch, if this object has committed it completely."""

    @classmethod
    def of(cls, options: SinkOptions) -> Self:
        """The committer of a sink with a transactional id prefix."""
        # Metadata requests must not create the topic of decisions, with other settings.
        client = replace(patient(options.client), auto_create_topics=False)
        calls = TransactionCalls(shared_cluster(client), timeout_ms=options.transaction_timeout_ms)
        return cls(calls, options.transactional_id_prefix or "")

    def open(self) -> Ticket:
        """Become the driver, and finish or abort what earlier drivers have left.

        Raises:
            LostTransactionsError: the last decided batch cannot be completed.
        """
        finished, self._finished = self._finished, None
        if finished is not None:
            return self._continued(finished)
        driver = self._calls.init(self._driver)
        self._create_topic()
        return self._ticket(driver, self._settle().last)

    @contextmanager
    def aborting(self, ticket: Ticket, batch: QueryBatch) -> Iterator[None]:
        """Abort the batch if an error ends its writing or its decision."""
        try:
            yield
        except BaseException:
            # Readers wait for open transactions; the reason is the first error.
            try:
                self.abort(ticket)
            except (KafkaError, RuntimeError) as error:
                log.warning("Batch %d could not be aborted: %s", batch.number, error)
            raise

    @property
    def cluster(self) -> Cluster:
        """The cluster of the topics."""
        return self._cluster

    def commit(
        self,
        ticket: Ticket,
        batch: QueryBatch,
        slots: Sequence[Slot],
        shown: GroupOffsets | None = None,
    ) -> bool:
        """Decide the batch and end its transactions; transactions of other attempts are aborted.

        With `shown`, a batch without rows is decided, too.

        Args:
            ticket: the one with which its tasks have written.
            batch: the batch.
            slots: the transactions of the attempts that count.
            shown: the source's offsets after the batch. They are visible to lag tools if and only
                if the batch is decided.

        Returns:
            whether the decision has `shown`; False if the brokers refuse it, which is logged.

        Raises:
            NotDecidedError: nothing of the batch is visible.
            LostTransactionsError: a part of the batch is missing.
        """
        # A driver that was thought dead must not abort the transactions of the newer one's tasks.
        self._require_driver(ticket)
        self._fence_open({each.transactional_id for each in slots})
        for each in slots:
            if self._calls.describe(each.transactional_id) != Described(each.producer, ONGOING):
                raise NotDecidedError(
                    f"batch {batch.number} is not committed: the transaction of "
                    f"{each.transactional_id} has ended; it timed out "
                    f"(kafka.transaction.timeout.ms), or another task has taken its id"
                )
        is_shown = False
        if slots or shown:
            decision = Decision(batch, ticket.proofs_from, tuple(slots))
            is_shown = self._decide(ticket.driver, decision, shown)
            self._end_slots(decision, decision.slots)
            ticket = replace(ticket, last=batch)
        self._finished = self._closed(ticket)
        return is_shown

    def _closed(self, ticket: Ticket) -> Ticket | None:
        """Let tasks of a batch that is decided, and that Spark has yet to kill, write nothing more.

        Such a task is the slower of two copies, if Spark speculates. Its transaction would hold
        readers back until the next batch, which still aborts one that begins in this very moment.
        Return the ticket of the driver's next epoch; None if it has none, and the next `open`
        fences the tasks.
        """
        try:
            driver = self._calls.init(self._driver, ticket.driver)
            self._fence_open(())
        except (KafkaError, NotDecidedError) as error:
            log.warning("Tasks of a decided batch may still run, and were not fenced: %s", error)
            return None
        return replace(ticket, driver=driver)

    def abort(self, ticket: Ticket) -> None:
        """Abort the transactions of a batch that is not decided, also of tasks that still run.

        A newer driver has done this already; nothing of it is aborted.
        """
        self._finished = None
        # A decision that was not written to its end. Its abort by InitProducerId would raise the
        # epoch, and then the request itself would be refused.
        self._calls.end(self._driver, ticket.driver, committed=False)
        try:
            self._calls.init(self._driver, ticket.driver)
        except KafkaError as error:
            if error.code in NOT_COMMITTED:
                return
            raise
        self._settle()

    def recover(self) -> Recovery:
        """Finish or abort what a driver has left that will not run again soon.

        A driver that still runs is fenced.

        Raises:
            OptionError: no query has used the prefix.
            LostTransactionsError: the last decided batch cannot be completed.
        """
        self._require_topic()
        self._calls.init(self._driver)
        return self._settle()

    def replay(self, number: int) -> list[str]:
        """Let Spark write a batch again that was decided and then lost a part.

        Return the ids of the transactions that are visible already: their records will be visible
        twice. Offsets that were shown with the batch stay until it is decided again.

        Raises:
            OptionError: the batch is not the last decided one, or is complete.
        """
        self._require_topic()
        driver = self._calls.init(self._driver)
        last = self._last_decision()
        if last is None or last.batch.number != number:
            found = "none" if last is None else str(last.batch.number)
            raise OptionError(f"the last decided batch of {self._prefix} is {found}, not {number}")
        try:
            self._finish(last)
        except LostTransactionsError:
            proven = self._proven(last)
        else:
            raise OptionError(f"batch {number} of {self._prefix} is complete")
        before = last.batch._replace(number=number - 1)
        self._decide(driver, Decision(before, last.proofs_from, ()))
        return [each.transactional_id for each in last.slots if each in proven]

    def _continued(self, finished: Ticket) -> Ticket:
        """The ticket of the next batch of this driver, which has nothing to finish or abort."""
        self._require_driver(finished)
        return self._ticket(finished.driver, finished.last)

    def _require_driver(self, ticket: Ticket) -> None:
        found = self._calls.describe(self._driver)
        if found is None or found.producer != ticket.driver:
            raise NotDecidedError(f"a newer driver has taken transactional id {self._driver}")

    def _ticket(self, driver: ProducerEpoch, last: QueryBatch | None) -> Ticket:
        end = self._end(_PROOFS, committed_only=False)
        return Ticket(prefix=self._prefix, driver=driver, proofs_from=end, last=last)

    # decisions

    def _decide(
        self, driver: ProducerEpoch, decision: Decision, shown: GroupOffsets | None = None
    ) -> bool:
        """Write a decision; whether it has `shown`."""
        transaction = OpenTransaction(self._calls, self._driver, lambda: driver)
        producer = Producer(self._cluster, transaction=transaction)
        producer.send(
            self._topic,
            b"decision",
            decision.encode(),
            partition=_DECISIONS,
            timestamp_ms=_now_ms(),
        )
        producer.flush()
        is_shown = shown is not None and self._show(driver, decision.batch, shown)
        if not self._calls.end(self._driver, driver, committed=True):
            raise self._fenced(decision.batch)
        return is_shown

    def _show(self, driver: ProducerEpoch, batch: QueryBatch, shown: GroupOffsets) -> bool:
        """Add offsets to the decision; they are not worth a batch, so others decide without."""
        try:
            self._calls.commit_offsets(self._driver, driver, shown)
        except KafkaError as error:
            if error.code in NOT_COMMITTED:
                raise self._fenced(batch) from error
            log.warning(
                "The decision of batch %d does not have the offsets of group %s: %s. The principal "
                "of the sink needs READ on the group and on the topics that the query reads",
                batch.number,
                shown.group,
                error,
            )
            return False
        return True

    def _fenced(self, batch: QueryBatch) -> NotDecidedError:
        return NotDecidedError(
            f"batch {batch.number} is not committed by this driver: a newer one has taken "
            f"transactional id {self._driver}"
        )

    def _last_decision(self) -> Decision | None:
        end = self._end(_DECISIONS, committed_only=True)
        start = self._cluster.list_offsets({(self._topic, _DECISIONS): EARLIEST})
        first = start[self._topic, _DECISIONS]
        for begin in (max(first, end - _TAIL_OFFSETS), first):
            found = list(self._read(_DECISIONS, begin, end))
            if found:
                return Decision.decode(found[-1])
        return None

    def _settle(self) -> Recovery:
        last = self._last_decision()
        committed = self._finish(last) if last else []
        return Recovery(last.batch if last else None, committed, self._fence_all())

    def _finish(self, decision: Decision) -> list[str]:
        """Commit the transactions of a decided batch; return those that were not committed yet."""
        proven = self._proven(decision)
        left = [each for each in decision.slots if each not in proven]
        self._end_slots(decision, left)
        return [each.transactional_id for each in left]

    def _end_slots(self, decision: Decision, slots: Sequence[Slot]) -> None:
        lost = [
            each
            for each in slots
            if not self._calls.end(each.transactional_id, each.producer, committed=True)
        ]
        if not lost:
            return
        # Open transactions hide later proofs.
        self._fence_open(())
        self._wait_for_markers()
        proven = self._proven(decision)
        lost = [each for each in lost if each not in proven]
        if lost:
            raise LostTransactionsError(lost_text(self._prefix, decision, lost))

    def _proven(self, decision: Decision) -> set[Slot]:
        """The slots of a decision whose transactions are committed, as far as readers see."""
        end = self._end(_PROOFS, committed_only=True)
        found = {
            (proof["slot"], ProducerEpoch(*proof["producer"]))
            for proof in map(json.loads, self._read(_PROOFS, decision.proofs_from, end))
            if QueryBatch(proof["query"], proof["batch"]) == decision.batch
        }
        return {each for each in decision.slots if (each.slot, each.producer) in found}

    def _wait_for_markers(self) -> None:
        for _ in range(_FENCE_ROUNDS_MAX):
            stable = self._end(_PROOFS, committed_only=True)
            if stable == self._end(_PROOFS, committed_only=False):
                return
            time.sleep(_ROUND_SECONDS)

    # fencing

    def _fence_all(self) -> list[str]:
        """Fence each id of a task: also one without a transaction, whose task may begin one.

        Return those whose transactions were aborted.
        """
        found = self._calls.ids(self._pattern)
        for each in found:
            self._calls.init(each)
        self._fence_open(())
        return [each for each, state in found.items() if state == ONGOING]

    def _fence_open(self, kept: Collection[str]) -> None:
        """Abort each open transaction of a task except some, until there is none."""
        found: set[str] = set()
        for _ in range(_FENCE_ROUNDS_MAX):
            found = set(self._calls.ids(self._pattern, states=[ONGOING])) - set(kept)
            if not found:
                return
            for each in sorted(found):
                self._calls.init(each)
        raise NotDecidedError(f"transactions are begun again and again: {', '.join(sorted(found))}")

    @property
    def _pattern(self) -> str:
        return rf"{re.escape(self._prefix)}\.[0-9]+\.[0-9]+"

    # the topic

    def _has_topic(self) -> bool:
        return self._topic in self._cluster.topics([self._topic])

    def _require_topic(self) -> None:
        if not self._has_topic():
            raise OptionError(
                f"no query has used the prefix {self._prefix}: topic {self._topic} does not exist"
            )

    def _create_topic(self) -> None:
        if self._has_topic():
            return
        self._cluster.create_topic(self._topic, partitions=2, configs=_TOPIC_CONFIGS)

    def _end(self, partition: int, *, committed_only: bool) -> int:
        each = self._topic, partition

        def attempt() -> int:
            found = self._cluster.list_offsets({each: LATEST}, committed_only=committed_only)
            return found[each]

        # The topic may just have been created.
        return self._calls.retrying(attempt)

    def _read(self, partition: int, start: int, end: int) -> Iterator[bytes]:
        """The committed values between two offsets, in order."""
        if start >= end:
            return
        wanted = [Range(self._topic, partition, start, end)]
        for each in RangeReader(self._cluster, wanted, self._read_options()).read():
            values: list[Any] = each.column("value").to_pylist()
            yield from values

    def _read_options(self) -> SourceOptions:
        client = self._cluster.options
        servers = ",".join(f"[{host}]:{port}" for host, port in client.bootstrap_servers)
        options: Mapping[str, str] = {
            "kafka.bootstrap.servers": servers,
            "subscribe": self._topic,
            "columns": "value",
            "failOnDataLoss": "false",
        }
        read = source_options(options, streaming=False)
        return replace(read, client=replace(client, isolation=Isolation.READ_COMMITTED))


def write_here(
    options: SinkOptions, ticket: Ticket, batch: QueryBatch, send: Callable[[Producer], None]
) -> Slot | None:
    """Write a batch in one transaction of this process, which stays open; None without records."""
    cluster = shared_cluster(patient(options.client))
    calls = TransactionCalls(cluster, timeout_ms=options.transaction_timeout_ms)
    writer = SlotWriter(calls, ticket, batch, slot=0, attempt=0)
    try:
        send(writer.producer)
        return writer.finish()
    finally:
        cluster.drop_half_used()


def _now_ms() -> int:
    return int(time.time() * 1000)
