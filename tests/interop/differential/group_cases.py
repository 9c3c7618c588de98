"""Classic consumer groups: coordinators, members, offsets."""

from collections.abc import Callable, Iterator
from typing import Any

from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.protocol.declare import Message
from sparkraft.protocol.messages import (
    k08_offset_commit as k08,
)
from sparkraft.protocol.messages import (
    k09_offset_fetch as k09,
)
from sparkraft.protocol.messages import (
    k10_find_coordinator as k10,
)
from sparkraft.protocol.messages import (
    k11_join_group as k11,
)
from sparkraft.protocol.messages import (
    k12_heartbeat as k12,
)
from sparkraft.protocol.messages import (
    k13_leave_group as k13,
)
from sparkraft.protocol.messages import (
    k14_sync_group as k14,
)
from sparkraft.protocol.messages import (
    k15_describe_groups as k15,
)
from sparkraft.protocol.messages import (
    k16_list_groups as k16,
)
from sparkraft.protocol.messages import (
    k42_delete_groups as k42,
)
from sparkraft.protocol.messages import (
    k47_offset_delete as k47,
)
from tests.interop.differential.building import GROUP, TOPIC, every_version
from tests.interop.differential.world import Case, World

SESSION_MS = 60_000
"""Nobody is to be taken for dead between two cases, however slow the machine."""


def subscription() -> bytes:
    """What a consumer says when it joins: ConsumerProtocolSubscription v0 of one topic."""
    return b"\x00\x00" + b"\x00\x00\x00\x01\x00\x06orders" + b"\xff\xff\xff\xff"


def plan() -> bytes:
    """What the leader gives it: ConsumerProtocolAssignment v0 of one partition."""
    place = b"\x00\x00\x00\x01\x00\x06orders\x00\x00\x00\x01\x00\x00\x00\x00"
    return b"\x00\x00" + place + b"\xff\xff\xff\xff"


def groups() -> Iterator[Case]:
    """One classic group's life, and what must be refused on the way."""
    yield from every_version(ApiKey.FIND_COORDINATOR, "of a group", lambda _: k10.FindCoordinatorRequest(
        key=GROUP, coordinator_keys=[GROUP]))  # fmt: skip
    yield from every_version(ApiKey.FIND_COORDINATOR, "bad type", lambda _: k10.FindCoordinatorRequest(
        key=GROUP, key_type=7, coordinator_keys=[GROUP]), since=1)  # fmt: skip
    yield from every_version(ApiKey.FIND_COORDINATOR, "two groups", lambda _: k10.FindCoordinatorRequest(
        coordinator_keys=[GROUP, "other"]), since=4)  # fmt: skip

    def commit(
        offset: int,
        *,
        group: str = "simple",
        topic: str = TOPIC,
        partition: int = 0,
        label: str = "",
        generation: int = -1,
    ) -> Any:
        return lambda w: k08.OffsetCommitRequest(
            group_id=group, member_id=w.member(label), generation_id_or_member_epoch=w.generations.get(label, generation),
            topics=[k08.OffsetCommitRequestTopic(name=topic, topic_id=w.topic_id(topic), partitions=[
                k08.OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="note")])],
        )  # fmt: skip

    key = ApiKey.OFFSET_COMMIT
    yield from every_version(key, "without a group", commit(5))
    yield from every_version(key, "unknown topic", commit(5, topic="nowhere"))
    yield from every_version(key, "unknown partition", commit(5, partition=9))
    yield from every_version(key, "empty group", commit(5, group=""))
    yield from every_version(key, "unknown member", fit_commit)

    def fetched(group: str, topics: list[str] | None, stable: bool = False) -> Any:
        def build(w: World) -> Message:
            old = (
                None
                if topics is None
                else [k09.OffsetFetchRequestTopic(name=t, partition_indexes=[0, 1]) for t in topics]
            )
            new = (
                None
                if topics is None
                else [
                    k09.OffsetFetchRequestTopics(
                        name=t, topic_id=w.topic_id(t), partition_indexes=[0, 1]
                    )
                    for t in topics
                ]
            )
            return k09.OffsetFetchRequest(
                group_id=group,
                topics=old,
                groups=[k09.OffsetFetchRequestGroup(group_id=group, topics=new)],
                require_stable=stable,
            )

        return build

    key = ApiKey.OFFSET_FETCH
    yield from every_version(key, "committed", fetched("simple", [TOPIC]))
    yield from every_version(key, "never seen", fetched("stranger", [TOPIC]))
    yield from every_version(key, "unknown topic", fetched("simple", ["nowhere"]))
    yield from every_version(key, "everything", fetched("simple", None), since=2)
    yield from every_version(key, "stable", fetched("simple", [TOPIC], True), since=7)

    def join(
        label: str,
        *,
        group: str = GROUP,
        session: int = SESSION_MS,
        protocol: str = "range",
        kind: str = "consumer",
        instance: str | None = None,
    ) -> Any:
        return lambda w: k11.JoinGroupRequest(
            group_id=group, session_timeout_ms=session, rebalance_timeout_ms=10_000, member_id=w.member(label),
            group_instance_id=instance, protocol_type=kind,
            protocols=[k11.JoinGroupRequestProtocol(name=protocol, metadata=subscription())] if protocol else [],
        )  # fmt: skip

    def keep(label: str) -> Callable[[World, Any], None]:
        def remember(world: World, response: Any) -> None:
            if response.member_id:
                world.members[label] = response.member_id
            if response.error_code == 0:
                world.generations[label] = response.generation_id

        return remember

    def sync(label: str, group: str, *, generation: int | None = None) -> Any:
        return lambda w: k14.SyncGroupRequest(
            group_id=group, generation_id=w.generations.get(label, 0) if generation is None else generation,
            member_id=w.member(label), protocol_type="consumer", protocol_name="range",
            assignments=[k14.SyncGroupRequestAssignment(member_id=w.member(label), assignment=plan())],
        )  # fmt: skip

    def beat(label: str, group: str, *, generation: int | None = None) -> Any:
        return lambda w: k12.HeartbeatRequest(group_id=group, member_id=w.member(label),
            generation_id=w.generations.get(label, 0) if generation is None else generation)  # fmt: skip

    def leave(label: str, group: str) -> Any:
        return lambda w: k13.LeaveGroupRequest(group_id=group, member_id=w.member(label),
            members=[k13.MemberIdentity(member_id=w.member(label))])  # fmt: skip

    info = API_INFO[ApiKey.JOIN_GROUP]
    for version in range(info.min_version, info.max_version + 1):
        group = label = f"joined-by-v{version}"
        yield Case("joins", ApiKey.JOIN_GROUP, version, join(label, group=group), keep(label))
        if version >= 4:
            yield Case(
                "joins with its id",
                ApiKey.JOIN_GROUP,
                version,
                join(label, group=group),
                keep(label),
            )
        yield Case("syncs", ApiKey.SYNC_GROUP, min(version, 5), sync(label, group))
        yield Case("beats", ApiKey.HEARTBEAT, min(version, 4), beat(label, group))
        yield Case(
            "beats in an old generation",
            ApiKey.HEARTBEAT,
            min(version, 4),
            beat(label, group, generation=0),
        )
        yield Case(
            "syncs in an old generation",
            ApiKey.SYNC_GROUP,
            min(version, 5),
            sync(label, group, generation=0),
        )
        yield Case(
            "commits",
            ApiKey.OFFSET_COMMIT,
            min(version + 2, 9),
            commit(3, group=group, label=label),
        )
        yield Case("commits in an old generation", ApiKey.OFFSET_COMMIT, min(version + 2, 9),
                   lambda w, g=group, n=label: fit_commit(w, g, w.member(n), 77))  # fmt: skip
        yield Case(
            "described",
            ApiKey.DESCRIBE_GROUPS,
            min(version, 6),
            lambda _, g=group: k15.DescribeGroupsRequest(groups=[g]),
        )
        yield Case(
            "busy, can't be deleted",
            ApiKey.DELETE_GROUPS,
            min(version, 2),
            lambda _, g=group: k42.DeleteGroupsRequest(groups_names=[g]),
        )
        yield Case("leaves", ApiKey.LEAVE_GROUP, min(version, 5), leave(label, group))
        yield Case("leaves again", ApiKey.LEAVE_GROUP, min(version, 5), leave(label, group))
    for label, build in {
        "session too short": join("x1", session=1), "session too long": join("x2", session=10**8),
        "empty group": join("x3", group=""), "no protocols": join("x4", protocol=""), "no type": join("x5", kind=""),
        "unknown member": lambda _: k11.JoinGroupRequest(group_id=GROUP, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=10_000,
            member_id="stranger", protocol_type="consumer", protocols=[k11.JoinGroupRequestProtocol(name="range", metadata=b"")]),
    }.items():  # fmt: skip
        yield from every_version(ApiKey.JOIN_GROUP, label, build, since=4)
    stranger = {"member_id": "stranger", "group_id": "never-was"}
    yield from every_version(
        ApiKey.HEARTBEAT,
        "unknown group",
        lambda _: k12.HeartbeatRequest(generation_id=1, **stranger),
    )
    yield from every_version(ApiKey.SYNC_GROUP, "unknown group", lambda _: k14.SyncGroupRequest(
        generation_id=1, protocol_type="consumer", protocol_name="range", **stranger))  # fmt: skip
    yield from every_version(ApiKey.LEAVE_GROUP, "unknown group", lambda _: k13.LeaveGroupRequest(
        members=[k13.MemberIdentity(member_id="stranger")], **stranger))  # fmt: skip
    yield Case(
        "static joins", ApiKey.JOIN_GROUP, 5, join("s1", group="static", instance="one"), keep("s1")
    )
    yield Case("static syncs", ApiKey.SYNC_GROUP, 3, lambda w: k14.SyncGroupRequest(
        group_id="static", generation_id=w.generations.get("s1", 0), member_id=w.member("s1"), group_instance_id="one",
        assignments=[k14.SyncGroupRequestAssignment(member_id=w.member("s1"), assignment=plan())]))  # fmt: skip
    yield Case("static comes back", ApiKey.JOIN_GROUP, 9, lambda _: k11.JoinGroupRequest(
        group_id="static", session_timeout_ms=SESSION_MS, rebalance_timeout_ms=10_000, group_instance_id="one", protocol_type="consumer",
        protocols=[k11.JoinGroupRequestProtocol(name="range", metadata=subscription())]), keep("s2"))  # fmt: skip
    yield Case("the old one is fenced", ApiKey.HEARTBEAT, 3, lambda w: k12.HeartbeatRequest(
        group_id="static", member_id=w.member("s1"), generation_id=w.generations.get("s1", 0), group_instance_id="one"))  # fmt: skip
    yield Case("static leaves by instance", ApiKey.LEAVE_GROUP, 5, lambda _: k13.LeaveGroupRequest(
        group_id="static", members=[k13.MemberIdentity(group_instance_id="one")]))  # fmt: skip

    yield from every_version(
        ApiKey.DESCRIBE_GROUPS,
        "three",
        lambda _: k15.DescribeGroupsRequest(groups=["simple", "never-was", ""]),
    )
    yield from every_version(ApiKey.DESCRIBE_GROUPS, "operations", lambda _: k15.DescribeGroupsRequest(
        groups=["simple"], include_authorized_operations=True), since=3)  # fmt: skip
    yield from every_version(ApiKey.LIST_GROUPS, "all", lambda _: k16.ListGroupsRequest())
    yield from every_version(
        ApiKey.LIST_GROUPS,
        "stable ones",
        lambda _: k16.ListGroupsRequest(states_filter=["Stable"]),
        since=4,
    )
    yield from every_version(
        ApiKey.LIST_GROUPS,
        "classic ones",
        lambda _: k16.ListGroupsRequest(types_filter=["classic"]),
        since=5,
    )
    yield from every_version(ApiKey.LIST_GROUPS, "odd filters", lambda _: k16.ListGroupsRequest(
        states_filter=["Asleep"], types_filter=["odd"]), since=5)  # fmt: skip
    erase = k47.OffsetDeleteRequest
    yield Case("an offset", ApiKey.OFFSET_DELETE, 0, lambda _: erase(group_id="simple", topics=[k47.OffsetDeleteRequestTopic(
        name=TOPIC, partitions=[k47.OffsetDeleteRequestPartition(partition_index=0), k47.OffsetDeleteRequestPartition(partition_index=9)])]))  # fmt: skip
    yield Case(
        "of an unknown group",
        ApiKey.OFFSET_DELETE,
        0,
        lambda _: erase(group_id="never-was", topics=[]),
    )
    yield from every_version(
        ApiKey.DELETE_GROUPS,
        "one and a stranger",
        lambda _: k42.DeleteGroupsRequest(groups_names=["simple", "never-was"]),
    )
    yield from every_version(ApiKey.OFFSET_FETCH, "after deletion", fetched("simple", [TOPIC]))


def fit_commit(
    world: World, group: str = "simple", member: str = "stranger", generation: int = 4
) -> Message:
    """A commit by a member that the group does not have in this generation."""
    return k08.OffsetCommitRequest(
        group_id=group, member_id=member, generation_id_or_member_epoch=generation,
        topics=[k08.OffsetCommitRequestTopic(name=TOPIC, topic_id=world.topic_id(TOPIC), partitions=[
            k08.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)])],
    )  # fmt: skip
