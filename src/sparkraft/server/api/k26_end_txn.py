"""EndTxn: v0-5. Commit or abort a transaction. (KIP-98, KIP-890)

Behaviour:
    * The decision is committed to `__transaction_state` first; the response does not wait for the
      markers. Until they are written, requests of the id get CONCURRENT_TRANSACTIONS.
    * v5 ends each transaction with a new epoch, or a new producer id once the epochs are used up;
      the response holds both. A repeated request gets the same response. An abort without a
      transaction is allowed.
    * v5 at transaction.version 0: UNSUPPORTED_VERSION, as in Kafka, if something must be written.
    * Up to v4 the epoch stays. Another decision than the one that was made: INVALID_TXN_STATE.
    * An unknown transactional id or another producer id: INVALID_PRODUCER_ID_MAPPING; another
      epoch: PRODUCER_FENCED, below v2 INVALID_PRODUCER_EPOCH.
Versions: v2 PRODUCER_FENCED; v3 flexible; v4 TRANSACTION_ABORTABLE; v5 epochs.    Not done: -
"""

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.coordinator.transaction.completion import Completion
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_transactional_id
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.coordinator.responses import Response, map_response

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices

_FENCED_FROM = 2
_EPOCHS_FROM = 5


def handle(
    broker: "BrokerServices", context: RequestContext, request: EndTxnRequest
) -> Response[EndTxnResponse]:
    """Let the id's shard decide."""
    if not request.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    has_epochs = context.api_version >= _EPOCHS_FROM
    completion = Completion(
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        commit=request.committed,
        client_version=2 if has_epochs else 0,
    )
    response = broker.transactions.execute(
        request.transactional_id,
        lambda shard, new_producer_id, now: shard.handle_end_transaction(
            request.transactional_id, completion, new_producer_id, now
        ),
    )
    if not has_epochs:
        return map_response(response, lambda _: EndTxnResponse())
    return map_response(
        response, lambda next_: EndTxnResponse(producer_id=next_[0], producer_epoch=next_[1])
    )


def refuse(_: type, request: Any, version: int, error: KafkaError) -> EndTxnResponse:
    """The error, in the form that the version knows."""
    code = error.code
    if code is ErrorCode.PRODUCER_FENCED and version < _FENCED_FROM:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return EndTxnResponse(error_code=code)


API = Api(
    key=ApiKey.END_TXN,
    handle=handle,
    authorize=(on_transactional_id(AclOperation.WRITE),),
    refuse=refuse,
)
