"""Kafka's TransactionalMessageCopier moves each record once while nodes and itself are killed.

The console producer writes its input. The console consumer (read_committed), `kafka-transactions`
and `kafka-consumer-groups` check the result: only programs of Apache Kafka decide.

`test_kafka_streams` and `tests/interop/test_exactly_once_clients.py` have cases that stay in
`./test`.
"""

from pathlib import Path
from typing import Literal

import pytest
from confluent_kafka import Producer

from tests.support.clusters import OF_TRANSACTIONS, Cluster, Member
from tests.support.coordinators import (
    group_coordinator,
    name_coordinated_by,
    transaction_coordinator,
)
from tests.support.java_programs import JavaProgram, running
from tests.support.kafka_tools import kafka_tool_command, run_kafka_tool
from tests.support.ports import wait_until
from tests.support.record_reader import RecordReader
from tests.support.replicas import create_assigned, partition_of, until_in_sync

pytestmark = [pytest.mark.real_clients, pytest.mark.java]

TOOLS = "org.apache.kafka.tools"
MEMBERS = {
    "sparkraft": [Member(1), Member(2), Member(3)],
    "mixed": [Member(1), Member(2), Member(3, "kafka")],
}
FIRST_COORDINATOR = {"sparkraft": 1, "mixed": 3}
"""Of the transactions; the one that is killed first."""

SETTINGS = {
    **OF_TRANSACTIONS,
    # The transaction of a killed copier is aborted by the coordinator: the next one reads its
    # position before it calls initTransactions, and a position needs stable offsets.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
PER_TRANSACTION = 5
PER_KILL = 200
"""Records between two kills."""

TRANSACTION_TIMEOUT_MS = 5_000
KILLS = ["transactions", "copier", "group", "leader", "transactions", "copier"]
SHARED_RECORDS = 1_000
"""For each of two copiers, which wait for the sessions of killed ones meanwhile."""

SECONDS = 240
SOURCE, TARGET, GROUP = "inputs", "outputs", "copiers"


class Copier(JavaProgram):
    """Copies SOURCE in transactions, a third of which it aborts by chance.

    It reads partition 0, or with `subscribes` the partitions that its group assigns to it.
    """

    def __init__(
        self, cluster: Cluster, jars: Path, name: str, records: int, *, subscribes: bool = False
    ) -> None:
        self.name = name
        self._records = records
        super().__init__(
            [
                *kafka_tool_command(jars, f"{TOOLS}.TransactionalMessageCopier"),
                "--broker-list", cluster.bootstrap, "--transactional-id", name,
                "--input-topic", SOURCE, "--input-partition", "0", "--output-topic", TARGET,
                "--consumer-group", GROUP, "--transaction-size", str(PER_TRANSACTION),
                "--transaction-timeout", str(TRANSACTION_TIMEOUT_MS),
                "--enable-random-aborts", "--use-group-metadata",
                *(["--group-mode"] if subscribes else []),
            ],
            cluster.directory / f"{name}.out",
        )  # fmt: skip

    def copied(self) -> int:
        """How many records were committed when it last reported."""
        left = [event["remaining"] for event in self.events() if "remaining" in event]
        return self._records - left[-1] if left else 0

    def until_copied(self, count: int) -> None:
        """Return once that many records were committed."""

        def enough() -> bool:
            assert self.is_running or self.exit_code == 0, self.tail()
            return self.copied() >= count

        wait_until(enough, f"{count} records are copied\n{self.tail()}", SECONDS, pause=0.2)


def kafkas(jars: Path, command: str, *arguments: str) -> list[list[str]]:
    """Run one of Kafka's commands; the words of each line."""
    done = run_kafka_tool(jars, f"{TOOLS}.{command}", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.split() for line in done.stdout.splitlines() if line.strip()]


def committed(jars: Path, cluster: Cluster, count: int) -> list[str]:
    """At most so many records of TARGET, read by the console consumer."""
    rows = kafkas(
        jars, "consumer.ConsoleConsumer", "--bootstrap-server", cluster.bootstrap,
        "--topic", TARGET, "--from-beginning", "--isolation-level", "read_committed",
        "--max-messages", str(count), "--timeout-ms", "10000",
    )  # fmt: skip
    return [" ".join(row) for row in rows]


def prepare(cluster: Cluster, jars: Path, records: int) -> list[str]:
    """Create the topics and let the console producer write the input; its lines."""
    first, *others = cluster.brokers
    for topic in (SOURCE, TARGET):
        create_assigned(cluster, topic, [[*others, first]])
        until_in_sync(cluster, topic, 1, 3)
    lines = [f"record-{number}" for number in range(records)]
    done = run_kafka_tool(
        jars, f"{TOOLS}.ConsoleProducer", "--bootstrap-server", cluster.bootstrap,
        "--topic", SOURCE, stdin="".join(f"{line}\n" for line in lines),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return lines


def bounce(cluster: Cluster, node: int) -> None:
    """kill -9 a node, start it again, and return once it has all records."""
    cluster.kill(node)
    cluster.start([node])
    for topic, partitions in ((SOURCE, 1), (TARGET, 1), ("__transaction_state", 3)):
        until_in_sync(cluster, topic, partitions, 3)


def kill(target: str, cluster: Cluster, copier: Copier) -> None:
    """kill -9 the copier or a node, and start it again."""
    match target:
        case "copier":
            copier.kill()
            copier.start()
        case "transactions":
            bounce(cluster, transaction_coordinator(cluster, copier.name))
        case "group":
            bounce(cluster, group_coordinator(cluster, GROUP))
        case _:
            bounce(cluster, partition_of(cluster, TARGET).leader)


@pytest.mark.long
@pytest.mark.parametrize(("nodes", "version"), [("sparkraft", 2), ("sparkraft", 0), ("mixed", 2)])
def test_each_record_is_copied_once(
    tmp_path: Path, kafka_jars: Path, nodes: Literal["sparkraft", "mixed"], version: int
) -> None:
    """With transaction.version 0, the client adds partitions and keeps its epoch (KIP-890)."""
    records = (len(KILLS) + 1) * PER_KILL
    with Cluster(tmp_path, MEMBERS[nodes], overrides=SETTINGS, jars=kafka_jars) as cluster:
        if version == 0:
            kafkas(
                kafka_jars, "FeatureCommand", "--bootstrap-server", cluster.bootstrap,
                "downgrade", "--feature", "transaction.version=0",
            )  # fmt: skip
        wanted = prepare(cluster, kafka_jars, records)
        name = name_coordinated_by(
            cluster, FIRST_COORDINATOR[nodes], "copier", transaction_coordinator
        )
        copier = Copier(cluster, kafka_jars, name, records)
        with running(copier):
            for number, target in enumerate(KILLS):
                copier.until_copied(number * PER_KILL + PER_TRANSACTION)
                kill(target, cluster, copier)
            copier.until_copied(records)
            wait_until(lambda: not copier.is_running, "the copier ends", SECONDS)
        starts = 1 + KILLS.count("copier")
        assert (copier.exit_code, copier.starts) == (0, starts), copier.tail()
        check(cluster, kafka_jars, name, wanted)


def check(cluster: Cluster, jars: Path, name: str, wanted: list[str]) -> None:
    """Let Kafka's tools look at the result."""
    bootstrap = ("--bootstrap-server", cluster.bootstrap)

    def state() -> str:
        _, row = kafkas(
            jars, "TransactionsCommand", *bootstrap, "describe", "--transactional-id", name
        )
        return row[4]

    wait_until(lambda: state() == "CompleteCommit", "the last transaction is complete", 60)
    assert committed(jars, cluster, len(wanted) + 1) == wanted
    with RecordReader(cluster.bootstrap, TARGET, isolation="read_uncommitted") as reader:
        reader.until_read(len(wanted) + 1, seconds=60)  # the aborted records are in the log
    for broker in cluster.brokers:
        rows = kafkas(
            jars, "TransactionsCommand", *bootstrap, "find-hanging", "--broker-id", str(broker)
        )
        assert len(rows) == 1, rows
    header, row = kafkas(
        jars, "consumer.group.ConsumerGroupCommand", *bootstrap, "--describe", "--group", GROUP
    )
    offsets = dict(zip(header, row, strict=False))
    assert (offsets["CURRENT-OFFSET"], offsets["LAG"]) == (str(len(wanted)), "0"), offsets


@pytest.mark.long
def test_two_copiers_of_a_group_copy_each_record_once(tmp_path: Path, kafka_jars: Path) -> None:
    """A copier that has lost a partition must not commit its offsets any more (KIP-447)."""
    with Cluster(tmp_path, MEMBERS["sparkraft"], overrides=SETTINGS) as cluster:
        for topic in (SOURCE, TARGET):
            create_assigned(cluster, topic, [[1, 2, 3], [2, 3, 1]])
            until_in_sync(cluster, topic, 2, 3)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
        values = [[f"{index}-{n}" for n in range(SHARED_RECORDS)] for index in range(2)]
        for index, own in enumerate(values):
            for value in own:
                producer.produce(SOURCE, value, partition=index)
        assert producer.flush(60) == 0
        copiers = [
            Copier(cluster, kafka_jars, name, SHARED_RECORDS, subscribes=True)
            for name in ("first", "second")
        ]
        count = 2 * SHARED_RECORDS
        with RecordReader(cluster.bootstrap, TARGET, 2) as reader, running(*copiers):
            for number, target in enumerate(("copier", "group", "copier", "transactions")):
                reader.until_read(number * count // 5 + 1, seconds=SECONDS)
                kill(target, cluster, copiers[number // 2])
            reader.until_read(count, seconds=SECONDS)
            wait_until(
                lambda: not any(copier.is_running for copier in copiers), "both end", SECONDS
            )
            reader.poll(2)
        assert [copier.exit_code for copier in copiers] == [0, 0], copiers[0].tail()
        for index, own in enumerate(values):
            found = [value for _, value in reader.records if value.startswith(f"{index}-")]
            assert found == own
