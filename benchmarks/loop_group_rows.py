"""Rows of `./bench loop` for groups: what a light client feels beside members with much to assign.

members       a KIP-848 member with 1,000 topics joins and leaves, again and again
wide          the same with 10,000 topics; ours alone
pattern       members join with a regular expression that matches these 10,000; ours alone
many-groups   ListGroups, DescribeGroups and DeleteGroups of 10,000 groups; ours alone
"""

import time
from collections.abc import Callable, Sequence

from benchmarks.bench_node import ask, create_topic, request
from benchmarks.loop_api_rows import flood_row
from benchmarks.loop_more_rows import ours_alone
from benchmarks.loop_outcome import Load
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import k08_offset_commit as k08
from sparkraft.protocol.messages import k10_find_coordinator as k10
from sparkraft.protocol.messages import k15_describe_groups as k15
from sparkraft.protocol.messages import k16_list_groups as k16
from sparkraft.protocol.messages import k19_create_topics as k19
from sparkraft.protocol.messages import k42_delete_groups as k42
from sparkraft.protocol.messages import k68_consumer_group_heartbeat as k68
from tests.support.nodes import NodeProcess

MANY, VERY_MANY = 1_000, 10_000
PER_REQUEST = 500
GROUPS = 10_000
JOINING_GROUPS = 100
MEMBER = "00000000-0000-0000-0000-000000000001"


def names_of(count: int) -> list[str]:
    """The names of the topics."""
    return [f"named-{number:05d}" for number in range(count)]


def make_topics(node: NodeProcess, count: int) -> None:
    """Create the topics, with one partition each, and the offsets topic."""
    for first in range(0, count, PER_REQUEST):
        names = names_of(count)[first : first + PER_REQUEST]
        topics = [
            k19.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names
        ]
        message = k19.CreateTopicsRequest(topics=topics, timeout_ms=60_000)
        ask(node.port, ApiKey.CREATE_TOPICS, 7, message)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        coordinator = k10.FindCoordinatorRequest(key_type=0, coordinator_keys=["wide"])
        ask(node.port, ApiKey.FIND_COORDINATOR, 4, coordinator)
        _, answer = ask(node.port, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, join("wide", ["probe"]))
        if answer.error_code == 0:
            ask(node.port, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, leave("wide"))
            return
        time.sleep(0.2)
    raise AssertionError("no member can join after 60 s")


def join(
    group_id: str, names: Sequence[str], regex: str | None = None
) -> k68.ConsumerGroupHeartbeatRequest:
    """The first heartbeat of a member."""
    return k68.ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=MEMBER,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=list(names),
        subscribed_topic_regex=regex,
        topic_partitions=[],
    )


def leave(group_id: str) -> k68.ConsumerGroupHeartbeatRequest:
    """Its last one."""
    return k68.ConsumerGroupHeartbeatRequest(
        group_id=group_id, member_id=MEMBER, member_epoch=-1, subscribed_topic_names=None
    )


def joins(count: int) -> Callable[[NodeProcess], Sequence[bytes]]:
    """A member with `count` topics joins and leaves."""

    def prepare(node: NodeProcess) -> list[bytes]:
        make_topics(node, count)
        # Each group computes an assignment at most once a second.
        return [
            request(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, message)
            for group_id in (f"wide-{number}" for number in range(JOINING_GROUPS))
            for message in (join(group_id, names_of(count)), leave(group_id))
        ]

    return prepare


def patterns(node: NodeProcess) -> list[bytes]:
    """Members of new groups, whose expressions are resolved at once, stay and beat again."""
    make_topics(node, VERY_MANY)
    beat = [join(f"pattern-{number}", (), "named-.*") for number in range(20)]
    return [request(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, message) for message in beat]


def many_groups(node: NodeProcess) -> list[bytes]:
    """Groups that have committed an offset each; a few are deleted and come again."""
    create_topic(node.port, "committed-by-many", 1)
    make_topics(node, 1)
    names = [f"many-{number:05d}" for number in range(GROUPS)]
    for name in names:
        ask(node.port, ApiKey.OFFSET_COMMIT, 8, commit(name))
    return [
        request(ApiKey.LIST_GROUPS, 5, k16.ListGroupsRequest()),
        request(ApiKey.DESCRIBE_GROUPS, 5, k15.DescribeGroupsRequest(groups=names)),
        request(ApiKey.DELETE_GROUPS, 2, k42.DeleteGroupsRequest(groups_names=names[:1_000])),
        *(request(ApiKey.OFFSET_COMMIT, 8, commit(name)) for name in names[:1_000]),
    ]


def commit(group_id: str) -> k08.OffsetCommitRequest:
    """One offset."""
    part = k08.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    topic = k08.OffsetCommitRequestTopic(name="committed-by-many", partitions=[part])
    return k08.OffsetCommitRequest(group_id=group_id, topics=[topic])


GROUP_ROWS: dict[str, Load] = {
    "members": flood_row(joins(MANY)),
    "wide": ours_alone(flood_row(joins(VERY_MANY))),
    "pattern": ours_alone(flood_row(patterns)),
    "many-groups": ours_alone(flood_row(many_groups)),
}
