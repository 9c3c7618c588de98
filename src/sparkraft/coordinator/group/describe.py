"""Rules of ListGroups and DescribeGroups that apply to every group."""

from sparkraft.base.errors import ErrorCode
from sparkraft.coordinator.group.states import GroupState
from sparkraft.protocol.messages.k15_describe_groups import DescribedGroup
from sparkraft.protocol.messages.k16_list_groups import ListedGroup, ListGroupsRequest

_NOT_FOUND_ERROR_FROM = 6


def describe_as_dead(group_id: str, problem: str, version: int) -> DescribedGroup:
    """A group that is unknown or not classic: state Dead, from v6 with GROUP_ID_NOT_FOUND."""
    described = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    if version >= _NOT_FOUND_ERROR_FROM:
        described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        described.error_message = problem
    return described


def is_listed(group: ListedGroup, request: ListGroupsRequest) -> bool:
    """Whether a group passes the filters: case-insensitive, an unknown word matches nothing."""
    states = {one.strip().lower() for one in request.states_filter}
    types = {one.lower() for one in request.types_filter}
    return (not states or group.group_state.lower() in states) and (
        not types or group.group_type.lower() in types
    )
