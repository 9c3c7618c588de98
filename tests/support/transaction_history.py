"""What transactional clients observed, and the checks of it; without clocks, sockets or nodes.

Values are unique, and each belongs to one transaction:

    writers → source → copiers, with the offsets of their group in the transaction → target

| check | invariant |
|---|---|
| aborted-read, phantom | read_committed returns only values whose transaction may be committed |
| lost-write, unseen | a value of an acknowledged commit is read |
| duplicate, inconsistent-offsets, nonmonotonic-*, poll-skip | as `simulation.workload.history` |
| torn | of a transaction all values are read, or none |
| copy | a target has each committed value of its source once, in order |
| isolation | read_uncommitted returns everything that read_committed does, at the same offsets |
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from sparkraft.simulation.workload.history import UNKNOWN_OFFSET, History, Poll, Result, Send, check

Polls = Mapping[int, Sequence[Poll]]
"""Partition → what one consumer read of it."""


class Outcome(Enum):
    """The end of a transaction, as its writer knows it."""

    COMMITTED = "committed"
    """Its commit was acknowledged."""
    ABORTED = "aborted"
    """Its abort was acknowledged, or its commit was never requested."""
    UNKNOWN = "unknown"
    """Its commit was requested, without a definite response."""


RESULTS = {
    Outcome.COMMITTED: Result.OK,
    Outcome.ABORTED: Result.FAILED,
    Outcome.UNKNOWN: Result.UNKNOWN,
}
"""As read_committed consumers see it. For others an aborted value is possibly written."""


@dataclass(slots=True)
class Transaction:
    """A transaction of one writer.

    Attributes:
        values: (partition, value), in the order of the sends.
        offsets: value → its offset, of those that were acknowledged.
    """

    writer: str
    values: list[tuple[int, str]] = field(default_factory=list)
    outcome: Outcome = Outcome.UNKNOWN
    offsets: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Observed:
    """Everything that was observed of one source and its targets; reader name → polls.

    Attributes:
        committed: read_committed readers of the source; `final` has read to the end.
        uncommitted: the others, with a `final` too.
        copies: target → its read_committed readers, with a `final` each.
    """

    transactions: list[Transaction]
    committed: dict[str, Polls]
    uncommitted: dict[str, Polls]
    copies: dict[str, dict[str, Polls]] = field(default_factory=dict)


FINAL = "final"


def anomalies(observed: Observed) -> list[str]:
    """Return a description of everything that a correct cluster never shows."""
    committed = _history(observed, observed.committed, sees_aborted=False)
    uncommitted = _history(observed, observed.uncommitted, sees_aborted=True)
    return [
        *(f"read_committed: {found}" for found in check(committed)),
        *(f"read_uncommitted: {found}" for found in check(uncommitted)),
        *_torn(observed),
        *_hidden(observed),
        *(
            found
            for target, readers in observed.copies.items()
            for found in _of_copies(target, observed.committed[FINAL], readers)
        ),
    ]


def _history(observed: Observed, readers: dict[str, Polls], *, sees_aborted: bool) -> History:
    history = History()
    for transaction in observed.transactions:
        result = RESULTS[transaction.outcome]
        if sees_aborted and result is Result.FAILED:
            result = Result.UNKNOWN
        for partition, value in transaction.values:
            offset = transaction.offsets.get(value, UNKNOWN_OFFSET)
            history.sent(transaction.writer, partition, Send(value, result, offset))
    for reader, polls in readers.items():
        for partition, of_partition in polls.items():
            for poll in of_partition:
                history.polled(reader, partition, poll)
    return history


def _torn(observed: Observed) -> Iterator[str]:
    read = {
        value for records in _records(observed.committed[FINAL]).values() for _, value in records
    }
    for transaction in observed.transactions:
        seen = [value for _, value in transaction.values if value in read]
        if seen and len(seen) < len(transaction.values):
            yield (
                f"torn: of {transaction.values} of {transaction.writer}, which is "
                f"{transaction.outcome.value}, only {seen} was read"
            )


def _hidden(observed: Observed) -> Iterator[str]:
    everything = _records(observed.uncommitted[FINAL])
    for partition, records in _records(observed.committed[FINAL]).items():
        for record in sorted(set(records) - set(everything.get(partition, ()))):
            yield f"isolation: {record} in {partition} was read with read_committed only"


def _of_copies(target: str, source: Polls, readers: dict[str, Polls]) -> Iterator[str]:
    wanted = {p: [value for _, value in records] for p, records in _records(source).items()}
    for reader, polls in readers.items():
        found = {p: [value for _, value in records] for p, records in _records(polls).items()}
        for partition in sorted(wanted.keys() | found.keys()):
            copies, values = found.get(partition, []), wanted.get(partition, [])
            if copies != values:
                yield f"copy: {reader} of {target}-{partition}: {_difference(copies, values)}"


def _difference(copies: Sequence[str], values: Sequence[str]) -> str:
    """The first difference, and what is missing or there twice."""
    counts = Counter(copies)
    missing = [value for value in values if value not in counts]
    twice = [value for value, count in counts.items() if count > 1]
    pairs = enumerate(zip(copies, values, strict=False))
    at = next((place for place, (copy, value) in pairs if copy != value), -1)
    return (
        f"{len(copies)} copies of {len(values)}, first difference at {at}; "
        f"missing {missing[:5]}, more than once {twice[:5]}"
    )


def _records(polls: Polls) -> dict[int, list[tuple[int, str]]]:
    """Partition → (offset, value) of everything that a reader was given, in its order."""
    return {
        partition: [(offset, str(value)) for poll in of_partition for offset, value in poll.records]
        for partition, of_partition in polls.items()
    }


def outcomes(transactions: Iterable[Transaction]) -> dict[str, int]:
    """Outcome → number of transactions."""
    found = dict.fromkeys((outcome.value for outcome in Outcome), 0)
    for transaction in transactions:
        found[transaction.outcome.value] += 1
    return found
