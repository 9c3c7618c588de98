"""AssignReplicasToDirs: v0. A broker reports the directories of its replicas. (KIP-858)

Behaviour:
    * Not a replica: NOT_LEADER_OR_FOLLOWER; an offline directory removes it from the ISR.
Versions: v0.    Not done: -
"""

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api
from sparkraft.server.controller.submission import submit_to_controller

API = Api(
    key=ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    handle=submit_to_controller,
    authorize=(on_cluster(AclOperation.CLUSTER_ACTION),),
    broker=False,
    controller=True,
)
