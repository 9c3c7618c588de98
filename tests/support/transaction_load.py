"""Transactional clients at work on a cluster, whose records are all checked at the end.

    writers → orders → copiers of a classic group  → copied-classic
                     → copiers of a consumer group → copied-consumer

Writers and copiers are librdkafka's (`transaction_clients`); the simulator's own clients of
coordinators work beside them (`shared_coordinators`). In the end one more producer leaves a
transaction open for good. Then every last stable offset must become a high watermark, and no
transaction may be open. Everything that was read is checked (`transaction_history`).
"""

import random
from contextlib import ExitStack
from itertools import chain
from typing import Any, Self

from sparkraft.base.errors import KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.transaction_admin import TransactionAdmin
from sparkraft.client.values import LATEST
from tests.support.clusters import Cluster
from tests.support.ports import retire_ports, wait_until
from tests.support.record_clients import TailReader, read_everything
from tests.support.shared_coordinators import SharedCoordinatorClients
from tests.support.transaction_clients import Copier, TransactionalWriter, leave_open
from tests.support.transaction_history import (
    FINAL,
    Observed,
    Transaction,
    anomalies,
    outcomes,
)

SOURCE = "orders"
PARTITIONS = 6
PROTOCOLS = ("classic", "consumer")
WRITERS = ("w1", "w2")
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"

CAUGHT_UP_SECONDS = 90
"""For copiers: rebalances, and transactions that wait for the timeout of others."""

STABLE_SECONDS = 60
"""For the last stable offsets: a timeout, the search for it, and markers."""

ENDED = ("Empty", "CompleteCommit", "CompleteAbort")
"""States of transactional ids without an open transaction."""

SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    # An isolated coordinator answers after this time: sooner than clients give up on a response,
    # after which librdkafka would not look for another coordinator.
    "request.timeout.ms": "4000",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
}
"""Of the nodes."""


def target_of(protocol: str) -> str:
    """The topic that the group of a protocol copies to."""
    return f"copied-{protocol}"


TOPICS = (SOURCE, *(target_of(protocol) for protocol in PROTOCOLS))


class TransactionLoad:
    """Clients that work while the `with` block lasts; the cluster must be whole when it ends.

    Attributes:
        coordinated: the simulator's clients.
        observed: everything, after `verdict`.
    """

    def __init__(self, cluster: Cluster, dice: random.Random) -> None:
        """Make the clients of a running cluster that has `TOPICS`."""
        self._cluster = cluster
        bootstrap = cluster.bootstrap
        self.writers = [
            TransactionalWriter(name, bootstrap, SOURCE, partitions=PARTITIONS, dice=dice)
            for name in WRITERS
        ]
        self.copiers = [
            Copier(
                f"{protocol}-{n}",
                bootstrap,
                SOURCE,
                target_of(protocol),
                group=f"copiers-{protocol}",
                protocol=protocol,
            )
            for protocol in PROTOCOLS
            for n in (1, 2)
        ]
        self.readers = {
            isolation: TailReader(
                isolation, bootstrap, SOURCE, partitions=PARTITIONS, isolation=isolation
            )
            for isolation in (COMMITTED, UNCOMMITTED)
        } | {
            target_of(protocol): TailReader(
                f"tail of {protocol}", bootstrap, target_of(protocol), partitions=PARTITIONS
            )
            for protocol in PROTOCOLS
        }
        ports = {broker: cluster.ports[broker][0] for broker in cluster.brokers}
        self.coordinated = SharedCoordinatorClients(ports, dice)
        self.left_open: list[Transaction] = []
        self.observed: Observed | None = None
        self._writing, self._copying, self._reading = ExitStack(), ExitStack(), ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for part in (self._reading, self._copying, self._writing):
                stack.enter_context(part)
            for reader in self.readers.values():
                self._reading.enter_context(reader)
            for copier in self.copiers:
                self._copying.enter_context(copier)
            for client in (self.coordinated, *self.writers):
                self._writing.enter_context(client)
            self._all = stack.pop_all()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        with ExitStack() as stack:
            stack.callback(retire_ports, [*chain.from_iterable(self._cluster.ports.values())])
            stack.enter_context(self._all)
            if kind is None:
                self._writing.close()
                self.left_open = leave_open(
                    "left-open", self._cluster.bootstrap, SOURCE, PARTITIONS
                )
                self._until_stable()
                self._catch_up()
            else:
                self._writing.__exit__(kind, error, trace)

    # ---- progress

    def progress(self) -> dict[str, int]:
        """What each client has done so far."""
        return (
            {writer.name: writer.acknowledged for writer in self.writers}
            | {name: reader.count for name, reader in self.readers.items()}
            | {"shared": self.coordinated.counts["transactions committed"]}
        )

    def continues(self, seconds: float = 90) -> None:
        """Return once each writer, reader and group of copiers has continued."""
        before = self.progress()

        def all_have() -> bool:
            now = self.progress()
            return all(now[name] > before[name] for name in before)

        try:
            wait_until(all_have, "the clients continue", seconds)
        except AssertionError as error:
            found = f"from {before} to {self.progress()}\n{self.endings()}"
            raise AssertionError(f"{error}: {found}\n{self._cluster.tails()}") from None

    def endings(self) -> str:
        """Why the last sessions of each client ended."""
        workers = [*self.writers, *self.copiers]
        return "\n".join(f"{worker.name}: {worker.endings[-5:]}" for worker in workers)

    def _until_stable(self) -> None:
        """Return once the last stable offsets of the source are its high watermarks (T9)."""
        ends: dict[str, object] = {}

        async def ask(admin: Admin) -> bool:
            wanted = {(SOURCE, index): LATEST for index in range(PARTITIONS)}
            for isolation, level in ((UNCOMMITTED, 0), (COMMITTED, 1)):
                found = await admin.list_offsets(wanted, isolation_level=level)
                ends[isolation] = {
                    place: one if isinstance(one, KafkaError) else one.offset
                    for place, one in found.items()
                }
            return ends[COMMITTED] == ends[UNCOMMITTED]

        try:
            wait_until(
                lambda: self._cluster.ask(ask),
                "T9: every last stable offset is a high watermark",
                STABLE_SECONDS,
            )
        except AssertionError as error:
            raise AssertionError(f"{error}: {ends}") from None

    def _catch_up(self) -> None:
        """Return once each group has copied all that is committed; the writers have stopped."""
        source = self._read(SOURCE, COMMITTED)
        for protocol in PROTOCOLS:
            reader = self.readers[target_of(protocol)]
            try:
                wait_until(
                    lambda reader=reader: reader.count >= source.count,  # type: ignore[misc]
                    f"the {protocol} group copies {source.count} records",
                    CAUGHT_UP_SECONDS,
                )
            except AssertionError as error:
                found = f"{reader.count} are visible, {self._cluster.ask(_open_transactions)}"
                raise AssertionError(f"{error}: {found}\n{self.endings()}") from None

    def _read(self, topic: str, isolation: str) -> TailReader:
        return read_everything(self._cluster.bootstrap, topic, PARTITIONS, isolation=isolation)

    # ---- the end

    def until_ended(self) -> None:
        """Return once no coordinator knows an open transaction (T8, T9)."""
        still_open: dict[str, str] = {}

        def none_is_open() -> bool:
            still_open.clear()
            still_open.update(self._cluster.ask(_open_transactions))
            return not still_open

        try:
            wait_until(none_is_open, "every transaction has ended", CAUGHT_UP_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}: {still_open}") from None

    def verdict(self) -> str:
        """Read everything back, check what all clients saw, and return an account of it."""
        coordinated = self.coordinated.verdict()
        self.until_ended()
        self.observed = Observed(
            [one for writer in self.writers for one in writer.transactions] + self.left_open,
            self._polls(SOURCE, COMMITTED, self.readers[COMMITTED]),
            self._polls(SOURCE, UNCOMMITTED, self.readers[UNCOMMITTED]),
            {
                topic: self._polls(topic, COMMITTED, self.readers[topic])
                for topic in map(target_of, PROTOCOLS)
            },
        )
        found = anomalies(self.observed)
        assert not found, "\n".join([self.endings(), *found[:10]])
        failures = [one for worker in (*self.writers, *self.copiers) for one in worker.failures]
        assert not failures, "\n".join(failures)
        return f"{self._account()}; {coordinated}"

    def _polls(self, topic: str, isolation: str, live: TailReader) -> dict[str, Any]:
        final = self._read(topic, isolation)
        errors = live.errors + final.errors
        assert not errors, errors
        return {FINAL: final.polls, live.name: live.polls}

    def assert_it_counts(self) -> None:
        """Fail if the run proves nothing."""
        found = self.outcomes
        assert found["committed"] and found["aborted"], f"void: {found}"  # noqa: PT018
        for writer in self.writers:
            assert writer.sessions > 1, f"void: {writer.name} had one producer only"
        for protocol in PROTOCOLS:
            copied = sum(one.copied for one in self.copiers if one.name.startswith(protocol))
            assert copied, f"void: the {protocol} group copied nothing"

    @property
    def outcomes(self) -> dict[str, int]:
        """Outcome → number of transactions of the writers."""
        assert self.observed is not None
        return outcomes(self.observed.transactions)

    def _account(self) -> str:
        copied = {copier.name: copier.copied for copier in self.copiers}
        producers = sum(writer.sessions for writer in self.writers)
        return (
            f"transactions {self.outcomes}, with {producers} producers; "
            f"copied {copied}, {sum(one.aborted for one in self.copiers)} aborts and "
            f"{sum(one.rebalances for one in self.copiers)} rebalances of copiers, "
            f"{sum(one.hangs for one in (*self.writers, *self.copiers))} hanging clients replaced"
        )


async def _open_transactions(admin: Admin) -> dict[str, str]:
    """Transactional id → state, if a transaction is open."""
    found = await TransactionAdmin(admin.cluster).list_transactions()
    return {one.transactional_id: one.state for one in found if one.state not in ENDED}
