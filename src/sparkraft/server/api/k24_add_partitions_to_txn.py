"""AddPartitionsToTxn: v0-5. Add partitions to a transaction, or verify them. (KIP-98, KIP-890)

Behaviour:
    * v0-3 from clients, one transaction. Topics that the client may not write, and internal ones:
      TOPIC_AUTHORIZATION_FAILED; partitions that do not exist: UNKNOWN_TOPIC_OR_PARTITION; the
      others then get OPERATION_NOT_ATTEMPTED, and none is added.
    * v4-5 from brokers, many transactions. Each is verified (`verify_only`) or added to.
    * An unknown transactional id or another producer id: INVALID_PRODUCER_ID_MAPPING; another
      epoch: PRODUCER_FENCED, below v2 INVALID_PRODUCER_EPOCH. A transaction that is being
      completed, or has a transition that is not committed: CONCURRENT_TRANSACTIONS.
    * Partitions that are not part of a verified transaction: TRANSACTION_ABORTABLE, in v4 too. The
      broker translates it for its client, as in Kafka.
    * At transaction.version 0 brokers add nothing: UNSUPPORTED_VERSION for the whole request.
    * The response is sent once the partitions are committed to `__transaction_state`.
Versions: v3 flexible; v4 several transactions; v5 TRANSACTION_ABORTABLE.    Not done: -
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import TopicPartition
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import denied, on_each
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.broker.cluster_view import INTERNAL_TOPICS
from sparkraft.server.coordinator.partition_check import AddPartitionsCheck, CheckKind
from sparkraft.server.coordinator.responses import (
    Response,
    catch_error,
    map_response,
    map_responses,
)

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices

BROKERS_FROM = 4
_FENCED_FROM = 2

_Errors = dict[TopicPartition, ErrorCode]


def handle(
    broker: "BrokerServices", context: RequestContext, request: AddPartitionsToTxnRequest
) -> Response[AddPartitionsToTxnResponse]:
    """Add to the client's transaction, or check each transaction of a broker's request."""
    if context.api_version >= BROKERS_FROM:
        return _check_all(broker, context, request)
    transactional_id = request.v3_and_below_transactional_id
    if not context.is_allowed(
        AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id
    ):
        raise denied(AclResourceType.TRANSACTIONAL_ID)
    every = list(_partitions(request.v3_and_below_topics))
    refused = {
        one: code for one in every if (code := _client_refusal(broker, context, one)) is not None
    }
    if refused:
        return _client_response(request, _not_attempted(every, refused), context.api_version)
    response = _add(broker, request, frozenset(every))
    version = context.api_version
    return map_response(
        response,
        lambda code: _client_response(request, dict.fromkeys(every, code), version),
    )


def _add(
    broker: "BrokerServices",
    request: AddPartitionsToTxnRequest,
    partitions: frozenset[TopicPartition],
) -> Response[ErrorCode]:
    transactional_id = request.v3_and_below_transactional_id

    def write() -> Response[ErrorCode]:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        response = broker.transactions.shard_for(transactional_id).execute_write(
            lambda shard, now: shard.handle_add_partitions(
                transactional_id,
                request.v3_and_below_producer_id,
                request.v3_and_below_producer_epoch,
                partitions,
                client_version=0,
                now=now,
            )
        )
        return map_response(response, lambda _: ErrorCode.NONE)

    return catch_error(write, lambda error: error.code)


def _client_refusal(
    broker: "BrokerServices", context: RequestContext, one: TopicPartition
) -> ErrorCode | None:
    topic, _ = one
    is_writable = topic not in INTERNAL_TOPICS and context.is_allowed(
        AclOperation.WRITE, AclResourceType.TOPIC, topic
    )
    if not is_writable:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return None if _exists(broker, one) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _check_all(
    broker: "BrokerServices", context: RequestContext, request: AddPartitionsToTxnRequest
) -> Response[AddPartitionsToTxnResponse]:
    if not context.is_allowed(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    version = context.api_version
    results = [_check(broker, one, version) for one in request.transactions]
    return map_responses(results, _checked)


def _checked(results: list[AddPartitionsToTxnResult]) -> AddPartitionsToTxnResponse:
    codes = {
        part.partition_error_code
        for result in results
        for topic in result.topic_results
        for part in topic.results_by_partition
    }
    if ErrorCode.UNSUPPORTED_VERSION in codes:
        return AddPartitionsToTxnResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def _check(
    broker: "BrokerServices", one: AddPartitionsToTxnTransaction, version: int
) -> Response[AddPartitionsToTxnResult]:
    every = list(_partitions(one.topics))
    unknown = {
        each: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for each in every if not _exists(broker, each)
    }
    response: Response[_Errors]
    if unknown:
        response = _not_attempted(every, unknown)
    else:
        response = broker.transactions.start_check(
            AddPartitionsCheck(
                one.transactional_id,
                one.producer_id,
                one.producer_epoch,
                every,
                CheckKind.ABORTABLE if one.verify_only else CheckKind.ADD,
            )
        )
    return map_response(
        response,
        lambda errors: AddPartitionsToTxnResult(
            transactional_id=one.transactional_id,
            topic_results=_topic_results(one.topics, errors, version),
        ),
    )


def _exists(broker: "BrokerServices", one: TopicPartition) -> bool:
    topic = broker.image.topic(one[0])
    return topic is not None and one[1] in topic.partitions


def _not_attempted(every: list[TopicPartition], refused: _Errors) -> _Errors:
    return dict.fromkeys(every, ErrorCode.OPERATION_NOT_ATTEMPTED) | refused


def _partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> Iterable[TopicPartition]:
    return ((topic.name, index) for topic in topics for index in topic.partitions)


def _client_response(
    request: AddPartitionsToTxnRequest, errors: _Errors, version: int
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=_topic_results(request.v3_and_below_topics, errors, version)
    )


def _topic_results(
    topics: Iterable[AddPartitionsToTxnTopic], errors: _Errors, version: int
) -> list[AddPartitionsToTxnTopicResult]:
    """One result for each topic, even if the request names it twice."""
    results: dict[str, AddPartitionsToTxnTopicResult] = {}
    for name, index in dict.fromkeys(_partitions(topics)):
        result = results.setdefault(name, AddPartitionsToTxnTopicResult(name=name))
        result.results_by_partition.append(
            AddPartitionsToTxnPartitionResult(
                partition_index=index,
                partition_error_code=_for_version(errors[name, index], version),
            )
        )
    return list(results.values())


def _for_version(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED and version < _FENCED_FROM:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def refuse(
    _: type, request: AddPartitionsToTxnRequest, version: int, error: KafkaError
) -> AddPartitionsToTxnResponse:
    """Every partition with the request's error; from v4 the response itself."""
    if version >= BROKERS_FROM:
        return AddPartitionsToTxnResponse(error_code=error.code)
    every = list(_partitions(request.v3_and_below_topics))
    return _client_response(request, dict.fromkeys(every, error.code), version)


API = Api(
    key=ApiKey.ADD_PARTITIONS_TO_TXN,
    handle=handle,
    authorize=(
        on_each(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, when="v0-3"),
        on_each(AclOperation.WRITE, AclResourceType.TOPIC, when="v0-3"),
        on_each(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, when="v4-5"),
    ),
    refuse=refuse,
)
