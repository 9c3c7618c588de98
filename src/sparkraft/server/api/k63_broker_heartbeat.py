"""BrokerHeartbeat: v0-2. Extend a broker's session, unfence it, shut it down. (KIP-631, KIP-1066)

Behaviour:
    * Unfenced once it has read its own registration; fenced on request or when its session expires.
    * A controlled shutdown first moves its leaderships; `should_shut_down` is set when it may stop.
    * Replicas in directories reported offline are removed from the ISR.
Versions: v1 offline directories; v2 cordoned directories.    Not done: -
"""

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api
from sparkraft.server.controller.submission import submit_to_controller

API = Api(
    key=ApiKey.BROKER_HEARTBEAT,
    handle=submit_to_controller,
    authorize=(on_cluster(AclOperation.CLUSTER_ACTION),),
    broker=False,
    controller=True,
)
