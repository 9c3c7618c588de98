"""Messages of ZooKeeper mode: equal to Kafka 3.9.2's schemas, and to bytes of its controller.

Keys 4 to 7, and AlterPartition and WriteTxnMarkers with the versions that Kafka 4 has removed.

The hexadecimal requests were recorded from a Kafka 3.9.2 controller (inter.broker.protocol.version
3.9), without the length in front. Broker 9 was alive and became the leader of topic `f1`.
"""

import json
import re
import zipfile

import pytest

from sparkraft.base.errors import DecodeError
from sparkraft.base.ids import Uuid
from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.protocol.codec import decode, decode_from, encode
from sparkraft.protocol.declare import NO_VERSIONS, Versions, parse_versions
from sparkraft.protocol.headers import request_header_version
from sparkraft.protocol.messages.headers import RequestHeader
from sparkraft.protocol.messages.k04_leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from sparkraft.protocol.messages.k05_stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from sparkraft.protocol.messages.k06_update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tests.support.kafka_jars import kafka_3_9_jars_or_reason
from tests.support.outside_tools import Missing

KEYS = [
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.ALTER_PARTITION,
]
SINCE_KAFKA_4 = {ApiKey.WRITE_TXN_MARKERS: {"transactionversion"}}
"""Fields of the only version that Kafka 3.9 does not have."""
TOPIC_ID = Uuid(bytes.fromhex("b4277a1fd9ab47acb8e0fd39cb3e846d"))
BROKER_EPOCH = 0x443


def live_broker(number: int, port: int) -> UpdateMetadataBroker:
    endpoint = UpdateMetadataEndpoint(port=port, host="127.0.0.1", listener="PLAINTEXT")
    return UpdateMetadataBroker(id=number, endpoints=[endpoint], rack=None)


BROKERS = [live_broker(4, 26504), live_broker(9, 26509)]


def update_metadata(*states: UpdateMetadataPartitionState) -> UpdateMetadataRequest:
    topic = UpdateMetadataTopicState(
        topic_name="f1", topic_id=TOPIC_ID, partition_states=list(states)
    )
    return UpdateMetadataRequest(
        controller_id=4,
        controller_epoch=2,
        broker_epoch=BROKER_EPOCH,
        topic_states=[topic] if states else [],
        live_brokers=BROKERS,
    )


def metadata_state(leader: int) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        controller_epoch=2, leader=leader, isr=[9, 4], replicas=[9, 4]
    )


def stop_replica(*, delete: bool) -> StopReplicaRequest:
    state = StopReplicaPartitionState(leader_epoch=-2, delete_partition=delete)
    return StopReplicaRequest(
        controller_id=4,
        controller_epoch=2,
        broker_epoch=BROKER_EPOCH,
        topic_states=[StopReplicaTopicState(topic_name="f1", partition_states=[state])],
    )


RECORDED = [
    (
        "000600080000000000013400000000040000000002000000000000044301030000000402000067880a3132372e"
        "302e302e310a504c41494e54455854000000000000000009020000678d0a3132372e302e302e310a504c41494e"
        "54455854000000000000",
        update_metadata(),
    ),
    (
        "00040007000000010001340000000004000000000200000000000004430002036631b4277a1fd9ab47acb8e0fd"
        "39cb3e846d02000000000000000200000009000000000300000009000000040000000003000000090000000401"
        "010100000002000000090a3132372e302e302e310000678d0000",
        LeaderAndIsrRequest(
            controller_id=4,
            controller_epoch=2,
            broker_epoch=BROKER_EPOCH,
            topic_states=[
                LeaderAndIsrTopicState(
                    topic_name="f1",
                    topic_id=TOPIC_ID,
                    partition_states=[
                        LeaderAndIsrPartitionState(
                            controller_epoch=2, leader=9, isr=[9, 4], replicas=[9, 4], is_new=True
                        )
                    ],
                )
            ],
            live_leaders=[LeaderAndIsrLiveLeader(broker_id=9, host_name="127.0.0.1", port=26509)],
        ),
    ),
    (
        "000600080000000200013400000000040000000002000000000000044302036631b4277a1fd9ab47acb8e0fd39"
        "cb3e846d0200000000000000020000000900000000030000000900000004000000000300000009000000040100"
        "00030000000402000067880a3132372e302e302e310a504c41494e54455854000000000000000009020000678d"
        "0a3132372e302e302e310a504c41494e54455854000000000000",
        update_metadata(metadata_state(9)),
    ),
    (
        "000600080000000300013400000000040000000002000000000000044302036631b4277a1fd9ab47acb8e0fd39"
        "cb3e846d020000000000000002fffffffe00000000030000000900000004000000000300000009000000040100"
        "00030000000402000067880a3132372e302e302e310a504c41494e54455854000000000000000009020000678d"
        "0a3132372e302e302e310a504c41494e54455854000000000000",
        update_metadata(metadata_state(-2)),
    ),
    (
        "0005000400000004000134000000000400000000020000000000000443020366310200000000fffffffe000000"
        "00",
        stop_replica(delete=False),
    ),
    (
        "0005000400000005000134000000000400000000020000000000000443020366310200000000fffffffe010000"
        "00",
        stop_replica(delete=True),
    ),
]


@pytest.mark.parametrize(("recorded", "message"), RECORDED)
def test_requests_of_a_kafka_3_9_controller_are_read_and_written(recorded, message):
    data = bytes.fromhex(recorded)
    header, at = decode_from(RequestHeader, 2, memoryview(data), 0)
    assert header.client_id == "4"
    version = header.request_api_version
    assert decode(type(message), version, data[at:]) == message
    assert encode(message, version).hex() == data[at:].hex()


@pytest.mark.parametrize(("recorded", "message"), RECORDED)
def test_every_cut_off_prefix_of_them_is_refused(recorded, message):
    data = bytes.fromhex(recorded)
    header, at = decode_from(RequestHeader, 2, memoryview(data), 0)
    for size in range(at, len(data)):
        with pytest.raises(DecodeError):
            decode(type(message), header.request_api_version, data[at:size])


KINDS = {"bool": "boolean"}


def kafkas_fields(fields, structs):
    """(name, kind, versions, tag, fields) of each field of Kafka's schema, nested ones too."""
    for field in fields:
        kind = field["type"].removeprefix("[]")
        nested = field.get("fields") or structs.get(kind) or []
        yield (
            field["name"].lower(),
            "array" if field["type"].startswith("[]") else KINDS.get(kind, kind),
            parse_versions(field["versions"]),
            parse_versions(field["nullableVersions"]) if "nullableVersions" in field else None,
            field.get("tag", -1),
            field.get("ignorable", False),
            list(kafkas_fields(nested, structs)),
        )


def our_fields(cls, left_out=frozenset()):
    for field in cls.SCHEMA.fields:
        if field.name.replace("_", "") in left_out:
            continue
        is_array_of_structs = field.kind == "array" and not isinstance(field.element, str)
        yield (
            field.name.replace("_", ""),
            field.kind,
            field.versions,
            field.nullable if field.nullable != NO_VERSIONS else None,
            field.tag,
            field.ignorable,
            list(our_fields(field.struct, left_out)) if is_array_of_structs else [],
        )


def kafkas_schema(name):
    """A message of Kafka 3.9, as in its source."""
    jars = kafka_3_9_jars_or_reason()
    if isinstance(jars, Missing):
        pytest.skip(jars.reason)
    jar = next(jars.glob("**/kafka-clients-3.9*.jar"))
    with zipfile.ZipFile(jar) as archive:
        text = archive.read(f"common/message/{name}.json").decode()
    return json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))


def test_the_request_header_equals_the_schema_of_kafka_3_9():
    """Its v0, without the client id, is that of ControlledShutdown v0; Kafka 4 has neither."""
    schema = kafkas_schema("RequestHeader")
    assert RequestHeader.SCHEMA.versions == parse_versions(schema["validVersions"])
    assert RequestHeader.SCHEMA.flexible == parse_versions(schema["flexibleVersions"])
    assert list(our_fields(RequestHeader)) == list(kafkas_fields(schema["fields"], {}))
    header = RequestHeader(request_api_key=7, correlation_id=5, client_id="ignored")
    version = request_header_version(ApiKey.CONTROLLED_SHUTDOWN, 0)
    assert encode(header, version) == bytes.fromhex("0007 0000 00000005")
    assert [request_header_version(ApiKey.CONTROLLED_SHUTDOWN, each) for each in (1, 2, 3)] == [
        1, 1, 2,
    ]  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("kind", ["Request", "Response"])
def test_declarations_equal_the_schemas_of_kafka_3_9(key, kind):
    info = API_INFO[ApiKey(key)]
    schema = kafkas_schema(f"{info.name}{kind}")
    ours = info.request_class() if kind == "Request" else info.response_class()
    structs = {each["name"]: each["fields"] for each in schema.get("commonStructs", [])}
    newer = SINCE_KAFKA_4.get(key, set())
    highest = info.max_version - bool(newer)
    assert Versions(info.min_version, highest) == parse_versions(schema["validVersions"])
    assert info.flexible_from == parse_versions(schema["flexibleVersions"]).first
    assert ours.SCHEMA.flexible == parse_versions(schema["flexibleVersions"])
    assert list(our_fields(ours, newer)) == list(kafkas_fields(schema["fields"], structs))
