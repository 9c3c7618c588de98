"""DescribeLogDirs: v1-5. Which partitions are in which log directory, and how large? (KIP-113)

Behaviour:
    * Topics null: all of them. Partitions that are not on this broker are left out.
    * An offline directory: KAFKA_STORAGE_ERROR for it, without partitions.
    * A replica that moves to another directory is in both; its copy there is marked as future.
    * `offset_lag`: of a copy to its replica, of a replica to its high watermark.
Versions: v2 flexible; v3 top-level error; v4 total and usable bytes (KIP-827); v5 cordoned
    (KIP-1066).    Not done: -
"""

from operator import attrgetter
from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode
from sparkraft.metadata.features import CORDONED_LEVEL
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import encode_parts
from sparkraft.protocol.messages.k35_describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.encoded_array import CHUNK, EncodedArray
from sparkraft.server.api.registry import Api, RequestContext, Steps

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from sparkraft.server.broker.partition import HostedPartition
    from sparkraft.server.broker_services import BrokerServices
    from sparkraft.storage.log import PartitionLog

NO_LAG = -1
"""Lag of a copy whose replica is offline."""


def handle(
    broker: "BrokerServices", context: RequestContext, request: DescribeLogDirsRequest
) -> Steps:
    """Describe every directory of this broker; returns the encoded response."""
    version = context.api_version
    cordons = broker.image.metadata_version >= CORDONED_LEVEL
    by_dir = yield from _logs_by_dir(broker, request)
    results = EncodedArray(DescribeLogDirsResponse, version)
    for entry in broker.log_manager.describe_dirs():
        if not entry.online:
            code = ErrorCode.KAFKA_STORAGE_ERROR
            results.add(DescribeLogDirsResult(error_code=code, log_dir=entry.path))
            continue
        topics = EncodedArray(DescribeLogDirsResponse, version)
        logs = by_dir.get(entry.path, {})
        for name in sorted(logs):
            partitions = EncodedArray(DescribeLogDirsResponse, version)
            for log in sorted(logs[name], key=_index_of):
                partitions.add(_partition(broker, log))
                yield 1
            topics.add(DescribeLogDirsTopic(name=name, partitions=partitions.encoded()))
        results.add(
            DescribeLogDirsResult(
                log_dir=entry.path,
                total_bytes=entry.total_bytes,
                usable_bytes=entry.usable_bytes,
                topics=topics.encoded(),
                is_cordoned=cordons and entry.path in broker.log_manager.cordoned,
            )
        )
        yield 1
    return encode_parts(DescribeLogDirsResponse(results=results.encoded()), version)


_ByDir = dict[str, dict[str, list["PartitionLog"]]]
"""Logs by directory and topic."""

_index_of = attrgetter("partition")


def _logs_by_dir(
    broker: "BrokerServices", request: DescribeLogDirsRequest
) -> "Generator[int, None, _ByDir]":
    """The requested logs, replicas before copies that move here."""
    found: _ByDir = {}
    manager = broker.replica_manager
    if request.topics is None:
        hosted: Iterable[HostedPartition] = list(manager.all_hosted())
        asked = None
    else:
        asked = set()
        for topic in request.topics:
            for index in topic.partitions:
                asked.add((topic.topic, index))
                if len(asked) % CHUNK == 0:
                    yield CHUNK // 5
        hosted = filter(None, (manager.hosted(*each) for each in sorted(asked)))
    for number, each in enumerate(hosted):
        log = each.log
        found.setdefault(log.log_dir, {}).setdefault(log.topic, []).append(log)
        if number % CHUNK == CHUNK - 1:
            yield CHUNK // 5
    for copy in broker.log_manager.futures.all():
        if asked is None or (copy.topic, copy.partition) in asked:
            found.setdefault(copy.log_dir, {}).setdefault(copy.topic, []).append(copy)
    return found


def _partition(broker: "BrokerServices", log: "PartitionLog") -> DescribeLogDirsPartition:
    replica = broker.log_manager.get(log.topic, log.partition)
    is_future = broker.log_manager.futures.get(log.topic, log.partition) is log
    if is_future:
        lag = NO_LAG if replica is None else replica.log_end_offset - log.log_end_offset
    else:
        lag = max(log.high_watermark - log.log_end_offset, 0)
    return DescribeLogDirsPartition(
        partition_index=log.partition,
        partition_size=log.size_in_bytes,
        offset_lag=lag,
        is_future_key=is_future,
    )


API = Api(
    key=ApiKey.DESCRIBE_LOG_DIRS,
    handle=handle,
    authorize=(on_cluster(AclOperation.DESCRIBE),),
)
