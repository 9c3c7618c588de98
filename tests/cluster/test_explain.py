"""Every node's journal of elections, and `explain quorum` over all of them."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkraft.cli import main as cli
from tests.cluster.conftest import STEADY
from tests.support.clusters import Cluster, Member
from tests.support.ports import lasting_ports, wait_until

pytestmark = pytest.mark.real_clients


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

    with cluster:
        wait_until(lambda: health()[0] == 200, "node 3 is healthy")
        cluster.kill(1, 2)
        wait_until(lambda: health()[0] == 503, "node 3 is not healthy")
        assert health()[1]["quorumLeaderlessMs"] >= 1000
        wait_until(
            lambda: "No leader of the quorum has been heard of" in cluster.nodes[3].output_tail(),
            "its log says so",
        )
        account = explain(cluster, capsys)
        assert [node["id"] for node in account["nodes"]] == [3]
        assert len(account["silent"]) == 2
        cluster.start([1])
        wait_until(lambda: health()[0] == 200, "node 3 is healthy again")
