"""ListGroups: v0-5. The groups coordinated by this broker. (KIP-518, KIP-848)

Behaviour:
    * Filters by state (v4+) and type (v5+), case-insensitive; an unknown word matches nothing.
    * Groups of other protocols, written by other brokers, are listed with their type.
    * While a shard is loading: COORDINATOR_LOAD_IN_PROGRESS, as the list would be incomplete.
Versions: v1 throttle; v3 flexible; v4 state; v5 type.    Not done: -
"""

from typing import TYPE_CHECKING

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k16_list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.coordinator.responses import Response, map_responses

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices


_DESCRIBE = AclOperation.DESCRIBE


def handle(
    broker: "BrokerServices", context: RequestContext, request: ListGroupsRequest
) -> Response[ListGroupsResponse]:
    """Read from every shard led here."""
    listed = [
        runtime.execute_read(lambda shard, now: shard.list_groups(request, now))
        for runtime in broker.groups.loaded_shards()
    ]
    return map_responses(listed, lambda found: _joined(context, found))


def _joined(context: RequestContext, found: list[list[ListedGroup]]) -> ListGroupsResponse:
    """The groups that the client may describe."""
    groups = [group for groups in found for group in groups]
    if not context.is_allowed(_DESCRIBE, AclResourceType.CLUSTER, logs=False):
        groups = [
            group
            for group in groups
            if context.is_allowed(_DESCRIBE, AclResourceType.GROUP, group.group_id, logs=False)
        ]
    return ListGroupsResponse(groups=groups)


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
