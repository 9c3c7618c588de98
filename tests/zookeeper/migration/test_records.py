"""Records of a migration: equal to those that Kafka 3.9.2 wrote for the same znodes."""

import json
from itertools import groupby
from pathlib import Path

import pytest

from sparkraft.metadata.apply import apply
from sparkraft.metadata.image import DIRECTORY_MIGRATING, EMPTY_IMAGE
from sparkraft.protocol.json_form import to_json
from sparkraft.server.env import SystemEntropy
from sparkraft.zookeeper.controller.steps import PIECE_MAX
from sparkraft.zookeeper.migration.conditions import EVERYTHING, check_conditions
from sparkraft.zookeeper.migration.records import batches_of
from sparkraft.zookeeper.migration.writes import changes_between
from sparkraft.zookeeper.znodes.json_form import ZnodeError
from tests.zookeeper.migration.trees import tree_of

RECORDED = Path(__file__).with_name("recorded_records.txt").read_text().splitlines()[1:]


def kafkas_name(record: object) -> str:
    name = type(record).__name__
    return "".join(f"_{c}" if c.isupper() else c for c in name).upper().removeprefix("_")


def records_of(tree, entropy=None):
    return [pair for batch in batches_of(tree, entropy or SystemEntropy()) for pair in batch]


def described(tree):
    shown = []
    for record, version in records_of(tree):
        data = to_json(record, version)
        kind = kafkas_name(record)
        if kind == "ACCESS_CONTROL_ENTRY_RECORD":
            data["id"] = "random"
        shown.append({"type": kind, "version": version, "data": data})
    return shown


def test_they_are_those_of_kafka():
    expected = [json.loads(line) for line in RECORDED]
    for record in expected:
        if record["type"] == "ACCESS_CONTROL_ENTRY_RECORD":
            record["data"]["id"] = "random"
    ours = described(tree_of())
    # The kinds of records come in Kafka's order; within a kind, Kafka has that of its hash tables.
    assert kinds(ours) == kinds(expected)
    assert sorted(map(json.dumps, map(ordered, ours))) == sorted(
        map(json.dumps, map(ordered, expected))
    )


def kinds(described):
    """Kinds of records in order; those of users are a mixture."""
    users = {"USER_SCRAM_CREDENTIAL_RECORD", "CLIENT_QUOTA_RECORD"}
    names = ("USERS" if each["type"] in users else each["type"] for each in described)
    return [name for name, _ in groupby(names)]


def ordered(value):
    if isinstance(value, dict):
        return {key: ordered(value[key]) for key in sorted(value)}
    return value


def test_they_replay_to_an_image():
    image = EMPTY_IMAGE
    for record, _ in records_of(tree_of()):
        image = apply(image, record)
    topic = image.topic("t1")
    assert topic is not None
    assert topic.partitions[1].directories == (DIRECTORY_MIGRATING,) * 2
    assert image.next_producer_id == 3000
    assert dict(image.config(4, "")) == {"log.retention.ms": "7200000"}


def test_a_topic_about_to_be_deleted_is_not_copied():
    tree = tree_of({"/admin/delete_topics/t1": ""})
    assert not [each for each in described(tree) if each["type"] == "TOPIC_RECORD"]


def test_a_partition_without_a_state_starts_with_all_replicas():
    path = "/brokers/topics/t1/partitions/1/state"
    records = [each["data"] for each in described(tree_of({path: None}))]
    found = next(each for each in records if each.get("partitionId") == 1)
    assert (found["leader"], found["isr"], found["leaderEpoch"], found["partitionEpoch"]) == (
        3,
        [3, 1],
        0,
        0,
    )


def test_a_reassignment_and_a_recovery_go_on():
    tree = tree_of(
        {
            "/brokers/topics/t1": '{"partitions":{"0":[3,2,1]},"topic_id":"tCd6H9mrR6y44P05yz6EbQ",'
            '"adding_replicas":{"0":[3]},"removing_replicas":{"0":[1]},"version":3}',
            "/brokers/topics/t1/partitions/0/state": '{"controller_epoch":6,"leader":2,"version":1,'
            '"leader_epoch":11,"isr":[2],"leader_recovery_state":1}',
        }
    )
    found = next(each["data"] for each in described(tree) if "partitionId" in each["data"])
    assert found["addingReplicas"] == [3]
    assert found["removingReplicas"] == [1]
    assert found["leaderRecoveryState"] == 1


def test_a_cluster_that_gave_no_producer_ids_gets_no_record():
    tree = tree_of({"/latest_producer_id_block": None})
    assert not [each for each in described(tree) if each["type"] == "PRODUCER_IDS_RECORD"]


TOPIC = "/brokers/topics/t1"
ALICE = "/config/users/alice"


@pytest.mark.parametrize(
    ("path", "data", "reason"),
    [
        (TOPIC, '{"partitions":{"0":[1]},"version":2}', "no topic id"),
        (
            TOPIC,
            '{"partitions":{"1":[1]},"topic_id":"tCd6H9mrR6y44P05yz6EbQ","version":3}',
            "not numbered from 0",
        ),
        (
            TOPIC,
            '{"partitions":{"0":[]},"topic_id":"tCd6H9mrR6y44P05yz6EbQ","version":3}',
            "partition 0 has no replicas",
        ),
        (ALICE, '{"version":1,"config":{"SCRAM-SHA-256":"salt=?"}}', "malformed SCRAM-SHA-256"),
        (ALICE, '{"version":1,"config":{"producer_byte_rate":"x"}}', "expected a number, got 'x'"),
        (
            ALICE,
            '{"version":1,"config":{"retention.ms":"1"}}',
            "retention.ms is not a client quota",
        ),
        (
            "/config/users/<default>",
            '{"version":1,"config":{"SCRAM-SHA-512":"salt=?"}}',
            "the default of all users has no credentials",
        ),
        (
            "/kafka-acl/Topic/t1",
            '{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","host":"*",'
            '"operation":"Fly"}]}',
            "unknown word in an access control entry: 'Fly'",
        ),
    ],
)
def test_a_znode_that_cannot_be_copied_is_named(path, data, reason):
    with pytest.raises(ZnodeError, match=reason) as caught:
        records_of(tree_of({path: data}))
    assert caught.value.path == path
    assert "?" not in str(caught.value), "no secrets"


def test_a_large_topic_is_cut_into_pieces():
    partitions = {str(index): [1] for index in range(1_000)}
    topic = {"version": 3, "partitions": partitions, "topic_id": "tCd6H9mrR6y44P05yz6EbQ"}
    tree = tree_of({"/brokers/topics/t1": json.dumps(topic)})
    sizes = [len(batch) for batch in batches_of(tree, SystemEntropy())]
    assert max(sizes) <= PIECE_MAX + 3, "the topic and its two configs are with the first piece"
    steps = check_conditions(tree, EVERYTHING)
    assert max(steps) <= PIECE_MAX + 3
    image = EMPTY_IMAGE
    for record, _ in records_of(tree):
        image = apply(image, record)
    changes = [each for each in changes_between(EMPTY_IMAGE, image, None, 1) if each is not None]
    assert max(len(stage) for each in changes for stage in each.stages) <= PIECE_MAX
