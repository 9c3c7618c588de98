"""DescribeLogDirs: v1-5. Which partitions are in which log directory, and how large? (KIP-113)

Behaviour:
    * Topics null: all of them. Partitions that aren't here are left out.
    * A directory that went offline: KAFKA_STORAGE_ERROR for it, without partitions.
Versions: v2 flexible; v3 top-level error; v4 total and usable bytes (KIP-827); v5 cordoned.
Not done: future replicas (moves between directories).
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k35_describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from sparkraft.server.api.registry import Api, RequestContext

if TYPE_CHECKING:
    from sparkraft.server.broker import Broker
    from sparkraft.server.broker.partition import HostedPartition
    from sparkraft.storage.log_manager import LogDirDescription


def handle(
    broker: "Broker", context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Describe every directory of this broker."""
    asked = None
    if request.topics is not None:
        asked = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    by_dir: dict[str, list[HostedPartition]] = {}
    for hosted in broker.replica_manager.all_hosted():
        if asked is None or (hosted.topic, hosted.index) in asked:
            by_dir.setdefault(hosted.log.log_dir, []).append(hosted)
    response = DescribeLogDirsResponse()
    for entry in broker.log_manager.describe_dirs():
        response.results.append(_describe(entry, by_dir.get(entry.path, [])))
    return response


def _describe(entry: "LogDirDescription", hosted: "list[HostedPartition]") -> DescribeLogDirsResult:
    if not entry.online:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=entry.path)
    result = DescribeLogDirsResult(
        log_dir=entry.path, total_bytes=entry.total_bytes, usable_bytes=entry.usable_bytes
    )
    for partition in sorted(hosted, key=lambda p: (p.topic, p.index)):
        if not result.topics or result.topics[-1].name != partition.topic:
            result.topics.append(DescribeLogDirsTopic(name=partition.topic))
        result.topics[-1].partitions.append(
            DescribeLogDirsPartition(
                partition_index=partition.index, partition_size=partition.log.size_in_bytes
            )
        )
    return result


API = Api(key=ApiKey.DESCRIBE_LOG_DIRS, handle=handle)
