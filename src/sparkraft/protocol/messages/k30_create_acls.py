"""CreateAcls (key 30): v1-3, flexible from v2.

KIP-140; v1 prefixed patterns (KIP-290).
"""

from sparkraft.protocol.declare import Message, array, int8, int16, int32, string


class AclCreation(Message):
    """A rule to add: `CreateAclsRequest.creations`."""

    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class CreateAclsRequest(Message, key=30, versions="1-3", flexible="2+"):
    """Adds access rules."""

    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(Message):
    """Result for a rule: `CreateAclsResponse.results`."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True)


class CreateAclsResponse(Message, key=30, versions="1-3", flexible="2+"):
    """An error for each rule."""

    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)
