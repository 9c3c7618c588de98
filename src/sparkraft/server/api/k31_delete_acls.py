"""DeleteAcls: v1-3. Refused: SECURITY_DISABLED for each, as Kafka without an authorizer. (KIP-140)

Behaviour:
    * A broker forwards it: a controller of Kafka's that has an authorizer does as asked.
Versions: v2 flexible; v3 user principals.    Not done: access control lists.
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k31_delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.k29_describe_acls import NO_AUTHORIZER
from sparkraft.server.api.registry import Api, RequestContext

if TYPE_CHECKING:
    from sparkraft.server.broker import BrokerServices


def handle(
    broker: "BrokerServices", context: RequestContext, request: DeleteAclsRequest
) -> DeleteAclsResponse:
    """Refuse each filter."""
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(
                error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER
            )
            for _ in request.filters
        ]
    )


API = Api(
    key=ApiKey.DELETE_ACLS,
    handle=handle,
    authorize=(on_cluster(AclOperation.ALTER),),
    forward=True,
    controller=True,
)
