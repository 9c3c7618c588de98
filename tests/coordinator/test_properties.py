"""Properties of the group coordinator under any order of requests, timeouts, failures, failovers.

G1 one owner a partition and generation, generations only grow; G4 an acknowledged commit is what
is fetched, also after a failover; G5 commits come from the current generation only; G7 one live
member an instance id. And: a log replayed from empty gives the durable state of its writer.
"""

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sparkraft.base.errors import ErrorCode
from sparkraft.coordinator.group.classic_group import ClassicGroup
from sparkraft.coordinator.group.config import GroupConfig
from sparkraft.coordinator.group.decision import StaticMemberReplaced
from sparkraft.coordinator.group.states import GroupState
from tests.coordinator.world import Client, World

NAMES = "ABCD"
PARTITIONS = 3
FAILURES = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR]


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(
            GroupConfig(
                initial_rebalance_delay_ms=1_000,
                max_size=3,
                offsets_retention_ms=100_000,
                offsets_retention_check_interval_ms=30_000,
            )
        )
        for name, instance_id in zip(NAMES, (None, None, "i1", "i1"), strict=True):
            client = self.world.client(name)
            client.instance_id = instance_id
            client.rebalance_ms = 8_000
            client.version = 9 if name in "BD" else 3
        self.committed: dict[tuple[str, int], int] = {}
        self.assigned: dict[int, dict[str, str]] = {}
        self.generations: dict[str, int] = {}
        self.next_offset = 0
        self.group_seen = 0

    def client(self, name: str) -> Client:
        return self.world.clients[name]

    def free(self, name: str) -> Client | None:
        """The client, unless it waits for a response: clients send one request at a time."""
        client = self.client(name)
        return None if client.waits_for else client

    def group(self) -> ClassicGroup | None:
        if "g" not in self.world.shard.group_ids():
            return None
        group = self.world.shard.group("g")
        assert isinstance(group, ClassicGroup)
        return group

    def after(self) -> None:
        """Clients forget their member id when a response rejects it."""
        for event in self.world.events:
            name, _, answer = event.partition(" < ")
            out = ("UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID", "ILLEGAL_GENERATION", "GROUP_MAX")
            if name in self.world.clients and any(word in answer for word in out):
                self.client(name).generation = -1
                if "ILLEGAL_GENERATION" not in answer:
                    self.client(name).member_id = ""
            if name in self.world.clients and answer.startswith("sync: p"):
                client = self.client(name)
                owners = self.assigned.setdefault(client.generation, {})
                # A static member that comes back in a stable group owns what its instance did.
                owner = client.instance_id or client.member_id
                assert answer[6:] not in owners.values() or owners.get(owner) == answer[6:], (
                    f"two owners of {answer[6:]} in generation {client.generation}"
                )
                owners[owner] = answer[6:]
                group = self.group()
                if client.instance_id and group is not None:
                    assert group.static_member_id(client.instance_id) == client.member_id
        self.world.events.clear()

    @rule(name=st.sampled_from(NAMES))
    def restart(self, name: str) -> None:
        """A client forgets who it was, as after a crash; a static member keeps its instance id."""
        client = self.free(name)
        if client is not None:
            client.member_id, client.generation = "", -1

    @rule(
        name=st.sampled_from(NAMES),
        protocols=st.sampled_from(["range", "range sticky", "sticky range"]),
    )
    def join(self, name: str, protocols: str) -> None:
        client = self.free(name)
        if client is not None:
            client.protocols = dict.fromkeys(protocols.split(), b"")
            self.world.join(client)
            self.after()

    @rule(name=st.sampled_from(NAMES))
    def sync(self, name: str) -> None:
        client = self.free(name)
        if client is None or client.generation < 0:
            return
        group = self.group()
        members = [one.member_id for one in group.members()] if group else []
        self.world.sync(client, {one: f"p{at}".encode() for at, one in enumerate(members)})
        self.after()

    @rule(names=st.sets(st.sampled_from(NAMES), min_size=1))
    def settle(self, names: set[str]) -> None:
        """A rebalance that goes well for some: long random orders rarely make one."""
        for name in sorted(names) * 2:  # The first response may only assign a member id.
            self.join(name, "range sticky")
        self.pass_time(10_000)
        for name in sorted(names):
            self.sync(name)

    @rule(name=st.sampled_from(NAMES))
    def heartbeat(self, name: str) -> None:
        client = self.free(name)
        if client is not None and client.generation >= 0:
            self.world.heartbeat(client)
            self.after()

    @rule(name=st.sampled_from(NAMES))
    def leave(self, name: str) -> None:
        client = self.free(name)
        if client is not None and client.member_id:
            self.world.leave(client, [(client.member_id, client.instance_id)])
            client.member_id, client.generation = "", -1
            self.after()

    @rule(
        name=st.sampled_from([*NAMES, "outside"]),
        partition=st.integers(0, PARTITIONS - 1),
        older=st.sampled_from([0, 0, 0, 1]),
    )
    def commit(self, name: str, partition: int, older: int) -> None:
        client = Client("outside") if name == "outside" else replace(self.client(name))
        client.generation -= older if client.generation > 0 else 0
        group = self.group()
        legitimate = _may_commit(group, client)
        self.next_offset += 1
        error = self.world.commit(client, {("t", partition): self.next_offset})
        if error is ErrorCode.NONE:
            assert legitimate, f"{name} may not commit"
            self.committed["t", partition] = self.next_offset
        self.after()

    @rule(ms=st.sampled_from([1, 500, 1_000, 4_000, 10_000, 40_000]))
    def pass_time(self, ms: int) -> None:
        self.world.pass_time(ms)
        self.forget_expired()
        self.after()

    def forget_expired(self) -> None:
        """Offsets may only go with a tombstone, and tombstones only after the retention."""
        for event in self.world.events:
            if event.startswith("log: offset") and event.endswith("gone"):
                place = ("t", int(event.split("-")[1].split()[0]))
                assert self.world.now_ms > self.world.config.offsets_retention_ms
                self.committed.pop(place)
            elif event == "log: group gone":
                self.group_seen = 0
                self.assigned.clear()

    @rule(error=st.sampled_from(FAILURES))
    def fail_next_write(self, error: ErrorCode) -> None:
        self.world.fail_next = error

    @rule()
    def hold_writes(self) -> None:
        if self.world.held is None:
            self.world.held = []

    @rule()
    def release_writes(self) -> None:
        self.world.release()
        self.after()

    @rule()
    def delete(self) -> None:
        if self.world.fail_next is not None:
            return
        if self.world.delete_group() is ErrorCode.NONE:
            self.committed.clear()
            self.assigned.clear()
            self.group_seen = 0
        self.after()

    @rule()
    def fail_over(self) -> None:
        self.world.reload()
        # Generations that were never written may come again, under other member ids.
        self.assigned.clear()
        group = self.group()
        self.group_seen = group.generation_id if group else 0
        self.after()

    @invariant()
    def acknowledged_commits_are_fetched(self) -> None:
        places = [("t", partition) for partition in range(PARTITIONS)]
        found = self.world.fetch(places)
        assert found == {place: self.committed.get(place, -1) for place in places}

    @invariant()
    def generations_only_grow(self) -> None:
        group = self.group()
        if group is None:
            return
        assert group.generation_id >= self.group_seen
        self.group_seen = group.generation_id

    @invariant()
    def a_group_is_sound(self) -> None:
        group = self.group()
        if group is None:
            return
        members = list(group.members())
        instances = [one.group_instance_id for one in members if one.group_instance_id]
        assert len(instances) == len(set(instances))
        assert (group.leader_id in group) if members else group.leader_id is None
        assert group.awaiting_join_count == sum(one.awaiting_join is not None for one in members)
        # One that takes over a static member of a stable group waits for that to be written.
        replaced = sum(isinstance(one, StaticMemberReplaced) for one in self.world.held or ())
        if not group.is_in(GroupState.PREPARING_REBALANCE):
            assert group.awaiting_join_count <= replaced
            assert group.is_in(GroupState.STABLE) or group.awaiting_join_count == 0
        if group.is_in(GroupState.EMPTY):
            assert not members
        if group.is_in(GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            assert members
            assert all(group.protocol_name in one.protocol_names() for one in members)

    @invariant()
    def the_log_tells_the_durable_state(self) -> None:
        replayed = self.world.replayed()
        live = self.world.shard
        assert durable_offsets(replayed) == durable_offsets(live)
        assert replayed.group_ids() == live.group_ids()
        group = self.group()
        if group is not None and group.is_in(GroupState.STABLE):
            assert shape(replayed.group("g")) == shape(group)

    @invariant()
    def somebody_waits_only_where_a_timer_runs(self) -> None:
        """Liveness: whatever is parked, a timer will end it (G9)."""
        if any(client.waits_for for client in self.world.clients.values()):
            assert self.world.shard.wake_at is not None

    def teardown(self) -> None:
        """G9: left alone, everyone who waits is answered."""
        self.world.release()
        self.world.pass_time(400_000)
        assert not [one.name for one in self.world.clients.values() if one.waits_for]


def _may_commit(group: ClassicGroup | None, client: Client) -> bool:
    if group is None or group.is_in(GroupState.EMPTY):
        return client.generation < 0
    if client.member_id not in group or client.generation != group.generation_id:
        return False
    if client.instance_id and group.static_member_id(client.instance_id) != client.member_id:
        return False
    return not group.is_in(GroupState.COMPLETING_REBALANCE)


def durable_offsets(shard: Any) -> Any:
    """Every committed offset with all that was said with it."""
    return {group_id: shard.offsets.of_group(group_id) for group_id in shard.offsets.group_ids()}


def shape(group: Any) -> Any:
    """What of a stable group is durable."""
    members = [
        (one.member_id, one.group_instance_id, one.assignment, one.metadata(group.protocol_name))
        for one in group.members()
    ]
    return (group.generation_id, group.protocol_type, group.protocol_name, group.leader_id, members)


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=300, stateful_step_count=50, deadline=None)


def test_who_takes_over_a_static_member_waits_in_a_stable_group_for_the_write() -> None:
    """As in Kafka: the group stays as it is, and the response waits."""
    machine = Groups()
    machine.join("A", "range")
    machine.pass_time(1_000)
    machine.settle({"A", "B"})
    machine.settle({"A", "D"})
    machine.hold_writes()
    machine.join("C", "range")
    group = machine.group()
    assert group is not None
    assert group.is_in(GroupState.STABLE)
    assert group.awaiting_join_count == 1
    machine.a_group_is_sound()
    machine.release_writes()
    assert group.awaiting_join_count == 0
    assert machine.client("C").generation == group.generation_id
    machine.a_group_is_sound()


def test_who_takes_over_a_static_member_owns_what_it_owned() -> None:
    machine = Groups()
    machine.join("A", "range")
    machine.pass_time(1_000)
    machine.restart("A")
    machine.join("C", "range")
    machine.settle({"B", "C"})
    before = dict(machine.assigned[machine.client("C").generation])
    machine.join("D", "range")
    machine.sync("D")
    assert machine.client("D").generation == machine.client("C").generation
    assert machine.assigned[machine.client("D").generation] == before
    machine.sync("C")
    assert machine.client("C").generation == -1, "it is fenced"
