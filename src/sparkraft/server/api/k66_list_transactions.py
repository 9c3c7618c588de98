"""ListTransactions: v0-2. The transactional ids that this broker coordinates. (KIP-664, KIP-994)

Behaviour:
    * Filtered by states, producer ids, the running time of the transaction and an RE2 pattern of
      the whole id (INVALID_REGULAR_EXPRESSION if it is malformed). Unknown states are returned, and
      match nothing.
    * While a partition is loading: COORDINATOR_LOAD_IN_PROGRESS.
    * Ids that the client may not describe are left out.
Versions: v1 duration filter; v2 id pattern (KIP-1152).    Not done: -
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from sparkraft.coordinator.group.consumer_regex import compiled_regex
from sparkraft.coordinator.transaction.listing import ListFilter, known_states
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.coordinator.responses import Response, map_responses

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices


def handle(
    broker: "BrokerServices", context: RequestContext, request: ListTransactionsRequest
) -> Response[ListTransactionsResponse]:
    """List the ids of every shard, once they are committed."""
    states, unknown = known_states(request.state_filters)
    if unknown and not states:
        return ListTransactionsResponse(unknown_state_filters=unknown)
    wanted = ListFilter(
        states=states,
        producer_ids=frozenset(request.producer_id_filters),
        duration_ms=request.duration_filter,
        matches=_matcher(request.transactional_id_pattern),
    )
    shards = list(broker.transactions.loaded_shards())
    listed = [
        one.execute_read(lambda shard, now: shard.list_transactions(wanted, now)) for one in shards
    ]
    return map_responses(
        listed,
        lambda found: ListTransactionsResponse(
            unknown_state_filters=unknown, transaction_states=_visible(context, found)
        ),
    )


def _matcher(pattern: str | None) -> Callable[[str], bool] | None:
    """Whether a whole id matches an RE2 pattern; KafkaError if the pattern is malformed."""
    if not pattern:
        return None
    compiled = compiled_regex(pattern)
    return lambda transactional_id: compiled.fullmatch(transactional_id) is not None


def _visible(
    context: RequestContext, shards: list[list[TransactionState]]
) -> list[TransactionState]:
    return [
        one
        for listed in shards
        for one in listed
        if context.is_allowed(
            AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, one.transactional_id
        )
    ]


API = Api(
    key=ApiKey.LIST_TRANSACTIONS,
    handle=handle,
    authorize=(on_each(AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID),),
)
