"""Other people's producers and consumers at work for minutes, recorded as a `History`.

Values are `name.number`, numbers rising by one, so that each client's order can be told from them.
"""

import json
import logging
import re
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from sparkraft.simulation.workload.history import UNKNOWN_OFFSET, History, Poll, Result, Send
from tests.support.jvm import java_command
from tests.support.ports import wait_until

DELIVERY_SECONDS = 180
"""Longer than any fault lasts: nothing need fail that can be retried."""

IN_FLIGHT_MAX = 5_000

GROUP = "order-readers"
"""Of all `GroupReader`s."""


CLOSE_SECONDS = 150
"""A consumer's close may take so long: more than twice what librdkafka waits for any answer."""

STANDSTILL_SECONDS = 10
"""The main thread of a client of librdkafka has timers, and runs at least once a second."""


def number_of(value: str) -> int:
    """Where a value stands among those of its client."""
    return int(value.rpartition(".")[2])


_REFUSED_BEHIND = re.compile(
    r"ProduceRequest for (?P<partition>\S+ \[\d+\]) .* skipped sequence numbers "
    r".*? caused by previous failed request \((?P<error>\w+), "
)
"""What librdkafka says of a batch that was refused because the one before it was."""

_NOT_LED = {"NOT_LEADER_FOR_PARTITION", "NOT_LEADER_OR_FOLLOWER"}

_GAP = "OUT_OF_ORDER_SEQUENCE_NUMBER"


class NewEpochs(logging.Handler):
    """Why a producer of librdkafka gave itself a new epoch, from what it logs (debug=eos).

    Of two batches in flight the first is refused by a broker that doesn't lead yet, the second by
    the same one, that leads now and finds a gap: librdkafka begins a new epoch and sends all it has
    no answer to in that (its `rd_kafka_handle_idempotent_Produce_error`, `r > 0`). Of another
    partition that may have been written: NOT_LEADER_OR_FOLLOWER, when a leader is deposed, tells it
    "not persisted". It is there twice then, and no broker can know.

    Attributes:
        begun: how many new epochs it began.
        twice: how many records are in the log a second time because of them.
        told: what it said of them.
    """

    def __init__(self) -> None:
        """Nothing is known yet."""
        super().__init__()
        self.begun = 0
        self.twice = 0
        self.told: list[str] = []
        self._causes: list[bool] = []
        self._behind: set[str] = set()
        """Partitions in which a batch was refused behind one that no leader took."""

    def emit(self, record: logging.LogRecord) -> None:
        """Take in a line."""
        line = record.getMessage()
        if "ERRSEQ" in line or "fatal" in line.lower():
            self.told.append(line)
            self._causes.append(self._is_cause(_REFUSED_BEHIND.search(line)))
        elif "epoch bump" in line:
            self.told.append(line)
            self.begun += "Beginning partition drain" in line

    def _is_cause(self, found: re.Match[str] | None) -> bool:
        """Whether a refusal is of the kind above, or behind one that is."""
        if found is None:
            return False
        if found["error"] in _NOT_LED:
            self._behind.add(found["partition"])
        return found["error"] in _NOT_LED or (
            found["error"] == _GAP and found["partition"] in self._behind
        )

    @property
    def are_its_own(self) -> bool:
        """Whether it said of each why it was begun, and always that."""
        behind = all("skipped sequence numbers" in line for line in self.told)
        return bool(self.begun) and bool(self._causes) and behind and all(self._causes)


class RecordingProducer:
    """A producer whose sends are known: `results` has what came of each value.

    Attributes:
        results: partition → value → what came of it; those without a word are unknown.
        new_epochs: those it gave itself; of librdkafka's alone.
    """

    def __init__(self, name: str, topic: str) -> None:
        """Nothing is sent yet."""
        self.name = name
        self.topic = topic
        self.results: dict[int, dict[str, Send]] = defaultdict(dict)
        self.acknowledged = 0
        self.failures: list[str] = []
        self.new_epochs = NewEpochs()

    def note(self, value: str, partition: int, offset: int) -> None:
        """It was acknowledged."""
        self.results[partition][value] = Send(value, Result.OK, offset)
        self.acknowledged += 1

    def note_unknown(self, value: str, partition: int) -> None:
        """Nobody said what came of it."""
        self.results[partition].setdefault(value, Send(value, Result.UNKNOWN))

    def tell(self, history: History) -> None:
        """Its sends, in their order."""
        for partition, results in self.results.items():
            for value in sorted(results, key=number_of):
                history.sent(self.name, partition, results[value])


class LibrdkafkaProducer(RecordingProducer):
    """Idempotent, acks=all, so many records a second to all partitions in turn."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        topic: str,
        *,
        partitions: int,
        rate: int,
        requests_in_flight: int = 5,
        security: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Connect at the start of its `with` block; `security` is configuration of librdkafka."""
        super().__init__(name, topic)
        self._partitions = partitions
        self._pause = 20 / rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        logger = logging.Logger(name)
        logger.addHandler(self.new_epochs)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": name,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "max.in.flight.requests.per.connection": requests_in_flight,
                "request.timeout.ms": 5_000,
                "delivery.timeout.ms": DELIVERY_SECONDS * 1000,
                "debug": "eos",
                "logger": logger,
                **security,
            }
        )

    def _run(self) -> None:
        try:
            self._send_until_stopped()
        except KafkaException as error:
            # Fatal: an idempotent producer found a gap behind what was acknowledged to it.
            self.failures.append(str(error))

    def _send_until_stopped(self) -> None:
        number = 0
        while not self._stop.wait(self._pause):
            self._producer.poll(0)
            for _ in range(20 if len(self._producer) < IN_FLIGHT_MAX else 0):
                partition = number % self._partitions
                value = f"{self.name}.{number}"
                number += 1
                self.note_unknown(value, partition)
                self._producer.produce(
                    self.topic, value, partition=partition, on_delivery=self._delivered
                )

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            # A repeated send that was there already is acknowledged without its offset.
            offset = message.offset()
            known = UNKNOWN_OFFSET if offset is None or offset < 0 else offset
            self.note(message.value().decode(), message.partition(), known)
        else:
            self.failures.append(str(error))

    def __enter__(self) -> Self:
        """Start."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, and wait for what is in flight."""
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        self._producer.flush(DELIVERY_SECONDS)


class JavaProducer(RecordingProducer):
    """Apache Kafka's VerifiableProducer: idempotent, acks=all; its name is a number."""

    def __init__(
        self, name: str, bootstrap: str, topic: str, *, jars: Path, folder: Path, rate: int
    ) -> None:
        """Write its configuration; it starts with its `with` block."""
        super().__init__(name, topic)
        config = folder / f"producer-{name}.properties"
        config.write_text(
            # The tool itself says retries=0, which idempotence excludes.
            f"enable.idempotence=true\nretries={2**31 - 1}\nlinger.ms=5\nrequest.timeout.ms=5000\n"
            f"delivery.timeout.ms={DELIVERY_SECONDS * 1000}\n"
        )
        self._command = [
            *java_command(jars, "-Xmx128M"), "org.apache.kafka.tools.VerifiableProducer",
            "--bootstrap-server", bootstrap, "--topic", topic, "--throughput", str(rate),
            "--acks", "-1", "--value-prefix", name, "--command-config", str(config),
        ]  # fmt: skip
        self._errors = folder / f"producer-{name}.err"
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                told = json.loads(line)
            except ValueError:
                continue
            if told["name"] == "producer_send_success":
                self.note(told["value"], told["partition"], told["offset"])
            elif told["name"] == "producer_send_error":
                self.failures.append(f"{told['value']}: {told['message']}")

    def __enter__(self) -> Self:
        """Start."""
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """SIGTERM: it closes its producer, which waits for what is in flight."""
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(DELIVERY_SECONDS)
        finally:
            self._process.kill()
            self._process.wait(10)
        self._thread.join(60)

    def claim(self, partition: int, value: str) -> None:
        """A value of its own that was read and never acknowledged: it was in flight."""
        if value.startswith(f"{self.name}."):
            self.note_unknown(value, partition)


def close(consumer: Consumer, name: str) -> None:
    """Close it, or leave it behind with a warning where it has locked itself out."""
    failed: list[Exception] = []

    def run() -> None:
        try:
            consumer.close()
        except Exception as error:  # for the caller, who waits for it
            failed.append(error)

    closing = threading.Thread(target=run, name=f"close {name}", daemon=True)
    closing.start()
    closing.join(CLOSE_SECONDS)
    if failed:
        raise failed[0]
    if closing.is_alive():
        assert has_locked_itself_out(name), f"{name} doesn't close, and librdkafka is at work"


_locked_out: set[str] = set()


def has_locked_itself_out(name: str) -> bool:
    """Whether one more client of librdkafka stands still for ever; it is told of as `name`.

    Its issue 5476: a broker leaves the metadata while OffsetForLeaderEpoch is under way to it, and
    the client's main thread and the broker's wait for each other's locks. No broker can cause or
    end that by what it answers: who waits for an answer still runs its timers.
    """
    before = _switches_of_main_threads()
    time.sleep(STANDSTILL_SECONDS)
    after = _switches_of_main_threads()
    still = [thread for thread, switches in before.items() if after.get(thread) == switches]
    if len(still) <= len(_locked_out):
        return False
    _locked_out.add(name)
    warnings.warn(f"{name} is left behind: librdkafka has locked itself out", stacklevel=2)
    return True


def _switches_of_main_threads() -> dict[str, str]:
    """Thread → how often it has given up a core, of each client of librdkafka in this process."""
    found = {}
    for thread in Path("/proc/self/task").iterdir():
        try:
            if (thread / "comm").read_text().strip() == "rdk:main":
                lines = (thread / "status").read_text().splitlines()
                found[thread.name] = next(line for line in lines if line.startswith("voluntary"))
        except OSError:
            continue  # It has just ended.
    return found


class TailReader:
    """Reads all partitions from the beginning on, without a group, as long as its block lasts.

    Attributes:
        ends: partition → the end of what was visible when it last got there.
    """

    def __init__(
        self,
        name: str,
        bootstrap: str,
        topic: str,
        *,
        partitions: int,
        isolation: str = "read_committed",
        security: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Start with the `with` block; `security` as of `LibrdkafkaProducer`."""
        self.name = name
        self.polls: dict[int, list[Poll]] = defaultdict(list)
        self.ends: dict[int, int] = {}
        self.count = 0
        self.errors: list[str] = []
        self._places = [TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": name,
                "group.id": f"group-of-{name}",
                "enable.auto.commit": False,
                # A reset would be a jump of the client's own making.
                "auto.offset.reset": "error",
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "log_level": 0,
                **security,
            }
        )

    def _run(self) -> None:
        self._consumer.assign(self._places)
        while not self._stop.is_set():
            found: dict[int, list[tuple[int, str]]] = defaultdict(list)
            for message in self._consumer.consume(1_000, timeout=0.2):
                error = message.error()
                partition, offset = message.partition(), message.offset()
                if error is None and partition is not None and offset is not None:
                    found[partition].append((offset, (message.value() or b"").decode()))
                elif error is not None:
                    self._note(error, partition, offset)
            for place, records in found.items():
                self.polls[place].append(Poll(tuple(records)))
                self.count += len(records)

    def _note(self, error: KafkaError, partition: int | None, offset: int | None) -> None:
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            self.errors.append(str(error))
        elif error.code() == KafkaError._PARTITION_EOF:
            assert partition is not None
            assert offset is not None
            self.ends[partition] = offset

    def tell(self, history: History) -> None:
        """Its polls."""
        for partition, polls in self.polls.items():
            for poll in polls:
                history.polled(self.name, partition, poll)

    def __enter__(self) -> Self:
        """Start."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        close(self._consumer, self.name)


def read_everything(
    bootstrap: str,
    topic: str,
    partitions: int,
    *,
    seconds: float = 120,
    isolation: str = "read_committed",
    security: Mapping[str, str] = MappingProxyType({}),
) -> TailReader:
    """A reader that has read all partitions up to the high watermarks that they have now.

    With read_committed it waits until no transaction is open below them.
    """
    asks = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "asks",
            "isolation.level": "read_uncommitted",
            "log_level": 0,
            **security,
        }
    )
    ends: dict[int, int] = {}

    def ends_are_known() -> bool:
        try:
            for partition in set(range(partitions)) - ends.keys():
                place = TopicPartition(topic, partition)
                ends[partition] = asks.get_watermark_offsets(place, timeout=30)[1]
        except KafkaException:
            return False  # Its leader has just changed.
        return True

    wait_until(ends_are_known, f"the ends of {topic} are known", seconds)
    asks.close()
    with TailReader(
        "final",
        bootstrap,
        topic,
        partitions=partitions,
        isolation=isolation,
        security=security,
    ) as reader:
        try:
            wait_until(
                lambda: all(reader.ends.get(p, 0) >= end for p, end in ends.items()),
                f"{topic} is read up to {ends} with {isolation}",
                seconds,
            )
        except AssertionError as error:
            raise AssertionError(f"{error}, but {reader.ends}") from None
    return reader


class GroupReader:
    """A member of a consumer group that commits what it has read, as long as its block lasts.

    `committed` is shared by the members: partition → the highest offset whose commit was confirmed.
    A member that is given a partition must not find an older one.
    """

    def __init__(
        self,
        name: str,
        bootstrap: str,
        topic: str,
        committed: dict[int, int],
        *,
        session_ms: int = 6_000,
    ) -> None:
        """Join with the `with` block."""
        self.name = name
        self.polls: dict[int, list[Poll]] = defaultdict(list)
        self.went_back: list[str] = []
        self.errors: list[str] = []
        self.commits = 0
        self._topic = topic
        self._bootstrap = bootstrap
        self._committed = committed
        self._moved: set[int] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": name,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": session_ms,
                "log_level": 0,
            }
        )

    def _run(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=self._assigned)
        while not self._stop.is_set():
            found: dict[int, list[tuple[int, str]]] = defaultdict(list)
            for message in self._consumer.consume(1_000, timeout=0.5):
                partition, offset = message.partition(), message.offset()
                if message.error() is None and partition is not None and offset is not None:
                    found[partition].append((offset, (message.value() or b"").decode()))
            for place, records in found.items():
                self.polls[place].append(Poll(tuple(records), place in self._moved))
                self._moved.discard(place)
            if found:
                self._commit({place: records[-1][0] + 1 for place, records in found.items()})

    def _assigned(self, consumer: Any, places: list[TopicPartition]) -> None:
        known = {place.partition: self._committed.get(place.partition, -1) for place in places}
        self._moved |= set(known)
        try:
            found = consumer.committed(places, timeout=10)
        except KafkaException:
            return  # No coordinator in time: it resumes from what it is told later.
        for place in found:
            # Below 0: nothing is committed.
            if place.error is None and max(place.offset, -1) < known[place.partition]:
                told = (
                    f"{place.partition}: {known[place.partition]} was committed, {place.offset} is"
                )
                self.went_back.append(told)

    def _commit(self, ends: dict[int, int]) -> None:
        places = [TopicPartition(self._topic, place, end) for place, end in ends.items()]
        try:
            done = self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException:
            return  # Perhaps committed, perhaps not; a rebalance takes it from us as well.
        for place in done or ():
            if place.error is None:
                self.commits += 1
                before = self._committed.get(place.partition, -1)
                self._committed[place.partition] = max(before, place.offset)

    def tell(self, history: History) -> None:
        """Its polls."""
        for partition, polls in self.polls.items():
            for poll in polls:
                history.polled(self.name, partition, poll)

    def __enter__(self) -> Self:
        """Start."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave."""
        self._stop.set()
        self._thread.join(90)
        if not self._thread.is_alive():
            close(self._consumer, self.name)
        elif not has_locked_itself_out(self.name):
            self.errors.append(self._where_it_is())

    def _where_it_is(self) -> str:
        """What it waits for, and what its group does meanwhile."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        group = admin.describe_consumer_groups([GROUP], request_timeout=30)[GROUP].result()
        members = [
            (m.client_id, [str(place.partition) for place in m.assignment.topic_partitions])
            for m in group.members
        ]
        stack = "".join(traceback.format_stack(frame))
        return f"{self.name} did not end: {group.state} at {group.coordinator}, {members}\n{stack}"


class Meter:
    """How many records a second were acknowledged while nothing was broken."""

    def __init__(self, producers: list[RecordingProducer]) -> None:
        """Measure nothing yet."""
        self._producers = producers
        self._records = 0
        self._seconds = 0.0

    def total(self) -> int:
        """Acknowledged by all."""
        return sum(producer.acknowledged for producer in self._producers)

    def watch(self, records: int, what: str, seconds: float = 60) -> None:
        """Return once so many more are acknowledged; that time counts."""
        first, begun = self.total(), time.monotonic()
        wait_until(lambda: self.total() >= first + records, f"{records} records {what}", seconds)
        self._records += self.total() - first
        self._seconds += time.monotonic() - begun

    @property
    def per_second(self) -> float:
        """Over all that was watched."""
        return self._records / self._seconds if self._seconds else 0.0
