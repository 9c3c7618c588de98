"""Base of the members of both protocols: own partitions, commit and fetch offsets.

Not here: how they join and leave (`consumer_member`, `classic_member`)
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.messages import k08_offset_commit as k08
from sparkraft.protocol.messages import k09_offset_fetch as k09
from sparkraft.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from sparkraft.simulation.workload.group_ledger import GroupLedger, Owned
from sparkraft.simulation.workload.node_clients import FAILURES
from sparkraft.simulation.workload.record_clients import PARTITIONS, TOPIC
from sparkraft.simulation.workload.transaction_clients import OF_GROUPS, CoordinatedClient

if TYPE_CHECKING:
    from sparkraft.simulation.workload.client_env import ClientEnv

GROUP_848 = "rebalanced"
SECOND_TOPIC = "more"
SECOND_PARTITIONS = 2
TOPICS = {TOPIC: PARTITIONS, SECOND_TOPIC: SECOND_PARTITIONS}
"""Topic → number of partitions."""
SESSION_MS = 3_000
REBALANCE_MS = 3_000
BEAT_S = (0.15, 0.4)
"""Between two heartbeats."""
NO_EPOCH = 0
"""Of a member that has not joined."""
EARLIER_MAX = 6
"""Partitions that a member remembers after it has given them up."""
LOST_PLACE = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
"""Errors after which a member gives up its partitions and joins again."""


class GroupMember(CoordinatedClient):
    """The partitions of a member, and its commits."""

    def __init__(
        self, world: "ClientEnv", name: str, ledger: GroupLedger, group_id: str = GROUP_848
    ) -> None:
        super().__init__(world, name)
        self.group_id = group_id
        self._ledger = ledger
        self._incarnation = 0
        self.member_id = ""
        self.epoch = NO_EPOCH
        self.owned: set[Owned] = set()
        self._earlier: list[tuple[Owned, int]] = []
        """Partitions that it has given up, with the epochs in which it had them."""
        self._names: dict[bytes, str] = {}

    @property
    def key(self) -> str:
        """Its name in the ledger: a new one whenever it joins."""
        return f"{self.name}.{self._incarnation}"

    def take(self, partitions: Iterable[Owned], host: str) -> None:
        """Own exactly `partitions`: give up the others first."""
        wanted = set(partitions)
        self.release(self.owned - wanted)
        for one in sorted(wanted - self.owned):
            self._ledger.on_given(self.key, one, self.epoch, host)
            self.world.counts["partitions given"] += 1
        self.owned = wanted

    def release(self, partitions: Iterable[Owned]) -> None:
        """Give up partitions."""
        for one in sorted(partitions):
            self._ledger.on_released(self.key, one)
            self._earlier = [*self._earlier[1 - EARLIER_MAX :], (one, self.epoch)]
            self.owned.discard(one)

    def drop(self) -> None:
        """Give up everything, to join again."""
        self.release(set(self.owned))
        self.epoch = NO_EPOCH
        self._incarnation += 1

    async def send(self, request: Any, version: int) -> tuple[str, Any]:
        """Send a request to the coordinator; ("", None) without a usable response."""
        host = None
        try:
            host = await self.coordinator(OF_GROUPS, self.group_id)
            if host is not None:
                return host, await self.ask(host, request, version=version)
        except FAILURES:
            pass
        self.forget_coordinator(OF_GROUPS, self.group_id)
        return "", None

    def on_error(self, code: int) -> bool:
        """Count an error code; return whether it is 0."""
        error = ErrorCode(code)
        if error is ErrorCode.NONE:
            return True
        self.world.counts[f"member: {error.name}"] += 1
        if error in {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}:
            self.forget_coordinator(OF_GROUPS, self.group_id)
        elif error in LOST_PLACE:
            self.drop()
        return False

    async def learn_names(self) -> None:
        """Look up the ids of the topics until all are known."""
        while len(self._names) < len(TOPICS):
            await self.pause(0.1, 0.5)
            topics = [MetadataRequestTopic(name=name) for name in TOPICS]
            request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
            try:
                answer = await self.ask(self.some_host(), request)
            except FAILURES:
                continue
            self._names = {
                bytes(topic.topic_id): topic.name
                for topic in answer.topics
                if not topic.error_code and topic.name
            }

    def id_of(self, name: str) -> bytes:
        """The id of a topic."""
        return next(topic_id for topic_id, known in self._names.items() if known == name)

    async def commit(self, partition: Owned, epoch: int) -> None:
        """Commit an offset for a partition in an epoch of this member."""
        name = self._names.get(partition[0])
        if name is None:
            return
        key = self.key
        taken = self._ledger.taken_from(key, partition, epoch, current=self.epoch)
        wanted = k08.OffsetCommitRequestPartition(
            partition_index=partition[1],
            committed_offset=self._ledger.next_offset(),
            committed_metadata="",
        )
        request = k08.OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=epoch,
            member_id=self.member_id,
            topics=[k08.OffsetCommitRequestTopic(name=name, partitions=[wanted])],
        )
        host, answer = await self.send(request, 9)
        if answer is None:
            return
        code = answer.topics[0].partitions[0].error_code
        if not code:
            self._ledger.on_committed(key, partition, epoch, taken, host)
        else:
            self.world.counts[f"commit: {ErrorCode(code).name}"] += 1

    async def maybe_commit(self) -> None:
        """Commit for a partition that it owns or, less often, had before."""
        dice = self.world.dice
        if self._earlier and dice.random() < 0.3:  # noqa: PLR2004 (less often)
            await self.commit(*dice.choice(self._earlier))
        elif self.owned:
            await self.commit(dice.choice(sorted(self.owned)), self.epoch)

    async def fetch_offsets(self) -> None:
        """Fetch the group's offsets of all partitions."""
        group = k09.OffsetFetchRequestGroup(group_id=self.group_id, topics=None)
        await self.send(k09.OffsetFetchRequest(groups=[group]), 8)
