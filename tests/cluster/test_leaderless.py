"""What a quorum without a leader tells of itself, and its brokers of the cluster, as Kafka's do."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import Uuid
from sparkraft.cli import main as cli
from sparkraft.client.admin import Admin
from sparkraft.client.connection import Connection
from sparkraft.client.quorum_admin import witnesses
from sparkraft.client.values import NewTopic
from sparkraft.protocol.json_form import to_json
from sparkraft.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from sparkraft.protocol.messages.k55_describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponsePartitionData,
)
from sparkraft.protocol.messages.k60_describe_cluster import DescribeClusterRequest
from tests.cluster.conftest import STEADY
from tests.support.clusters import Cluster, Member
from tests.support.ports import wait_until

pytestmark = pytest.mark.real_clients


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, [Member(1), Member(2), Member(3)], overrides=STEADY) as cluster:
        yield cluster


def described(cluster: Cluster, node: int) -> DescribeQuorumResponsePartitionData:
    """What one controller answers, asked itself."""

    async def ask() -> DescribeQuorumResponsePartitionData:
        connection = await Connection.open("127.0.0.1", cluster.ports[node][1])
        wanted = DescribeQuorumRequestTopicData(
            topic_name="__cluster_metadata",
            partitions=[DescribeQuorumRequestPartitionData(partition_index=0)],
        )
        try:
            answer = await connection.send(
                DescribeQuorumRequest(topics=[wanted]), version=2, timeout_ms=30_000
            )
        finally:
            await connection.close()
        partition: DescribeQuorumResponsePartitionData = answer.topics[0].partitions[0]
        return partition

    return asyncio.run(ask())


def test_a_controller_that_does_not_lead_tells_who_does(cluster: Cluster) -> None:
    quorum = cluster.describe_quorum()
    other = next(n for n in cluster.controllers if n != quorum.leader_id)
    place = f"127.0.0.1:{cluster.ports[quorum.leader_id][1]}"
    wanted = f"Controller {quorum.leader_id} at {place} leads the quorum in epoch "

    def told() -> bool:
        answer = described(cluster, other)
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        return (answer.error_message or "").startswith(wanted)

    wait_until(told, "it follows the leader")


def test_without_a_leader_the_command_says_so_with_epoch_and_voters(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    epoch = cluster.describe_quorum().leader_epoch
    leader = cluster.leader()
    left, other = (n for n in cluster.controllers if n != leader)
    cluster.kill(leader, other)
    wanted = f"Node {left} knows no leader of the quorum in epoch "

    def told() -> bool:
        answer = described(cluster, left)
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        message = answer.error_message or ""
        assert not message.startswith(wanted) or message.endswith("; the voters are 1, 2, 3")
        return message.startswith(wanted)

    wait_until(told, "it has noticed that nobody leads")
    config = tmp_path / "client.properties"
    port, controller_port = cluster.ports[left]
    for option, address, patience_ms in (
        ("--bootstrap-controller", controller_port, 3_000),
        ("--bootstrap-server", port, 8_000),  # a broker looks for a leader for 5 s
    ):
        config.write_text(f"default.api.timeout.ms={patience_ms}\n")
        command = ["metadata-quorum", option, f"127.0.0.1:{address}"]
        command += ["--command-config", str(config)]
        capsys.readouterr()
        assert cli.main([*command, "describe", "--status"]) == 1
        said = capsys.readouterr().err
        assert wanted in said
        assert "; the voters are 1, 2, 3" in said
        (told_epoch,) = (int(part.split()[0].rstrip(";")) for part in said.split("epoch ")[1:])
        assert told_epoch >= epoch


OURS, KAFKAS = 1, 2
SURVIVORS, DOOMED = [OURS, KAFKAS], [3, 4, 5]
PLACES = {0: [OURS, KAFKAS], 1: [KAFKAS, 3], 2: [4, OURS], 3: [5, 4]}
"""Partitions led by each survivor and by the dead, with and without replicas on either."""
BY_ID = 12
"""The version of Metadata in which topics may be asked for by id."""


@pytest.fixture
def with_kafka(tmp_path: Path, kafka_jars: Path) -> Iterator[Cluster]:
    """Five voters, a broker of Kafka's among them; a minority of both kinds does not lead."""
    members = [Member(n, "kafka" if n == KAFKAS else "sparkraft") for n in (*SURVIVORS, *DOOMED)]
    cluster = Cluster(tmp_path, members, overrides=STEADY, jars=kafka_jars)
    try:
        cluster.start(DOOMED)  # One of them leads before the others are there.
        cluster.start(SURVIVORS)
        leader = cluster.leader()
        if leader in SURVIVORS:  # Some stall of the machine has moved it.
            cluster.stop(leader)
            cluster.start([leader])
        assert cluster.leader() in DOOMED
        yield cluster
    finally:
        cluster.__exit__()


def asked(port: int, request: Any, versions: range) -> dict[int, Any]:
    """What the node at `port` answers in each version, as JSON, its arrays in order."""

    async def ask() -> dict[int, Any]:
        connection = await Connection.open("127.0.0.1", port)
        try:
            answers = {
                version: await connection.send(request, version=version, timeout_ms=60_000)
                for version in versions
            }
        finally:
            await connection.close()
        return {version: to_json(answer, version) for version, answer in answers.items()}

    return {version: in_order(answer) for version, answer in asyncio.run(ask()).items()}


def in_order(answer: Any) -> Any:
    """Which broker, topic or partition is told first is chance; the order of replicas is not."""
    if isinstance(answer, dict):
        return {key: in_order(value) for key, value in answer.items()}
    if isinstance(answer, list) and answer and isinstance(answer[0], dict):
        return sorted(map(in_order, answer), key=str)
    return answer


def of_the_cluster(cluster: Cluster, node: int, topic_id: Uuid) -> dict[str, Any]:
    """Everything that a broker tells in Metadata and DescribeCluster, but for missing topics."""
    port = cluster.ports[node][0]
    everything = asked(port, MetadataRequest(topics=[]), range(1))
    everything |= asked(port, MetadataRequest(topics=None), range(1, 14))
    names = [MetadataRequestTopic(name="spread")]
    by_id = [MetadataRequestTopic(name=None, topic_id=t) for t in (topic_id, Uuid(b"?" * 16))]
    told = {
        "all": everything,
        "by name": asked(port, MetadataRequest(topics=names), range(14)),
        "by id": asked(port, MetadataRequest(topics=by_id), range(BY_ID, 14)),
        "cluster": asked(port, DescribeClusterRequest(), range(3)),
    }
    for kind, answers in told.items():
        for version, answer in answers.items():
            if kind == "cluster" or version > 0:
                # Any broker that is alive, by the cluster's last word: chance, in Kafka as here.
                assert answer.pop("controllerId") in (*SURVIVORS, *DOOMED), (kind, version)
    return told


@pytest.mark.java
def test_brokers_without_a_quorum_answer_as_kafkas_do(with_kafka: Cluster) -> None:
    cluster = with_kafka
    topic = NewTopic(name="spread", assignment=PLACES)

    async def create(admin: Admin) -> Uuid:
        created = (await admin.create_topics([topic]))["spread"]
        assert not isinstance(created, Exception), created
        return created.id

    topic_id = cluster.ask(create)
    cluster.until_known("spread")
    before = of_the_cluster(cluster, OURS, topic_id)
    assert before == of_the_cluster(cluster, KAFKAS, topic_id)
    killed_ms = time.time_ns() // 1_000_000
    for node in DOOMED:  # All at once: the last of them would fence the first.
        cluster.nodes[node].pause()
    cluster.kill(*DOOMED)

    def noticed() -> bool:
        (seen, _) = cluster.ask(lambda admin: witnesses(admin.cluster, since_ms=killed_ms), of=OURS)
        entries = [entry for witness in seen for entry in witness.entries]
        stood = {entry.candidate_id for entry in entries if entry.kind == "pre-vote"}
        return KAFKAS in stood and any(entry.kind == "prospective" for entry in entries)

    wait_until(noticed, "both stand for an election that nobody can win")
    # The cluster is what it last was; nobody is left who could say that brokers are gone.
    assert of_the_cluster(cluster, OURS, topic_id) == before
    assert of_the_cluster(cluster, KAFKAS, topic_id) == before
    # A topic that isn't there can't be made now, and the answer doesn't wait for it.
    missing = MetadataRequest(
        topics=[MetadataRequestTopic(name="missing")], allow_auto_topic_creation=True
    )
    unknown = [asked(cluster.ports[node][0], missing, range(4, 14)) for node in SURVIVORS]
    for answers in unknown:
        for answer in answers.values():
            answer.pop("controllerId")
            assert answer["topics"][0]["errorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert unknown[0] == unknown[1]
    # And the controllers among themselves (KIP-919).
    controllers = DescribeClusterRequest(endpoint_type=2)
    told = [asked(cluster.ports[node][1], controllers, range(1, 3)) for node in SURVIVORS]
    assert told[0] == told[1]
