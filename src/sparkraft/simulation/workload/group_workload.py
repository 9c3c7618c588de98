"""Members of two groups in a simulated cluster.

    k0, k1, k2  consumer members of one group: k1 is static, k2 subscribes by a regular expression
                at times
    j0          a member of the classic protocol in the same group, which converts the group
    p0, p1      members of a classic group, whose JoinGroup requests wait for each other

They join, change their subscription, commit offsets also for partitions and in epochs that they had
before, stop their heartbeats for longer than their session, leave and return.
"""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from sparkraft.simulation.workload.classic_member import ClassicMember
from sparkraft.simulation.workload.clients import create_topic
from sparkraft.simulation.workload.consumer_member import ConsumerMember
from sparkraft.simulation.workload.group_ledger import GroupLedger
from sparkraft.simulation.workload.group_member import (
    NO_EPOCH,
    SECOND_PARTITIONS,
    SECOND_TOPIC,
    TOPICS,
    GroupMember,
)

if TYPE_CHECKING:
    from sparkraft.simulation.workload.client_env import ClientEnv

CLASSIC_GROUP = "classic"


async def after_topics(run: Callable[[], Coroutine[Any, Any, None]], world: "ClientEnv") -> None:
    """Run a member once the topics of its subscription exist."""
    await create_topic(world)
    await create_topic(world, SECOND_TOPIC, SECOND_PARTITIONS)
    await run()


class GroupWorkload:
    """The clients of one run."""

    def __init__(self, world: "ClientEnv") -> None:
        self.ledger, pair = GroupLedger(world), GroupLedger(world)
        self.members: list[GroupMember] = [
            ConsumerMember(world, "k0", self.ledger),
            ConsumerMember(world, "k1", self.ledger, instance="i1"),
            ConsumerMember(world, "k2", self.ledger),
            ClassicMember(world, "j0", self.ledger),
            ClassicMember(world, "p0", pair, CLASSIC_GROUP),
            ClassicMember(world, "p1", pair, CLASSIC_GROUP),
        ]

    def is_complete(self) -> bool:
        """Whether every member has joined, and those of the first group own all partitions once."""
        owners = self.ledger.owned()
        return (
            all(member.epoch != NO_EPOCH for member in self.members)
            and len(owners) == sum(TOPICS.values())
            and all(len(one) == 1 for one in owners.values())
        )
