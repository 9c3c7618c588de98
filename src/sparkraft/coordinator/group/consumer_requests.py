"""Check ConsumerGroupHeartbeat, in Kafka's order, and apply its fields to a member."""

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.coordinator.group.consumer_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerMember,
    Partitions,
)
from sparkraft.coordinator.group.decision import Peer
from sparkraft.coordinator.steps import Steps, fast, pieces
from sparkraft.protocol.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
)

if TYPE_CHECKING:
    from sparkraft.base.ids import Uuid

_MEMBER_ID_REQUIRED_FROM = 1


def check_heartbeat(
    request: ConsumerGroupHeartbeatRequest, version: int, assignors: Collection[str]
) -> None:
    """Raise KafkaError (INVALID_REQUEST, UNSUPPORTED_ASSIGNOR) for a malformed heartbeat."""
    joins_without_id = version < _MEMBER_ID_REQUIRED_FROM and request.member_epoch == JOIN_EPOCH
    if not request.member_id and not joins_without_id:
        raise _invalid("MemberId can't be empty.")
    if not request.group_id.strip():
        raise _invalid("GroupId can't be empty.")
    if request.instance_id is not None and not request.instance_id.strip():
        raise _invalid("InstanceId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise _invalid("RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)
    elif request.member_epoch == LEAVE_STATIC_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif request.member_epoch < LEAVE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if not request.subscribed_topic_names and not request.subscribed_topic_regex:
        has_list = request.subscribed_topic_names is not None
        if not has_list and request.subscribed_topic_regex is None:
            raise _invalid(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null "
                "when (re-)joining."
            )


def _invalid(detail: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, detail)


def owned_partitions(request: ConsumerGroupHeartbeatRequest) -> Steps[Partitions | None]:
    """The partitions that the client reports; None if it reports no change."""
    if request.topic_partitions is None:
        return None
    owned: dict[Uuid, frozenset[int]] = {}
    for piece in pieces(request.topic_partitions):
        owned.update((one.topic_id, frozenset(one.partitions)) for one in piece if one.partitions)
        yield len(piece) >> 2
    return owned


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the client repeats everything, as after a lost response (KAFKA-16367)."""
    return (
        request.rebalance_timeout_ms != -1
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
        and request.topic_partitions is not None
    )


def updated_member(
    member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, peer: Peer
) -> ConsumerMember:
    """The member with what the heartbeat changes; a null field changes nothing."""
    names = request.subscribed_topic_names
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=member.server_assignor
        if request.server_assignor is None
        else request.server_assignor,
        subscribed_topics=member.subscribed_topics if names is None else _topics(member, names),
        subscribed_regex=member.subscribed_regex
        if request.subscribed_topic_regex is None
        else request.subscribed_topic_regex,
        client_id=peer.client_id,
        client_host=peer.client_host,
        classic=None,
    )


def _topics(member: ConsumerMember, names: list[str]) -> frozenset[str]:
    """The topics; the same object if the member has them, which is fast to compare."""
    topics = frozenset(names)
    return member.subscribed_topics if topics == member.subscribed_topics else topics


def check_epoch(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> Steps[None]:
    """Raise FENCED_MEMBER_EPOCH unless the client has the member's epoch.

    The previous epoch is accepted too if the client owns nothing that the member does not: the
    response with the new epoch was lost.
    """
    epoch = request.member_epoch
    if epoch == member.member_epoch:
        return
    if epoch > member.member_epoch:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a greater member epoch ({epoch}) than the one known "
            f"by the group coordinator ({member.member_epoch}). The member must abandon all its "
            "partitions and rejoin.",
        )
    owned = yield from owned_partitions(request)
    is_known = owned is not None and all(
        partitions <= member.assigned.get(topic_id, {}).keys()
        for topic_id, partitions in owned.items()
    )
    yield fast(len(owned or ())) << 2
    if epoch != member.previous_member_epoch or not is_known:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a smaller member epoch ({epoch}) than the one known "
            f"by the group coordinator ({member.member_epoch}). The member must abandon all its "
            "partitions and rejoin.",
        )


def checked_holder(
    holder: ConsumerMember | None, request: ConsumerGroupHeartbeatRequest
) -> ConsumerMember:
    """The holder of the request's instance id, which must be the member that sent it."""
    if holder is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown."
        )
    if holder.member_id != request.member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {request.member_id} with instance id {request.instance_id} was "
            f"fenced by member {holder.member_id}.",
        )
    return holder
