"""ListTransactions: v0-2. The transactional ids that this broker coordinates. (KIP-664, KIP-994)

Behaviour:
    * Filtered by states, producer ids, the running time of the transaction and an RE2 pattern of
      the whole id (INVALID_REGULAR_EXPRESSION if it is malformed). Unknown states are returned, and
      match nothing.
    * While a partition is loading: COORDINATOR_LOAD_IN_PROGRESS, before the filters are read
      (TransactionStateManager.listTransactionStates).
    * Ids that the client may not describe are left out.
    * Many ids are listed in slices; each is as it was when its slice was read.
Versions: v1 duration filter; v2 id pattern (KIP-1152).    Not done: -
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.coordinator.group.consumer_regex import compiled_regex
from sparkraft.coordinator.transaction.listing import ListFilter, known_states
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import encode_parts
from sparkraft.protocol.messages.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.encoded_array import CHUNK, EncodedArray
from sparkraft.server.api.registry import Api, RequestContext, Steps
from sparkraft.server.coordinator.responses import Response

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices
    from sparkraft.server.coordinator.transaction_service import TransactionShardRuntime

T = TypeVar("T")


def handle(
    broker: "BrokerServices", context: RequestContext, request: ListTransactionsRequest
) -> Steps:
    """List the ids of every shard in slices; returns the encoded response."""
    shards = list(broker.transactions.loaded_shards())
    states, unknown = known_states(request.state_filters)
    if unknown and not states:
        return ListTransactionsResponse(unknown_state_filters=unknown)
    wanted = ListFilter(
        states=states,
        producer_ids=frozenset(request.producer_id_filters),
        duration_ms=request.duration_filter,
        matches=_matcher(request.transactional_id_pattern),
    )
    listed = EncodedArray(ListTransactionsResponse, context.api_version)
    for runtime in shards:
        try:
            yield from _list_shard(runtime, wanted, context, listed)
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_COORDINATOR:
                raise
            # This broker has resigned meanwhile: the next coordinator lists the rest.
    response = ListTransactionsResponse(
        unknown_state_filters=unknown, transaction_states=listed.encoded()
    )
    return encode_parts(response, context.api_version)


def _list_shard(
    runtime: "TransactionShardRuntime",
    wanted: ListFilter,
    context: RequestContext,
    listed: EncodedArray,
) -> Steps:
    ids, now = yield from _awaited(
        runtime.execute_read(lambda shard, now: (shard.transactional_ids(), now))
    )
    for start in range(0, len(ids), CHUNK):
        chunk = ids[start : start + CHUNK]
        for one in runtime.shard.list_transactions(chunk, wanted, now):
            if _is_visible(context, one):
                listed.add(one)
        yield len(chunk)
    yield from _awaited(runtime.execute_read(lambda *_: None))  # waits for what was seen meanwhile


def _awaited(response: Response[T]) -> Steps:
    """The response, as soon as it is available."""
    return (yield response) if isinstance(response, Awaitable) else response


def _matcher(pattern: str | None) -> Callable[[str], bool] | None:
    """Whether a whole id matches an RE2 pattern; KafkaError if the pattern is malformed."""
    if not pattern:
        return None
    compiled = compiled_regex(pattern)
    return lambda transactional_id: compiled.fullmatch(transactional_id) is not None


def _is_visible(context: RequestContext, one: TransactionState) -> bool:
    return context.is_allowed(
        AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, one.transactional_id
    )


API = Api(
    key=ApiKey.LIST_TRANSACTIONS,
    handle=handle,
    authorize=(on_each(AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID),),
)
