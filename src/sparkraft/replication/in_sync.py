"""The in-sync replicas as a leader sees them: committed, or with a change on its way (KIP-497).

    Committed ──expand──▶ PendingExpand ──┬─ the controller agrees ────▶ Committed (its answer)
        ▲     ──shrink──▶ PendingShrink ──┼─ it did not even try ──────▶ Committed (as before)
        └─────── new metadata ◀───────────┴─ anything else: wait for the metadata, or ask again

The *maximal* ISR holds everybody who may be in the ISR now, whichever way a pending change ends:
the high watermark waits for all of them, so that none of them can be elected without what is below
it. A follower about to leave still counts, one about to join counts already.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What the controller last said."""

    isr: tuple[int, ...]

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The same."""
        return self.isr


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """Why a follower left: how far and how long it was behind.

    Attributes:
        replica: the broker's id.
        log_end_offset: the follower's, -1 where it never fetched in this leadership.
        leader_end: the leader's log end offset.
        behind_ms: since it last had everything; None where that was never in this leadership.
    """

    replica: int
    log_end_offset: int
    leader_end: int
    behind_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PendingExpand:
    """A follower caught up, and the controller is asked to add it. Compared by identity."""

    committed: Committed
    joining: int
    new_isr: tuple[tuple[int, int], ...]
    """Replica and broker epoch, as AlterPartition v3 sends them."""
    leader_epoch: int
    partition_epoch: int

    @property
    def isr(self) -> tuple[int, ...]:
        """The one that is certain: without the follower."""
        return self.committed.isr

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """With it."""
        return (*self.committed.isr, self.joining)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PendingShrink:
    """Followers fell behind, and the controller is asked to drop them. Compared by identity."""

    committed: Committed
    leaving: tuple[Lag, ...]
    new_isr: tuple[tuple[int, int], ...]
    """Replica and broker epoch, as AlterPartition v3 sends them."""
    leader_epoch: int
    partition_epoch: int

    @property
    def isr(self) -> tuple[int, ...]:
        """As committed: min.insync.replicas is checked against it until the controller agrees."""
        return self.committed.isr

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """With those about to leave."""
        return self.committed.isr


Pending = PendingExpand | PendingShrink
InSync = Committed | PendingExpand | PendingShrink
