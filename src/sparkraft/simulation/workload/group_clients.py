"""Members of a consumer group in a simulated cluster, which check ownership and commits.

    m0, m1  join, get partitions assigned, commit rising offsets for them and fetch these back; now
            and then one leaves, lets its session expire, or commits in an older generation

G1  in one generation a partition has at most one owner
G4  no fetched offset is lower than an acknowledged one, also after the owner has changed
G5  a member cannot commit in a generation older than the newest one assigned

They use only the classic protocol, over the network.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.messages import k08_offset_commit as k08
from sparkraft.protocol.messages import k09_offset_fetch as k09
from sparkraft.protocol.messages import k11_join_group as k11
from sparkraft.protocol.messages import k13_leave_group as k13
from sparkraft.protocol.messages import k14_sync_group as k14
from sparkraft.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from sparkraft.protocol.messages.k12_heartbeat import HeartbeatRequest
from sparkraft.simulation.workload.node_clients import FAILURES
from sparkraft.simulation.workload.record_clients import PARTITIONS, TOPIC, Client

if TYPE_CHECKING:
    from sparkraft.simulation.workload.client_env import ClientEnv

GROUP = "members"
MEMBERS = 2
PROTOCOL = "simulated"
SESSION_MS = 3_000
REBALANCE_MS = 3_000
OLDER = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID})
"""Error codes for a member whose generation has ended."""


class Place(NamedTuple):
    """A member's id, generation and assigned partitions."""

    member: str
    generation: int
    partitions: tuple[int, ...]


class Ledger:
    """The combined knowledge of all members about their group."""

    def __init__(self, world: "ClientEnv") -> None:
        self.world = world
        self.generation = -1
        """The newest generation in which a member got its assignment."""
        self._owners: dict[tuple[int, int], str] = {}
        self._next = 0
        self.acknowledged: dict[int, int] = {}
        self._unsure: dict[int, set[int]] = {}
        """Partition → offsets of commits without a response."""

    def require(self, holds: object, invariant: str, text: str) -> None:
        """Record a violation of `invariant` unless `holds`."""
        self.world.demand(holds, invariant, text)

    def on_given(self, place: Place) -> None:
        """Check a member's new assignment."""
        self.generation = max(self.generation, place.generation)
        for partition in place.partitions:
            owner = self._owners.setdefault((place.generation, partition), place.member)
            self.require(
                owner == place.member,
                "G1",
                f"{partition} has two owners in {place.generation}: {owner}, {place.member}",
            )

    def next_offset(self) -> int:
        """Return an offset that no member has committed yet."""
        self._next += 1
        return self._next

    def on_sent(self, partition: int, offset: int) -> None:
        """Note that a commit is in flight."""
        self._unsure.setdefault(partition, set()).add(offset)

    def on_answered(self, partition: int, offset: int, *, taken: bool) -> None:
        """Note that the commit was accepted (`taken`) or rejected."""
        self._unsure[partition].discard(offset)
        if taken:
            self.acknowledged[partition] = max(offset, self.acknowledged.get(partition, -1))

    def check_fetched(self, partition: int, offset: int, least: int, host: str) -> None:
        """Check that a fetched offset is `least`, a later one, or that of a commit in flight."""
        self.require(
            offset >= least or offset in self._unsure.get(partition, ()),
            "G4",
            f"the last committed offset of {partition} is {least}, {host} returns {offset}",
        )


class Member(Client):
    """See the module docstring."""

    def __init__(self, world: "ClientEnv", ledger: Ledger) -> None:
        super().__init__(world)
        self._ledger = ledger
        self._host: str | None = None
        self._id = ""
        self._place: Place | None = None
        self._before: Place | None = None
        """Its assignment in an earlier generation."""

    async def run(self) -> None:
        """Join, stay a member, and rejoin until the run ends."""
        while True:
            await self.pause(0.05, 0.5)
            try:
                if self._place is None:
                    await self._join()
                else:
                    await self._live(self._place)
            except FAILURES:
                self._host = None

    async def _coordinator(self) -> str | None:
        if self._host is None:
            request = FindCoordinatorRequest(coordinator_keys=[GROUP], key_type=0)
            answer = await self.ask(self.some_host(), request, version=4)
            found = answer.coordinators[0]
            self._host = None if found.error_code else f"n{found.node_id}"
        return self._host

    def _on_error(self, code: int) -> None:
        error = ErrorCode(code)
        self.world.counts[f"member: {error.name}"] += 1
        if error in {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}:
            self._host = None
        elif error in OLDER or error is ErrorCode.REBALANCE_IN_PROGRESS:
            self._before, self._place = self._place or self._before, None
            if error is ErrorCode.UNKNOWN_MEMBER_ID:
                self._id = ""

    # ---- joining

    async def _join(self) -> None:
        host = await self._coordinator()
        if host is None:
            return
        request = k11.JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._id,
            protocol_type=PROTOCOL,
            protocols=[k11.JoinGroupRequestProtocol(name=PROTOCOL, metadata=b"")],
        )
        answer = await self.ask(host, request, version=5)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._id = answer.member_id
            return
        if answer.error_code:
            self._on_error(answer.error_code)
            return
        self._id = answer.member_id
        await self._sync(host, answer)

    async def _sync(self, host: str, joined: Any) -> None:
        shares = []
        if joined.leader == joined.member_id:
            members = sorted(member.member_id for member in joined.members)
            shares = [
                k14.SyncGroupRequestAssignment(
                    member_id=member, assignment=bytes(range(place, PARTITIONS, len(members)))
                )
                for place, member in enumerate(members)
            ]
        request = k14.SyncGroupRequest(
            group_id=GROUP,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=shares,
        )
        answer = await self.ask(host, request, version=3)
        if answer.error_code:
            self._on_error(answer.error_code)
            return
        self._place = Place(joined.member_id, joined.generation_id, tuple(answer.assignment))
        self._ledger.on_given(self._place)
        self.world.counts["partitions given"] += len(self._place.partitions)
        await self._fetch(host, self._place)

    # ---- as a member

    async def _live(self, place: Place) -> None:
        host = await self._coordinator()
        if host is None:
            return
        roll = self.world.dice.random()
        if roll < 0.03:  # noqa: PLR2004 (seldom)
            await self._leave(host, place)
        elif roll < 0.05:  # noqa: PLR2004 (seldom)
            await self.pause(SESSION_MS / 1_000, 2 * SESSION_MS / 1_000)
        elif roll < 0.15 and self._before is not None:  # noqa: PLR2004 (now and then)
            await self._commit(host, self._before)
        elif roll < 0.6:  # noqa: PLR2004 (often)
            await self._commit(host, place)
        elif roll < 0.7:  # noqa: PLR2004 (now and then)
            await self._fetch(host, place)
        else:
            await self._heartbeat(host, place)

    async def _heartbeat(self, host: str, place: Place) -> None:
        request = HeartbeatRequest(
            group_id=GROUP, generation_id=place.generation, member_id=place.member
        )
        answer = await self.ask(host, request, version=3)
        if answer.error_code:
            self._on_error(answer.error_code)

    async def _leave(self, host: str, place: Place) -> None:
        request = k13.LeaveGroupRequest(
            group_id=GROUP, members=[k13.MemberIdentity(member_id=place.member)]
        )
        answer = await self.ask(host, request, version=3)
        if answer.error_code == 0:
            self._before, self._place, self._id = place, None, ""

    async def _commit(self, host: str, place: Place) -> None:
        if not place.partitions:
            return
        ledger = self._ledger
        partition, offset = self.world.dice.choice(place.partitions), ledger.next_offset()
        over = place.generation < ledger.generation
        wanted = k08.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=""
        )
        request = k08.OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=place.generation,
            member_id=place.member,
            topics=[k08.OffsetCommitRequestTopic(name=TOPIC, partitions=[wanted])],
        )
        ledger.on_sent(partition, offset)
        answer = await self.ask(host, request, version=8)
        code = answer.topics[0].partitions[0].error_code
        ledger.require(
            code or not over,
            "G5",
            f"{host} accepts a commit of generation {place.generation}, which has ended",
        )
        ledger.on_answered(partition, offset, taken=not code)
        if over:
            self.world.counts["late commits refused"] += code in OLDER
        elif code:
            self._on_error(code)
        else:
            self.world.counts["offsets committed"] += 1

    async def _fetch(self, host: str, place: Place) -> None:
        least = {p: self._ledger.acknowledged.get(p, -1) for p in place.partitions}
        topics = [k09.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(least))]
        groups = [k09.OffsetFetchRequestGroup(group_id=GROUP, topics=topics)]
        answer = await self.ask(host, k09.OffsetFetchRequest(groups=groups), version=8)
        group = answer.groups[0]
        if group.error_code:
            self._on_error(group.error_code)
            return
        for found in group.topics[0].partitions if group.topics else ():
            if not found.error_code:
                index = found.partition_index
                self._ledger.check_fetched(index, found.committed_offset, least[index], host)
