"""Events derived from the metadata log: one record's change of a partition or a broker."""

from dataclasses import dataclass
from typing import NamedTuple

from sparkraft.base.ids import Uuid
from sparkraft.controller.leader_election import Cause, Reason
from sparkraft.metadata.partition_state import NO_LEADER, PartitionState


@dataclass(slots=True)
class PartitionEvent:
    """One record that changed a partition.

    Attributes:
        offset: of the record.
        at_ms: append time of its batch, by the controller's wall clock.
        epoch: controller epoch.
        topic: name.
        topic_id: id.
        partition: number.
        before: the state before; None if the partition was created.
        after: the state after; None if it was deleted.
        cause: why it changed.
        election: the reasons for the new leader; None if the leader is the same.
        derived: whether these reasons, derived from the log alone, lead to that leader.
    """

    offset: int
    at_ms: int
    epoch: int
    topic: str
    topic_id: Uuid
    partition: int
    before: PartitionState | None
    after: PartitionState | None
    cause: Cause
    election: Reason | None = None
    derived: bool = True

    @property
    def leader_changed(self) -> bool:
        """Whether the leader changed; a deleted partition has no new leader."""
        before = NO_LEADER if self.before is None else self.before.leader
        return self.after is not None and self.after.leader != before

    @property
    def isr_changed(self) -> bool:
        """Whether the ISR changed."""
        pair = self.before, self.after
        return pair[0] is not None and pair[1] is not None and pair[0].isr != pair[1].isr


class BrokerEvent(NamedTuple):
    """One record about a broker, described in a few words by `what`."""

    offset: int
    at_ms: int
    broker_id: int
    broker_epoch: int
    what: str
