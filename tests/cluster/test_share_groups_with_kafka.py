"""The offsets partition of a share group that Apache Kafka's coordinator wrote, and who leads it.

Our brokers do not serve share groups, so they lead such a partition only while no broker that does
is in sync. Meanwhile they keep the group's records and serve the other groups of the partition.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import PartitionInfo
from sparkraft.client.connection import Connection
from sparkraft.client.groups import Groups
from sparkraft.client.leadership import LeadershipAdmin
from sparkraft.client.values import Committed
from sparkraft.protocol.declare import Message
from sparkraft.protocol.messages.k16_list_groups import ListGroupsRequest
from sparkraft.protocol.messages.k76_share_group_heartbeat import ShareGroupHeartbeatRequest
from sparkraft.protocol.messages.k77_share_group_describe import ShareGroupDescribeRequest
from tests.cluster.test_coordinators_with_kafka import KAFKAS, OURS, coordinator, partitions_of
from tests.support.clusters import Cluster, Kind, Member
from tests.support.ports import wait_until

pytestmark = [pytest.mark.real_clients, pytest.mark.java, pytest.mark.long]

OFFSETS, TOPIC = "__consumer_offsets", "orders"
SHARE, CLASSIC = "of-a-share-group", "of-a-classic-group"
MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"
FIRST, JOIN, LEAVE = (TOPIC, 0), 0, -1
SETTINGS = {
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "auto.leader.rebalance.enable": "false",
}
SECONDS = 90


def offsets_partition(cluster: Cluster) -> PartitionInfo:
    return partitions_of(cluster, OFFSETS)[0]


def until(
    cluster: Cluster, leaders: tuple[int, ...], in_sync: set[int], what: str, *, epoch: int = 0
) -> None:
    """One of `leaders` leads, since `epoch` or later; all of `in_sync` are; every broker knows."""

    def holds() -> bool:
        found = offsets_partition(cluster)
        coordinators = {coordinator(cluster, 0, SHARE, of=broker) for broker in cluster.serving}
        return (
            found.leader in leaders
            and found.leader_epoch >= epoch
            and in_sync <= set(found.isr)
            and coordinators == {(ErrorCode.NONE, found.leader)}
        )

    wait_until(holds, what, SECONDS)


def put_on(cluster: Cluster, *replicas: int) -> None:
    """Move the partition; the first replica is elected."""

    async def move(admin: Admin) -> None:
        outcome = await LeadershipAdmin(admin.cluster).reassign({(OFFSETS, 0): list(replicas)})
        assert set(outcome.values()) == {None}, outcome

    async def elect(admin: Admin) -> None:
        await LeadershipAdmin(admin.cluster).elect_leaders(0, [(OFFSETS, 0)])

    def moved() -> bool:
        found = offsets_partition(cluster)
        return set(found.replicas) == set(replicas) == set(found.isr)

    def elected() -> bool:
        cluster.ask(elect)
        found = offsets_partition(cluster)
        return found.leader == found.replicas[0]

    cluster.ask(move)
    wait_until(moved, f"the replicas {replicas} are in sync", SECONDS)
    wait_until(elected, "the first replica is elected", SECONDS)


def ask_leader(cluster: Cluster, request: Message) -> Any:
    """The response of the partition's leader."""
    port = cluster.ports[offsets_partition(cluster).leader][0]

    async def ask() -> Any:
        connection = await Connection.open("127.0.0.1", port)
        try:
            return await connection.send(request, timeout_ms=30_000)
        finally:
            await connection.close()

    return asyncio.run(ask())


def beat(cluster: Cluster, epoch: int) -> None:
    """The member of the share group joins or leaves, once its coordinator is loaded."""
    request = ShareGroupHeartbeatRequest(
        group_id=SHARE, member_id=MEMBER, member_epoch=epoch, subscribed_topic_names=[TOPIC]
    )

    def taken() -> bool:
        return bool(ask_leader(cluster, request).error_code == ErrorCode.NONE)

    wait_until(taken, f"the member sends epoch {epoch}", SECONDS)


def share_group(cluster: Cluster) -> tuple[ErrorCode, str, int]:
    """The error, state and epoch by which Kafka's coordinator describes it."""
    request = ShareGroupDescribeRequest(group_ids=[SHARE])
    (found,) = ask_leader(cluster, request).groups
    return ErrorCode(found.error_code), found.group_state, found.group_epoch


def until_loaded(cluster: Cluster) -> tuple[ErrorCode, str, int]:
    """As `share_group`, of a coordinator that has loaded the partition."""
    found: list[tuple[ErrorCode, str, int]] = []

    def loaded() -> bool:
        found.append(share_group(cluster))
        return found[-1][0] not in {
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NOT_COORDINATOR,
        }

    wait_until(loaded, "the coordinator has loaded", SECONDS)
    return found[-1]


def commit(cluster: Cluster, offset: int) -> None:
    """Of a classic group in the same partition."""

    async def work(admin: Admin) -> None:
        outcome = await Groups(admin.cluster).commit(CLASSIC, {FIRST: Committed(offset=offset)})
        assert not any(outcome.values()), outcome

    cluster.ask(work)


def committed(cluster: Cluster) -> int:
    async def work(admin: Admin) -> int:
        return (await Groups(admin.cluster).offsets(CLASSIC, [FIRST]))[FIRST].offset

    return cluster.ask(work)


@pytest.mark.parametrize("controller", ["sparkraft", "kafka"])
def test_ours_lead_a_share_groups_partition_only_while_no_able_broker_is_in_sync(
    tmp_path: Path, kafka_jars: Path, controller: Kind
) -> None:
    members = [
        Member(1, controller, "controller"),
        *(Member(n, "sparkraft", "broker") for n in OURS),
        *(Member(n, "kafka", "broker") for n in KAFKAS),
    ]
    with Cluster(
        tmp_path, members, quorum="standalone", overrides=SETTINGS, jars=kafka_jars
    ) as cluster:
        cluster.create_topic(TOPIC)
        commit(cluster, 1)
        put_on(cluster, KAFKAS[0], *OURS)
        until(cluster, KAFKAS[:1], {*OURS}, "Kafka's broker leads")
        beat(cluster, JOIN)
        beat(cluster, LEAVE)
        written = share_group(cluster)
        assert written[:2] == (ErrorCode.NONE, "Empty")

        epoch = offsets_partition(cluster).leader_epoch
        put_on(cluster, OURS[0], OURS[1], KAFKAS[0])
        # The election of ours, and that of Kafka's after it.
        what = "ours has handed it over to the replica that is able"
        until(cluster, KAFKAS[:1], {*OURS}, what, epoch=epoch + 2)
        assert until_loaded(cluster) == written

        cluster.kill(KAFKAS[0])
        until(cluster, KAFKAS[1:], {OURS[0]}, "ours has handed it over to a broker without replica")
        assert until_loaded(cluster) == written
        commit(cluster, 2)

        cluster.kill(KAFKAS[1])
        until(cluster, OURS, set(), "ours leads, since no able broker is in sync")
        commit(cluster, 3)
        groups = ask_leader(cluster, ListGroupsRequest()).groups
        assert {(one.group_id, one.group_type) for one in groups} == {
            (CLASSIC, "classic"),
            (SHARE, "share"),
        }

        cluster.start(KAFKAS)
        until(cluster, KAFKAS, {OURS[0]}, "ours has handed it over to a broker that came back")
        assert until_loaded(cluster) == written
        assert committed(cluster) == 3
        beat(cluster, JOIN)
        code, state, group_epoch = share_group(cluster)
        assert (code, state) == (ErrorCode.NONE, "Stable")
        assert group_epoch > written[2]
