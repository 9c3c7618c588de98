"""UpdateMetadata: v7-8, in ZooKeeper mode. Which brokers are live, and what leads each partition?

Behaviour:
    * An old broker epoch: STALE_BROKER_EPOCH; an old controller epoch: STALE_CONTROLLER_EPOCH.
    * Leader -2 removes a partition; a topic without partitions does not exist.
    * `controller_id` is the controller that clients see in Metadata.
Versions: v7 topic ids; v8 KRaft controllers.
Not done: v0-6, which have no topic ids (inter.broker.protocol.version below 2.8); full requests of
a KRaft controller (KIP-866).
"""

from typing import TYPE_CHECKING

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k06_update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api, RequestContext

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices


async def handle(
    node: "BrokerServices", _: RequestContext, request: UpdateMetadataRequest
) -> UpdateMetadataResponse:
    """Publish the new image before the response leaves."""
    await node.controlled.update(request)
    return UpdateMetadataResponse()


API = Api(
    key=ApiKey.UPDATE_METADATA,
    handle=handle,
    authorize=(on_cluster(AclOperation.CLUSTER_ACTION),),
    versions=(7, 8),
    broker=False,
    zookeeper=True,
)
