"""Planted bugs in the quorum of whole nodes, each seen by the one invariant that is looked at.

Most are bugs of the raft core that bare cores show as well (`mutants`): here it is the checks of
whole nodes that must see them.
"""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from sparkraft.metadata.snapshot import records_of as all_records_of
from sparkraft.protocol.messages.metadata_records import TopicRecord
from sparkraft.server.controller import snapshots
from sparkraft.server.raft.journal import QuorumJournal
from sparkraft.simulation.mutants import MUTANTS, Mutant, Patches, registrar
from sparkraft.simulation.node_scenarios import NODE_SCENARIOS
from sparkraft.storage.log import PartitionLog
from sparkraft.storage.raft_log import RaftLog

QUORUM_MUTANTS: dict[str, Mutant] = {}

_mutant = registrar(QUORUM_MUTANTS, tier="nodes")

OF_THE_CORE = (
    "divergence-is-not-seen",
    "voters-change-before-the-epoch-has-begun",
    "a-removed-leader-leads-on",
    "pre-vote-raises-the-epoch",
    "pre-vote-granted-behind-the-leaders-back",
    "no-check-quorum",
    "vote-not-persisted",
    "votes-twice",
    "truncates-too-far",
    "votes-for-a-shorter-log",
    "candidate-claims-unsynced-records",
)

for _name in OF_THE_CORE:
    _known = MUTANTS[_name]
    QUORUM_MUTANTS[f"{_name}-on-whole-nodes"] = replace(
        _known,
        about=f"{_known.about}, on whole nodes",
        tier="nodes",
        scenario=_known.scenario if _known.scenario in NODE_SCENARIOS else "chaos",
        alone=True,
    )


@_mutant("a log that was cleaned starts where its first file does", "Q10", alone=True)
def _a_log_starts_below_its_snapshot() -> Patches:
    original = RaftLog._recover_snapshots  # noqa: SLF001

    def recover(self: RaftLog) -> None:
        with patch.object(PartitionLog, "advance_log_start", lambda _self, _offset: False):
            original(self)

    return [(RaftLog, "_recover_snapshots", recover)]


@_mutant("a snapshot leaves out the newest topic", "Q10", alone=True)
def _a_snapshot_without_the_newest_topic() -> Patches:
    def records_of(image: Any) -> Any:
        told = list(all_records_of(image))
        topics = [record.topic_id for record, _ in told if isinstance(record, TopicRecord)]
        for record, version in told:
            if not topics or getattr(record, "topic_id", None) != topics[-1]:
                yield record, version

    return [(snapshots, "records_of", records_of)]


@_mutant("a leader notes the votes it has yet to get, not those it got", "E1", alone=True)
def _votes_of_the_new_state_are_noted() -> Patches:
    original = QuorumJournal.note_transition

    def note(self: QuorumJournal, change: Any) -> None:
        original(self, replace(change, old=change.new))

    return [(QuorumJournal, "note_transition", note)]
