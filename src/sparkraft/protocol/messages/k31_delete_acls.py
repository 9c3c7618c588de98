"""DeleteAcls (key 31): v1-3, flexible from v2.

KIP-140; v1 prefixed patterns (KIP-290).
"""

from sparkraft.protocol.declare import Message, array, int8, int16, int32, string


class DeleteAclsFilter(Message):
    """A filter for ACLs to delete: `DeleteAclsRequest.filters`."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable=True)
    pattern_type_filter: int = int8(default=3)
    principal_filter: str | None = string(nullable=True)
    host_filter: str | None = string(nullable=True)
    operation: int = int8()
    permission_type: int = int8()


class DeleteAclsRequest(Message, key=31, versions="1-3", flexible="2+"):
    """Deletes the access rules that match any of the filters."""

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


class DeleteAclsMatchingAcl(Message):
    """A rule that matched: `DeleteAclsResponse.filter_results.matching_acls`."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DeleteAclsFilterResult(Message):
    """Result for a filter: `DeleteAclsResponse.filter_results`."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


class DeleteAclsResponse(Message, key=31, versions="1-3", flexible="2+"):
    """The rules deleted, by filter."""

    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)
