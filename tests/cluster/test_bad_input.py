"""Requests of the quorum that make no sense, asked of us and of Kafka: the same error codes."""

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.client.connection import Connection
from sparkraft.client.values import QuorumInfo, QuorumReplica
from sparkraft.protocol.messages import k01_fetch as k01
from sparkraft.protocol.messages import k52_vote as k52
from sparkraft.protocol.messages import k53_begin_quorum_epoch as k53
from sparkraft.protocol.messages import k54_end_quorum_epoch as k54
from sparkraft.protocol.messages import k55_describe_quorum as k55
from sparkraft.protocol.messages import k59_fetch_snapshot as k59
from sparkraft.protocol.messages import k80_add_raft_voter as k80
from sparkraft.protocol.messages import k81_remove_raft_voter as k81
from sparkraft.protocol.messages import k82_update_raft_voter as k82
from tests.support.admin_stream import admin_stream
from tests.support.clusters import Cluster, Member
from tests.support.nodes import CLUSTER_ID, NodeProcess
from tests.support.ports import accepts, wait_until

pytestmark = pytest.mark.real_clients

STRANGER = "strangerstrangerstrang"
DIRECTORY = Uuid(b"d" * 16)
FAR = 2**62
METADATA_ID = Uuid(bytes(15) + b"\1")

ENDS_KAFKA = {
    "vote in the last epoch there is",  # nothing can follow it
    "begin of a second leader",  # 4.3.1 stops with an IllegalStateException
    "fetch snapshot of nothing",  # CVE-2026-83525
}
FAILS_IN_KAFKA = {
    # UNKNOWN_SERVER_ERROR: 4.3.1 can't write its own refusal, which lacks the bytes.
    "fetch snapshot that is not there",
    "fetch snapshot in an older epoch",
    "fetch snapshot in a later epoch",
    "fetch snapshot of a topic",
    "fetch snapshot of an absurd id",
    "fetch snapshot of many partitions",
}


def vote(epoch: int, *, cluster: str | None = None, voter: int = -1, **fields: Any) -> Any:
    data = {"replica_id": 7, "replica_directory_id": DIRECTORY, "replica_epoch": epoch, **fields}
    partition = k52.VoteRequestPartitionData(**data)
    topic = k52.VoteRequestTopicData(topic_name="__cluster_metadata", partitions=[partition])
    return k52.VoteRequest(cluster_id=cluster, voter_id=voter, topics=[topic])


def begin(
    epoch: int, *, cluster: str | None = None, voter: int = -1, leader: int = 7, **fields: Any
) -> Any:
    partition = k53.BeginQuorumEpochRequestPartitionData(
        leader_id=leader, leader_epoch=epoch, **fields
    )
    topic = k53.BeginQuorumEpochRequestTopicData(
        topic_name="__cluster_metadata", partitions=[partition]
    )
    return k53.BeginQuorumEpochRequest(cluster_id=cluster, voter_id=voter, topics=[topic])


def end(epoch: int, *, cluster: str | None = None) -> Any:
    partition = k54.EndQuorumEpochRequestPartitionData(leader_id=7, leader_epoch=epoch)
    topic = k54.EndQuorumEpochRequestTopicData(
        topic_name="__cluster_metadata", partitions=[partition]
    )
    return k54.EndQuorumEpochRequest(cluster_id=cluster, topics=[topic])


def fetch(epoch: int, *, cluster: str | None = None, index: int = 0, **fields: Any) -> Any:
    partition = k01.FetchPartition(
        partition=index, current_leader_epoch=epoch, partition_max_bytes=1000,
        **{"fetch_offset": 0, "last_fetched_epoch": 0, **fields},
    )  # fmt: skip
    topic = k01.FetchTopic(topic_id=METADATA_ID, partitions=[partition])
    return k01.FetchRequest(
        cluster_id=cluster, max_wait_ms=0, max_bytes=1000,
        replica_state=k01.ReplicaState(replica_id=7), topics=[topic],
    )  # fmt: skip


def snapshot(epoch: int, *, cluster: str | None = None, topic: str = "__cluster_metadata",
             position: int = 0, end_offset: int = 10, end_epoch: int = 0) -> Any:  # fmt: skip
    partition = k59.FetchSnapshotRequestPartitionSnapshot(
        partition=0,
        current_leader_epoch=epoch,
        snapshot_id=k59.SnapshotId(end_offset=end_offset, epoch=end_epoch),
        position=position,
    )
    named = k59.FetchSnapshotRequestTopicSnapshot(name=topic, partitions=[partition])
    return k59.FetchSnapshotRequest(
        cluster_id=cluster, replica_id=7, max_bytes=1000, topics=[named]
    )


def many_snapshots(epoch: int) -> Any:
    request = snapshot(epoch)
    request.topics[0].partitions *= 10_000
    return request


def describe(topic: str, *partitions: int) -> Any:
    wanted = [k55.DescribeQuorumRequestPartitionData(partition_index=n) for n in partitions or (0,)]
    return k55.DescribeQuorumRequest(
        topics=[k55.DescribeQuorumRequestTopicData(topic_name=topic, partitions=wanted)]
    )


def add(
    *, cluster: str | None = None, directory: Uuid = DIRECTORY, name: str = "CONTROLLER"
) -> Any:
    listener = k80.Listener(name=name, host="127.0.0.1", port=1)
    return k80.AddRaftVoterRequest(
        cluster_id=cluster, timeout_ms=1000, voter_id=7, voter_directory_id=directory,
        listeners=[listener],
    )  # fmt: skip


def remove(*, cluster: str | None = None, directory: Uuid = DIRECTORY) -> Any:
    return k81.RemoveRaftVoterRequest(cluster_id=cluster, voter_id=7, voter_directory_id=directory)


def update(epoch: int) -> Any:
    listener = k82.Listener(name="CONTROLLER", host="127.0.0.1", port=1)
    return k82.UpdateRaftVoterRequest(
        cluster_id=None, current_leader_epoch=epoch, voter_id=7, voter_directory_id=DIRECTORY,
        listeners=[listener],
        k_raft_version_feature=k82.KRaftVersionFeature(max_supported_version=1),
    )  # fmt: skip


def questions(epoch: int) -> dict[str, tuple[Any, ErrorCode]]:
    """What is asked of the leader of `epoch`, node 1, and the error it must answer with."""
    e = ErrorCode
    return {
        "vote for another cluster": (vote(9, cluster=STRANGER), e.INCONSISTENT_CLUSTER_ID),
        "vote in an older epoch": (vote(epoch - 1, pre_vote=True), e.FENCED_LEADER_EPOCH),
        "vote in a negative epoch": (vote(-5), e.INVALID_REQUEST),
        "vote for an id below zero": (vote(epoch, replica_id=-3), e.INVALID_REQUEST),
        "vote with a negative offset": (vote(epoch, last_offset=-1), e.INVALID_REQUEST),
        "vote with a log of the future": (vote(epoch, last_offset_epoch=99), e.INVALID_REQUEST),
        "vote meant for another voter": (vote(epoch, voter=99), e.INVALID_VOTER_KEY),
        "vote meant for another directory": (
            vote(epoch, voter=1, voter_directory_id=DIRECTORY), e.INVALID_VOTER_KEY
        ),
        "vote meant for this voter's id": (vote(epoch, voter=1), e.NONE),
        "vote about nothing": (k52.VoteRequest(), e.INVALID_REQUEST),
        "vote in the last epoch there is": (vote(2**31 - 1), e.INVALID_REQUEST),
        "begin of another cluster": (begin(9, cluster=STRANGER), e.INCONSISTENT_CLUSTER_ID),
        "begin of an older epoch": (begin(epoch - 1), e.FENCED_LEADER_EPOCH),
        "begin of a second leader": (begin(epoch), e.INVALID_REQUEST),
        "begin by nobody": (begin(epoch, leader=-1), e.INVALID_REQUEST),
        "begin meant for another voter": (begin(epoch, leader=1, voter=99), e.INVALID_VOTER_KEY),
        "begin meant for another directory": (
            begin(epoch, leader=1, voter=1, voter_directory_id=DIRECTORY), e.INVALID_VOTER_KEY
        ),
        "begin meant for this voter's id": (begin(epoch, leader=1, voter=1), e.NONE),
        "begin of nothing": (k53.BeginQuorumEpochRequest(), e.INVALID_REQUEST),
        "end of another cluster": (end(9, cluster=STRANGER), e.INCONSISTENT_CLUSTER_ID),
        "end of an older epoch": (end(epoch - 1), e.FENCED_LEADER_EPOCH),
        "end of nothing": (k54.EndQuorumEpochRequest(), e.INVALID_REQUEST),
        "fetch of another cluster": (fetch(epoch, cluster=STRANGER), e.INCONSISTENT_CLUSTER_ID),
        "fetch in an older epoch": (fetch(epoch - 1), e.FENCED_LEADER_EPOCH),
        "fetch in a later epoch": (fetch(epoch + 1), e.UNKNOWN_LEADER_EPOCH),
        "fetch below zero": (fetch(epoch, fetch_offset=-1), e.INVALID_REQUEST),
        "fetch after an epoch below zero": (fetch(epoch, last_fetched_epoch=-2), e.INVALID_REQUEST),
        "fetch after an epoch to come": (fetch(epoch, last_fetched_epoch=99), e.INVALID_REQUEST),
        "fetch of another partition": (fetch(epoch, index=3), e.INVALID_REQUEST),
        "fetch far beyond the end": (
            fetch(epoch, fetch_offset=FAR, last_fetched_epoch=epoch), e.NONE
        ),
        "fetch snapshot of another cluster": (
            snapshot(epoch, cluster=STRANGER), e.INCONSISTENT_CLUSTER_ID
        ),
        "fetch snapshot that is not there": (snapshot(epoch), e.SNAPSHOT_NOT_FOUND),
        "fetch snapshot in an older epoch": (snapshot(epoch - 1), e.FENCED_LEADER_EPOCH),
        "fetch snapshot in a later epoch": (snapshot(epoch + 1), e.UNKNOWN_LEADER_EPOCH),
        "fetch snapshot of a topic": (snapshot(epoch, topic="t"), e.UNKNOWN_TOPIC_OR_PARTITION),
        "fetch snapshot of nothing": (k59.FetchSnapshotRequest(replica_id=7), e.INVALID_REQUEST),
        "fetch snapshot of an absurd id": (
            snapshot(epoch, end_offset=-FAR, end_epoch=-7), e.SNAPSHOT_NOT_FOUND
        ),
        "fetch snapshot of many partitions": (many_snapshots(epoch), e.INVALID_REQUEST),
        "describe nothing": (k55.DescribeQuorumRequest(), e.NONE),
        "describe a topic": (describe("t"), e.UNKNOWN_TOPIC_OR_PARTITION),
        "describe another partition": (
            describe("__cluster_metadata", 2**31 - 1), e.UNKNOWN_TOPIC_OR_PARTITION
        ),
        "describe many": (
            describe("__cluster_metadata", *range(10_000)), e.UNKNOWN_TOPIC_OR_PARTITION
        ),
        "add in another cluster": (add(cluster=STRANGER), e.INCONSISTENT_CLUSTER_ID),
        "add without a directory": (add(directory=Uuid.ZERO), e.INVALID_REQUEST),
        "add without a known listener": (add(name="OTHER"), e.INVALID_REQUEST),
        "remove from another cluster": (remove(cluster=STRANGER), e.INCONSISTENT_CLUSTER_ID),
        "remove without a directory": (remove(directory=Uuid.ZERO), e.INVALID_REQUEST),
        "remove a stranger": (remove(), e.VOTER_NOT_FOUND),
        "update in an older epoch": (update(epoch - 1), e.FENCED_LEADER_EPOCH),
        "update in a later epoch": (update(epoch + 1), e.UNKNOWN_LEADER_EPOCH),
        "update a stranger": (update(epoch), e.VOTER_NOT_FOUND),
    }  # fmt: skip


def code_of(answer: Any) -> ErrorCode:
    """The first error in an answer, outside or inside."""
    codes = [answer.error_code] if hasattr(answer, "error_code") else []
    for topic in getattr(answer, "topics", None) or getattr(answer, "responses", None) or ():
        codes += [partition.error_code for partition in topic.partitions]
    return ErrorCode(next((code for code in codes if code), 0))


KAFKAS = pytest.param("kafka", marks=[pytest.mark.java, pytest.mark.shared_kafka])


@pytest.fixture(params=["sparkraft", KAFKAS])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    if request.param == "kafka":
        yield request.getfixturevalue("shared_kafka")
        return
    with Cluster(tmp_path, [Member(1)], quorum="standalone") as cluster:
        yield cluster


def test_nonsense_is_refused_by_its_own_error_and_the_node_lives(cluster: Cluster) -> None:
    epoch = cluster.describe_quorum().leader_epoch
    kafkas = cluster.members[1].kind == "kafka"

    async def ask() -> dict[str, object]:
        wrong: dict[str, object] = {}
        for name, (request, wanted) in questions(epoch).items():
            if kafkas and name in ENDS_KAFKA | FAILS_IN_KAFKA:
                continue
            # A connection each: one that is closed on us must not hide what comes after it.
            connection = await Connection.open("127.0.0.1", cluster.ports[1][1])
            version = 17 if isinstance(request, k01.FetchRequest) else None
            try:
                answer = await connection.send(request, version=version, timeout_ms=30_000)
            except KafkaError as error:
                wrong[name] = error
                continue
            finally:
                await connection.close()
            if code_of(answer) is not wanted:
                wrong[name] = (code_of(answer), wanted)
        return wrong

    assert asyncio.run(ask()) == {}
    cluster.create_topic("still-here")
    assert cluster.describe_quorum().leader_epoch == epoch


@pytest.mark.parametrize("voter", ["2@127.0.0.1", "2@127.0.0.1:x", "2@127.0.0.1:99999", "two@h:1"])
def test_voters_that_do_not_parse_stop_the_start_with_a_sentence(
    tmp_path: Path, voter: str
) -> None:
    cluster = Cluster(
        tmp_path,
        [Member(1)],
        quorum="static",
        overrides={"controller.quorum.voters": f"1@127.0.0.1:9,{voter}"},
    )
    node = cluster.nodes[1]
    with contextlib.suppress(AssertionError):  # some are seen when formatting already
        node.format()
    node.launch()
    assert node.process is not None
    assert node.process.wait(90) == 1
    assert "controller.quorum.voters: " in node.output_tail()
    assert "Traceback" not in node.output_tail()


def format_for_another_cluster(node: NodeProcess) -> None:
    formatted = subprocess.run(
        [STRANGER if part == CLUSTER_ID else part for part in node.format_command()],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert formatted.returncode == 0, formatted.stderr


def test_a_stranger_and_a_double_stay_outside_say_why_and_harm_nobody(tmp_path: Path) -> None:
    members = [Member(1), Member(11, roles="broker")]
    with Cluster(tmp_path, members, quorum="standalone") as cluster:
        stranger = cluster.add(Member(12, roles="broker"))
        format_for_another_cluster(stranger)
        double = cluster.add(Member(13, roles="broker"))
        double.overrides["node.id"] = "11"
        double.write_properties()
        double.format()
        stranger.launch()
        double.launch()
        try:
            wait_until(
                lambda: "belongs to another cluster" in stranger.output_tail(), "it says so", 90
            )
            wait_until(
                lambda: "Broker id 11 is registered by another process" in double.output_tail(),
                "it says so",
                90,
            )
            assert not accepts(stranger.port)
            assert not accepts(double.port)
        finally:
            stranger.kill()
            double.kill()
        cluster.create_topic("still-here", partitions=4)
        wait_until(lambda: cluster.topics(of=11) == {"still-here"}, "the right one serves", 90)


def test_a_voter_of_another_cluster_and_a_double_with_another_directory_count_for_nothing(
    tmp_path: Path,
) -> None:
    """As in Kafka both live on beside the quorum: refused the one, an observer the other.

    A voter is its id and its directory id. So when the last but one voter dies, nobody leads,
    however well the double follows.
    """
    members = [Member(n, roles="controller") for n in (1, 2, 3)] + [Member(11, roles="broker")]
    with Cluster(tmp_path, members) as cluster:

        def quorum() -> QuorumInfo:
            return cluster.ask(lambda admin: admin.describe_quorum(), of=11)

        def keys(replicas: tuple[QuorumReplica, ...]) -> set[tuple[int, Uuid]]:
            return {(replica.id, replica.directory_id) for replica in replicas}

        voters = keys(quorum().voters)
        assert {(n, Uuid.parse(text)) for n, text in cluster.directory_ids.items()} == voters
        leader = cluster.leader()
        doubled, stranger = (n for n in cluster.controllers if n != leader)
        cluster.stop(stranger)
        shutil.rmtree(cluster.nodes[stranger].log_dir)
        format_for_another_cluster(cluster.nodes[stranger])
        cluster.nodes[stranger].launch()
        double = cluster.add(Member(4, roles="controller"))
        double.overrides["node.id"] = str(doubled)
        double.write_properties()
        double.format()
        double.launch()

        def follows() -> bool:
            return doubled in {replica.id for replica in quorum().observers}

        wait_until(follows, "the double is an observer", 90)
        wait_until(
            lambda: "belongs to another cluster" in cluster.nodes[stranger].output_tail(),
            "the stranger says so",
            90,
        )
        cluster.create_topic("still-here")
        assert keys(quorum().voters) == voters

        def complaints() -> int:
            output = cluster.nodes[leader].output_path.read_text()
            return output.count("No contact with a quorum leader")

        before = complaints()
        cluster.kill(doubled)
        wait_until(lambda: complaints() > before, "who is left doesn't lead", 90)
        cluster.start([doubled])
        cluster.create_topic("after-all")
        assert keys(quorum().voters) == voters
        for node in (cluster.nodes[stranger], double):
            assert node.process is not None
            assert node.process.poll() is None


def test_a_copy_of_a_controller_with_its_directory_costs_nothing_that_a_leader_outlives(
    tmp_path: Path,
) -> None:
    """Two processes with one id and one directory id: nobody can tell whose fetches are whose.

    Nor whose candidacies: both may get the same votes in one epoch, and lead it. So the leader of
    before stays until the copy is gone, and what it has committed since is on the others.
    """
    members = [Member(n, roles="controller") for n in (1, 2, 3)] + [Member(11, roles="broker")]
    with Cluster(tmp_path, members) as cluster:
        cluster.create_topic("before")
        original = next(n for n in cluster.controllers if n != cluster.leader())
        cluster.stop(original)
        copy = cluster.add(Member(4, roles="controller"))
        copy.overrides["node.id"] = str(original)
        copy.write_properties()
        shutil.copytree(cluster.nodes[original].log_dir, copy.log_dir)
        cluster.start([original, 4])
        with admin_stream(cluster, "doubled") as stream:
            wait_until(lambda: stream.acknowledged >= 40, "requests go on", 120)
            copy.kill()
            reached = stream.acknowledged + 40
            wait_until(lambda: stream.acknowledged >= reached, "and without the copy", 120)
            ended = cluster.leader()
            cluster.kill(ended)
            reached = stream.acknowledged + 40
            wait_until(lambda: stream.acknowledged >= reached, "and after a failover", 120)
            cluster.start([ended])
