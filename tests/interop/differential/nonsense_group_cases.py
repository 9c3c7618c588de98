"""Requests of groups that make no sense, or ask for very much, of both protocols.

Epochs, timeouts, places and names that cannot be, forged members, floods of joins, expressions that
match everything, and members of the wrong protocol. Nothing that these cases send may change what a
stable group has.
"""

from collections.abc import Callable, Iterator
from typing import Any

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.declare import Message
from sparkraft.protocol.messages import k08_offset_commit as k08
from sparkraft.protocol.messages import k11_join_group as k11
from sparkraft.protocol.messages import k12_heartbeat as k12
from sparkraft.protocol.messages import k13_leave_group as k13
from sparkraft.protocol.messages import k14_sync_group as k14
from sparkraft.protocol.messages import k68_consumer_group_heartbeat as k68
from tests.interop.differential import consumer_group_cases as members
from tests.interop.differential.building import TOPIC, is_final, versions_of
from tests.interop.differential.group_cases import SESSION_MS, plan, subscription
from tests.interop.differential.nonsense_cases import INT16, INT32, INT64, LONGEST, MANY
from tests.interop.differential.world import Case, World

SIZE_MAX = 12
"""Members of a consumer group at most: `group.consumer.max.size` of the nodes."""

GROUP = "nonsense-group"
MEMBER = "nonsense-member"


def absurd_members() -> Iterator[Case]:
    """ConsumerGroupHeartbeat: epochs, timeouts, places and names that cannot be."""
    key = ApiKey.CONSUMER_GROUP_HEARTBEAT
    joined = members.joins(GROUP, MEMBER)
    yield Case("nonsense: joins", key, 1, joined, members.keep(MEMBER), until=is_final)
    beat = members.beat
    very_many = [f"nowhere-{number}" for number in range(MANY)]
    for version in versions_of(key):
        other = f"{GROUP}-{version}"
        for label, build in {
            "the largest epoch": beat(GROUP, MEMBER, epoch=INT32 - 1),
            "the smallest epoch": beat(GROUP, MEMBER, epoch=-INT32),
            "a forged member": beat(GROUP, "forged", epoch=1),
            "a forged member leaves": beat(GROUP, "forged", epoch=-1),
            "a forged static member": beat(GROUP, "forged", epoch=-2, instance="forged"),
            "a forged owner": beat(GROUP, "forged", epoch=1, owned={TOPIC: [0, 1, 2]}),
            "timeout 0": members.joins(other, "timeout-0", timeout_ms=0),
            "timeout -2": members.joins(other, "timeout-2", timeout_ms=-2),
            "the smallest timeout": members.joins(other, "timeout-least", timeout_ms=-INT32),
            "names that cannot be": members.joins(f"{other}-names", "odd", topics=["a/b", ""]),
            "one name twice": members.joins(f"{other}-twice", "twice", topics=[TOPIC, TOPIC]),
            "very many topics": members.joins(f"{other}-many", "many", topics=very_many),
            "the longest member": members.joins(f"{other}-long", LONGEST),
            "the longest instance": members.joins(f"{other}-static", "long", instance=LONGEST),
            "the longest rack": members.joins(f"{other}-rack", "rack", rack_id=LONGEST),
            "the longest group": members.joins(LONGEST, f"member-{version}", topics=[f"t{version}"]),
            "places that cannot be": beat(GROUP, MEMBER, owned={TOPIC: [-1, 99], "nowhere": [0]}),
            "a place twice": beat(GROUP, MEMBER, owned={TOPIC: [0, 0, 1, 2]}),
        }.items():  # fmt: skip
            yield Case(f"nonsense: {label}", key, version, build)
    for label, pattern in {
        "an open bracket": "[",
        "too many repetitions": "x{1001}",
        "a back reference": r"(a)\1",
        "a lookahead": "(?=a)b",
        "the longest pattern": "y" * (INT16 - 1),
        "repetitions of nothing": "(.*)*never-there",
        "an invalid escape": r"\8",
        "not a byte": "\\C",
        "an unknown class": r"\p{Nowhere}",
    }.items():
        build = members.joins(f"{GROUP}-{label}", "regex", topics=None, regex=pattern)
        yield Case(f"regex: {label}", key, 1, build)
    yield from members.described(GROUP)


def patterns() -> Iterator[Case]:
    """An expression that matches every topic is resolved, and the next heartbeat has them all."""
    key = ApiKey.CONSUMER_GROUP_HEARTBEAT
    group, label = f"{GROUP}-everything", "everything"
    build = members.joins(group, label, topics=None, regex="(.*)*")
    yield Case("joins by a pattern", key, 1, build, members.keep(label), until=is_final)
    yield Case(
        "has every topic", key, 1, members.beat(group, label), members.keep(label),
        until=lambda answer: answer["assignment"] is not None, is_compared=False,
    )  # fmt: skip
    yield from members.described(group)


def floods() -> Iterator[Case]:
    """More members than a group may have."""
    key = ApiKey.CONSUMER_GROUP_HEARTBEAT
    group = f"{GROUP}-flood"
    for number in range(SIZE_MAX + 3):
        label = f"flood-{number:02d}"
        build = members.joins(group, label, topics=["nowhere"])
        yield Case(f"flood: {label}", key, 1, build, members.keep(label), until=is_final)
    again = members.joins(group, "flood-00", topics=["nowhere"])
    yield Case("flood: a member joins again", key, 1, again, members.keep("flood-00"))
    yield Case("flood: one leaves", key, 1, members.beat(group, "flood-01", epoch=-1))
    late = members.joins(group, "flood-late", topics=["nowhere"])
    yield Case("flood: another has its place", key, 1, late, members.keep("flood-late"))


def _join(group: str, **fields: Any) -> Callable[[World], Message]:
    protocol = k11.JoinGroupRequestProtocol(name="range", metadata=subscription())
    given = {
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": SESSION_MS,
        "protocol_type": "consumer",
        "protocols": [protocol],
        **fields,
    }
    return lambda world: k11.JoinGroupRequest(
        group_id=group, **{"member_id": world.member(group), **given}
    )


def _keep(group: str) -> Callable[[World, Any], None]:
    def remember(world: World, response: Any) -> None:
        if response.member_id:
            world.members[group] = response.member_id
        if response.error_code == 0:
            world.generations[group] = response.generation_id

    return remember


def classic_members() -> Iterator[Case]:
    """The classic protocol: timeouts, generations and protocols that cannot be."""
    protocol = k11.JoinGroupRequestProtocol
    for version in versions_of(ApiKey.JOIN_GROUP):
        for label, fields in {
            "session 0": {"session_timeout_ms": 0},
            "session -1": {"session_timeout_ms": -1},
            "the largest session": {"session_timeout_ms": INT32 - 1},
            "a forged member": {"member_id": "forged"},
            "the longest member": {"member_id": LONGEST},
        }.items():
            build = _join(f"{GROUP}-{version}", **fields)
            yield Case(f"nonsense: {label}", ApiKey.JOIN_GROUP, version, build)
    group = f"{GROUP}-classic"
    many = [protocol(name=f"p{number}", metadata=b"") for number in range(1000)]
    for label, fields in {
        "very many protocols": {"protocols": many},
        "an empty protocol": {"protocols": [protocol(name="", metadata=b"")]},
    }.items():
        one = f"{group}: {label}"
        build = _join(one, **fields)
        yield Case(f"nonsense: {label}", ApiKey.JOIN_GROUP, 3, build, _keep(one))
        leave = lambda world, g=one: k13.LeaveGroupRequest(  # noqa: E731 (a builder)
            group_id=g, member_id=world.member(g)
        )
        yield Case(f"nonsense: {label} leaves", ApiKey.LEAVE_GROUP, 0, leave)
    yield from _generations(group)


def _generations(group: str) -> Iterator[Case]:
    yield Case("nonsense: joins", ApiKey.JOIN_GROUP, 3, _join(group), _keep(group), until=is_final)

    def sync(generation: int, member: str | None = None) -> Callable[[World], Message]:
        def build(world: World) -> Message:
            own = world.member(group) if member is None else member
            assigned = k14.SyncGroupRequestAssignment(member_id="forged", assignment=plan())
            return k14.SyncGroupRequest(
                group_id=group, generation_id=generation, member_id=own,
                protocol_type="consumer", protocol_name="range", assignments=[assigned],
            )  # fmt: skip

        return build

    def heartbeat(generation: int, member: str | None = None) -> Callable[[World], Message]:
        return lambda world: k12.HeartbeatRequest(
            group_id=group,
            generation_id=generation,
            member_id=world.member(group) if member is None else member,
        )

    for generation in (INT32 - 1, -INT32, -1, 0):
        label = f"generation {generation}"
        for version in versions_of(ApiKey.SYNC_GROUP):
            yield Case(f"nonsense: {label}", ApiKey.SYNC_GROUP, version, sync(generation))
        for version in versions_of(ApiKey.HEARTBEAT):
            yield Case(f"nonsense: {label}", ApiKey.HEARTBEAT, version, heartbeat(generation))
    yield Case("nonsense: of nobody", ApiKey.HEARTBEAT, 4, heartbeat(1, ""))
    yield Case("nonsense: of nobody", ApiKey.SYNC_GROUP, 5, sync(1, ""))
    yield Case("nonsense: an assignment for others", ApiKey.SYNC_GROUP, 5, sync(1))
    strangers = [k13.MemberIdentity(member_id=f"forged-{number}") for number in range(MANY)]
    for label, given in {
        "nobody": [],
        "very many strangers": strangers,
        "one stranger twice": strangers[:1] * 2,
        "an unknown instance": [k13.MemberIdentity(group_instance_id="forged")],
    }.items():
        request = k13.LeaveGroupRequest(group_id=group, members=given)
        yield Case(f"nonsense: {label}", ApiKey.LEAVE_GROUP, 5, lambda _, r=request: r)


def commits() -> Iterator[Case]:
    """OffsetCommit of places and offsets that no log has."""
    key = ApiKey.OFFSET_COMMIT

    def commit(index: int, offset: int, **fields: Any) -> Callable[[World], Message]:
        part = {"committed_leader_epoch": -1, "committed_metadata": "", **fields}
        return lambda world: k08.OffsetCommitRequest(
            group_id="nonsense-commits",
            generation_id_or_member_epoch=-1,
            topics=[
                k08.OffsetCommitRequestTopic(
                    name=TOPIC,
                    topic_id=world.topic_id(TOPIC),
                    partitions=[
                        k08.OffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, **part
                        )
                    ],
                )
            ],
        )

    for version in versions_of(key):
        for label, build in {
            "partition -1": commit(-1, 1),
            "the largest partition": commit(INT32 - 1, 1),
            "offset -1": commit(0, -1),
            "the smallest offset": commit(0, -INT64),
            "the largest offset": commit(1, INT64 - 1),
            "the smallest leader epoch": commit(2, 1, committed_leader_epoch=-INT32),
            "no metadata": commit(0, 1, committed_metadata=None),
            "long metadata": commit(0, 1, committed_metadata="x" * 5000),
        }.items():
            yield Case(f"nonsense: {label}", key, version, build)


def wrong_types() -> Iterator[Case]:
    """Heartbeats of the other protocol, for groups that do not change theirs."""
    group = f"{GROUP}-connect"
    connect = _join(group, protocol_type="connect")
    yield Case("connect joins", ApiKey.JOIN_GROUP, 3, connect, _keep(group), until=is_final)
    key = ApiKey.CONSUMER_GROUP_HEARTBEAT
    for version in versions_of(key):
        for label, build in {
            "joins": members.joins(group, "other"),
            "beats": members.beat(group, "other", epoch=1),
            "leaves": members.beat(group, "other", epoch=-1),
            "is away": members.beat(group, "other", epoch=-2, instance="other"),
        }.items():
            yield Case(f"connect: a consumer {label}", key, version, build)
        named = lambda world, g=group: k68.ConsumerGroupHeartbeatRequest(  # noqa: E731 (a builder)
            group_id=g, member_id=world.member(g), member_epoch=world.generations.get(g, 0)
        )
        yield Case("connect: its own member", key, version, named)
    yield from members.described(group)
    for version in versions_of(ApiKey.HEARTBEAT):
        stolen = lambda world: k12.HeartbeatRequest(  # noqa: E731 (a builder like the others)
            group_id=GROUP,
            member_id=world.member(MEMBER),
            generation_id=world.numbers.get(f"{MEMBER} epoch", 0),
        )
        yield Case("consumer: a classic heartbeat", ApiKey.HEARTBEAT, version, stolen)
    for version in versions_of(ApiKey.SYNC_GROUP):
        stolen = lambda world: k14.SyncGroupRequest(  # noqa: E731 (a builder like the others)
            group_id=GROUP,
            member_id=world.member(MEMBER),
            generation_id=world.numbers.get(f"{MEMBER} epoch", 0),
            protocol_type="consumer",
            protocol_name="range",
        )
        yield Case("consumer: a classic sync", ApiKey.SYNC_GROUP, version, stolen)
    for version in versions_of(ApiKey.JOIN_GROUP):
        stolen = _join(GROUP, protocol_type="connect", member_id="forged")
        yield Case("consumer: another type joins", ApiKey.JOIN_GROUP, version, stolen)
    simple = members.joins("nonsense-commits", "simple", topics=[TOPIC])
    yield Case("simple: a consumer joins", key, 1, simple, members.keep("simple"), until=is_final)
    yield from members.described("nonsense-commits")


def absurd_groups() -> Iterator[Case]:
    """All of groups, in order."""
    yield from absurd_members()
    yield from patterns()
    yield from floods()
    yield from classic_members()
    yield from commits()
    yield from wrong_types()
    still = members.beat(GROUP, MEMBER)
    yield Case("after nonsense", ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, still)
