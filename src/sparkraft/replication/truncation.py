"""Where a follower cuts its log, from what the leader says of an epoch (KIP-101, 279, 595).

    ours     e3 0…9 | e4 10…14            the leader: "of e4 I know nothing; e3 ended at 12"
    leader   e3 0…11 | e5 12…             → e3 ended here at 10: cut to 10, and that is all of it

An epoch the leader names and we never saw: cut to where the largest one below it ended here, and
ask again with that. The rule is Kafka's `AbstractFetcherThread.getOffsetTruncationState`.
"""

from typing import NamedTuple, Protocol


class EpochsOfLog(Protocol):
    """A replica's log, as far as truncation needs it."""

    @property
    def log_end_offset(self) -> int:
        """Offset of the next record."""
        ...

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        """(largest epoch at or below `epoch`, where it ended); None where none is known."""
        ...


class Truncation(NamedTuple):
    """Where to cut."""

    offset: int
    """The first offset to go; at most the log end offset."""
    completed: bool
    """Whether the logs agree below it; else the leader is asked again with our newest epoch."""
    why: str


def truncation_point(log: EpochsOfLog, *, epoch: int, end_offset: int, fallback: int) -> Truncation:
    """Where to cut `log`.

    Args:
        log: the follower's.
        epoch: the largest one the leader knows at or below the one asked; -1: none.
        end_offset: where it ended at the leader, exclusive; -1: the leader can't say.
        fallback: the offset to cut to then: what is known to be committed.
    """
    log_end = log.log_end_offset
    if end_offset < 0:
        return Truncation(min(fallback, log_end), True, "the leader knows none of our epochs")  # noqa: FBT003
    if epoch < 0:
        why = "the leader tells an offset without an epoch"
        return Truncation(min(end_offset, log_end), True, why)  # noqa: FBT003
    ours = log.end_offset_for_epoch(epoch)
    if ours is None:
        why = f"epoch {epoch} is before all epochs known here"
        return Truncation(min(end_offset, log_end), True, why)  # noqa: FBT003
    our_epoch, our_end = ours
    if our_epoch != epoch:
        why = f"the leader's epoch {epoch} is unknown here; ours before it is {our_epoch}"
        return Truncation(min(our_end, log_end), False, why)  # noqa: FBT003
    why = f"epoch {epoch} ended at {end_offset} at the leader and at {our_end} here"
    return Truncation(min(our_end, end_offset, log_end), True, why)  # noqa: FBT003
