"""ConsumerGroupHeartbeat: v0-1. Join, stay in and leave a consumer group. (KIP-848)

Behaviour:
    * Member epoch 0 joins or rejoins, -1 leaves, -2 leaves for a while (static members); another
      must be the member's: FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND. The previous
      epoch is accepted too if the client owns nothing new: the last response was lost.
    * A regular expression is RE2 and matches whole names: INVALID_REGULAR_EXPRESSION. It finds the
      topics that the principal of the member whose heartbeat resolves it may describe, as in Kafka.
    * An instance id in use: UNRELEASED_INSTANCE_ID for the newcomer; taken over:
      FENCED_INSTANCE_ID for the old member.
    * The response has an assignment if the client sent everything, or if it changed.
    * `group.consumer.assignment.interval.ms` limits how often the target is computed, so a second
      member may wait for its partitions until a later heartbeat, as with Kafka.
    * Above sparkraft.group.members.max.bytes in all groups of this broker, a heartbeat with a
      subscription: COORDINATOR_NOT_AVAILABLE. Kafka has no such bound.
    * group.version 0, or `consumer` not among group.coordinator.rebalance.protocols:
      UNSUPPORTED_VERSION.
Versions: v1 the client chooses its member id, regular expressions.    Not done: -
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Millis
from sparkraft.coordinator.group.consumer_member import (
    JOIN_EPOCH,
    TOPIC_BYTES,
    subscription_bytes,
)
from sparkraft.coordinator.group.consumer_requests import check_heartbeat
from sparkraft.coordinator.steps import PIECE_UNITS, pieces
from sparkraft.metadata.features import GROUP_VERSION
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import denied, on_each, on_group
from sparkraft.server.api.encoded_array import EncodedArray
from sparkraft.server.api.registry import Api, RequestContext, Steps
from sparkraft.server.coordinator.requests import peer_of

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices


def handle(
    broker: "BrokerServices", context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> Steps:
    """Check the request, then let the group's shard decide."""
    if not broker.image.features.get(GROUP_VERSION) or not broker.groups.serves_consumer_protocol:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    for piece in pieces(request.subscribed_topic_names or ()):
        for name in piece:
            if not context.is_allowed(AclOperation.DESCRIBE, AclResourceType.TOPIC, name):
                raise denied(AclResourceType.TOPIC)
        yield len(piece) // 4
    assignors = broker.groups.group_config.consumer.assignors
    check_heartbeat(request, context.api_version, assignors)
    _admit(broker, request, Millis(context.received_ms))
    runtime = broker.groups.shard_for(request.group_id)
    peer = peer_of(context)

    def may_describe(topic: str) -> bool:
        return context.is_allowed(AclOperation.DESCRIBE, AclResourceType.TOPIC, topic, logs=False)

    deciding = runtime.execute_write(
        lambda shard, now: shard.handle_consumer_heartbeat(request, peer, may_describe, now)
    )
    response = (yield deciding) if isinstance(deciding, Awaitable) else deciding
    yield from _encode_assignment(response, context.api_version)
    return response


def _encode_assignment(response: ConsumerGroupHeartbeatResponse, version: int) -> Steps:
    """A long assignment, in pieces."""
    assignment = response.assignment
    if assignment is None or len(assignment.topic_partitions) <= PIECE_UNITS:
        return
    topics = EncodedArray(ConsumerGroupHeartbeatResponse, version)
    for piece in pieces(assignment.topic_partitions):
        for topic in piece:
            topics.add(topic)
        yield len(piece)
    assignment.topic_partitions = topics.encoded()


def _admit(broker: "BrokerServices", request: ConsumerGroupHeartbeatRequest, now: Millis) -> None:
    """Let the broker's groups hold the subscription, if the client sends one."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    if request.member_epoch < JOIN_EPOCH or (names is None and regex is None):
        return
    size = subscription_bytes(names, regex)
    if regex:
        size += len(broker.image.topics_by_id) * TOPIC_BYTES  # it may match all of them
    broker.groups.member_memory.admit(size, now)


API = Api(
    key=ApiKey.CONSUMER_GROUP_HEARTBEAT,
    handle=handle,
    authorize=(
        on_group(AclOperation.READ),
        on_each(AclOperation.DESCRIBE, AclResourceType.TOPIC),
    ),
)
