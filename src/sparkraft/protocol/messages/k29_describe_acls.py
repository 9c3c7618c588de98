"""DescribeAcls (key 29): v1-3, flexible from v2.

KIP-140; v1 prefixed patterns (KIP-290).
"""

from sparkraft.protocol.declare import Message, array, int8, int16, int32, string


class DescribeAclsRequest(Message, key=29, versions="1-3", flexible="2+"):
    """Asks for the access rules that match a filter."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable=True)
    pattern_type_filter: int = int8(default=3)
    principal_filter: str | None = string(nullable=True)
    host_filter: str | None = string(nullable=True)
    operation: int = int8()
    permission_type: int = int8()


class AclDescription(Message):
    """One rule: `DescribeAclsResponse.resources.acls`."""

    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DescribeAclsResource(Message):
    """Rules of one resource: `DescribeAclsResponse.resources`."""

    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3)
    acls: list[AclDescription] = array(AclDescription)


class DescribeAclsResponse(Message, key=29, versions="1-3", flexible="2+"):
    """The rules, by resource."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)
