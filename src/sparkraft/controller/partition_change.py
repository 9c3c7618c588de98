"""One partition's change as a metadata record: the edge between the rules and the log.

`partition_rules` decides the partition's next state; `record_of` writes the difference as a
PartitionChangeRecord, as Kafka's PartitionChangeBuilder does: only fields that change are set.
"""

from dataclasses import dataclass, replace

from sparkraft.base.ids import Uuid
from sparkraft.controller.decision import VersionedRecord
from sparkraft.controller.decision_context import DecisionContext
from sparkraft.controller.leader_election import Cause, Election
from sparkraft.controller.partition_rules import ClusterFacts, Target, Transition, next_state
from sparkraft.metadata import features
from sparkraft.metadata.image import DIRECTORY_MIGRATING, Topic
from sparkraft.metadata.partition_state import PartitionState
from sparkraft.protocol.messages.metadata_records import PartitionChangeRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChange:
    """A record, the partition's state after it, and the election in it, if there was one."""

    record: VersionedRecord
    partition: PartitionState
    election: Election | None


def change_partition(
    context: DecisionContext, topic: Topic, index: int, target: Target
) -> PartitionChange | None:
    """Change a partition to `target`; None if that changes nothing."""
    before = topic.partitions[index]
    transition = next_state(before, target, _facts(context, topic, before, target))
    if not transition.changed:
        return None
    level = context.metadata_level
    return PartitionChange(
        record=(
            record_of(transition, topic.id, index, level=level),
            features.partition_version(level),
        ),
        partition=transition.after,
        election=_election_of(transition, topic, index, target.cause),
    )


def _facts(
    context: DecisionContext, topic: Topic, partition: PartitionState, target: Target
) -> ClusterFacts:
    level, elr_enabled = context.metadata_level, context.elr_enabled
    return ClusterFacts(
        why_not=target.why_not or context.why_not_leader(partition),
        min_isr=context.min_isr(topic) if elr_enabled else 1,
        elr_enabled=elr_enabled,
        elr_stored=level >= features.ELR_LEVEL,
        # Brokers in ZooKeeper mode rely on it, whatever the level (KAFKA-15109).
        shrink_bumps_leader_epoch=(
            features.isr_shrink_bumps_leader_epoch(level) or context.is_migrating
        ),
        directory_of_new=(
            context.default_directory if context.directories_supported else _migrating
        ),
    )


def _migrating(_: int) -> Uuid:
    return DIRECTORY_MIGRATING


def record_of(
    transition: Transition, topic_id: Uuid, index: int, *, level: int
) -> PartitionChangeRecord:
    """Make the record that turns `transition.before` into `transition.after`.

    `level` is the finalized metadata.version; directories are not stored at the lower ones.
    """
    before, after = transition.before, transition.after
    record = PartitionChangeRecord(topic_id=topic_id, partition_id=index)
    if after.leader_epoch != before.leader_epoch:
        record.leader = after.leader
    # Kafka writes the ISR of an unclean leader even if it stays the same.
    if after.isr != before.isr or transition.elected_uncleanly:
        record.isr = list(after.isr)
    if after.elr != before.elr:
        record.eligible_leader_replicas = list(after.elr)
    if after.last_known_elr != before.last_known_elr:
        record.last_known_elr = list(after.last_known_elr)
    if after.directories != before.directories and level >= features.DIRECTORIES_LEVEL:
        record.directories = list(after.directories)
    if after.replicas != before.replicas:
        record.replicas = list(after.replicas)
    if after.removing_replicas != before.removing_replicas:
        record.removing_replicas = list(after.removing_replicas)
    if after.adding_replicas != before.adding_replicas:
        record.adding_replicas = list(after.adding_replicas)
    if after.leader_recovery_state != before.leader_recovery_state:
        record.leader_recovery_state = after.leader_recovery_state
    return record


def _election_of(transition: Transition, topic: Topic, index: int, cause: Cause) -> Election | None:
    before, after = transition.before, transition.after
    if after.leader == before.leader:
        return None
    return Election(
        topic=topic.name,
        topic_id=topic.id,
        partition=index,
        previous=before.leader,
        leader=after.leader,
        leader_epoch=after.leader_epoch,
        reason=replace(transition.choice.reason, cause=cause),
    )
