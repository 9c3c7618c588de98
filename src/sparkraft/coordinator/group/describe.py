"""How groups look to ListGroups and DescribeGroups."""

from sparkraft.base.errors import ErrorCode
from sparkraft.coordinator.group.classic_group import ClassicGroup
from sparkraft.coordinator.group.foreign import ForeignGroup
from sparkraft.coordinator.group.outcome import Instant
from sparkraft.coordinator.group.states import GroupState
from sparkraft.protocol.messages.k15_describe_groups import DescribedGroup, DescribedGroupMember
from sparkraft.protocol.messages.k16_list_groups import ListedGroup, ListGroupsRequest

Group = ClassicGroup | ForeignGroup

_NOT_FOUND_ERROR_FROM = 6


def described_group(group_id: str, group: Group | None, version: int) -> DescribedGroup:
    """A classic group with its members; metadata and assignor only where it is stable."""
    if not isinstance(group, ClassicGroup):
        answer = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        if version >= _NOT_FOUND_ERROR_FROM:
            answer.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            answer.error_message = (
                f"Group {group_id} not found."
                if group is None
                else f"Group {group_id} is not a classic group."
            )
        return answer
    stable = group.is_in(GroupState.STABLE)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if stable else "",
        members=[
            DescribedGroupMember(
                member_id=one.member_id,
                group_instance_id=one.group_instance_id,
                client_id=one.client_id,
                client_host=one.client_host,
                member_metadata=one.metadata(group.protocol_name) if stable else b"",
                member_assignment=one.assignment,
            )
            for one in group.members()
        ],
    )


def listed_group(group: Group, now: Instant) -> ListedGroup:
    """One line of a list of groups."""
    if isinstance(group, ForeignGroup):
        return ListedGroup(
            group_id=group.group_id,
            protocol_type=group.group_type,
            group_state="Stable" if group.has_members(now.mono_ms) else "Empty",
            group_type=group.group_type,
        )
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type="classic",
    )


def is_listed(group: ListedGroup, request: ListGroupsRequest) -> bool:
    """Whether a group passes the filters: any case, an unknown word matches nothing."""
    states = {one.strip().lower() for one in request.states_filter}
    types = {one.lower() for one in request.types_filter}
    return (not states or group.group_state.lower() in states) and (
        not types or group.group_type.lower() in types
    )
