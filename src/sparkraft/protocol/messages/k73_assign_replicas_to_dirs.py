"""AssignReplicasToDirs (key 73): v0, flexible from v0.

Structs that Kafka names alike in request and response bear the name of their message in front.
"""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Message, array, int16, int32, int64, uuid


class AssignReplicasToDirsRequestPartitionData(Message):
    """One partition: `AssignReplicasToDirsRequest.directories.topics.partitions`."""

    partition_index: int = int32()


class AssignReplicasToDirsRequestTopicData(Message):
    """Partitions of a topic: `AssignReplicasToDirsRequest.directories.topics`."""

    topic_id: Uuid = uuid()
    partitions: list[AssignReplicasToDirsRequestPartitionData] = array(
        AssignReplicasToDirsRequestPartitionData
    )


class AssignReplicasToDirsRequestDirectoryData(Message):
    """A directory and what lies in it: `AssignReplicasToDirsRequest.directories`."""

    id: Uuid = uuid()
    topics: list[AssignReplicasToDirsRequestTopicData] = array(AssignReplicasToDirsRequestTopicData)


class AssignReplicasToDirsRequest(Message, key=73, versions="0", flexible="0+"):
    """A broker reports the directories of its replicas (KIP-858)."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    directories: list[AssignReplicasToDirsRequestDirectoryData] = array(
        AssignReplicasToDirsRequestDirectoryData
    )


class AssignReplicasToDirsResponsePartitionData(Message):
    """One partition: `AssignReplicasToDirsResponse.directories.topics.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()


class AssignReplicasToDirsResponseTopicData(Message):
    """Partitions of a topic: `AssignReplicasToDirsResponse.directories.topics`."""

    topic_id: Uuid = uuid()
    partitions: list[AssignReplicasToDirsResponsePartitionData] = array(
        AssignReplicasToDirsResponsePartitionData
    )


class AssignReplicasToDirsResponseDirectoryData(Message):
    """A directory and what lies in it: `AssignReplicasToDirsResponse.directories`."""

    id: Uuid = uuid()
    topics: list[AssignReplicasToDirsResponseTopicData] = array(
        AssignReplicasToDirsResponseTopicData
    )


class AssignReplicasToDirsResponse(Message, key=73, versions="0", flexible="0+"):
    """An error code for each partition."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    directories: list[AssignReplicasToDirsResponseDirectoryData] = array(
        AssignReplicasToDirsResponseDirectoryData
    )
