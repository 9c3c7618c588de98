"""`replica-verification`: whether all replicas have the same, as `kafka-replica-verification.sh`.

It fetches the same offsets from every broker as a debugging replica, so that followers respond as
well. Batches up to the high watermark are compared by last offset and checksum. It runs until it is
interrupted, or an offset differs.

    round fetch from every broker → compare → each partition continues after what all of them have

A batch that some replicas do not have yet is compared among the others in each round, as in Kafka.
"""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import KafkaError
from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.names import TopicFilter
from sparkraft.cli.options import Options, Values
from sparkraft.cli.session import connected, run, warn
from sparkraft.client.admin import Admin
from sparkraft.records.batch import BatchHeader, iter_batches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkraft.base.ids import Uuid
    from sparkraft.client.cluster import Cluster, TopicInfo

DEBUGGING_REPLICA = -2
"""The replica id of a debugging consumer: it reads up to the log end offset and is not a
follower."""

RETRY_S = 0.5
"""After a round in which a broker didn't answer."""

LATEST, EARLIEST = -1, -2
INT_MAX, LONG_MAX = (1 << 31) - 1, (1 << 63) - 1

Replica = tuple[str, int]
"""Topic and index."""


def main(argv: list[str]) -> int:
    """Compare replicas."""
    options = Options("replica-verification", "Validates that all replicas have the same data.")
    options.value(
        "--broker-list",
        about="the servers to connect to: host:port,host:port",
        metavar="HOST:PORT",
        required=True,
    )
    options.value("--fetch-size", about="bytes of each partition", type=int, default=1 << 20)
    options.value("--max-wait-ms", about="a request's longest wait", type=int, default=1_000)
    options.value("--topics-include", about="topics, a regular expression", default=".*")
    options.value(
        "--time", about="where to begin: ms, -1 latest, -2 earliest", type=int, default=-1
    )
    options.value("--report-interval-ms", about="between reports", type=int, default=30_000)
    options.flag("--once", "end when everything that was there has been compared (ours)")
    values = options.parse(argv)
    _check(values)
    values.bootstrap_server, values.command_config = values.broker_list, None
    return run(_main(values))


def _check(values: Values) -> None:
    if not EARLIEST <= values.time <= LONG_MAX:
        raise UsageError(f"--time wants ms, -1 or -2, not {values.time}")
    for option, value, most in (
        ("--fetch-size", values.fetch_size, INT_MAX),
        ("--max-wait-ms", values.max_wait_ms, INT_MAX),
        ("--report-interval-ms", values.report_interval_ms, LONG_MAX),
    ):
        if not -most <= value <= most:
            raise UsageError(f"{option} {value} is more than {most}")


async def _main(values: Values) -> int:
    wanted = TopicFilter(values.topics_include, "--topics-include")
    async with connected(values, client_id="replica-verification") as cluster:
        admin = Admin(cluster)
        topics = [
            topic
            for topic in (await admin.list_topics()).values()
            if wanted.allows(topic.name, exclude_internal=False)
        ]
        if not topics:
            raise CommandError("no topic fits --topics-include")
        verification = Verification(cluster, topics, values)
        await verification.begin(admin)
        _say("verification process is started")
        return await verification.run()


def _say(sentence: str) -> None:
    now = datetime.now().astimezone()
    print(f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03d}: {sentence}", flush=True)


class Verification:
    """Rounds of asking and comparing."""

    def __init__(self, cluster: Cluster, topics: list[TopicInfo], values: Values) -> None:
        """Compare every partition of `topics`."""
        self._cluster = cluster
        self._values = values
        self._ids: dict[str, Uuid] = {topic.name: topic.id for topic in topics}
        self._names = {topic.id: topic.name for topic in topics}
        self._replicas: dict[Replica, tuple[int, ...]] = {
            (topic.name, index): partition.replicas
            for topic in topics
            for index, partition in topic.partitions.items()
        }
        self._offsets: dict[Replica, int] = {}
        self._ends: dict[Replica, int] = {}
        self._reported = time.monotonic()
        self._slowest: tuple[str, int] = ("null", -1)
        """The replica with the largest lag; initialized as in Kafka, before any broker has
        responded."""
        self._differs = False

    async def begin(self, admin: Admin) -> None:
        """Find out where to begin, and for `--once` where to end."""
        self._offsets = await self._list(admin, self._values.time)
        if self._values.once:
            self._ends = await self._list(admin, LATEST)

    async def _list(self, admin: Admin, timestamp: int) -> dict[Replica, int]:
        found = await admin.list_offsets(dict.fromkeys(self._replicas, timestamp))
        offsets = {}
        for replica, answer in found.items():
            if isinstance(answer, KafkaError):
                raise answer
            if answer.offset < 0:
                name = f"{replica[0]}-{replica[1]}"
                raise CommandError(f"{name} has no record as late as --time {timestamp}")
            offsets[replica] = answer.offset
        return offsets

    async def run(self) -> int:
        """Run until an offset differs, or, if requested, until everything is compared."""
        while True:
            answers = await self._ask_all()
            lags = {
                replica: self._compare(replica, by_broker) for replica, by_broker in answers.items()
            }
            if None in lags.values():
                return 1
            self._report({replica: lag for replica, lag in lags.items() if lag is not None})
            if self._values.once and self._is_done():
                self._report_now({r: lag for r, lag in lags.items() if lag is not None})
                return int(self._differs)

    def _is_done(self) -> bool:
        return all(self._offsets[replica] >= end for replica, end in self._ends.items())

    # -- asking ----------------------------------------------------------------------------------

    async def _ask_all(self) -> dict[Replica, dict[int, Any]]:
        """Return each broker's batches of each partition; none if it does not respond."""
        brokers = sorted({broker for each in self._replicas.values() for broker in each})
        told = await asyncio.gather(*(self._ask(broker) for broker in brokers))
        answers: dict[Replica, dict[int, Any]] = {replica: {} for replica in self._replicas}
        for broker, found in zip(brokers, told, strict=True):
            for replica, data in found.items():
                if replica in answers:
                    answers[replica][broker] = data
        return answers

    async def _ask(self, broker: int) -> dict[Replica, Any]:
        from sparkraft.protocol.messages.k01_fetch import FetchRequest, FetchTopic, ReplicaState

        topics: dict[str, FetchTopic] = {}
        for (name, index), replicas in self._replicas.items():
            if broker in replicas:
                topic = topics.setdefault(name, FetchTopic(topic_id=self._ids[name]))
                topic.partitions.append(self._partition(name, index))
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=DEBUGGING_REPLICA),
            max_wait_ms=self._values.max_wait_ms,
            min_bytes=1,
            session_epoch=-1,
            topics=list(topics.values()),
        )
        try:
            answer = await self._cluster.ask_node(broker, request)
        except KafkaError as error:
            warn(f"broker {broker} does not answer: {error}")
            await asyncio.sleep(RETRY_S)
            return {}
        return {
            (self._names[topic.topic_id], data.partition_index): data
            for topic in answer.responses
            if topic.topic_id in self._names
            for data in topic.partitions
        }

    def _partition(self, topic: str, index: int) -> Any:
        from sparkraft.protocol.messages.k01_fetch import FetchPartition

        return FetchPartition(
            partition=index,
            fetch_offset=self._offsets[topic, index],
            log_start_offset=0,
            partition_max_bytes=self._values.fetch_size,
        )

    # -- comparing -------------------------------------------------------------------------------

    def _compare(self, replica: Replica, answers: Mapping[int, Any]) -> int | None:
        """Return the lag of the compared offset; None if an offset differs."""
        batches = {n: _committed(answers.get(n)) for n in sorted(self._replicas[replica])}
        high_watermark = max((data.high_watermark for data in answers.values()), default=-1)
        for row in zip_longest(*batches.values()):
            pairs = zip(batches, row, strict=True)
            there = {broker: batch for broker, batch in pairs if batch is not None}
            if not self._compare_row(replica, there):
                return None
            if len(there) < len(batches):
                break
            self._offsets[replica] = next(iter(there.values())).next_offset
        return int(high_watermark - self._offsets[replica])

    def _compare_row(self, replica: Replica, row: Mapping[int, BatchHeader]) -> bool:
        """Compare one batch of every replica: whether offsets agree; reports a wrong checksum."""
        (first, expected), *others = row.items()
        name = f"{replica[0]}-{replica[1]}"
        for broker, header in others:
            if header.last_offset != expected.last_offset:
                _say(
                    f"partition {name}: replica {first}'s offset {expected.last_offset} doesn't "
                    f"match replica {broker}'s offset {header.last_offset}"
                )
                return False
            if header.crc != expected.crc:
                self._differs = True
                _say(
                    f"partition {name} has unmatched checksum at offset {header.last_offset}; "
                    f"replica {first}'s checksum {expected.crc}; replica {broker}'s checksum "
                    f"{header.crc}"
                )
        return True

    # -- reporting -------------------------------------------------------------------------------

    def _report(self, lags: Mapping[Replica, int]) -> None:
        if (time.monotonic() - self._reported) * 1000 > self._values.report_interval_ms:
            self._report_now(lags)

    def _report_now(self, lags: Mapping[Replica, int]) -> None:
        self._reported = time.monotonic()
        (topic, index), lag = max(lags.items(), key=lambda each: each[1])
        if lag >= 0:
            self._slowest = (f"{topic}-{index}", self._offsets[topic, index])
        name, offset = self._slowest
        _say(
            f"max lag is {max(lag, -1)} for partition {name} at offset {offset} "
            f"among {len(lags)} partitions"
        )


def _committed(data: Any) -> list[BatchHeader]:
    """The batches of an answer that lie below its high watermark; none of no answer."""
    if data is None or data.error_code or not data.records:
        return []
    headers = [header for header, _ in iter_batches(data.records)]
    return [header for header in headers if header.last_offset < data.high_watermark]
