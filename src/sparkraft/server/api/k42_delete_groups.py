"""DeleteGroups: v0-2. Delete groups without members and their offsets. (KIP-229)

Behaviour:
    * With members: NON_EMPTY_GROUP; unknown: GROUP_ID_NOT_FOUND.
    * The response is sent once the tombstones are committed. As in Kafka, those of a group
      with very many offsets are several batches.
Versions: v2 flexible.    Not done: -
"""

from collections import deque
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING

from sparkraft.base.errors import KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k42_delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.encoded_array import encoded_in_pieces
from sparkraft.server.api.item_errors import check_group
from sparkraft.server.api.registry import Api, RequestContext, Steps
from sparkraft.server.controller.audit import Names, log_names
from sparkraft.server.coordinator.responses import Response, catch_error

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices


def handle(
    broker: "BrokerServices", context: RequestContext, request: DeleteGroupsRequest
) -> Steps:
    """Delete each group once, in its shard; all of them are written before the first response."""
    waiting: deque[Response[DeletableGroupResult]] = deque()
    results = []
    deleted = Names()
    try:
        for group_id in dict.fromkeys(request.groups_names):
            waiting.append(_delete(broker, context, group_id))
            yield 5
        while waiting:
            result = waiting.popleft()
            results.append((yield result) if isinstance(result, Awaitable) else result)
            if not results[-1].error_code:
                deleted.add(results[-1].group_id)
            yield 1
    finally:
        for result in waiting:  # the client is gone
            if isinstance(result, Coroutine):
                result.close()
        log_names(context, "deleted groups", deleted)
    return DeleteGroupsResponse(results=results)


def _delete(
    broker: "BrokerServices", context: RequestContext, group_id: str
) -> Response[DeletableGroupResult]:
    def write() -> Response[DeletableGroupResult]:
        check_group(context, AclOperation.DELETE, group_id)
        return broker.groups.shard_for(group_id).execute_write(
            lambda shard, now: shard.handle_delete_group(group_id, now)
        )

    return catch_error(
        write,
        lambda error: DeletableGroupResult(group_id=group_id, error_code=error.code),
    )


def refuse(_: type, request: DeleteGroupsRequest, version: int, error: KafkaError) -> Steps:
    """Every group with the request's error."""
    groups = (
        DeletableGroupResult(group_id=one, error_code=error.code) for one in request.groups_names
    )
    encoded = yield from encoded_in_pieces(DeleteGroupsResponse, version, groups)
    return DeleteGroupsResponse(results=encoded)


API = Api(
    key=ApiKey.DELETE_GROUPS,
    handle=handle,
    authorize=(on_each(AclOperation.DELETE, AclResourceType.GROUP),),
    refuse=refuse,
)
