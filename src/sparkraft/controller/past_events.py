"""What a metadata log can tell: one record's change of a partition, or of a broker."""

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
        at_ms: when its batch was appended, by the controller's wall clock.
        epoch: the controller's.
        topic: name.
        topic_id: id.
        partition: number.
        before: the partition as it was; None where it was made.
        after: as it is since; None where it was deleted.
        trigger: what caused it.
        election: why who leads since; None where the leader stayed.
        derived: whether these reasons, had from the log alone, lead to that leader.
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
        """Whether somebody else leads since, or nobody."""
        before = NO_LEADER if self.before is None else self.before.leader
        return self.after is not None and self.after.leader != before

    @property
    def isr_changed(self) -> bool:
        """Whether others are in sync since."""
        pair = self.before, self.after
        return pair[0] is not None and pair[1] is not None and pair[0].isr != pair[1].isr


class BrokerEvent(NamedTuple):
    """One record about a broker; `what` is a few words."""

    offset: int
    at_ms: int
    broker_id: int
    broker_epoch: int
    what: str
