"""Kafka's znodes: recorded ones survive a round trip byte for byte, malformed ones are named."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkraft.zookeeper.znodes import brokers, changes, cluster, json_form, security, topics, tree
from sparkraft.zookeeper.znodes.json_form import NewerZnodeError, ZnodeError

LINES = Path(__file__).with_name("recorded_znodes.txt").read_text().splitlines()[1:]
RECORDED = [tuple(line.split(" ", 1)) for line in LINES]

ENCODERS = {
    "/brokers/ids": brokers.encode_registration,
    "/brokers/topics": topics.encode_topic,
    "/config/changes": changes.encode_config_change,
    "/config": topics.encode_configs,
    "/cluster/id": cluster.encode_cluster_id,
    "/controller_epoch": json_form.encode_number,
    "/controller": cluster.encode_controller,
    "/feature": cluster.encode_features,
    "/latest_producer_id_block": cluster.encode_producer_ids,
    "/migration": cluster.encode_migration,
    "/admin/preferred_replica_election": changes.encode_partitions,
    "/admin/reassign_partitions": changes.encode_reassignments,
    "/isr_change_notification": changes.encode_partitions,
    "/log_dir_event_notification": changes.encode_log_dir_event,
    "/kafka-acl-changes": security.encode_acl_change,
    "/kafka-acl-extended-changes": security.encode_acl_change,
    "/kafka-acl-extended": security.encode_acl,
    "/kafka-acl": security.encode_acl,
    "/delegation_token/tokens": security.encode_token,
}
"""The encoder of the first path that a znode's path starts with."""


def encoder(path):
    if path.endswith("/state"):
        return topics.encode_state
    return next(encode for start, encode in ENCODERS.items() if path.startswith(start))


@pytest.mark.parametrize(("path", "data"), RECORDED)
def test_recorded_znodes_survive_a_round_trip(path, data):
    value = tree.decode(path, data.encode())
    assert encoder(path)(value).decode() == data


def test_a_registration_has_its_listeners_rack_and_features():
    path, data = RECORDED[0]
    assert tree.decode(path, data.encode()) == brokers.Registration(
        version=5,
        endpoints=(
            brokers.Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 26501),
            brokers.Endpoint("SASL_PLAINTEXT", "SASL_PLAINTEXT", "127.0.0.1", 26511),
        ),
        timestamp="1795543512255",
        rack="r1",
    )


@pytest.mark.parametrize(
    ("data", "endpoints"),
    [
        (
            {"version": 1, "host": "h", "port": 9092, "jmx_port": 9999, "timestamp": "1"},
            (brokers.Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092),),
        ),
        (
            {"version": 2, "host": None, "port": -1, "jmx_port": -1, "endpoints": ["SSL://h:1"]},
            (brokers.Endpoint("SSL", "SSL", "h", 1),),
        ),
        (
            {
                "version": 6,
                "jmx_port": -1,
                "endpoints": ["IN://[::1]:1", "OUT://:2"],
                "listener_security_protocol_map": {"IN": "PLAINTEXT", "OUT": "SSL"},
            },
            (
                brokers.Endpoint("IN", "PLAINTEXT", "::1", 1),
                brokers.Endpoint("OUT", "SSL", "", 2),
            ),
        ),
    ],
)
def test_registrations_of_older_and_newer_versions_are_read_as_kafka_reads_them(data, endpoints):
    found = tree.decode("/brokers/ids/1", json.dumps(data).encode())
    assert found.endpoints == endpoints


def test_a_reassignment_is_in_the_topic_znode():
    data = next(data for path, data in RECORDED if '"adding_replicas":{"0":[3]}' in data)
    topic = tree.decode("/brokers/topics/t1", data.encode())
    assert topic.partitions[0] == topics.Assignment((3, 2, 1), adding=(3,), removing=(1,))
    assert topic.partitions[1] == topics.Assignment((2, 1))


def test_topics_of_version_1_have_no_id_and_no_reassignment():
    topic = tree.decode("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1]}}')
    assert topic == topics.Topic(None, {0: topics.Assignment((1,))})


def test_the_recovery_state_is_written_only_while_recovering():
    state = topics.PartitionState(1, 4, (1,), 2, topics.RECOVERING)
    data = topics.encode_state(state)
    assert data.endswith(b',"isr":[1],"leader_recovery_state":1}')
    assert tree.decode("/brokers/topics/t/partitions/0/state", data) == state


def test_features_of_version_1_have_both_levels():
    features = cluster.Features(1, enabled=True, levels={"f": 3})
    data = cluster.encode_features(features)
    assert b'"f":{"max_version_level":3,"min_version_level":3}' in data
    assert tree.decode("/feature", data) == features


def test_config_changes_of_version_1_name_type_and_entity():
    data = b'{"version":1,"entity_type":"topics","entity_name":"t1"}'
    assert tree.decode("/config/changes/config_change_0000000000", data) == "topics/t1"


def test_a_producer_id_block_without_data_is_not_allocated_yet():
    assert tree.decode("/latest_producer_id_block", b"") is None


STATE = "/brokers/topics/t/partitions/0/state"
MALFORMED = [
    ("/cluster/id", b"", "expected JSON"),
    ("/cluster/id", b"[]", "expected a JSON object"),
    ("/cluster/id", b'{"id":7}', "expected text in field 'id'"),
    ("/controller", b'{"version":2}', "no field 'brokerid'"),
    ("/controller", b'{"brokerid":"1"}', "expected an integer in field 'brokerid'"),
    ("/controller", b'{"brokerid":true}', "expected an integer"),
    ("/controller_epoch", b"one", "expected a number"),
    ("/controller_epoch", b"2147483648", "expected a number"),
    ("/feature", b'{"version":0}', "unsupported version 0"),
    ("/feature", b'{"version":2,"status":2,"features":{}}', "malformed status 2"),
    ("/feature", b'{"version":2,"status":1}', "no field 'features'"),
    ("/feature", b'{"version":2,"status":1,"features":{"f":{"max_version_level":0}}}', "levels"),
    ("/brokers/ids/1", b'{"version":0,"jmx_port":-1}', "unsupported version 0"),
    ("/brokers/ids/1", b'{"version":5,"jmx_port":-1,"endpoints":["h:1"]}', "LISTENER://HOST:PORT"),
    ("/brokers/topics/t", b'{"partitions":{"x":[1]}}', "expected the number of a partition"),
    ("/brokers/topics/t", b'{"partitions":{"0":1}}', "expected an array of integers"),
    ("/brokers/topics/t", b'{"topic_id":"?","partitions":{}}', "malformed topic_id"),
    (STATE, b'{"leader":1,"leader_epoch":0,"isr":[1]}', "no field 'controller_epoch'"),
    ("/config/topics/t", b'{"config":{"a":1}}', "expected text in field 'a'"),
    ("/latest_producer_id_block", b'{"block_start":0,"block_end":"9"}', "expected text"),
    ("/latest_producer_id_block", b'{"block_start":"x","block_end":"9"}', "expected an int64"),
    ("/admin/reassign_partitions", b'{"partitions":{}}', "expected an array in field"),
    ("/admin/preferred_replica_election", b'{"partitions":[1]}', "expected a JSON object"),
    ("/kafka-acl-changes/acl_changes_0000000000", b"TOPIC", "expected TYPE:NAME"),
    ("/delegation_token/tokens/x", b'{"version":0}', "unsupported version 0"),
]


@pytest.mark.parametrize(("path", "data", "reason"), MALFORMED)
def test_malformed_data_is_an_error_that_names_the_znode(path, data, reason):
    with pytest.raises(ZnodeError) as raised:
        tree.decode(path, data)
    assert raised.value.path == path
    assert reason in raised.value.reason
    assert type(raised.value) is ZnodeError


@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("/feature", 3),
        ("/config/changes/config_change_0000000000", 3),
        ("/migration", 1),
        ("/kafka-acl/Topic/t", 2),
        ("/kafka-acl-extended-changes/acl_changes_0000000000", 2),
        ("/delegation_token/tokens/x", 4),
    ],
)
def test_versions_that_kafka_rejects_are_newer(path, version):
    with pytest.raises(NewerZnodeError, match=f"{path}: version {version}"):
        tree.decode(path, json.dumps({"version": version}).encode())


@given(st.text() | st.text('\\"/u0\x00\x1f\x7f\u2028é'))
def test_text_is_written_with_jacksons_escapes(text):
    written = json_form.encode({"a": text})
    assert json.loads(written) == {"a": text}
    escaped = written.decode()[6:-2]
    plain = escaped.replace("\\\\", "")
    assert all(part[:4] == part[:4].upper() for part in plain.split("\\u")[1:])


def test_control_characters_have_capital_digits():
    assert json_form.encode("\x1f\t\\u001f") == b'"\\u001F\\t\\\\u001f"'
