"""The offset a follower truncates to, given the leader's end of an epoch (KIP-101, 279, 595).

    ours     e3 0…9 | e4 10…14            the leader: e4 unknown; e3 ended at 12
    leader   e3 0…11 | e5 12…             → e3 ended here at 10: truncate to 10, done

If the leader names an epoch unknown here: truncate to the end of the largest smaller epoch here,
and send another request with that. The rule is Kafka's
`AbstractFetcherThread.getOffsetTruncationState`.
"""

from typing import NamedTuple, Protocol


class EpochsOfLog(Protocol):
    """The part of a replica's log that truncation needs."""

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        ...

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        """(largest epoch at or below `epoch`, its end offset); None if there is none."""
        ...


class Truncation(NamedTuple):
    """A truncation to carry out."""

    offset: int
    """The first offset to remove; at most the log end offset."""
    completed: bool
    """Whether the logs agree below it; else send another request with our newest epoch."""
    why: str


def truncation_point(log: EpochsOfLog, *, epoch: int, end_offset: int, fallback: int) -> Truncation:
    """The truncation of `log`.

    Args:
        log: the follower's.
        epoch: the leader's largest epoch at or below the requested one; -1: none.
        end_offset: its end offset at the leader, exclusive; -1: unknown.
        fallback: the offset to truncate to in that case, which is known to be committed.
    """
    log_end = log.log_end_offset
    if end_offset < 0:
        return Truncation(min(fallback, log_end), True, "the leader knows none of our epochs")  # noqa: FBT003
    if epoch < 0:
        why = "the leader returned an offset without an epoch"
        return Truncation(min(end_offset, log_end), True, why)  # noqa: FBT003
    ours = log.end_offset_for_epoch(epoch)
    if ours is None:
        why = f"epoch {epoch} precedes all epochs known here"
        return Truncation(min(end_offset, log_end), True, why)  # noqa: FBT003
    our_epoch, our_end = ours
    if our_epoch != epoch:
        why = f"the leader's epoch {epoch} is unknown here; ours before it is {our_epoch}"
        return Truncation(min(our_end, log_end), False, why)  # noqa: FBT003
    why = f"epoch {epoch} ended at {end_offset} at the leader and at {our_end} here"
    return Truncation(min(our_end, end_offset, log_end), True, why)  # noqa: FBT003
