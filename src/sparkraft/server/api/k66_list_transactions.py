"""ListTransactions: v0-2. No transactions: there is no transaction coordinator yet.

Behaviour: an empty list; unknown state filters are returned. (KIP-664, KIP-1152)
Versions: v1 duration filter; v2 id pattern.    Not done: transactions.
"""

from typing import TYPE_CHECKING

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.registry import Api, RequestContext

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices

_STATES = frozenset(
    {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    }
)


def handle(
    broker: "BrokerServices", context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    unknown = [state for state in request.state_filters if state not in _STATES]
    return ListTransactionsResponse(unknown_state_filters=unknown)


API = Api(
    key=ApiKey.LIST_TRANSACTIONS,
    handle=handle,
    authorize=(on_each(AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID),),
)
