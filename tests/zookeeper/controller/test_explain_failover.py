"""`sparkraft explain failover` on a real ensemble with Kafka's znodes."""

import json

import pytest
from kazoo.client import KazooClient

from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.explain import main
from tests.support.zookeeper import Ensemble

pytestmark = [pytest.mark.java, pytest.mark.real_time]

ZNODES = {
    "/controller_epoch": "1",
    "/brokers/ids/2": '{"version":5,"endpoints":["PLAINTEXT://127.0.0.1:2"],"features":{},"jmx_port":-1}',
    "/brokers/ids/3": '{"version":5,"endpoints":["PLAINTEXT://127.0.0.1:3"],"features":{},"jmx_port":-1}',
    "/brokers/topics/t1": '{"version":3,"partitions":{"0":[1,2],"1":[3,1]}}',
    "/brokers/topics/t1/partitions/0/state": '{"controller_epoch":1,"leader":1,"version":1,'
    '"leader_epoch":1,"isr":[1,2]}',
    "/brokers/topics/t1/partitions/1/state": '{"controller_epoch":1,"leader":3,"version":1,'
    '"leader_epoch":0,"isr":[3]}',
}


@pytest.fixture(scope="module")
def chroot(ensemble: Ensemble) -> str:
    """A cluster without broker 1, which led t1-0."""
    client = KazooClient(ensemble.connect)
    client.start(30)
    for path, data in ZNODES.items():
        client.create(f"/explained{path}", data.encode(), makepath=True)
    client.stop()
    client.close()
    return f"{ensemble.connect}/explained"


def test_it_prints_steps_elections_and_reasons(chroot, capsys):
    assert main(["failover", "--zookeeper", chroot]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "A controller of epoch 2 with live brokers 2, 3 would:"
    assert "  2. read 2 brokers, 1 topics, 2 partitions" in lines
    assert (
        "  t1-0: leader 2 (in-sync replica), replicas [1, 2], ISR [2]; not 1: broker not registered"
    ) in lines
    assert lines[-1] == "Partitions without a leader: 0"


def test_it_changes_nothing(ensemble, chroot):
    client = KazooClient(chroot)
    client.start(30)
    try:
        before = {path: client.exists(path) for path in ZNODES}
        main(["failover", "--zookeeper", chroot, "--without-broker", "3"])
        assert {path: client.exists(path) for path in ZNODES} == before
    finally:
        client.stop()
        client.close()


def test_it_assumes_the_failure_of_a_broker(chroot, capsys):
    main(["failover", "--zookeeper", chroot, "--without-broker", "3", "--output", "json"])
    document = json.loads(capsys.readouterr().out)
    assert document["live_brokers"] == [2]
    assert document["offline_partitions"] == 1
    failed = next(each for each in document["elections"] if each["partition"] == 1)
    assert failed["leader"] == -1
    assert failed["ruled_out"] == {"3": "broker not registered", "1": "broker not registered"}


@pytest.mark.parametrize(("protocol", "versions"), [("3.9", (7, 8)), ("2.7", (4, 6))])
def test_it_prints_the_requests_to_brokers(chroot, capsys, protocol, versions):
    options = ["--zookeeper", chroot, "--inter-broker-protocol-version", protocol]
    assert main(["failover", *options, "--output", "json"]) == 0
    messages = json.loads(capsys.readouterr().out)["messages"]
    found = {(each["request"], each["version"]) for each in messages}
    assert found == {("LeaderAndIsr", versions[0]), ("UpdateMetadata", versions[1])}
    assert {each["broker"] for each in messages} == {2, 3}
    assert all(each["bytes"] > 30 for each in messages)
    assert main(["failover", *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = messages[0]
    assert (
        f"  {first['request']} version {first['version']} to broker {first['broker']}:"
        f" {first['bytes']} bytes"
    ) in lines


def test_a_listener_that_a_leader_does_not_have_is_named(chroot):
    with pytest.raises(CommandError, match=r"has no listener named INSIDE\. Name the listener"):
        main(["failover", "--zookeeper", chroot, "--inter-broker-listener", "INSIDE"])


def test_an_unknown_protocol_version_is_named(chroot):
    with pytest.raises(UsageError, match=r"'4\.0' is not an inter\.broker\.protocol\.version"):
        main(["failover", "--zookeeper", chroot, "--inter-broker-protocol-version", "4.0"])


def test_a_chroot_without_a_cluster_is_named(ensemble, capsys):
    with pytest.raises(CommandError, match="has no /controller_epoch"):
        main(["failover", "--zookeeper", f"{ensemble.connect}/nothing"])


def test_the_failure_of_a_broker_under_the_present_controller(chroot, capsys):
    assert main(["broker-failure", "3", "--zookeeper", chroot]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "A controller of epoch 1 with live brokers 2 would:"
    assert "  1. failed: 3" in lines
    assert "Writes: 2 znodes" in lines
    assert lines[-1] == "Partitions without a leader: 1"


def test_a_broker_that_is_not_registered_can_not_fail(chroot):
    with pytest.raises(CommandError, match="broker 9 is not registered"):
        main(["broker-failure", "9", "--zookeeper", chroot])
