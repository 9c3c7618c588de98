"""Subscriptions and assignments of the `consumer` protocol type, as clients encode them.

    version int16 | ConsumerProtocolSubscription or ConsumerProtocolAssignment

A newer version is read as the newest that we know, and trailing bytes are ignored, as in Kafka.
"""

import struct
from typing import TypeVar

from sparkraft.base.errors import DecodeError
from sparkraft.coordinator.group.consumer_member import AssignedPartitions, Partitions
from sparkraft.metadata.image import ClusterImage
from sparkraft.protocol.codec import decode_from
from sparkraft.protocol.declare import Message
from sparkraft.protocol.framing import encode_versioned
from sparkraft.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)

NEWEST_VERSION = 3
_INT16 = struct.Struct(">h")

M = TypeVar("M", bound=Message)


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Raises DecodeError if it is malformed."""
    return _read(ConsumerProtocolSubscription, metadata)


def read_assignment(assignment: bytes) -> ConsumerProtocolAssignment:
    """Raises DecodeError if it is malformed."""
    return _read(ConsumerProtocolAssignment, assignment)


def _read(cls: type[M], data: bytes) -> M:
    version = version_of(data)
    if version < 0:
        raise DecodeError(f"version {version} of the consumer protocol")
    message, _ = decode_from(cls, min(version, NEWEST_VERSION), data, _INT16.size)
    return message


def version_of(metadata: bytes) -> int:
    """The version of a subscription; its assignment is written in the same one."""
    if len(metadata) < _INT16.size:
        raise DecodeError("the consumer protocol starts with an int16 version", at=0)
    return int(_INT16.unpack_from(metadata)[0])


def write_assignment(assigned: AssignedPartitions, image: ClusterImage, version: int) -> bytes:
    """The assignment for a classic member; deleted topics are left out."""
    return encode_versioned(
        ConsumerProtocolAssignment(
            assigned_partitions=[
                ConsumerProtocolAssignmentTopicPartition(
                    topic=image.topics_by_id[topic_id].name,
                    partitions=sorted(assigned[topic_id]),
                )
                for topic_id in sorted(assigned)
                if topic_id in image.topics_by_id
            ]
        ),
        min(version, NEWEST_VERSION),
    )


def by_topic_id(topics: dict[str, list[int]], image: ClusterImage) -> Partitions:
    """Partitions by topic id; deleted topics are left out."""
    found = {}
    for name, partitions in topics.items():
        topic = image.topic(name)
        if topic is not None and partitions:
            found[topic.id] = frozenset(partitions)
    return found
