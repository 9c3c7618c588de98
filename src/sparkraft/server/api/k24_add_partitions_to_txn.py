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

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import TopicPartition
from sparkraft.base.loop_work import LoopBound
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import encode_parts
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
from sparkraft.server.api.encoded_array import CHUNK, EncodedArray, encoded_in_pieces
from sparkraft.server.api.registry import Api, RequestContext, Steps, result_of
from sparkraft.server.broker.cluster_view import INTERNAL_TOPICS
from sparkraft.server.coordinator.partition_check import AddPartitionsCheck, CheckKind
from sparkraft.server.coordinator.responses import Response, catch_error, map_response

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices

FEW: LoopBound = 50
"""Partitions that a client adds without slices: half a millisecond."""

BROKERS_FROM = 4
_FENCED_FROM = 2

CLIENT_VERSION_OF_BROKERS = 2
"""Transaction version of the clients for which brokers add partitions."""

_Distinct = dict[TopicPartition, None]
"""Partitions in the order of the request, each once."""


class _Outcome(NamedTuple):
    """The error of each partition of a transaction; `usual` for those without their own."""

    usual: ErrorCode
    own: dict[TopicPartition, ErrorCode]


_NOT_ATTEMPTED = ErrorCode.OPERATION_NOT_ATTEMPTED


def handle(
    broker: "BrokerServices", context: RequestContext, request: AddPartitionsToTxnRequest
) -> Response[AddPartitionsToTxnResponse] | Steps:
    """Add to the client's transaction, or check each transaction of a broker's request."""
    if context.api_version >= BROKERS_FROM:
        return _check_all(broker, context, request)
    topics = request.v3_and_below_topics
    if len(topics) <= FEW and sum(len(topic.partitions) for topic in topics) <= FEW:
        return _add_few(broker, context, request)
    return _add_many(broker, context, request)


def _add_few(
    broker: "BrokerServices", context: RequestContext, request: AddPartitionsToTxnRequest
) -> Response[AddPartitionsToTxnResponse]:
    """The usual request, once or twice a transaction: without slices."""
    every, refused = result_of(_checked(broker, context, request))
    version = context.api_version
    if refused:
        return _few_results(every, _Outcome(_NOT_ATTEMPTED, refused), version)
    added = _add_all(broker, request, every)
    return map_response(added, lambda code: _few_results(every, _Outcome(code, {}), version))


def _add_many(
    broker: "BrokerServices", context: RequestContext, request: AddPartitionsToTxnRequest
) -> Steps:
    every, refused = yield from _checked(broker, context, request)
    outcome = _Outcome(_NOT_ATTEMPTED, refused)
    if not refused:
        added = _add_all(broker, request, every)
        code = (yield added) if isinstance(added, Awaitable) else added
        outcome = _Outcome(code, {})
    response = yield from _client_response(every, outcome, context.api_version)
    return encode_parts(response, context.api_version)


def _checked(
    broker: "BrokerServices", context: RequestContext, request: AddPartitionsToTxnRequest
) -> Generator[int, None, tuple[_Distinct, dict[TopicPartition, ErrorCode]]]:
    """The partitions of a client's request, and those of them that must not be added."""
    if not context.is_allowed(
        AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, request.v3_and_below_transactional_id
    ):
        raise denied(AclResourceType.TRANSACTIONAL_ID)
    every = yield from _distinct(request.v3_and_below_topics)
    return every, (yield from _refused(broker, every, partial(_is_writable, context)))


def _add_all(
    broker: "BrokerServices", request: AddPartitionsToTxnRequest, every: _Distinct
) -> Response[ErrorCode]:
    return _add(
        broker,
        request.v3_and_below_transactional_id,
        (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
        every,
        client_version=0,
    )


def _add(
    broker: "BrokerServices",
    transactional_id: str,
    producer: tuple[int, int],
    every: _Distinct,
    *,
    client_version: int,
) -> Response[ErrorCode]:
    def write() -> Response[ErrorCode]:
        return broker.transactions.add_partitions(
            transactional_id, *producer, frozenset(every), client_version=client_version
        )

    return catch_error(write, lambda error: error.code)


def _is_writable(context: RequestContext, topic: str) -> bool:
    return topic not in INTERNAL_TOPICS and context.is_allowed(
        AclOperation.WRITE, AclResourceType.TOPIC, topic
    )


def _refused(
    broker: "BrokerServices", every: _Distinct, may_write: Callable[[str], bool]
) -> Generator[int, None, dict[TopicPartition, ErrorCode]]:
    """Partitions of denied topics, and those that do not exist."""
    refused: dict[TopicPartition, ErrorCode] = {}
    writable: dict[str, bool] = {}
    for one in every:
        topic = one[0]
        if topic not in writable:
            writable[topic] = may_write(topic)
        if not writable[topic]:
            refused[one] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif not _exists(broker, one):
            refused[one] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        yield 1
    return refused


def _check_all(
    broker: "BrokerServices", context: RequestContext, request: AddPartitionsToTxnRequest
) -> Steps:
    if not context.is_allowed(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    version = context.api_version
    started: list[tuple[AddPartitionsToTxnTransaction, _Distinct, list[Response[Any]]]] = []
    for one in request.transactions:
        every = yield from _distinct(one.topics)
        unknown = yield from _refused(broker, every, lambda _: True)
        if unknown:
            started.append((one, every, [_Outcome(_NOT_ATTEMPTED, unknown)]))
        else:
            started.append((one, every, (yield from _start(broker, one, every))))
    results = EncodedArray(AddPartitionsToTxnResponse, version, 1)
    for one, every, outcomes in started:
        outcome = yield from _joined(outcomes)
        if outcome.usual is ErrorCode.UNSUPPORTED_VERSION:
            return AddPartitionsToTxnResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        topics = yield from _topic_results(every, outcome, version)
        result = AddPartitionsToTxnResult(
            transactional_id=one.transactional_id, topic_results=topics
        )
        results.add(result)
        yield 1
    return encode_parts(
        AddPartitionsToTxnResponse(results_by_transaction=results.encoded()), version
    )


_Checked = _Outcome | dict[TopicPartition, ErrorCode] | ErrorCode
"""The outcome; or the errors of some partitions; or that of all."""


def _start(
    broker: "BrokerServices", one: AddPartitionsToTxnTransaction, every: _Distinct
) -> "Generator[int, None, list[Response[Any]]]":
    """Begin to add the partitions, or to verify some at a time."""
    producer = (one.producer_id, one.producer_epoch)
    if not one.verify_only:
        version = CLIENT_VERSION_OF_BROKERS
        return [_begun(_add(broker, one.transactional_id, producer, every, client_version=version))]
    checks: list[Response[Any]] = []
    rest = iter(every)
    while part := list(islice(rest, CHUNK)):
        check = AddPartitionsCheck(one.transactional_id, *producer, part, CheckKind.ABORTABLE)
        checks.append(_begun(broker.transactions.start_check(check)))
        yield len(part)
    return checks


def _begun(response: Response[Any]) -> Response[Any]:
    """The response, or a task that waits for it: those of other transactions are begun first."""
    return asyncio.ensure_future(response) if isinstance(response, Awaitable) else response


def _joined(outcomes: "list[Response[Any]]") -> Generator[Any, Any, _Outcome]:
    own: dict[TopicPartition, ErrorCode] = {}
    for response in outcomes:
        found: _Checked = (yield response) if isinstance(response, Awaitable) else response
        if isinstance(found, _Outcome):
            return found
        if isinstance(found, ErrorCode):
            return _Outcome(found, {})
        own |= found
        yield len(found) // 8
    return _Outcome(ErrorCode.NONE, own)


def _exists(broker: "BrokerServices", one: TopicPartition) -> bool:
    topic = broker.image.topic(one[0])
    return topic is not None and one[1] in topic.partitions


def _distinct(topics: Iterable[AddPartitionsToTxnTopic]) -> Generator[int, None, _Distinct]:
    found: _Distinct = {}
    for topic in topics:
        for at in range(0, len(topic.partitions), CHUNK):
            part = topic.partitions[at : at + CHUNK]
            found.update(((topic.name, index), None) for index in part)
            yield len(part) // 8
        yield 1
    return found


def _few_results(every: _Distinct, outcome: _Outcome, version: int) -> AddPartitionsToTxnResponse:
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for name, index in every:
        if name not in topics:
            topics[name] = AddPartitionsToTxnTopicResult(name=name)
        topics[name].results_by_partition.append(_result(name, index, outcome, version))
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=list(topics.values()))


def _client_response(
    every: _Distinct, outcome: _Outcome, version: int
) -> Generator[int, None, AddPartitionsToTxnResponse]:
    topics = yield from _topic_results(every, outcome, version)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)


def _topic_results(every: _Distinct, outcome: _Outcome, version: int) -> Generator[int, None, Any]:
    """One result for each topic, even if the request names it twice."""
    results: dict[str, EncodedArray] = {}
    for name, index in every:
        if name not in results:
            results[name] = EncodedArray(AddPartitionsToTxnResponse, version)
        results[name].add(_result(name, index, outcome, version))
        yield 1
    topics = (
        AddPartitionsToTxnTopicResult(name=name, results_by_partition=found.encoded())
        for name, found in results.items()
    )
    return (yield from encoded_in_pieces(AddPartitionsToTxnResponse, version, topics))


def _result(
    name: str, index: int, outcome: _Outcome, version: int
) -> AddPartitionsToTxnPartitionResult:
    code = _for_version(outcome.own.get((name, index), outcome.usual), version)
    return AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)


def _for_version(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED and version < _FENCED_FROM:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def refuse(_: type, request: AddPartitionsToTxnRequest, version: int, error: KafkaError) -> Steps:
    """Every partition with the request's error; from v4 the response itself."""
    if version >= BROKERS_FROM:
        return AddPartitionsToTxnResponse(error_code=error.code)
    every = yield from _distinct(request.v3_and_below_topics)
    return (yield from _client_response(every, _Outcome(error.code, {}), version))


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
