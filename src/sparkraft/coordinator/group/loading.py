"""Restore a classic group from its record in the log."""

from sparkraft.base.ids import Millis
from sparkraft.coordinator.group.classic_group import ClassicGroup
from sparkraft.coordinator.group.member import Member
from sparkraft.coordinator.group.states import GroupState
from sparkraft.coordinator.steps import Steps, pieces
from sparkraft.protocol.messages.classic_group_records import GroupMetadataValue, MemberMetadata


def group_from_record(group_id: str, value: GroupMetadataValue) -> Steps[ClassicGroup]:
    """The group in the record: stable if it has members, otherwise empty."""
    since_ms = value.current_state_timestamp
    group = ClassicGroup(group_id, now_ms=None if since_ms == -1 else Millis(since_ms))
    group.generation_id = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    if value.members:
        group.state = GroupState.STABLE
    for piece in pieces(value.members):
        for member in piece:
            group.add(_member(value, member))
        yield len(piece)
    if not value.members or (value.leader is not None and value.leader in group):
        group.leader_id = value.leader
    group.subscribed_topics = yield from group.read_subscribed_topics()
    return group


def _member(value: GroupMetadataValue, member: MemberMetadata) -> Member:
    rebalance_timeout_ms = member.rebalance_timeout
    if rebalance_timeout_ms == -1:
        rebalance_timeout_ms = member.session_timeout
    return Member(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms,
        session_timeout_ms=member.session_timeout,
        protocol_type=value.protocol_type,
        protocols=((value.protocol or "", bytes(member.subscription)),),
        assignment=bytes(member.assignment),
    )
