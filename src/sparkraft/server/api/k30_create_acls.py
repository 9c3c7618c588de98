"""CreateAcls: v1-3. Create access control entries. (KIP-140, KIP-290)

Behaviour:
    * A broker forwards it to the active controller.
    * Without an authorizer: SECURITY_DISABLED for each entry.
    * Each entry is checked on its own: INVALID_REQUEST. One that exists already succeeds.
    * The response is sent when the entries are committed; other nodes enforce them when they have
      replayed them.
Versions: v2 flexible; v3 user principals.    Not done: -
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k30_create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.encoded_array import encoded_in_pieces
from sparkraft.server.api.registry import Api, RequestContext, Steps
from sparkraft.server.controller.submission import set_error, submit_to_controller

if TYPE_CHECKING:
    from sparkraft.server.controller.services import ControllerServices

WITHOUT_AUTHORIZER = (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
"""Kafka's error and message for requests that change access control entries."""


async def handle(
    node: "ControllerServices", context: RequestContext, request: CreateAclsRequest
) -> CreateAclsResponse:
    if not node.config.has_authorizer:
        raise KafkaError(*WITHOUT_AUTHORIZER)
    response: CreateAclsResponse = await submit_to_controller(node, context, request)
    return response


def refuse(_: type, request: CreateAclsRequest, version: int, error: KafkaError) -> Steps:
    """The error on each creation."""
    results = (set_error(AclCreationResult(), error) for _ in request.creations)
    encoded = yield from encoded_in_pieces(CreateAclsResponse, version, results)
    return CreateAclsResponse(results=encoded)


API = Api(
    key=ApiKey.CREATE_ACLS,
    handle=handle,
    refuse=refuse,
    authorize=(on_cluster(AclOperation.ALTER),),
    forward=True,
    controller=True,
)
