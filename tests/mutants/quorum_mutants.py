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
from sparkraft.server.raft.election_journal import ElectionJournal
from sparkraft.storage.log import PartitionLog
from sparkraft.storage.raft_log import RaftLog
from tests.mutants.mutant import NODES, Mutant, Patches, registrar

QUORUM_MUTANTS: dict[str, Mutant] = {}

_mutant = registrar(QUORUM_MUTANTS, tiers=NODES)


@_mutant("a cleaned log starts at its first file instead of its snapshot", "Q10", isolated=True)
def _a_log_starts_below_its_snapshot() -> Patches:
    original = RaftLog._recover_snapshots

    def recover(self: RaftLog) -> None:
        with patch.object(PartitionLog, "advance_log_start", lambda _self, _offset: False):
            original(self)

    return [(RaftLog, "_recover_snapshots", recover)]


@_mutant("a snapshot leaves out the newest topic", "Q10", isolated=True)
def _a_snapshot_without_the_newest_topic() -> Patches:
    def records_of(image: Any) -> Any:
        told = list(all_records_of(image))
        topics = [record.topic_id for record, _ in told if isinstance(record, TopicRecord)]
        for record, version in told:
            if not topics or getattr(record, "topic_id", None) != topics[-1]:
                yield record, version

    return [(snapshots, "records_in_pieces", records_of)]


@_mutant("a leader notes the votes it has yet to get, not those it got", "E1", isolated=True)
def _votes_of_the_new_state_are_noted() -> Patches:
    original = ElectionJournal.note_transition

    def note(self: ElectionJournal, change: Any) -> None:
        original(self, replace(change, old=change.new))

    return [(ElectionJournal, "note_transition", note)]
