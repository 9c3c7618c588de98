"""Messages over HTTP from a real node: where reading begins, filters, bounds, following, export."""

import asyncio
import http.client
import json
import re
import shlex
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from sparkraft.base.errors import KafkaError
from sparkraft.cli import main as cli
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster
from sparkraft.client.producer import Producer, ProducerSettings
from sparkraft.client.transactional_producer import TransactionalProducer
from sparkraft.client.values import NewTopic
from sparkraft.console import messages
from sparkraft.console.message_command import command_of, note_of
from sparkraft.console.message_config import MessageConfig
from sparkraft.console.messages import MessageReader, Scan, TooManyScansError, parse_query
from sparkraft.console.record_text import RecordText
from sparkraft.records.compression import Codec
from tests.support.console import ConsoleProcess
from tests.support.nodes import SparkraftNode

pytestmark = pytest.mark.real_clients

COUNT = 60
FIRST_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkraftNode]:
    with SparkraftNode(tmp_path_factory.mktemp("node")) as node:
        asyncio.run(produce(node.bootstrap))
        yield node


async def produce(bootstrap: str) -> None:
    """Record n is in partition n mod 3, n seconds after the first."""
    async with Cluster(bootstrap) as cluster:
        kept = {"retention.ms": "-1"}  # The records are older than a week.
        topics = [
            NewTopic(name="m", partitions=3, configs=kept),
            NewTopic(name="live", partitions=1),
        ]
        await Admin(cluster).create_topics(topics)
        async with Producer(cluster) as producer:
            for number in range(COUNT):
                value = json.dumps({"n": number, "even": number % 2 == 0, "big": 2**60 + number})
                await producer.send(
                    "m", value.encode(), key=b"k%d" % number, partition=number % 3,
                    timestamp=FIRST_MS + 1000 * number, headers=[("h", b"\xff")],
                )  # fmt: skip


@pytest.fixture(scope="module")
def console(
    node: SparkraftNode, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleProcess]:
    with ConsoleProcess(node.bootstrap, tmp_path_factory.mktemp("console")) as console:
        yield console


def opened(console: ConsoleProcess, path: str, **values: object) -> http.client.HTTPResponse:
    host = console.address.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.request("GET", f"{path}?{urlencode(values)}", headers={"Host": host})
    return connection.getresponse()


def read(console: ConsoleProcess, **values: object) -> tuple[list[int], dict[str, Any]]:
    """The numbers in the records, and the end."""
    answer = opened(console, "/api/messages", topic="m", **values)
    lines = [json.loads(line) for line in answer.read().splitlines()]
    assert answer.status == 200, lines
    numbers = [
        json.loads(line["record"]["value"]["text"])["n"] for line in lines if "record" in line
    ]
    return numbers, lines[-1]["end"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"mode": "latest", "count": 4}, [59, 58, 57, 56]),
        ({"mode": "earliest", "count": 4}, [0, 1, 2, 3]),
        ({"mode": "from-offset", "at": 18, "partitions": "0"}, [54, 57]),
        ({"mode": "from-offset", "at": 99}, []),
        ({"mode": "to-offset", "at": 1, "partitions": "0,2"}, [5, 3, 2, 0]),
        ({"mode": "from-time", "at": FIRST_MS + 57_000}, [57, 58, 59]),
        ({"mode": "from-time", "at": FIRST_MS + 10**9}, []),
        ({"mode": "to-time", "at": FIRST_MS + 2_000}, [2, 1, 0]),
        ({"mode": "latest", "count": 3, "filter": "record.value.even"}, [58, 56, 54]),
        ({"mode": "earliest", "filter": "record.value.n >= 58"}, [58, 59]),
        ({"mode": "latest", "filter": "record.value.big == 1152921504606846977"}, [1]),
        ({"mode": "latest", "filter": "record.key == 'k7' && record.partition == 1"}, [7]),
    ],
)
def test_where_reading_begins_and_what_it_finds(
    console: ConsoleProcess, values: dict[str, object], expected: list[int]
) -> None:
    assert read(console, **values)[0] == expected


@pytest.mark.parametrize(
    ("values", "options", "note"),
    [
        ({"mode": "earliest"}, "--from-beginning --max-messages 100", None),
        ({"mode": "earliest", "partitions": "2", "count": "5"},
         "--partition 2 --offset earliest --max-messages 5", None),
        ({"mode": "from-offset", "at": "7", "partitions": "0"},
         "--partition 0 --offset 7 --max-messages 100", None),
        ({"mode": "from-offset", "at": "7"}, "--from-beginning", "from the first one on"),
        ({"mode": "latest"}, "--from-beginning", "from the first one on"),
        ({"mode": "to-time", "at": "5", "partitions": "1"}, "--partition 1 --offset earliest",
         "from the first one on"),
        ({"mode": "tail"}, "", None),
        ({"mode": "tail", "partitions": "1", "filter": "true"}, "--partition 1 --offset latest",
         "without the filter"),
        ({"mode": "earliest", "partitions": "0,1", "filter": "true"}, "--from-beginning",
         "of all partitions, without the filter"),
    ],
)  # fmt: skip
def test_the_command_of_a_scan(values: dict[str, str], options: str, note: str | None) -> None:
    for isolation, more in (("", "--isolation-level read_committed"), ("read_uncommitted", "")):
        query = parse_query({"topic": "a b", "isolation": isolation, **values})
        words = ["sparkraft console-consumer --bootstrap-server h:1 --topic 'a b'", options, more]
        assert command_of(query, "h:1") == " ".join([*filter(None, words), "--output json"])
        assert note_of(query) == (note and f"The command prints the records {note}.")


def test_the_command_prints_the_records_of_a_scan(
    console: ConsoleProcess, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    numbers, end = read(console, mode="from-offset", at=3, partitions="1", count=5)
    assert end["note"] is None
    words = shlex.split(end["command"])
    assert words[0] == "sparkraft"
    capfdbinary.readouterr()
    assert cli.main([*words[1:], "--timeout-ms", "10000"]) == 0
    printed = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [json.loads(one["value"])["n"] for one in printed] == numbers


@pytest.mark.parametrize("mode", ["latest", "earliest"])
def test_continuing_shows_every_record_once(console: ConsoleProcess, mode: str) -> None:
    seen: list[int] = []
    resume = ""
    for _ in range(COUNT):
        numbers, end = read(console, mode=mode, count=7, resume=resume)
        seen += numbers
        resume = end["resume"]
        if end["isDone"]:
            break
    order = list(range(COUNT))
    assert seen == (order if mode == "earliest" else order[::-1])


def test_errors_of_the_filter_are_counted(console: ConsoleProcess) -> None:
    numbers, end = read(console, mode="earliest", filter="record.value.none > 1")
    assert (numbers, end["scanned"], end["errors"]) == ([], COUNT, COUNT)
    assert (end["firstError"], end["isDone"]) == ("unknown name 'none'", True)


def test_a_record_has_its_key_headers_and_exact_numbers(console: ConsoleProcess) -> None:
    answer = opened(console, "/api/messages", topic="m", mode="earliest", count=1)
    record = json.loads(answer.readline())["record"]
    assert record["key"]["text"] == "k0"
    assert record["value"]["form"] == "json"
    assert str(2**60) in record["value"]["text"]
    assert record["headers"] == [
        ["h", {"form": "hex", "text": "ff", "size": 1, "isCut": False, "isExact": True, "note": ""}]
    ]
    assert (record["partition"], record["offset"], record["timestamp"]) == (0, 0, FIRST_MS)
    assert record["timestampType"] == "CreateTime"


def test_a_large_record_is_cut_in_a_list_and_whole_alone(
    node: SparkraftNode, console: ConsoleProcess
) -> None:
    value = json.dumps({"text": "é" * 40_000, "big": 2**60}, ensure_ascii=False)

    async def send() -> None:
        async with Cluster(node.bootstrap) as cluster:
            await Admin(cluster).create_topics([NewTopic(name="large", partitions=1)])
            async with Producer(cluster) as producer:
                await (await producer.send("large", value.encode(), headers=[("h", b"x" * 9_000)]))

    asyncio.run(send())
    place = {"topic": "large", "mode": "from-offset", "at": 0, "count": 1}
    cut, whole = [
        json.loads(opened(console, "/api/messages", **place, **more).readline())["record"]
        for more in ({}, {"whole": 1})
    ]
    assert (cut["value"]["isCut"], cut["value"]["isExact"]) == (True, False)
    assert len(cut["value"]["text"].encode()) <= 4_096
    assert (whole["value"]["text"], whole["value"]["isExact"]) == (value, True)
    assert len(whole["headers"][0][1]["text"]) == 9_000
    answer = opened(console, "/api/messages", **{**place, "count": 2, "whole": 1})
    assert (answer.status, b"single record" in answer.read()) == (400, True)


async def produce_batches(bootstrap: str) -> None:
    """A compressed batch of five records, and one of a transaction."""
    async with Cluster(bootstrap) as cluster:
        await Admin(cluster).create_topics([NewTopic(name="batches", partitions=1)])
        settings = ProducerSettings(linger_ms=60_000, codec=Codec.GZIP)
        async with Producer(cluster, settings) as producer:
            sent = [await producer.send("batches", b"x" * 100, partition=0) for _ in range(5)]
            await producer.flush()
            for one in sent:
                await one
        transactional = ProducerSettings(transactional_id="batches")
        async with TransactionalProducer(cluster, transactional) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await (await producer.send("batches", b"y", partition=0))
            await producer.commit_transaction()


def test_a_record_has_the_facts_of_its_batch_as_dump_log_prints_them(
    node: SparkraftNode, console: ConsoleProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(produce_batches(node.bootstrap))
    lines = opened(console, "/api/messages", topic="batches", mode="earliest").read().splitlines()
    records = [line["record"] for line in map(json.loads, lines) if "record" in line]
    assert [(one["offset"], one["batch"]["sequence"]) for one in records] == [
        (0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 0),
    ]  # fmt: skip
    (log,) = (node.log_dir / "batches-0").glob("*.log")
    capsys.readouterr()
    assert cli.main(["dump-log", "--files", str(log), "--output", "json"]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    batches = {one["baseOffset"]: one for one in printed if "baseOffset" in one}
    assert (batches[0]["count"], batches[0]["compression"]) == (5, "gzip")
    assert batches[5]["isTransactional"]
    for record in records:
        facts = {name: value for name, value in record["batch"].items() if name != "sequence"}
        assert facts.items() <= batches[facts["baseOffset"]].items()
        assert len(facts) > 10


@pytest.mark.parametrize(
    ("values", "status"),
    [
        ({"topic": "none"}, 404),
        ({"topic": "m", "partitions": "7"}, 404),
        ({"topic": "m", "mode": "sideways"}, 400),
        ({"topic": "m", "count": 0}, 400),
        ({"topic": "m", "count": 1001}, 400),
        ({"topic": "m", "at": "soon"}, 400),
        ({"topic": "m", "at": 2**63}, 400),
        ({"topic": "m", "resume": "0"}, 400),
        ({"topic": "m", "filter": "record."}, 400),
        ({}, 400),
    ],
)
def test_wrong_requests_are_refused_before_reading(
    console: ConsoleProcess, values: dict[str, object], status: int
) -> None:
    assert opened(console, "/api/messages", **values).status == status


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"mode": "from-time", "at": "noon"},
         "expected a time in UTC such as 2026-01-31 12:00:00, got 'noon'"),
        ({"mode": "from-offset", "at": "2026-01-31"},
         f"expected a whole number from 0 to {2**63 - 1} for the offset, got '2026-01-31'"),
        ({"partitions": "0,x"},
         f"expected a whole number from 0 to {2**31 - 1} for partitions, got 'x'"),
        ({"count": "all"}, "expected a whole number from 1 to 1000 for count, got 'all'"),
    ],
)  # fmt: skip
def test_what_a_reader_types_is_named_if_it_is_wrong(values: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}$"):
        parse_query({"topic": "m", **values})


def test_times_may_be_typed() -> None:
    for text in ("2023-11-14 22:13:20", " 2023-11-14T22:13:20Z ", str(FIRST_MS)):
        assert parse_query({"topic": "m", "mode": "to-time", "at": text}).at == FIRST_MS
    assert parse_query({"topic": "m", "mode": "from-time", "at": " "}).at == 0


def test_an_export_is_what_the_command_prints(
    node: SparkraftNode, console: ConsoleProcess, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    answer = opened(console, "/api/export", topic="m", mode="earliest", count=5, partitions="1")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="m.jsonl"'
    exported = answer.read()
    words = ["--topic", "m", "--partition", "1", "--offset", "earliest", "--max-messages", "5"]
    capfdbinary.readouterr()
    command = ["console-consumer", "--bootstrap-server", node.bootstrap, "--output", "json"]
    assert cli.main([*command, *words]) == 0
    assert exported == capfdbinary.readouterr().out
    assert len(exported.splitlines()) == 5


def test_following_shows_new_records_at_a_limited_rate(
    node: SparkraftNode, console: ConsoleProcess
) -> None:
    many = 5 * messages.TAIL_RECORDS_PER_SECOND

    async def send() -> None:
        async with Cluster(node.bootstrap) as cluster, Producer(cluster) as producer:
            sent = [await producer.send("live", b"%d" % n) for n in range(many)]
            await asyncio.gather(*sent)

    answer = opened(console, "/api/messages", topic="live", mode="tail")
    assert "progress" in json.loads(answer.readline())
    asyncio.run(send())
    began = time.monotonic()
    seen: list[int] = []
    passed = 0
    while len(seen) + passed < many:
        line = json.loads(answer.readline())
        if "record" in line:
            seen.append(int(line["record"]["value"]["text"]))
        else:
            passed = line["progress"]["passed"]
    allowed = messages.TAIL_RECORDS_PER_SECOND * (2 + time.monotonic() - began)
    assert passed > 0
    assert len(seen) <= allowed
    assert seen[-1] == many - 1
    assert seen == sorted(seen)
    answer.close()


def test_a_page_that_goes_away_ends_its_scan(node: SparkraftNode, console: ConsoleProcess) -> None:
    for _ in range(messages.SCANS_MAX + 2):
        answer = opened(console, "/api/messages", topic="live", mode="tail")
        deadline = time.monotonic() + 60
        while answer.status == 503 and time.monotonic() < deadline:
            answer = opened(console, "/api/messages", topic="live", mode="tail")
        assert answer.status == 200
        answer.readline()
        answer.close()


def test_scans_are_bounded(node: SparkraftNode) -> None:
    async def work() -> None:
        async with Cluster(node.bootstrap) as cluster:
            reader = MessageReader(cluster, RecordText(MessageConfig()), bootstrap="h:1")
            query = parse_query({"topic": "live", "mode": "tail"})
            running = []
            for _ in range(messages.SCANS_MAX):
                items = reader.run(await reader.prepare(query))
                await anext(items)
                running.append(items)
            with pytest.raises(TooManyScansError):
                await reader.prepare(query)
            await running[0].aclose()
            reader.release(await reader.prepare(query))
            for items in running:
                await items.aclose()

    asyncio.run(work())


def test_scans_that_are_prepared_at_the_same_time_are_bounded(node: SparkraftNode) -> None:
    async def work() -> None:
        async with Cluster(node.bootstrap) as cluster:
            reader = MessageReader(cluster, RecordText(MessageConfig()), bootstrap="h:1")
            query = parse_query({"topic": "live", "mode": "tail"})
            wanted = messages.SCANS_MAX + 3
            found = await asyncio.gather(
                *(reader.prepare(query) for _ in range(wanted)), return_exceptions=True
            )
            scans = [one for one in found if isinstance(one, Scan)]
            assert len(scans) == messages.SCANS_MAX
            assert sum(isinstance(one, TooManyScansError) for one in found) == 3
            for scan in scans:
                reader.release(scan)
            unknown = parse_query({"topic": "none", "mode": "tail"})
            for _ in range(messages.SCANS_MAX + 1):
                with pytest.raises(KafkaError):
                    await reader.prepare(unknown)
            await reader.prepare(query)

    asyncio.run(work())


def test_records_that_are_read_again_are_counted_once(
    node: SparkraftNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "WINDOW_BYTES_MAX", 200)
    values = {"topic": "m", "count": "1000", "filter": "record.value.even || record.value.none"}

    async def work() -> None:
        async with Cluster(node.bootstrap) as cluster:
            scan = Scan(cluster, parse_query(values), RecordText(MessageConfig()), bootstrap="h:1")
            await scan.find_bounds()
            ends = [item async for item in scan.run() if isinstance(item, dict) and "end" in item]
            counts = [ends[0]["end"][name] for name in ("scanned", "matched", "errors")]
            assert counts == [COUNT, COUNT // 2, COUNT // 2]

    asyncio.run(work())


def test_large_records_are_read_in_smaller_windows(
    node: SparkraftNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "WINDOW_BYTES_MAX", 200)

    async def work() -> None:
        async with Cluster(node.bootstrap) as cluster:
            query = parse_query({"topic": "m", "count": "10"})
            scan = Scan(cluster, query, RecordText(MessageConfig()), bootstrap="h:1")
            await scan.find_bounds()
            found = [item.key async for item in scan.run() if not isinstance(item, dict)]
            assert found == [b"k%d" % n for n in range(COUNT - 1, COUNT - 11, -1)]

    asyncio.run(work())
