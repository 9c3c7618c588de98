"""InitProducerId: v0-5. An id for an idempotent producer. (KIP-98, KIP-360)

Behaviour:
    * Ids come from blocks of 1,000 that the controller allocates; the epoch is always 0.
    * A producer id without an epoch, or an epoch without an id: INVALID_REQUEST.
    * A transactional id if other brokers (Kafka's) coordinate transactions: NOT_COORDINATOR, as the
      partition that led the client here is about to move to one of them.
Versions: v2 flexible; v3 the producer's current id.
Not done: transactions: if no broker coordinates them, a transactional id is
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which every client treats as fatal, so that it stops at
    once instead of retrying forever.
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.coordinator.internal_topics import KeyType
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k22_init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import Permissions, RequestRule, on_transactional_id
from sparkraft.server.api.registry import Api, RequestContext

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices


class IdempotentProducerRule(RequestRule):
    """No transactional id: IDEMPOTENT_WRITE on the cluster or WRITE on any topic (KIP-679)."""

    def __init__(self) -> None:
        super().__init__((AclOperation.IDEMPOTENT_WRITE,), AclResourceType.CLUSTER)

    def permits(self, context: Permissions, request: InitProducerIdRequest) -> bool:
        return (
            request.transactional_id is not None
            or super().permits(context, request)
            or context.is_allowed_any(AclOperation.WRITE, AclResourceType.TOPIC)
        )


def handle(
    broker: "BrokerServices", context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    """Return a new id, from the current block if one is left."""
    if request.transactional_id is not None:
        if not request.transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return _refuse_transactions(broker)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    ready = broker.producer_ids.take()
    if ready is not None:
        return InitProducerIdResponse(producer_id=ready, producer_epoch=0)
    return _fetch(broker)


async def _refuse_transactions(broker: "BrokerServices") -> InitProducerIdResponse:
    await broker.coordinators.discover(KeyType.TRANSACTION, [])
    if broker.coordinators.is_served(KeyType.TRANSACTION):
        raise KafkaError(ErrorCode.NOT_COORDINATOR, "other brokers coordinate transactions")
    raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


async def _fetch(broker: "BrokerServices") -> InitProducerIdResponse:
    return InitProducerIdResponse(
        producer_id=await broker.producer_ids.take_from_next_block(), producer_epoch=0
    )


def refuse(_: type, request: Any, version: int, error: KafkaError) -> InitProducerIdResponse:
    """The error, without an id."""
    return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)


API = Api(
    key=ApiKey.INIT_PRODUCER_ID,
    handle=handle,
    authorize=(
        on_transactional_id(AclOperation.WRITE),
        IdempotentProducerRule(),
    ),
    refuse=refuse,
)
