"""A group changes from the classic protocol to the consumer protocol and back (KIP-848)."""

from collections.abc import Callable, Iterator
from typing import Any

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.declare import Message
from sparkraft.protocol.messages import k11_join_group as k11
from sparkraft.protocol.messages import k12_heartbeat as k12
from sparkraft.protocol.messages import k13_leave_group as k13
from sparkraft.protocol.messages import k14_sync_group as k14
from sparkraft.protocol.messages import k15_describe_groups as k15
from sparkraft.protocol.messages import k69_consumer_group_describe as k69
from tests.interop.differential.building import TOPIC
from tests.interop.differential.consumer_group_cases import beat, joins, keep
from tests.interop.differential.group_cases import SESSION_MS, plan, subscription
from tests.interop.differential.world import Case, World

GROUP = "kip-848-migrated"
CLASSIC, CONSUMER = "classic-member", "consumer-member"


def _keep_generation(world: World, response: Any) -> None:
    if response.member_id:
        world.members[CLASSIC] = response.member_id
    if response.error_code == 0:
        world.generations[CLASSIC] = response.generation_id


def _join(world: World) -> Message:
    protocol = k11.JoinGroupRequestProtocol(name="range", metadata=subscription())
    return k11.JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=10_000,
        member_id=world.member(CLASSIC),
        protocol_type="consumer",
        protocols=[protocol],
    )


def _in_generation(build: Callable[..., Message], *, by: int = 0) -> Callable[[World], Message]:
    return lambda world: build(
        group_id=GROUP,
        member_id=world.member(CLASSIC),
        generation_id=world.generations.get(CLASSIC, 0) + by,
    )


def _sync(world: World) -> Message:
    assignment = k14.SyncGroupRequestAssignment(member_id=world.member(CLASSIC), assignment=plan())
    return k14.SyncGroupRequest(
        group_id=GROUP,
        member_id=world.member(CLASSIC),
        generation_id=world.generations.get(CLASSIC, 0),
        protocol_type="consumer",
        protocol_name="range",
        assignments=[assignment],
    )


def _rejoins(when: str) -> Iterator[Case]:
    yield Case(f"{when}: classic joins", ApiKey.JOIN_GROUP, 9, _join, _keep_generation)
    yield Case(f"{when}: classic syncs", ApiKey.SYNC_GROUP, 5, _sync)
    yield from _beats(when)


def _beats(when: str) -> Iterator[Case]:
    request = k12.HeartbeatRequest
    yield Case(f"{when}: classic beats", ApiKey.HEARTBEAT, 4, _in_generation(request))
    old = _in_generation(request, by=-1)
    yield Case(f"{when}: classic beats in an old generation", ApiKey.HEARTBEAT, 4, old)


def _described(when: str) -> Iterator[Case]:
    classic = k15.DescribeGroupsRequest(groups=[GROUP])
    yield Case(when, ApiKey.DESCRIBE_GROUPS, 6, lambda _: classic)
    modern = k69.ConsumerGroupDescribeRequest(group_ids=[GROUP])
    yield Case(when, ApiKey.CONSUMER_GROUP_DESCRIBE, 1, lambda _: modern)


def migrations() -> Iterator[Case]:
    """A consumer member joins a classic group of one, and leaves it again."""
    key = ApiKey.CONSUMER_GROUP_HEARTBEAT
    yield Case("gets its id", ApiKey.JOIN_GROUP, 9, _join, _keep_generation)
    yield from _rejoins("alone")
    yield from _described("alone")
    # The range assignor goes by the order of ids. The uniform one goes by hashes in Kafka, so who has
    # two of the three partitions would depend on the random id of the classic member.
    upgrade = joins(GROUP, CONSUMER, server_assignor="range")
    yield Case("upgrades", key, 1, upgrade, keep(CONSUMER))
    yield from _described("upgraded")
    yield from _beats("upgraded")
    yield from _rejoins("revoking")
    yield Case("gets more", key, 1, beat(GROUP, CONSUMER), keep(CONSUMER))
    yield from _rejoins("settled")
    owned = {TOPIC: [0, 1, 2]}
    yield Case("says too much", key, 1, beat(GROUP, CONSUMER, owned=owned), keep(CONSUMER))
    yield from _described("settled")
    yield Case("downgrades", key, 1, beat(GROUP, CONSUMER, epoch=-1))
    yield from _beats("downgraded")
    yield from _described("downgraded")
    yield from _rejoins("downgraded")
    yield from _described("classic again")
    leave = lambda world: k13.LeaveGroupRequest(  # noqa: E731 (a builder like the others)
        group_id=GROUP, members=[k13.MemberIdentity(member_id=world.member(CLASSIC))]
    )
    yield Case("leaves a migrated group", ApiKey.LEAVE_GROUP, 5, leave)
    yield from _described("empty")
