"""Elections, ISR changes and states of partitions as rows, from a cluster whose brokers stop."""

import asyncio
from collections.abc import Iterator
from itertools import pairwise

import pytest

from sparkraft.pipeline import partition_history
from sparkraft.pipeline.metadata_rows import table_rows, table_schema
from sparkraft.pipeline.options import MetadataTable, metadata_options
from sparkraft.pipeline.partition_history import committed_end, connected, read_history
from sparkraft.pipeline.places import Subscription
from tests.support.clusters import Cluster, Member
from tests.support.ports import wait_until
from tests.support.replicas import create_assigned, partition_of

pytestmark = pytest.mark.real_clients

OVERRIDES = {"auto.leader.rebalance.enable": "false", "broker.session.timeout.ms": "600000"}
KILLS = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Broker 2 has been killed and started three times; its only replica had no leader then."""
    members = [Member(100, roles="controller"), *(Member(n, roles="broker") for n in (1, 2))]
    work = tmp_path_factory.mktemp("cluster")
    with Cluster(work, members, overrides=OVERRIDES) as cluster:
        create_assigned(cluster, "alone", [[2]])
        create_assigned(cluster, "both", [[1, 2], [2, 1]])
        for _ in range(KILLS):
            cluster.kill(2)
            wait_until(lambda: partition_of(cluster, "alone").leader == -1, "no leader")
            cluster.start()
            wait_until(lambda: partition_of(cluster, "alone").leader == 2, "a leader")
            wait_until(lambda: len(partition_of(cluster, "both").isr) == 2, "both in sync")
        yield cluster


def options_of(cluster, table, **more):
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "metadata": table, **more}
    return metadata_options(given, streaming=False)


def rows(cluster, table, start=0, end=None, topics=("alone", "both")):
    async def read():
        options = options_of(cluster, table)
        async with connected(options.client) as client:
            last = await committed_end(client) if end is None else end
            return await read_history(client, Subscription(topics=topics), start, last)

    return table_rows(MetadataTable(table), asyncio.run(read()), start)


def test_a_partition_without_a_leader_has_its_cause_and_its_time(cluster):
    found = rows(cluster, "elections", topics=("alone",))
    assert [row["leader"] for row in found] == [2, *([None, 2] * KILLS)]
    assert [row["previous"] for row in found] == [None, *([2, None] * KILLS)]
    assert [row["leaderEpoch"] for row in found] == list(range(2 * KILLS + 1))
    assert found[0]["previousMs"] is None
    for before, row in pairwise(found):
        assert row["previousSince"] == before["timestamp"]
        assert row["previousCause"] == before["cause"]
        passed = row["timestamp"] - before["timestamp"]
        assert row["previousMs"] == round(passed.total_seconds() * 1000) > 0
    assert "broker 2" in found[1]["cause"], found[1]["cause"]
    assert {row["source"] for row in found[1:]} == {"journal"}
    assert all(set(row) == set(table_schema(MetadataTable.ELECTIONS).names) for row in found)


def test_isr_changes_and_states_follow_the_log(cluster):
    changes = [row for row in rows(cluster, "isr") if row["topic"] == "both"]
    led_by_1 = [row for row in changes if row["partition"] == 0]
    assert [sorted(row["after"]) for row in led_by_1] == [[1], [1, 2]] * KILLS
    assert [(row["left"], row["joined"]) for row in led_by_1] == [([2], []), ([], [2])] * KILLS
    states = rows(cluster, "partitions")
    assert [row["change"] for row in states].count("created") == 3
    last = [row for row in states if (row["topic"], row["partition"]) == ("both", 1)][-1]
    assert (sorted(last["isr"]), last["replicas"], last["leader"]) == ([1, 2], [2, 1], 1)
    for table, found in (("isr", changes), ("partitions", states)):
        assert set(found[0]) == set(table_schema(MetadataTable(table)).names)


@pytest.mark.parametrize("table", ["elections", "isr", "partitions"])
def test_ranges_and_pages_return_every_change_once(cluster, table, monkeypatch):
    whole = rows(cluster, table)
    offsets = sorted({row["offset"] for row in whole})
    middle = offsets[len(offsets) // 2]
    for cut in (middle, middle + 1):
        parts = rows(cluster, table, end=cut) + rows(cluster, table, start=cut)
        assert parts == whole
    monkeypatch.setattr(partition_history, "_EVENTS_MAX", 2)
    monkeypatch.setattr(partition_history, "_PARTITIONS_MAX", 1)
    assert rows(cluster, table) == whole
    assert rows(cluster, table, start=middle) == [row for row in whole if row["offset"] >= middle]


def test_a_topic_that_is_younger_than_the_end_is_left_out(cluster):
    created = {row["topic"]: row["offset"] for row in rows(cluster, "partitions")[::-1]}
    end = created["both"]
    assert created["alone"] < end
    found = rows(cluster, "partitions", end=end)
    assert [(row["topic"], row["change"]) for row in found] == [("alone", "created")]


def test_all_topics_or_those_of_a_pattern_are_read(cluster):
    async def topics(subscription):
        async with connected(options_of(cluster, "isr").client) as client:
            end = await committed_end(client)
            return {
                each.topic for each in (await read_history(client, subscription, 0, end)).partitions
            }

    assert asyncio.run(topics(None)) >= {"alone", "both"}
    assert asyncio.run(topics(Subscription(pattern="bo.*"))) == {"both"}


def test_a_topic_that_does_not_exist_is_named(cluster):
    with pytest.raises(Exception, match="topic missing, which subscribe names, does not exist"):
        rows(cluster, "isr", topics=("missing",))
