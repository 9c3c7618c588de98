"""The requests of a transaction: values that clients with and without an event loop send (KIP-98).

Not here: sending and repeating them, and the choice of a flow (`transactional_id` with an event
loop, `sparkraft.pipeline.transactions` without).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import by_topic
from sparkraft.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sparkraft.base.ids import TopicPartition
    from sparkraft.client.values import Committed, GroupMetadata
    from sparkraft.protocol.messages.k22_init_producer_id import InitProducerIdRequest
    from sparkraft.protocol.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest
    from sparkraft.protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
    from sparkraft.protocol.messages.k26_end_txn import EndTxnRequest
    from sparkraft.protocol.messages.k28_txn_offset_commit import TxnOffsetCommitRequest

    Producer = tuple[int, int]

NO_PRODUCER: Final = (-1, -1)
"""Producer id and epoch before the first InitProducerId."""

V1_MAX: Final[Mapping[ApiKey, int]] = {
    ApiKey.PRODUCE: 11,
    ApiKey.INIT_PRODUCER_ID: 5,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 4,
    ApiKey.END_TXN: 4,
    ApiKey.TXN_OFFSET_COMMIT: 4,
}
"""Highest versions in the flow of transaction.version below 2. Higher ones select the other flow or
two-phase commit (KIP-939)."""

ADD_BACKOFF_MS: Final = 20
"""Before the second attempt to add something to a transaction: the markers of the last transaction
are on their way. Kafka's ADD_PARTITIONS_RETRY_BACKOFF_MS."""


def init_producer_id(
    name: str, *, timeout_ms: int, current: Producer = NO_PRODUCER
) -> InitProducerIdRequest:
    """Take an id over, or raise the epoch of its `current` producer (KIP-360)."""
    from sparkraft.protocol.messages import k22_init_producer_id as message

    return message.InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=timeout_ms,
        producer_id=current[0],
        producer_epoch=current[1],
    )


def add_partitions(
    name: str, producer: Producer, partitions: Collection[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """Make partitions a part of the transaction, which the first ones begin."""
    from sparkraft.protocol.messages import k24_add_partitions_to_txn as message

    return message.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[
            message.AddPartitionsToTxnTopic(name=topic, partitions=numbers)
            for topic, numbers in by_topic(partitions).items()
        ],
    )


def added_partitions(answer: Any) -> list[tuple[int, str]]:
    """The error code and name of each partition in a response, the reason of a refusal first."""
    codes = [
        (each.partition_error_code, f"{topic.name}-{each.partition_index}")
        for topic in answer.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    ]
    # Partitions that were not attempted do not show the reason.
    return sorted(codes, key=lambda each: each[0] == ErrorCode.OPERATION_NOT_ATTEMPTED)


def add_offsets(name: str, producer: Producer, group_id: str) -> AddOffsetsToTxnRequest:
    """Make a group's partition of offsets a part of the transaction."""
    from sparkraft.protocol.messages import k25_add_offsets_to_txn as message

    return message.AddOffsetsToTxnRequest(
        transactional_id=name,
        producer_id=producer[0],
        producer_epoch=producer[1],
        group_id=group_id,
    )


def commit_offsets(
    name: str,
    producer: Producer,
    offsets: Mapping[TopicPartition, Committed],
    group: GroupMetadata,
) -> TxnOffsetCommitRequest:
    """Store a group's offsets, which it sees once the transaction is committed.

    Kafka checks the generation only of a group with a member (KIP-447).
    """
    from sparkraft.protocol.messages import k28_txn_offset_commit as message

    return message.TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=group.group_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        generation_id=group.generation,
        member_id=group.member_id,
        group_instance_id=group.instance_id,
        topics=[
            message.TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    message.TxnOffsetCommitRequestPartition(
                        partition_index=number,
                        committed_offset=offsets[topic, number].offset,
                        committed_leader_epoch=offsets[topic, number].leader_epoch,
                        committed_metadata=offsets[topic, number].metadata,
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(offsets).items()
        ],
    )


def end(name: str, producer: Producer, *, committed: bool) -> EndTxnRequest:
    """Commit or abort the transaction."""
    from sparkraft.protocol.messages import k26_end_txn as message

    return message.EndTxnRequest(
        transactional_id=name,
        producer_id=producer[0],
        producer_epoch=producer[1],
        committed=committed,
    )
