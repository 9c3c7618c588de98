"""Transactional clients of librdkafka at work for minutes (see `transaction_history`).

    with TransactionalWriter("w1", bootstrap, "orders", partitions=6, dice=dice) as writer:
        ...
    writer.transactions

A writer's transactions have values in some partitions. It commits most, aborts some, and leaves
some open as a process that crashes: its next producer, with the same transactional id, aborts them.
A copier moves records of a topic to another one, with its group's offsets in the transactions.
"""

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Any, Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from tests.support.groups import committed, init_transactions
from tests.support.record_clients import close
from tests.support.transaction_history import Outcome, Transaction

TRANSACTION_TIMEOUT_MS = 20_000
"""Shorter than some faults: coordinators abort transactions, and fence their producers."""

SOCKET_TIMEOUT_MS = 7_000
"""For a response of a frozen broker: its successor is found well within a transaction."""

ATTEMPT_SECONDS = 10.0
"""For one call that waits for a coordinator; it is repeated as long as it may succeed."""

HANG_SECONDS = 25.0
"""A call of librdkafka may wait for an internal event that does not come, whatever its time limit
is. Its requests have time limits of their own, so no broker causes or ends that. Such a client is
replaced by another one with the same transactional id, as a supervisor replaces a process."""

LEFT_TIMEOUT_MS = 6_000
"""Of a transaction that is left open for good: the values must arrive before it."""

LEAVE_ATTEMPTS = 5
WARNINGS = 4
"""librdkafka's level of its line about an offset that it resets after an error."""

JOIN_SECONDS = 180
VALUES_MAX = 6
COMMITS, ABORTS, ABANDONS = "commit", "abort", "abandon"
ENDS = {COMMITS: 75, ABORTS: 20, ABANDONS: 5}
"""What a writer does at the end of a transaction → its share in percent."""

RETRY_SECONDS = 0.3
"""Between two sessions, if the first ended with an error."""


class HangingCallError(Exception):
    """A call of librdkafka does not return."""


class _Worker:
    """A thread that repeats `_session` until its `with` block ends.

    Attributes:
        endings: why sessions ended before that.
        hangs: calls that did not return although their time was over.
        failures: errors that no client should ever get.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.endings: list[str] = []
        self.hangs = 0
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    self._session()
                except (KafkaException, HangingCallError) as error:
                    self.endings.append(str(error))
                    self._stop.wait(RETRY_SECONDS)
        except BaseException as error:
            self.failures.append(repr(error))
            raise

    def _session(self) -> None:
        """Work until stopped, or until this producer or consumer cannot continue."""
        raise NotImplementedError

    def _producer(self, bootstrap: str) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": self.name,
                "transactional.id": self.name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "message.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "request.timeout.ms": SOCKET_TIMEOUT_MS,
                "socket.timeout.ms": SOCKET_TIMEOUT_MS,
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        init_transactions(producer)
        return producer

    def _settle(self, call: Callable[[], object]) -> KafkaError | None:
        """Repeat a call as long as its errors are retriable; return another error.

        Raises:
            HangingCallError: the call did not return.
        """
        while True:
            try:
                self._returned(call)
            except KafkaException as error:
                found: KafkaError = error.args[0]
                if not found.retriable() or found.txn_requires_abort():
                    return found
            else:
                return None

    def _returned(self, call: Callable[[], object]) -> None:
        """Call in another thread, which is left behind if the call does not return."""
        raised: list[KafkaException] = []

        def run() -> None:
            try:
                call()
            except KafkaException as error:
                raised.append(error)

        calling = threading.Thread(target=run, name=f"call of {self.name}", daemon=True)
        calling.start()
        calling.join(HANG_SECONDS)
        if calling.is_alive():
            self.hangs += 1
            raise HangingCallError(f"no return after {HANG_SECONDS} s: {call}")
        if raised:
            raise raised[0]

    def __enter__(self) -> Self:
        """Start."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop once the present transaction has ended."""
        self._stop.set()
        self._thread.join(JOIN_SECONDS)
        assert not self._thread.is_alive(), f"{self.name} did not end"


class TransactionalWriter(_Worker):
    """See the module docstring.

    Attributes:
        transactions: all of them, in order.
        acknowledged: values of acknowledged commits.
        sessions: producers that it has had.
    """

    def __init__(
        self,
        name: str,
        bootstrap: str,
        topic: str,
        *,
        partitions: int,
        dice: random.Random,
        rate: float = 10,
    ) -> None:
        """Write `rate` transactions a second at most from the start of the `with` block."""
        super().__init__(name)
        self.transactions: list[Transaction] = []
        self.acknowledged = 0
        self.sessions = 0
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._dice = random.Random(f"{dice.random()} {name}")
        self._pause = 1 / rate
        self._number = 0

    def _session(self) -> None:
        producer = self._producer(self._bootstrap)
        self.sessions += 1
        while not self._stop.wait(self._pause):
            if not self._transact(producer):
                return
        # Nothing is open: its last transaction has ended.

    def _transact(self, producer: Producer) -> bool:
        """Write and end one transaction; return whether the producer can continue."""
        producer.begin_transaction()
        transaction = Transaction(self.name, outcome=Outcome.ABORTED)
        self.transactions.append(transaction)
        (end,) = self._dice.choices(list(ENDS), list(ENDS.values()))
        is_written = self._write(producer, transaction)
        if end == ABANDONS:
            producer.flush(1)
            self.endings.append(ABANDONS)
            return False
        return self._end(producer, transaction, commit=is_written and end == COMMITS)

    def _write(self, producer: Producer, transaction: Transaction) -> bool:
        """Send the values; return whether the transaction can be committed."""

        def delivered(error: Any, message: Any) -> None:
            offset = message.offset()
            if error is None and offset is not None and offset >= 0:
                transaction.offsets[message.value().decode()] = offset

        for _ in range(self._dice.randint(1, VALUES_MAX)):
            partition = self._dice.randrange(self._partitions)
            value = f"{self.name}.{self._number}"
            self._number += 1
            transaction.values.append((partition, value))
            try:
                producer.produce(self._topic, value, partition=partition, on_delivery=delivered)
            except KafkaException:
                return False
        producer.poll(0)
        return True

    def _end(self, producer: Producer, transaction: Transaction, *, commit: bool) -> bool:
        if commit:
            # From now on it may be committed, whatever the response is.
            transaction.outcome = Outcome.UNKNOWN
            error = self._settle(lambda: producer.commit_transaction(ATTEMPT_SECONDS))
            if error is None:
                transaction.outcome = Outcome.COMMITTED
                self.acknowledged += len(transaction.values)
                return True
            self.endings.append(f"commit: {error}")
            if not error.txn_requires_abort():
                return False
        error = self._settle(lambda: producer.abort_transaction(ATTEMPT_SECONDS))
        if error is not None:
            self.endings.append(f"abort: {error}")
            return False
        transaction.outcome = Outcome.ABORTED
        return True


def leave_open(name: str, bootstrap: str, topic: str, partitions: int) -> list[Transaction]:
    """Write a value to each partition in a transaction that its producer never ends.

    Only its timeout ends it, since no other producer takes this transactional id.

    Returns:
        The transaction; attempts whose values did not arrive in time are before it.
    """
    attempts: list[Transaction] = []
    for number in range(LEAVE_ATTEMPTS):
        transaction = Transaction(name, outcome=Outcome.ABORTED)
        transaction.values += [(place, f"{name}.{number}.{place}") for place in range(partitions)]
        attempts.append(transaction)
        if _arrive(name, bootstrap, topic, transaction):
            return attempts
    raise AssertionError(f"the values of {name} did not arrive")


def _arrive(name: str, bootstrap: str, topic: str, transaction: Transaction) -> bool:
    arrived: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": LEFT_TIMEOUT_MS,
            "message.timeout.ms": LEFT_TIMEOUT_MS,
            "log_level": 0,
        }
    )
    init_transactions(producer)
    producer.begin_transaction()
    for place, value in transaction.values:
        producer.produce(
            topic, value, partition=place, on_delivery=lambda error, _: arrived.append(error)
        )
    producer.flush(2 * LEFT_TIMEOUT_MS / 1000)
    return arrived == [None] * len(transaction.values)


class _OffsetResets(logging.Handler):
    """Notes where librdkafka moves the position of a consumer on its own, and why."""

    def __init__(self, noted: list[str]) -> None:
        super().__init__()
        self._noted = noted

    def emit(self, record: logging.LogRecord) -> None:
        said = record.getMessage()
        if "offset reset" in said:
            self._noted.append(said)


class Copier(_Worker):
    """A member of a group that copies records exactly once (KIP-447), partition to partition.

    Attributes:
        copied: records of acknowledged commits.
        aborted: transactions that had to be aborted.
        rebalances: how often it was assigned partitions or lost them.
    """

    def __init__(
        self, name: str, bootstrap: str, source: str, target: str, *, group: str, protocol: str
    ) -> None:
        """Join with the `with` block; `protocol` is classic or consumer (KIP-848)."""
        super().__init__(name)
        self.copied = 0
        self.aborted = 0
        self.rebalances = 0
        self._bootstrap = bootstrap
        self._source = source
        self._target = target
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "group.id": group,
            "group.protocol": protocol,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "socket.timeout.ms": SOCKET_TIMEOUT_MS,
            "log_level": WARNINGS,
        }
        self._logger = logging.Logger(name)
        self._logger.addHandler(_OffsetResets(self.endings))
        if protocol == "classic":
            self._settings |= {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
        self._moved = False
        """Whether partitions were assigned or revoked since the last batch."""
        self._committed_ends: dict[int, int] = {}
        """Partition → the offset that its last acknowledged commit has."""

    def _session(self) -> None:
        producer = self._producer(self._bootstrap)
        consumer = Consumer(self._settings, logger=self._logger)
        try:
            consumer.subscribe(
                [self._source],
                on_assign=self._rebalanced,
                on_revoke=self._rebalanced,
                on_lost=self._rebalanced,
            )
            while not self._stop.is_set():
                if not self._copy(consumer, producer):
                    return
        finally:
            close(consumer, self.name)

    def _rebalanced(self, *_: object) -> None:
        self._moved = True
        self.rebalances += 1

    def _copy(self, consumer: Consumer, producer: Producer) -> bool:
        """Copy one batch; return whether these clients can continue."""
        self._moved = False
        messages = consumer.consume(200, timeout=0.3)
        metadata = consumer.consumer_group_metadata()
        # Partitions may have a new owner, who starts at the offsets that are committed. A member
        # without an id has been fenced: a coordinator could not distinguish its commits from those
        # of its successor.
        if self._moved or not consumer.memberid():
            return not messages or self._rewind(consumer)
        records = [message for message in messages if message.error() is None]
        if not records:
            return True
        ends: dict[int, int] = {}
        producer.begin_transaction()
        try:
            for message in records:
                producer.produce(self._target, message.value(), partition=message.partition())
                ends[message.partition()] = message.offset() + 1
        except KafkaException:
            error: KafkaError | None = None
        else:
            error = self._commit(producer, ends, metadata)
            if error is None:
                self.copied += len(records)
                self._committed_ends |= ends
                return True
            self.endings.append(str(error))
            if not error.txn_requires_abort():
                return False
        self.aborted += 1
        error = self._settle(lambda: producer.abort_transaction(ATTEMPT_SECONDS))
        return error is None and self._rewind(consumer)

    def _rewind(self, consumer: Consumer) -> bool:
        """Read again from the committed offsets; return False if that does not work now.

        Notes an offset below that of an acknowledged commit: the records between are copied twice.
        """
        places = consumer.assignment()
        if not places:
            return True
        topic = places[0].topic
        try:
            found = committed(consumer, places)
            for partition, offset in sorted(found.items()):
                end = self._committed_ends.get(partition, 0)
                if offset < end:
                    self.endings.append(f"partition {partition} is at {offset}, not at {end}")
                start = offset if offset >= 0 else OFFSET_BEGINNING
                _seek(consumer, TopicPartition(topic, partition, start))
        except KafkaException:
            return False
        return True

    def _commit(self, producer: Producer, ends: dict[int, int], metadata: Any) -> KafkaError | None:
        offsets = [TopicPartition(self._source, place, end) for place, end in ends.items()]
        error = self._settle(
            lambda: producer.send_offsets_to_transaction(offsets, metadata, ATTEMPT_SECONDS)
        )
        return error or self._settle(lambda: producer.commit_transaction(ATTEMPT_SECONDS))


SEEK_SECONDS = 5
"""A partition that was just assigned cannot be sought for a moment."""


def _seek(consumer: Consumer, place: TopicPartition) -> None:
    deadline = time.monotonic() + SEEK_SECONDS
    while True:
        try:
            return consumer.seek(place)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
