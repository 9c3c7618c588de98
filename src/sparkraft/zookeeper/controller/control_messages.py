"""Control requests as Kafka's messages, and the results of their responses.

Rules of Kafka 3.9's ControllerBrokerRequestBatch:
    * `inter.broker.protocol.version` selects the version. A KRaft controller that migrates the
      cluster sets `is_kraft_controller`, and `type` if its request has all partitions.
    * LeaderAndIsr contains the address of each registered leader on the inter-broker listener.
      A leader without that listener fails the batch (BrokerEndPointNotAvailableException).
    * UpdateMetadata contains all listeners of all registered brokers.
    * A topic without an id has the zero id.
"""

from collections.abc import Generator, Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple, TypeVar

from sparkraft.base.ids import TopicPartition, Uuid
from sparkraft.protocol.codec import encode_arrays
from sparkraft.protocol.declare import Message
from sparkraft.protocol.messages.k04_leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from sparkraft.protocol.messages.k04_leader_and_isr import (
    LeaderAndIsrRequest as LeaderAndIsrMessage,
)
from sparkraft.protocol.messages.k05_stop_replica import (
    StopReplicaPartitionState,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from sparkraft.protocol.messages.k05_stop_replica import (
    StopReplicaRequest as StopReplicaMessage,
)
from sparkraft.protocol.messages.k06_update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataTopicState,
)
from sparkraft.protocol.messages.k06_update_metadata import (
    UpdateMetadataRequest as UpdateMetadataMessage,
)
from sparkraft.security.protocols import SecurityProtocol
from sparkraft.zookeeper.controller.protocol_version import ProtocolVersion
from sparkraft.zookeeper.controller.requests import (
    ControlRequest,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    MetadataPartition,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from sparkraft.zookeeper.controller.steps import pieces
from sparkraft.zookeeper.controller.values import Broker

T = TypeVar("T")

_ZERO_ID = Uuid(bytes(16))


class MissingListenerError(Exception):
    """A leader has no endpoint on the inter-broker listener."""


class Sender(NamedTuple):
    """The controller that sends the requests."""

    id: int
    protocol: ProtocolVersion
    listener: str
    """Name of the inter-broker listener."""
    is_kraft: bool = False


class ControlMessage(NamedTuple):
    """A request to encode, and its version."""

    message: Message
    version: int

    def to_another_broker(self, broker_epoch: int) -> "ControlMessage":
        """Return the same request to another broker, which shares encoded arrays."""
        message: Any = copy(self.message)
        message.broker_epoch = broker_epoch
        return self._replace(message=message)


def control_message(
    request: ControlRequest, sender: Sender
) -> Generator[int, None, ControlMessage]:
    """Convert a request; yields the partitions converted since the last time.

    Raises:
        MissingListenerError: a leader cannot be reached by other brokers.
    """
    if isinstance(request, LeaderAndIsrRequest):
        message = yield from _leader_and_isr(request, sender)
        return ControlMessage(message, sender.protocol.leader_and_isr)
    if isinstance(request, UpdateMetadataRequest):
        metadata = yield from _update_metadata(request, sender)
        return ControlMessage(metadata, sender.protocol.update_metadata)
    if isinstance(request, StopReplicaRequest):
        stop = yield from _stop_replica(request, sender)
        return ControlMessage(stop, sender.protocol.stop_replica)
    raise TypeError(f"{type(request).__name__} is not a control request")


def encoded_message(
    request: ControlRequest, sender: Sender
) -> Generator[int, None, ControlMessage]:
    """As `control_message`, with its arrays encoded; yields what was converted or encoded."""
    message, version = yield from control_message(request, sender)
    return ControlMessage((yield from encode_arrays(message, version)), version)


def convert_at_once(request: ControlRequest, sender: Sender) -> ControlMessage:
    """`control_message` in one piece, for tools."""
    steps = control_message(request, sender)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            message: ControlMessage = end.value
            return message


def leader_and_isr_errors(
    response: LeaderAndIsrResponse, topic_ids: Mapping[str, Uuid]
) -> Generator[int, None, dict[TopicPartition, int]]:
    """Return the error code of each partition; from v5 on the response names topics by id.

    Omit a topic whose id is unknown, as LeaderAndIsrResponse.partitionErrors does. Yields the
    partitions and topics done.
    """
    names: dict[Uuid, str] = {}
    for ids in pieces(topic_ids.items()):
        names.update((topic_id, name) for name, topic_id in ids)
        yield len(ids)
    errors = yield from _errors_by_name(response.partition_errors)
    for topic in response.topics:
        name = names.get(topic.topic_id)
        if name is not None:
            for piece in pieces(topic.partition_errors):
                errors.update(((name, each.partition_index), each.error_code) for each in piece)
                yield len(piece)
    return errors


def stop_replica_errors(
    response: StopReplicaResponse,
) -> Generator[int, None, dict[TopicPartition, int]]:
    """Return the error code of each partition."""
    return _errors_by_name(response.partition_errors)


def _errors_by_name(
    partition_errors: Sequence[Any],
) -> Generator[int, None, dict[TopicPartition, int]]:
    errors: dict[TopicPartition, int] = {}
    for piece in pieces(partition_errors):
        errors.update(((each.topic_name, each.partition_index), each.error_code) for each in piece)
        yield len(piece)
    return errors


def _by_topic(
    partitions: Mapping[TopicPartition, T],
) -> Generator[int, None, dict[str, list[tuple[int, T]]]]:
    topics: dict[str, list[tuple[int, T]]] = {}
    for piece in pieces(partitions.items()):
        for (topic, partition), state in piece:
            topics.setdefault(topic, []).append((partition, state))
        yield len(piece)
    return topics


def _leader_and_isr(
    request: LeaderAndIsrRequest, sender: Sender
) -> Generator[int, None, LeaderAndIsrMessage]:
    topics = []
    for topic, partitions in (yield from _by_topic(request.partitions)).items():
        states: list[LeaderAndIsrPartitionState] = []
        for piece in pieces(partitions):
            states += [
                _leader_and_isr_partition(index, each, sender.protocol) for index, each in piece
            ]
            yield len(piece)
        topic_id = request.topic_ids.get(topic, _ZERO_ID)
        topics.append(
            LeaderAndIsrTopicState(topic_name=topic, topic_id=topic_id, partition_states=states)
        )
    return LeaderAndIsrMessage(
        controller_id=sender.id,
        is_kraft_controller=sender.is_kraft,
        type=request.scope,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
        topic_states=topics,
        live_leaders=[_live_leader(broker, sender.listener) for broker in request.live_leaders],
    )


def _leader_and_isr_partition(
    index: int, partition: LeaderAndIsrPartition, protocol: ProtocolVersion
) -> LeaderAndIsrPartitionState:
    state, assignment = partition.leadership.state, partition.assignment
    return LeaderAndIsrPartitionState(
        partition_index=index,
        controller_epoch=partition.leadership.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        partition_epoch=state.partition_epoch,
        replicas=list(assignment.replicas),
        adding_replicas=list(assignment.adding),
        removing_replicas=list(assignment.removing),
        is_new=partition.is_new,
        leader_recovery_state=state.recovery_state if protocol.has_recovery_state else 0,
    )


def _live_leader(broker: Broker, listener: str) -> LeaderAndIsrLiveLeader:
    for endpoint in broker.endpoints:
        if endpoint.listener == listener:
            return LeaderAndIsrLiveLeader(
                broker_id=broker.id, host_name=endpoint.host, port=endpoint.port
            )
    raise MissingListenerError(f"Broker {broker.id} has no listener named {listener}.")


def _update_metadata(
    request: UpdateMetadataRequest, sender: Sender
) -> Generator[int, None, UpdateMetadataMessage]:
    topics = []
    for topic, partitions in (yield from _by_topic(request.partitions)).items():
        states: list[UpdateMetadataPartitionState] = []
        for piece in pieces(partitions):
            states += [_metadata_partition(index, each) for index, each in piece]
            yield len(piece)
        topic_id = request.topic_ids.get(topic, _ZERO_ID)
        topics.append(
            UpdateMetadataTopicState(topic_name=topic, topic_id=topic_id, partition_states=states)
        )
    return UpdateMetadataMessage(
        controller_id=sender.id,
        is_kraft_controller=sender.is_kraft,
        type=request.scope,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
        topic_states=topics,
        live_brokers=[_live_broker(broker) for broker in request.live_brokers],
    )


def _metadata_partition(index: int, partition: MetadataPartition) -> UpdateMetadataPartitionState:
    state = partition.leadership.state
    return UpdateMetadataPartitionState(
        partition_index=index,
        controller_epoch=partition.leadership.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        zk_version=state.partition_epoch,
        replicas=list(partition.replicas),
        offline_replicas=list(partition.offline),
    )


def _live_broker(broker: Broker) -> UpdateMetadataBroker:
    return UpdateMetadataBroker(
        id=broker.id,
        endpoints=[
            UpdateMetadataEndpoint(
                port=endpoint.port,
                host=endpoint.host,
                listener=endpoint.listener,
                security_protocol=SecurityProtocol[endpoint.security_protocol],
            )
            for endpoint in broker.endpoints
        ],
        rack=broker.rack,
    )


def _stop_replica(
    request: StopReplicaRequest, sender: Sender
) -> Generator[int, None, StopReplicaMessage]:
    topics = []
    for topic, partitions in (yield from _by_topic(request.partitions)).items():
        states: list[StopReplicaPartitionState] = []
        for piece in pieces(partitions):
            states += [
                StopReplicaPartitionState(
                    partition_index=index,
                    leader_epoch=each.leader_epoch,
                    delete_partition=each.delete,
                )
                for index, each in piece
            ]
            yield len(piece)
        topics.append(StopReplicaTopicState(topic_name=topic, partition_states=states))
    return StopReplicaMessage(
        controller_id=sender.id,
        is_kraft_controller=sender.is_kraft,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
        topic_states=topics,
    )
