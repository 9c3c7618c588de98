"""Changes of leaders and ISRs that this node decided as the controller, with their causes.

Bounded; soft state that no decision depends on. Changes wait in `unwritten` until the node has
stored them, so that an event with thousands of elections does not wait for a disk.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from sparkraft.base.ids import TopicPartition, Uuid
from sparkraft.controller.leader_election import Cause, Reason
from sparkraft.metadata.partition_state import NO_LEADER
from sparkraft.zookeeper.controller.context import ControllerContext
from sparkraft.zookeeper.controller.values import LeaderAndIsr, ReplicaAssignment

ENTRIES_MAX = 5_000
"""The failure of a broker that leads this many partitions; 3 MB in memory, 2 MB per file."""


class PartitionChange(NamedTuple):
    """A change of the leader or the ISR, or an election that found no leader."""

    topic: str
    topic_id: Uuid
    partition: int
    before: LeaderAndIsr | None
    """None if the partition was created."""
    after: LeaderAndIsr
    assignment: ReplicaAssignment
    controller_epoch: int
    cause: Cause
    reason: Reason | None = None
    """Of an election."""
    at_ms: int = 0
    """Wall clock."""


class PartitionJournal:
    """The newest changes, oldest first.

    Attributes:
        changes: also those of earlier runs of the node.
        unwritten: the newest of them that are not stored yet.
    """

    def __init__(self) -> None:
        self.changes: deque[PartitionChange] = deque(maxlen=ENTRIES_MAX)
        self.unwritten: deque[PartitionChange] = deque(maxlen=ENTRIES_MAX)
        self._now: Callable[[], int] = int
        self._leaderless: dict[TopicPartition, int] = {}
        """Leader epoch of the last election that found no leader."""

    def keep(self, earlier: Iterable[PartitionChange], now: Callable[[], int]) -> None:
        """Continue after the changes of earlier runs, with the wall clock in ms."""
        self.changes.extend(earlier)
        self._now = now

    def add(
        self,
        context: ControllerContext,
        at: TopicPartition,
        before: LeaderAndIsr | None,
        after: LeaderAndIsr,
        cause: Cause,
        reason: Reason | None = None,
    ) -> None:
        """Note a change; an election that fails again in the same leader epoch is not one."""
        if reason is not None and after.leader == NO_LEADER:
            if self._leaderless.get(at) == after.leader_epoch:
                return
            self._leaderless[at] = after.leader_epoch
        else:
            self._leaderless.pop(at, None)
        change = PartitionChange(
            topic=at[0],
            topic_id=context.topic_ids.get(at[0], Uuid.ZERO),
            partition=at[1],
            before=before,
            after=after,
            assignment=context.assignment(at),
            controller_epoch=context.epoch,
            cause=cause,
            reason=reason,
            at_ms=self._now(),
        )
        self.changes.append(change)
        self.unwritten.append(change)
