"""AlterPartition: v0-3, on the broker listener in ZooKeeper mode. A leader changes the ISR.

Behaviour:
    * The rules are in `sparkraft.zookeeper.controller.isr`.
    * v0-1 name topics: with inter.broker.protocol.version below 2.8, or for a topic without an id.
    * A replica that may not join the ISR: INELIGIBLE_REPLICA, up to v1 OPERATION_NOT_ATTEMPTED.
Versions: v1 recovery state; v2 topic ids; v3 broker epochs of the ISR.    Not done: -
"""

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api
from sparkraft.server.controller.submission import submit_to_controller

API = Api(
    key=ApiKey.ALTER_PARTITION,
    handle=submit_to_controller,
    authorize=(on_cluster(AclOperation.CLUSTER_ACTION),),
    versions=(0, 3),
    broker=False,
    zookeeper=True,
    zookeeper_forward=True,
)
