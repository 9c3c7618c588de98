"""DeleteAcls: v1-3. Delete the access control entries that match filters. (KIP-140, KIP-290)

Behaviour:
    * A broker forwards it to the active controller.
    * Without an authorizer: SECURITY_DISABLED for each filter.
    * Each filter is checked on its own: INVALID_REQUEST. Two filters may report the same entry.
    * More than 10,000 entries: INVALID_REQUEST for all filters, and nothing is deleted.
Versions: v2 flexible; v3 user principals.    Not done: -
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k31_delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.encoded_array import encoded_in_pieces
from sparkraft.server.api.k30_create_acls import WITHOUT_AUTHORIZER
from sparkraft.server.api.registry import Api, RequestContext, Steps
from sparkraft.server.controller.submission import set_error, submit_to_controller

if TYPE_CHECKING:
    from sparkraft.server.controller.services import ControllerServices


async def handle(
    node: "ControllerServices", context: RequestContext, request: DeleteAclsRequest
) -> DeleteAclsResponse:
    if not node.config.has_authorizer:
        raise KafkaError(*WITHOUT_AUTHORIZER)
    response: DeleteAclsResponse = await submit_to_controller(node, context, request)
    return response


def refuse(_: type, request: DeleteAclsRequest, version: int, error: KafkaError) -> Steps:
    """The error on each filter."""
    results = (set_error(DeleteAclsFilterResult(), error) for _ in request.filters)
    encoded = yield from encoded_in_pieces(DeleteAclsResponse, version, results)
    return DeleteAclsResponse(filter_results=encoded)


API = Api(
    key=ApiKey.DELETE_ACLS,
    handle=handle,
    refuse=refuse,
    authorize=(on_cluster(AclOperation.ALTER),),
    forward=True,
    controller=True,
)
