"""A Kafka Streams word count with exactly_once_v2, killed with the nodes: each count exact.

`java_applications/WordCount.java` sends on every count. A read_committed consumer must therefore
see 1, 2, 3 ... for each word: a lost, repeated or reordered update would break the sequence.
"""

import random
import shutil
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.clusters import OF_TRANSACTIONS, Cluster, Kind, Member
from tests.support.coordinators import group_coordinator
from tests.support.java_programs import JavaProgram, running
from tests.support.kafka_jars import kafka_applications_jars_or_reason
from tests.support.kafka_tools import compiled, kafka_tool_command
from tests.support.ports import wait_until
from tests.support.record_reader import RecordReader
from tests.support.replicas import until_in_sync

pytestmark = [pytest.mark.real_clients, pytest.mark.java]

SOURCES = Path(__file__).resolve().parents[1] / "interop" / "java_applications"
APPLICATION, LINES, COUNTS, PARTITIONS = "word-count", "lines", "counts", 2
WORDS = [f"word{number}" for number in range(20)]
PER_LINE = 3
SECONDS = 180


@pytest.fixture(scope="module")
def word_count(kafka_jars: Path) -> list[str]:
    """The command of the word count, without arguments."""
    libs = kafka_applications_jars_or_reason()
    if not isinstance(libs, Path):
        pytest.skip(libs.reason)
    if not shutil.which("javac"):
        pytest.skip("needs a Java compiler on the PATH")
    jar = compiled(kafka_jars, [SOURCES], name="applications", beside=libs)
    return kafka_tool_command(kafka_jars, "WordCount", beside=[libs / "*", jar])


class LineWriter:
    """Writes lines of random words, so many a second, while its `with` block lasts.

    Attributes:
        words: how often each word was written.
    """

    def __init__(self, bootstrap: str, *, rate: int) -> None:
        self.words: Counter[str] = Counter()
        self._pause = 1 / rate
        self._random = random.Random(1)
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._failures: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(self._pause):
            words = self._random.choices(WORDS, k=PER_LINE)
            self._producer.produce(
                LINES, " ".join(words), partition=number % PARTITIONS, on_delivery=self._delivered
            )
            self._producer.poll(0)
            self.words.update(words)
            number += 1

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._failures.append(str(error))

    def start(self) -> None:
        """Start to write."""
        self._thread.start()

    def stop(self) -> Counter[str]:
        """Stop; how often each word was written."""
        self._stop.set()
        self._thread.join(60)
        assert self._producer.flush(120) == 0
        assert self._failures == []
        return self.words


@contextmanager
def lines_written(cluster: Cluster, *, rate: int) -> Iterator[LineWriter]:
    writer = LineWriter(cluster.bootstrap, rate=rate)
    writer.start()
    try:
        yield writer
    finally:
        writer.stop()


@contextmanager
def cluster_of_three(
    directory: Path, third: Kind = "sparkraft", jars: Path | None = None
) -> Iterator[Cluster]:
    members = [Member(1), Member(2), Member(3, third)]
    with Cluster(directory, members, overrides=OF_TRANSACTIONS, jars=jars) as cluster:
        for topic in (LINES, COUNTS):
            cluster.create_topic(topic, partitions=PARTITIONS, replicas=3)
            until_in_sync(cluster, topic, PARTITIONS, 3)
        yield cluster


def instance(command: list[str], cluster: Cluster, name: str) -> JavaProgram:
    """An instance of the application with a state directory of its own."""
    state = cluster.directory / f"{name}-state"
    words = [*command, cluster.bootstrap, str(state), LINES, COUNTS]
    return JavaProgram(words, cluster.directory / f"{name}.out")


def bounce(cluster: Cluster, node: int) -> None:
    """kill -9 a node, start it again, and return once it has all records."""
    cluster.kill(node)
    cluster.start([node])
    for topic, partitions in (
        (LINES, PARTITIONS),
        (COUNTS, PARTITIONS),
        ("__transaction_state", 3),
        ("__consumer_offsets", 3),
    ):
        until_in_sync(cluster, topic, partitions, 3)


def more(reader: RecordReader, *instances: JavaProgram) -> None:
    """Return once 60 more counts were committed; no instance may end by itself."""

    def check() -> None:
        for one in instances:
            assert one.is_running, one.tail()

    reader.until_read(len(reader.records) + 60, seconds=SECONDS, check=check)


def check_counts(reader: RecordReader, words: Counter[str]) -> None:
    """Each word has all of its counts, once and in order."""
    reader.until_read(words.total(), seconds=SECONDS)
    time.sleep(1)  # for an update that is there twice
    reader.poll()
    found: dict[str, list[int]] = defaultdict(list)
    for word, count in reader.records:
        found[word].append(int(count))
    assert found == {word: list(range(1, count + 1)) for word, count in words.items()}


def test_a_killed_word_count_is_exact(tmp_path: Path, word_count: list[str]) -> None:
    with cluster_of_three(tmp_path) as cluster:
        application = instance(word_count, cluster, "first")
        with (
            RecordReader(cluster.bootstrap, COUNTS, PARTITIONS) as reader,
            lines_written(cluster, rate=40) as writer,
            running(application),
        ):
            more(reader, application)
            application.kill()
            application.start()
            more(reader, application)
            bounce(cluster, group_coordinator(cluster, APPLICATION))
            more(reader, application)
            check_counts(reader, writer.stop())
            assert application.terminate() == 143, application.tail()


@pytest.mark.long
@pytest.mark.parametrize("third", ["sparkraft", "kafka"])
def test_two_instances_count_exactly_under_many_kills(
    tmp_path: Path, word_count: list[str], kafka_jars: Path, third: Kind
) -> None:
    """The third node may be one of Apache Kafka."""
    with cluster_of_three(tmp_path, third, kafka_jars) as cluster:
        instances = [instance(word_count, cluster, name) for name in ("first", "second")]
        with (
            RecordReader(cluster.bootstrap, COUNTS, PARTITIONS) as reader,
            lines_written(cluster, rate=40) as writer,
            running(*instances),
        ):
            for _ in range(2):
                for node in cluster.brokers:
                    more(reader, *instances)
                    bounce(cluster, node)
                for one, other in (instances, instances[::-1]):
                    more(reader, *instances)
                    one.kill()
                    more(reader, other)
                    one.start()
            wait_until(
                lambda: all(one.lines()[-1:] == ["RUNNING"] for one in instances),
                "both instances run",
                SECONDS,
            )
            check_counts(reader, writer.stop())
