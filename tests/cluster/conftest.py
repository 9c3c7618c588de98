"""What the tests of several nodes share."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from tests.support.clusters import Cluster, Member

QUICK = {
    # A killed node may come back once its session has lapsed; Kafka's 9 s would be most of a test.
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "6",
}

STEADY = {
    **QUICK,
    # Nobody is fenced because the machine had other work; who was killed is fenced at once anyway.
    "broker.session.timeout.ms": "20000",
    # Leaders stay where a test has put them.
    "auto.leader.rebalance.enable": "false",
}
"""For tests in which only a broker that stops or dies is to be fenced."""


@pytest.fixture(scope="session")
def shared_kafka(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One node of Kafka for all tests that only ask it, or create topics of their own there.

    Mark them `shared_kafka`, so that one worker runs them all. Tests that stop a node, change its
    configs or use its directory start their own.
    """
    folder = tmp_path_factory.mktemp("kafka")
    with Cluster(folder, [Member(1, "kafka")], overrides=STEADY, jars=kafka_jars) as cluster:
        yield cluster


class TopicStream:
    """Creates topics one after another; `acknowledged` must be there in the end."""

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self.acknowledged: list[str] = []
        self._cluster = cluster
        self._prefix = prefix
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failure: BaseException | None = None

    def _run(self) -> None:
        count = 0
        while not self._stop.is_set():
            count += 1
            name = f"{self._prefix}-{count}"
            try:
                self._cluster.request_topic(name)
            except KafkaError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    continue  # Nobody said that it is there.
            except BaseException as error:
                self._failure = error
                return
            self.acknowledged.append(name)

    def end(self) -> list[str]:
        """Stop, and the names of all topics that were acknowledged."""
        self._stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure
        return self.acknowledged

    def start(self) -> None:
        self._thread.start()


@contextmanager
def topics_created_throughout(cluster: Cluster, prefix: str) -> Iterator[TopicStream]:
    """A stream of new topics as long as the block lasts."""
    stream = TopicStream(cluster, prefix)
    stream.start()
    try:
        yield stream
    finally:
        stream.end()
