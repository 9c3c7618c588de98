"""OffsetFetch: v1-10. The committed offsets of groups. (KIP-88, KIP-447, KIP-709, KIP-848)

Behaviour:
    * A partition, or a whole group, without a commit: offset -1, no error.
    * Null topics (v2+): every committed offset of the group.
    * `require_stable` (v7+): UNSTABLE_OFFSET_COMMIT while a transaction holds a commit.
    * v10 by topic id: UNKNOWN_TOPIC_ID; an offset committed under another id of the name is -1.
    * v9 from a member of a consumer group: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH.
    * Errors of a group: at its top, in v1 at every partition.
Versions: v3 throttle; v5 leader epochs; v6 flexible; v8 several groups; v9 member and
    epoch; v10 topic ids.    Not done: -
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.coordinator.responses import (
    Response,
    catch_error,
    map_response,
    map_responses,
)

if TYPE_CHECKING:
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.server.broker_services import BrokerServices

_TOP_LEVEL_ERROR_FROM = 2
_GROUPS_FROM = 8
_BY_ID_FROM = 10
_MEMBER_ERRORS = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH})


def handle(
    broker: "BrokerServices", context: RequestContext, request: OffsetFetchRequest
) -> Response[OffsetFetchResponse]:
    """Read from the shard of each group."""
    version = context.api_version
    groups = request.groups if version >= _GROUPS_FROM else [_only_group(request)]
    fetched = [
        _fetch(broker, context, group, require_stable=request.require_stable) for group in groups
    ]
    if version >= _GROUPS_FROM:
        return map_responses(fetched, lambda found: OffsetFetchResponse(groups=found))
    return map_response(fetched[0], _flat)


def _only_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=one.name, partition_indexes=one.partition_indexes)
            for one in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _fetch(
    broker: "BrokerServices",
    context: RequestContext,
    group: OffsetFetchRequestGroup,
    *,
    require_stable: bool,
) -> Response[OffsetFetchResponseGroup]:
    version = context.api_version
    if not context.is_allowed(AclOperation.DESCRIBE, AclResourceType.GROUP, group.group_id):
        return _group_error(group, ErrorCode.GROUP_AUTHORIZATION_FAILED, version)
    requested = group.topics
    refused: list[OffsetFetchResponseTopics] = []
    if requested is not None:
        if version >= _BY_ID_FROM:
            group.topics = _named(broker.image, requested, refused)
        group.topics = _authorized(context, group.topics or [], refused)
    try:
        runtime = broker.groups.shard_for(group.group_id)
    except KafkaError as error:
        group.topics = requested
        return _group_error(group, error.code, version)
    response = catch_error(
        lambda: runtime.execute_read(
            lambda shard, _: shard.fetch_offsets(group, require_stable=require_stable)
        ),
        # Not committed within the timeout: this group fails, the others do not.
        lambda error: _group_error(
            group,
            error.code if error.code in _MEMBER_ERRORS else ErrorCode.NOT_COORDINATOR,
            version,
        ),
    )
    if requested is None:
        if version >= _BY_ID_FROM:
            response = map_response(response, lambda found: _with_ids(broker.image, found))
        return map_response(response, lambda found: _visible(context, found))
    return (
        map_response(response, lambda found: _with_refused(found, refused)) if refused else response
    )


def _authorized(
    context: RequestContext,
    requested: list[OffsetFetchRequestTopics],
    refused: list[OffsetFetchResponseTopics],
) -> list[OffsetFetchRequestTopics]:
    """The topics the client may describe; the others go to `refused`."""
    allowed = []
    for topic in requested:
        if context.is_allowed(AclOperation.DESCRIBE, AclResourceType.TOPIC, topic.name):
            allowed.append(topic)
        else:
            refused.append(_topic_error(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    return allowed


def _visible(context: RequestContext, found: OffsetFetchResponseGroup) -> OffsetFetchResponseGroup:
    """Leave out topics the client may not describe: it did not name them."""
    found.topics = [
        topic
        for topic in found.topics
        if context.is_allowed(AclOperation.DESCRIBE, AclResourceType.TOPIC, topic.name)
    ]
    return found


def _named(
    image: "ClusterImage",
    requested: list[OffsetFetchRequestTopics],
    unknown: list[OffsetFetchResponseTopics],
) -> list[OffsetFetchRequestTopics]:
    """Set the topics' names; those with an unknown id go to `unknown`."""
    known = []
    for topic in requested:
        found = image.topics_by_id.get(topic.topic_id)
        if found is not None:
            topic.name = found.name
            known.append(topic)
        else:
            unknown.append(_topic_error(topic, ErrorCode.UNKNOWN_TOPIC_ID))
    return known


def _with_refused(
    found: OffsetFetchResponseGroup, refused: list[OffsetFetchResponseTopics]
) -> OffsetFetchResponseGroup:
    if not found.error_code:
        found.topics += refused
    return found


def _with_ids(image: "ClusterImage", found: OffsetFetchResponseGroup) -> OffsetFetchResponseGroup:
    """Set the topics' ids and drop deleted topics, which have none."""
    for topic in found.topics:
        topic.topic_id = image.topics_by_name.get(topic.name, Uuid.ZERO)
    found.topics = [topic for topic in found.topics if topic.topic_id != Uuid.ZERO]
    return found


def _flat(group: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    """The response of v1-7, for one group."""
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=one.partition_index,
                        committed_offset=one.committed_offset,
                        committed_leader_epoch=one.committed_leader_epoch,
                        metadata=one.metadata,
                        error_code=one.error_code,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )


def _group_error(
    group: OffsetFetchRequestGroup, error: ErrorCode, version: int
) -> OffsetFetchResponseGroup:
    response = OffsetFetchResponseGroup(group_id=group.group_id)
    if version >= _TOP_LEVEL_ERROR_FROM:
        response.error_code = error
    else:
        response.topics = [_topic_error(topic, error) for topic in group.topics or ()]
    return response


def _topic_error(topic: OffsetFetchRequestTopics, error: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=-1,
                error_code=error,
            )
            for index in topic.partition_indexes
        ],
    )


def refuse(
    _: type, request: OffsetFetchRequest, version: int, error: KafkaError
) -> OffsetFetchResponse:
    """Every group with the request's error."""
    if version >= _GROUPS_FROM:
        groups = [_group_error(group, error.code, version) for group in request.groups]
        return OffsetFetchResponse(groups=groups)
    return _flat(_group_error(_only_group(request), error.code, version))


API = Api(
    key=ApiKey.OFFSET_FETCH,
    handle=handle,
    authorize=(
        on_each(AclOperation.DESCRIBE, AclResourceType.GROUP),
        on_each(AclOperation.DESCRIBE, AclResourceType.TOPIC),
    ),
    refuse=refuse,
)
