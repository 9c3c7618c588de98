"""The sentence on a cluster's health: the most severe problem, with what it affects."""

from typing import Any

import pytest

from sparkraft.base.ids import Uuid
from sparkraft.client.cluster import Node, PartitionInfo, TopicInfo
from sparkraft.client.explain.cluster import (
    NO_CONTROLLER,
    ClusterFacts,
    cluster_document,
    cluster_lines,
)
from sparkraft.client.explain.health_facts import HealthFacts
from sparkraft.client.explain.quorum import Epoch
from sparkraft.client.values import QuorumInfo, QuorumReplica

ZERO = Uuid(bytes(16))


def replica(node_id: int, *, end: int = 100, fetched: int = 50_000) -> QuorumReplica:
    return QuorumReplica(
        id=node_id,
        directory_id=ZERO,
        log_end_offset=end,
        last_fetch_ms=fetched,
        last_caught_up_ms=fetched,
    )


def quorum(*voters: QuorumReplica) -> QuorumInfo:
    return QuorumInfo(
        leader_id=1,
        leader_epoch=7,
        high_watermark=100,
        voters=voters or (replica(1), replica(2), replica(3, end=90)),
        observers=(),
        endpoints={},
    )


def topic(name: str, *partitions: tuple[int, list[int], list[int]]) -> TopicInfo:
    """Partitions are (leader, replicas, isr)."""
    return TopicInfo(
        name=name,
        id=ZERO,
        is_internal=False,
        partitions={
            index: PartitionInfo(
                index=index,
                leader=leader,
                leader_epoch=3,
                replicas=tuple(replicas),
                isr=tuple(isr),
                offline=(),
            )
            for index, (leader, replicas, isr) in enumerate(partitions)
        },
    )


def facts(*topics: TopicInfo, fenced: tuple[int, ...] = (), **more: Any) -> ClusterFacts:
    nodes = [Node(id=n, host="h", port=9092, is_fenced=n in fenced) for n in (1, 2, 3)]
    given = {"quorum": quorum(), "topics": {one.name: one for one in topics}, **more}
    return ClusterFacts(cluster_id="c", brokers=tuple(nodes), **given)


WHOLE = topic("a", (1, [1, 2, 3], [1, 2, 3]), (2, [2, 3, 1], [3, 2, 1]))
SHORT = topic("s", (1, [1, 2, 3], [1, 3]))
ALONE = topic("m", (1, [1, 2, 3], [1]))
LOST = topic("o", (-1, [2], [2]), (1, [1], [1]))


@pytest.mark.parametrize(
    ("given", "level", "sentence"),
    [
        (facts(WHOLE), "ok", "All is well: 3 brokers, 1 topic, 2 partitions; controller 1."),
        (
            facts(WHOLE, health=HealthFacts(idle_groups={"g": 1, "h": 1_234})),
            "ok",
            "All is well: 3 brokers, 1 topic, 2 partitions; controller 1. Groups without members: "
            "h (1,234 records to read), g (1 record to read).",
        ),
        (
            facts(topic("b", (2, [1, 2], [1, 2]), (2, [2, 1], [1, 2]))),
            "ok",
            "All is well: 3 brokers, 1 topic, 2 partitions; controller 1. Leaders are not the "
            "preferred ones: broker 1 leads 0 of 1 partitions that prefer it.",
        ),
        (
            facts(topic("b", *[(1, [1, 2], [1, 2])] * 9, (2, [1, 2], [1, 2]))),
            "ok",
            "All is well: 3 brokers, 1 topic, 10 partitions; controller 1.",
        ),
        (
            facts(SHORT, health=HealthFacts(offline_dirs={3: ["/d"]}, idle_groups={"g": 7})),
            "warning",
            "1 partition is under-replicated: s-0. Log directory offline: /d of broker 3. "
            "Group without members: g (7 records to read).",
        ),
        (
            facts(WHOLE, health=HealthFacts(offline_dirs={1: ["/a", "/b"], 2: ["/a", "/b"]})),
            "warning",
            "Log directories offline: /a of broker 1, /b of broker 1, /a of broker 2 and 1 more.",
        ),
        (
            facts(LOST, health=HealthFacts(offline_dirs={1: ["/a"]}, idle_groups={"g": 7})),
            "critical",
            "1 partition has no leader: o-0.",
        ),
        (
            ClusterFacts(unreachable="cannot connect to h:1"),
            "critical",
            "No broker responds: cannot connect to h:1.",
        ),
        (
            facts(WHOLE, quorum=None, problem="no controller responded within 3000 ms"),
            "critical",
            "No controller is active, so no topic, config or leader can change: no "
            "controller responded within 3000 ms.",
        ),
        (
            facts(LOST, quorum=None, problem="timed out"),
            "critical",
            "1 partition has no leader: o-0. No controller is active, so no topic, config or "
            "leader can change: timed out.",
        ),
        (
            facts(LOST, ALONE, SHORT, fenced=(2,), min_isr={"m": 2}),
            "critical",
            "1 partition has no leader: o-0 (broker 2 is down, the only replica of the first in "
            "sync).",
        ),
        (
            facts(ALONE, SHORT, fenced=(2,), min_isr={"m": 2, "s": 2}),
            "critical",
            "1 partition has fewer replicas in sync than min.insync.replicas, so acks=all fails: "
            "m-0.",
        ),
        (
            facts(SHORT, quorum=quorum(replica(1), replica(2), replica(3, fetched=30_000))),
            "warning",
            "1 partition is under-replicated: s-0. Voter 3 of the quorum stopped "
            "fetching: 2 of 3 voters are left.",
        ),
        (
            facts(WHOLE, quorum=quorum(replica(1), replica(2), replica(3, fetched=30_000))),
            "warning",
            "Voter 3 of the quorum stopped fetching: 2 of 3 voters are left.",
        ),
        (
            facts(SHORT, ALONE, fenced=(2,)),
            "warning",
            "2 partitions are under-replicated: m-0, s-0. Broker 2 is fenced.",
        ),
        (facts(WHOLE, fenced=(2, 3)), "warning", "Brokers 2, 3 are fenced."),
    ],
)
def test_the_most_severe_problem_is_the_sentence(given: ClusterFacts, level: str, sentence: str):
    document = cluster_document(given)
    assert document["health"] == {"level": level, "sentence": sentence}
    assert next(iter(cluster_lines(document))) == sentence


def test_in_zookeeper_mode_the_controller_is_the_broker_that_metadata_names() -> None:
    given = facts(WHOLE, quorum=None, is_zookeeper=True, zookeeper_controller=2)
    document = cluster_document(given)
    assert document["health"]["sentence"].endswith("controller 2.")
    assert (document["mode"], document["controller"]["id"]) == ("zookeeper", 2)
    assert [one["id"] for one in document["brokers"] if one["isController"]] == [2]
    assert "controller 2" in list(cluster_lines(document))
    race = {"controller": 2, "epoch": 7, "sinceMs": 1_000, "before": None}
    known = cluster_document(given, race=race)
    assert "controller 2 since 1970-01-01 00:00:01 UTC." in known["health"]["sentence"]
    assert "controller 2, epoch 7" in list(cluster_lines(known))
    other = cluster_document(given, race={**race, "controller": 1})
    assert other["controller"]["epoch"] is None


def test_in_zookeeper_mode_a_missing_controller_is_critical() -> None:
    given = facts(WHOLE, quorum=None, is_zookeeper=True, problem=NO_CONTROLLER)
    health = cluster_document(given)["health"]
    assert health["level"] == "critical"
    assert "no broker is registered as the controller in ZooKeeper" in health["sentence"]


def silent(given: ClusterFacts, *epochs: Epoch) -> list[int]:
    voters = cluster_document(given, epochs)["voters"]
    return [voter["id"] for voter in voters if voter["isSilent"]]


def test_a_voter_that_never_fetched_is_lost_only_after_the_fetch_timeout():
    never = quorum(replica(1), replica(2), replica(3, fetched=-1))
    assert silent(facts(WHOLE, quorum=never)) == []
    assert silent(facts(WHOLE, quorum=never, led_since_ms=40_000)) == []
    assert silent(facts(WHOLE, quorum=never, led_since_ms=39_999)) == [3]


def test_the_journal_of_the_leader_has_the_start_of_its_epoch():
    never = quorum(replica(1), replica(2), replica(3, fetched=-1))
    epoch = Epoch(7)
    epoch.steps = [
        {"at": 49_000, "node": 2, "state": "follower", "reason": ""},
        {"at": 39_000, "node": 1, "state": "leader", "reason": ""},
    ]
    assert silent(facts(WHOLE, quorum=never), epoch) == [3]
    epoch.steps[1]["at"] = 48_000
    assert silent(facts(WHOLE, quorum=never, led_since_ms=0), epoch) == []


def test_counts_of_brokers_and_partitions():
    document = cluster_document(facts(WHOLE, SHORT, LOST, fenced=(2,)))
    assert document["topicCount"] == 3
    assert document["partitionCount"] == 5
    assert (document["offlineCount"], document["underReplicatedCount"]) == (1, 1)
    assert document["notPreferredCount"] == 0
    two = document["brokers"][1]
    assert (two["leads"], two["preferredLeaderOf"], two["replicas"], two["outOfSync"]) == (
        1, 2, 4, 1,
    )  # fmt: skip
    assert two["isFenced"]
    assert document["offline"][0]["down"] == [2]
    assert [voter["lag"] for voter in document["voters"]] == [0, 0, 10]


def test_many_partitions_are_counted_and_few_named():
    many = topic("t", *[(-1, [2], [2])] * 250)
    document = cluster_document(facts(many))
    assert document["offlineCount"] == 250
    assert len(document["offline"]) == 100
    assert "t-0, t-1, t-2 and 247 more" in document["health"]["sentence"]


def test_the_last_election_gives_time_votes_and_reason():
    epoch = Epoch(7, logged={(1, (1, 3))})
    step = {"node": 1, "granted": [1, 3], "refused": [], "lastedMs": -1}
    epoch.steps = [
        {**step, "at": 1_500, "state": "candidate", "reason": "pre-votes of 1, 3"},
        {**step, "at": 2_000, "state": "leader", "reason": "votes of 1, 3"},
    ]
    before = Epoch(6)
    before.steps = [
        {**step, "at": 500, "state": "prospective", "reason": "of another time"},
        {**step, "at": 1_000, "state": "prospective", "reason": "leader 2 resigned"},
        {**step, "at": 1_001, "node": 3, "state": "prospective", "reason": "of another node"},
    ]
    document = cluster_document(facts(WHOLE), [before, epoch])
    assert document["controller"]["reason"] == "leader 2 resigned"
    assert document["health"]["sentence"].endswith(
        "controller 1 since 1970-01-01 00:00:02 UTC, elected by 1, 3."
    )
    assert "    elected because: leader 2 resigned" in cluster_lines(document)
