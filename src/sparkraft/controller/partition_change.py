"""One partition's next state: from a target ISR, replica set or election to one change record.

The steps, in this order (KIP-966 for the ELR): complete a reassignment whose newcomers are all in
sync; recompute the ELR; elect; bump the leader epoch where replicas left; clear or keep ELR and
last known leader; write only what differs.

Invariants of the record it makes:
    * The leader is in the ISR, or there is none.
    * ELR and ISR do not meet; with enough in-sync replicas the ELR is empty.
    * An unclean leader is alone in the ISR and RECOVERING.
    * `partition_epoch` grows by one with each record, `leader_epoch` when a leader is written.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sparkraft.base.ids import Uuid
from sparkraft.controller.decision import VersionedRecord
from sparkraft.controller.decision_context import DecisionContext
from sparkraft.controller.leader_election import (
    Candidacy,
    Choice,
    Election,
    ElectionKind,
    Trigger,
    choose_leader,
)
from sparkraft.metadata import features
from sparkraft.metadata.apply import LEADER_UNCHANGED, merge
from sparkraft.metadata.image import Topic
from sparkraft.metadata.partition_state import NO_LEADER, RECOVERING, PartitionState
from sparkraft.protocol.messages.metadata_records import PartitionChangeRecord

Ids = tuple[int, ...]


@dataclass(slots=True, kw_only=True)
class Target:
    """What a partition shall become; fields left None stay as they are.

    Attributes:
        isr: replicas in sync.
        replicas: assigned replicas, preferred leader first.
        adding: replicas on their way in.
        removing: replicas on their way out.
        recovery_state: RECOVERED or RECOVERING.
        directories: log directories by replica, where they change.
        kind: rules of the election that may be needed.
        unclean_shutdowns: replicas that may have lost their tail: out of the ELR.
        why_not: what keeps a replica from leading; default: the cluster's present state.
        trigger: why this happens, for the journal.
    """

    isr: Ids | None = None
    replicas: Ids | None = None
    adding: Ids | None = None
    removing: Ids | None = None
    recovery_state: int | None = None
    directories: dict[int, Uuid] = field(default_factory=dict)
    kind: ElectionKind = ElectionKind.ONLINE
    unclean_shutdowns: Ids = ()
    why_not: Callable[[int], str | None] | None = None
    trigger: Trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChange:
    """A record, the partition after it, and the election in it, if there was one."""

    record: VersionedRecord
    partition: PartitionState
    election: Election | None


def change_partition(
    context: DecisionContext, topic: Topic, index: int, target: Target
) -> PartitionChange | None:
    """The record that brings a partition to `target`, or None where nothing changes."""
    return _Builder(context, topic, index, target).build()


class _Builder:
    def __init__(self, context: DecisionContext, topic: Topic, index: int, target: Target) -> None:
        self._context = context
        self._topic = topic
        self._index = index
        self._target = target
        self._old = old = topic.partitions[index]
        self._elr_enabled = context.elr_enabled
        self._isr = old.isr if target.isr is None else target.isr
        self._replicas = old.replicas if target.replicas is None else target.replicas
        self._adding = old.adding_replicas if target.adding is None else target.adding
        self._removing = old.removing_replicas if target.removing is None else target.removing
        self._elr = old.elr
        self._record = PartitionChangeRecord(topic_id=topic.id, partition_id=index)

    def build(self) -> PartitionChange | None:
        self._complete_reassignment()
        self._recompute_elr()
        choice = self._elect()
        self._bump_epoch_if_replicas_left()
        self._write_elr()
        self._write_isr()
        self._bump_epoch_if_isr_shrank()
        self._write_last_known_leader()
        self._write_assignment()
        self._write_recovery_state()
        empty = PartitionChangeRecord(topic_id=self._topic.id, partition_id=self._index)
        if self._record == empty:
            return None
        after = merge(self._old, self._record)
        return PartitionChange(
            record=(self._record, features.partition_version(self._context.metadata_level)),
            partition=after,
            election=self._election(choice, after),
        )

    def _complete_reassignment(self) -> None:
        if not self._adding and not self._removing:
            return
        isr = tuple(r for r in self._isr if r not in self._removing)
        replicas = tuple(r for r in self._replicas if r not in self._removing)
        if not isr or not replicas or any(r not in isr for r in self._adding):
            return
        # Who stays may lag, but where more leave than come, everybody who is left must be in sync.
        fewer = len(self._adding) < len(self._removing)
        if fewer and any(r not in isr for r in replicas):
            return
        self._isr, self._replicas, self._adding, self._removing = isr, replicas, (), ()

    def _recompute_elr(self) -> None:
        if not self._elr_enabled:
            return
        if len(self._isr) >= self._context.min_isr(self._topic):
            self._elr = ()
            return
        candidates = sorted({*self._elr, *self._old.isr})
        gone = self._target.unclean_shutdowns
        self._elr = tuple(
            r for r in candidates if r not in self._isr and r not in gone and r in self._replicas
        )

    def _elect(self) -> Choice:
        last = self._old.last_known_elr
        choice = choose_leader(
            Candidacy(
                kind=self._target.kind,
                replicas=self._replicas,
                isr=self._isr,
                elr=self._elr,
                current_leader=self._old.leader,
                last_known_leader=last[0] if len(last) == 1 else None,
                elr_enabled=self._elr_enabled,
                why_not=self._target.why_not or self._context.why_not_leader(self._old),
            )
        )
        if choice.leader == self._old.leader:
            return choice
        if choice.leader in self._elr:
            self._isr = (choice.leader,)
            self._elr = tuple(r for r in self._elr if r != choice.leader)
        self._record.leader = choice.leader
        if choice.unclean:
            self._record.isr = [choice.leader]
            if self._old.leader_recovery_state != RECOVERING:
                self._record.leader_recovery_state = RECOVERING
        return choice

    def _bump_epoch_if_replicas_left(self) -> None:
        unchanged = self._record.leader == LEADER_UNCHANGED
        if unchanged and any(r not in self._replicas for r in self._old.replicas):
            self._record.leader = self._old.leader

    def _write_elr(self) -> None:
        if self._record.isr is not None or not self._elr_enabled:
            self._elr = ()
        supported = self._context.metadata_level >= features.ELR_LEVEL
        if supported and self._elr != self._old.elr:
            self._record.eligible_leader_replicas = list(self._elr)

    def _write_isr(self) -> None:
        changed = self._record.isr is None and self._isr != self._old.isr
        # Without ELR the last member stays in the ISR: an empty one would forget who had the data.
        if changed and (self._isr or self._elr_enabled):
            self._record.isr = list(self._isr)

    def _bump_epoch_if_isr_shrank(self) -> None:
        if not features.isr_shrink_bumps_leader_epoch(self._context.metadata_level):
            return
        isr = self._record.isr
        unchanged = self._record.leader == LEADER_UNCHANGED
        if unchanged and isr is not None and any(r not in isr for r in self._old.isr):
            self._record.leader = self._old.leader

    def _write_last_known_leader(self) -> None:
        """Remember who led as the leader goes.

        A partition that lost its leader before ELR was enabled kept its last member in the ISR.
        Where that one leaves now, it is remembered: Kafka would know of nobody, and leave the
        partition without a leader for good.
        """
        if not self._elr_enabled:
            return
        if self._record.leader == NO_LEADER and not self._old.last_known_elr:
            self._record.last_known_elr = [self._old.leader]
        elif self._last_one_left() and not self._old.last_known_elr:
            self._record.last_known_elr = list(self._old.isr)
        elif self._record.leader >= 0 and self._old.last_known_elr:
            self._record.last_known_elr = []

    def _last_one_left(self) -> bool:
        nobody_led = self._old.leader == NO_LEADER and self._record.leader == LEADER_UNCHANGED
        return nobody_led and self._record.isr == [] and len(self._old.isr) == 1

    def _write_assignment(self) -> None:
        if self._replicas:
            if self._context.directories_supported:
                directories = self._directories()
                if directories != self._old.directories:
                    self._record.directories = list(directories)
            if self._replicas != self._old.replicas:
                self._record.replicas = list(self._replicas)
        if self._removing != self._old.removing_replicas:
            self._record.removing_replicas = list(self._removing)
        if self._adding != self._old.adding_replicas:
            self._record.adding_replicas = list(self._adding)

    def _directories(self) -> tuple[Uuid, ...]:
        known = dict(zip(self._old.replicas, self._old.directories, strict=True))
        known.update(self._target.directories)
        return tuple(
            known[r] if r in known else self._context.default_directory(r) for r in self._replicas
        )

    def _write_recovery_state(self) -> None:
        wanted = self._target.recovery_state
        if wanted is not None and wanted != self._old.leader_recovery_state:
            self._record.leader_recovery_state = wanted

    def _election(self, choice: Choice, after: PartitionState) -> Election | None:
        if after.leader == self._old.leader:
            return None
        return Election(
            topic=self._topic.name,
            topic_id=self._topic.id,
            partition=self._index,
            previous=self._old.leader,
            leader=after.leader,
            leader_epoch=after.leader_epoch,
            reason=replace(
                choice.reason,
                occasion=self._target.trigger.occasion,
                trigger=self._target.trigger.text,
            ),
        )
