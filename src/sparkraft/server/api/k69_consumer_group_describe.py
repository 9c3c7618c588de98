"""ConsumerGroupDescribe: v0-1. Epochs, members and assignments of consumer groups. (KIP-848)

Behaviour:
    * An unknown group, or one of another type: GROUP_ID_NOT_FOUND; an empty id: INVALID_GROUP_ID.
    * Any assigned topic that the client may not describe: TOPIC_AUTHORIZATION_FAILED for the group.
    * Responds once the state it shows is committed; Kafka shows the last committed state.
    * group.version 0, or `consumer` not among group.coordinator.rebalance.protocols:
      UNSUPPORTED_VERSION.
Versions: v1 the members' type.    Not done: -
"""

from collections.abc import Awaitable, Generator
from typing import TYPE_CHECKING, Any, cast

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.coordinator.runtime import Decision
from sparkraft.coordinator.steps import fast, pieces
from sparkraft.metadata.features import GROUP_VERSION
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import Encoded, encode_element_parts, encode_parts
from sparkraft.protocol.messages.k69_consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.encoded_array import EncodedArray, encoded_in_pieces
from sparkraft.server.api.item_errors import check_group
from sparkraft.server.api.registry import Api, RequestContext, Steps
from sparkraft.server.broker.cluster_view import GROUP_OPERATIONS
from sparkraft.server.coordinator.requests import check_group_id
from sparkraft.server.coordinator.responses import Response, catch_error

if TYPE_CHECKING:
    from sparkraft.coordinator.group.decision import GroupDecision
    from sparkraft.coordinator.group.shard import GroupShard
    from sparkraft.coordinator.steps import Steps as CoreSteps
    from sparkraft.server.broker_services import BrokerServices


def handle(
    broker: "BrokerServices", context: RequestContext, request: ConsumerGroupDescribeRequest
) -> Steps:
    """Read from the shard of each group; returns the encoded response."""
    if not broker.image.features.get(GROUP_VERSION) or not broker.groups.serves_consumer_protocol:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    known: dict[str, list[bytes | memoryview]] = {}
    count = 0
    buffers: list[bytes | memoryview] = []
    for group_id in request.group_ids:
        if group_id not in known:
            described = _describe(broker, context, group_id)
            group = (yield described) if isinstance(described, Awaitable) else described
            if request.include_authorized_operations and not group.error_code:
                group.authorized_operations = context.allowed_operations(
                    GROUP_OPERATIONS, AclResourceType.GROUP, group.group_id
                )
            known[group_id] = yield from _encode(context, group)
        buffers += known[group_id]
        count += 1
        yield 1
    response = ConsumerGroupDescribeResponse(groups=cast("Any", Encoded(count, buffers)))
    return encode_parts(response, context.api_version)


def _describe(
    broker: "BrokerServices", context: RequestContext, group_id: str
) -> Response[DescribedGroup]:
    def read() -> Response[DescribedGroup]:
        check_group(context, AclOperation.DESCRIBE, group_id)
        check_group_id(group_id)
        return broker.groups.shard_for(group_id).execute_write(
            lambda shard, _: _deciding(shard, group_id)
        )

    return catch_error(
        read,
        lambda error: DescribedGroup(
            group_id=group_id, error_code=error.code, error_message=error.detail or None
        ),
    )


def _deciding(shard: "GroupShard", group_id: str) -> "CoreSteps[GroupDecision[DescribedGroup]]":
    """A decision without records: the group must not change while it is read."""
    return Decision(response=(yield from shard.describe_consumer_group(group_id)))


def _encode(
    context: RequestContext, group: DescribedGroup
) -> "Generator[int, Any, list[bytes | memoryview]]":
    """The group, or an error if it reveals a topic that the client may not describe."""
    version = context.api_version
    members = EncodedArray(ConsumerGroupDescribeResponse, version)
    for member in group.members:
        if not (yield from _may_see(context, member)):
            group = DescribedGroup(
                group_id=group.group_id,
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                error_message="The group has described topic(s) that the client is not "
                "authorized to describe.",
            )
            return encode_element_parts(ConsumerGroupDescribeResponse, version, (group,))
        yield from _encode_topics(member, version)
        members.add(member)
        yield 5
    group.members = members.encoded()
    yield 5
    return encode_element_parts(ConsumerGroupDescribeResponse, version, (group,))


def _may_see(context: RequestContext, member: Member) -> "Generator[int, Any, bool]":
    for assignment in (member.assignment, member.target_assignment):
        for piece in pieces(assignment.topic_partitions):
            for topic in piece:
                if not context.is_allowed(
                    AclOperation.DESCRIBE, AclResourceType.TOPIC, topic.topic_name
                ):
                    return False
            yield len(piece) // 4
    return True


def _encode_topics(member: Member, version: int) -> Steps:
    """The topics of its assignments, in pieces."""
    for assignment in (member.assignment, member.target_assignment):
        topics = EncodedArray(ConsumerGroupDescribeResponse, version)
        for piece in pieces(assignment.topic_partitions):
            for topic in piece:
                topics.add(topic)
            yield len(piece)
        assignment.topic_partitions = topics.encoded()
    yield fast(len(member.subscribed_topic_names))


def refuse(
    _: type, request: ConsumerGroupDescribeRequest, version: int, error: KafkaError
) -> Steps:
    """Every group with the request's error."""
    groups = (DescribedGroup(group_id=one, error_code=error.code) for one in request.group_ids)
    encoded = yield from encoded_in_pieces(ConsumerGroupDescribeResponse, version, groups)
    return ConsumerGroupDescribeResponse(groups=encoded)


API = Api(
    key=ApiKey.CONSUMER_GROUP_DESCRIBE,
    handle=handle,
    authorize=(
        on_each(AclOperation.DESCRIBE, AclResourceType.GROUP),
        on_each(AclOperation.DESCRIBE, AclResourceType.TOPIC),
    ),
    refuse=refuse,
)
