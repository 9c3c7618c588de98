"""OffsetFetch (key 9): v1-10, flexible from v6."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import (
    Message,
    array,
    boolean,
    int16,
    int32,
    int32s,
    int64,
    string,
    uuid,
)


class OffsetFetchRequestTopic(Message):
    """Partitions of the one group up to v7: `OffsetFetchRequest.topics`."""

    name: str = string("0-7")
    partition_indexes: list[int] = int32s("0-7")


class OffsetFetchRequestTopics(Message):
    """Partitions asked for: `OffsetFetchRequest.groups.topics`."""

    name: str = string("8-9", ignorable=True)
    topic_id: Uuid = uuid("10+", ignorable=True)
    partition_indexes: list[int] = int32s("8+")


class OffsetFetchRequestGroup(Message):
    """A group and the requested partitions: `OffsetFetchRequest.groups`."""

    group_id: str = string("8+")
    member_id: str | None = string("9+", nullable=True, default=None, ignorable=True)
    member_epoch: int = int32("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = array(
        OffsetFetchRequestTopics, "8+", nullable=True
    )


class OffsetFetchRequest(Message, key=9, versions="1-10", flexible="6+"):
    """Asks how far groups have read.

    v8 several groups at once (KIP-709); v9 member epochs (KIP-848); v10 topics by id.
    """

    group_id: str = string("0-7")
    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, "0-7", nullable="2-7"
    )
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")


class OffsetFetchResponsePartition(Message):
    """A committed offset: `OffsetFetchResponse.topics.partitions`."""

    partition_index: int = int32("0-7")
    committed_offset: int = int64("0-7")
    committed_leader_epoch: int = int32("5-7", default=-1, ignorable=True)
    metadata: str | None = string("0-7", nullable=True)
    error_code: int = int16("0-7")


class OffsetFetchResponseTopic(Message):
    """Partitions of the one group up to v7: `OffsetFetchResponse.topics`."""

    name: str = string("0-7")
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, "0-7")


class OffsetFetchResponsePartitions(Message):
    """A committed offset: `OffsetFetchResponse.groups.topics.partitions`."""

    partition_index: int = int32("8+")
    committed_offset: int = int64("8+")
    committed_leader_epoch: int = int32("8+", default=-1, ignorable=True)
    metadata: str | None = string("8+", nullable=True)
    error_code: int = int16("8+")


class OffsetFetchResponseTopics(Message):
    """Partitions: `OffsetFetchResponse.groups.topics`."""

    name: str = string("8-9", ignorable=True)
    topic_id: Uuid = uuid("10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, "8+")


class OffsetFetchResponseGroup(Message):
    """A group and its offsets: `OffsetFetchResponse.groups`."""

    group_id: str = string("8+")
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, "8+")
    error_code: int = int16("8+")


class OffsetFetchResponse(Message, key=9, versions="1-10", flexible="6+"):
    """Committed offsets with leader epoch and metadata; -1 if nothing is committed."""

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7")
    error_code: int = int16("2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")
