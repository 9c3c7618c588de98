"""DescribeAcls: v1-3. Refused: SECURITY_DISABLED, as Kafka without an authorizer. (KIP-140)

Versions: v2 flexible; v3 user principals.    Not done: access control lists.
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k29_describe_acls import DescribeAclsRequest, DescribeAclsResponse
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api, RequestContext

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices

WITHOUT_AUTHORIZER = (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
"""Kafka's error and message for requests that change access control lists."""


def handle(
    broker: "BrokerServices", context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    # Kafka's texts differ: this one ends in "on the broker", without a full stop.
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED,
        error_message="No Authorizer is configured on the broker",
    )


API = Api(
    key=ApiKey.DESCRIBE_ACLS,
    handle=handle,
    authorize=(on_cluster(AclOperation.DESCRIBE),),
    controller=True,
)
