"""Every node's journal of elections, and `explain quorum` over all of them."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sparkraft.cli import main as cli
from sparkraft.server.raft.election_journal import FILE_NAME
from tests.cluster.conftest import STEADY
from tests.support.clusters import Cluster, Member
from tests.support.ports import lasting_ports, wait_until

pytestmark = pytest.mark.real_clients

LEADS = {"leader", "follower"}
"""Kinds of steps that tell who leads."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, [Member(n) for n in (1, 2, 3)], overrides=STEADY) as cluster:
        yield cluster


def explain(cluster: Cluster, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    capsys.readouterr()
    code = cli.main(
        ["explain", "quorum", "--bootstrap-server", cluster.bootstrap, "--output", "json", *options]
    )
    said = capsys.readouterr()
    assert code == 0, said.err
    account: dict[str, Any] = json.loads(said.out)
    return account


def test_the_account_of_three_kills_agrees_with_the_log(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    won: dict[int, int] = {}
    for _ in range(3):
        before = cluster.describe_quorum()
        won[before.leader_epoch] = before.leader_id
        cluster.kill(before.leader_id)
        cluster.leader(other_than=before.leader_id)
        cluster.start()
    after = cluster.describe_quorum()
    won[after.leader_epoch] = after.leader_id
    account = explain(cluster, capsys)
    assert [node["id"] for node in account["nodes"]] == [1, 2, 3]
    told = {epoch["epoch"]: epoch for epoch in account["epochs"]}
    for epoch, leader in won.items():
        assert told[epoch]["leader"] == leader
        assert told[epoch]["verdict"] == "confirmed by the log"
        (logged,) = told[epoch]["log"]
        assert logged["leader"] == leader
        assert leader in logged["grantingVoters"]
        assert len(logged["grantingVoters"]) >= 2
    assert "CONTRADICTION" not in {epoch["verdict"] for epoch in account["epochs"]}
    reasons = {step["reason"] for epoch in account["epochs"] for step in epoch["steps"]}
    assert "the leader's port refuses connections" in reasons
    votes = [vote for epoch in account["epochs"] for vote in epoch["votes"]]
    assert any(vote["granted"] for vote in votes)


def test_only_what_is_newer_and_text_for_people(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain(cluster, capsys, "--since", "2099-01-01T00:00:00Z")["epochs"] == []
    assert explain(cluster, capsys, "--since", "1h")["epochs"]
    assert cli.main(["explain", "quorum", "--bootstrap-server", cluster.bootstrap]) == 0
    said = capsys.readouterr().out
    assert "(confirmed by the log)" in said
    assert " became leader: votes of " in said
    bad = ["explain", "quorum", "--bootstrap-server", cluster.bootstrap, "--since", "noon"]
    assert cli.main(bad) == 2


def test_a_node_that_lost_its_majority_is_not_healthy_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (http_port,) = lasting_ports(1)
    overrides = {**STEADY, "sparkraft.http.listener": f"127.0.0.1:{http_port}"}
    cluster = Cluster(tmp_path, [Member(n) for n in (1, 2, 3)], overrides=STEADY)
    cluster.nodes[3].overrides.update(overrides)
    cluster.nodes[3].write_properties()

    def health() -> tuple[int, dict[str, Any]]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/health") as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())
        except OSError:
            return -1, {}  # It listens there last.

    def metrics() -> dict[str, float]:
        """Those of the quorum and of health; of its states, the one it is in."""
        with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/metrics") as answer:
            families = text_string_to_metric_families(answer.read().decode())
        samples = [sample for family in families for sample in family.samples]
        return {
            s.labels.get("state", s.name.removeprefix("sparkraft_")): s.value
            for s in samples
            if not s.labels or (s.name == "sparkraft_raft_state" and s.value)
        }

    with cluster:
        wait_until(lambda: health()[0] == 200, "node 3 is healthy")
        cluster.kill(1, 2)
        wait_until(lambda: health()[0] == 503, "node 3 is not healthy")
        assert health()[1]["quorumLeaderlessMs"] >= 1000
        seen = metrics()
        assert seen["node_healthy"] == 0
        assert seen["raft_leaderless_ms"] >= 1000
        wait_until(lambda: "prospective" in metrics(), "it says that it stands for election")
        assert metrics()["raft_is_leader"] == metrics()["controller_active"] == 0
        wait_until(
            lambda: "No contact with a quorum leader" in cluster.nodes[3].output_tail(),
            "its log says so",
        )
        account = explain(cluster, capsys)
        assert [node["id"] for node in account["nodes"]] == [3]
        assert len(account["silent"]) == 2
        cluster.start([1])
        wait_until(lambda: health()[0] == 200, "node 3 is healthy again")
        wait_until(
            lambda: (metrics()["node_healthy"], metrics()["raft_leaderless_ms"]) == (1, 0),
            "its metrics say so",
        )


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[Cluster]:
    """Three controllers, and a broker that observes them."""
    members = [*(Member(n, roles="controller") for n in (1, 2, 3)), Member(11, roles="broker")]
    with Cluster(tmp_path, members, overrides=STEADY) as cluster:
        yield cluster


def resign(cluster: Cluster, leader: int) -> None:
    controllers = ["--bootstrap-controller", cluster.controller_bootstrap]
    assert cli.main(["metadata-quorum", *controllers, "resign"]) == 0
    assert cluster.leader(other_than=leader) != leader


def stop(cluster: Cluster, leader: int) -> None:
    cluster.stop(leader)
    cluster.leader()


def pause(cluster: Cluster, leader: int) -> None:
    cluster.nodes[leader].pause()
    cluster.leader(other_than=leader)
    cluster.nodes[leader].resume()


def lie(cluster: Cluster, node: int, epoch: int) -> None:
    """Have a node that is down remember another leader of `epoch` than there was."""
    (journal,) = cluster.nodes[node].directory.rglob(FILE_NAME)
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    of_leaders = [one for one in lines if one["epoch"] == epoch and one["kind"] in LEADS]
    assert of_leaders
    for one in of_leaders:
        one["leader"] = one["leader"] % 3 + 1
    journal.write_text("".join(json.dumps(one) + "\n" for one in lines))


def test_every_way_a_leadership_moves_is_named_and_a_journal_that_lies_is_caught(
    apart: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, moved = apart, {}
    for move in (resign, pause, stop):
        before = cluster.describe_quorum()
        moved[move] = (before.leader_epoch, before.leader_id)
        move(cluster, before.leader_id)
    stopped, misremembered = moved[stop][1], moved[resign][0]
    lie(cluster, stopped, misremembered)
    cluster.start([stopped])
    after = cluster.describe_quorum()
    account = explain(cluster, capsys)
    assert [(n["id"], n["isVoter"]) for n in account["nodes"]] == [
        (1, True), (2, True), (3, True), (11, False),
    ]  # fmt: skip
    assert account["silent"] == []
    told = {epoch["epoch"]: epoch for epoch in account["epochs"]}
    for epoch, leader in (*moved.values(), (after.leader_epoch, after.leader_id)):
        lied = epoch == misremembered
        assert told[epoch]["leader"] == leader
        assert told[epoch]["verdict"] == ("CONTRADICTION" if lied else "confirmed by the log")
    steps = {move: told[epoch]["steps"] for move, (epoch, _) in moved.items()}
    ends = {
        move: {(step["node"] == moved[move][1], step["state"], step["reason"]) for step in found}
        for move, found in steps.items()
    }
    assert (True, "resigned", "asked to resign") in ends[resign]
    assert (True, "resigned", "shutting down") in ends[stop]
    for move in (resign, stop):
        assert (False, "prospective", f"leader {moved[move][1]} resigned") in ends[move]
    silence = "no response from the leader within the fetch timeout"
    assert (False, "prospective", silence) in ends[pause]
    controllers = ["--bootstrap-controller", cluster.controller_bootstrap]
    capsys.readouterr()
    assert cli.main(["explain", "quorum", *controllers]) == 0
    said = capsys.readouterr().out
    assert f"epoch {misremembered}: leader {moved[resign][1]} (CONTRADICTION)" in said
    assert f"epoch {moved[stop][0]}: leader {stopped} (confirmed by the log)" in said
    assert f"{moved[resign][1]} became resigned: asked to resign" in said
    assert f"{stopped} became resigned: shutting down" in said
    assert f" became prospective: {silence}" in said
