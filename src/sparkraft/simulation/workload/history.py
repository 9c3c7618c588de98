"""The history that clients observed, and the checks for Jepsen's Kafka anomalies in it.

Producers and consumers record a history in the simulator or against real processes: the values they
sent, the result of each send, and the values they read with their offsets. None of it comes from
inside a node. Values are unique within a partition.

    send-ok      acknowledged: the offset is known, unless the response lacks it (-1)
    send-failed  certainly not written
    send-unknown possibly written, once: a timeout, a lost connection, a client that crashed

| anomaly | meaning |
|---|---|
| inconsistent-offsets | one offset has two values: logs diverged |
| duplicate | one value at two offsets |
| phantom | a value was read that no producer sent |
| aborted-read | a value was read whose send failed (G1a) |
| lost-write | an acknowledged value was never read, although a higher offset was |
| unseen | an acknowledged value is above everything that was read at the end |
| nonmonotonic-send | of two sends of one producer, the later has the lower offset |
| nonmonotonic-poll | a consumer's position went back or stood still without a seek |
| poll-skip | a consumer's position jumped over an existing value without a seek |

The names are those of jepsen.tests.kafka, and this check allows what Jepsen allows Kafka: after a
rebalance or a seek a consumer may skip values and go back. Jepsen's transactional anomalies need
reads and writes grouped by transaction, which a history does not record yet.

Invariant: pure functions over recorded operations, without clocks, sockets or nodes.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import TypeAlias

Partition: TypeAlias = Hashable
Value: TypeAlias = Hashable

UNKNOWN_OFFSET = -1
"""The offset of an acknowledged send whose response has no offset."""


class Result(Enum):
    """The result of a send, as its producer knows it."""

    OK = "ok"
    """Acknowledged."""
    FAILED = "failed"
    """Certainly not written."""
    UNKNOWN = "unknown"
    """Possibly written."""


@dataclass(frozen=True, slots=True)
class Send:
    """A value sent to a partition, as its producer saw it."""

    value: Value
    result: Result
    offset: int = UNKNOWN_OFFSET


@dataclass(frozen=True, slots=True)
class Poll:
    """The records that one poll returned for a partition: (offset, value), in order."""

    records: tuple[tuple[int, Value], ...]
    moved: bool = False
    """Whether the consumer was reassigned the partition, or did a seek, since its last poll."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A result that a correct cluster never shows."""

    name: str
    partition: Partition
    detail: str

    def __str__(self) -> str:
        return f"{self.name} in {self.partition}: {self.detail}"


@dataclass(slots=True)
class History:
    """Recorded operations; one thread appends to each list.

    Attributes:
        sends: (producer, partition) → its sends, in order.
        polls: (consumer, partition) → its polls, in order.
    """

    sends: dict[tuple[Hashable, Partition], list[Send]] = field(default_factory=dict)
    polls: dict[tuple[Hashable, Partition], list[Poll]] = field(default_factory=dict)

    def sent(self, producer: Hashable, partition: Partition, send: Send) -> None:
        """Record the result of a send; a producer records its sends in order."""
        self.sends.setdefault((producer, partition), []).append(send)

    def polled(self, consumer: Hashable, partition: Partition, poll: Poll) -> None:
        """Record a poll that returned records."""
        self.polls.setdefault((consumer, partition), []).append(poll)

    @property
    def partitions(self) -> list[Partition]:
        """The partitions with recorded operations, in order of first appearance."""
        return list(dict.fromkeys(partition for _, partition in (*self.sends, *self.polls)))


@dataclass(slots=True)
class _Log:
    """The log of one partition, as all clients together saw it."""

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
    """Return every anomaly; `is_final` means that all consumers have read to the end."""
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
    """Return the number of acknowledged sends."""
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
            yield Anomaly("phantom", log.partition, f"{value!r} was read, but no producer sent it")
        elif results[value] is Result.FAILED:
            yield Anomaly("aborted-read", log.partition, f"{value!r} was read, but its send failed")


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
    """Compare the offsets of the values, from sends or reads; skip values without an offset."""
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
