"""InitProducerId: v0-5. An id for an idempotent or transactional producer. (KIP-98, KIP-360)

Behaviour:
    * Ids come from blocks of 1,000 that the controller allocates. Without a transactional id the
      epoch is 0.
    * A producer id without an epoch, or an epoch without an id: INVALID_REQUEST. So is the empty
      transactional id.
    * With a transactional id: the same producer id with the next epoch, which fences older
      producers; a new producer id once the epochs are used up. A producer id or epoch that is not
      the current one: PRODUCER_FENCED, below v4 INVALID_PRODUCER_EPOCH.
    * An open transaction is aborted: CONCURRENT_TRANSACTIONS, and the client retries.
    * A timeout above transaction.max.timeout.ms: INVALID_TRANSACTION_TIMEOUT, also from a broker
      that is not the coordinator (TransactionCoordinator.handleInitProducerId).
Versions: v2 flexible; v3 the producer's current id; v4 PRODUCER_FENCED; v5 TRANSACTION_ABORTABLE.
Not done: two-phase commit (KIP-939), unstable in Kafka 4.3.
"""

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k22_init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import Permissions, RequestRule, on_transactional_id
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.coordinator.responses import Response

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices


_FENCED_FROM = 4


class IdempotentProducerRule(RequestRule):
    """No transactional id: IDEMPOTENT_WRITE on the cluster or WRITE on any topic (KIP-679)."""

    def __init__(self) -> None:
        super().__init__((AclOperation.IDEMPOTENT_WRITE,), AclResourceType.CLUSTER)

    def permits(self, context: Permissions, request: InitProducerIdRequest) -> bool:
        return (
            request.transactional_id is not None
            or context.is_allowed(
                AclOperation.IDEMPOTENT_WRITE, AclResourceType.CLUSTER, logs=False
            )
            or context.is_allowed_any(AclOperation.WRITE, AclResourceType.TOPIC)
        )


def handle(
    broker: "BrokerServices", context: RequestContext, request: InitProducerIdRequest
) -> Response[InitProducerIdResponse]:
    """Return a new id, or let the shard of the transactional id decide."""
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    transactional_id = request.transactional_id
    if transactional_id is not None:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        from sparkraft.coordinator.transaction.producer_ids import check_timeout

        timeout_ms_max = broker.config.number("transaction.max.timeout.ms")
        check_timeout(request.transaction_timeout_ms, timeout_ms_max)
        return broker.transactions.execute(
            transactional_id,
            lambda shard, new_producer_id, now: shard.handle_init_producer_id(
                request, new_producer_id, now
            ),
        )
    ready = broker.producer_ids.take()
    if ready is not None:
        return InitProducerIdResponse(producer_id=ready, producer_epoch=0)
    return _fetch(broker)


async def _fetch(broker: "BrokerServices") -> InitProducerIdResponse:
    return InitProducerIdResponse(
        producer_id=await broker.producer_ids.take_from_next_block(), producer_epoch=0
    )


def refuse(_: type, request: Any, version: int, error: KafkaError) -> InitProducerIdResponse:
    """The error in the form that the version knows, without an id."""
    code = error.code
    if code is ErrorCode.PRODUCER_FENCED and version < _FENCED_FROM:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


API = Api(
    key=ApiKey.INIT_PRODUCER_ID,
    handle=handle,
    authorize=(
        on_transactional_id(AclOperation.WRITE),
        IdempotentProducerRule(),
    ),
    refuse=refuse,
)
