"""AlterReplicaLogDirs: v1-2. Move replicas to other log directories of this broker. (KIP-113)

Behaviour:
    * Responds when the move has started; DescribeLogDirs shows the future replica until it ends.
    * To the directory it is in: no effect, except that a move to another one is cancelled.
    * A replica that is not on this broker: REPLICA_NOT_AVAILABLE, or UNKNOWN_TOPIC_OR_PARTITION if
      the partition does not exist; it will be created there.
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
from sparkraft.server.api.encoded_array import encoded_in_pieces
from sparkraft.server.api.registry import Api, RequestContext, Steps
from sparkraft.server.controller.audit import Names, log_names

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices


def handle(
    broker: "BrokerServices", context: RequestContext, request: AlterReplicaLogDirsRequest
) -> Steps:
    """Begin each move."""
    begun: list[tuple[str, int, str, asyncio.Future[int]]] = []
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                altered = _alter(broker, topic.name, index, directory.path)
                started = asyncio.ensure_future(altered)
                begun.append((topic.name, index, directory.path, started))
                yield 5
            yield 1
    codes: dict[str, dict[int, int]] = {}
    moved = Names()
    for topic_name, index, path, move in begun:
        code = move.result() if move.done() else (yield move)
        codes.setdefault(topic_name, {})[index] = code
        if not code:
            moved.add(f"{topic_name}-{index} (to {path})")
        yield 1
    log_names(context, f"assigned log directories of node {broker.node_id}:", moved)
    return (yield from _response(codes, context.api_version))


async def _alter(broker: "BrokerServices", topic: str, index: int, path: str) -> int:
    try:
        await broker.log_dir_moves.alter(topic, index, path)
    except KafkaError as error:
        return int(error.code)
    return 0


def refuse(_: type, request: Any, version: int, error: KafkaError) -> Steps:
    """Every partition with the request's error."""
    codes: dict[str, dict[int, int]] = {}
    code = int(error.code)
    for directory in request.dirs:
        for topic in directory.topics:
            by_index = codes.setdefault(topic.name, {})
            for index in topic.partitions:
                by_index[index] = code
                yield 1
            yield 1
    return (yield from _response(codes, version))


def _response(codes: dict[str, dict[int, int]], version: int) -> Steps:
    topics: list[AlterReplicaLogDirTopicResult] = []
    for topic, by_index in codes.items():
        parts = (
            AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
            for index, code in by_index.items()
        )
        found = yield from encoded_in_pieces(AlterReplicaLogDirsResponse, version, parts)
        topics.append(AlterReplicaLogDirTopicResult(topic_name=topic, partitions=found))
        yield 1
    encoded = yield from encoded_in_pieces(AlterReplicaLogDirsResponse, version, topics)
    return AlterReplicaLogDirsResponse(results=encoded)


API = Api(
    key=ApiKey.ALTER_REPLICA_LOG_DIRS,
    handle=handle,
    authorize=(on_cluster(AclOperation.ALTER),),
    refuse=refuse,
)
