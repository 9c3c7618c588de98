"""Planted bugs in whole nodes: drivers, controller, broker, storage; each seen by what it breaks.

Beside those of `mutants`, which are in the raft core: same registry, other tier.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from sparkraft.base.ids import Offset
from sparkraft.controller import brokers
from sparkraft.controller.controller import Controller
from sparkraft.controller.sessions import Sessions
from sparkraft.metadata import features
from sparkraft.metadata.snapshot import records_of as all_records_of
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.metadata_records import RegisterControllerRecord
from sparkraft.raft.replica import Replica
from sparkraft.raft.states import Candidate
from sparkraft.server.broker.lifecycle import BrokerLifecycle
from sparkraft.server.broker.metadata_publisher import MetadataPublisher
from sparkraft.server.broker.producer_ids import ProducerIds
from sparkraft.server.controller import snapshots
from sparkraft.server.controller.decision_queue import DecisionQueue
from sparkraft.server.controller.driver import ControllerDriver
from sparkraft.server.raft import driver as raft_driver
from sparkraft.server.raft.commit_publisher import CommitPublisher
from sparkraft.server.raft.driver import RaftDriver
from sparkraft.storage import recovery
from sparkraft.storage.raft_log import RaftLog
from sparkraft.storage.segments import Segments
from tests.mutants.mutant import NODES, Mutant, Patches, registrar

NODE_MUTANTS: dict[str, Mutant] = {}

_mutant = registrar(NODE_MUTANTS, tiers=NODES)


# ---- the quorum's files


@_mutant("the election state is not written at all", "Q2", "Q3")
def _the_vote_file_is_not_written() -> Patches:
    async def persist(self: RaftDriver, election: Any) -> None:
        _ = self, election

    return [(RaftDriver, "_persist", persist)]


@_mutant("the election state is written without fsync", "Q2", "Q3")
def _the_vote_file_is_not_synced() -> Patches:
    def write(disk: Any, directory: str, state: Any) -> None:
        disk.write(f"{directory}/quorum-state.tmp", state.format())
        disk.rename(f"{directory}/quorum-state.tmp", f"{directory}/quorum-state")

    return [(raft_driver, "write_quorum_state", write)]


@_mutant("a restarted node forgets its epoch and its vote", "Q3")
def _the_vote_file_is_not_read() -> Patches:
    return [(raft_driver, "read_quorum_state", lambda _disk, _directory: None)]


@_mutant("an fsync of the metadata log does nothing", "Q7")
def _the_metadata_log_is_not_synced() -> Patches:
    return [(RaftLog, "flush", lambda _self, _up_to: None)]


@_mutant(
    "a truncation that a power loss takes back leaves its records below newer ones", "Q5", "S2"
)
def _a_cut_comes_back_below_newer_records() -> Patches:
    original = Segments.sync

    def sync(self: Segments, start: int, target: int) -> None:
        for segment in self:
            segment.cut_unsynced = False
        original(self, start, target)

    walk = recovery._Recovery._walk

    def walk_alone(self: Any, segment: Any, following: Any) -> bool:
        _ = following
        return walk(self, segment, None)

    return [
        (Segments, "sync", sync),
        (recovery._Recovery, "_walk", walk_alone),
    ]


@_mutant("one vote less than a majority wins, on whole nodes", "Q1")
def _a_minority_leads_whole_nodes() -> Patches:
    original = Replica.maybe_win

    def maybe_win(self: Replica, now: Any) -> None:
        nearly = self.log.voters.majority - 1
        if isinstance(self.state, Candidate) and 0 < nearly == len(self.state.granted_by):
            self._become_leader("nearly a majority", now)
        else:
            original(self, now)

    return [(Replica, "maybe_win", maybe_win)]


# ---- the controller


@_mutant("a broker that comes back keeps the epoch it had", "C5")
def _a_returning_broker_keeps_its_epoch() -> Patches:
    original = Controller.decide

    def decide(self: Controller, key: ApiKey, call: Any) -> Any:
        request = call.request
        decision = yield from original(self, key, call)
        if key is not ApiKey.BROKER_REGISTRATION:
            return decision
        known = self.latest.brokers.get(request.broker_id)
        if known is not None and known.incarnation_id != request.incarnation_id:
            for record, _ in decision.records:
                if hasattr(record, "incarnation_id"):
                    record.broker_epoch = known.epoch
            decision.response.broker_epoch = known.epoch
        return decision

    return [(Controller, "decide", decide)]


@_mutant("brokers that register with one controller get one epoch", "C5")
def _broker_epochs_are_the_controllers_epoch() -> Patches:
    return [(ControllerDriver, "_next_offset", lambda self: int(self._epoch or 0))]


@_mutant("the id of a live broker is given to another", "C5", isolated=True)
def _live_broker_ids_are_given_away() -> Patches:
    return [(Sessions, "valid", lambda *_: False)]


@_mutant("a new controller decides before it has replayed its predecessors' records", "C3", "C6")
def _a_new_controller_decides_at_once() -> Patches:
    original = CommitPublisher.set_leader

    def set_leader(self: CommitPublisher, leader: Any, epoch_start: Any) -> None:
        _ = epoch_start
        original(self, leader, Offset(-1))  # which everybody has passed, even with nothing read

    return [(CommitPublisher, "set_leader", set_leader)]


@_mutant("a controller answers before its records are committed", "C7")
def _answers_before_the_commit() -> Patches:
    async def committed(self: ControllerDriver, offset: int) -> None:
        _ = self, offset

    return [(ControllerDriver, "_committed_up_to", committed)]


@_mutant("producer ids are handed out without a record", "C9")
def _producer_ids_without_a_record() -> Patches:
    original = Controller.decide

    def decide(self: Controller, key: ApiKey, call: Any) -> Any:
        decision = yield from original(self, key, call)
        return replace(decision, records=()) if key is ApiKey.ALLOCATE_PRODUCER_IDS else decision

    return [(Controller, "decide", decide)]


@_mutant("a broker counts its own producer ids from the beginning", "C9")
def _producer_ids_from_the_beginning() -> Patches:
    async def fetch(self: ProducerIds) -> None:
        self._next, self._end = 0, 1000

    return [(ProducerIds, "_fetch", fetch)]


@_mutant("no leader is elected when a broker comes back", "C10")
def _no_election_for_a_returning_broker() -> Patches:
    return [(brokers, "elect_for_returning_broker", lambda _changes, _broker_id: iter(()))]


@_mutant("short decisions are made between the slices of a long one", "C3")
def _decisions_between_slices() -> Patches:
    return [(DecisionQueue, "is_busy", property(lambda _: False))]


@_mutant(
    "sessions never expire, so the id of a dead broker is never free",
    "C10",
    workload="produce-consume",
    liveness=True,
)
def _sessions_never_lapse() -> Patches:
    return [
        (Sessions, "expired", lambda _self, _now: []),
        (Sessions, "valid", lambda self, b, e, _now: (b, e) in self.contact_ms),
    ]


# ---- images


@_mutant("a snapshot leaves the controllers out", "C6", isolated=True)
def _a_snapshot_without_controllers() -> Patches:
    def records_of(image: Any) -> Iterator[Any]:
        for record, version in all_records_of(image):
            if type(record) is not RegisterControllerRecord:
                yield record, version

    return [(snapshots, "records_in_pieces", records_of)]


@_mutant("brokers see uncommitted metadata", "C6", "assert")
def _images_of_what_is_not_committed() -> Patches:
    original = CommitPublisher.set_high_watermark

    def set_high_watermark(self: CommitPublisher, high_watermark: Any) -> None:
        original(self, max(high_watermark, self._log.end))

    return [(CommitPublisher, "set_high_watermark", set_high_watermark)]


@_mutant(
    "uncommitted decisions of a deposed controller stay in its image", "C6", "C7", "C9", "assert"
)
def _a_deposed_controller_forgets_nothing() -> Patches:
    def deactivate(self: Controller) -> None:
        self.sessions.contact_ms.clear()

    return [(Controller, "deactivate", deactivate)]


# ---- versions


@_mutant("partitions are written in the newest version, whatever is finalized", "V1")
def _records_in_the_newest_version() -> Patches:
    return [(features, "partition_version", lambda _level: 2)]


@_mutant("controllers register before there is a record for it", "V1")
def _controllers_register_too_early() -> Patches:
    async def until(self: MetadataPublisher, level: int) -> None:
        _ = self, level

    return [(MetadataPublisher, "until_metadata_version", until)]


@_mutant("brokers are written in the newest version, whatever is finalized", "V1")
def _brokers_register_in_the_newest_version() -> Patches:
    return [(features, "register_broker_version", lambda _level: 4)]


@_mutant(
    "a broker whose registration was replaced by an earlier process's stays fenced",
    "C10",
    scenario="registrations-arrive-late",
    workload="produce-consume",
)
def _late_registrations_are_final() -> Patches:
    async def reclaim(self: BrokerLifecycle) -> None:
        _ = self

    return [(BrokerLifecycle, "_reclaim", reclaim)]
