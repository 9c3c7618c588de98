"""OffsetFetch: v1-10. The committed offsets of groups. (KIP-88, KIP-447, KIP-709, KIP-848)

Behaviour:
    * A partition, or a whole group, without a commit: offset -1, no error.
    * Null topics (v2+): every committed offset of the group.
    * `require_stable` (v7+): UNSTABLE_OFFSET_COMMIT while a transaction holds a commit.
    * v10 by topic id: UNKNOWN_TOPIC_ID; an offset committed under another id of the name is -1.
    * v9 from a member of a consumer group: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH;
      ILLEGAL_GENERATION if it uses the classic protocol.
    * A group named repeatedly is answered repeatedly, from one encoding.
    * Errors of a group: at its top, in v1 at every partition.
Versions: v3 throttle; v5 leader epochs; v6 flexible; v8 several groups; v9 member and
    epoch; v10 topic ids.    Not done: -
"""

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.base.loop_work import LoopBound
from sparkraft.base.placeholder_ids import wire_id
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import Encoded, encode_elements, encode_parts
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
from sparkraft.server.api.encoded_array import encoded_in_pieces
from sparkraft.server.api.registry import Api, RequestContext, Steps

if TYPE_CHECKING:
    from collections.abc import Generator, Hashable, Iterator

    from sparkraft.coordinator.group.shard import GroupShard
    from sparkraft.protocol.declare import Message
    from sparkraft.server.broker_services import BrokerServices
    from sparkraft.server.coordinator.group_service import GroupShardRuntime

_TOP_LEVEL_ERROR_FROM = 2
_GROUPS_FROM = 8
_BY_ID_FROM = 10
_MEMBER_ERRORS = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.ILLEGAL_GENERATION,
    }
)
"""Others become NOT_COORDINATOR, as in Kafka's handleOffsetFetchException: clients look for another
coordinator."""

CHUNK: LoopBound = 500
"""Partitions read and encoded at once: 0.3 ms."""


def handle(broker: "BrokerServices", context: RequestContext, request: OffsetFetchRequest) -> Steps:
    """Read from the shard of each group; returns the encoded response."""
    version = context.api_version
    fetch = _OffsetFetch(broker, context, require_stable=request.require_stable)
    if version < _GROUPS_FROM:
        error, topics = yield from fetch.group(_only_group(request))
        flat = OffsetFetchResponse(error_code=error, topics=cast("Any", topics))
        return encode_parts(flat, version)
    known: dict[Hashable, bytes] = {}
    buffers: list[bytes] = []
    for group in request.groups:
        key = (group.group_id, None) if len(request.groups) == 1 else _key(group)
        piece = known.get(key)
        if piece is None:
            piece = known[key] = yield from fetch.encoded_group(group)
        buffers.append(piece)
        yield 1
    response = OffsetFetchResponse(groups=cast("Any", Encoded(len(buffers), buffers)))
    return encode_parts(response, version)


def _only_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=one.name, partition_indexes=one.partition_indexes)
            for one in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _key(group: OffsetFetchRequestGroup) -> "Hashable":
    """Equal for groups with equal responses."""
    topics = group.topics
    named = (
        None
        if topics is None
        else tuple((topic.name, topic.topic_id, tuple(topic.partition_indexes)) for topic in topics)
    )
    return group.group_id, group.member_id, group.member_epoch, named


_Topics = tuple[int, Encoded]
"""A group's error and its encoded topics."""


class _OffsetFetch:
    """One request, group by group."""

    def __init__(
        self, broker: "BrokerServices", context: RequestContext, *, require_stable: bool
    ) -> None:
        self._broker = broker
        self._context = context
        self._version = context.api_version
        self._require_stable = require_stable
        flat = self._version < _GROUPS_FROM
        self._topic_class: Any = OffsetFetchResponseTopic if flat else OffsetFetchResponseTopics
        self._partition_class: Any = (
            OffsetFetchResponsePartition if flat else OffsetFetchResponsePartitions
        )

    def encoded_group(self, group: OffsetFetchRequestGroup) -> "Generator[Any, Any, bytes]":
        """A group's response from v8 on."""
        error, topics = yield from self.group(group)
        response = OffsetFetchResponseGroup(
            group_id=group.group_id, topics=cast("Any", topics), error_code=error
        )
        yield len(topics)
        return self._encode(response)

    def group(self, group: OffsetFetchRequestGroup) -> "Generator[Any, Any, _Topics]":
        """A group's error and topics."""
        if not self._context.is_allowed(
            AclOperation.DESCRIBE, AclResourceType.GROUP, group.group_id
        ):
            return self._failed(group, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        try:
            runtime = self._broker.groups.shard_for(group.group_id)
        except KafkaError as error:
            return self._failed(group, error.code)
        try:
            yield from self._check(runtime, group)
            wanted, refused = yield from self._wanted(runtime, group)
            pieces = []
            for topic in wanted:
                piece = yield from self._topic(runtime, group, topic)
                if piece is not None:
                    pieces.append(piece)
        except KafkaError as error:
            code = error.code if error.code in _MEMBER_ERRORS else ErrorCode.NOT_COORDINATOR
            return self._failed(group, code)  # this group fails, the others do not
        return 0, Encoded(len(pieces) + len(refused), [*pieces, *refused])

    def _check(
        self, runtime: "GroupShardRuntime", group: OffsetFetchRequestGroup
    ) -> "Generator[Any, Any, None]":
        """Raise the KafkaError of a group whose offsets this client may not have."""
        empty = OffsetFetchRequestGroup(
            group_id=group.group_id,
            member_id=group.member_id,
            member_epoch=group.member_epoch,
            topics=[],
        )
        checked = runtime.execute_read(
            lambda shard, _: shard.fetch_offsets(empty, require_stable=self._require_stable)
        )
        if isinstance(checked, Awaitable):
            yield checked

    def _wanted(
        self, runtime: "GroupShardRuntime", group: OffsetFetchRequestGroup
    ) -> "Generator[Any, Any, tuple[list[OffsetFetchRequestTopics], list[bytes]]]":
        """The topics to read, with names, and the encoded ones that are refused."""
        if group.topics is None:
            topics = yield from self._committed_topics(runtime, group.group_id)
            return topics, []
        wanted, refused, denied = [], [], []
        for topic in group.topics:
            yield 1
            if self._version >= _BY_ID_FROM:
                known = self._broker.image.topics_by_id.get(topic.topic_id)
                if known is None:
                    refused.append(self._refused(topic, ErrorCode.UNKNOWN_TOPIC_ID))
                    continue
                topic.name = known.name
            if self._may_describe(topic.name):
                wanted.append(topic)
            else:
                denied.append(self._refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        return wanted, [*refused, *denied]

    def _committed_topics(
        self, runtime: "GroupShardRuntime", group_id: str
    ) -> "Generator[Any, Any, list[OffsetFetchRequestTopics]]":
        """All topics with a committed offset that the client may see: it named none."""
        read = runtime.execute_read(lambda shard, _: list(shard.offsets.committed(group_id)))
        committed = (yield read) if isinstance(read, Awaitable) else read
        by_name: dict[str, list[int]] = {}
        for number, (name, index) in enumerate(committed):
            by_name.setdefault(name, []).append(index)
            if number % CHUNK == CHUNK - 1:
                yield CHUNK // 10
        topics = []
        for name in sorted(by_name):
            yield 1
            topic_id = Uuid.ZERO
            if self._version >= _BY_ID_FROM:
                topic_id = wire_id(self._broker.image.topics_by_name.get(name, Uuid.ZERO))
                if topic_id == Uuid.ZERO:
                    continue  # deleted, or without an id
            if self._may_describe(name):
                indexes = sorted(by_name[name])
                topics.append(
                    OffsetFetchRequestTopics(
                        name=name, topic_id=topic_id, partition_indexes=indexes
                    )
                )
        return topics

    # ---- reading and encoding

    def _topic(
        self,
        runtime: "GroupShardRuntime",
        group: OffsetFetchRequestGroup,
        topic: OffsetFetchRequestTopics,
    ) -> "Generator[Any, Any, bytes | None]":
        """A topic's offsets; None if all were deleted since the topics were listed."""
        indexes = topic.partition_indexes
        chunks: list[bytes] = []
        count = 0
        for at in range(0, max(len(indexes), 1), CHUNK):
            part = indexes[at : at + CHUNK]
            read = runtime.execute_read(partial(self._read, group, topic, part))
            size, chunk = (yield read) if isinstance(read, Awaitable) else read
            count += size
            chunks.append(chunk)
            yield len(part) // 4 + 1
        if not count and group.topics is None:
            return None
        return self._encode_topic(topic, count, chunks)

    def _read(
        self,
        group: OffsetFetchRequestGroup,
        topic: OffsetFetchRequestTopics,
        indexes: list[int],
        shard: "GroupShard",
        _: object,
    ) -> tuple[int, bytes]:
        """Some partitions as they are now: how many, and their bytes."""
        offsets = shard.offsets
        committed = offsets.committed(group.group_id)
        pending = offsets.pending(group.group_id) if self._require_stable else ()
        lists_all = group.topics is None
        count = len(indexes)
        one = self._partition_class()

        def each() -> "Iterator[Message]":
            nonlocal count
            name, topic_id = topic.name, topic.topic_id
            has_id = self._version >= _BY_ID_FROM and not lists_all
            for index in indexes:
                found = committed.get((name, index))
                if has_id and found is not None and _is_other_topic(found.topic_id, topic_id):
                    found = None
                if found is None and lists_all:
                    count -= 1
                    continue
                if pending:
                    unstable = (name, index) in pending
                    one.error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT if unstable else 0
                    found = None if unstable else found
                one.partition_index = index
                if found is None:
                    one.committed_offset = one.committed_leader_epoch = -1
                    one.metadata = ""
                else:
                    one.committed_offset = found[0]
                    one.committed_leader_epoch = found[1]
                    one.metadata = found[2]
                yield one

        encoded = encode_elements(OffsetFetchResponse, self._version, each())
        return count, encoded

    def _encode_topic(
        self, topic: OffsetFetchRequestTopics, count: int, chunks: list[bytes]
    ) -> bytes:
        partitions = Encoded(count, chunks)
        answer = self._topic_class(name=topic.name, partitions=partitions)
        if self._version >= _BY_ID_FROM:
            answer.topic_id = topic.topic_id
        return self._encode(answer)

    def _encode(self, element: "Message") -> bytes:
        return encode_elements(OffsetFetchResponse, self._version, (element,))

    # ---- errors

    def _may_describe(self, topic: str) -> bool:
        return self._context.is_allowed(AclOperation.DESCRIBE, AclResourceType.TOPIC, topic)

    def _refused(self, topic: OffsetFetchRequestTopics, error: ErrorCode) -> bytes:
        one = self._partition_class(
            committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=error
        )

        def each() -> "Iterator[Message]":
            for one.partition_index in topic.partition_indexes:
                yield one

        chunk = encode_elements(OffsetFetchResponse, self._version, each())
        return self._encode_topic(topic, len(topic.partition_indexes), [chunk])

    def _failed(self, group: OffsetFetchRequestGroup, error: ErrorCode) -> _Topics:
        """A whole group with an error: at its top, or in v1 at each partition."""
        if self._version >= _TOP_LEVEL_ERROR_FROM:
            return int(error), Encoded(0, [])
        topics = group.topics or []
        return 0, Encoded(len(topics), [self._refused(topic, error) for topic in topics])


def _is_other_topic(committed: bytes, requested: bytes) -> bool:
    """Whether the offset was committed to a deleted topic of the same name."""
    return committed != requested and any(committed) and any(requested)


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


def refuse(_: type, request: OffsetFetchRequest, version: int, error: KafkaError) -> Steps:
    """Every group with the request's error."""
    if version < _GROUPS_FROM:
        return _flat(_group_error(_only_group(request), error.code, version))
    found = (_group_error(group, error.code, version) for group in request.groups)
    groups = yield from encoded_in_pieces(OffsetFetchResponse, version, found)
    return OffsetFetchResponse(groups=groups)


API = Api(
    key=ApiKey.OFFSET_FETCH,
    handle=handle,
    authorize=(
        on_each(AclOperation.DESCRIBE, AclResourceType.GROUP),
        on_each(AclOperation.DESCRIBE, AclResourceType.TOPIC),
    ),
    refuse=refuse,
)
