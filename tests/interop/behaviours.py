"""What clients do beside producing and consuming, each behind one face: seek, resume, administer.

* `value_at` seeks by time and gives the first value from there on.
* `read_and_commit` reads as a group's member and commits exactly behind what it read.
* `administer` does the whole life of a topic and a group, and gives back what it saw.
"""

import asyncio
import json
import re
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.jvm import java
from tests.support.kafka_tools import run_kafka_tool
from tests.support.outside_tools import Missing, javascript_clients, kcat

SECONDS = 120

Report = dict[str, Any]

EXPECTED: Report = {
    "listed": True,
    "partitions": 3,
    "retention": "86400000",
    "retention altered": "3600000",
    "partitions grown": 5,
    "start": 4,
    "end": 10,
    "group listed": True,
    "group state": "empty",
    "committed": 7,
    "group deleted": True,
    "topic deleted": True,
}
"""What `administer` reports: 3 partitions grown to 5; 10 records of which 4 are deleted; a group
that committed 7."""


def fill(
    bootstrap: str, topic: str, values: list[str], timestamps: list[int] | None = None
) -> None:
    """Write values into partition 0."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap})
    for place, value in enumerate(values):
        given = {} if timestamps is None else {"timestamp": timestamps[place]}
        producer.produce(topic, value.encode(), partition=0, **given)
    assert producer.flush(SECONDS) == 0


def ten() -> list[str]:
    """The records `administer` writes."""
    return [str(number) for number in range(10)]


@dataclass
class Behaviour:
    """One client."""

    lacks: frozenset[str] = frozenset()
    """Keys of `EXPECTED` it has no call for."""

    def prepare(self) -> None:
        """Skip the test, with the reason, where the client can't be had."""

    def value_at(self, bootstrap: str, topic: str, timestamp: int) -> str | None:
        """The first value of partition 0 at or after `timestamp`; None behind the end."""
        raise NotImplementedError

    def read_and_commit(self, bootstrap: str, topic: str, group: str, count: int) -> list[str]:
        """`count` values from where the group stands; commits behind the last of them."""
        raise NotImplementedError

    def administer(self, bootstrap: str, topic: str) -> Report:
        """See `EXPECTED`."""
        raise NotImplementedError


class Confluent(Behaviour):
    def value_at(self, bootstrap: str, topic: str, timestamp: int) -> str | None:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "seek"})
        try:
            place = TopicPartition(topic, 0, timestamp)
            (found,) = consumer.offsets_for_times([place], timeout=SECONDS)
            if found.offset < 0:
                return None
            consumer.assign([found])
            return self._read(consumer, 1)[0]
        finally:
            consumer.close()

    def _read(self, consumer: Any, count: int) -> list[str]:
        seen: list[str] = []
        deadline = time.monotonic() + SECONDS
        while len(seen) < count and time.monotonic() < deadline:
            for message in consumer.consume(count - len(seen), timeout=0.5):
                assert message.error() is None, message.error()
                seen.append(message.value().decode())
        return seen

    def read_and_commit(self, bootstrap: str, topic: str, group: str, count: int) -> list[str]:
        from confluent_kafka import Consumer

        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([topic])
        try:
            seen = self._read(consumer, count)
            consumer.commit(asynchronous=False)
            return seen
        finally:
            consumer.close()

    def administer(self, bootstrap: str, topic: str) -> Report:
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
        from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

        admin = AdminClient({"bootstrap.servers": bootstrap})
        report: Report = {}
        new = NewTopic(topic, 3, 1, config={"retention.ms": "86400000"})
        admin.create_topics([new])[topic].result(SECONDS)
        described = admin.list_topics(timeout=SECONDS).topics
        report["listed"] = topic in described
        report["partitions"] = len(described[topic].partitions)
        report["retention"] = self._retention(admin, topic)
        self._alter_retention(admin, topic)
        report["retention altered"] = self._retention(admin, topic)
        admin.create_partitions([NewPartitions(topic, 5)])[topic].result(SECONDS)
        grown = admin.list_topics(topic, timeout=SECONDS).topics[topic]
        report["partitions grown"] = len(grown.partitions)
        fill(bootstrap, topic, ten())
        first = TopicPartition(topic, 0)
        deleted = admin.delete_records([TopicPartition(topic, 0, 4)])
        assert deleted[first].result(SECONDS).low_watermark == 4
        for name, spec in (("start", OffsetSpec.earliest()), ("end", OffsetSpec.latest())):
            report[name] = admin.list_offsets({first: spec})[first].result(SECONDS).offset
        group = f"group of {topic}"
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 7)])
        admin.alter_consumer_group_offsets([wanted])[group].result(SECONDS)
        listed = admin.list_consumer_groups().result(SECONDS).valid
        report["group listed"] = group in {one.group_id for one in listed}
        state = admin.describe_consumer_groups([group])[group].result(SECONDS).state
        report["group state"] = state.name.lower()
        asked = [ConsumerGroupTopicPartitions(group)]
        offsets = admin.list_consumer_group_offsets(asked)[group].result(SECONDS)
        report["committed"] = offsets.topic_partitions[0].offset
        admin.delete_consumer_groups([group])[group].result(SECONDS)
        listed = admin.list_consumer_groups().result(SECONDS).valid
        report["group deleted"] = group not in {one.group_id for one in listed}
        admin.delete_topics([topic])[topic].result(SECONDS)
        report["topic deleted"] = topic not in admin.list_topics(timeout=SECONDS).topics
        return report

    def _retention(self, admin: Any, topic: str) -> str:
        from confluent_kafka.admin import ConfigResource, ResourceType

        resource = ConfigResource(ResourceType.TOPIC, topic)
        value = admin.describe_configs([resource])[resource].result(SECONDS)["retention.ms"].value
        assert isinstance(value, str)
        return value

    def _alter_retention(self, admin: Any, topic: str) -> None:
        from confluent_kafka.admin import (
            AlterConfigOpType,
            ConfigEntry,
            ConfigResource,
            ResourceType,
        )

        entry = ConfigEntry("retention.ms", "3600000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(SECONDS)


class KafkaPython(Behaviour):
    def value_at(self, bootstrap: str, topic: str, timestamp: int) -> str | None:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
        try:
            place = TopicPartition(topic, 0)
            consumer.assign([place])
            found = consumer.offsets_for_times({place: timestamp})[place]
            if found is None:
                return None
            consumer.seek(place, found.offset)
            return self._read(consumer, 1)[0]
        finally:
            consumer.close()

    def _read(self, consumer: Any, count: int) -> list[str]:
        seen: list[str] = []
        deadline = time.monotonic() + SECONDS
        while len(seen) < count and time.monotonic() < deadline:
            for records in consumer.poll(500, max_records=count - len(seen)).values():
                seen += [bytes(record.value).decode() for record in records]
        return seen

    def read_and_commit(self, bootstrap: str, topic: str, group: str, count: int) -> list[str]:
        from kafka import KafkaConsumer

        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        # It may lead its group before it has heard of the topic, and then assigns nothing.
        assert consumer.partitions_for_topic(topic)
        try:
            seen = self._read(consumer, count)
            consumer.commit()
            return seen
        finally:
            consumer.close()

    def administer(self, bootstrap: str, topic: str) -> Report:
        from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
        from kafka.admin import NewPartitions, NewTopic
        from kafka.structs import OffsetAndMetadata

        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        consumer = KafkaConsumer(bootstrap_servers=bootstrap)
        report: Report = {}
        new = NewTopic(topic, 3, 1, topic_configs={"retention.ms": "86400000"})
        admin.create_topics([new], wait_for_metadata=True)
        report["listed"] = topic in admin.list_topics()
        report["partitions"] = len(admin.describe_topics([topic])[0]["partitions"])
        report["retention"] = self._retention(admin, topic)
        self._alter_retention(admin, topic)
        report["retention altered"] = self._retention(admin, topic)
        admin.create_partitions({topic: NewPartitions(5)})
        report["partitions grown"] = len(admin.describe_topics([topic])[0]["partitions"])
        fill(bootstrap, topic, ten())
        first = TopicPartition(topic, 0)
        admin.delete_records({first: 4})
        report["start"] = consumer.beginning_offsets([first])[first]
        report["end"] = consumer.end_offsets([first])[first]
        consumer.close()
        group = f"group of {topic}"
        admin.alter_group_offsets(group, {first: OffsetAndMetadata(7, "", -1)})
        report["group listed"] = group in str(admin.list_groups())
        described = admin.describe_groups([group])
        report["group state"] = "empty" if "'Empty'" in str(described) else described
        offsets = admin.list_group_offsets(group)
        report["committed"] = _offset_of(offsets, first)
        admin.delete_groups([group])
        report["group deleted"] = group not in str(admin.list_groups())
        admin.delete_topics([topic])
        report["topic deleted"] = topic not in admin.list_topics()
        admin.close()
        return report

    def _retention(self, admin: Any, topic: str) -> str:
        from kafka.admin import ConfigResource, ConfigResourceType

        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        value = admin.describe_configs([resource])["topic"][topic]["retention.ms"]["value"]
        assert isinstance(value, str)
        return value

    def _alter_retention(self, admin: Any, topic: str) -> None:
        from kafka.admin import ConfigResource, ConfigResourceType

        wanted = ConfigResource(
            ConfigResourceType.TOPIC, topic, configs={"retention.ms": "3600000"}
        )
        admin.alter_configs([wanted])


def _offset_of(offsets: Any, place: Any) -> int:
    """The offset of `place` in a mapping, perhaps inside one by group."""
    found = offsets.get(place)
    if found is None:
        found = next(iter(offsets.values()))[place]
    offset = found.offset
    assert isinstance(offset, int)
    return offset


class AioKafka(Behaviour):
    def value_at(self, bootstrap: str, topic: str, timestamp: int) -> str | None:
        return asyncio.run(self._value_at(bootstrap, topic, timestamp))

    async def _value_at(self, bootstrap: str, topic: str, timestamp: int) -> str | None:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
        await consumer.start()
        try:
            place = TopicPartition(topic, 0)
            consumer.assign([place])
            found = (await consumer.offsets_for_times({place: timestamp}))[place]
            if found is None:
                return None
            consumer.seek(place, found.offset)
            return (await self._read(consumer, 1))[0]
        finally:
            await consumer.stop()

    async def _read(self, consumer: Any, count: int) -> list[str]:
        async with asyncio.timeout(SECONDS):
            return [(await consumer.getone()).value.decode() for _ in range(count)]

    def read_and_commit(self, bootstrap: str, topic: str, group: str, count: int) -> list[str]:
        return asyncio.run(self._read_and_commit(bootstrap, topic, group, count))

    async def _read_and_commit(
        self, bootstrap: str, topic: str, group: str, count: int
    ) -> list[str]:
        from aiokafka import AIOKafkaConsumer

        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        try:
            seen = await self._read(consumer, count)
            await consumer.commit()
            return seen
        finally:
            await consumer.stop()

    def administer(self, bootstrap: str, topic: str) -> Report:
        return asyncio.run(self._administer(bootstrap, topic))

    async def _administer(self, bootstrap: str, topic: str) -> Report:
        from aiokafka import AIOKafkaConsumer, TopicPartition
        from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete

        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        report: Report = {}
        new = NewTopic(topic, 3, 1, topic_configs={"retention.ms": "86400000"})
        created = await admin.create_topics([new])
        assert created.topic_errors[0][1] == 0, created
        report["listed"] = topic in await admin.list_topics()
        report["partitions"] = len((await admin.describe_topics([topic]))[0]["partitions"])
        report["retention"] = await self._retention(admin, topic)
        await self._alter_retention(admin, topic)
        report["retention altered"] = await self._retention(admin, topic)
        await admin.create_partitions({topic: NewPartitions(5)})
        report["partitions grown"] = len((await admin.describe_topics([topic]))[0]["partitions"])
        await asyncio.to_thread(fill, bootstrap, topic, ten())
        first, group = TopicPartition(topic, 0), f"group of {topic}"
        await admin.delete_records({first: RecordsToDelete(before_offset=4)})
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False
        )
        await consumer.start()
        consumer.assign([first])
        report["start"] = (await consumer.beginning_offsets([first]))[first]
        report["end"] = (await consumer.end_offsets([first]))[first]
        await consumer.commit({first: 7})
        await consumer.stop()
        listed = await admin.list_consumer_groups()
        report["group listed"] = group in {one[0] for one in listed}
        described = await admin.describe_consumer_groups([group])
        report["group state"] = described[0].groups[0][2].lower()
        report["committed"] = (await admin.list_consumer_group_offsets(group))[first].offset
        await admin.delete_topics([topic])
        report["topic deleted"] = topic not in await admin.list_topics()
        await admin.close()
        return report

    async def _retention(self, admin: Any, topic: str) -> str:
        from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": None})
        (answer,) = await admin.describe_configs([resource])
        value = answer.resources[0][4][0][1]
        assert isinstance(value, str)
        return value

    async def _alter_retention(self, admin: Any, topic: str) -> None:
        from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

        wanted = ConfigResource(
            ConfigResourceType.TOPIC, topic, configs={"retention.ms": "3600000"}
        )
        (answer,) = await admin.alter_configs([wanted])
        assert answer.resources[0][0] == 0, answer


class Kcat(Behaviour):
    """kcat has no admin calls."""

    def prepare(self) -> None:
        found = kcat()
        if isinstance(found, Missing):
            pytest.skip(f"kcat: {found.reason}")
        self._program = found

    def value_at(self, bootstrap: str, topic: str, timestamp: int) -> str | None:
        asked = self._run("-Q", "-b", bootstrap, "-t", f"{topic}:0:{timestamp}")
        offset = int(asked.rpartition(" offset ")[2])
        base = ("-C", "-b", bootstrap, "-t", topic, "-p", "0", "-e")
        got = self._run(*base, "-o", f"s@{timestamp}", "-c", "1", "-f", "%o %s\n").split()
        assert got[:1] == ([] if offset < 0 else [str(offset)]), "-Q and -o s@ agree"
        return got[1] if got else None

    def read_and_commit(self, bootstrap: str, topic: str, group: str, count: int) -> list[str]:
        # In the group mode of kcat the options come first and the topics last.
        return self._run(
            "-b",
            bootstrap,
            "-X",
            "auto.offset.reset=earliest",
            "-c",
            str(count),
            "-G",
            group,
            topic,
        ).split()

    def _run(self, *options: str) -> str:
        done = subprocess.run(
            [str(self._program), *options],
            capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout


class KafkaJs(Behaviour):
    def prepare(self) -> None:
        found = javascript_clients()
        if isinstance(found, Missing):
            pytest.skip(f"kafkajs: {found.reason}")
        self._folder = found

    def value_at(self, bootstrap: str, topic: str, timestamp: int) -> str | None:
        found = self._run("seek", bootstrap, topic, str(timestamp))
        assert found is None or isinstance(found, str)
        return found

    def read_and_commit(self, bootstrap: str, topic: str, group: str, count: int) -> list[str]:
        found = self._run("resume", bootstrap, topic, group, str(count))
        assert isinstance(found, list)
        return found

    def administer(self, bootstrap: str, topic: str) -> Report:
        found = self._run("admin", bootstrap, topic)
        assert isinstance(found, dict)
        return found

    def _run(self, *arguments: str) -> Any:
        done = subprocess.run(
            ["node", "kafkajs_behaviour.js", *arguments],
            cwd=self._folder, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])


@dataclass
class JavaTools(Behaviour):
    """Kafka's own commands."""

    jars: Path = field(default=Path())

    def prepare(self) -> None:
        if java() is None:
            pytest.skip("Java tools: needs Java 17 or newer on the PATH")

    def value_at(self, bootstrap: str, topic: str, timestamp: int) -> str | None:
        found = self._run("GetOffsetShell", bootstrap, "--topic", topic, "--time", str(timestamp))
        offset = found.strip().removeprefix(f"{topic}:0:")
        if not offset:
            return None
        place = ("--topic", topic, "--partition", "0", "--offset", offset, "--max-messages", "1")
        return self._run("consumer.ConsoleConsumer", bootstrap, *place).strip()

    def read_and_commit(self, bootstrap: str, topic: str, group: str, count: int) -> list[str]:
        return self._run(
            "consumer.ConsoleConsumer", bootstrap, "--topic", topic, "--group", group,
            "--from-beginning", "--max-messages", str(count), "--timeout-ms", str(SECONDS * 500),
        ).split()  # fmt: skip

    def administer(self, bootstrap: str, topic: str) -> Report:
        report: Report = {}
        one = ("--topic", topic)

        def topics(*options: str) -> str:
            return self._run("TopicCommand", bootstrap, *options)

        topics("--create", *one, "--partitions", "3", "--config", "retention.ms=86400000")
        described = topics("--describe", *one)
        report["listed"] = topic in described
        report["partitions"] = described.count("Leader: 1")
        report["retention"] = _after("retention.ms=", described)
        entity = ("--entity-type", "topics", "--entity-name", topic)
        added = ("--alter", "--add-config", "retention.ms=3600000")
        self._run("kafka.admin.ConfigCommand", bootstrap, *entity, *added)
        topics("--alter", *one, "--partitions", "5")
        described = topics("--describe", *one)
        report["retention altered"] = _after("retention.ms=", described)
        report["partitions grown"] = described.count("Leader: 1")
        fill(bootstrap, topic, ten())
        places = [{"topic": topic, "partition": 0, "offset": 4}]
        wanted = self.work / f"{topic}.json"
        wanted.write_text(json.dumps({"partitions": places, "version": 1}))
        deleted = self._run("DeleteRecordsCommand", bootstrap, "--offset-json-file", str(wanted))
        report["start"] = int(_after("low_watermark: ", deleted))
        ends = self._run("GetOffsetShell", bootstrap, "--topic-partitions", f"{topic}:0")
        report["end"] = int(ends.strip().rpartition(":")[2])
        self._groups(bootstrap, topic, report)
        topics("--delete", *one)
        report["topic deleted"] = topic not in topics("--list").split()
        return report

    def _groups(self, bootstrap: str, topic: str, report: Report) -> None:
        group = ("--group", f"group-of-{topic}")

        def groups(*options: str) -> str:
            command = "consumer.group.ConsumerGroupCommand"
            return self._run(command, bootstrap, *options)

        groups("--reset-offsets", *group, "--topic", f"{topic}:0", "--to-offset", "7", "--execute")
        listed = groups("--list", "--state").lower().split()
        report["group listed"] = group[1] in listed
        report["group state"] = listed[listed.index(group[1]) + 1]
        described = groups("--describe", *group)
        report["committed"] = int(_after(rf"{group[1]}\s+{topic}\s+0\s+", described))
        groups("--delete", *group)
        report["group deleted"] = group[1] not in groups("--list").split()

    @property
    def work(self) -> Path:
        """Where files for the commands go."""
        return self._work

    def work_in(self, folder: Path) -> None:
        """Put them in `folder`."""
        self._work = folder

    def _run(self, command: str, bootstrap: str, *options: str) -> str:
        name = command if command.startswith("kafka.") else f"org.apache.kafka.tools.{command}"
        done = run_kafka_tool(self.jars, name, "--bootstrap-server", bootstrap, *options)
        assert done.returncode == 0, done.stdout + done.stderr
        assert " error" not in done.stderr, done.stderr
        return done.stdout


def _after(prefix: str, text: str) -> str:
    """The number that follows `prefix`, a pattern, in `text`."""
    found = re.search(rf"{prefix}(\d+)", text)
    assert found, text
    return found[1]


def all_behaviours(jars: Path, work: Path) -> dict[str, Behaviour]:
    """Every client by name; `work` is for files that commands want."""
    tools = JavaTools(jars=jars)
    tools.work_in(work)
    return {
        "confluent-kafka": Confluent(),
        "kafka-python": KafkaPython(),
        "aiokafka": AioKafka(lacks=frozenset({"group deleted"})),
        "kcat": Kcat(),
        "kafkajs": KafkaJs(),
        "java": tools,
    }


NAMES = tuple(all_behaviours(Path(), Path()))
