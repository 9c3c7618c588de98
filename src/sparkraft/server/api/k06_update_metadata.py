"""UpdateMetadata: v0-8, in ZooKeeper mode. Which brokers are live, and what leads each partition?

Behaviour:
    * An old broker epoch: STALE_BROKER_EPOCH; an old controller epoch: STALE_CONTROLLER_EPOCH.
    * Leader -2 removes a partition; a topic without partitions does not exist.
    * `controller_id` is the controller that clients see in Metadata, unless it is of KRaft.
    * Topics that a full request of a KRaft controller does not have do not exist (KIP-866).
    * Topics without an id are known by name (inter.broker.protocol.version below 2.8).
Versions: v5 broker epoch; v7 topic ids; v8 KRaft controllers.    Not done: -
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
from sparkraft.server.zookeeper.old_forms import normalize_update_metadata

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices


async def handle(
    node: "BrokerServices", context: RequestContext, request: UpdateMetadataRequest
) -> UpdateMetadataResponse:
    """Publish the new image before the response leaves."""
    normalize_update_metadata(request, context.api_version)
    await node.controlled.update(request)
    return UpdateMetadataResponse()


API = Api(
    key=ApiKey.UPDATE_METADATA,
    handle=handle,
    authorize=(on_cluster(AclOperation.CLUSTER_ACTION),),
    broker=False,
    zookeeper=True,
)
