"""DescribeProducers: v0. The active producers of a partition. (KIP-664)

Behaviour: the producer ids whose sequences this replica keeps, leader or follower, as in Kafka;
errors are per partition.
Versions: v0.    Not done: -
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.item_errors import check_topic
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.broker.cluster_view import topic_name_problem

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices


def handle(
    broker: "BrokerServices", context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """List each partition's producers."""
    response = DescribeProducersResponse()
    for topic in request.topics:
        answers = []
        for index in topic.partition_indexes:
            answer = PartitionResponse(partition_index=index)
            try:
                answer.active_producers = _producers(broker, context, topic.name, index)
            except KafkaError as error:
                answer.error_code = int(error.code)
                answer.error_message = error.detail or None
            answers.append(answer)
        response.topics.append(TopicResponse(name=topic.name, partitions=answers))
    return response


def _producers(
    broker: "BrokerServices", context: RequestContext, topic: str, index: int
) -> list[ProducerState]:
    problem = topic_name_problem(topic)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
    check_topic(context, AclOperation.READ, topic)
    log = broker.replica_manager.replica(topic, index).log
    return [
        ProducerState(
            producer_id=state.producer_id,
            producer_epoch=state.epoch,
            last_sequence=state.last_sequence,
            last_timestamp=state.last_timestamp,
            coordinator_epoch=state.coordinator_epoch,
            current_txn_start_offset=state.txn_first_offset,
        )
        for state in log.active_producers()
    ]


API = Api(
    key=ApiKey.DESCRIBE_PRODUCERS,
    handle=handle,
    authorize=(on_each(AclOperation.READ, AclResourceType.TOPIC),),
)
