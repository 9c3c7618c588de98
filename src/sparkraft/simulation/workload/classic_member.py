"""A member of the classic protocol, whose presence converts a consumer group (KIP-848)."""

import asyncio
from typing import Any

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.framing import decode_versioned, encode_versioned
from sparkraft.protocol.messages import k11_join_group as k11
from sparkraft.protocol.messages import k13_leave_group as k13
from sparkraft.protocol.messages import k14_sync_group as k14
from sparkraft.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from sparkraft.protocol.messages.k12_heartbeat import HeartbeatRequest
from sparkraft.simulation.workload.group_member import (
    BEAT_S,
    NO_EPOCH,
    REBALANCE_MS,
    SESSION_MS,
    TOPICS,
    GroupMember,
)


class ClassicMember(GroupMember):
    """A member of the classic protocol with the `range` assignor and eager rebalances."""

    async def run(self) -> None:
        """Join for a while, again and again; stay once the world drains."""
        await self.learn_names()
        while True:
            await self.pause(0.2, 0.8)
            await self._join()
            while self.epoch != NO_EPOCH:
                await self.pause(*BEAT_S)
                roll = 1.0 if self.world.draining else self.world.dice.random()
                if roll < 0.1:  # noqa: PLR2004 (at times)
                    await self._leave()
                elif roll < 0.3:  # noqa: PLR2004 (often)
                    await self.maybe_commit()
                else:
                    await self._beat()

    async def _join(self) -> None:
        self.release(set(self.owned))
        subscription = ConsumerProtocolSubscription(topics=list(TOPICS))
        protocol = k11.JoinGroupRequestProtocol(
            name="range", metadata=encode_versioned(subscription, 1)
        )
        request = k11.JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        host, answer = await self.send(request, 5)
        if answer is None:
            return
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return
        if self.on_error(answer.error_code):
            self.member_id = answer.member_id
            await self._sync(host, answer)
        elif answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    async def _sync(self, host: str, joined: Any) -> None:
        request = k14.SyncGroupRequest(
            group_id=self.group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=self._assignments(joined) if joined.leader == joined.member_id else [],
        )
        host, answer = await self.send(request, 3)
        if answer is None or not self.on_error(answer.error_code):
            return
        self._incarnation += 1
        self.epoch = joined.generation_id
        wanted = decode_versioned(ConsumerProtocolAssignment, answer.assignment)
        self.take(
            {
                (self.id_of(topic.topic), one)
                for topic in wanted.assigned_partitions
                for one in topic.partitions
            },
            host,
        )

    @staticmethod
    def _assignments(joined: Any) -> list[k14.SyncGroupRequestAssignment]:
        """Deal the partitions of each topic to the members in turn."""
        members = sorted(member.member_id for member in joined.members)
        return [
            k14.SyncGroupRequestAssignment(
                member_id=member,
                assignment=encode_versioned(_share(place, len(members)), 1),
            )
            for place, member in enumerate(members)
        ]

    async def _beat(self) -> None:
        request = HeartbeatRequest(
            group_id=self.group_id, generation_id=self.epoch, member_id=self.member_id
        )
        key, conflicts = self.key, self._ledger.conflicts_of(self.key)
        host, answer = await self.send(request, 3)
        if answer is None:
            return
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.drop()
        elif self.on_error(answer.error_code):
            self._ledger.on_confirmed(key, conflicts, host)
        elif answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    async def _leave(self) -> None:
        self.release(set(self.owned))
        request = k13.LeaveGroupRequest(
            group_id=self.group_id, members=[k13.MemberIdentity(member_id=self.member_id)]
        )
        await self.send(request, 3)
        self.drop()
        self.member_id = ""
        await asyncio.sleep(self.world.dice.uniform(0.2, 2))


def _share(place: int, members: int) -> ConsumerProtocolAssignment:
    """The assignment of the member at `place`."""
    return ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(
                topic=name, partitions=list(range(place, count, members))
            )
            for name, count in TOPICS.items()
        ]
    )
