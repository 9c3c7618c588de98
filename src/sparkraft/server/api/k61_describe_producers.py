"""DescribeProducers: v0. The active producers of a partition. (KIP-664)

Behaviour: the producer ids whose sequences this replica keeps, leader or follower, as in Kafka;
errors are per partition.
Versions: v0.    Not done: -
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import encode_parts
from sparkraft.protocol.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.encoded_array import EncodedArray
from sparkraft.server.api.item_errors import check_topic
from sparkraft.server.api.registry import Api, RequestContext, Steps
from sparkraft.server.broker.cluster_view import topic_name_problem

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices
    from sparkraft.storage.producers import ProducerState as Known


def handle(
    broker: "BrokerServices", context: RequestContext, request: DescribeProducersRequest
) -> Steps:
    """List each partition's producers; returns the encoded response."""
    version = context.api_version
    topics = EncodedArray(DescribeProducersResponse, version)
    for topic in request.topics:
        answers = EncodedArray(DescribeProducersResponse, version)
        for index in topic.partition_indexes:
            answer = PartitionResponse(partition_index=index)
            try:
                states = _states(broker, context, topic.name, index)
            except KafkaError as error:
                answer.error_code = int(error.code)
                answer.error_message = error.detail or None
            else:
                producers = EncodedArray(DescribeProducersResponse, version)
                for state in states:
                    producers.add(_described(state))
                    yield 1
                answer.active_producers = producers.encoded()
            answers.add(answer)
            yield 1
        topics.add(TopicResponse(name=topic.name, partitions=answers.encoded()))
        yield 1
    return encode_parts(DescribeProducersResponse(topics=topics.encoded()), version)


def _states(
    broker: "BrokerServices", context: RequestContext, topic: str, index: int
) -> "list[Known]":
    problem = topic_name_problem(topic)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
    check_topic(context, AclOperation.READ, topic)
    return broker.replica_manager.replica(topic, index).log.active_producers()


def _described(state: "Known") -> ProducerState:
    return ProducerState(
        producer_id=state.producer_id,
        producer_epoch=state.epoch,
        last_sequence=state.last_sequence,
        last_timestamp=state.last_timestamp,
        coordinator_epoch=state.coordinator_epoch,
        current_txn_start_offset=state.txn_first_offset,
    )


API = Api(
    key=ApiKey.DESCRIBE_PRODUCERS,
    handle=handle,
    authorize=(on_each(AclOperation.READ, AclResourceType.TOPIC),),
)
