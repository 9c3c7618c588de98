"""A stranger at the controller listeners of real nodes: forged Vote, Begin- and EndQuorumEpoch.

Everything is packed by hand and sent over plain sockets, as a stranger would do it.
"""

import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.cli.main import main
from sparkraft.raft.epoch_guard import OUTSIDER_STEP_MAX, RESERVED_FROM
from sparkraft.storage.disk import OsDisk
from sparkraft.storage.quorum_state import QuorumState, write_quorum_state
from tests.support.clusters import Cluster, Member
from tests.support.nodes import SparkraftNode
from tests.support.ports import wait_until

pytestmark = pytest.mark.real_clients

STRANGER = 99
TOPIC = b"__cluster_metadata"
RECOVERY_SECONDS_MAX = 10


class Reply(NamedTuple):
    """What a voter answered; -1 stands for no leader."""

    error: int
    leader_id: int
    epoch: int
    granted: bool


def ask(port: int, key: int, version: int, body: bytes, *, flexible: bool) -> bytes:
    """Send one request; the body of the response, or nothing if the connection is closed."""
    head = struct.pack(">hhih", key, version, 7, -1) + (b"\x00" if flexible else b"")
    with socket.create_connection(("127.0.0.1", port), timeout=10) as stranger:
        stranger.sendall(struct.pack(">i", len(head + body)) + head + body)
        answer = bytearray()
        while chunk := stranger.recv(65_536):
            answer += chunk
            if len(answer) >= 4 and len(answer) >= 4 + struct.unpack_from(">i", answer)[0]:
                break
    return bytes(answer[8 + flexible :])


def vote(port: int, candidate: int, epoch: int, *, last_epoch: int = 1) -> Reply:
    """Vote v0, from a log that is longer than any."""
    partition = struct.pack(">iiiiq", 0, epoch, candidate, last_epoch, 2**62) + b"\x00"
    topic = bytes([len(TOPIC) + 1]) + TOPIC + b"\x02" + partition + b"\x00"
    body = ask(port, 52, 0, b"\x00" + b"\x02" + topic + b"\x00", flexible=True)
    at = 2 + 1 + 1 + len(TOPIC) + 1
    _, error, leader_id, leader_epoch, granted = struct.unpack_from(">ihii?", body, at)
    return Reply(error, leader_id, leader_epoch, granted)


def _announce(port: int, key: int, partition: bytes) -> Reply:
    """BeginQuorumEpoch or EndQuorumEpoch v0."""
    topic = struct.pack(">h", len(TOPIC)) + TOPIC + struct.pack(">i", 1) + partition
    request = struct.pack(">h", -1) + struct.pack(">i", 1) + topic
    body = ask(port, key, 0, request, flexible=False)
    at = 2 + 4 + 2 + len(TOPIC) + 4
    _, error, leader_id, leader_epoch = struct.unpack_from(">ihii", body, at)
    return Reply(error, leader_id, leader_epoch, granted=False)


def begin(port: int, leader: int, epoch: int) -> Reply:
    return _announce(port, 53, struct.pack(">iii", 0, leader, epoch))


def end(port: int, leader: int, epoch: int) -> Reply:
    return _announce(port, 54, struct.pack(">iiii", 0, leader, epoch, 0))


@pytest.fixture(
    scope="module",
    params=["initial", pytest.param("static", marks=pytest.mark.long)],
)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    members = [Member(node_id) for node_id in (1, 2, 3)]
    directory = tmp_path_factory.mktemp(request.param)
    with Cluster(directory, members, quorum=request.param) as found:
        yield found


def controller_ports(cluster: Cluster) -> list[int]:
    return [cluster.ports[node_id][1] for node_id in cluster.controllers]


def leadership(cluster: Cluster) -> tuple[int, int]:
    found = cluster.describe_quorum()
    return found.leader_id, found.leader_epoch


def in_touch(cluster: Cluster) -> tuple[int, int]:
    """The leader and its epoch, once all voters fetch from it: then outsiders change nothing."""

    def all_fetch() -> bool:
        end_offset = max(voter.log_end_offset for voter in cluster.describe_quorum().voters)
        return all(
            end_offset - voter.log_end_offset < 10 for voter in cluster.describe_quorum().voters
        )

    cluster.leader()
    wait_until(all_fetch, "all voters fetch")
    return leadership(cluster)


def seconds_without_a_leader(cluster: Cluster, topic: str) -> float:
    """How long it takes until a topic is created."""
    since = time.monotonic()
    cluster.create_topic(topic, replicas=3)
    return time.monotonic() - since


@pytest.mark.parametrize(
    ("name", "send"),
    [
        ("the last epoch", lambda port, epoch: vote(port, STRANGER, 2**31 - 2)),
        ("int32", lambda port, epoch: vote(port, STRANGER, 2**31 - 1)),
        ("far", lambda port, epoch: vote(port, STRANGER, epoch + OUTSIDER_STEP_MAX)),
        ("next", lambda port, epoch: vote(port, STRANGER, epoch + 1, last_epoch=epoch)),
        ("leads", lambda port, epoch: begin(port, STRANGER, epoch + 1)),
        ("leads far", lambda port, epoch: begin(port, STRANGER, 20_000)),
        ("ends", lambda port, epoch: end(port, STRANGER, epoch)),
        ("ends a later epoch", lambda port, epoch: end(port, STRANGER, epoch + 1)),
        ("a voter at the last epoch", lambda port, epoch: vote(port, 2, 2**31 - 2)),
        ("a voter that leads the last epoch", lambda port, epoch: begin(port, 2, 2**31 - 2)),
        ("a voter that leads a reserved one", lambda port, epoch: begin(port, 2, RESERVED_FROM)),
    ],
)
def test_a_stranger_changes_neither_leader_nor_epoch(
    cluster: Cluster, name: str, send: Callable[[int, int], Reply]
) -> None:
    leader_id, epoch = before = in_touch(cluster)
    for port in controller_ports(cluster):
        reply = send(port, epoch)
        assert not reply.granted, name
        assert reply.epoch <= epoch, name
    assert leadership(cluster) == before
    assert leader_id in cluster.controllers


def test_a_client_of_a_broker_cannot_make_the_controller_resign(cluster: Cluster) -> None:
    before = in_touch(cluster)
    for node_id in cluster.brokers:
        assert (
            ask(cluster.ports[node_id][0], 10_001, 0, b"\xff\xff\xff\xff\x00", flexible=True) == b""
        )
    assert leadership(cluster) == before


def test_forged_messages_of_voters_cost_an_election_and_nothing_else(cluster: Cluster) -> None:
    leader_id, epoch = in_touch(cluster)
    cluster.create_topic("acknowledged", replicas=3)
    other = next(node_id for node_id in cluster.controllers if node_id != leader_id)
    for port in controller_ports(cluster):
        vote(port, other, epoch + 5_000)
        begin(port, other, epoch + 10_000)
        end(port, other, epoch + 10_000)
        begin(port, other, epoch + 10_000 + port)
    assert seconds_without_a_leader(cluster, "after-forged-voters") < RECOVERY_SECONDS_MAX
    assert leadership(cluster)[1] > epoch
    assert "acknowledged" in cluster.topics()


def test_an_epoch_just_below_the_reserved_ones_leaves_a_million_elections(
    cluster: Cluster,
) -> None:
    """Last, because epochs never go back."""
    in_touch(cluster)
    for port in controller_ports(cluster):
        vote(port, 2, RESERVED_FROM - 1)
    assert seconds_without_a_leader(cluster, "in-the-last-epochs") < RECOVERY_SECONDS_MAX
    epoch = leadership(cluster)[1]
    assert RESERVED_FROM <= epoch < RESERVED_FROM + 100
    for port in controller_ports(cluster):
        assert vote(port, 2, epoch + 101).error == ErrorCode.INVALID_REQUEST
    cluster.stop()
    cluster.start()
    assert "acknowledged" in cluster.topics()
    assert any(
        "few epochs are left for elections" in node.output_path.read_text()
        for node in cluster.nodes.values()
    )


def test_a_voter_at_the_last_epoch_starts_explains_and_is_repaired(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = SparkraftNode(tmp_path / "node")
    node.format()
    metadata = node.log_dir / "__cluster_metadata-0"
    with node:
        pass
    state = QuorumState(leader_epoch=2**31 - 1, version=1)  # type: ignore[arg-type]
    write_quorum_state(OsDisk(), str(metadata), state)
    node.launch()
    wait_until(lambda: "metadata-quorum repair" in node.output_path.read_text(), "it explains")
    vote(node.controller_port, STRANGER, 2**31 - 1)
    assert node.process is not None
    assert node.process.poll() is None
    node.kill()
    repair = ["metadata-quorum", "repair", "--command-config", str(node.properties_path)]
    assert main(repair) == 0
    log_epoch = capsys.readouterr().out.partition("On this node it is ")[2].partition(".")[0]
    assert main([*repair, "--epoch", log_epoch]) == 0
    with node:
        pass
