"""ListGroups: v0-5. The groups coordinated by this broker. (KIP-518, KIP-848)

Behaviour:
    * Filters by state (v4+) and type (v5+), case-insensitive; an unknown word matches nothing.
    * Groups of other protocols, written by other brokers, are listed with their type.
    * Many groups are listed in slices; each is as it was when its slice was read.
    * While a shard is loading: COORDINATOR_LOAD_IN_PROGRESS, as the list would be incomplete.
Versions: v1 throttle; v3 flexible; v4 state; v5 type.    Not done: -
"""

from collections.abc import Awaitable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.coordinator.group.describe import ListFilter
from sparkraft.coordinator.steps import pieces
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import encode_parts
from sparkraft.protocol.messages.k16_list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.encoded_array import EncodedArray
from sparkraft.server.api.registry import Api, RequestContext, Steps
from sparkraft.server.coordinator.responses import Response

if TYPE_CHECKING:
    from sparkraft.coordinator.group.shard import GroupShard
    from sparkraft.coordinator.runtime import Instant
    from sparkraft.server.broker_services import BrokerServices

T = TypeVar("T")

_DESCRIBE = AclOperation.DESCRIBE


def handle(broker: "BrokerServices", context: RequestContext, request: ListGroupsRequest) -> Steps:
    """Read from every shard led here, in slices; returns the encoded response."""
    wanted = ListFilter.of(request)
    sees_all = context.is_allowed(_DESCRIBE, AclResourceType.CLUSTER, logs=False)
    listed = EncodedArray(ListGroupsResponse, context.api_version)
    for runtime in list(broker.groups.loaded_shards()):
        try:
            for piece in pieces((yield from _awaited(runtime.execute_read(_group_ids)))):
                read = runtime.execute_read(partial(_list_groups, piece, wanted))
                for group in (yield from _awaited(read)):
                    if sees_all or context.is_allowed(
                        _DESCRIBE, AclResourceType.GROUP, group.group_id, logs=False
                    ):
                        listed.add(group)
                yield len(piece)
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_COORDINATOR:
                raise
            # This broker has resigned meanwhile: the next coordinator lists the rest.
    return encode_parts(ListGroupsResponse(groups=listed.encoded()), context.api_version)


def _group_ids(shard: "GroupShard", _: "Instant") -> list[str]:
    return shard.group_ids()


def _list_groups(
    group_ids: list[str], wanted: ListFilter, shard: "GroupShard", now: "Instant"
) -> list[ListedGroup]:
    return shard.list_groups(group_ids, wanted, now)


def _awaited(response: Response[T]) -> "Generator[Any, Any, T]":
    return (yield response) if isinstance(response, Awaitable) else response


API = Api(
    key=ApiKey.LIST_GROUPS,
    handle=handle,
    authorize=(
        on_each(AclOperation.DESCRIBE, AclResourceType.CLUSTER, when="it lists every group"),
        on_each(
            AclOperation.DESCRIBE, AclResourceType.GROUP, when="DESCRIBE on the cluster is denied"
        ),
    ),
)
