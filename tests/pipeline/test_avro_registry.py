"""Avro values with Confluent's framing, from Confluent's own serializer to tables, with Spark."""

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from deltalake import DeltaTable

from sparkraft.pipeline import check, progress, spec
from sparkraft.pipeline import run as running
from sparkraft.pipeline.cases import failure
from sparkraft.pipeline.produce import Producer
from sparkraft.pipeline.registered_values import check_kind
from sparkraft.pipeline.value_formats import ValueFormat
from sparkraft.schemas import registry as registry_module
from sparkraft.schemas.errors import SchemaError
from sparkraft.schemas.registry import RegisteredSchema, Registry, RegistryError, schema_by_id
from tests.pipeline.test_fetch_and_produce import everything, options_for
from tests.pipeline.test_fetch_and_produce import read as read_topic
from tests.support.schema_registry import SchemaRegistry

PLACE = {"type": "enum", "name": "Place", "symbols": ["JFK", "EWR"]}
OLD = {
    "type": "record", "name": "Flight",
    "fields": [{"name": "id", "type": "long"}, {"name": "origin", "type": PLACE}],
}  # fmt: skip
NEW = {
    **OLD,
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "delay", "type": ["null", "double"], "default": None},
        {"name": "origin", "type": PLACE},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
    ],
}
OTHER = {"type": "record", "name": "Other", "fields": [{"name": "x", "type": "string"}]}


@pytest.fixture
def registry():
    registry_module._KEPT.clear()
    with SchemaRegistry() as started:
        yield started


def serialized(url, topic, schema, value):
    """A value as Confluent's serializer writes it; it registers the schema."""
    client = SchemaRegistryClient({"url": url})
    serializer = AvroSerializer(client, json.dumps(schema))
    return serializer(value, SerializationContext(topic, MessageField.VALUE))


def test_the_registry_of_the_tests_serves_confluents_client(registry):
    client = SchemaRegistryClient({"url": registry.url})
    number = client.register_schema("a", Schema(json.dumps(OLD), "AVRO"))
    assert json.loads(client.get_schema(number).schema_str) == OLD
    assert client.get_latest_version("a").schema_id == number
    assert client.lookup_schema("a", Schema(json.dumps(OLD), "AVRO")).version == 1


def test_schemas_are_read_once_with_those_they_refer_to(registry):
    place = registry.register("place", {"schema": json.dumps(PLACE)})
    refers = {**OLD, "fields": [{"name": "origin", "type": "Place"}]}
    reference = {"name": "Place", "subject": "place", "version": 1}
    registry.register("flight", {"schema": json.dumps(refers), "references": [reference]})
    expected = RegisteredSchema(
        kind="AVRO", text=json.dumps(refers), references=(("Place", json.dumps(PLACE)),)
    )
    assert Registry(registry.url).latest("flight") == expected
    assert schema_by_id(registry.url, place + 1) == expected
    count = len(registry.requests)
    assert schema_by_id(registry.url, place + 1) == expected
    assert schema_by_id(registry.url, 99) is None
    assert schema_by_id(registry.url, 99) is None
    assert len(registry.requests) == count + 1


def test_a_registry_that_fails_is_asked_again(registry):
    registry.register("a", {"schema": '"int"'})
    registry.failures = 2
    assert Registry(registry.url).latest("a").text == '"int"'
    registry.failures = 100
    with pytest.raises(RegistryError, match="does not answer /subjects/a/versions/latest: 500"):
        Registry(registry.url).latest("a")


def test_errors_of_a_registry_are_sentences(registry):
    registry.register("p", {"schema": "message M {}", "schemaType": "PROTOBUF"})
    with pytest.raises(SchemaError, match="the registry has no subject a/b"):
        Registry(registry.url).latest("a/b")
    found = Registry(registry.url).latest("p")
    form = ValueFormat(kind="avro", registry=registry.url, subject="p", schema="")
    with pytest.raises(SchemaError, match="subject p of the registry is of type PROTOBUF"):
        check_kind(found, form, "subject p")
    with pytest.raises(SchemaError, match="registry must be an http or https URL, not host"):
        Registry("ftp://user:secret@host")


@pytest.mark.parametrize("url", ["http://me:pass/word@host:80", "http://host:99999", "http://[::1"])
def test_a_url_that_cannot_be_read_is_refused_without_its_password(url):
    with pytest.raises(SchemaError, match="registry must be an http or https URL, not") as refused:
        Registry(url)
    assert "word@" not in str(refused.value)


def test_a_service_that_is_not_a_registry_is_named(registry, monkeypatch):
    monkeypatch.setattr(Registry, "_get", lambda *_: {"status": "ok"})
    with pytest.raises(RegistryError, match="is not a schema registry: its response has no schema"):
        Registry(registry.url).latest("a")
    with pytest.raises(RegistryError, match="is not a schema registry: its response has no id"):
        Registry(registry.url).register("a", RegisteredSchema(kind="AVRO", text='"int"'))


def test_a_server_that_does_not_speak_http_is_named():
    """As one that expects TLS."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def refuse():
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"\x15\x03\x01\x00\x02\x02\x16")

        thread = threading.Thread(target=refuse)
        thread.start()
        place = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(RegistryError, match=f"http://{place} does not .* is not HTTP"):
            Registry(f"http://{place}", attempts=1).latest("a")
        thread.join()


def test_basic_authentication():
    with SchemaRegistry(login="me@home:a:b") as registry:
        registry.register("a", {"schema": '"int"'})
        place = registry.url.removeprefix("http://")
        assert Registry(f"http://me%40home:a%3Ab@{place}").latest("a").text == '"int"'
        with pytest.raises(RegistryError, match="401 Unauthorized") as refused:
            Registry(f"http://me:wrong@{place}").latest("a")
        assert "wrong" not in str(refused.value)


def test_a_password_does_not_follow_a_redirect_to_another_server():
    """A redirect within the server keeps it."""

    class Redirects(BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append((self.path, "Authorization" in self.headers))
            if self.path.startswith("/moved/"):
                self.send_response(307)
                self.send_header("Location", self.path.removeprefix("/moved"))
            else:
                self.send_response(307)
                self.send_header("Location", f"{registry.url}{self.path}")
            self.end_headers()

        def log_message(self, *_):
            """Print nothing."""

    seen = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Redirects)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with SchemaRegistry(login="me:secret") as registry, server:
        registry.register("a", {"schema": '"int"'})
        url = f"http://me:secret@127.0.0.1:{server.server_port}/moved"
        with pytest.raises(RegistryError, match="401 Unauthorized"):
            Registry(url, attempts=1).latest("a")
        server.shutdown()
    path = "/subjects/a/versions/latest"
    assert seen == [(f"/moved{path}", True), (path, True)]


FILE = """
name = "avro"
checkpoint = "checkpoint"
trigger = "available now"
[source]
"kafka.bootstrap.servers" = "${bootstrap}"
subscribe = "flights"
startingOffsets = "earliest"
[source.avro]
registry = "${registry}"
on_error = "dead_letter"
[transform]
sql = "SELECT partition, offset, tombstone, value.* FROM source"
[dead_letter]
kind = "delta"
path = "dead"
[[sink]]
kind = "delta"
path = "good"
"""

COPIES = """
[[sink]]
kind = "topic"
topic = "copies"
keys = ["offset"]
avro = { registry = "${registry}" }
"""


def records(registry):
    """Values, and the rows or the reasons that they become."""
    other = registry.register("other", {"schema": json.dumps(OTHER)})
    first = serialized(registry.url, "flights", OLD, {"id": 1, "origin": "EWR"})
    flight = {"id": 2, "delay": 1.5, "origin": "JFK", "at": 1_000}
    second = serialized(registry.url, "flights", NEW, flight)
    assert first[:5] != second[:5]
    return [
        (first, (1, None, "EWR", 0.0)),
        (second, (2, 1.5, "JFK", 1.0)),
        (None, (None, None, None, None)),
        (b"{}", "the value does not begin with the id of a schema"),
        (second[:-1], "the value ends in field at"),
        (b"\0\0\0\0%c\0" % other, f"schema {other}: the value is Other, not Flight"),
        (b"\0\0\0\x01\0\0", "the registry has no schema 256"),
    ]


def check_copies(node, cluster, registry, given):
    """Check that Confluent's deserializer reads what the topic sink has written."""
    read = AvroDeserializer(SchemaRegistryClient({"url": registry.url}))
    context = SerializationContext("copies", MessageField.VALUE)
    written = read_topic(cluster, everything(cluster, "copies"), options_for(node))
    found = {int(each["key"]): each["value"] for each in written}
    for offset, (value, expected) in enumerate(given):
        if isinstance(expected, str):
            assert offset not in found
        elif value is None:
            assert found[offset] is None
        else:
            row = read(bytes(found[offset]), context)
            at = row.pop("at").timestamp()
            assert row == {
                "partition": 0, "offset": offset, "id": expected[0], "delay": expected[1],
                "origin": expected[2],
            }  # fmt: skip
            assert at == expected[3]


def rows_of(path):
    return DeltaTable(str(path)).to_pyarrow_table().to_pylist()


@pytest.mark.spark
def test_a_pipeline_reads_avro_of_two_schemas(spark, node, cluster, tmp_path, registry):
    given = records(registry)
    cluster.create_topic("flights", partitions=1, configs={"retention.ms": "-1"})
    producer = Producer(cluster)
    for value, _ in given:
        producer.send("flights", b"k", value, partition=0, timestamp_ms=1)
    producer.flush()
    values = {"bootstrap": node.bootstrap, "registry": registry.url}
    cluster.create_topic("copies", partitions=1, configs={"retention.ms": "-1"})
    pipeline = spec.parse(FILE + COPIES, folder=tmp_path, values=values)
    check.before_spark(pipeline)
    query = running._started(pipeline, spark)
    assert query.awaitTermination(300)
    rows = {row["offset"]: row for row in rows_of(tmp_path / "good")}
    letters = {row["offset"]: row for row in rows_of(tmp_path / "dead")}
    assert sum(each.damaged for each in progress.reports(query)) == len(letters) == 4
    for offset, (value, expected) in enumerate(given):
        if isinstance(expected, str):
            assert letters[offset]["error"] == expected
            assert letters[offset]["value"] == value
            continue
        row = rows[offset]
        at = row["at"] and row["at"].timestamp()
        assert (row["id"], row["delay"], row["origin"], at) == expected
        assert row["tombstone"] == (value is None)
    check_copies(node, cluster, registry, given)
    # `pipeline test` reads the same values without a cluster.
    case = spec.Case(name="bare", inputs={"source": []}, expected=[], damaged=0, error=None)
    assert failure(pipeline, case, spark, str) is None


@pytest.mark.spark
@pytest.mark.long  # the test above has more damaged values, and stays in ./test
def test_a_damaged_value_stops_the_pipeline_with_its_reason(spark, node, cluster, tmp_path):
    cluster.create_topic("bare", partitions=1, configs={"retention.ms": "-1"})
    producer = Producer(cluster)
    for value in (b"\x02", b"\x02\x02"):
        producer.send("bare", None, value, partition=0, timestamp_ms=1)
    producer.flush()
    (tmp_path / "number.avsc").write_text('"int"')
    avro = 'schema = "number.avsc"\non_error = "stop"'
    text = FILE.replace('registry = "${registry}"\non_error = "dead_letter"', avro)
    text = text.replace('[dead_letter]\nkind = "delta"\npath = "dead"\n', "")
    text = text.replace('"flights"', '"bare"').replace("value.*", "value")
    pipeline = spec.parse(text, folder=tmp_path, values={"bootstrap": node.bootstrap})
    query = running._started(pipeline, spark)
    with pytest.raises(Exception, match="1 bytes follow the value") as stopped:
        query.awaitTermination(300)
    assert running.cause_of(stopped.value) == (
        "[source.avro]: the value of bare-0 at offset 1 does not fit the schema: 1 bytes follow "
        'the value; on_error = "drop" leaves such records out'
    )
