"""What a quorum without a leader tells of itself: by DescribeQuorum, and so by the command."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.cli import main as cli
from sparkraft.client.connection import Connection
from sparkraft.protocol.messages.k55_describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponsePartitionData,
)
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
    wanted = f"The quorum has no leader, as far as node {left} knows, in epoch "

    def told() -> bool:
        answer = described(cluster, left)
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        message = answer.error_message or ""
        assert not message.startswith(wanted) or message.endswith("; its voters are 1, 2, 3")
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
        assert "; its voters are 1, 2, 3" in said
        (told_epoch,) = (int(part.split()[0].rstrip(";")) for part in said.split("epoch ")[1:])
        assert told_epoch >= epoch
