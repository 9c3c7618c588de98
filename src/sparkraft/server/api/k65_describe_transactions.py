"""DescribeTransactions: v0. State, producer and partitions of transactions. (KIP-664)

Behaviour:
    * An id that the client may not describe: TRANSACTIONAL_ID_AUTHORIZATION_FAILED; the empty id:
      INVALID_REQUEST; unknown: TRANSACTIONAL_ID_NOT_FOUND; not coordinated here: NOT_COORDINATOR.
    * Partitions of topics that the client may not describe are left out.
Versions: v0.    Not done: -
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import encode_parts
from sparkraft.protocol.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import denied, on_each
from sparkraft.server.api.encoded_array import EncodedArray, encoded_in_pieces
from sparkraft.server.api.registry import Api, RequestContext, Steps
from sparkraft.server.coordinator.responses import Response, catch_error, map_response

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices

UNITS_OF_STATE = 4
"""Units of work of a transaction, without its partitions."""


def handle(
    broker: "BrokerServices", context: RequestContext, request: DescribeTransactionsRequest
) -> Steps:
    """Describe each id once it is committed, in slices; returns the encoded response."""
    states = EncodedArray(DescribeTransactionsResponse, context.api_version, 1)
    for transactional_id in request.transactional_ids:
        described = _describe(broker, context, transactional_id)
        state = (yield described) if isinstance(described, Awaitable) else described
        states.add(state)
        yield UNITS_OF_STATE + sum(len(topic.partitions) for topic in state.topics) // 8
    response = DescribeTransactionsResponse(transaction_states=states.encoded())
    return encode_parts(response, context.api_version)


def _describe(
    broker: "BrokerServices", context: RequestContext, transactional_id: str
) -> Response[TransactionState]:
    def read() -> Response[TransactionState]:
        if not context.is_allowed(
            AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, transactional_id
        ):
            raise denied(AclResourceType.TRANSACTIONAL_ID)
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return broker.transactions.shard_for(transactional_id).execute_read(
            lambda shard, _: shard.describe(transactional_id)
        )

    response = catch_error(read, lambda error: _refused(transactional_id, error))
    return map_response(response, lambda found: _visible(context, found))


def _visible(context: RequestContext, found: TransactionState) -> TransactionState:
    found.topics = [
        one
        for one in found.topics
        if context.is_allowed(AclOperation.DESCRIBE, AclResourceType.TOPIC, one.topic)
    ]
    return found


def _refused(transactional_id: str, error: KafkaError) -> TransactionState:
    return TransactionState(transactional_id=transactional_id, error_code=error.code)


def refuse(_: type, request: DescribeTransactionsRequest, version: int, error: KafkaError) -> Steps:
    """Every id with the request's error."""
    states = (_refused(one, error) for one in request.transactional_ids)
    encoded = yield from encoded_in_pieces(DescribeTransactionsResponse, version, states)
    return DescribeTransactionsResponse(transaction_states=encoded)


API = Api(
    key=ApiKey.DESCRIBE_TRANSACTIONS,
    handle=handle,
    authorize=(
        on_each(AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID),
        on_each(AclOperation.DESCRIBE, AclResourceType.TOPIC),
    ),
    refuse=refuse,
)
