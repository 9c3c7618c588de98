"""DescribeGroups: v0-6. Members of classic groups, and their share. (KIP-345, KIP-430, KIP-1043)

Behaviour:
    * A group that is not there, or of another protocol: state Dead; from v6 GROUP_ID_NOT_FOUND.
    * Metadata and assignor only in state Stable.
Versions: v1 throttle; v3 authorized operations; v4 instance ids; v5 flexible; v6 errors.
Not done: -
"""

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k15_describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.broker.cluster_view import GROUP_OPERATIONS
from sparkraft.server.coordinator.answers import is_later, when_all

if TYPE_CHECKING:
    from sparkraft.server.broker.services import BrokerServices

_AUTHORIZED_OPERATIONS_FROM = 3


def handle(
    broker: "BrokerServices", context: RequestContext, request: DescribeGroupsRequest
) -> Any:
    """Ask the shard of each group."""
    operations = None
    if request.include_authorized_operations and context.api_version >= _AUTHORIZED_OPERATIONS_FROM:
        operations = GROUP_OPERATIONS

    def respond(found: list[DescribedGroup]) -> DescribeGroupsResponse:
        for group in found:
            if operations is not None and not group.error_code:
                group.authorized_operations = operations
        return DescribeGroupsResponse(groups=found)

    return when_all([_describe(broker, context, one) for one in request.groups], respond)


def _describe(broker: "BrokerServices", context: RequestContext, group_id: str) -> Any:
    try:
        shard = broker.groups.shard_of(group_id)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code)
    version = context.api_version
    answer = shard.read(lambda core, _: core.describe_groups([group_id], version)[0])
    return _or_error(answer, group_id) if is_later(answer) else answer


async def _or_error(answer: Any, group_id: str) -> Any:
    try:
        return await answer
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code)


def refuse(
    _: type, request: DescribeGroupsRequest, _version: int, error: KafkaError
) -> DescribeGroupsResponse:
    """Every group with the request's error."""
    return DescribeGroupsResponse(
        groups=[
            DescribedGroup(group_id=one, error_code=ErrorCode(error.code)) for one in request.groups
        ]
    )


API = Api(
    key=ApiKey.DESCRIBE_GROUPS,
    handle=handle,
    authorize=(on_each(AclOperation.DESCRIBE, AclResourceType.GROUP),),
    refuse=refuse,
)
