"""Planted bugs in replication: the historic ones of Kafka among them, by their KIPs' names.

Clients write and read records while one is in place; what sees it is an anomaly of `history` by
Jepsen's name, or an invariant of `record_checks`.
"""

from dataclasses import replace
from typing import Any

from sparkraft.client.history import HistoryReport
from sparkraft.controller import brokers, causes, history, partition_rules, replication
from sparkraft.controller.history import History
from sparkraft.controller.leader_election import CauseKind, ElectionKind, choose_leader
from sparkraft.replication.fetch_session import FetchPosition
from sparkraft.replication.fetcher import Fetcher
from sparkraft.replication.followed import FollowedPartition, Stage
from sparkraft.replication.in_sync import Committed, PendingExpand, PendingShrink
from sparkraft.replication.leader import PartitionLeader
from sparkraft.server.api import k10002_describe_history
from sparkraft.server.broker import replica_manager
from sparkraft.server.broker.alter_partition import AlterPartitionQueue
from sparkraft.server.broker.isr_journal import IsrJournal
from sparkraft.server.broker.partition import HostedPartition
from sparkraft.server.coordinator.uncommitted_writes import UncommittedWrites
from sparkraft.server.raft.past_reader import PastReader
from sparkraft.storage.epochs import LeaderEpochs
from sparkraft.storage.log import PartitionLog
from sparkraft.storage.log_view import ReadableLog
from sparkraft.storage.producers import Producers
from tests.mutants.mutant import NODES, Mutant, Patches, registrar

RECORD_MUTANTS: dict[str, Mutant] = {}

_plant = registrar(
    RECORD_MUTANTS, tiers=NODES, workload="produce-consume", scenario="leaders-come-and-go"
)

LOST = ("lost-write", "unseen", "P2", "P3", "P5", "P10", "P11")
"""What sees that acknowledged records are gone, whoever looks first."""

DIVERGED = (*LOST, "P9", "C10", "inconsistent-offsets", "duplicate")
"""What sees that two logs differ."""


# ---- truncation


@_plant(
    "a follower truncates to its high watermark at every change of leader (before KIP-101)",
    *LOST,
    scenario="leaders-take-turns-alone",
)
def _kip_101_truncation_to_the_high_watermark() -> Patches:
    original = FollowedPartition.__init__

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options)
        self.stage = Stage.TRUNCATING
        self.fetch_offset = self.replica.high_watermark

    def truncate(self: Any, key: Any, now: int) -> None:
        partition = self._partitions.get(key)
        if partition is None or key in self._aside:
            return
        if self._truncate(key, partition, partition.replica.high_watermark, "as of old", now):
            partition.enter(Stage.FETCHING)
        if partition.stage is not Stage.TRUNCATING:
            self._truncating.pop(key, None)

    return [
        (FollowedPartition, "__init__", init),
        (Fetcher, "_truncate_to_high_watermark", truncate),
        (Fetcher, "uncertain", lambda *_: []),
    ]


@_plant(
    "an epoch that only the leader knows ends truncation at once (before KIP-279)",
    *DIVERGED,
    scenario="leaders-take-turns-alone",
)
def _kip_279_truncation_in_one_step() -> Patches:
    def on_diverging(self: Fetcher, key: Any, partition: Any, data: Any, now: int) -> None:
        end = min(data.diverging_epoch.end_offset, partition.replica.log_end_offset)
        self._truncate(key, partition, end, "the end of the leader's epoch", now)
        partition.last_fetched_epoch = -1  # else the next fetch would find it, since KIP-595
        self._dirty[key] = None

    return [(Fetcher, "_on_diverging", on_diverging)]


@_plant("a follower's fetch does not contain its last epoch (before KIP-595)", *DIVERGED)
def _no_epoch_in_a_followers_fetch() -> Patches:
    def fetch_position(self: Any) -> FetchPosition:
        return FetchPosition(
            self.fetch_offset, self.replica.log_start_offset, self.leader_epoch, -1
        )

    return [(FollowedPartition, "fetch_position", fetch_position)]


@_plant("a diverging epoch in the leader's response is ignored (KIP-320)", "C10", *DIVERGED)
def _kip_320_divergence_is_ignored() -> Patches:
    def on_diverging(self: Fetcher, key: Any, partition: Any, _data: Any, _now: int) -> None:
        partition.last_fetched_epoch = -1
        self._dirty[key] = None

    return [(Fetcher, "_on_diverging", on_diverging)]


@_plant("a follower truncates one record too many", *DIVERGED)
def _truncation_one_too_far() -> Patches:
    original = PartitionLog.truncate_to

    def truncate(self: PartitionLog, offset: int) -> bool:
        return original(self, max(offset - 1, self.log_start_offset))

    return [(PartitionLog, "truncate_to", truncate)]


@_plant("epochs of truncated records stay in the cache", "P9")
def _epochs_outlive_their_records() -> Patches:
    return [(LeaderEpochs, "truncate_from_end", lambda _self, _end: False)]


# ---- the high watermark


@_plant("the high watermark is the leader's own end", *LOST)
def _high_watermark_without_followers() -> Patches:
    return [(PartitionLeader, "high_watermark", lambda _self, own_end, _now: own_end)]


@_plant("a pending change of the ISR counts as done (before KIP-497)", "P4", *LOST)
def _pending_shrink_counts_as_done() -> Patches:
    def high_watermark(self: PartitionLeader, own_end: int, _now: int) -> int:
        wanted: Any = getattr(self.in_sync, "new_isr", None)
        counted = [r for r, _ in wanted] if wanted else list(self.in_sync.isr)
        ends = [f.log_end_offset for r, f in self.followers.items() if r in counted]
        return min([own_end, *ends])

    return [(PartitionLeader, "high_watermark", high_watermark)]


@_plant("one follower's copy commits for all", *LOST)
def _high_watermark_of_the_fastest() -> Patches:
    def high_watermark(self: PartitionLeader, own_end: int, _now: int) -> int:
        return min(own_end, max((f.log_end_offset for f in self.followers.values()), default=0))

    return [(PartitionLeader, "high_watermark", high_watermark)]


@_plant("min.insync.replicas doesn't hold the high watermark (KIP-966)", "P6", *LOST)
def _kip_966_high_watermark_below_min_insync() -> Patches:
    never = property(lambda _self: False)
    return [
        (PartitionLeader, "is_under_min_insync", never),
        (PartitionLeader, "min_insync_effective", property(lambda _self: 1)),
    ]


@_plant("acks=all is answered above the high watermark", *LOST)
def _acks_above_the_high_watermark() -> Patches:
    def durable(_self: Any, _info: Any, **_more: Any) -> None:
        return None

    return [(HostedPartition, "durable", durable)]


@_plant("flush.messages is ignored: a power loss takes acknowledged records", *LOST)
def _records_are_not_synced() -> Patches:
    original = PartitionLog.flush

    def flush(self: PartitionLog, up_to: int | None = None) -> None:
        if self.topic == "__cluster_metadata":
            original(self, up_to)

    return [(PartitionLog, "flush", flush)]


@_plant("a follower acknowledges what it has not synced", *LOST)
def _followers_do_not_sync() -> Patches:
    original = HostedPartition.synced

    def synced(self: HostedPartition, info: Any) -> Any:
        return original(self, info) if self.is_leader else None

    return [(HostedPartition, "synced", synced)]


@_plant(
    "records that a killed process left in the page cache count as synced",
    *LOST,
    scenario="killed-then-unplugged",
)
def _the_page_cache_counts_as_the_disk() -> Patches:
    return [(replica_manager, "_has_leftovers", lambda _log, _config: False)]


# ---- the ISR


@_plant("a follower joins the ISR before it has caught up", "P3", *LOST)
def _isr_expands_at_once() -> Patches:
    def maybe_expand(self: PartitionLeader, replica: int, _mark: int) -> PendingExpand | None:
        if not isinstance(self.in_sync, Committed) or replica in self.in_sync.isr:
            return None
        if not self._is_eligible(replica, self.followers[replica]):
            return None
        pending = PendingExpand(
            committed=self.in_sync,
            joining=replica,
            new_isr=self._with_epochs((*self.in_sync.isr, replica)),
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
        )
        self.in_sync = pending
        return pending

    return [(PartitionLeader, "maybe_expand", maybe_expand)]


@_plant("a follower joins the ISR before it has reached the epoch's start", *LOST)
def _isr_expands_before_the_epochs_start() -> Patches:
    original = PartitionLeader.on_metadata

    def on_metadata(self: PartitionLeader, **news: Any) -> bool:
        taken = original(self, **news)
        self.epoch_start_offset = 0
        return taken

    return [(PartitionLeader, "on_metadata", on_metadata)]


# ---- the controller


@_plant("a fenced broker stays in the ISRs", "C3", "C10")
def _the_fenced_stay_in_sync() -> Patches:
    return [(brokers, "remove_from_isrs", lambda *_arguments, **_more: iter(()))]


@_plant("any live replica may lead", "C3", *LOST)
def _every_election_is_unclean() -> Patches:
    return [(replication, "_kind", lambda _cluster, _topic: ElectionKind.UNCLEAN)]


@_plant("the ELR keeps replicas that are in the ISR (KIP-966)", "C1")
def _elr_beside_the_isr() -> Patches:
    def recompute(before: Any, state: Any, _target: Any, facts: Any) -> Any:
        kept = tuple(sorted({*state.elr, *before.isr}))
        return state._replace(elr=kept) if facts.elr_enabled else state

    return [(partition_rules, "_recompute_elr", recompute)]


@_plant("a replica that left the ISR too early is eligible to lead (KIP-966)", "C1", "C2", *LOST)
def _elr_of_all_replicas() -> Patches:
    def recompute(_before: Any, state: Any, _target: Any, facts: Any) -> Any:
        others = tuple(r for r in state.replicas if r not in state.isr)
        return state._replace(elr=others) if facts.elr_enabled else state

    return [(partition_rules, "_recompute_elr", recompute)]


# ---- leaders and producers


@_plant("every broker is taken to have stopped cleanly (KIP-966)", "C5", isolated=True)
def _every_stop_is_clean() -> Patches:
    original = brokers._clean_up_after

    def clean_up_after(changes: Any, request: Any, existing: Any, version: int) -> Any:
        if existing is not None:
            request.previous_broker_epoch = existing.epoch
        return original(changes, request, existing, version)

    return [(brokers, "_clean_up_after", clean_up_after)]


@_plant("a replaced leader keeps appending", "P1", "P2", *LOST)
def _a_replaced_leader_leads_on() -> Patches:
    return [(HostedPartition, "_stop_leading", lambda _self: None)]


@_plant("a batch sent again is appended again", "duplicate")
def _batches_sent_again_are_appended() -> Patches:
    return [
        (Producers, "duplicate_of", lambda _self, _header: None),
        (Producers, "check", lambda _self, _header, **_more: None),
    ]


@_plant("a new leader forgets what producers sent before", "S5", "duplicate", "nonmonotonic-send")
def _followers_keep_no_producers() -> Patches:
    original = PartitionLog.append_as_follower

    def append(self: PartitionLog, *arguments: Any, **more: Any) -> Any:
        info = original(self, *arguments, **more)
        self._producers = Producers()
        return info

    return [(PartitionLog, "append_as_follower", append)]


@_plant("consumers are shown more than the high watermark", "P8", "G4", *LOST)
def _consumers_read_to_the_end() -> Patches:
    original = ReadableLog.read

    def read(self: Any, offset: Any, **more: Any) -> Any:
        return original(self, offset, **(more | {"up_to": self.log_end_offset}))

    return [(ReadableLog, "read", read)]


# ---- groups


@_plant("offsets are acknowledged before they are replicated", "G4")
def _offsets_before_replication() -> Patches:
    return [(UncommittedWrites, "when_committed", lambda _self, response: response)]


# ---- explanations


@_plant("an election notes no live replica", "E1")
def _elections_among_the_dead() -> Patches:
    original = choose_leader

    def choose(facts: Any) -> Any:
        choice = original(facts)
        return replace(choice, reason=replace(choice.reason, live=()))

    return [(partition_rules, "choose_leader", choose)]


@_plant("explanations leave out the loss of a leadership", "E1")
def _explanations_without_losers() -> Patches:
    original = History._keep

    def keep(self: History, event: Any) -> None:
        if event.after is None or event.after.leader >= 0:
            original(self, event)

    return [(History, "_keep", keep)]


@_plant("a follower's lag is measured at the controller's response", "E1")
def _lags_as_of_the_answer() -> Patches:
    original = IsrJournal.note

    def note(self: IsrJournal, hosted: Any, pending: Any, part: Any) -> None:
        if isinstance(pending, PendingShrink):
            end = hosted.log.log_end_offset
            late = tuple(replace(lag, leader_end=end) for lag in pending.leaving)
            pending = replace(pending, leaving=late)
        original(self, hosted, pending, part)

    return [(IsrJournal, "note", note)]


@_plant("a follower's lag counts from its last fetch, whatever that returned", "E1")
def _behind_since_the_last_fetch() -> Patches:
    original = PartitionLeader._lag

    def lag(self: PartitionLeader, replica: int, leader_end: int, now_ms: int) -> Any:
        follower = self.followers[replica]
        told = original(self, replica, leader_end, now_ms)
        return replace(told, behind_ms=now_ms - follower.last_fetch_ms)

    return [(PartitionLeader, "_lag", lag)]


@_plant("a refused ISR change is noted as done", "E1")
def _refused_isr_changes_are_noted() -> Patches:
    original = AlterPartitionQueue._on_partition_response

    def take(self: AlterPartitionQueue, hosted: Any, pending: Any, part: Any) -> bool:
        if part.error_code and hosted.leading is not None:
            self._journal.note(hosted, pending, part)
        return original(self, hosted, pending, part)

    return [(AlterPartitionQueue, "_on_partition_response", take)]


@_plant("an ISR change is explained by an earlier, similar one", "E1")
def _earlier_isr_changes_explain_later_ones() -> Patches:
    def isr_change(self: HistoryReport, event: Any) -> Any:
        alike = (
            change
            for (topic, index, _), change in sorted(self.isr_changes.items())
            if event.after is not None
            and (topic, index) == (event.topic, event.partition)
            and sorted(change.isr) == sorted(event.after.isr)
        )
        return next(alike, None)

    return [(HistoryReport, "isr_change", isr_change)]


@_plant("the removal of a fenced follower from the ISR is explained by lag", "E1")
def _fencings_are_explained_as_lag() -> Patches:
    original = causes._mark_of

    def mark_of(before: Any, after: Any, marks: Any) -> Any:
        return original(before, after, marks) if before.leader != after.leader else None

    return [(causes, "_mark_of", mark_of)]


@_plant("every fencing is attributed to missing heartbeats", "E1")
def _every_fencing_is_for_silence() -> Patches:
    original = brokers.fence

    def fence(changes: Any, broker: Any, *, cause: Any) -> Any:
        silence = cause._replace(text=f"broker {broker.id} sent no heartbeat for 3000 ms")
        return original(changes, broker, cause=silence)

    return [(brokers, "fence", fence)]


@_plant("a controlled shutdown is explained as a fencing", "E1")
def _shutdowns_are_explained_as_fencings() -> Patches:
    original = causes.broker_change

    def change(before: Any, record: Any) -> Any:
        if getattr(record, "in_controlled_shutdown", 0) and not record.fenced:
            return ["fenced"], [causes.Mark(record.broker_id, CauseKind.FENCED, "fenced")]
        return original(before, record)

    return [(history, "broker_change", change)]


@_plant("past states are read from the newest image", "E1")
def _the_past_from_the_newest_image() -> Patches:
    original = PastReader.read

    async def read(self: PastReader, question: Any) -> History:
        told = await original(self, question)
        now = await original(self, replace(question, at_offset=-1, at_ms=-1))
        told.image = now.image.at(told.image.offset, told.image.epoch)
        return told

    return [(PastReader, "read", read)]


@_plant("a past time is taken as the end of its second", "E1")
def _times_are_rounded_up() -> Patches:
    original = PastReader.read

    async def read(self: PastReader, question: Any) -> History:
        late = question.at_ms // 1000 * 1000 + 999 if question.at_ms >= 0 else -1
        return await original(self, replace(question, at_ms=late))

    return [(PastReader, "read", read)]


@_plant("replicas out of sync are shown as offline", "E1")
def _lagging_replicas_are_shown_offline() -> Patches:
    def offline(_image: Any, partition: Any) -> list[int]:
        known = () if partition is None else partition.replicas
        return [replica for replica in known if replica not in partition.isr]

    return [(k10002_describe_history, "offline_replicas", offline)]
