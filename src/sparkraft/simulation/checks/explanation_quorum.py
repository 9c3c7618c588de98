"""Holds what `explain quorum` tells against the LeaderChange records that were committed.

The account is the command's own, put together from the journals of all nodes that run. A journal is
not flushed to disk, so some of it may be gone; what is there must be so.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from sparkraft.client.explain.quorum import Epoch, epochs_of
from sparkraft.protocol.messages.k10000_describe_elections import DescribeElectionsRequest
from sparkraft.raft.events import LeaderChange
from sparkraft.server.api import k10000_describe_elections as k10000
from sparkraft.server.raft.records import parse_batches


class QuorumTruth:
    """Who won each epoch, and by whose votes; only epochs whose first record was committed."""

    def __init__(self) -> None:
        self._won: dict[int, tuple[int, tuple[int, ...]]] = {}

    def on_committed(self, view: memoryview) -> None:
        """Each committed batch of control records once, in order."""
        for batch in parse_batches([view]):
            for control in batch.controls:
                if isinstance(control, LeaderChange):
                    granted = tuple(sorted(control.granting_voter_ids))
                    self._won[batch.epoch] = (control.leader_id, granted)

    def wrong_account(self, nodes: Iterable[Any]) -> Iterator[str]:
        """What is wrong with what `nodes` tell."""
        seen = [k10000.handle(node, None, DescribeElectionsRequest()) for node in nodes]  # type: ignore[arg-type]
        for epoch in epochs_of(seen):
            yield from self._wrong_epoch(epoch)

    def _wrong_epoch(self, epoch: Epoch) -> Iterator[str]:
        if epoch.verdict == "CONTRADICTION":
            yield f"epoch {epoch.epoch} contradicts itself: {epoch.as_json()}"
        won = self._won.get(epoch.epoch)
        if won is None:
            return
        if epoch.logged - {won}:
            yield f"epoch {epoch.epoch} was won by {won}, in the log is told {epoch.logged}"
        if set(epoch.claimed) - {won[0]}:
            yield f"epoch {epoch.epoch} was won by {won[0]}, claimed is {epoch.claimed}"
