"""ConsumerGroupDescribe: v0-1. Epochs, members and assignments of consumer groups. (KIP-848)

Behaviour:
    * An unknown group, or one of another type: GROUP_ID_NOT_FOUND; an empty id: INVALID_GROUP_ID.
    * Any assigned topic that the client may not describe: TOPIC_AUTHORIZATION_FAILED for the group.
    * Responds once the state it shows is committed; Kafka shows the last committed state.
    * group.version 0, or `consumer` not among group.coordinator.rebalance.protocols:
      UNSUPPORTED_VERSION.
Versions: v1 the members' type.    Not done: -
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.coordinator.group.consumer_describe import described_topics
from sparkraft.metadata.features import GROUP_VERSION
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k69_consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.item_errors import check_group
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.broker.cluster_view import GROUP_OPERATIONS
from sparkraft.server.coordinator.requests import check_group_id
from sparkraft.server.coordinator.responses import Response, catch_error, map_responses

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices


def handle(
    broker: "BrokerServices", context: RequestContext, request: ConsumerGroupDescribeRequest
) -> Response[ConsumerGroupDescribeResponse]:
    """Read from the shard of each group."""
    if not broker.image.features.get(GROUP_VERSION) or not broker.groups.serves_consumer_protocol:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)

    def respond(found: list[DescribedGroup]) -> ConsumerGroupDescribeResponse:
        for group in found:
            if request.include_authorized_operations and not group.error_code:
                group.authorized_operations = context.allowed_operations(
                    GROUP_OPERATIONS, AclResourceType.GROUP, group.group_id
                )
        groups = [_visible(context, group) for group in found]
        return ConsumerGroupDescribeResponse(groups=groups)

    return map_responses([_describe(broker, context, one) for one in request.group_ids], respond)


def _describe(
    broker: "BrokerServices", context: RequestContext, group_id: str
) -> Response[DescribedGroup]:
    def read() -> Response[DescribedGroup]:
        check_group(context, AclOperation.DESCRIBE, group_id)
        check_group_id(group_id)
        return broker.groups.shard_for(group_id).execute_read(
            lambda shard, _: shard.describe_consumer_group(group_id)
        )

    return catch_error(
        read,
        lambda error: DescribedGroup(
            group_id=group_id, error_code=error.code, error_message=error.detail or None
        ),
    )


def _visible(context: RequestContext, group: DescribedGroup) -> DescribedGroup:
    """The group, or an error if it reveals a topic that the client may not describe."""
    if all(
        context.is_allowed(AclOperation.DESCRIBE, AclResourceType.TOPIC, topic)
        for topic in described_topics(group)
    ):
        return group
    return DescribedGroup(
        group_id=group.group_id,
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        error_message="The group has described topic(s) that the client is not authorized to "
        "describe.",
    )


def refuse(
    _: type, request: ConsumerGroupDescribeRequest, _version: int, error: KafkaError
) -> ConsumerGroupDescribeResponse:
    """Every group with the request's error."""
    return ConsumerGroupDescribeResponse(
        groups=[DescribedGroup(group_id=one, error_code=error.code) for one in request.group_ids]
    )


API = Api(
    key=ApiKey.CONSUMER_GROUP_DESCRIBE,
    handle=handle,
    authorize=(
        on_each(AclOperation.DESCRIBE, AclResourceType.GROUP),
        on_each(AclOperation.DESCRIBE, AclResourceType.TOPIC),
    ),
    refuse=refuse,
)
