"""Envelope: v0, on the broker listener in ZooKeeper mode. (KIP-590, KIP-866)

Behaviour:
    * Brokers of Kafka 3.9 that are being migrated to KRaft send clients' requests to the controller
      in it, also while that is a broker. Otherwise as `k58_envelope`.
    * A broker that is not the controller: NOT_CONTROLLER.
Versions: v0.    Not done: -
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k58_envelope import EnvelopeRequest, EnvelopeResponse
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.k58_envelope import open_and_serve
from sparkraft.server.api.registry import Api, RequestContext

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices


async def handle(
    broker: "BrokerServices", context: RequestContext, request: EnvelopeRequest
) -> EnvelopeResponse:
    own = broker.own_controller
    assert own is not None, "only in ZooKeeper mode"
    if not own.controller.is_active:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    return await open_and_serve(own, context, request, zookeeper=True)


API = Api(
    key=ApiKey.ENVELOPE,
    handle=handle,
    authorize=(on_cluster(AclOperation.CLUSTER_ACTION),),
    broker=False,
    zookeeper=True,
)
