"""Rows of `./bench loop` for requests: what a light client feels beside clients that ask for much.

metadata      20 clients ask for all of 12,000 partitions, in a closed loop
sessions      4 consumers with fetch sessions over 2,500 partitions each, 50 records a second
configs       DescribeConfigs of one broker, named 3,000 times, again and again
offsets       OffsetFetch of one group with 100 commits, named 20,000 times, and of one whose
              commits have 4 KB of metadata each, named 500 times: 200 MB
commits       OffsetFetch of 2,500 partitions of a group, named one by one, again and again
groups        DescribeGroups of one group, named 1,000 times
unknown       Fetch of 500,000 unknown partitions
lists         ListOffsets of 100,000 partitions, DescribeLogDirs and DescribeTopicPartitions
"""

import socket
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from benchmarks.bench_node import ask, batch, create_topic, produce_frames, request
from benchmarks.loop_outcome import SECONDS, Load, Outcome, once
from benchmarks.measure import cpu_seconds
from benchmarks.probe import Probe, receive
from sparkraft.base.ids import Uuid
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import decode
from sparkraft.protocol.messages import k01_fetch as k01
from sparkraft.protocol.messages import k02_list_offsets as k02
from sparkraft.protocol.messages import k03_metadata as k03
from sparkraft.protocol.messages import k08_offset_commit as k08
from sparkraft.protocol.messages import k09_offset_fetch as k09
from sparkraft.protocol.messages import k10_find_coordinator as k10
from sparkraft.protocol.messages import k15_describe_groups as k15
from sparkraft.protocol.messages import k32_describe_configs as k32
from sparkraft.protocol.messages import k35_describe_log_dirs as k35
from sparkraft.protocol.messages import k75_describe_topic_partitions as k75
from tests.support.nodes import NodeProcess

TOPICS, PARTITIONS = 3_000, 4
CONSUMERS, EACH, RECORDS_PER_S = 4, 2_500, 50
COMMITTED = 2_500
RESPONSE_HEAD = 5
"""Bytes before a flexible response: correlation id and no tagged fields."""


class Asking:
    """Clients that send the same requests in a closed loop while the block lasts."""

    def __init__(self, port: int, frames: Sequence[bytes], clients: int) -> None:
        self.answers = 0
        self.seconds: list[float] = []
        """Until each answer was received, in the order of their ends."""
        self._port = port
        self._frames = frames
        self._over = False
        self._threads = [threading.Thread(target=self._run) for _ in range(clients)]

    def _run(self) -> None:
        # A node may close the connection of a client that asks for too much.
        while not self._over:
            with (
                suppress(OSError),
                socket.create_connection(("127.0.0.1", self._port), 30) as connection,
            ):
                self._ask(connection)

    def _ask(self, connection: socket.socket) -> None:
        into = bytearray(1 << 20)
        while not self._over:
            for frame in self._frames:
                begun = time.monotonic()
                connection.sendall(frame)
                left = int.from_bytes(receive(connection, 4), "big")
                while left:
                    got = connection.recv_into(into, min(left, len(into)))
                    if not got:
                        raise ConnectionError
                    left -= got
                self.answers += 1
                self.seconds.append(time.monotonic() - begun)

    def __enter__(self) -> "Asking":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        for thread in self._threads:
            thread.join(60)


def flood_row(prepare: Callable[[NodeProcess], Sequence[bytes]], clients: int = 1) -> Load:
    """Beside clients that send what `prepare` returns before the first round."""
    frames_of = once(prepare)

    def load(node: NodeProcess, _number: int) -> Outcome:
        frames = frames_of(node)
        with Asking(node.port, frames, clients) as asking:
            time.sleep(0.5)
            before = asking.answers
            latencies = Probe(node.port, "probe", SECONDS).latencies()
            answers = (asking.answers - before) / SECONDS
        return Outcome(latencies, {"answers/s": answers})

    return load


# ---- what is asked for


def all_topics(node: NodeProcess) -> list[bytes]:
    for number in range(0, TOPICS, 500):
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

        admin: Any = AdminClient({"bootstrap.servers": node.bootstrap})
        topics = [NewTopic(f"all-{index}", PARTITIONS, 1) for index in range(number, number + 500)]
        for done in admin.create_topics(topics, operation_timeout=60).values():
            done.result(90)
    return [request(ApiKey.METADATA, 12, k03.MetadataRequest(topics=None))]


def broker_configs(node: NodeProcess) -> list[bytes]:
    _, found = ask(node.port, ApiKey.METADATA, 12, k03.MetadataRequest(topics=[]))
    name = str(found.brokers[0].node_id)
    resource = k32.DescribeConfigsResource(resource_type=4, resource_name=name)
    message = k32.DescribeConfigsRequest(
        resources=[resource] * 3_000, include_synonyms=True, include_documentation=True
    )
    return [request(ApiKey.DESCRIBE_CONFIGS, 4, message)]


def commit(node: NodeProcess, group_id: str, *, partitions: int, metadata: str) -> None:
    """Commit an offset of each partition."""
    name = f"committed-{partitions}"
    create_topic(node.port, name, partitions)
    parts = [
        k08.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=1, committed_metadata=metadata
        )
        for index in range(partitions)
    ]
    topic = k08.OffsetCommitRequestTopic(name=name, partitions=parts)
    message = k08.OffsetCommitRequest(group_id=group_id, topics=[topic])
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        coordinator = k10.FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id])
        ask(node.port, ApiKey.FIND_COORDINATOR, 4, coordinator)
        _, answer = ask(node.port, ApiKey.OFFSET_COMMIT, 8, message)
        if all(part.error_code == 0 for part in answer.topics[0].partitions):
            return
        time.sleep(0.2)
    raise AssertionError("no offsets are committed after 60 s")


def offsets(node: NodeProcess) -> list[bytes]:
    frames = []
    for group_id, metadata, times in (("g", "", 20_000), ("large", "x" * 4_000, 500)):
        commit(node, group_id, partitions=100, metadata=metadata)
        group = k09.OffsetFetchRequestGroup(group_id=group_id, topics=None)
        message = k09.OffsetFetchRequest(groups=[group] * times)
        frames.append(request(ApiKey.OFFSET_FETCH, 8, message))
    return frames


@once
def committed(node: NodeProcess) -> bytes:
    """Commit, and return the request for all of it."""
    commit(node, "many", partitions=COMMITTED, metadata="")
    topic = k09.OffsetFetchRequestTopics(
        name=f"committed-{COMMITTED}", partition_indexes=list(range(COMMITTED))
    )
    group = k09.OffsetFetchRequestGroup(group_id="many", topics=[topic])
    return request(ApiKey.OFFSET_FETCH, 8, k09.OffsetFetchRequest(groups=[group]))


def commits(node: NodeProcess, _number: int) -> Outcome:
    with Asking(node.port, [committed(node)], 1) as asking:
        time.sleep(0.5)
        first = len(asking.seconds)
        latencies = Probe(node.port, "probe", SECONDS).latencies()
        taken = asking.seconds[first:]
    return Outcome(latencies, {"OffsetFetch p50 ms": statistics.median(taken) * 1000})


def groups(node: NodeProcess) -> list[bytes]:
    commit(node, "g", partitions=100, metadata="")
    return [request(ApiKey.DESCRIBE_GROUPS, 5, k15.DescribeGroupsRequest(groups=["g"] * 1_000))]


def unknown(_node: NodeProcess) -> list[bytes]:
    partitions = [k01.FetchPartition(partition=index) for index in range(500_000)]
    topic = k01.FetchTopic(topic_id=Uuid(b"x" * 16), partitions=partitions)
    message = k01.FetchRequest(topics=[topic], max_wait_ms=500, min_bytes=1)
    return [request(ApiKey.FETCH, 17, message)]


def lists(node: NodeProcess) -> list[bytes]:
    create_topic(node.port, "listed", 1_000)
    parts = [
        k02.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(100_000)
    ]
    every = k02.ListOffsetsRequest(
        replica_id=-1, topics=[k02.ListOffsetsTopic(name="listed", partitions=parts)]
    )
    page = k75.DescribeTopicPartitionsRequest(topics=[], response_partition_limit=2_000)
    return [
        request(ApiKey.LIST_OFFSETS, 8, every),
        request(ApiKey.DESCRIBE_LOG_DIRS, 4, k35.DescribeLogDirsRequest(topics=None)),
        request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, page),
    ]


# ---- consumers with sessions


class SessionConsumer:
    """Fetches all partitions of a topic in one session, as the Java client does."""

    def __init__(self, port: int, topic_id: Uuid) -> None:
        self.fetches = 0
        self.sees_all = threading.Event()
        """Set when no partition is answered with an error: all are led."""
        self._connection = socket.create_connection(("127.0.0.1", port), 30)
        self._topic_id = topic_id
        self._session = k01.FetchRequest(session_epoch=0)
        self._over = False
        self.thread = threading.Thread(target=self._run)

    def _fetch(self, moved: dict[int, int]) -> dict[int, int]:
        """Fetch; the new offsets of partitions that returned records."""
        parts = [
            k01.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
            for index, offset in moved.items()
        ]
        message = self._session
        message.topics = [k01.FetchTopic(topic_id=self._topic_id, partitions=parts)]
        message.max_wait_ms, message.min_bytes, message.max_bytes = 500, 1, 50 << 20
        self._connection.sendall(request(ApiKey.FETCH, 13, message))
        size = int.from_bytes(receive(self._connection, 4), "big")
        answer = decode(k01.FetchResponse, 13, receive(self._connection, size)[RESPONSE_HEAD:])
        assert answer.error_code == 0, answer
        self._session.session_id = answer.session_id
        self._session.session_epoch += 1
        self.fetches += 1
        answered = [part for topic in answer.responses for part in topic.partitions]
        if any(part.error_code for part in answered):
            time.sleep(0.1)  # Kafka's retry.backoff.ms
        else:
            self.sees_all.set()
        return {part.partition_index: part.high_watermark for part in answered if part.records}

    def _run(self) -> None:
        moved = self._fetch(dict.fromkeys(range(EACH), 0))
        while not self._over:
            moved = self._fetch(moved)

    def stop(self) -> None:
        self._over = True
        self.thread.join(30)
        self._connection.close()


@contextmanager
def producing(port: int, topics: Sequence[str]) -> Any:
    """`RECORDS_PER_S` records a second in turn to partitions of `topics`."""
    over = threading.Event()
    frames = [produce_frames(topic, batch(100, 1), 50) for topic in topics]

    def run() -> None:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            at = [0] * len(frames)
            number = 0
            while not over.wait(1 / RECORDS_PER_S):
                number = (number + 1) % len(frames)
                frame = frames[number]
                size = 4 + int.from_bytes(frame[at[number] : at[number] + 4], "big")
                connection.sendall(frame[at[number] : at[number] + size])
                at[number] = (at[number] + size) % len(frame)
                receive(connection, int.from_bytes(receive(connection, 4), "big"))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30)


@once
def wide_topics(node: NodeProcess) -> list[tuple[str, Uuid]]:
    """A topic of each consumer."""
    names = [f"wide-{number}" for number in range(CONSUMERS)]
    return [(name, create_topic(node.port, name, EACH)) for name in names]


def sessions(node: NodeProcess, _number: int) -> Outcome:
    """Consumers of many partitions, few of which get records."""
    assert node.process is not None
    topics = wide_topics(node)
    with ExitStack() as stack:
        consumers = [SessionConsumer(node.port, topic_id) for _, topic_id in topics]
        for consumer in consumers:
            consumer.thread.start()
            stack.callback(consumer.stop)
        for consumer in consumers:
            assert consumer.sees_all.wait(60), "partitions without a leader after 60 s"
        stack.enter_context(producing(node.port, [name for name, _ in topics]))
        time.sleep(1)
        cpu, fetches = cpu_seconds(node.process.pid), sum(each.fetches for each in consumers)
        begun = time.monotonic()
        latencies = Probe(node.port, "probe", SECONDS).latencies()
        seconds = time.monotonic() - begun
        figures = {
            "cores": (cpu_seconds(node.process.pid) - cpu) / seconds,
            "fetches/s": (sum(each.fetches for each in consumers) - fetches) / seconds,
            "probe p50 ms": statistics.median(latencies),
        }
    return Outcome(latencies, figures)


API_ROWS: dict[str, Load] = {
    "sessions": sessions,
    "metadata": flood_row(all_topics, clients=20),
    "configs": flood_row(broker_configs),
    "offsets": flood_row(offsets),
    "commits": commits,
    "groups": flood_row(groups),
    "unknown": flood_row(unknown),
    "lists": flood_row(lists),
}
