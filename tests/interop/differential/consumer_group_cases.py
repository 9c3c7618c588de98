"""Consumer groups of KIP-848: heartbeats, commits with member epochs, descriptions.

`OVERRIDES` of the test sets the assignment interval to 0, so that epochs do not depend on time.
"""

from collections.abc import Callable, Iterator
from typing import Any

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.declare import Message
from sparkraft.protocol.messages import k08_offset_commit as k08
from sparkraft.protocol.messages import k09_offset_fetch as k09
from sparkraft.protocol.messages import k11_join_group as k11
from sparkraft.protocol.messages import k12_heartbeat as k12
from sparkraft.protocol.messages import k13_leave_group as k13
from sparkraft.protocol.messages import k14_sync_group as k14
from sparkraft.protocol.messages import k15_describe_groups as k15
from sparkraft.protocol.messages import k16_list_groups as k16
from sparkraft.protocol.messages import k28_txn_offset_commit as k28
from sparkraft.protocol.messages import k42_delete_groups as k42
from sparkraft.protocol.messages import k47_offset_delete as k47
from sparkraft.protocol.messages import k68_consumer_group_heartbeat as k68
from sparkraft.protocol.messages import k69_consumer_group_describe as k69
from tests.interop.differential.building import COMPACTED, TOPIC, is_final, versions_of
from tests.interop.differential.group_cases import subscription
from tests.interop.differential.transaction_cases import (
    EPOCHS_FROM,
    begins,
    client_versions,
    producer,
)
from tests.interop.differential.world import Case, World

TIMEOUT_MS = 60_000
Owned = dict[str, list[int]]


def beat(
    group: str,
    label: str,
    *,
    epoch: int | None = None,
    by_epoch: int = 0,
    instance: str | None = None,
    topics: list[str] | None = None,
    regex: str | None = None,
    owned: Owned | None = None,
    timeout_ms: int = -1,
    **fields: Any,
) -> Callable[[World], Message]:
    """ConsumerGroupHeartbeat of a member, by default in its epoch."""

    def build(world: World) -> Message:
        known = world.numbers.get(f"{label} epoch", 0)
        return k68.ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=world.members.get(label, label),
            member_epoch=known + by_epoch if epoch is None else epoch,
            instance_id=instance,
            subscribed_topic_names=topics,
            subscribed_topic_regex=regex,
            rebalance_timeout_ms=timeout_ms,
            topic_partitions=None if owned is None else [
                k68.TopicPartitions(topic_id=world.topic_id(name), partitions=indexes)
                for name, indexes in owned.items()
            ],
            **fields,
        )  # fmt: skip

    return build


def joins(group: str, label: str, **fields: Any) -> Callable[[World], Message]:
    """The first heartbeat of a member."""
    given = {"topics": [TOPIC], "owned": {}, "timeout_ms": TIMEOUT_MS, "epoch": 0, **fields}
    return beat(group, label, **given)


def keep(label: str) -> Callable[[World, Any], None]:
    """Remember the id and the epoch that a member was given."""

    def remember(world: World, response: Any) -> None:
        if response.error_code == 0:
            world.members[label] = response.member_id
            world.numbers[f"{label} epoch"] = response.member_epoch

    return remember


def malformed() -> Iterator[Case]:
    """Heartbeats that are refused before the group is looked at, and those of strangers."""
    group = "kip-848-bad"
    bad = {
        "empty group": joins("", "x"),
        "no timeout": joins(group, "x", timeout_ms=-1),
        "owns nothing it says": joins(group, "x", owned=None),
        "owns something": joins(group, "x", owned={TOPIC: [0]}),
        "no subscription": joins(group, "x", topics=None),
        "empty instance": joins(group, "x", instance=""),
        "empty rack": joins(group, "x", rack_id=""),
        "unknown assignor": joins(group, "x", server_assignor="odd"),
        "leaves without instance": beat(group, "x", epoch=-2),
        "epoch below all": beat(group, "x", epoch=-3),
        "no member id": beat(group, "", epoch=3),
        "unknown group": beat("never-was", "x", epoch=3),
        "leaves an unknown group": beat("never-was", "x", epoch=-1),
    }
    key = ApiKey.CONSUMER_GROUP_HEARTBEAT
    for version in versions_of(key):
        for label, build in bad.items():
            yield Case(label, key, version, build)
    yield Case("no id at all", key, 1, joins(group, ""))
    yield Case("a bad regex", key, 1, joins(group, "r", topics=None, regex="("))
    yield Case("an empty regex", key, 1, joins(group, "r", topics=None, regex=""))
    yield Case("no topics", key, 1, joins(f"{group}-empty", "r", topics=[]))


def described(*groups: str) -> Iterator[Case]:
    """The groups in each version of ConsumerGroupDescribe."""
    key = ApiKey.CONSUMER_GROUP_DESCRIBE
    for version in versions_of(key):
        request = k69.ConsumerGroupDescribeRequest(group_ids=list(groups))
        yield Case(f"{', '.join(groups)}", key, version, lambda _, r=request: r)


def lives() -> Iterator[Case]:
    """Two members meet, exchange partitions and leave."""
    key = ApiKey.CONSUMER_GROUP_HEARTBEAT
    for version in versions_of(key):
        group, a, b = f"kip-848-{version}", f"a{version}", f"b{version}"
        first = joins(group, a) if version else joins(group, "")
        yield Case("joins", key, version, first, keep(a))
        yield from described(group)
        everything: Owned = {TOPIC: [0, 1, 2]}
        yield Case("beats", key, version, beat(group, a), keep(a))
        yield Case("beats in a newer epoch", key, version, beat(group, a, by_epoch=5))
        yield Case("beats in an older epoch", key, version, beat(group, a, by_epoch=-1))
        full = beat(group, a, topics=[TOPIC], owned=everything, timeout_ms=TIMEOUT_MS)
        yield Case("sends everything", key, version, full, keep(a))
        yield Case("unknown member", key, version, beat(group, "stranger", epoch=1))
        yield Case("unknown member leaves", key, version, beat(group, "stranger", epoch=-1))
        if version:
            yield from _exchanges(group, a, b)
        yield from commits(group, a)
        yield from _others(group)
        yield Case("changes topics", key, version, beat(group, a, topics=[COMPACTED]), keep(a))
        nothing = beat(group, a, owned={})
        yield Case("has given up the old ones", key, version, nothing, keep(a))
        yield from described(group)
        yield Case("leaves", key, version, beat(group, a, epoch=-1))
        yield Case("leaves again", key, version, beat(group, a, epoch=-1))
        if version:
            yield Case("the second leaves", key, version, beat(group, b, epoch=-1))
        yield from described(group)


def _exchanges(group: str, a: str, b: str) -> Iterator[Case]:
    """A second member joins. Not with ids of the coordinator: their order decides who gets more."""
    key, version = ApiKey.CONSUMER_GROUP_HEARTBEAT, 1
    yield Case("a second joins", key, version, joins(group, b), keep(b))
    yield Case("the first must revoke", key, version, beat(group, a), keep(a))
    yield from described(group)
    kept = beat(group, a, owned={TOPIC: [0]})
    yield Case("it has revoked", key, version, kept, keep(a))
    yield Case("the second gets them", key, version, beat(group, b), keep(b))
    yield from described(group)


def static_members() -> Iterator[Case]:
    """A static member leaves for a while and is replaced."""
    key = ApiKey.CONSUMER_GROUP_HEARTBEAT
    group = "kip-848-static"
    yield Case("static joins", key, 1, joins(group, "s1", instance="one"), keep("s1"))
    for label, build in {
        "in use": joins(group, "s2", instance="one"),
        "another holds it": beat(group, "s2", epoch=2, instance="one"),
        "another leaves": beat(group, "s2", epoch=-1, instance="one"),
        "another leaves for a while": beat(group, "s2", epoch=-2, instance="one"),
        "unknown instance": beat(group, "s1", instance="two"),
        "unknown instance leaves": beat(group, "s1", epoch=-2, instance="two"),
    }.items():
        yield Case(label, key, 1, build)
    yield Case("leaves for a while", key, 1, beat(group, "s1", epoch=-2, instance="one"))
    yield from described(group)
    yield Case("is replaced", key, 1, joins(group, "s2", instance="one"), keep("s2"))
    yield from described(group)
    yield Case("the old one is fenced", key, 1, beat(group, "s1", instance="one"))
    yield Case("the new one beats", key, 1, beat(group, "s2", instance="one"), keep("s2"))
    yield from described(group)
    places = [(TOPIC, 0)]
    for epoch in (-3, -2, -1, 0):
        build = _commit(group, "s2", places, by_epoch=epoch)
        yield Case(f"commits {-epoch} epochs back", ApiKey.OFFSET_COMMIT, 9, build)
    yield Case("leaves for good", key, 1, beat(group, "s2", epoch=-1, instance="one"))
    yield from described(group)


def _commit(
    group: str, label: str, places: list[tuple[str, int]], *, by_epoch: int = 0
) -> Callable[[World], Message]:
    def build(world: World) -> Message:
        return k08.OffsetCommitRequest(
            group_id=group,
            member_id=world.members.get(label, label),
            generation_id_or_member_epoch=world.numbers.get(f"{label} epoch", 0) + by_epoch,
            topics=[
                k08.OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=world.topic_id(topic),
                    partitions=[
                        k08.OffsetCommitRequestPartition(partition_index=index, committed_offset=1)
                    ],
                )
                for topic, index in places
            ],
        )

    return build


def _fetch(group: str, label: str, *, by_epoch: int = 0) -> Callable[[World], Message]:
    def build(world: World) -> Message:
        topic = k09.OffsetFetchRequestTopics(
            name=TOPIC, topic_id=world.topic_id(TOPIC), partition_indexes=[0]
        )
        asked = k09.OffsetFetchRequestGroup(
            group_id=group,
            member_id=world.members.get(label, label),
            member_epoch=world.numbers.get(f"{label} epoch", 0) + by_epoch,
            topics=[topic],
        )
        return k09.OffsetFetchRequest(groups=[asked])

    return build


def commits(group: str, label: str, level: int = 2) -> Iterator[Case]:
    """Commits and OffsetFetch of a member, in its epoch and in others, at a transaction.version."""
    held, unknown = [(TOPIC, 0)], [(TOPIC, 0), ("nowhere", 0), (TOPIC, 99)]
    key = ApiKey.OFFSET_COMMIT
    for version in versions_of(key):
        for what, build in {
            "in its epoch": _commit(group, label, held),
            "in a newer epoch": _commit(group, label, held, by_epoch=5),
            "in an old epoch": _commit(group, label, held, by_epoch=-1),
            "without an epoch": _commit(group, "", held, by_epoch=-1),
            "of a stranger": _commit(group, "stranger", held),
            "in a newer epoch, beside unknown ones": _commit(group, label, unknown, by_epoch=5),
            "of a stranger, beside unknown ones": _commit(group, "stranger", unknown),
        }.items():
            yield Case(f"consumer group: {what}", key, version, build)
    for version in (9, 10):
        for what, fetch in {
            "in its epoch": _fetch(group, label),
            "in a newer epoch": _fetch(group, label, by_epoch=5),
            "in an old epoch": _fetch(group, label, by_epoch=-1),
            "of a stranger": _fetch(group, "stranger"),
        }.items():
            yield Case(f"consumer group: {what}", ApiKey.OFFSET_FETCH, version, fetch)
    name = f"tx-{group}"
    yield from begins(name)
    for version in client_versions(ApiKey.TXN_OFFSET_COMMIT, level):
        if version < EPOCHS_FROM:
            continue
        for by_epoch in (0, 5, -1):
            offsets = _in_transaction(name, group, label, by_epoch)
            what = f"consumer group: {by_epoch} epochs off"
            yield Case(what, ApiKey.TXN_OFFSET_COMMIT, version, offsets, until=is_final)


def _in_transaction(name: str, group: str, label: str, by_epoch: int) -> Callable[[World], Message]:
    def build(world: World) -> Message:
        producer_id, producer_epoch = producer(world, name)
        place = k28.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)
        return k28.TxnOffsetCommitRequest(
            transactional_id=name,
            group_id=group,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            member_id=world.members.get(label, label),
            generation_id=world.numbers.get(f"{label} epoch", 0) + by_epoch,
            topics=[k28.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[place])],
        )

    return build


def _others(group: str) -> Iterator[Case]:
    """Requests of the classic protocol, and of administrators, for a consumer group."""
    classic = k11.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=TIMEOUT_MS,
        rebalance_timeout_ms=TIMEOUT_MS,
        member_id="stranger",
        protocol_type="odd",
        protocols=[k11.JoinGroupRequestProtocol(name="range", metadata=subscription())],
    )
    stranger = {"group_id": group, "generation_id": 1, "member_id": "stranger"}
    member = k13.MemberIdentity(member_id="stranger")
    erased = k47.OffsetDeleteRequestPartition(partition_index=0)
    topic = k47.OffsetDeleteRequestTopic(name=TOPIC, partitions=[erased])
    requests: dict[str, tuple[ApiKey, int, Message]] = {
        "classic join of another type": (ApiKey.JOIN_GROUP, 9, classic),
        "classic sync": (ApiKey.SYNC_GROUP, 5, k14.SyncGroupRequest(**stranger)),
        "classic heartbeat": (ApiKey.HEARTBEAT, 4, k12.HeartbeatRequest(**stranger)),
        "classic leave": (
            ApiKey.LEAVE_GROUP,
            5,
            k13.LeaveGroupRequest(group_id=group, members=[member]),
        ),
        "classic description": (
            ApiKey.DESCRIBE_GROUPS,
            6,
            k15.DescribeGroupsRequest(groups=[group]),
        ),
        "consumer groups": (
            ApiKey.LIST_GROUPS,
            5,
            k16.ListGroupsRequest(types_filter=["consumer"]),
        ),
        "not empty": (ApiKey.DELETE_GROUPS, 2, k42.DeleteGroupsRequest(groups_names=[group])),
        "subscribed": (
            ApiKey.OFFSET_DELETE,
            0,
            k47.OffsetDeleteRequest(group_id=group, topics=[topic]),
        ),
    }
    for label, (key, version, request) in requests.items():
        yield Case(label, key, version, lambda _, r=request: r)


def consumer_groups() -> Iterator[Case]:
    """All of them, in order."""
    yield from malformed()
    yield from lives()
    yield from static_members()
    yield from described("never-was", "", "simple")
    for version in versions_of(ApiKey.DELETE_GROUPS):
        request = k42.DeleteGroupsRequest(groups_names=[f"kip-848-{version % 2}", "never-was"])
        yield Case("consumer groups", ApiKey.DELETE_GROUPS, version, lambda _, r=request: r)
