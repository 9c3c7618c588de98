"""TxnOffsetCommit: v0-5. Store a group's offsets as part of a transaction. (KIP-98, 447, 890)

Behaviour:
    * The offsets are visible once the transaction commits. Until then OffsetFetch with
      require_stable gets UNSTABLE_OFFSET_COMMIT.
    * The group's partition of `__consumer_offsets` must be part of the transaction; from v5 it is
      added. Otherwise TRANSACTION_ABORTABLE, below v4 INVALID_TXN_STATE.
    * From v3 the member and its generation must be current: ILLEGAL_GENERATION,
      UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    * Topics and partitions must exist: UNKNOWN_TOPIC_OR_PARTITION; those that do not keep that
      error if the group rejects the rest. Metadata longer than offset.metadata.max.bytes:
      OFFSET_METADATA_TOO_LARGE for the partition. An empty group id: INVALID_GROUP_ID.
    * If the transaction's coordinator cannot be reached: COORDINATOR_LOAD_IN_PROGRESS, below v2
      COORDINATOR_NOT_AVAILABLE; both make clients retry.
Versions: v2 leader epochs; v3 flexible, members; v4 TRANSACTION_ABORTABLE; v5 adds the partition.
Not done: -
"""

from collections.abc import Awaitable, Generator
from typing import TYPE_CHECKING, Any, cast

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.placeholder_ids import wire_id
from sparkraft.coordinator.internal_topics import GROUP_METADATA_TOPIC
from sparkraft.coordinator.runtime import ProducerEpoch
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import encode_parts
from sparkraft.protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each, on_group, on_transactional_id
from sparkraft.server.api.encoded_array import CHUNK, encoded_in_pieces
from sparkraft.server.api.registry import Api, RequestContext, Steps, result_of
from sparkraft.server.coordinator.guarded_appends import GuardedAppends
from sparkraft.server.coordinator.partition_check import CheckKind

if TYPE_CHECKING:
    from sparkraft.coordinator.group.decision import GroupDecision
    from sparkraft.coordinator.group.shard import GroupShard
    from sparkraft.coordinator.runtime import Instant
    from sparkraft.coordinator.steps import Deciding
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.server.broker_services import BrokerServices

_RETRIED_LOADING_FROM = 2
_ABORTABLE_FROM = 4
_ADDING_FROM = 5
_FIRST_SEQUENCE = 0


def handle(
    broker: "BrokerServices", context: RequestContext, request: TxnOffsetCommitRequest
) -> Awaitable[TxnOffsetCommitResponse] | Steps:
    """Verify the transaction, then let the group's shard decide."""
    is_large = sum(len(topic.partitions) + 1 for topic in request.topics) > CHUNK
    return (_handle_large if is_large else _handle_small)(broker, context, request)


async def _handle_small(
    broker: "BrokerServices", context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    image = broker.image
    request.topics, refused = result_of(_check_topics(image, context, request))
    response = TxnOffsetCommitResponse()
    try:
        if request.topics:
            response = await _commit(broker, image, context.api_version, request)
    except KafkaError as error:
        code = _code_of(error, context.api_version)
        response.topics = result_of(_refused_topics(request, code))
    return _merged(refused, response)


def _handle_large(
    broker: "BrokerServices", context: RequestContext, request: TxnOffsetCommitRequest
) -> Steps:
    """The same in slices; returns the encoded response."""
    version = context.api_version
    image = broker.image  # topics may be deleted between the slices
    request.topics, refused = yield from _check_topics(image, context, request)
    response = TxnOffsetCommitResponse()
    try:
        if request.topics:
            response = yield _commit(broker, image, version, request)
    except KafkaError as error:
        response.topics = yield from _refused_topics(request, _code_of(error, version))
    response = _merged(refused, response)
    for topic in response.topics:
        topic.partitions = yield from encoded_in_pieces(
            TxnOffsetCommitResponse, version, topic.partitions
        )
    topics = yield from encoded_in_pieces(TxnOffsetCommitResponse, version, response.topics)
    response.topics = cast("Any", topics)
    return encode_parts(response, version)


async def _commit(
    broker: "BrokerServices", image: "ClusterImage", version: int, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """Commit to topics that exist in `image`."""
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    runtime = broker.groups.shard_for(request.group_id)
    producer = ProducerEpoch(request.producer_id, request.producer_epoch)
    index = broker.groups.partition_for(request.group_id)
    known = image.topics_by_name
    topic_ids = {one.name: wire_id(known[one.name]) for one in request.topics}
    guarded = GuardedAppends(broker.replica_manager, broker.verification, _check_kind(version))
    async with broker.verification.lock_of(request.producer_id):
        await guarded.verify(request.transactional_id, [((GROUP_METADATA_TOPIC, index), producer)])

        def write(
            shard: "GroupShard", now: "Instant"
        ) -> "Deciding[GroupDecision[TxnOffsetCommitResponse]]":
            # The shard may have been busy, but no marker overtakes the records from here on.
            partition = broker.replica_manager.leader(GROUP_METADATA_TOPIC, index)
            guarded.check(partition, producer, base_sequence=_FIRST_SEQUENCE)
            return shard.handle_txn_offset_commit(request, topic_ids, now)

        response = runtime.execute_write(write)
    return await response if isinstance(response, Awaitable) else response


def _check_kind(version: int) -> CheckKind:
    if version >= _ADDING_FROM:
        return CheckKind.ADD
    return CheckKind.ABORTABLE if version >= _ABORTABLE_FROM else CheckKind.DEFAULT


_Checked = tuple[list[TxnOffsetCommitRequestTopic], list[TxnOffsetCommitResponseTopic]]
"""Topics and partitions that exist, and the response to the others."""


def _check_topics(
    image: "ClusterImage", context: RequestContext, request: TxnOffsetCommitRequest
) -> Generator[int, None, _Checked]:
    accepted: list[TxnOffsetCommitRequestTopic] = []
    refused: list[TxnOffsetCommitResponseTopic] = []
    for topic in request.topics:
        yield from _check_topic(image, context, topic, accepted, refused)
    return accepted, refused


def _check_topic(
    image: "ClusterImage",
    context: RequestContext,
    topic: TxnOffsetCommitRequestTopic,
    accepted: list[TxnOffsetCommitRequestTopic],
    refused: list[TxnOffsetCommitResponseTopic],
) -> Generator[int, None, None]:
    """Divide `topic` into the partitions that exist (`accepted`) and the rest (`refused`)."""
    if not context.is_allowed(AclOperation.READ, AclResourceType.TOPIC, topic.name):
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        refused.append((yield from _refused(topic.name, topic.partitions, denied)))
        return
    found = image.topic(topic.name)
    existing = {} if found is None else found.partitions
    known: list[TxnOffsetCommitRequestPartition] = []
    unknown: list[TxnOffsetCommitRequestPartition] = []
    for at in range(0, len(topic.partitions), CHUNK):
        chunk = topic.partitions[at : at + CHUNK]
        for one in chunk:
            (known if one.partition_index in existing else unknown).append(one)
        yield len(chunk) // 4
    yield 1
    if unknown:
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        refused.append((yield from _refused(topic.name, unknown, missing)))
    if known:
        accepted.append(TxnOffsetCommitRequestTopic(name=topic.name, partitions=known))


def _refused(
    name: str, partitions: list[TxnOffsetCommitRequestPartition], error: ErrorCode
) -> Generator[int, None, TxnOffsetCommitResponseTopic]:
    found = TxnOffsetCommitResponseTopic(name=name)
    for at in range(0, len(partitions), CHUNK):
        chunk = partitions[at : at + CHUNK]
        found.partitions += [
            TxnOffsetCommitResponsePartition(partition_index=one.partition_index, error_code=error)
            for one in chunk
        ]
        yield len(chunk) // 4
    return found


def _refused_topics(
    request: TxnOffsetCommitRequest, error: ErrorCode
) -> Generator[int, None, list[TxnOffsetCommitResponseTopic]]:
    found = []
    for topic in request.topics:
        found.append((yield from _refused(topic.name, topic.partitions, error)))
        yield 1
    return found


def _merged(
    refused: list[TxnOffsetCommitResponseTopic], response: TxnOffsetCommitResponse
) -> TxnOffsetCommitResponse:
    topics = {one.name: one for one in refused}
    for topic in response.topics:
        known = topics.setdefault(topic.name, topic)
        if known is not topic:
            known.partitions += topic.partitions
    response.topics = list(topics.values())
    return response


def refuse(_: type, request: TxnOffsetCommitRequest, version: int, error: KafkaError) -> Steps:
    """Every partition with the request's error, in the form that the version knows."""
    topics = yield from _refused_topics(request, _code_of(error, version))
    for topic in topics:
        topic.partitions = yield from encoded_in_pieces(
            TxnOffsetCommitResponse, version, topic.partitions
        )
    encoded = yield from encoded_in_pieces(TxnOffsetCommitResponse, version, topics)
    return TxnOffsetCommitResponse(topics=encoded)


def _code_of(error: KafkaError, version: int) -> ErrorCode:
    code = error.code
    if code is ErrorCode.NETWORK_EXCEPTION:
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        code = ErrorCode.NOT_COORDINATOR
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _RETRIED_LOADING_FROM:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


API = Api(
    key=ApiKey.TXN_OFFSET_COMMIT,
    handle=handle,
    authorize=(
        on_transactional_id(AclOperation.WRITE),
        on_group(AclOperation.READ),
        on_each(AclOperation.READ, AclResourceType.TOPIC),
    ),
    refuse=refuse,
)
