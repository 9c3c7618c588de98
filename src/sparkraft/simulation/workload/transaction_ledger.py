"""The knowledge of transactional clients of a simulated cluster about their transactions.

Every value and every group offset belongs to one transaction, whose number is part of it.

T1  of a transaction without a known outcome, all values are visible, or none
T3  a commit that was acknowledged becomes visible, once and complete
T4  nothing of a transaction that was not committed is ever visible to read_committed
T6  no two sessions hold the same producer id and epoch of a transactional id
T14 a stable offset belongs to a committed transaction, and is not older than an acknowledged one
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkraft.simulation.workload.client_env import ClientEnv


class Outcome(Enum):
    """The end of a transaction, as its client knows it."""

    OPEN = "open"
    """The client still works on it."""
    COMMITTED = "committed"
    """EndTxn(commit) was answered without an error."""
    ABORTED = "aborted"
    """EndTxn(abort) was answered, or no request to commit can have been accepted."""
    UNKNOWN = "unknown"
    """A request to commit has no definite response."""


@dataclass(slots=True)
class Transaction:
    """A transaction of one client.

    Attributes:
        values: (partition, value) of every batch sent.
        offset: the group offset sent, if any, for the partition of the transactional id.
        offset_host: the group coordinator that accepted it.
        commit_sent: whether a request to commit has been sent.
    """

    number: int
    transactional_id: str
    producer_id: int
    epoch: int
    outcome: Outcome = Outcome.OPEN
    commit_sent: bool = False
    values: list[tuple[int, str]] = field(default_factory=list)
    offset: int | None = None
    offset_host: str = ""

    @property
    def may_be_visible(self) -> bool:
        """Whether read_committed consumers may see it now."""
        if self.outcome is Outcome.OPEN:
            return self.commit_sent
        return self.outcome is not Outcome.ABORTED


class TransactionLedger:
    """The combined knowledge of all clients; see the module docstring."""

    def __init__(self, world: "ClientEnv") -> None:
        self.world = world
        self.transactions: list[Transaction] = []
        self._holders: dict[tuple[str, int, int], str] = {}
        self._committed_offsets: dict[str, list[Transaction]] = {}
        """Transactional id → transactions with an offset whose commit was acknowledged."""

    def begin(self, transactional_id: str, producer_id: int, epoch: int) -> Transaction:
        """Start a transaction."""
        begun = Transaction(len(self.transactions), transactional_id, producer_id, epoch)
        self.transactions.append(begun)
        return begun

    def end(self, transaction: Transaction, outcome: Outcome) -> None:
        """Note how a transaction ended."""
        transaction.outcome = outcome
        self.world.counts[f"transactions {outcome.value}"] += 1
        if outcome is Outcome.COMMITTED and transaction.offset is not None:
            known = self._committed_offsets.setdefault(transaction.transactional_id, [])
            known.append(transaction)

    def on_identity(
        self, transactional_id: str, session: str, producer_id: int, epoch: int
    ) -> None:
        """Check the producer id and epoch that a session was given."""
        holder = self._holders.setdefault((transactional_id, producer_id, epoch), session)
        self.world.demand(
            holder == session,
            "T6",
            f"{holder} and {session} both have producer {producer_id} epoch {epoch} of "
            f"{transactional_id}",
        )

    def on_value(self, reader: str, value: str) -> None:
        """Check a value that a read_committed consumer was given."""
        found = self.transactions[number_of(value)]
        self.world.demand(
            found.may_be_visible,
            "T4",
            f"{reader} reads {value} of {found.transactional_id}, producer {found.producer_id} "
            f"epoch {found.epoch}, which is {found.outcome.value}",
        )

    def least_offset(self, transactional_id: str, host: str | None) -> int:
        """The last offset of the id whose commit was acknowledged; -1 if there is none.

        Of those that `host` accepted, unless it is None: an earlier coordinator that is cut off
        from its successor returns offsets from before, as in Kafka.
        """
        committed = self._committed_offsets.get(transactional_id, ())
        accepted = [one.number for one in committed if host in {None, one.offset_host}]
        return max(accepted, default=-1)

    def on_offset(self, transactional_id: str, offset: int, least: int, host: str) -> None:
        """Check a stable offset; `least` was the last acknowledged one before the request."""
        if offset >= 0:
            found = self.transactions[offset]
            self.world.demand(
                found.may_be_visible and found.offset == offset,
                "T14",
                f"{host} returns offset {offset} of {transactional_id}, which is "
                f"{found.outcome.value}",
            )
        self.world.demand(
            offset >= least,
            "T14",
            f"{host} returns offset {offset} of {transactional_id}, {least} is committed",
        )

    def check_reads(self, reader: str, values: Counter[str]) -> None:
        """Check everything that a read_committed consumer has read once it has read to the end."""
        for transaction in self.transactions:
            seen = [values[value] for _, value in transaction.values]
            where = f"{reader} reads {seen} of {transaction.values} of transaction "
            where += f"{transaction.number} of {transaction.transactional_id}"
            if transaction.outcome is Outcome.COMMITTED:
                self.world.demand(all(count == 1 for count in seen), "T3", where)
            elif transaction.outcome is Outcome.UNKNOWN:
                self.world.demand(len(set(seen)) <= 1, "T1", where)


def number_of(value: str) -> int:
    """The number of the transaction that a value belongs to."""
    return int(value.partition(".")[0])
