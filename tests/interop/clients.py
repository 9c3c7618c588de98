"""Every client of the matrix behind one face: produce these records, consume that many.

A record is (key, value, headers) of text or None; what a client can't express is said in its
`codecs`, `reads` and `null_values`. Each client runs as its users run
it: a library here in its own event loop or thread, a program as a process.
"""

import asyncio
import json
import subprocess
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.jvm import java
from tests.support.kafka_tools import run_kafka_tool
from tests.support.outside_tools import Missing, javascript_clients, kcat

ALL_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PLAIN_CODECS = ("none", "gzip")
SECONDS = 120


class Sent(NamedTuple):
    """A record as the matrix knows it."""

    key: str | None
    value: str | None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass
class Client:
    """One client; `produce` and `consume` are what a subclass gives."""

    name: str = ""
    codecs: tuple[str, ...] = ALL_CODECS
    reads: tuple[str, ...] = ALL_CODECS
    null_values: bool = True
    null_keys: bool = True

    def prepare(self) -> None:
        """Skip the test, with the reason, where the client can't be had."""

    def produce(self, bootstrap: str, topic: str, records: list[Sent], codec: str) -> None:
        """Write `records` in order and return once they are acknowledged."""
        raise NotImplementedError

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Sent]:
        """Read `count` records from the start of the topic."""
        raise NotImplementedError


def _encode(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _decode(data: bytes | None) -> str | None:
    return None if data is None else bytes(data).decode()


def _headers_in(headers: Any) -> tuple[tuple[str, str], ...]:
    return tuple((key, bytes(value).decode()) for key, value in headers or ())


class Confluent(Client):
    """confluent-kafka, librdkafka 2.16."""

    def produce(self, bootstrap: str, topic: str, records: list[Sent], codec: str) -> None:
        from confluent_kafka import Producer

        failures: list[Any] = []
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
        for key, value, headers in records:
            producer.produce(
                topic,
                key=_encode(key),
                value=_encode(value),
                headers=[(name, text.encode()) for name, text in headers],
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        assert producer.flush(SECONDS) == 0
        assert failures == []

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Sent]:
        from confluent_kafka import Consumer

        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"matrix-{uuid.uuid4()}",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([topic])
        seen = []
        for _ in range(SECONDS * 2):
            for message in consumer.consume(count - len(seen), timeout=0.5):
                assert message.error() is None, message.error()
                headers = _headers_in(message.headers())
                seen.append(Sent(_decode(message.key()), _decode(message.value()), headers))
            if len(seen) >= count:
                break
        consumer.close()
        return seen


class KafkaPython(Client):
    """kafka-python 3."""

    def produce(self, bootstrap: str, topic: str, records: list[Sent], codec: str) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec
        )
        futures = [
            producer.send(
                topic,
                key=_encode(key),
                value=_encode(value),
                headers=[(name, text.encode()) for name, text in headers],
            )
            for key, value, headers in records
        ]
        for future in futures:
            future.get(SECONDS)
        producer.close()

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Sent]:
        from kafka import KafkaConsumer

        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=f"matrix-{uuid.uuid4()}",
            auto_offset_reset="earliest",
            consumer_timeout_ms=SECONDS * 500,
        )
        # It may lead its group before it has heard of the topic, and then assigns nothing.
        assert consumer.partitions_for_topic(topic)
        seen = []
        for message in consumer:
            headers = _headers_in(message.headers)
            seen.append(Sent(_decode(message.key), _decode(message.value), headers))
            if len(seen) >= count:
                break
        consumer.close()
        return seen


class AioKafka(Client):
    """aiokafka 0.14."""

    def produce(self, bootstrap: str, topic: str, records: list[Sent], codec: str) -> None:
        asyncio.run(self._produce(bootstrap, topic, records, codec))

    async def _produce(self, bootstrap: str, topic: str, records: list[Sent], codec: str) -> None:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec
        )
        await producer.start()
        try:
            for key, value, headers in records:
                pairs = [(name, text.encode()) for name, text in headers]
                await producer.send(topic, key=_encode(key), value=_encode(value), headers=pairs)
            await asyncio.wait_for(producer.flush(), SECONDS)
        finally:
            await producer.stop()

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Sent]:
        return asyncio.run(self._consume(bootstrap, topic, count))

    async def _consume(self, bootstrap: str, topic: str, count: int) -> list[Sent]:
        from aiokafka import AIOKafkaConsumer

        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=f"matrix-{uuid.uuid4()}",
            auto_offset_reset="earliest",
        )
        await consumer.start()
        seen = []
        try:
            async with asyncio.timeout(SECONDS):
                while len(seen) < count:
                    message = await consumer.getone()
                    headers = _headers_in(message.headers)
                    seen.append(Sent(_decode(message.key), _decode(message.value), headers))
        finally:
            await consumer.stop()
        return seen


class Kcat(Client):
    """kcat 1.7, librdkafka 2.0: an older generation of the same family."""

    def prepare(self) -> None:
        found = kcat()
        if isinstance(found, Missing):
            pytest.skip(f"kcat: {found.reason}")
        self._program = found

    def produce(self, bootstrap: str, topic: str, records: list[Sent], codec: str) -> None:
        # Headers are per run of kcat, so records that share headers go in one run, in order.
        runs: list[tuple[tuple[tuple[str, str], ...], list[Sent]]] = []
        for record in records:
            if not runs or runs[-1][0] != record.headers:
                runs.append((record.headers, []))
            runs[-1][1].append(record)
        for headers, group in runs:
            text = "".join(f"{r.key or ''}\x1f{r.value or ''}\n" for r in group)
            options = [part for name, value in headers for part in ("-H", f"{name}={value}")]
            self._run(
                ["-P", "-b", bootstrap, "-t", topic, "-K", "\x1f", "-Z", "-z", codec, *options],
                text,
            )

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Sent]:
        output = self._run(
            ["-C", "-b", bootstrap, "-t", topic, "-o", "beginning", "-c", str(count), "-J"], None
        )
        seen = []
        for line in output.splitlines():
            record = json.loads(line)
            flat = record.get("headers") or []
            headers = tuple(zip(flat[::2], flat[1::2], strict=True))
            seen.append(Sent(record["key"], record["payload"], headers))
        return seen

    def _run(self, options: list[str], text: str | None) -> str:
        done = subprocess.run(
            [str(self._program), *options],
            input=text, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout


@dataclass
class JavaScript(Client):
    """A JavaScript client, through its script in `js/`."""

    script: str = ""

    def prepare(self) -> None:
        found = javascript_clients()
        if isinstance(found, Missing):
            pytest.skip(f"{self.name}: {found.reason}")
        self._folder = found

    def produce(self, bootstrap: str, topic: str, records: list[Sent], codec: str) -> None:
        shaped = [{"key": r.key, "value": r.value, "headers": r.headers} for r in records]
        self._run(["produce", bootstrap, topic, codec], json.dumps(shaped))

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Sent]:
        output = self._run(["consume", bootstrap, topic, str(count)], "")
        return [
            Sent(record["key"], record["value"], tuple(tuple(pair) for pair in record["headers"]))
            for record in json.loads(output.splitlines()[-1])
        ]

    def _run(self, arguments: list[str], text: str) -> str:
        done = subprocess.run(
            ["node", self.script, *arguments],
            cwd=self._folder, input=text, capture_output=True, text=True, timeout=SECONDS,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout


@dataclass
class JavaConsole(Client):
    """Kafka's own console producer and consumer."""

    jars: Path = field(default=Path())

    def prepare(self) -> None:
        if java() is None:
            pytest.skip("Java console clients: needs Java 17 or newer on the PATH")

    def produce(self, bootstrap: str, topic: str, records: list[Sent], codec: str) -> None:
        lines = []
        for key, value, headers in records:
            pairs = ",".join(f"{name}:{text}" for name, text in headers) or "NULL"
            lines.append(f"{pairs}\t{'NULL' if key is None else key}\t"
                         f"{'NULL' if value is None else value}\n")  # fmt: skip
        done = run_kafka_tool(
            self.jars, "org.apache.kafka.tools.ConsoleProducer",
            "--bootstrap-server", bootstrap, "--topic", topic, "--compression-codec", codec,
            "--reader-property", "parse.headers=true", "--reader-property", "parse.key=true",
            "--reader-property", "null.marker=NULL",
            stdin="".join(lines),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "Exception" not in done.stderr, done.stderr

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Sent]:
        done = run_kafka_tool(
            self.jars, "org.apache.kafka.tools.consumer.ConsoleConsumer",
            "--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning",
            "--max-messages", str(count), "--timeout-ms", str(SECONDS * 500),
            "--formatter-property", "print.headers=true", "--formatter-property", "print.key=true",
            "--formatter-property", "null.literal=NULL",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        seen = []
        for line in done.stdout.splitlines():
            pairs, key, value = line.split("\t")
            headers = (
                ()
                if pairs == "NO_HEADERS"
                else tuple(tuple(pair.split(":", 1)) for pair in pairs.split(","))
            )
            texts = [None if text == "NULL" else text for text in (key, value)]
            seen.append(Sent(texts[0], texts[1], headers))  # type: ignore[arg-type]
        return seen


def all_clients(jars: Path) -> dict[str, Client]:
    """Every client by name."""
    return {
        "confluent-kafka": Confluent("confluent-kafka"),
        "kafka-python": KafkaPython("kafka-python"),
        "aiokafka": AioKafka("aiokafka"),
        "kcat": Kcat("kcat"),
        "kafkajs": JavaScript(
            "kafkajs", codecs=PLAIN_CODECS, reads=PLAIN_CODECS, script="kafkajs_client.js"
        ),
        # It can't read snappy as Java frames it, nor zstd before Node 22; with Kafka just so.
        "platformatic": JavaScript(
            "platformatic",
            codecs=(*PLAIN_CODECS, "snappy", "lz4"),
            reads=(*PLAIN_CODECS, "lz4"),
            null_values=False,
            script="platformatic_client.js",
        ),
        "java-console": JavaConsole("java-console", jars=jars),
    }


NAMES = tuple(all_clients(Path()))
