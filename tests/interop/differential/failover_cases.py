"""After a failover: what coordinators and leaders know once their node was killed and started again.

Each version of each key has a transactional id of its own, whose transaction was open or ended
before. Then come the same questions as elsewhere: right, in the wrong epoch, of the wrong producer or
member, and fenced.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.declare import Message
from sparkraft.protocol.messages import k03_metadata as k03
from sparkraft.protocol.messages import k09_offset_fetch as k09
from sparkraft.protocol.messages import k10_find_coordinator as k10
from sparkraft.protocol.messages import k11_join_group as k11
from sparkraft.protocol.messages import k12_heartbeat as k12
from sparkraft.protocol.messages import k13_leave_group as k13
from sparkraft.protocol.messages import k14_sync_group as k14
from sparkraft.protocol.messages import k15_describe_groups as k15
from sparkraft.protocol.messages import k16_list_groups as k16
from sparkraft.protocol.messages import k19_create_topics as k19
from sparkraft.protocol.messages import k27_write_txn_markers as k27
from sparkraft.protocol.messages import k61_describe_producers as k61
from sparkraft.protocol.messages import k65_describe_transactions as k65
from sparkraft.protocol.messages import k66_list_transactions as k66
from tests.interop.differential import consumer_group_cases as members
from tests.interop.differential.building import TOPIC, is_final, versions_of
from tests.interop.differential.group_cases import SESSION_MS, plan, subscription
from tests.interop.differential.topic_cases import creatable, remember_ids
from tests.interop.differential.transaction_cases import (
    BROKERS_FROM,
    EPOCHS_FROM,
    add,
    add_offsets,
    adding_version,
    client_versions,
    commit_offsets,
    end,
    fenced,
    init,
    keep,
    settles,
)
from tests.interop.differential.transactional_produce_cases import ADDING_FROM, produce
from tests.interop.differential.world import Case, World

MOVED = "moved"
"""The topic of these cases; its partition 1 has the batches, partition 2 the markers."""

TIMEOUT_MS = 600_000
"""A transaction must not time out while a node starts on a busy machine."""

CLASSIC, CONSUMER, STATIC = "moved-classic", "moved-consumer", "moved-static"
FIRST = (MOVED, 0)
Build = Callable[..., Callable[[World], Message]]


def _begins(name: str) -> Iterator[Case]:
    find = k10.FindCoordinatorRequest(key_type=1, coordinator_keys=[name])
    yield Case(f"of {name}", ApiKey.FIND_COORDINATOR, 4, lambda _: find, until=is_final)
    first = init(name, timeout_ms=TIMEOUT_MS)
    yield Case(f"{name} begins", ApiKey.INIT_PRODUCER_ID, 4, first, keep(name), until=is_final)


def _adds(name: str, *, offsets: bool = False) -> Case:
    """Its partition, or that of its group's offsets, becomes part of the transaction."""
    key, build = (
        (ApiKey.ADD_OFFSETS_TO_TXN, add_offsets(name, group=name))
        if offsets
        else (ApiKey.ADD_PARTITIONS_TO_TXN, add(name, FIRST))
    )
    return Case(f"{name} adds", key, 3, build, until=is_final)


def _wrong(key: ApiKey, version: int, build: Build, when: str = "moved") -> Iterator[Case]:
    for label, changes in {
        "wrong epoch": {"by_epoch": 7},
        "older epoch": {"by_epoch": -1},
        "wrong id": {"by_id": 10**6},
        "unknown id": {"transactional_id": "stranger"},
    }.items():
        yield Case(f"{when}: {label}", key, version, build(**changes), until=is_final)


def _added_before() -> Iterator[Case]:
    for version in versions_of(ApiKey.ADD_PARTITIONS_TO_TXN):
        yield from _begins(f"moved-add-{version}")
        yield _adds(f"moved-add-{version}")
    for version in versions_of(ApiKey.ADD_OFFSETS_TO_TXN):
        yield from _begins(f"moved-offsets-{version}")
        yield _adds(f"moved-offsets-{version}", offsets=True)


def _added_after(level: int) -> Iterator[Case]:
    key = ApiKey.ADD_PARTITIONS_TO_TXN
    for version in versions_of(key):
        name = f"moved-add-{version}"
        adding = adding_version(version, level)
        if version == adding:
            yield from _wrong(key, version, lambda n=name, **c: add(n, (MOVED, 1), **c))
        if version >= BROKERS_FROM:
            yield from _wrong(
                key,
                version,
                lambda n=name, **c: add(n, (MOVED, 1), verify_only=True, **c),
                "moved, verified",
            )
            yield Case("moved: verified", key, version, add(name, FIRST, verify_only=True))
            other = add(name, FIRST, (MOVED, 1), verify_only=True)
            yield Case("moved: not in it", key, version, other)
        yield Case("moved: added again", key, adding, add(name, FIRST), until=is_final)
        yield Case("moved: one more", key, adding, add(name, (MOVED, 1)), until=is_final)
        only = version != adding
        last = lambda n, o=only, **c: add(n, (MOVED, 2), verify_only=o, **c)  # noqa: E731 (a builder)
        yield from fenced(name, key, version, last)
    key = ApiKey.ADD_OFFSETS_TO_TXN
    for version in versions_of(key):
        name = f"moved-offsets-{version}"
        yield from _wrong(key, version, lambda n=name, **c: add_offsets(n, group=n, **c))
        yield Case("moved: again", key, version, add_offsets(name, group=name), until=is_final)
        yield from fenced(name, key, version, add_offsets)


def _decisions(level: int) -> Iterator[tuple[int, bool, str]]:
    for version in client_versions(ApiKey.END_TXN, level):
        for commit in (True, False):
            yield version, commit, f"moved-end-{version}-{'commit' if commit else 'abort'}"


def _ended_before(level: int) -> Iterator[Case]:
    key = ApiKey.END_TXN
    for version, commit, name in _decisions(level):
        yield from _begins(name)
        yield _adds(name)
        build = end(name, commit=commit)
        yield Case(f"{name} ends", key, version, build, keep(name), until=is_final)
        yield from settles(name)
        for kind in ("open", "empty"):
            yield from _begins(f"{name}-{kind}")
        yield _adds(f"{name}-open")


def _ended_after(level: int) -> Iterator[Case]:
    key = ApiKey.END_TXN
    for version, commit, name in _decisions(level):
        has_epochs = version >= EPOCHS_FROM
        shift = -1 if has_epochs else 0
        for label, build in {
            "again": end(name, commit=commit, by_epoch=shift),
            "otherwise": end(name, commit=not commit, by_epoch=shift),
            "commit of nothing": end(name),
        }.items():
            yield Case(f"moved: {label}", key, version, build, until=is_final)
        yield from _wrong(
            key, version, lambda n=name, c=commit, s=shift, by_epoch=0, **x: end(
                n, commit=c, by_epoch=by_epoch + (s if by_epoch < 0 else 0), **x
            )
        )  # fmt: skip
        for one in (f"{name}-open", f"{name}-empty"):
            wrong = lambda n=one, c=commit, **x: end(n, commit=c, **x)  # noqa: E731 (a builder)
            yield from _wrong(key, version, wrong, one)
            build = end(one, commit=commit)
            yield Case(f"{one} ends", key, version, build, keep(one), until=is_final)
            yield from settles(one)
            again = end(one, commit=commit, by_epoch=shift)
            yield Case(f"{one} ends again", key, version, again, until=is_final)
        yield from fenced(name, key, version, end)


def _committed_before(level: int) -> Iterator[Case]:
    key = ApiKey.TXN_OFFSET_COMMIT
    for version in client_versions(key, level):
        name = f"moved-commit-{version}"
        yield from _begins(name)
        if version < EPOCHS_FROM:
            yield _adds(name, offsets=True)
        yield Case(f"{name}: first", key, version, commit_offsets(name, FIRST), until=is_final)


def _committed_after(level: int) -> Iterator[Case]:
    key = ApiKey.TXN_OFFSET_COMMIT
    for version in client_versions(key, level):
        name = f"moved-commit-{version}"
        yield Case("moved: pending", ApiKey.OFFSET_FETCH, 9, _fetch(name, stable=True))
        yield Case("moved: not visible", ApiKey.OFFSET_FETCH, 9, _fetch(name, stable=False))
        yield from _wrong(key, version, lambda n=name, **c: commit_offsets(n, FIRST, group=n, **c))
        more = commit_offsets(name, (MOVED, 1))
        yield Case("moved: one more", key, version, more, until=is_final)
        end_version = EPOCHS_FROM if version >= EPOCHS_FROM else EPOCHS_FROM - 1
        yield Case(
            f"{name} ends", ApiKey.END_TXN, end_version, end(name), keep(name), until=is_final
        )
        yield from settles(name)
        yield Case("moved: visible", ApiKey.OFFSET_FETCH, 9, _fetch(name, stable=True))
        yield from fenced(name, key, version, lambda n, **c: commit_offsets(n, FIRST, **c))


def _fetch(group: str, *, stable: bool) -> Callable[[World], Message]:
    topic = k09.OffsetFetchRequestTopics(name=MOVED, partition_indexes=[0, 1])
    asked = k09.OffsetFetchRequestGroup(group_id=group, topics=[topic])
    return lambda _: k09.OffsetFetchRequest(groups=[asked], require_stable=stable)


def _initialized_before() -> Iterator[Case]:
    for version in versions_of(ApiKey.INIT_PRODUCER_ID):
        name = f"moved-init-{version}"
        yield from _begins(name)
        if version >= 3:
            again = init(name, timeout_ms=TIMEOUT_MS, by_epoch=0)
            yield Case(
                f"{name} recovers", ApiKey.INIT_PRODUCER_ID, version, again, keep(name),
                until=is_final,
            )  # fmt: skip


def _initialized_after() -> Iterator[Case]:
    """A repeated request is fenced, since the last epoch is in no record (KAFKA-20310)."""
    key = ApiKey.INIT_PRODUCER_ID
    for version in versions_of(key):
        name = f"moved-init-{version}"
        if version >= 3:
            for label, changes in {
                "repeats": {"by_epoch": -1},
                "wrong epoch": {"by_epoch": 7},
                "wrong id": {"by_id": 10**6},
                "recovers": {"by_epoch": 0},
            }.items():
                build = init(name, **changes)
                yield Case(f"moved: {label}", key, version, build, keep(name), until=is_final)
        yield Case("moved: begins", key, version, init(name), keep(name), until=is_final)


def _produced_before(level: int) -> Iterator[Case]:
    key = ApiKey.PRODUCE
    for version in _produces(level):
        name = f"moved-produce-{version}"
        yield from _begins(name)
        if version < ADDING_FROM:
            yield Case(
                f"{name} adds", ApiKey.ADD_PARTITIONS_TO_TXN, 3, add(name, (MOVED, 1)),
                until=is_final,
            )  # fmt: skip
        yield Case(f"{name}: first", key, version, _batch(name, 0), until=is_final)


def _produces(level: int) -> list[int]:
    return [version for version in client_versions(ApiKey.PRODUCE, level) if version >= 3]


def _batch(name: str, sequence: int, **changes: Any) -> Callable[[World], Message]:
    return produce(name, sequence, topic=MOVED, partition=1, **changes)


def _produced_after(level: int) -> Iterator[Case]:
    key = ApiKey.PRODUCE
    for version in _produces(level):
        name = f"moved-produce-{version}"
        adds = version >= ADDING_FROM
        for label, build in {
            "first again": _batch(name, 0),
            "wrong epoch": _batch(name, 2, by_epoch=7),
            "older epoch": _batch(name, 2, by_epoch=-1),
            "wrong producer": _batch(name, 2, by_id=10**6),
            "a gap": _batch(name, 9),
            "second": _batch(name, 2),
        }.items():
            yield Case(f"moved: {label}", key, version, build, until=is_final)
        yield Case(
            f"{name} ends", ApiKey.END_TXN, 5 if adds else 4, end(name), keep(name), until=is_final
        )
        yield from settles(name)
        late = _batch(name, 4, by_epoch=-1 if adds else 0)
        yield Case("moved: late", key, version, late, until=is_final)


def _marker(number: int, epoch: int = 3, coordinator: int = 2) -> Callable[[World], Message]:
    topic = k27.WritableTxnMarkerTopic(name=MOVED, partition_indexes=[2])
    marker = k27.WritableTxnMarker(
        producer_id=number,
        producer_epoch=epoch,
        transaction_result=True,
        topics=[topic],
        coordinator_epoch=coordinator,
        transaction_version=2,
    )
    return lambda _: k27.WriteTxnMarkersRequest(markers=[marker])


def _marked_before() -> Iterator[Case]:
    for version in versions_of(ApiKey.WRITE_TXN_MARKERS):
        yield Case("moves", ApiKey.WRITE_TXN_MARKERS, version, _marker(800_000 + version))


def _marked_after() -> Iterator[Case]:
    key = ApiKey.WRITE_TXN_MARKERS
    for version in versions_of(key):
        number = 800_000 + version
        for label, build in {
            "again": _marker(number),
            "older epoch": _marker(number, epoch=2),
            "older coordinator": _marker(number, epoch=4, coordinator=1),
            "newer": _marker(number, epoch=4, coordinator=3),
        }.items():
            yield Case(f"moved: {label}", key, version, build)


def _names(level: int) -> list[str]:
    """Every transactional id of these cases."""
    cases = [*_before(level)]
    return [one.label.removeprefix("of ") for one in cases if one.key is ApiKey.FIND_COORDINATOR]


def _listed(level: int) -> Iterator[Case]:
    names = _names(level)
    described = k65.DescribeTransactionsRequest(transactional_ids=names)
    yield Case("after the move", ApiKey.DESCRIBE_TRANSACTIONS, 0, lambda _: described)
    listed = k66.ListTransactionsRequest(transactional_id_pattern="moved-.*")
    yield Case("after the move", ApiKey.LIST_TRANSACTIONS, 2, lambda _: listed)
    topic = k61.TopicRequest(name=MOVED, partition_indexes=[0, 1, 2])
    producers = k61.DescribeProducersRequest(topics=[topic])
    yield Case("after the move", ApiKey.DESCRIBE_PRODUCERS, 0, lambda _: producers)


# Groups


def _keep_generation(world: World, response: Any) -> None:
    if response.member_id:
        world.members[CLASSIC] = response.member_id
    if response.error_code == 0:
        world.generations[CLASSIC] = response.generation_id


def _join(world: World) -> Message:
    protocol = k11.JoinGroupRequestProtocol(name="range", metadata=subscription())
    return k11.JoinGroupRequest(
        group_id=CLASSIC,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        member_id=world.member(CLASSIC),
        protocol_type="consumer",
        protocols=[protocol],
    )


def _sync(*, by: int = 0, member: str | None = None) -> Callable[[World], Message]:
    def build(world: World) -> Message:
        own = world.member(CLASSIC) if member is None else member
        return k14.SyncGroupRequest(
            group_id=CLASSIC,
            member_id=own,
            generation_id=world.generations.get(CLASSIC, 0) + by,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[k14.SyncGroupRequestAssignment(member_id=own, assignment=plan())],
        )

    return build


def _beat(*, by: int = 0, member: str | None = None) -> Callable[[World], Message]:
    return lambda world: k12.HeartbeatRequest(
        group_id=CLASSIC,
        member_id=world.member(CLASSIC) if member is None else member,
        generation_id=world.generations.get(CLASSIC, 0) + by,
    )


def _groups_before() -> Iterator[Case]:
    key = ApiKey.CONSUMER_GROUP_HEARTBEAT
    yield Case("moves: joins", ApiKey.JOIN_GROUP, 3, _join, _keep_generation, until=is_final)
    yield Case("moves: syncs", ApiKey.SYNC_GROUP, 5, _sync())
    a, b = "moved-a", "moved-b"
    first = members.joins(CONSUMER, a)
    yield Case("moves: joins", key, 1, first, members.keep(a), until=is_final)
    yield Case("moves: a second joins", key, 1, members.joins(CONSUMER, b), members.keep(b))
    yield Case("moves: must revoke", key, 1, members.beat(CONSUMER, a), members.keep(a))
    static = members.joins(STATIC, "moved-s1", instance="one")
    yield Case("moves: static", key, 1, static, members.keep("moved-s1"), until=is_final)
    away = members.beat(STATIC, "moved-s1", epoch=-2, instance="one")
    yield Case("moves: static is away", key, 1, away)


def _groups_after(level: int) -> Iterator[Case]:
    for version in versions_of(ApiKey.SYNC_GROUP):
        for label, sync in {
            "in its generation": _sync(),
            "in a newer generation": _sync(by=5),
            "in an old generation": _sync(by=-1),
            "of a stranger": _sync(member="stranger"),
        }.items():
            yield Case(f"moved: {label}", ApiKey.SYNC_GROUP, version, sync)
    for version in versions_of(ApiKey.HEARTBEAT):
        for label, beat in {
            "in its generation": _beat(),
            "in a newer generation": _beat(by=5),
            "in an old generation": _beat(by=-1),
            "of a stranger": _beat(member="stranger"),
        }.items():
            yield Case(f"moved: {label}", ApiKey.HEARTBEAT, version, beat)
    described = k15.DescribeGroupsRequest(groups=[CLASSIC, CONSUMER])
    yield Case("moved", ApiKey.DESCRIBE_GROUPS, 6, lambda _: described)
    listed = k16.ListGroupsRequest(types_filter=["consumer"], states_filter=["stable"])
    yield Case("moved", ApiKey.LIST_GROUPS, 5, lambda _: listed)
    yield Case("moved: joins again", ApiKey.JOIN_GROUP, 9, _join, _keep_generation)
    yield Case("moved: syncs again", ApiKey.SYNC_GROUP, 5, _sync())
    leave = lambda world: k13.LeaveGroupRequest(  # noqa: E731 (a builder like the others)
        group_id=CLASSIC, members=[k13.MemberIdentity(member_id=world.member(CLASSIC))]
    )
    yield Case("moved: leaves", ApiKey.LEAVE_GROUP, 5, leave)
    yield from _members_after(level)


def _members_after(level: int) -> Iterator[Case]:
    key = ApiKey.CONSUMER_GROUP_HEARTBEAT
    a, b = "moved-a", "moved-b"
    yield from members.described(CONSUMER, STATIC)
    for version in versions_of(key):
        for label, build in {
            "in its epoch": members.beat(CONSUMER, a),
            "in a newer epoch": members.beat(CONSUMER, a, by_epoch=5),
            "in an old epoch": members.beat(CONSUMER, a, by_epoch=-1),
            "of a stranger": members.beat(CONSUMER, "stranger", epoch=1),
            "a stranger leaves": members.beat(CONSUMER, "stranger", epoch=-1),
        }.items():
            yield Case(f"moved: {label}", key, version, build)
    yield from members.commits(CONSUMER, a, level)
    kept = members.beat(CONSUMER, a, owned={TOPIC: [0]})
    yield Case("moved: has revoked", key, 1, kept, members.keep(a))
    old = members.beat(CONSUMER, a, by_epoch=-1, owned={TOPIC: [0]})
    yield Case("moved: the response was lost", key, 1, old)
    yield Case("moved: gets them", key, 1, members.beat(CONSUMER, b), members.keep(b))
    yield from members.described(CONSUMER)
    back = members.joins(STATIC, "moved-s2", instance="one")
    yield Case("moved: static is back", key, 1, back, members.keep("moved-s2"))
    yield Case("moved: old static", key, 1, members.beat(STATIC, "moved-s1", instance="one"))
    yield from members.described(STATIC)


# The move


def _before(level: int) -> Iterator[Case]:
    yield from _added_before()
    yield from _ended_before(level)
    yield from _committed_before(level)
    yield from _initialized_before()
    yield from _produced_before(level)
    yield from _marked_before()


def _restart(world: World) -> None:
    world.close()
    world.node.kill()
    world.node.start()


def _is_served(answer: Any) -> bool:
    return answer != "connection closed" and is_final(answer) and all(
        partition["leaderId"] >= 0 for topic in answer["topics"] for partition in topic["partitions"]
    )  # fmt: skip


def _is_loaded(answer: Any) -> bool:
    return answer != "connection closed" and is_final(answer)


def _moves(level: int) -> Iterator[Case]:
    """Kill the node, start it, and wait until it has loaded everything of these cases."""
    everything = lambda _: k03.MetadataRequest(topics=None)  # noqa: E731 (a builder)
    moved = Case("moved", ApiKey.METADATA, 12, everything, until=_is_served)
    yield replace(moved, before=_restart, is_compared=False)
    names = k65.DescribeTransactionsRequest(transactional_ids=_names(level))
    yield Case("loaded", ApiKey.DESCRIBE_TRANSACTIONS, 0, lambda _: names, until=_is_loaded)
    groups = [k09.OffsetFetchRequestGroup(group_id=one) for one in (CLASSIC, CONSUMER, STATIC)]
    fetch = k09.OffsetFetchRequest(groups=groups)
    yield Case("loaded", ApiKey.OFFSET_FETCH, 9, lambda _: fetch, until=_is_loaded)


def failovers(level: int = 2) -> Iterator[Case]:
    """All of them, in order, for a transaction.version."""
    created = k19.CreateTopicsRequest(topics=[creatable(MOVED, 3)], timeout_ms=10_000)
    yield Case("a topic that moves", ApiKey.CREATE_TOPICS, 7, lambda _: created, remember_ids)
    yield from _before(level)
    yield from _groups_before()
    yield from _moves(level)
    yield from _listed(level)
    yield from _added_after(level)
    yield from _ended_after(level)
    yield from _committed_after(level)
    yield from _initialized_after()
    yield from _produced_after(level)
    yield from _marked_after()
    yield from _groups_after(level)
