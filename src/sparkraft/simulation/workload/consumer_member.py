"""A member of the consumer protocol (KIP-848) in a simulated cluster.

It changes its subscription, stops its heartbeats for longer than its session, leaves and returns.
"""

from typing import TYPE_CHECKING, Any

from sparkraft.base.ids import Uuid
from sparkraft.protocol.messages import k68_consumer_group_heartbeat as k68
from sparkraft.simulation.workload.group_ledger import GroupLedger
from sparkraft.simulation.workload.group_member import (
    BEAT_S,
    NO_EPOCH,
    REBALANCE_MS,
    SESSION_MS,
    TOPICS,
    GroupMember,
)

if TYPE_CHECKING:
    from sparkraft.simulation.workload.client_env import ClientEnv

ABSENT_TOPIC = "absent"
"""Members may subscribe to a topic that does not exist."""
REGEXES = ("rec.*|mor.", "rec|more", "mor|records", "abs.*")
"""Some match a whole name, some only a part of one, some nothing."""
PHASE_MS, PHASES = 2_500, 3
"""In one of three phases only the classic member stays in the group."""
LEAVE_EPOCH, LEAVE_STATIC_EPOCH = -1, -2


class ConsumerMember(GroupMember):
    """A member of the consumer protocol."""

    def __init__(
        self, world: "ClientEnv", name: str, ledger: GroupLedger, *, instance: str | None = None
    ) -> None:
        super().__init__(world, name, ledger)
        self._instance = instance
        self._topics = list(TOPICS)
        self._regex: str | None = None
        self._is_full = True
        """Whether the next heartbeat contains everything."""

    async def run(self) -> None:
        """Be a member until the run ends; leave at times until the world drains."""
        await self.learn_names()
        while True:
            await self.pause(*BEAT_S)
            if self._is_away():
                if self.epoch != NO_EPOCH:
                    await self._leave()
                continue
            await self._beat()
            if self.world.draining:
                self._settle()
            elif self.epoch != NO_EPOCH:
                await self._act(self.world.dice.random())

    async def _act(self, roll: float) -> None:
        """Do what a member does at times; `roll` is a random number below 1."""
        if roll < 0.25:  # noqa: PLR2004 (often)
            await self.maybe_commit()
        elif roll < 0.32:  # noqa: PLR2004 (at times)
            await self._leave()
        elif roll < 0.34:  # noqa: PLR2004 (seldom)
            await self.pause(0.8 * SESSION_MS / 1000, 2 * SESSION_MS / 1000)
        elif roll < 0.46:  # noqa: PLR2004 (at times)
            self._subscribe()
        elif roll < 0.5:  # noqa: PLR2004 (at times)
            await self.fetch_offsets()

    def _is_away(self) -> bool:
        """Whether all consumer members leave now, so that the group is converted."""
        phase = self.world.timestamp_ms() // PHASE_MS % PHASES
        return phase == PHASES - 1 and not self.world.draining

    def _settle(self) -> None:
        """Subscribe to all topics."""
        if self._topics != list(TOPICS):
            self._topics, self._regex, self._is_full = list(TOPICS), None, True

    def _subscribe(self) -> None:
        """Change the subscription with the next heartbeat."""
        dice = self.world.dice
        topics = (*TOPICS, ABSENT_TOPIC)
        self._topics = sorted(dice.sample(topics, dice.randint(1, len(topics))))
        by_regex = self.name == "k2" and dice.random() < 0.8  # noqa: PLR2004 (mostly)
        self._regex = dice.choice(REGEXES) if by_regex else None
        if by_regex:
            self._topics = []
        self._is_full = True

    async def _beat(self) -> None:
        joins = self.epoch == NO_EPOCH
        if not self.member_id or (joins and self._instance is None):
            self.member_id = str(Uuid(self.world.dice.randbytes(16)))
        full = joins or self._is_full or self.world.dice.random() < 0.1  # noqa: PLR2004
        key, conflicts = self.key, self._ledger.conflicts_of(self.key)
        host, answer = await self.send(self._heartbeat(full=full), 1)
        lost = answer is not None and answer.assignment is not None and self._loses()
        if answer is None or lost or not self.on_error(answer.error_code):
            self._is_full = True
            return
        self.world.counts["heartbeats accepted"] += 1
        if not joins:
            self._ledger.on_confirmed(key, conflicts, host)
        self._is_full = False
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self._on_assignment(answer.assignment, host)

    def _loses(self) -> bool:
        """Whether the response with an assignment is lost: the member repeats its epoch."""
        return self.world.dice.random() < 0.1  # noqa: PLR2004 (at times)

    def _heartbeat(self, *, full: bool) -> k68.ConsumerGroupHeartbeatRequest:
        return k68.ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self._instance,
            rebalance_timeout_ms=REBALANCE_MS if full else -1,
            subscribed_topic_names=self._topics if full else None,
            subscribed_topic_regex=(self._regex or "") if full else None,
            topic_partitions=self._reported() if full else None,
        )

    def _on_assignment(self, assignment: Any, host: str) -> None:
        wanted = {
            (bytes(topic.topic_id), one)
            for topic in assignment.topic_partitions
            for one in topic.partitions
        }
        self._is_full = wanted != self.owned
        self.take(wanted, host)

    def _reported(self) -> list[k68.TopicPartitions]:
        found: dict[bytes, list[int]] = {}
        for topic_id, partition in sorted(self.owned):
            found.setdefault(topic_id, []).append(partition)
        return [
            k68.TopicPartitions(topic_id=Uuid(topic_id), partitions=partitions)
            for topic_id, partitions in found.items()
        ]

    async def _leave(self) -> None:
        stays = self._instance is not None and self.world.dice.random() < 0.6  # noqa: PLR2004
        request = k68.ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=LEAVE_STATIC_EPOCH if stays else LEAVE_EPOCH,
            instance_id=self._instance,
        )
        self.release(set(self.owned))
        _, answer = await self.send(request, 1)
        if answer is not None:
            self.world.counts["members left"] += not answer.error_code
        self.drop()
        if self._instance is not None and self.world.dice.random() < 0.5:  # noqa: PLR2004
            self.member_id = ""  # its next process has another id
        await self.pause(0.1, 1)
