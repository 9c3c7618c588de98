"""Metadata: v0-13. Which brokers and topics are there, and who leads what? (KIP-516, KIP-430)

Behaviour:
    * Topics by name (all versions) or by id (v12+); null is all of them (v0: an empty list).
    * A missing topic is created if `allow_auto_topic_creation` (v4+; before: always) and
      auto.create.topics.enable are true; until then: UNKNOWN_TOPIC_OR_PARTITION.
    * `controller_id` is a random unfenced broker, by design, as in Kafka; in ZooKeeper mode the
      controller.
    * Topics are encoded once and joined for each client; its rights are checked each time.
    * v0 leaves out replicas on fenced brokers, with REPLICA_NOT_AVAILABLE.
Versions: v1 controller, racks; v2 cluster id; v5 offline replicas; v7 leader epochs; v8 authorized
    operations; v9 flexible; v10 topic ids; v12 ids in requests; v13 top-level error.    Not done: -
"""

from typing import TYPE_CHECKING, Any, cast

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.base.loop_work import LoopBound
from sparkraft.base.placeholder_ids import wire_id
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import Encoded, encode_elements, encode_parts
from sparkraft.protocol.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.authorized_operations import cluster_operations, topic_operations
from sparkraft.server.api.encoded_array import encoded_in_pieces
from sparkraft.server.api.registry import Api, RequestContext, Steps
from sparkraft.server.broker.cluster_view import (
    INTERNAL_TOPICS,
    leaderless_error,
    live_brokers,
    offline_among,
    topic_name_problem,
)
from sparkraft.server.broker.encoded_topics import AllTopics

if TYPE_CHECKING:
    from collections.abc import Generator

    from sparkraft.metadata.image import BrokerRegistration, Topic
    from sparkraft.metadata.partition_state import PartitionState
    from sparkraft.server.broker_services import BrokerServices

_BY_ID_VERSION = 12
_JOINED_BYTES = 64 * 1024

UNITS: LoopBound = 250
"""Partitions encoded, or names looked at, between two chances to interrupt."""


def handle(broker: "BrokerServices", context: RequestContext, request: MetadataRequest) -> Steps:
    """Describe the cluster as this broker's image has it; returns the encoded response."""
    image = broker.image
    brokers = live_brokers(image, context.listener_name)
    response = MetadataResponse(cluster_id=broker.cluster_id)
    for registration, endpoint in brokers:
        response.brokers.append(
            MetadataResponseBroker(
                node_id=registration.id,
                host=endpoint.host,
                port=endpoint.port,
                rack=registration.rack,
            )
        )
    response.controller_id = broker.controller_for_clients([each for each, _ in brokers])
    topics = yield from _Topics(broker, context, request).collect()
    response.topics = cast("Any", topics)
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(context)
    return encode_parts(response, context.api_version)


class _Topics:
    """The topics of one response, encoded in order."""

    def __init__(
        self, broker: "BrokerServices", context: RequestContext, request: MetadataRequest
    ) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._image = broker.image
        self._version = context.api_version
        self._shows_operations = request.include_topic_authorized_operations
        key = context.listener_name, self._version, self._shows_operations
        self._pieces = broker.metadata.encoded.variant(self._image, key)
        self._live: dict[int, BrokerRegistration] = {
            each.id: each for each, _ in live_brokers(self._image, key[0])
        }
        self._buffers: list[bytes] = []
        self._count = 0

    def collect(self) -> "Generator[int, None, Encoded]":
        """Every topic that the request is about, and that the client may see."""
        asked = self._request.topics
        if asked is None or (self._version == 0 and not asked):
            yield from self._add_all()
        else:
            yield from self._add_asked(asked)
        return Encoded(self._count, self._buffers)

    # ---- which topics

    def _add_all(self) -> "Generator[int, None, None]":
        allows_all = self._context.session.authorizer.allows_all
        joined = self._pieces.all_of(self._image) if allows_all else None
        if joined is not None:
            self._count, self._buffers = joined.topic_count, list(joined.buffers)
            return
        image = self._image
        for number, name in enumerate(self._broker.metadata.topic_names(image)):
            if number % UNITS == 0:
                yield UNITS // 10
            if allows_all or _may_describe(self._context, name, logs=False):
                yield from self._add(image.topics_by_id[image.topics_by_name[name]])
        if allows_all:
            joined = AllTopics(self._count, _joined(self._buffers))
            self._pieces.put_all(image, joined)
            self._buffers = list(joined.buffers)

    def _add_asked(self, asked: list[Any]) -> "Generator[int, None, None]":
        ids: dict[Uuid, None] = {}
        names: dict[str, None] = {}
        for number, topic in enumerate(asked):
            if number % UNITS == UNITS - 1:
                yield UNITS // 10
            if topic.topic_id != Uuid.ZERO:
                ids[topic.topic_id] = None
            if self._version < _BY_ID_VERSION and (
                topic.name is None or topic.topic_id != Uuid.ZERO
            ):
                wrong = f"version {self._version} asks for topics by name only"
                raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)
            names[topic.name or ""] = None
        if ids:
            for topic_id in ids:
                yield from self._add_by_id(topic_id)
        else:
            yield from self._add_by_name(names)

    def _add_by_id(self, topic_id: Uuid) -> "Generator[int, None, None]":
        topic = self._image.topics_by_id.get(topic_id)
        if topic is None:
            self._add_error(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
        elif not _may_describe(self._context, topic.name):
            self._add_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, topic_id)
        else:
            yield from self._add(topic)
        yield 1

    def _add_by_name(self, names: dict[str, None]) -> "Generator[int, None, None]":
        missing: list[str] = []
        hidden: list[str] = []
        for name in names:
            yield 1
            if not _may_describe(self._context, name):
                hidden.append(name)
                continue
            topic = self._image.topic(name)
            if topic is None:
                missing.append(name)
            else:
                yield from self._add(topic)
        for at in range(0, len(missing), UNITS):
            self._add_missing(missing[at : at + UNITS])
            yield UNITS
        for name in hidden:
            self._add_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
            yield 1

    def _add_missing(self, names: list[str]) -> None:
        broker, context = self._broker, self._context
        errors: dict[str, ErrorCode] = {}
        if self._request.allow_auto_topic_creation and broker.config.flag(
            "auto.create.topics.enable"
        ):
            creatable = [name for name in names if _may_create(context, name)]
            errors = dict.fromkeys(
                set(names).difference(creatable), ErrorCode.TOPIC_AUTHORIZATION_FAILED
            )
            errors |= broker.auto_topic_creation.request(creatable, context)
        for name in names:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if topic_name_problem(name) is not None:
                error = ErrorCode.INVALID_TOPIC_EXCEPTION
            self._add_absent(name, errors.get(name, error))

    # ---- encoding them

    def _add_error(self, error: ErrorCode, name: str | None, topic_id: Uuid = Uuid.ZERO) -> None:
        self._put(
            self._encoded(MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id))
        )

    def _add_absent(self, name: str, error: ErrorCode) -> None:
        answer = MetadataResponseTopic(
            error_code=error, name=name, is_internal=name in INTERNAL_TOPICS
        )
        if self._shows_operations and error is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            answer.topic_authorized_operations = topic_operations(self._context, name)
        self._put(self._encoded(answer))

    def _put(self, piece: bytes) -> None:
        self._buffers.append(piece)
        self._count += 1

    def _add(self, topic: "Topic") -> "Generator[int, None, None]":
        # Authorized operations differ by client: such a piece is not kept.
        shared = not self._shows_operations or self._context.session.authorizer.allows_all
        piece = self._pieces.get(topic) if shared else None
        if piece is None:
            piece = yield from self._encode(topic)
            if shared:
                self._pieces.put(topic, piece)
        self._put(piece)

    def _encode(self, topic: "Topic") -> "Generator[int, None, bytes]":
        chunks: list[bytes] = []
        chunk: list[MetadataResponsePartition] = []
        for index, partition in topic.in_order():
            chunk.append(self._partition(index, partition))
            if len(chunk) == UNITS:
                chunks.append(encode_elements(MetadataResponse, self._version, chunk))
                chunk = []
                yield UNITS
        chunks.append(encode_elements(MetadataResponse, self._version, chunk))
        yield len(chunk) + 1
        answer = MetadataResponseTopic(
            name=topic.name,
            topic_id=wire_id(topic.id),
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=cast("Any", Encoded(len(topic.partitions), chunks)),
        )
        if self._shows_operations:
            answer.topic_authorized_operations = topic_operations(self._context, topic.name)
        return self._encoded(answer)

    def _encoded(self, topic: MetadataResponseTopic) -> bytes:
        return encode_elements(MetadataResponse, self._version, (topic,))

    def _partition(self, index: int, partition: "PartitionState") -> MetadataResponsePartition:
        live = self._live
        replicas, isr = list(partition.replicas), list(partition.isr)
        if self._version == 0:
            replicas = [replica for replica in replicas if replica in live]
            isr = [replica for replica in isr if replica in live]
        error = ErrorCode.NONE
        leader = partition.leader
        if leader not in live:
            error = leaderless_error(self._image, leader, version=self._version)
            leader = -1
        elif len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
            error = ErrorCode.REPLICA_NOT_AVAILABLE
        return MetadataResponsePartition(
            error_code=error,
            partition_index=index,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=offline_among(live, partition),
        )


def _joined(pieces: list[bytes]) -> list[bytes]:
    """Pieces joined to larger ones, so that handing them on costs nothing per topic."""
    out: list[bytes] = []
    first = size = 0
    for number, piece in enumerate(pieces):
        size += len(piece)
        if size >= _JOINED_BYTES:
            out.append(b"".join(pieces[first : number + 1]))
            first, size = number + 1, 0
    return [*out, b"".join(pieces[first:])]


def _may_describe(context: RequestContext, name: str, *, logs: bool = True) -> bool:
    return context.is_allowed(AclOperation.DESCRIBE, AclResourceType.TOPIC, name, logs=logs)


def _may_create(context: RequestContext, name: str) -> bool:
    return context.is_allowed(
        AclOperation.CREATE, AclResourceType.CLUSTER, logs=False
    ) or context.is_allowed(AclOperation.CREATE, AclResourceType.TOPIC, name)


def refuse(_: type, request: Any, version: int, error: KafkaError) -> Steps:
    """Every requested topic with the request's error."""
    topics = (
        MetadataResponseTopic(
            error_code=error.code,
            name=topic.name if topic.name is not None or version >= _BY_ID_VERSION else "",
            topic_id=topic.topic_id,
        )
        for topic in request.topics or ()
    )
    encoded = yield from encoded_in_pieces(MetadataResponse, version, topics)
    return MetadataResponse(error_code=error.code, topics=encoded)


API = Api(
    key=ApiKey.METADATA,
    handle=handle,
    authorize=(
        on_each(AclOperation.DESCRIBE, AclResourceType.TOPIC),
        on_each(
            AclOperation.CREATE, AclResourceType.CLUSTER, when="a missing topic may be created"
        ),
        on_each(AclOperation.CREATE, AclResourceType.TOPIC, when="CREATE on the cluster is denied"),
    ),
    refuse=refuse,
)
