"""DeleteAcls: v1-3. Refused: SECURITY_DISABLED for each, as Kafka without an authorizer. (KIP-140)

Behaviour:
    * A broker forwards it: a Kafka controller with an authorizer deletes them.
Versions: v2 flexible; v3 user principals.    Not done: access control lists.
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
from sparkraft.server.api.k29_describe_acls import WITHOUT_AUTHORIZER
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.controller.submission import set_error

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices


def handle(
    broker: "BrokerServices", context: RequestContext, request: DeleteAclsRequest
) -> DeleteAclsResponse:
    return refuse(DeleteAclsResponse, request, context.api_version, KafkaError(*WITHOUT_AUTHORIZER))


def refuse(
    _: type, request: DeleteAclsRequest, version: int, error: KafkaError
) -> DeleteAclsResponse:
    """The error on each filter."""
    return DeleteAclsResponse(
        filter_results=[set_error(DeleteAclsFilterResult(), error) for _ in request.filters]
    )


API = Api(
    key=ApiKey.DELETE_ACLS,
    handle=handle,
    refuse=refuse,
    authorize=(on_cluster(AclOperation.ALTER),),
    forward=True,
    controller=True,
)
