"""Rules of ListGroups and DescribeGroups that apply to every group."""

from typing import NamedTuple, Self

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


class ListFilter(NamedTuple):
    """Which groups to list: case-insensitive, an unknown word matches nothing; empty for all."""

    states: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()

    @classmethod
    def of(cls, request: ListGroupsRequest) -> Self:
        """The filter of a request."""
        return cls(
            frozenset(one.strip().lower() for one in request.states_filter),
            frozenset(one.lower() for one in request.types_filter),
        )

    def permits(self, group: ListedGroup) -> bool:
        """Whether the group is listed."""
        return (not self.states or group.group_state.lower() in self.states) and (
            not self.types or group.group_type.lower() in self.types
        )
