"""A partition's replica on a modelled broker: a log of (leader epoch, value), and replication.

The leader rules are Kafka's: the high watermark is the smallest log end of the maximal ISR (the
ISR and what AlterPartition was asked for), a follower truncates to the common prefix with its
leader, and a value is acknowledged when the high watermark has passed it.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from sparkraft.base.ids import Uuid


class Entry(NamedTuple):
    """A record: the epoch of the leader that appended it, and its value."""

    leader_epoch: int
    value: int


class Assigned(NamedTuple):
    """The state of a partition in a LeaderAndIsr request."""

    topic: str
    topic_id: Uuid
    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


@dataclass(slots=True)
class Role:
    """A replica that leads or follows; `ends` are the known log ends of followers."""

    state: Assigned
    leads: bool
    ends: dict[int, int] = field(default_factory=dict)
    caught_up_s: dict[int, float] = field(default_factory=dict)
    high_watermark: int = 0
    wanted_isr: tuple[int, ...] | None = None
    """Asked for by AlterPartition, whose response is outstanding."""
    waiting: list[tuple[int, int]] = field(default_factory=list)
    """Log end and value of each append that is not acknowledged."""

    def maximal_isr(self) -> set[int]:
        return {*self.state.isr, *(self.wanted_isr or ())}

    def advance(self, broker: int, log_end: int) -> list[int]:
        """Move the high watermark; return the values that are acknowledged now."""
        known = {**self.ends, broker: log_end}
        ends = [known.get(member, self.high_watermark) for member in self.maximal_isr()]
        self.high_watermark = max(self.high_watermark, min(ends, default=0))
        done = [value for end, value in self.waiting if end <= self.high_watermark]
        self.waiting = [each for each in self.waiting if each[0] > self.high_watermark]
        return done


def follow(own: list[Entry], leaders: list[Entry]) -> None:
    """Truncate `own` to the common prefix, then append what the leader has more."""
    common = 0
    for mine, theirs in zip(own, leaders, strict=False):
        if mine != theirs:
            break
        common += 1
    del own[common:]
    own.extend(leaders[common:])
