"""Logs of groups as compaction leaves them: replay gives the state of the shard that wrote them.

Kafka's cleaner keeps the last record of each key in the part it cleans, and drops old tombstones.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkraft.base.ids import Offset
from sparkraft.coordinator.group.consumer_group import ConsumerGroup
from sparkraft.coordinator.group.records import decode_record
from sparkraft.coordinator.group.shard import GroupShard
from tests.coordinator.consumer_world import Client, ConsumerWorld
from tests.coordinator.test_group_migration import Classic, converge

Entry = tuple[int, bytes, bytes | None]

CLIENTS = 3

STEPS = st.one_of(
    st.tuples(st.just("beat"), st.integers(0, CLIENTS - 1)),
    st.tuples(st.just("beat"), st.integers(0, CLIENTS - 1)),
    st.tuples(st.just("leave"), st.integers(0, CLIENTS - 1)),
    st.tuples(st.just("restart"), st.integers(0, CLIENTS - 1)),
    st.tuples(st.just("commit"), st.integers(0, CLIENTS - 1)),
    st.tuples(st.just("classic"), st.integers(0, CLIENTS - 1)),
    st.tuples(st.just("converge"), st.just(0)),
    st.tuples(st.just("pass"), st.sampled_from([1_000, 50_000])),
    st.tuples(st.just("delete"), st.just(0)),
)


def compacted(log: list[Entry], end: int, tombstones_from: int) -> list[Entry]:
    """Clean the records below `end`, and drop their tombstones below `tombstones_from`."""
    last = {key: offset for offset, key, _ in log if offset < end}
    return [
        (offset, key, value)
        for offset, key, value in log
        if offset >= end
        or (last[key] == offset and (value is not None or offset >= tombstones_from))
    ]


def replayed(world: ConsumerWorld, log: list[Entry]) -> GroupShard:
    shard = GroupShard(world.config, world.entropy)
    for offset, key, value in log:
        record = decode_record(key, value)
        assert record is not None
        shard.replay(Offset(offset), record)
    return shard


class Actors:
    """Members of both protocols; the last of them has an instance id."""

    def __init__(self, world: ConsumerWorld) -> None:
        self.world = world
        self.modern = [self.new(number) for number in range(CLIENTS)]
        self.classic: dict[int, Classic] = {}
        self.restarts = 0

    def new(self, number: int, name: str = "") -> Client:
        instance = "i" if number == CLIENTS - 1 else None
        return Client(name or f"m{number}", instance_id=instance)

    def take(self, what: str, number: int) -> None:
        world, client = self.world, self.modern[number % CLIENTS]
        match what:
            case "beat":
                world.beat(client)
                client.settle()
            case "leave":
                self.leave(number)
            case "restart":
                self.restarts += 1
                world.leave(client, epoch=-2 if client.instance_id else -1)
                self.modern[number] = self.new(number, f"n{self.restarts}")
                world.beat(self.modern[number])
            case "commit":
                world.commit(client, 0)
            case "classic":
                self.classic.setdefault(number, Classic(world, f"c{number}")).join()
            case "converge":
                joined = [one for one in self.modern if one.is_member]
                converge(world, *joined, *self.classic.values())
            case "pass":
                world.pass_time(number)
            case _:
                world.do(world.shard.handle_delete_group("g", world.now))

    def leave(self, number: int) -> None:
        self.world.leave(self.modern[number])
        classic = self.classic.pop(number, None)
        if classic is not None and "g" in self.world.shard.group_ids():
            classic.leave()


def same(live: GroupShard, loaded: GroupShard) -> None:
    """Both have the same groups; soft state of classic groups is not compared."""
    assert live.offsets.of_group("g") == loaded.offsets.of_group("g")
    if "g" not in live.group_ids():
        assert "g" not in loaded.group_ids()
        return
    group = live.group("g")
    if isinstance(group, ConsumerGroup):
        ConsumerWorld._check_same(group, loaded.group("g"))
    else:
        assert type(loaded.group("g")) is type(group)


@settings(max_examples=150, deadline=None)
@given(
    steps=st.lists(STEPS, min_size=5, max_size=40),
    cuts=st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=3),
)
def test_a_compacted_log_has_the_state_of_the_whole_one(
    steps: list[tuple[str, int]], cuts: list[tuple[int, int]]
) -> None:
    world = ConsumerWorld(t=4)
    actors = Actors(world)
    for what, number in steps:
        actors.take(what, number)
    log: list[Entry] = [(at, key, value) for at, (key, value) in enumerate(world.log)]
    whole = replayed(world, log)
    cleaned = 0
    for percent, horizon in cuts:
        cleaned = max(cleaned, len(world.log) * percent // 100)
        log = compacted(log, cleaned, cleaned * horizon // 100)
        same(whole, replayed(world, log))
    same(world.shard, replayed(world, log))


@pytest.mark.parametrize("first", [3, 4, 5, 6, 7, 8, 16])
def test_a_tombstone_of_what_compaction_removed_is_ignored(first: int) -> None:
    """As in Kafka's GroupMetadataManager.replay: the value it deletes may be gone already."""
    world = ConsumerWorld(t=2)
    a = Client("a", regex="t.*", topics=())
    world.converge(a)
    world.resolve()
    world.converge(a)
    world.leave(a)
    world.do(world.shard.handle_delete_group("g", world.now))
    tombstones = [(key, value) for key, value in world.log if value is None]
    shard = GroupShard(world.config, world.entropy)
    kinds = [int.from_bytes(key[:2], "big") for key, _ in tombstones]
    at = kinds.index(first) if first in kinds else 0
    for offset, (key, value) in enumerate(tombstones[at:] + tombstones):
        record = decode_record(key, value)
        assert record is not None
        shard.replay(Offset(offset), record)
    assert shard.group_ids() == []
