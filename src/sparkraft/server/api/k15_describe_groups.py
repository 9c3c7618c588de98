"""DescribeGroups: v0-6. Members and assignments of classic groups. (KIP-345, KIP-430, KIP-1043)

Behaviour:
    * An unknown group, or one of another protocol: state Dead; from v6 GROUP_ID_NOT_FOUND.
    * Metadata and assignor only in state Stable.
    * A group named repeatedly is described repeatedly, from one encoding.
Versions: v1 throttle; v3 authorized operations; v4 instance ids; v5 flexible; v6 errors.
Not done: -
"""

from collections.abc import Awaitable, Generator
from typing import TYPE_CHECKING, Any, cast

from sparkraft.base.errors import KafkaError
from sparkraft.coordinator.runtime import Decision
from sparkraft.coordinator.steps import begun
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import Encoded, encode_elements, encode_parts
from sparkraft.protocol.messages.k15_describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.encoded_array import encoded_in_pieces
from sparkraft.server.api.item_errors import check_group
from sparkraft.server.api.registry import Api, RequestContext, Steps
from sparkraft.server.broker.cluster_view import GROUP_OPERATIONS
from sparkraft.server.coordinator.responses import Response, catch_error

if TYPE_CHECKING:
    from sparkraft.coordinator.group.decision import GroupDecision
    from sparkraft.coordinator.group.shard import GroupShard
    from sparkraft.coordinator.steps import Deciding
    from sparkraft.coordinator.steps import Steps as CoreSteps
    from sparkraft.server.broker_services import BrokerServices

_AUTHORIZED_OPERATIONS_FROM = 3


def handle(
    broker: "BrokerServices", context: RequestContext, request: DescribeGroupsRequest
) -> Steps:
    """Read from the shard of each group; returns the encoded response."""
    shows_operations = (
        request.include_authorized_operations and context.api_version >= _AUTHORIZED_OPERATIONS_FROM
    )
    known: dict[str, bytes] = {}
    buffers: list[bytes] = []
    for group_id in request.groups:
        piece = known.get(group_id)
        if piece is None:
            described = _describe(broker, context, group_id)
            group = (yield described) if isinstance(described, Awaitable) else described
            if shows_operations and not group.error_code:
                group.authorized_operations = context.allowed_operations(
                    GROUP_OPERATIONS, AclResourceType.GROUP, group.group_id
                )
            piece = known[group_id] = yield from _encoded(group, context.api_version)
        buffers.append(piece)
        yield 1
    response = DescribeGroupsResponse(groups=cast("Any", Encoded(len(buffers), buffers)))
    return encode_parts(response, context.api_version)


def _describe(
    broker: "BrokerServices", context: RequestContext, group_id: str
) -> Response[DescribedGroup]:
    version = context.api_version

    def read() -> Response[DescribedGroup]:
        check_group(context, AclOperation.DESCRIBE, group_id)
        return broker.groups.shard_for(group_id).execute_write(
            lambda shard, _: _deciding(shard, group_id, version)
        )

    return catch_error(
        read,
        lambda error: DescribedGroup(group_id=group_id, error_code=error.code),
    )


def _deciding(
    shard: "GroupShard", group_id: str, version: int
) -> "Deciding[GroupDecision[DescribedGroup]]":
    """A decision without records: the group must not change while it is read."""

    def described() -> "CoreSteps[GroupDecision[DescribedGroup]]":
        return Decision(response=(yield from shard.describe_group(group_id, version)))

    return begun(described())


def _encoded(group: DescribedGroup, version: int) -> "Generator[int, Any, bytes]":
    members = yield from encoded_in_pieces(DescribeGroupsResponse, version, group.members)
    group.members = members
    yield 5
    return encode_elements(DescribeGroupsResponse, version, (group,))


def refuse(_: type, request: DescribeGroupsRequest, version: int, error: KafkaError) -> Steps:
    """Every group with the request's error."""
    groups = (DescribedGroup(group_id=one, error_code=error.code) for one in request.groups)
    encoded = yield from encoded_in_pieces(DescribeGroupsResponse, version, groups)
    return DescribeGroupsResponse(groups=encoded)


API = Api(
    key=ApiKey.DESCRIBE_GROUPS,
    handle=handle,
    authorize=(on_each(AclOperation.DESCRIBE, AclResourceType.GROUP),),
    refuse=refuse,
)
