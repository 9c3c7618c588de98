"""AlterReplicaLogDirs: v1-2. Move replicas to other log directories of this broker. (KIP-113)

Behaviour:
    * Responds when the move has started; DescribeLogDirs shows the future replica until it ends.
    * To the directory it is in: no effect, except that a move to another one is cancelled.
    * A replica that is not on this broker: REPLICA_NOT_AVAILABLE, and it will be created there.
    * LOG_DIR_NOT_FOUND; KAFKA_STORAGE_ERROR if a directory is offline; a cordoned one is
      INVALID_REPLICA_ASSIGNMENT (KIP-1066); a topic name over 215 characters is too long for the
      suffix of a future log: INVALID_TOPIC_EXCEPTION.
Versions: v2 flexible.    Not done: -
"""

import asyncio
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api, RequestContext, Steps

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices


def handle(
    broker: "BrokerServices", context: RequestContext, request: AlterReplicaLogDirsRequest
) -> Steps:
    """Begin each move."""
    replicas = [
        (topic.name, index, directory.path)
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    ]
    begun: list[asyncio.Future[int]] = []
    for replica in replicas:
        begun.append(asyncio.ensure_future(_alter(broker, *replica)))
        yield 5
    codes: dict[str, dict[int, int]] = {}
    for (topic_name, index, _), move in zip(replicas, begun, strict=True):
        code = move.result() if move.done() else (yield move)
        codes.setdefault(topic_name, {})[index] = code
        yield 1
    return _response(codes)


async def _alter(broker: "BrokerServices", topic: str, index: int, path: str) -> int:
    try:
        await broker.log_dir_moves.alter(topic, index, path)
    except KafkaError as error:
        return int(error.code)
    return 0


def refuse(_: type, request: Any, version: int, error: KafkaError) -> AlterReplicaLogDirsResponse:
    """Every partition with the request's error."""
    codes: dict[str, dict[int, int]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            codes.setdefault(topic.name, {}).update(
                dict.fromkeys(topic.partitions, int(error.code))
            )
    return _response(codes)


def _response(codes: dict[str, dict[int, int]]) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    for index, code in by_index.items()
                ],
            )
            for topic, by_index in codes.items()
        ]
    )


API = Api(
    key=ApiKey.ALTER_REPLICA_LOG_DIRS,
    handle=handle,
    zookeeper=False,
    authorize=(on_cluster(AclOperation.ALTER),),
    refuse=refuse,
)
