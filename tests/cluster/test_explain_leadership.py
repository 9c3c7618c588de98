"""`explain partition`, `broker`, `topic`: kills, stops, elections, moves, lags, the past."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from sparkraft.cli import main as cli
from sparkraft.client.admin import Admin
from sparkraft.client.leadership import PREFERRED, UNCLEAN, LeadershipAdmin
from tests.support.clusters import Cluster, Member
from tests.support.ports import wait_until
from tests.support.replicas import create_assigned, partition_of

pytestmark = pytest.mark.real_clients

# Sessions outlive every wait, so that only a refused connection or a request fences.
OVERRIDES = {
    "broker.session.timeout.ms": "600000",
    "broker.heartbeat.interval.ms": "500",
    # Followers in sync are heard of oftener than that, also where the machine has other work.
    "replica.lag.time.max.ms": "6000",
    "auto.leader.rebalance.enable": "false",
}
CONTROLLER = Member(100, roles="controller")
BROKERS = [Member(n, roles="broker") for n in (1, 2, 3)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, [CONTROLLER, *BROKERS], overrides=OVERRIDES) as cluster:
        yield cluster


@pytest.fixture
def explain(cluster, capsys):
    """Runs it: the document, or the text with `text`, or what it said on failing with `code`."""

    def run(*argv: str, text: bool = False, code: int = 0) -> Any:
        capsys.readouterr()
        output = [] if text else ["--output", "json"]
        found = cli.main(["explain", *argv, "--bootstrap-server", cluster.bootstrap, *output])
        said = capsys.readouterr()
        assert found == code, said.out + said.err
        if code:
            return said.err
        return said.out if text else json.loads(said.out)

    return run


def elect(cluster: Cluster, kind: int, name: str) -> None:
    async def work(admin: Admin) -> None:
        outcome = await LeadershipAdmin(admin.cluster).elect_leaders(kind, [(name, 0)])
        assert outcome == {(name, 0): None}

    cluster.ask(work)


def in_sync(cluster: Cluster, name: str, *brokers: int) -> None:
    wait_until(
        lambda: sorted(partition_of(cluster, name).isr) == sorted(brokers), f"{brokers} in sync"
    )


def produce(bootstrap: str, topic: str, count: int, *, acks: str) -> None:
    failed = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks})
    for number in range(count):
        producer.produce(
            topic,
            value=str(number),
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(90) == 0
    assert failed == []


def test_every_kind_of_election_is_told_with_its_reasons(cluster, explain):
    create_assigned(cluster, "t", [[1, 2, 3]], **{"min.insync.replicas": "2"})
    cluster.kill(1)
    in_sync(cluster, "t", 2, 3)
    told = explain("partition", "t", "0")
    newest = told["elections"][0]
    assert (newest["previous"], newest["leader"], newest["leaderEpoch"]) == (1, 2, 1)
    assert (newest["kind"], newest["chosenBy"]) == ("offline", "in-sync replica")
    assert newest["cause"] == ("broker 1's connection closed and its listener refuses connections")
    assert (newest["candidates"], newest["live"]) == ([1, 2, 3], [2, 3])
    assert newest["ruledOut"] == [{"replica": 1, "why": "fenced"}]
    assert newest["from"] == "journal"
    assert told["since"]["offset"] == newest["offset"]
    assert told["offline"] == [1]
    cluster.start([1])
    in_sync(cluster, "t", 1, 2, 3)
    elect(cluster, PREFERRED, "t")
    cluster.stop(1)
    cluster.start([1])
    in_sync(cluster, "t", 1, 2, 3)
    told = explain("partition", "t", "0")
    assert [e["kind"] for e in told["elections"]] == [
        "controlled shutdown",
        "preferred",
        "offline",
        "made",
    ]
    assert all(e.get("agrees", True) for e in told["elections"])
    # Without its journal the controller tells the same from the log, less the finer words.
    cluster.stop(100)
    cluster.start([100])
    wait_until(lambda: explain("partition", "t", "0")["leader"] == told["leader"], "it is back")
    again = explain("partition", "t", "0")
    assert [e["kind"] for e in again["elections"]] == [e["kind"] for e in told["elections"]]
    assert {e["from"] for e in again["elections"]} == {"log"}
    assert again["elections"][2]["cause"] == "broker 1 was fenced"
    for one, other in zip(again["elections"], told["elections"], strict=True):
        same = ("offset", "leader", "leaderEpoch", "candidates", "isr", "live", "ruledOut")
        assert {k: one.get(k) for k in same} == {k: other.get(k) for k in same}


def test_a_partition_that_lost_everybody_and_came_back(cluster, explain):
    create_assigned(cluster, "lost", [[1, 2]], **{"min.insync.replicas": "2"})
    cluster.stop(2)
    cluster.kill(1)
    wait_until(lambda: partition_of(cluster, "lost").leader in {-1, None}, "nobody leads")
    told = explain("partition", "lost", "0")
    assert told["leader"] is None
    assert told["lastKnownLeader"] == 1
    assert [r["replica"] for r in told["elections"][0]["ruledOut"]] == [1, 2]
    assert "nobody leads in epoch" in explain("partition", "lost", "0", text=True)
    cluster.start([2])
    wait_until(lambda: partition_of(cluster, "lost").leader == 2, "2 leads")
    newest = explain("partition", "lost", "0")["elections"][0]
    assert (newest["kind"], newest["cause"]) == (
        "eligible leader replica",
        "broker 2 was unfenced",
    )
    create_assigned(cluster, "gone", [[2, 3]])
    cluster.stop(3)
    cluster.kill(2)
    cluster.start([3])
    wait_until(lambda: partition_of(cluster, "gone").isr == (), "nobody is in sync")
    elect(cluster, UNCLEAN, "gone")
    told = explain("partition", "gone", "0")
    assert (told["elections"][0]["kind"], told["leader"]) == ("unclean", 3)
    assert told["isRecovering"]


def test_who_fell_behind_how_far_and_how_long(cluster, explain):
    create_assigned(cluster, "slow", [[1, 2]])
    bootstrap = f"127.0.0.1:{cluster.ports[1][0]}"
    produce(bootstrap, "slow", 10, acks="all")  # so that 2 has fetched
    cluster.nodes[2].pause()
    try:
        produce(bootstrap, "slow", 100, acks="1")
        in_sync(cluster, "slow", 1)
    finally:
        cluster.nodes[2].resume()
    in_sync(cluster, "slow", 1, 2)
    # A leader notes a change when the controller answers, and may be told of it by the log before.
    wait_until(
        lambda: all(c["recorded"] for c in explain("partition", "slow", "0")["isrChanges"]),
        "the leader has noted both changes",
    )
    told = explain("partition", "slow", "0")
    joined, left = told["isrChanges"]
    assert (joined["joined"], left["left"]) == ([2], [2])
    (lag,) = left["lags"]
    assert (lag["replica"], lag["recordsBehind"]) == (2, 100)
    assert lag["behindMs"] >= 6000
    text = explain("partition", "slow", "0", text=True)
    assert "      2 left: 100 records behind, without everything for " in text
    assert "      2 caught up\n" in text
    cluster.stop(1)  # with its journal
    cluster.start([1])
    told = explain("partition", "slow", "0")
    of_the_leader = [c for c in told["isrChanges"] if c["cause"] == "leader 1 changed the ISR"]
    assert len(of_the_leader) == 2
    assert not any(c["recorded"] for c in of_the_leader)
    assert "leader 1 changed the ISR; cause not recorded" in explain(
        "partition", "slow", "0", text=True
    )


def test_the_past_by_offset_and_by_time(cluster, explain):
    create_assigned(cluster, "was", [[1, 2]])
    made = explain("partition", "was", "0")
    cluster.kill(1)
    in_sync(cluster, "was", 2)
    now = explain("partition", "was", "0")
    offset = now["elections"][0]["offset"]
    for moment in (
        ["--at-offset", str(offset - 1)],
        ["--at-time", made["elections"][0]["time"]],
    ):
        then = explain("partition", "was", "0", *moment)
        assert (then["leader"], then["leaderEpoch"], then["isr"]) == (1, 0, [1, 2])
        assert [e["kind"] for e in then["elections"]] == ["made"]
    assert explain("partition", "was", "0", "--at-offset", str(offset))["leader"] == 2
    assert "is not committed" in explain("partition", "was", "0", "--at-offset", "99999", code=1)
    assert "topic was does not exist" in explain("partition", "was", "0", "--at-time", "2h", code=1)
    both = ["--at-time", "2h", "--at-offset", "3"]
    assert "not both" in explain("partition", "was", "0", *both, code=2)
    assert "no partition 7" in explain("partition", "was", "7", code=1)


def test_a_broker_and_a_topic(cluster, explain):
    create_assigned(cluster, "both", [[1, 2], [2, 1], [3, 1]])
    cluster.kill(1)
    in_sync(cluster, "both", 2)
    told = explain("broker", "1")
    assert told["state"] == "fenced"
    assert (told["replicas"], told["leads"], told["preferredLeaderOf"]) == (3, 0, 1)
    assert told["outOfSync"] == ["both-0", "both-1", "both-2"]
    assert [c["what"] for c in told["changes"]] == ["fenced", "unfenced", "registered"]
    assert [(e["topic"], e["partition"], e["leader"]) for e in told["elections"]] == [
        ("both", 0, 2), ("both", 0, 1),
    ]  # fmt: skip
    assert explain("broker", "77")["state"] == "not registered"
    text = explain("broker", "1", text=True)
    assert "leads 0 of 3 partitions, would lead 1 if all brokers were in sync" in text
    topic = explain("topic", "both")
    assert [p["leader"] for p in topic["partitions"]] == [2, 2, 3]
    assert topic["copiesThatOutliveDeletion"] == [1]
    text = explain("topic", "both", text=True)
    partitions = [line for line in text.splitlines() if line.startswith("  partition ")]
    assert partitions[0].startswith("  partition 0: leader 2 in epoch 1 since ")
    assert "(offline election); in sync 2" in partitions[0]
    assert partitions[2].startswith("  partition 2: leader 3 in epoch 0 since ")
    assert "(made); in sync 3" in partitions[2]
    whole = explain("partition", "both", "0", text=True)
    assert re.search(r"leader 2 in epoch 1, since .* \(offset \d+; offline election\)", whole)
    assert "if it were deleted now, copies on 1 would stay there" in text


def test_a_reassignment_is_told_as_long_as_it_is_under_way(cluster, explain):
    create_assigned(cluster, "moves", [[3, 1]])
    cluster.kill(2)

    async def move(admin: Admin) -> None:
        outcome = await LeadershipAdmin(admin.cluster).reassign({("moves", 0): [3, 2]})
        assert outcome == {("moves", 0): None}

    cluster.ask(move)
    under_way = {"adding": [2], "removing": [1]}
    moving = explain("partition", "moves", "0")
    assert (moving["reassignment"], moving["replicas"]) == (under_way, [3, 2, 1])
    assert explain("topic", "moves")["partitions"][0]["reassignment"] == under_way
    text = explain("partition", "moves", "0", text=True)
    assert "reassignment under way: 2 joining, 1 leaving" in text
    assert "2 joining" in explain("topic", "moves", text=True)
    cluster.start([2])
    wait_until(lambda: explain("partition", "moves", "0")["reassignment"] is None, "it has moved")
    moved = explain("partition", "moves", "0")
    assert (moved["replicas"], moved["isr"]) == ([3, 2], [3, 2])
    causes = [change["cause"] for change in moved["isrChanges"]]
    assert any("changed the ISR" in cause for cause in causes), causes
    before = explain("partition", "moves", "0", "--at-offset", str(moving["asOf"]["offset"]))
    assert before["reassignment"] == under_way


def test_other_things_have_no_explanation(capsys):
    assert cli.main(["explain"]) == 2
    assert "explain partition TOPIC PARTITION" in capsys.readouterr().out
    assert cli.main(["explain", "everything"]) == 2
    assert "quorum, partition, broker, topic" in capsys.readouterr().err


@pytest.mark.java
def test_under_a_controller_of_kafka_our_brokers_explain_from_the_log(
    tmp_path: Path, kafka_jars: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    members = [Member(100, kind="kafka", roles="controller"), BROKERS[0]]
    members.append(Member(2, kind="kafka", roles="broker"))
    sessions = {
        "broker.session.timeout.ms": "9000",
        "broker.heartbeat.interval.ms": "500",
        "auto.leader.rebalance.enable": "false",
    }
    with Cluster(tmp_path, members, overrides=sessions, jars=kafka_jars) as cluster:
        create_assigned(cluster, "mixed", [[2, 1]])
        in_sync(cluster, "mixed", 1, 2)
        cluster.kill(2)
        in_sync(cluster, "mixed", 1)
        argv = ["explain", "partition", "mixed", "0", "--output", "json"]
        capsys.readouterr()
        assert cli.main([*argv, "--bootstrap-server", f"127.0.0.1:{cluster.ports[1][0]}"]) == 0
        told = json.loads(capsys.readouterr().out)
        newest = told["elections"][0]
        assert (newest["previous"], newest["leader"], newest["kind"]) == (2, 1, "offline")
        assert (newest["cause"], newest["from"]) == ("broker 2 was fenced", "log")
        assert newest["ruledOut"] == [{"replica": 2, "why": "fenced"}]
        assert newest["agrees"]
        whys = {one["why"] for one in told["silent"]}
        assert any("only sparkraft's nodes" in why for why in whys)
