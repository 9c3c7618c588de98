"""What clients saw of partitions, and what must not be in it: Jepsen's anomalies of Kafka by name.

A history is what producers and consumers recorded, in the simulator or against real processes:
which value they sent, what came of it, and which values they read at which offsets. Nothing in it
comes from a node's inside. Values are unique within a partition.

    send-ok      acknowledged: the offset is known, unless the client is not told (-1)
    send-failed  was certainly not written
    send-unknown may have been written, once: a time-out, a connection lost, a client that died

| anomaly | meaning |
|---|---|
| inconsistent-offsets | one offset holds two values: logs diverged |
| duplicate | one value at two offsets |
| phantom | a value was read that nobody sent |
| aborted-read | a value was read that was certainly not written (G1a) |
| lost-write | acknowledged, below an offset that somebody read, and read by nobody |
| unseen | acknowledged, and above everything that was read in the end |
| nonmonotonic-send | of two sends of one producer, the later has the lower offset |
| nonmonotonic-poll | a consumer's next poll went back or stood still, unasked |
| poll-skip | a consumer's next poll jumped over a value that is there, unasked |

Jepsen's jepsen.tests.kafka is where the names are from; what it allows Kafka is allowed here: after
a rebalance or a seek a consumer may skip and go back. Its anomalies of transactions need reads and
writes grouped in transactions, which nobody records yet.

Invariant: pure functions over recorded operations; nothing here knows a clock, a socket or a node.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import TypeAlias

Partition: TypeAlias = Hashable
Value: TypeAlias = Hashable

UNKNOWN_OFFSET = -1
"""Of a send whose offset the client was not told."""


class Result(Enum):
    """What a producer was told of a send."""

    OK = "ok"
    """Acknowledged."""
    FAILED = "failed"
    """Certainly not written."""
    UNKNOWN = "unknown"
    """Nobody can say."""


@dataclass(frozen=True, slots=True)
class Send:
    """A value on its way to a partition, as its producer saw it."""

    value: Value
    result: Result
    offset: int = UNKNOWN_OFFSET


@dataclass(frozen=True, slots=True)
class Poll:
    """What one poll gave of a partition, in its order: (offset, value)."""

    records: tuple[tuple[int, Value], ...]
    moved: bool = False
    """The consumer was assigned the partition anew, or sought, since its last poll."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Something that must not be."""

    name: str
    partition: Partition
    detail: str

    def __str__(self) -> str:
        """As a line."""
        return f"{self.name} in {self.partition}: {self.detail}"


@dataclass(slots=True)
class History:
    """What was recorded; one thread appends to each list.

    Attributes:
        sends: (producer, partition) → its sends, in the order in which it made them.
        polls: (consumer, partition) → its polls, in their order.
    """

    sends: dict[tuple[Hashable, Partition], list[Send]] = field(default_factory=dict)
    polls: dict[tuple[Hashable, Partition], list[Poll]] = field(default_factory=dict)

    def sent(self, producer: Hashable, partition: Partition, send: Send) -> None:
        """`producer` was told what came of a send; in the order of its sends."""
        self.sends.setdefault((producer, partition), []).append(send)

    def polled(self, consumer: Hashable, partition: Partition, poll: Poll) -> None:
        """`consumer` got records."""
        self.polls.setdefault((consumer, partition), []).append(poll)

    @property
    def partitions(self) -> list[Partition]:
        """Those that anything is known of, in the order in which they came up."""
        return list(dict.fromkeys(partition for _, partition in (*self.sends, *self.polls)))


@dataclass(slots=True)
class _Log:
    """What is known of one partition, from all who saw it."""

    partition: Partition
    values: dict[int, list[Value]] = field(default_factory=dict)
    """Offset → the different values seen there."""
    offsets: dict[Value, list[int]] = field(default_factory=dict)
    """Value → the different offsets it was seen at."""
    read: dict[Value, None] = field(default_factory=dict)
    highest_read: int = -1

    def note(self, offset: int, value: Value) -> None:
        values = self.values.setdefault(offset, [])
        if value not in values:
            values.append(value)
        offsets = self.offsets.setdefault(value, [])
        if offset not in offsets:
            offsets.append(offset)


def check(history: History, *, is_final: bool = True) -> list[Anomaly]:
    """Every anomaly of `history`; `is_final` where all consumers have read to the end."""
    found: list[Anomaly] = []
    for partition in history.partitions:
        log = _log_of(history, partition)
        sends = [sends for (_, where), sends in history.sends.items() if where == partition]
        polls = {who: polls for (who, where), polls in history.polls.items() if where == partition}
        found += _of_the_log(log)
        found += _of_reads(log, sends)
        found += _of_writes(log, sends, is_final=is_final)
        for producer_sends in sends:
            found += _of_order(log, producer_sends)
        for consumer, consumer_polls in polls.items():
            found += _of_polls(log, consumer, consumer_polls)
    return found


def acknowledged(history: History) -> int:
    """How many sends were acknowledged."""
    return sum(send.result is Result.OK for sends in history.sends.values() for send in sends)


def _log_of(history: History, partition: Partition) -> _Log:
    log = _Log(partition)
    for (_, where), sends in history.sends.items():
        for send in sends if where == partition else ():
            if send.result is Result.OK and send.offset != UNKNOWN_OFFSET:
                log.note(send.offset, send.value)
    for (_, where), polls in history.polls.items():
        for poll in polls if where == partition else ():
            for offset, value in poll.records:
                log.note(offset, value)
                log.read[value] = None
                log.highest_read = max(log.highest_read, offset)
    return log


def _of_the_log(log: _Log) -> Iterator[Anomaly]:
    for offset, values in log.values.items():
        if len(values) > 1:
            yield Anomaly("inconsistent-offsets", log.partition, f"offset {offset} holds {values}")
    for value, offsets in log.offsets.items():
        if len(offsets) > 1:
            yield Anomaly("duplicate", log.partition, f"{value!r} is at offsets {offsets}")


def _of_reads(log: _Log, sends: Iterable[Sequence[Send]]) -> Iterator[Anomaly]:
    results = {send.value: send.result for group in sends for send in group}
    for value in log.read:
        if value not in results:
            yield Anomaly("phantom", log.partition, f"{value!r} was read, and nobody sent it")
        elif results[value] is Result.FAILED:
            yield Anomaly("aborted-read", log.partition, f"{value!r} was read, and never written")


def _of_writes(log: _Log, sends: Iterable[Sequence[Send]], *, is_final: bool) -> Iterator[Anomaly]:
    for send in (send for group in sends for send in group):
        if send.result is not Result.OK or send.value in log.read:
            continue
        if send.offset != UNKNOWN_OFFSET and send.offset < log.highest_read:
            detail = f"{send.value!r} at offset {send.offset}; {log.highest_read} was read"
            yield Anomaly("lost-write", log.partition, detail)
        elif is_final:
            detail = f"{send.value!r} at offset {send.offset}, read up to {log.highest_read}"
            yield Anomaly("unseen", log.partition, detail)


def _of_order(log: _Log, sends: Sequence[Send]) -> Iterator[Anomaly]:
    """By where the values are, whoever says so; a value nobody saw has no place."""
    placed = [
        (send.value, log.offsets[send.value][0]) for send in sends if send.value in log.offsets
    ]
    for (earlier, before), (later, after) in pairwise(placed):
        if after < before:
            detail = f"{earlier!r} at {before}, then {later!r} at {after}"
            yield Anomaly("nonmonotonic-send", log.partition, detail)


def _of_polls(log: _Log, consumer: Hashable, polls: Iterable[Poll]) -> Iterator[Anomaly]:
    last = -1
    begun = False
    known = sorted(log.values)
    places: Mapping[int, int] = {offset: place for place, offset in enumerate(known)}
    for poll in polls:
        if poll.moved:
            begun = False
        for offset, value in poll.records:
            if begun and offset <= last:
                detail = f"{consumer} read {value!r} at {offset} after offset {last}"
                yield Anomaly("nonmonotonic-poll", log.partition, detail)
            elif begun and places[offset] - places[last] > 1:
                missed = known[places[last] + 1 : places[offset]]
                detail = f"{consumer} went from {last} to {offset} over {missed[:5]}"
                yield Anomaly("poll-skip", log.partition, detail)
            last, begun = offset, True
