"""DeleteGroups: v0-2. Remove groups without members, with their offsets. (KIP-229)

Behaviour:
    * With members: NON_EMPTY_GROUP; not there: GROUP_ID_NOT_FOUND.
    * Answered when the tombstones are durable.
Versions: v2 flexible.    Not done: -
"""

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k42_delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.coordinator.answers import is_later, when_all

if TYPE_CHECKING:
    from sparkraft.server.broker.services import BrokerServices


def handle(broker: "BrokerServices", _: RequestContext, request: DeleteGroupsRequest) -> Any:
    """Ask the shard of each group, once for each id."""
    ids = list(dict.fromkeys(request.groups_names))
    answers = [_delete(broker, one) for one in ids]
    return when_all(answers, lambda results: DeleteGroupsResponse(results=results))


def _delete(broker: "BrokerServices", group_id: str) -> Any:
    try:
        shard = broker.groups.shard_of(group_id)
        answer = shard.ask(lambda core, now: core.handle_delete_group(group_id, now))
    except KafkaError as error:
        return DeletableGroupResult(group_id=group_id, error_code=error.code)
    return _or_error(answer, group_id) if is_later(answer) else answer


async def _or_error(answer: Any, group_id: str) -> Any:
    try:
        return await answer
    except KafkaError as error:
        return DeletableGroupResult(group_id=group_id, error_code=error.code)


def refuse(
    _: type, request: DeleteGroupsRequest, _version: int, error: KafkaError
) -> DeleteGroupsResponse:
    """Every group with the request's error."""
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=one, error_code=error.code)
            for one in request.groups_names
        ]
    )


API = Api(
    key=ApiKey.DELETE_GROUPS,
    handle=handle,
    authorize=(on_each(AclOperation.DELETE, AclResourceType.GROUP),),
    refuse=refuse,
)
