"""ControlledShutdown: v0-3, in ZooKeeper mode. A broker is about to stop.

Behaviour:
    * The controller moves the broker's leaders away, and answers with those that it could not move.
    * Another broker: STALE_CONTROLLER_EPOCH; an old broker epoch: STALE_BROKER_EPOCH.
    * An unknown broker: UNKNOWN_SERVER_ERROR, or BROKER_NOT_AVAILABLE without a broker epoch.
Versions: v1 client id in the header; v2 broker epoch (KIP-380); v3 flexible.    Not done: -
"""

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api
from sparkraft.server.controller.submission import submit_to_controller

API = Api(
    key=ApiKey.CONTROLLED_SHUTDOWN,
    handle=submit_to_controller,
    authorize=(on_cluster(AclOperation.CLUSTER_ACTION),),
    broker=False,
    zookeeper=True,
    zookeeper_forward=True,
)
