"""Decoded and masked records over HTTP, from a real node, a registry and a console with a file."""

import asyncio
import base64
import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from playwright.async_api import expect

from sparkraft.cli import main as cli
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster
from sparkraft.client.producer import Producer
from sparkraft.client.values import NewTopic
from sparkraft.console.record_text import FORMS
from tests.support.console import Browser, ConsoleProcess
from tests.support.nodes import SparkraftNode
from tests.support.schema_registry import SchemaRegistry

pytestmark = pytest.mark.real_clients

BIG = 2**62 + 1
FLIGHT = {
    "type": "record", "name": "Flight",
    "fields": [{"name": "id", "type": "long"}, {"name": "origin", "type": "string"}],
}  # fmt: skip
PROTO = 'syntax = "proto3"; message Before {} message Flight { int64 id = 1; string origin = 2; }'
PROTO_BYTES = b"\x08\x81\x80\x80\x80\x80\x80\x80\x80\x40\x12\x03JFK"
TEXT = rb'{"origin": "JFK", "fare": [1.10, 0.12345678901234567890, 1e400], "half": "\ud800"}'
SECRET = "4111222233334444"
PAYMENT = {"card": {"number": SECRET, "kind": "debit"}, "amount": 5}
CONFIG = """
registry = "{registry}"
[[schema]]
topic = "by-file"
format = "protobuf"
file = "flight.proto"
message = "Flight"
[[schema]]
topic = "by-file"
part = "key"
format = "avro"
file = "id.avsc"
[[mask]]
topic = "pay.*"
fields = ["value.card.number", "headers.token", "key"]
action = "mask"
"""


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as started:
        yield started


@pytest.fixture(scope="module")
def node(
    registry: SchemaRegistry, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkraftNode]:
    with SparkraftNode(tmp_path_factory.mktemp("node")) as node:
        asyncio.run(produce(node.bootstrap, registry))
        yield node


async def produce(bootstrap: str, registry: SchemaRegistry) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    serializer = AvroSerializer(client, json.dumps(FLIGHT))
    context = SerializationContext("by-registry", MessageField.VALUE)
    avro = serializer({"id": BIG, "origin": "JFK"}, context)
    number = registry.register("p", {"schema": PROTO, "schemaType": "PROTOBUF"})
    frame = b"\0" + number.to_bytes(4, "big")
    text = registry.register("j", {"schema": "{}", "schemaType": "JSON"})
    sent: list[tuple[str, bytes | None, bytes]] = [
        ("by-registry", None, avro),
        ("by-registry", None, frame + b"\x02\x02" + PROTO_BYTES),
        ("by-registry", None, b"\0" + text.to_bytes(4, "big") + TEXT),
        ("by-registry", None, b"\0\0\0\x03\xe7rest"),
        ("by-file", b"\x0e", PROTO_BYTES),
        ("by-form", b"\xa1k", b"\x82\xa2id\xcf\x40\0\0\0\0\0\0\x01\xa6origin\xa3JFK"),
        ("by-form", b"k", PROTO_BYTES),
        ("payments", SECRET.encode(), json.dumps(PAYMENT).encode()),
        ("payments", SECRET.encode(), f"card={SECRET}".encode()),
    ]
    async with Cluster(bootstrap) as cluster, Producer(cluster) as producer:
        names = sorted({topic for topic, _, _ in sent})
        await Admin(cluster).create_topics([NewTopic(name=name, partitions=1) for name in names])
        for topic, key, value in sent:
            headers = [("token", SECRET.encode())] if topic == "payments" else []
            await (await producer.send(topic, value, key=key, headers=headers))


@pytest.fixture(scope="module")
def console(
    node: SparkraftNode, registry: SchemaRegistry, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleProcess]:
    folder = tmp_path_factory.mktemp("console")
    (folder / "flight.proto").write_text(PROTO)
    (folder / "id.avsc").write_text('"int"')
    (folder / "console.toml").write_text(CONFIG.format(registry=registry.url))
    options = ["--config", str(folder / "console.toml")]
    with ConsoleProcess(node.bootstrap, folder, options) as console:
        yield console


def opened(console: ConsoleProcess, path: str, **values: object) -> http.client.HTTPResponse:
    host = console.address.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.request("GET", f"{path}?{urlencode(values)}", headers={"Host": host})
    return connection.getresponse()


def records(console: ConsoleProcess, topic: str, **values: object) -> list[dict[str, Any]]:
    answer = opened(console, "/api/messages", topic=topic, mode="earliest", **values)
    lines = [json.loads(line) for line in answer.read().splitlines()]
    assert answer.status == 200, lines
    return [line["record"] for line in lines if "record" in line]


def shown(part: dict[str, Any]) -> tuple[str, str, str]:
    return part["form"], part["text"], part["note"]


def test_values_are_decoded_by_the_registry(console: ConsoleProcess) -> None:
    avro, proto, text, unknown = [one["value"] for one in records(console, "by-registry")]
    expected = f'{{"id": {BIG}, "origin": "JFK"}}'
    assert shown(avro) == ("avro", expected, "schema 1 of the registry")
    assert shown(proto) == ("protobuf", expected, "Flight of schema 2 of the registry")
    assert shown(text) == ("json", TEXT.decode(), "schema 3 of the registry")
    assert (unknown["form"], unknown["note"]) == ("hex", "the registry has no schema 999")


def test_values_are_decoded_by_files(console: ConsoleProcess) -> None:
    (one,) = records(console, "by-file")
    expected = f'{{"id": {2**62 + 1}, "origin": "JFK"}}'
    assert shown(one["value"]) == ("protobuf", expected, "by the configuration: Flight")
    assert shown(one["key"]) == ("avro", "7", "")


def test_a_page_chooses_the_decoders(console: ConsoleProcess) -> None:
    packed, proto = records(console, "by-form", keyForm="messagepack", form="messagepack")
    assert shown(packed["value"]) == ("messagepack", f'{{"id": {BIG}, "origin": "JFK"}}', "")
    assert shown(packed["key"]) == ("messagepack", '"k"', "")
    assert proto["value"]["form"] == "hex"
    assert proto["value"]["note"].startswith("not decoded: ")
    _, proto = records(console, "by-form", form="protobuf")
    assert json.loads(proto["value"]["text"]) == {"1": BIG, "2": "JFK"}
    assert proto["value"]["note"] == "by wire type, without a schema"
    avro, _ = records(console, "by-form", form="avro")
    assert avro["value"]["note"] == "neither the configuration nor a registry has an Avro schema"
    assert opened(console, "/api/messages", topic="by-form", form="xml").status == 400


@pytest.mark.parametrize(
    ("topic", "values", "count"),
    [
        ("by-registry", {"filter": f"record.value.id == {BIG}"}, 2),
        ("by-registry", {"filter": "record.value.origin == 'JFK'"}, 3),
        ("by-file", {"filter": f"record.value.id == {BIG} && record.key == 7"}, 1),
        ("by-form", {"filter": f"record.value.id == {BIG}"}, 0),
        ("by-form", {"filter": f"record.value.id == {BIG}", "form": "messagepack"}, 1),
        ("by-form", {"filter": "record.value['2'] == 'JFK'", "form": "protobuf"}, 1),
    ],
)
def test_a_filter_sees_decoded_values(
    console: ConsoleProcess, topic: str, values: dict[str, str], count: int
) -> None:
    assert len(records(console, topic, **values)) == count


def hidden_forms() -> list[bytes]:
    raw = SECRET.encode()
    return [raw, raw.hex().encode(), raw.hex(" ").encode(), base64.b64encode(raw)[:-2]]


@pytest.mark.parametrize("form", FORMS)
def test_no_decoder_shows_a_masked_field(console: ConsoleProcess, form: str) -> None:
    for mode in ("earliest", "latest", "from-offset"):
        answer = opened(
            console, "/api/messages", topic="payments", mode=mode, form=form, keyForm=form
        )
        body = answer.read()
        assert body.count(b'"record"') == 2
        assert not [each for each in hidden_forms() if each in body]
    whole, text = records(console, "payments", form=form, keyForm=form)
    assert json.loads(whole["value"]["text"]) == {
        "card": {"number": "***", "kind": "debit"}, "amount": 5,
    }  # fmt: skip
    assert (text["value"]["text"], text["key"]["text"]) == ("***", "***")
    assert whole["headers"][0][1]["text"] == "***"
    assert whole["isMasked"], "the page offers no sending of it"


@pytest.mark.parametrize(
    "expression",
    [
        f"record.value.card.number == '{SECRET}'",
        f"record.valueAsText.contains('{SECRET}')",
        "record.valueAsText.contains('4111')",
        "record.valueAsText.matches('[0-9]{16}')",
        "record.value.card.number.startsWith('4')",
        "record.value.card.number.matches('^4.*4$')",
        f"'{SECRET}' in record.value.card",
        f"record.value.card.number in ['{SECRET}']",
        "size(record.value.card.number) == 16",
        f"size(record.valueAsText) == {len(json.dumps(PAYMENT))}",
        "record.value.card.number > '4'",
        f"record.key == '{SECRET}'",
        "record.keyAsText.contains('4111')",
        f"record.headers.token == '{SECRET}'",
        "size(record.headers.token) > 3",
    ],
)
def test_no_filter_finds_a_record_by_a_masked_field(
    console: ConsoleProcess, expression: str
) -> None:
    for form in FORMS:
        found = records(console, "payments", filter=expression, form=form, keyForm=form)
        assert found == []
        answer = opened(console, "/api/export", topic="payments", filter=expression, form=form)
        assert answer.read() == b""


def test_a_filter_on_other_fields_finds_it(console: ConsoleProcess) -> None:
    assert len(records(console, "payments", filter="record.value.card.kind == 'debit'")) == 1
    assert len(records(console, "payments", filter="record.value.card.number == '***'")) == 1


def test_no_export_has_a_masked_field(console: ConsoleProcess) -> None:
    body = opened(console, "/api/export", topic="payments", mode="earliest", count=10).read()
    first, second = [json.loads(line) for line in body.splitlines()]
    assert not [each for each in hidden_forms() if each in body]
    assert json.loads(first["value"])["card"] == {"number": "***", "kind": "debit"}
    assert (second["value"], first["key"], first["headers"]) == ("***", "***", [["token", "***"]])


def test_following_shows_no_masked_field(node: SparkraftNode, console: ConsoleProcess) -> None:
    async def send() -> None:
        async with Cluster(node.bootstrap) as cluster, Producer(cluster) as producer:
            await (await producer.send("pay-later", json.dumps(PAYMENT).encode()))

    async def create() -> None:
        async with Cluster(node.bootstrap) as cluster:
            await Admin(cluster).create_topics([NewTopic(name="pay-later", partitions=1)])

    asyncio.run(create())
    answer = opened(console, "/api/messages", topic="pay-later", mode="tail", form="hex")
    assert "progress" in json.loads(answer.readline())
    asyncio.run(send())
    line = answer.readline()
    while b'"record"' not in line:
        line = answer.readline()
    assert not [each for each in hidden_forms() if each in line]
    answer.close()


def test_errors_of_a_filter_show_no_masked_field(console: ConsoleProcess) -> None:
    for expression in ("'a'.matches(record.value.card.number)", "record[record.value.card.number]"):
        answer = opened(
            console, "/api/messages", topic="payments", mode="earliest", filter=expression
        )
        body = answer.read()
        assert b'"errors":2' in body
        assert SECRET.encode() not in body


def test_a_viewer_sees_no_records_by_the_screen_of_pipelines(
    node: SparkraftNode, console: ConsoleProcess
) -> None:
    batch = {"pipeline": "p", "batch": 1, "seconds": 0.5, "records": 3}
    sent = [
        {**batch, "note": SECRET},
        {**batch, "lag": SECRET},
        {**batch, "watermark": SECRET},
        {"pipeline": SECRET},
    ]

    async def send() -> None:
        async with Cluster(node.bootstrap) as cluster, Producer(cluster) as producer:
            await Admin(cluster).create_topics([NewTopic(name="documents", partitions=1)])
            for each in sent:
                await (await producer.send("documents", json.dumps(each).encode()))

    asyncio.run(send())
    answer = opened(console, "/api/pipelines", topic="documents").read()
    assert json.loads(answer)["damaged"] == 2
    assert SECRET.encode() not in answer


def test_a_mistake_in_the_file_stops_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "console.toml"
    path.write_text("[[masks]]\n")
    words = ["console", "--bootstrap-server", "localhost:1", "--config", str(path)]
    assert cli.main(words) != 0
    assert "the file has no setting masks; there are hash_key, mask" in capsys.readouterr().err
    path.write_text("registry = 'ftp://me:pass@host'\n")
    assert cli.main(words) != 0
    said = capsys.readouterr().err
    assert "registry must be an http or https URL" in said
    assert "pass" not in said.replace("password", "")


@pytest.mark.browser
def test_a_page_offers_the_decoders_and_does_not_resend_masked_records(
    console: ConsoleProcess, browser: Browser
) -> None:
    async def look() -> None:
        page_path = "/topics/by-form/messages?mode=earliest"
        async with browser.visiting(console.address, f"{page_path}#t={console.token}") as visit:
            page = visit.page
            rows = page.get_by_role("table", name="Messages").locator("tbody tr")
            await expect(rows).to_have_count(2)
            await expect(page.locator("#visitor")).to_contain_text("editor")
            await page.get_by_label("Values as").select_option("protobuf")
            await page.get_by_role("button", name="Read", exact=True).click()
            decoded = rows.filter(has_text=str(BIG))
            await expect(decoded).to_have_count(1)
            assert "form=protobuf" in page.url
            await decoded.locator("summary").click()
            await expect(decoded.locator(".whole", has_text="by wire type")).to_be_visible()
            await expect(page.get_by_role("button", name="Edit and send again")).to_have_count(0)
            await page.get_by_label("Values as").select_option("hex")
            await page.get_by_role("button", name="Read", exact=True).click()
            await rows.first.locator("summary").click()
            await expect(page.get_by_role("button", name="Edit and send again")).to_be_visible()
            await page.goto(f"{console.address}/topics/payments/messages?mode=earliest&form=hex")
            await expect(rows).to_have_count(2)
            await rows.first.locator("summary").click()
            await expect(rows.first).to_contain_text("some fields are hidden")
            await expect(page.get_by_role("button", name="Edit and send again")).to_have_count(0)
            assert SECRET not in await page.content()

    browser.run(look())


def test_a_registry_that_hangs_does_not_hold_a_scan(node: SparkraftNode, tmp_path: Path) -> None:
    """Each record names another schema, and the registry accepts connections but never answers."""
    names = [f"\0{n:04}x".encode() for n in range(1_000)]

    async def send() -> None:
        async with Cluster(node.bootstrap) as cluster, Producer(cluster) as producer:
            await Admin(cluster).create_topics([NewTopic(name="any-schema", partitions=1)])
            sent = [await producer.send("any-schema", name) for name in names]
            await asyncio.gather(*sent)

    asyncio.run(send())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        (tmp_path / "c.toml").write_text(f'"registry" = "{address}"')
        options = ["--config", str(tmp_path / "c.toml")]
        with ConsoleProcess(node.bootstrap, tmp_path, options) as console:
            found = records(console, "any-schema", count=1000)
            silent.setblocking(False)
            silent.accept()[0].close()
            with pytest.raises(BlockingIOError):
                silent.accept()
    assert len(found) == len(names)
    (note,) = {one["value"]["note"] for one in found}
    assert note.startswith("the schema registry http://127.0.0.1:")
    assert "does not answer /schemas/ids/" in note
