"""DeleteGroups (key 42): v0-2, flexible from v2."""

from sparkraft.protocol.declare import Message, array, int16, int32, string, strings


class DeleteGroupsRequest(Message, key=42, versions="0-2", flexible="2+"):
    """Deletes groups that have no members (KIP-229)."""

    groups_names: list[str] = strings()


class DeletableGroupResult(Message):
    """Result for a group: `DeleteGroupsResponse.results`."""

    group_id: str = string()
    error_code: int = int16()


class DeleteGroupsResponse(Message, key=42, versions="0-2", flexible="2+"):
    """An error code for each group."""

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
