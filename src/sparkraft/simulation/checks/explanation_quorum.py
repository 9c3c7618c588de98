"""Check the elections of `explain quorum` against the committed LeaderChange records.

The elections are merged from the journals of all running nodes, as the command does it. A journal
is not flushed to disk, so entries may be missing, but the existing ones must be correct.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from sparkraft.client.explain.quorum import Epoch, epochs_of
from sparkraft.protocol.messages.k10000_describe_elections import DescribeElectionsRequest
from sparkraft.raft.events import LeaderChange
from sparkraft.server.api import k10000_describe_elections as k10000
from sparkraft.server.raft.records import parse_batches


class QuorumTruth:
    """The leader and granting voters of each epoch whose LeaderChange record was committed."""

    def __init__(self) -> None:
        self._won: dict[int, tuple[int, tuple[int, ...]]] = {}

    def on_committed(self, view: memoryview) -> None:
        """Record the leader of a committed control batch. Called once per batch, in order."""
        for batch in parse_batches([view]):
            for control in batch.controls:
                if isinstance(control, LeaderChange):
                    granted = tuple(sorted(control.granting_voter_ids))
                    self._won[batch.epoch] = (control.leader_id, granted)

    def disagreements(self, nodes: Iterable[Any]) -> Iterator[str]:
        """Yield the differences between the journals of `nodes` and the log."""
        seen = [k10000.describe(node, DescribeElectionsRequest()) for node in nodes]
        for epoch in epochs_of(seen):
            yield from self._wrong_epoch(epoch)

    def _wrong_epoch(self, epoch: Epoch) -> Iterator[str]:
        if epoch.verdict == "CONTRADICTION":
            yield f"the journals contradict each other in epoch {epoch.epoch}: {epoch.as_json()}"
        won = self._won.get(epoch.epoch)
        if won is None:
            return
        if epoch.logged - {won}:
            yield f"epoch {epoch.epoch}: the journals have record {epoch.logged}, the log {won}"
        if set(epoch.claimed) - {won[0]}:
            yield f"epoch {epoch.epoch}: the journals have leader {epoch.claimed}, the log {won[0]}"
