"""The console over a node of Apache Kafka: what it shows, and what it says is not available."""

import asyncio
import http.client
import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from sparkraft.client.cluster import Cluster as Client
from sparkraft.client.producer import Producer
from tests.support.clusters import Cluster
from tests.support.console import ConsoleProcess

pytestmark = [pytest.mark.real_clients, pytest.mark.java, pytest.mark.shared_kafka]

TOPIC = "shown-by-the-console"
NOW_MS = int(time.time() * 1000)


async def produce(bootstrap: str) -> None:
    async with Client(bootstrap) as client, Producer(client) as producer:
        for number in (1, 2, 3):
            value = json.dumps({"n": number}).encode()
            await (await producer.send(TOPIC, value, partition=0, timestamp=NOW_MS + number))


def document(console: ConsoleProcess, path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(body(console, path))
    return found


def body(console: ConsoleProcess, path: str) -> bytes:
    host = console.address.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.request("GET", path, headers={"Host": host})
    answer = connection.getresponse()
    content = answer.read()
    assert answer.status == 200, content
    return content


def test_kafka_has_a_present_and_no_history(shared_kafka: Cluster, tmp_path: Path) -> None:
    shared_kafka.create_topic(TOPIC, partitions=2, replicas=1)
    with ConsoleProcess(shared_kafka.bootstrap, tmp_path) as console:
        cluster = document(console, "/api/cluster")
        assert cluster["health"]["level"] in {"ok", "warning"}
        assert cluster["controller"]["id"] == 1
        quorum = document(console, "/api/quorum")
        assert "only sparkraft's nodes keep such a journal" in quorum["silent"][0]["reason"]
        topics = {one["topic"] for one in document(console, "/api/topics")["topics"]}
        assert TOPIC in topics
        topic = document(console, f"/api/topic?topic={quote(TOPIC)}")
        assert [one["leader"] for one in topic["partitions"]] == [1, 1]
        assert [one["end"] for one in topic["offsets"]] == [0, 0]
        assert topic["historyProblem"]
        partition = document(console, f"/api/partition?topic={quote(TOPIC)}&partition=1")
        assert (partition["leader"], partition["isr"]) == (1, [1])
        assert partition["historyProblem"]
        broker = document(console, "/api/broker?broker=1")
        assert broker["state"] == "serving"
        assert broker["leads"] == broker["replicas"] >= 2
        assert "no node could be queried" in broker["historyProblem"]
        assert document(console, "/api/broker?broker=9")["state"] == "fenced or not registered"
        assert "groups" in document(console, "/api/groups")
        asyncio.run(produce(shared_kafka.bootstrap))
        filtered = f"topic={quote(TOPIC)}&filter={quote('record.value.n > 1')}"
        lines = body(console, f"/api/messages?{filtered}").splitlines()
        found = [json.loads(line) for line in lines]
        values = [line["record"]["value"]["text"] for line in found if "record" in line]
        assert values == ['{"n": 3}', '{"n": 2}']
        assert found[-1]["end"]["isDone"]
