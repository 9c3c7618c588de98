"""The in-sync replicas as a leader sees them: committed, or with a pending change (KIP-497).

    Committed ──expand──▶ PendingExpand ──┬─ the controller accepts ───▶ Committed (its response)
        ▲     ──shrink──▶ PendingShrink ──┼─ it did not try ───────────▶ Committed (as before)
        └─────── new metadata ◀───────────┴─ anything else: wait for the metadata, or retry

The *maximal* ISR contains every replica that may be in the ISR now, however a pending change ends.
The high watermark waits for all of them, so none of them can be elected without the records below
it. A follower about to leave still counts; one about to join counts already.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The ISR last reported by the controller."""

    isr: tuple[int, ...]

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        return self.isr


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """Why a follower left the ISR: how far and how long it lagged.

    Attributes:
        replica: the broker's id.
        log_end_offset: the follower's, -1 if it never fetched in this leadership.
        leader_end: the leader's log end offset.
        behind_ms: since it was last caught up; None if it never was in this leadership.
    """

    replica: int
    log_end_offset: int
    leader_end: int
    behind_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Change:
    """A request to the controller to change the ISR. Compared by identity."""

    committed: Committed
    new_isr: tuple[tuple[int, int], ...]
    """Replica and broker epoch, as AlterPartition v3 sends them."""
    leader_epoch: int
    partition_epoch: int

    @property
    def isr(self) -> tuple[int, ...]:
        """The committed ISR: min.insync.replicas is checked against it until the change commits."""
        return self.committed.isr


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PendingExpand(_Change):
    """A request to add a caught-up follower."""

    joining: int

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The committed ISR and the follower."""
        return (*self.committed.isr, self.joining)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PendingShrink(_Change):
    """A request to remove lagging followers."""

    leaving: tuple[Lag, ...]

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The committed ISR, with the followers about to leave."""
        return self.committed.isr


Pending = PendingExpand | PendingShrink
InSync = Committed | PendingExpand | PendingShrink
