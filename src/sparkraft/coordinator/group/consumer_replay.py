"""Replay the records of consumer groups (types 3 to 8 and 16)."""

from typing import Any, assert_never

from sparkraft.coordinator.group import consumer_records as read
from sparkraft.coordinator.group.consumer_group import ConsumerGroup
from sparkraft.coordinator.group.consumer_member import ConsumerMember
from sparkraft.coordinator.group.records import ConsumerGroupKey
from sparkraft.coordinator.steps import Steps
from sparkraft.protocol.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)


def replay_value(group: ConsumerGroup, key: ConsumerGroupKey, value: Any) -> Steps[None]:
    """Apply a record with a value."""
    match key:
        case ConsumerGroupMetadataKey():
            group.replay_group_epoch(value.epoch, value.metadata_hash)
        case ConsumerGroupPartitionMetadataKey():
            group.has_legacy_metadata = True
        case ConsumerGroupMemberMetadataKey():
            yield from group.replay_subscription(read.subscription_of(key.member_id, value))
        case ConsumerGroupTargetAssignmentMetadataKey():
            group.target_epoch = value.assignment_epoch
            group.target_at_ms = value.assignment_timestamp
        case ConsumerGroupTargetAssignmentMemberKey():
            group.targets[key.member_id] = yield from read.target_of(value)
        case ConsumerGroupCurrentMemberAssignmentKey():
            member = group.get(key.member_id) or ConsumerMember(member_id=key.member_id)
            yield from group.replay_current((yield from read.with_current(member, value)))
        case ConsumerGroupRegularExpressionKey():
            group.regexes[key.regular_expression] = read.resolved_of(value)
        case _:
            assert_never(key)


def replay_tombstone(group: ConsumerGroup, key: ConsumerGroupKey) -> Steps[None]:
    """Apply a tombstone; that of the group itself (type 3) is up to the shard."""
    match key:
        case ConsumerGroupMetadataKey():
            pass
        case ConsumerGroupPartitionMetadataKey():
            group.has_legacy_metadata = False
        case ConsumerGroupMemberMetadataKey():
            yield from group.replay_removed(key.member_id)
        case ConsumerGroupTargetAssignmentMetadataKey():
            group.target_epoch = 0
            group.target_at_ms = 0
        case ConsumerGroupTargetAssignmentMemberKey():
            group.targets.pop(key.member_id, None)
        case ConsumerGroupCurrentMemberAssignmentKey():
            yield from group.replay_current_removed(key.member_id)
        case ConsumerGroupRegularExpressionKey():
            group.regexes.pop(key.regular_expression, None)
        case _:
            assert_never(key)
