"""DescribeLogDirs: v1-5. Which partitions are in which log directory, and how large? (KIP-113)

Behaviour:
    * Topics null: all of them. Partitions that are not on this broker are left out.
    * An offline directory: KAFKA_STORAGE_ERROR for it, without partitions.
    * A replica that moves to another directory is in both; its copy there is marked as future.
    * `offset_lag`: of a copy to its replica, of a replica to its high watermark.
Versions: v2 flexible; v3 top-level error; v4 total and usable bytes (KIP-827); v5 cordoned
    (KIP-1066).    Not done: -
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode
from sparkraft.metadata.features import CORDONED_LEVEL
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k35_describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api, RequestContext

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices
    from sparkraft.storage.log import PartitionLog
    from sparkraft.storage.log_dir import LogDirDescription

NO_LAG = -1
"""Lag of a copy whose replica is offline."""


def handle(
    broker: "BrokerServices", context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Describe every directory of this broker."""
    asked = None
    if request.topics is not None:
        asked = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    cordons = broker.image.metadata_version >= CORDONED_LEVEL
    by_dir: dict[str, list[PartitionLog]] = {}
    for hosted in broker.replica_manager.all_hosted():
        if asked is None or (hosted.topic, hosted.index) in asked:
            by_dir.setdefault(hosted.log.log_dir, []).append(hosted.log)
    for copy in broker.log_manager.futures.all():
        if asked is None or (copy.topic, copy.partition) in asked:
            by_dir.setdefault(copy.log_dir, []).append(copy)
    response = DescribeLogDirsResponse()
    for entry in broker.log_manager.describe_dirs():
        result = _describe(entry, [_partition(broker, log) for log in by_dir.get(entry.path, [])])
        result.is_cordoned = cordons and entry.online and entry.path in broker.log_manager.cordoned
        response.results.append(result)
    return response


def _partition(
    broker: "BrokerServices", log: "PartitionLog"
) -> tuple[str, DescribeLogDirsPartition]:
    replica = broker.log_manager.get(log.topic, log.partition)
    is_future = broker.log_manager.futures.get(log.topic, log.partition) is log
    if is_future:
        lag = NO_LAG if replica is None else replica.log_end_offset - log.log_end_offset
    else:
        lag = max(log.high_watermark - log.log_end_offset, 0)
    return log.topic, DescribeLogDirsPartition(
        partition_index=log.partition,
        partition_size=log.size_in_bytes,
        offset_lag=lag,
        is_future_key=is_future,
    )


def _describe(
    entry: "LogDirDescription", partitions: list[tuple[str, DescribeLogDirsPartition]]
) -> DescribeLogDirsResult:
    if not entry.online:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=entry.path)
    result = DescribeLogDirsResult(
        log_dir=entry.path, total_bytes=entry.total_bytes, usable_bytes=entry.usable_bytes
    )
    for topic, partition in sorted(partitions, key=lambda each: (each[0], each[1].partition_index)):
        if not result.topics or result.topics[-1].name != topic:
            result.topics.append(DescribeLogDirsTopic(name=topic))
        result.topics[-1].partitions.append(partition)
    return result


API = Api(
    key=ApiKey.DESCRIBE_LOG_DIRS,
    handle=handle,
    authorize=(on_cluster(AclOperation.DESCRIBE),),
)
