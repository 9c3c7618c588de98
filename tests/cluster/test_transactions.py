"""Transactions of our own coordinators on three nodes, whose coordinators are killed."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from sparkraft.base.errors import KafkaError
from sparkraft.base.java_hash import partition_of
from sparkraft.client.cluster import Cluster as ClusterClient
from sparkraft.client.errors import AbortableTransactionError, FatalTransactionError
from sparkraft.client.producer import ProducerSettings
from sparkraft.client.transactional_producer import TransactionalProducer
from tests.cluster.conftest import STEADY
from tests.cluster.test_transactions_with_kafka import until_committed
from tests.support.clusters import Cluster, Member
from tests.support.groups import init_transactions
from tests.support.ports import wait_until
from tests.support.replicas import create_assigned, until_in_sync
from tests.support.replicas import partition_of as describe_partition

pytestmark = pytest.mark.real_clients

IDS = (1, 2, 3)
STATE_PARTITIONS = 2
SETTINGS = {
    **STEADY,
    "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
}
TOPICS = ("a", "b")


class Writer:
    """Writes the same value to both topics in each transaction; aborts every fourth one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.committed: list[str] = []
        self.ended = 0
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._write()
        except BaseException as error:
            self._failure = error

    def _write(self) -> None:
        raise NotImplementedError

    def is_over(self) -> bool:
        return self._stop.is_set()

    def values(self) -> Iterator[tuple[str, bool]]:
        """(value, whether its transaction is to be committed)."""
        number = 0
        while not self.is_over():
            number += 1
            yield f"{self.name}-{number}", number % 4 != 0


class LibrdkafkaWriter(Writer):
    """Adds partitions itself: the epoch stays from transaction to transaction.

    librdkafka ends a transaction whose partitions may not have been added, and the coordinator has
    nothing to abort then: INVALID_TXN_STATE, also on Apache Kafka, and fatal. So what is to be
    aborted is delivered first.
    """

    def __init__(self, bootstrap: str, name: str) -> None:
        super().__init__(name)
        self._bootstrap = bootstrap

    def _write(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "transactional.id": self.name})
        init_transactions(producer)
        for value, commit in self.values():
            producer.begin_transaction()
            for topic in TOPICS:
                producer.produce(topic, value, partition=0)
            if not commit:
                producer.flush(30)
            if self._end(producer, commit=commit):
                self.committed.append(value)
            self.ended += 1

    def _end(self, producer: Producer, *, commit: bool) -> bool:
        """Whether it was committed: a client must abort some transactions that met a failure."""
        while True:
            try:
                if commit:
                    producer.commit_transaction(30)
                else:
                    producer.abort_transaction(30)
            except KafkaException as error:
                if error.args[0].txn_requires_abort():
                    commit = False
                elif not error.args[0].retriable():
                    raise
            else:
                return commit


class OwnWriter(Writer):
    """Leaves adding partitions to their leaders: every transaction has an epoch of its own."""

    def __init__(self, bootstrap: str, name: str) -> None:
        super().__init__(name)
        self._bootstrap = bootstrap

    def _write(self) -> None:
        asyncio.run(self._write_all())

    async def _write_all(self) -> None:
        settings = ProducerSettings(transactional_id=self.name)
        async with ClusterClient(self._bootstrap) as client:
            producer = TransactionalProducer(client, settings)
            await producer.init_transactions()
            for value, commit in self.values():
                if await self._transact(producer, value, commit=commit):
                    self.committed.append(value)
                self.ended += 1
            await producer.close()

    async def _transact(self, producer: TransactionalProducer, value: str, *, commit: bool) -> bool:
        producer.begin_transaction()
        try:
            for topic in TOPICS:
                await producer.send(topic, value.encode(), partition=0)
            if commit:
                await self._retried(producer.commit_transaction)
                return True
        except AbortableTransactionError:
            pass
        await self._retried(producer.abort_transaction)
        return False

    async def _retried(self, end: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                return await end()
            except (AbortableTransactionError, FatalTransactionError):
                raise
            except KafkaError:
                await asyncio.sleep(0.1)


@contextmanager
def writing(*writers: Writer) -> Iterator[None]:
    for writer in writers:
        writer.start()
    try:
        yield
    finally:
        for writer in writers:
            writer.stop()


def until_written(writers: tuple[Writer, ...], more: int) -> None:
    """Return once each has ended that many transactions more."""
    wanted = [writer.ended + more for writer in writers]

    def all_have() -> bool:
        for writer in writers:
            writer.check()
        return all(one.ended >= count for one, count in zip(writers, wanted, strict=True))

    wait_until(all_have, f"{more} more transactions", 90)


def coordinator_of(cluster: Cluster, transactional_id: str) -> int:
    index = partition_of(transactional_id, STATE_PARTITIONS)
    return describe_partition(cluster, "__transaction_state", index).leader


def test_no_transaction_is_torn_when_coordinators_are_killed(tmp_path: Path) -> None:
    with Cluster(tmp_path, [Member(n) for n in IDS], overrides=SETTINGS) as cluster:
        for number, topic in enumerate(TOPICS):
            create_assigned(cluster, topic, [[IDS[number], IDS[number + 1], IDS[number - 1]]])
            until_in_sync(cluster, topic, 1, 3)
        writers = (
            LibrdkafkaWriter(cluster.bootstrap, "rd"),
            OwnWriter(cluster.bootstrap, "own"),
        )
        with writing(*writers):
            until_written(writers, 8)
            for writer in writers:
                killed = coordinator_of(cluster, writer.name)
                cluster.kill(killed)
                until_written(writers, 8)
                cluster.start([killed])
                for topic in TOPICS:
                    until_in_sync(cluster, topic, 1, 3)
                until_in_sync(cluster, "__transaction_state", STATE_PARTITIONS, 3)
                until_written(writers, 4)
        expected = {value for writer in writers for value in writer.committed}
        found = [until_committed(cluster, topic, len(expected)) for topic in TOPICS]
        for values in found:
            assert len(values) == len(expected), "once each"
            assert set(values) == expected
            for writer in writers:
                own = [one for one in values if one.startswith(f"{writer.name}-")]
                assert own == writer.committed
