"""Replica placement for new partitions: striped over racks, then over the brokers of a rack.

Goals, in order: spread over racks, spread evenly over brokers, prefer brokers that are not fenced,
and never make a fenced broker the first replica. Racks are visited in turn, each partition starting
one rack further; within a rack brokers are visited in turn, each pass starting one broker further;
the starting points are random. Brokers without a rack form one rack of their own.

Example, racks A B C of three brokers each and every starting point zero:
    partition 0: A0 B0 C0    partition 1: B1 C1 A1    partition 2: C2 A2 B2
"""

from collections.abc import Iterable, Iterator, MutableSequence
from typing import Any, NamedTuple

from sparkraft.base.env import Entropy
from sparkraft.base.errors import ErrorCode, KafkaError


class UsableBroker(NamedTuple):
    """A registered broker that may get replicas."""

    id: int
    rack: str | None
    fenced: bool


def place_replicas(
    brokers: Iterable[UsableBroker], *, partitions: int, replication_factor: int, entropy: Entropy
) -> Iterator[list[int]]:
    """Place the replicas of `partitions` new partitions, each list with the preferred leader first.

    Placements are made while the result is iterated.

    Raises:
        KafkaError: INVALID_REPLICATION_FACTOR if too few brokers are registered or unfenced.
    """
    stripes = _Stripes(sorted(brokers), entropy)
    stripes.check(replication_factor)
    return (stripes.next_replicas(replication_factor) for _ in range(partitions))


def _shuffle(items: MutableSequence[Any], entropy: Entropy) -> None:
    for last in range(len(items) - 1, 0, -1):
        other = entropy.below(last + 1)
        items[last], items[other] = items[other], items[last]


class _Ring:
    """Brokers of one kind in one rack, each returned once per pass."""

    def __init__(self, brokers: list[int], entropy: Entropy) -> None:
        self.brokers = brokers
        self._used = 0
        self._start = entropy.below(len(brokers)) if brokers else 0
        self._pass = 0

    def next(self, current_pass: int) -> int | None:
        """The next broker of this pass; None after the last one."""
        if not self.brokers:
            return None
        if self._pass != current_pass:
            self._pass = current_pass
            self._used = 0
            self._start = (self._start + 1) % len(self.brokers)
        if self._used >= len(self.brokers):
            return None
        broker = self.brokers[(self._used + self._start) % len(self.brokers)]
        self._used += 1
        return broker


class _Rack:
    def __init__(self, brokers: list[UsableBroker], entropy: Entropy) -> None:
        # Random numbers are drawn in Kafka's order, so that equal numbers give equal placements.
        self.fenced = _Ring([b.id for b in brokers if b.fenced], entropy)
        self.live = _Ring([b.id for b in brokers if not b.fenced], entropy)

    def next(self, current_pass: int) -> int | None:
        broker = self.live.next(current_pass)
        return self.fenced.next(current_pass) if broker is None else broker


class _Stripes:
    def __init__(self, brokers: list[UsableBroker], entropy: Entropy) -> None:
        self._entropy = entropy
        names = sorted({b.rack or "" for b in brokers})
        self._racks = {
            name: _Rack([b for b in brokers if (b.rack or "") == name], entropy) for name in names
        }
        self._names = names
        self._total = len(brokers)
        self._live = sum(not b.fenced for b in brokers)
        self._start = entropy.below(len(names)) if names else 0
        self._pass = 0

    def check(self, replication_factor: int) -> None:
        """Reject a replication factor that cannot be satisfied."""
        if replication_factor <= 0:
            wrong = (
                f"Invalid replication factor {replication_factor}: "
                "the replication factor must be positive."
            )
        elif self._live == 0:
            wrong = "All brokers are currently fenced, or have all their log directories cordoned."
        elif replication_factor > self._total:
            wrong = (
                f"The target replication factor of {replication_factor} cannot be reached because "
                f"only {self._total} broker(s) are registered or some brokers have all their log "
                "directories cordoned."
            )
        else:
            return
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, wrong)

    def next_replicas(self, replication_factor: int) -> list[int]:
        """The replicas of one more partition."""
        if self._pass == self._live and self._live > 1:
            self._mix()
        self._start %= len(self._names)
        first_rack, leader = self._first()
        replicas = [leader]
        rack = self._start
        skip: int | None = first_rack  # The rack of the leader is skipped once.
        while len(replicas) < replication_factor:
            if rack == skip:
                skip = None
            else:
                broker = self._racks[self._names[rack]].next(self._pass)
                if broker is not None:
                    replicas.append(broker)
            rack = (rack + 1) % len(self._names)
        self._pass += 1
        self._start += 1
        return replicas

    def _first(self) -> tuple[int, int]:
        """The leader and its rack: the next unfenced broker."""
        rack = self._start
        while True:
            broker = self._racks[self._names[rack]].live.next(self._pass)
            if broker is not None:
                return rack, broker
            rack = (rack + 1) % len(self._names)

    def _mix(self) -> None:
        """Shuffle after each live broker has started a pass, so that placements do not repeat."""
        _shuffle(self._names, self._entropy)
        for name in sorted(self._racks):
            _shuffle(self._racks[name].fenced.brokers, self._entropy)
            _shuffle(self._racks[name].live.brokers, self._entropy)
        self._pass = 0
