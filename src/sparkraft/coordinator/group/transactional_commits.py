"""TxnOffsetCommit: offsets that count once their transaction commits (KIP-98, KIP-447).

The records carry the producer id of the transaction; `offsets.py` keeps them pending until its
marker. A request without member, generation and instance id (before v3) is not checked against the
group. Unlike OffsetCommit, it is accepted while members wait for their assignment.

Not here: the transaction (`server.coordinator.guarded_appends`), the topics (the API file).
"""

from collections.abc import Mapping

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.coordinator.group.config import GroupConfig
from sparkraft.coordinator.group.consumer_group import ConsumerGroup
from sparkraft.coordinator.group.decision import GroupDecision
from sparkraft.coordinator.group.group import Group
from sparkraft.coordinator.group.records import GroupRecord
from sparkraft.coordinator.runtime import Decision, Instant, ProducerEpoch
from sparkraft.coordinator.steps import Steps, pieces
from sparkraft.protocol.messages.classic_group_records import OffsetCommitKey, OffsetCommitValue
from sparkraft.protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


def commit_in_transaction(
    request: TxnOffsetCommitRequest,
    topic_ids: Mapping[str, Uuid],
    groups: Mapping[str, Group],
    config: GroupConfig,
    now: Instant,
) -> Steps[GroupDecision[TxnOffsetCommitResponse]]:
    """Write one pending record for each accepted partition.

    Args:
        request: its topics and partitions exist.
        topic_ids: of the request's topics.
        groups: the shard's.
        config: of the groups.
        now: the current time.

    Raises:
        KafkaError: ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    group = groups.get(request.group_id)
    _check_member(request, group, now)
    if isinstance(group, ConsumerGroup):
        yield from _check_partitions(request, topic_ids, group, config.offset_metadata_max_chars)
    records: list[GroupRecord] = []
    topics: list[TxnOffsetCommitResponseTopic] = []
    for topic in request.topics:
        committed = TxnOffsetCommitResponseTopic(name=topic.name)
        topics.append(committed)
        for partition in topic.partitions:
            error = ErrorCode.NONE
            if len(partition.committed_metadata or "") > config.offset_metadata_max_chars:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                key = OffsetCommitKey(
                    group=request.group_id, topic=topic.name, partition=partition.partition_index
                )
                records.append(_record(key, partition, config, now))
            committed.partitions.append(
                TxnOffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=error
                )
            )
            yield 1
    return Decision(
        records=tuple(records),
        producer=ProducerEpoch(request.producer_id, request.producer_epoch),
        response=TxnOffsetCommitResponse(topics=topics),
    )


def _check_member(request: TxnOffsetCommitRequest, group: Group | None, now: Instant) -> None:
    generation_id = request.generation_id
    if group is None:
        if generation_id >= 0:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return
    if generation_id < 0 and not request.member_id and request.group_instance_id is None:
        return
    try:
        group.check_commit(request.member_id, request.group_instance_id, generation_id, now)
    except KafkaError as error:
        if error.code is ErrorCode.STALE_MEMBER_EPOCH:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.detail) from error
        if error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
            raise


def _check_partitions(
    request: TxnOffsetCommitRequest,
    topic_ids: Mapping[str, Uuid],
    group: ConsumerGroup,
    metadata_max_chars: int,
) -> Steps[None]:
    """Refuse a member whose epoch is older than its assignment of a partition (KIP-1251).

    As for OffsetCommit, a partition whose metadata is too long is not checked.
    """
    for topic in request.topics:
        for piece in pieces(topic.partitions):
            for partition in piece:
                if len(partition.committed_metadata or "") > metadata_max_chars:
                    continue
                try:
                    group.check_partition(
                        request.member_id,
                        request.generation_id,
                        topic_ids[topic.name],
                        partition.partition_index,
                    )
                except KafkaError as error:
                    raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.detail) from error
            yield len(piece) >> 2


def _record(
    key: OffsetCommitKey,
    partition: TxnOffsetCommitRequestPartition,
    config: GroupConfig,
    now: Instant,
) -> GroupRecord:
    """Without a topic id, as Kafka's OffsetAndMetadata.fromRequest writes it."""
    return GroupRecord(
        key=key,
        value=OffsetCommitValue(
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=partition.committed_metadata or "",
            commit_timestamp=now.wall_ms,
            expire_timestamp=-1,
        ),
        value_version=config.offset_commit_value_version,
    )
