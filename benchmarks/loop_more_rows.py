"""Further rows of `./bench loop`: what a light client feels beside work that comes rarely.

regex         a librdkafka consumer joins with a regular expression that matches 4,000 partitions
bombs         12 clients send batches of 450,000 empty records in 300 KB to a compacted topic
cold          2 consumers read 300 MB that are not in the page cache; the disk is not slowed down
producers     DescribeProducers of 1,000 partitions with 20 producers each, again and again
own           our own keys 10000 to 10006 about 10,000 partitions; ours alone
scrapes       60 clients send 300 pipelined GET /metrics each; ours alone

Beside rows of ours alone, Kafka's node is idle.
"""

import os
import socket
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any

from benchmarks.bench_node import ask, ask_raw, batch, create_topic, produce_frames, request
from benchmarks.loop_api_rows import Asking, commit, flood_row
from benchmarks.loop_outcome import SECONDS, Load, Outcome, once
from benchmarks.probe import Probe
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import k00_produce as k00
from sparkraft.protocol.messages import k01_fetch as k01
from sparkraft.protocol.messages import k61_describe_producers as k61
from sparkraft.protocol.messages import k10000_describe_elections as k10000
from sparkraft.protocol.messages import k10002_describe_history as k10002
from sparkraft.protocol.messages import k10003_describe_isr_changes as k10003
from sparkraft.protocol.messages import k10004_describe_group_decisions as k10004
from sparkraft.protocol.messages import k10005_describe_image as k10005
from sparkraft.protocol.messages import k10006_describe_metadata_log as k10006
from sparkraft.records.compression import Codec
from sparkraft.records.record import BatchBuilder
from tests.support.nodes import NodeProcess, SparkraftNode

MATCHING_TOPICS, PARTITIONS = 1_000, 4
BOMBS, BOMB_RECORDS = 12, 450_000
COLD_MEGABYTES = 300
DESCRIBED, PRODUCERS_EACH = 1_000, 20
OWN_TOPICS, OWN_PARTITIONS = 10, 1_000
SCRAPERS, SCRAPES = 60, 300
HTTP_LISTENER = "sparkraft.http.listener"


@once
def matching_topics(node: NodeProcess) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin: Any = AdminClient({"bootstrap.servers": node.bootstrap})
    for first in range(0, MATCHING_TOPICS, 100):
        names = [f"match-{index}" for index in range(first, first + 100)]
        for done in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]).values():
            done.result(90)
    time.sleep(2)  # the broker creates folders after the answer


def regex(node: NodeProcess, number: int) -> Outcome:
    """Joins one after the other, each until it is assigned everything."""
    from confluent_kafka import Consumer

    matching_topics(node)
    times: list[float] = []
    probe = Probe(node.port, "probe", SECONDS)
    end = time.monotonic() + SECONDS - 1
    while time.monotonic() < end:
        begun = time.monotonic()
        consumer = Consumer(
            {"bootstrap.servers": node.bootstrap, "group.id": f"match-{number}-{len(times)}"}
        )
        consumer.subscribe(["^match-.*"])
        while not consumer.assignment() and time.monotonic() < begun + 60:
            consumer.poll(0.05)
        times.append(time.monotonic() - begun)
        consumer.close()
    return Outcome(probe.latencies(), {"first join s": times[0], "fastest join s": min(times)})


def bomb() -> bytes:
    """A batch of very many empty records, which compress to almost nothing."""
    builder = BatchBuilder(codec=Codec.ZSTD)
    now = int(time.time() * 1000)
    for _ in range(BOMB_RECORDS):
        builder.append(now, b"", None)
    return builder.build()


def bombs(node: NodeProcess) -> list[bytes]:
    create_topic(node.port, "compacted", 4, cleanup_policy="compact")
    return [produce_frames("compacted", bomb(), 1)]


def fill(node: NodeProcess, topic: str, megabytes: int) -> None:
    """Write a topic of one partition, to the disk too."""
    create_topic(node.port, topic, 1)
    megabyte = produce_frames(topic, batch(1024, 1000), 1)
    for _ in range(megabytes):
        ask_raw(node.port, megabyte)
    os.sync()


def cold_row(
    topic: str, megabytes: int, disk: Callable[[NodeProcess], AbstractContextManager[object]]
) -> Load:
    """Two consumers read a topic, whose files are dropped from the page cache before each pass."""
    filled = once(partial(fill, topic=topic, megabytes=megabytes))
    frames = [fetch(topic, offset * 1_000) for offset in range(megabytes)]

    def load(node: NodeProcess, _number: int) -> Outcome:
        filled(node)
        drop(node, topic)
        with (
            disk(node),
            Asking(node.port, frames, 1) as first,
            Asking(node.port, frames[::-1], 1) as second,
        ):
            over = threading.Event()
            dropping = threading.Thread(target=keep_dropping, args=(node, topic, over))
            dropping.start()
            try:
                latencies = Probe(node.port, "probe", SECONDS).latencies()
                read = (first.answers + second.answers) / SECONDS
            finally:
                over.set()
                dropping.join()
        middle = statistics.median(latencies)
        return Outcome(latencies, {"probe p50 ms": middle, "read MB/s": read})

    return load


def keep_dropping(node: NodeProcess, topic: str, over: threading.Event) -> None:
    while not over.wait(0.2):
        drop(node, topic)


def drop(node: NodeProcess, topic: str) -> None:
    """Drop a topic's pages from the page cache, those that no process has mapped."""
    for path in node.log_dir.glob(f"{topic}-*/*.log"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def fetch(topic: str, offset: int) -> bytes:
    part = k01.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    message = k01.FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=1 << 20,
        topics=[k01.FetchTopic(topic=topic, partitions=[part])],
    )  # fmt: skip
    return request(ApiKey.FETCH, 12, message)


def producers(node: NodeProcess) -> list[bytes]:
    """Producers are known by the batches that they wrote, whatever gave them their ids."""
    create_topic(node.port, "described", DESCRIBED)
    for producer_id in range(1_000_000, 1_000_000 + PRODUCERS_EACH):
        produce_everywhere(node, first_batches("described", producer_id))
    topic = k61.TopicRequest(name="described", partition_indexes=list(range(DESCRIBED)))
    return [request(ApiKey.DESCRIBE_PRODUCERS, 0, k61.DescribeProducersRequest(topics=[topic]))]


def produce_everywhere(node: NodeProcess, message: k00.ProduceRequest) -> None:
    """Produce until all partitions have their batch: folders are created after the topic is."""
    deadline = time.monotonic() + 60
    codes = {-1}
    while codes != {0}:
        assert time.monotonic() < deadline, f"errors {codes} after 60 s"
        _, answer = ask(node.port, ApiKey.PRODUCE, 9, message)
        codes = {part.error_code for part in answer.responses[0].partition_responses}


def first_batches(topic: str, producer_id: int) -> k00.ProduceRequest:
    """An idempotent producer's first batch for each partition."""
    builder = BatchBuilder(producer_id=producer_id, producer_epoch=0, base_sequence=0)
    builder.append(int(time.time() * 1000), None, b"x")
    records = builder.build()
    parts = [k00.PartitionProduceData(index=index, records=records) for index in range(DESCRIBED)]
    data = k00.TopicProduceData(name=topic, partition_data=parts)
    return k00.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])


def ours_alone(load: Load) -> Load:
    """A row that leaves Kafka's node idle."""

    def row(node: NodeProcess, number: int) -> Outcome | list[Outcome]:
        if isinstance(node, SparkraftNode):
            return load(node, number)
        return Outcome(Probe(node.port, "probe", SECONDS).latencies())

    return row


def own(node: NodeProcess) -> list[bytes]:
    """The image and the log are requested from their beginning, a page of the largest size."""
    names = [f"history-{number}" for number in range(OWN_TOPICS)]
    for name in names:
        create_topic(node.port, name, OWN_PARTITIONS)
    commit(node, "history", partitions=100, metadata="")
    messages = {
        ApiKey.DESCRIBE_ELECTIONS: k10000.DescribeElectionsRequest(),
        ApiKey.DESCRIBE_HISTORY: k10002.DescribeHistoryRequest(
            topics=[k10002.HistoryTopic(name=name) for name in names],
            broker_ids=[1], events_max=1_000, whole_log=True,
        ),
        ApiKey.DESCRIBE_ISR_CHANGES: k10003.DescribeIsrChangesRequest(topic=names[0]),
        ApiKey.DESCRIBE_GROUP_DECISIONS: k10004.DescribeGroupDecisionsRequest(group_id="history"),
        ApiKey.DESCRIBE_IMAGE: k10005.DescribeImageRequest(),
        ApiKey.DESCRIBE_METADATA_LOG: k10006.DescribeMetadataLogRequest(),
    }  # fmt: skip
    return [request(key, 0, message) for key, message in messages.items()]


def scrapes(node: NodeProcess, _number: int) -> Outcome:
    port = int(properties(node)[HTTP_LISTENER].rpartition(":")[2])
    answers = [0] * SCRAPERS
    over = threading.Event()

    def scrape(number: int) -> None:
        asked = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * SCRAPES
        while not over.is_set():
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 30) as connection:
                connection.sendall(asked)
                while not over.is_set():
                    data = connection.recv(1 << 20)
                    if not data:
                        break
                    answers[number] += data.count(b"HTTP/1.1 200")

    threads = [threading.Thread(target=scrape, args=(number,)) for number in range(SCRAPERS)]
    for thread in threads:
        thread.start()
    latencies = Probe(node.port, "probe", SECONDS).latencies()
    over.set()
    for thread in threads:
        thread.join(60)
    return Outcome(latencies, {"answers/s": sum(answers) / SECONDS})


def properties(node: NodeProcess) -> dict[str, str]:
    lines = node.properties_path.read_text().splitlines()
    return dict(line.partition("=")[::2] for line in lines)


MORE_ROWS: dict[str, Load] = {
    "regex": regex,
    "bombs": flood_row(bombs, BOMBS),
    "cold": cold_row("cold", COLD_MEGABYTES, nullcontext),
    "producers": flood_row(producers),
    "own": ours_alone(flood_row(own)),
    "scrapes": ours_alone(scrapes),
}
