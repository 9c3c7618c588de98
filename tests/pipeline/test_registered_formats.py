"""Protobuf and JSON Schema values, and keys, with Confluent's framing, from topics to topics."""

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from deltalake import DeltaTable
from google.protobuf import descriptor_pb2, timestamp_pb2

from sparkraft.pipeline import check, progress, spec
from sparkraft.pipeline import run as running
from sparkraft.pipeline.produce import Producer
from sparkraft.pipeline.registered_values import ValueReader, ValueWriter, reader_of
from sparkraft.pipeline.value_codecs import codec_of, message_place
from sparkraft.pipeline.value_formats import ValueFormat
from sparkraft.schemas import registry as registry_module
from sparkraft.schemas.errors import SchemaError
from sparkraft.schemas.protobuf_value import message_indexes
from sparkraft.schemas.registry import RegisteredSchema, Registry
from tests.pipeline.test_fetch_and_produce import everything, options_for
from tests.pipeline.test_fetch_and_produce import read as read_topic
from tests.support.protobuf_cases import TIMESTAMP, message_class
from tests.support.schema_registry import SchemaRegistry

FIELD = descriptor_pb2.FieldDescriptorProto
KEY = {"type": "record", "name": "Key", "fields": [{"name": "airport", "type": "string"}]}
WEATHER = {
    "type": "object",
    "properties": {
        "station": {"type": "integer"},
        "at": {"type": ["string", "null"], "format": "date-time"},
    },
    "required": ["station"],
}
AT = datetime(2026, 1, 1, 0, 0, 0, 5, UTC)


@pytest.fixture
def registry():
    registry_module._KEPT.clear()
    with SchemaRegistry() as started:
        yield started


def file_of(*fields, outer="", name="Flight", file="t.proto"):
    """A file that defines `Before` and a message of some fields, nested in `outer` if given."""
    found = descriptor_pb2.FileDescriptorProto(name=file, package="t", syntax="proto3")
    found.dependency.append(timestamp_pb2.DESCRIPTOR.name)
    found.message_type.add(name="Before")
    into = found.message_type.add(name=outer or name)
    message = into.nested_type.add(name=name) if outer else into
    for number, (name_, kind) in enumerate(fields, 1):
        field = message.field.add(name=name_, number=number, label=1)
        if kind == TIMESTAMP:
            field.type, field.type_name = FIELD.TYPE_MESSAGE, f".{TIMESTAMP}"
        else:
            field.type = kind
    return found


FLIGHT = message_class(
    file_of(("id", FIELD.TYPE_INT64), ("at", TIMESTAMP), outer="Outer"), "Outer.Flight"
)
AIRPORT = message_class(
    file_of(("airport", FIELD.TYPE_STRING), name="Airport", file="a.proto"), "Airport"
)
COPY = message_class(
    file_of(
        ("source", FIELD.TYPE_STRING), ("offset", FIELD.TYPE_INT64), ("airport", FIELD.TYPE_STRING),
        ("number", FIELD.TYPE_INT64), ("at", TIMESTAMP), name="Copy", file="c.proto",
    ),
    "Copy",
)  # fmt: skip


def form_of(kind, registry="", **others):
    fields = {"subject": "", "schema": ""} | others
    return ValueFormat(kind=kind, registry=registry, **fields)


@pytest.mark.parametrize("indexes", [[0], [1], [1, 0], [70, 3, 200]])
def test_the_place_of_a_message_is_written_as_it_is_read(indexes):
    assert message_indexes(message_place(indexes) + b"rest", 0) == (
        indexes, len(message_place(indexes)),
    )  # fmt: skip


def test_messages_are_those_of_confluents_serializer(registry):
    client = SchemaRegistryClient({"url": registry.url})
    flight = FLIGHT(id=5)
    raw = ProtobufSerializer(FLIGHT, client)(flight, SerializationContext("t", MessageField.VALUE))
    form = form_of("protobuf", registry.url, subject="t-value", message="Flight")
    reader = reader_of(form, "reason")
    other = raw[:5] + b"\0" + raw[8:]
    found = reader.read(pa.array([raw, None, other, raw[:6], raw[:5] + b"\x04\x02\x02"]))
    assert found.field(0).to_pylist() == [{"id": 5, "at": None}, None, None, None, None]
    assert found.field(1).to_pylist() == [
        None, None, "the value is t.Before, not t.Outer.Flight",
        "the value ends in the place of its message", "the schema has no message number 1",
    ]  # fmt: skip
    schema = Registry(registry.url).latest("t-value")
    rows = pa.array([{"id": 5, "at": None}], found.field(0).type)
    assert ValueWriter(form, schema, raw[:5]).write(rows).to_pylist() == [raw]


def test_json_values_are_those_of_confluents_serializer(registry):
    client = SchemaRegistryClient({"url": registry.url})
    context = SerializationContext("w", MessageField.VALUE)
    row = {"station": 7, "at": AT.isoformat().replace("+00:00", "Z")}
    write = JSONSerializer(json.dumps(WEATHER), client)
    raw, empty = write(row, context), write({"station": 8}, context)
    form = form_of("json_schema", registry.url, subject="w-value")
    found = reader_of(form, "reason").read(pa.array([raw, empty, raw[:5] + b"{}"]))
    assert found.field(0).to_pylist()[:2] == [
        {"station": 7, "at": AT}, {"station": 8, "at": None},
    ]  # fmt: skip
    assert found.field(1).to_pylist() == [
        None, None, "field station is missing, and is required",
    ]  # fmt: skip
    schema = Registry(registry.url).latest("w-value")
    written = ValueWriter(form, schema, raw[:5]).write(found.field(0).slice(0, 2)).to_pylist()
    read = JSONDeserializer(None, schema_registry_client=client)
    assert [read(each, context) for each in written] == [row, {"station": 8, "at": None}]


def test_values_of_another_schema_are_read_or_have_a_reason(registry):
    proto = 'syntax = "proto3"; message Flight { int64 id = 1; }'
    texts = [
        'syntax = "proto3"; message Flight { int32 number = 1; string more = 2; }',
        'syntax = "proto3"; message Flight { string id = 1; }',
        "message Flight {",
    ]
    for text in texts:
        registry.register("f", {"schema": text, "schemaType": "PROTOBUF"})
    registry.register("g", {"schema": '"int"'})
    form = form_of("protobuf", registry.url, schema=proto)
    raw = [b"\0\0\0\0%c\0\x08\x07" % number for number in (1, 2, 3, 4)]
    found = reader_of(form, "reason").read(pa.array(raw))
    assert found.field(0).to_pylist() == [{"id": 7}, None, None, None]
    assert found.field(1).to_pylist() == [
        None,
        "field id is string, not int64",
        "schema 3: the Protobuf schema ends too early",
        "schema 4: the schema of the registry is of type AVRO, not PROTOBUF",
    ]


def test_a_schema_is_registered_with_those_it_imports(registry):
    text = 'syntax = "proto3"; import "c.proto"; message M { N n = 1; }'
    other = 'syntax = "proto3"; message N { int32 x = 1; }'
    schema = RegisteredSchema(kind="PROTOBUF", text=text, references=(("c.proto", other),))
    number = Registry(registry.url).register("m", schema)
    assert Registry(registry.url).by_id(number) == schema
    assert Registry(registry.url).latest("c.proto").text == other
    client = SchemaRegistryClient({"url": registry.url})
    known = client.get_latest_version("m").schema
    assert [(each.name, each.subject, each.version) for each in known.references] == [
        ("c.proto", "c.proto", 1)
    ]


@pytest.mark.parametrize(
    ("kind", "schema", "message", "error"),
    [
        ("protobuf", "message M { int32 a = 1; }", "N", "the schema has no message N"),
        ("protobuf", 'import "c.proto"; message M { N n = 1; }', "", "has no N, the type of M.n"),
        ("protobuf", "message M {}", "google.protobuf.Timestamp", "imports google.protobuf.Tim"),
        ("json_schema", '{"type": "x"}', "", 'has no type "x"'),
        ("avro", '{"type": "x"}', "", "the Avro schema has no type x"),
    ],
)
def test_a_schema_without_columns_has_a_reason(kind, schema, message, error):
    with pytest.raises(SchemaError, match=error):
        codec_of(kind, RegisteredSchema(kind="", text=schema), message)


def test_tasks_get_a_reader_of_their_own(registry):
    form = form_of("json_schema", registry.url, schema=json.dumps(WEATHER))
    reader = reader_of(form, "reason")
    make, given = reader.__reduce__()
    assert make is ValueReader
    assert make(*given).type == reader.type


FILE = """
name = "formats"
checkpoint = "checkpoint"
trigger = "available now"
[[source]]
name = "flights"
"kafka.bootstrap.servers" = "${bootstrap}"
subscribe = "flights"
startingOffsets = "earliest"
[source.protobuf]
registry = "${registry}"
message = "Flight"
on_error = "dead_letter"
[source.key.avro]
registry = "${registry}"
[[source]]
name = "weather"
"kafka.bootstrap.servers" = "${bootstrap}"
subscribe = "weather"
startingOffsets = "earliest"
[source.json_schema]
registry = "${registry}"
on_error = "dead_letter"
[source.key.protobuf]
registry = "${registry}"
message = "Airport"
[transform]
sql = '''
SELECT 'flights' AS source, offset, key.airport, value.id AS number, value.at, tombstone
FROM flights
UNION ALL SELECT 'weather', offset, key.airport, value.station, value.at, tombstone FROM weather
'''
[dead_letter]
kind = "delta"
path = "dead"
[[sink]]
kind = "topic"
topic = "copies"
keys = ["source", "offset"]
protobuf = { registry = "${registry}" }
key.avro = { registry = "${registry}" }
[[sink]]
kind = "topic"
topic = "texts"
keys = ["offset"]
json_schema = { registry = "${registry}" }
key.protobuf = { registry = "${registry}" }
"""


def records(registry):
    """Topic, key, value, and the row or the reason that they become."""
    client = SchemaRegistryClient({"url": registry.url})
    flights, weather = (
        {part: SerializationContext(topic, part) for part in (MessageField.KEY, MessageField.VALUE)}
        for topic in ("flights", "weather")
    )
    key = AvroSerializer(client, json.dumps(KEY))({"airport": "JFK"}, flights[MessageField.KEY])
    write = ProtobufSerializer(FLIGHT, client)
    flight = write(FLIGHT(id=1, at=AT), flights[MessageField.VALUE])
    plain = write(FLIGHT(), flights[MessageField.VALUE])
    airport = ProtobufSerializer(AIRPORT, client)(AIRPORT(airport="EWR"), weather[MessageField.KEY])
    station = JSONSerializer(json.dumps(WEATHER), client)(
        {"station": 7, "at": AT.isoformat()}, weather[MessageField.VALUE]
    )
    return [
        ("flights", key, flight, ("JFK", 1, AT)),
        ("flights", key, plain, ("JFK", 0, None)),
        ("flights", None, None, (None, None, None)),
        ("flights", b"JFK", flight, "the key: the value does not begin with the id of a schema"),
        ("flights", key, flight[:-1], "the value ends in field at"),
        ("weather", airport, station, ("EWR", 7, AT)),
        ("weather", airport, station[:5] + b"{}", "field station is missing, and is required"),
    ]


def check_copies(node, cluster, registry, expected):
    """Check that Confluent's deserializers read what the topic sinks have written."""
    read_key = AvroDeserializer(SchemaRegistryClient({"url": registry.url}))
    read = ProtobufDeserializer(COPY, {}, None)
    context = SerializationContext("copies", MessageField.VALUE)
    found = {}
    for each in read_topic(cluster, everything(cluster, "copies"), options_for(node)):
        key = read_key(bytes(each["key"]), context)
        value = each["value"] and read(bytes(each["value"]), context)
        found[key["source"], key["offset"]] = value and (
            value.airport, value.number, value.at.ToDatetime(UTC) if value.HasField("at") else None,
        )  # fmt: skip
    assert found == expected
    texts = read_topic(cluster, everything(cluster, "texts"), options_for(node))
    read = JSONDeserializer(
        None, schema_registry_client=SchemaRegistryClient({"url": registry.url})
    )
    rows = [read(bytes(each["value"]), context) for each in texts if each["value"]]
    assert {(row["source"], row["offset"]): row["number"] for row in rows} == {
        name: row[1] for name, row in expected.items() if row
    }
    assert {bytes(each["key"][5:]) for each in texts} == {
        b"\0" + (b"\x08%c" % offset) for _, offset in expected
    }


@pytest.mark.spark
def test_a_pipeline_reads_and_writes_all_formats(spark, node, cluster, tmp_path, registry):
    given = records(registry)
    for topic in ("flights", "weather", "copies", "texts"):
        cluster.create_topic(topic, partitions=1, configs={"retention.ms": "-1"})
    producer, places = Producer(cluster), []
    for topic, key, value, _ in given:
        places.append((topic, sum(topic == each for each, _ in places)))
        producer.send(topic, key, value, partition=0, timestamp_ms=1)
    producer.flush()
    values = {"bootstrap": node.bootstrap, "registry": registry.url}
    pipeline = spec.parse(FILE, folder=tmp_path, values=values)
    check.before_spark(pipeline)
    query = running._started(pipeline, spark)
    assert query.awaitTermination(300)
    letters = DeltaTable(str(tmp_path / "dead")).to_pyarrow_table().to_pylist()
    assert sum(each.damaged for each in progress.reports(query)) == len(letters) == 3
    assert {(each["topic"], each["offset"]): each["error"] for each in letters} == {
        place: wanted
        for place, (*_, wanted) in zip(places, given, strict=True)
        if isinstance(wanted, str)
    }
    expected = {
        place: None if value is None else wanted
        for place, (_, _, value, wanted) in zip(places, given, strict=True)
        if not isinstance(wanted, str)
    }
    check_copies(node, cluster, registry, expected)
