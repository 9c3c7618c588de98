"""The ISR changes this broker made as a leader, with the lag of each follower it removed.

Bounded and in memory. The metadata log has the new ISRs, but not why a leader asked for them.
"""

import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkraft.replication.in_sync import Lag, Pending, PendingExpand

if TYPE_CHECKING:
    from sparkraft.base.env import Clock
    from sparkraft.server.broker.partition import HostedPartition

log = logging.getLogger(__name__)

JOURNAL_MAX = 1_000
"""Changes kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChange:
    """One change that the controller accepted.

    Attributes:
        topic: the topic's name.
        partition: its number.
        leader_epoch: of the leader that asked for it, this broker.
        partition_epoch: after the change.
        wall_ms: when the response arrived, ms since 1970.
        isr_before: as committed before.
        isr: as committed now.
        joined: the follower that had caught up; None if followers left.
        left: the followers that had fallen behind.
    """

    topic: str
    partition: int
    leader_epoch: int
    partition_epoch: int
    wall_ms: int
    isr_before: tuple[int, ...]
    isr: tuple[int, ...]
    joined: int | None
    left: tuple[Lag, ...]


class IsrJournal:
    """See the module docstring.

    Attributes:
        changes: the last `JOURNAL_MAX`, oldest first.
        expansions: followers that joined an ISR, for metrics.
        shrinkings: times an ISR lost followers, for metrics.
    """

    def __init__(self, clock: "Clock") -> None:
        self._clock = clock
        self.changes: deque[IsrChange] = deque(maxlen=JOURNAL_MAX)
        self.expansions = self.shrinkings = 0

    def note(self, hosted: "HostedPartition", pending: Pending, accepted: Any) -> None:
        """Record an accepted change.

        Args:
            hosted: the led partition.
            pending: the change that the leader requested, and its reason.
            accepted: the partition's part of an AlterPartitionResponse.
        """
        expanded = isinstance(pending, PendingExpand)
        self.expansions += expanded
        self.shrinkings += not expanded
        change = IsrChange(
            topic=hosted.topic,
            partition=hosted.index,
            leader_epoch=accepted.leader_epoch,
            partition_epoch=accepted.partition_epoch,
            wall_ms=self._clock.wall_ms(),
            isr_before=pending.committed.isr,
            isr=tuple(accepted.isr),
            joined=pending.joining if isinstance(pending, PendingExpand) else None,
            left=() if isinstance(pending, PendingExpand) else pending.leaving,
        )
        self.changes.append(change)
        log.info("ISR of %s changed from %s to %s", hosted, change.isr_before, change.isr)
