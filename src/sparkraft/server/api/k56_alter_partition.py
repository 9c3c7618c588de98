"""AlterPartition: v2-3. A leader changes the ISR. (KIP-497, KIP-841, KIP-903)

Behaviour:
    * Epochs above ours: NOT_CONTROLLER; older: FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION.
    * Not the leader, or an ISR without it: INVALID_REQUEST.
    * A fenced, leaving or re-registered replica in the new ISR: INELIGIBLE_REPLICA.
Versions: v3 broker epochs of the ISR.    Not done: -
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
    broker=False,
    controller=True,
)
