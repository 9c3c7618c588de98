"""AlterReplicaLogDirs (key 34): v1-2, flexible from v2."""

from sparkraft.protocol.declare import Message, array, int16, int32, int32s, string


class AlterReplicaLogDirTopic(Message):
    """Partitions to move: `AlterReplicaLogDirsRequest.dirs.topics`."""

    name: str = string()
    partitions: list[int] = int32s()


class AlterReplicaLogDir(Message):
    """A directory and what goes there: `AlterReplicaLogDirsRequest.dirs`."""

    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


class AlterReplicaLogDirsRequest(Message, key=34, versions="1-2", flexible="2+"):
    """Moves replicas to other log directories of the same broker (KIP-113)."""

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


class AlterReplicaLogDirPartitionResult(Message):
    """Result for a replica: `AlterReplicaLogDirsResponse.results.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()


class AlterReplicaLogDirTopicResult(Message):
    """Partitions: `AlterReplicaLogDirsResponse.results`."""

    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


class AlterReplicaLogDirsResponse(Message, key=34, versions="1-2", flexible="2+"):
    """An error code for each partition."""

    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)
