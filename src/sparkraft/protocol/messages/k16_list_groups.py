"""ListGroups (key 16): v0-5, flexible from v3."""

from sparkraft.protocol.declare import Message, array, int16, int32, string, strings


class ListGroupsRequest(Message, key=16, versions="0-5", flexible="3+"):
    """Asks which groups this broker coordinates.

    v4 filters by state (KIP-518), v5 by type (KIP-848).
    """

    states_filter: list[str] = strings("4+")
    types_filter: list[str] = strings("5+")


class ListedGroup(Message):
    """One group: `ListGroupsResponse.groups`."""

    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+", ignorable=True)
    group_type: str = string("5+", ignorable=True)


class ListGroupsResponse(Message, key=16, versions="0-5", flexible="3+"):
    """Id, protocol type, state and type of each group."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
