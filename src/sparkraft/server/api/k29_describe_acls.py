"""DescribeAcls: v1-3. Which access control entries match a filter? (KIP-140, KIP-290)

Behaviour:
    * Without an authorizer: SECURITY_DISABLED.
    * Each node answers with the entries it has replayed and decides on.
    * Pattern type MATCH finds every pattern that includes the named resource.
    * Entries are grouped by resource, sorted.
Versions: v2 flexible; v3 user principals.    Not done: -
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k29_describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from sparkraft.security.acl_filter import AclFilter
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api, RequestContext, Steps

if TYPE_CHECKING:
    from sparkraft.security.acls import Acl
    from sparkraft.server.broker_services import BrokerServices
    from sparkraft.server.controller.services import ControllerServices

ACLS_PER_UNIT = 8
"""Entries filtered per unit of work."""


def handle(
    node: "BrokerServices | ControllerServices",
    context: RequestContext,
    request: DescribeAclsRequest,
) -> Steps:
    """Filter the entries in slices, then group them."""
    if not node.config.has_authorizer:
        # Kafka's texts differ: those of the requests that change entries end in a full stop.
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    wanted = AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    found: list[Acl] = []
    for number, acl in enumerate(node.image.acls.values()):
        if wanted.matches(acl):
            found.append(acl)
        if number % ACLS_PER_UNIT == 0:
            yield 1
    response = DescribeAclsResponse(error_message=None)
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for acl in sorted(set(found)):
        key = acl.resource_type, acl.resource_name, acl.pattern_type
        resource = resources.get(key)
        if resource is None:
            resource = resources[key] = DescribeAclsResource(
                resource_type=key[0], resource_name=key[1], pattern_type=key[2]
            )
            response.resources.append(resource)
        resource.acls.append(
            AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
        )
    return response


API = Api(
    key=ApiKey.DESCRIBE_ACLS,
    handle=handle,
    authorize=(on_cluster(AclOperation.DESCRIBE),),
    controller=True,
)
