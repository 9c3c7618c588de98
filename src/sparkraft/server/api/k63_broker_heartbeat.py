"""BrokerHeartbeat: v0-2. A broker is alive, and may want to serve or to stop. (KIP-631, KIP-1066)

Behaviour:
    * Unfenced once it has read its own registration; fenced when it asks or falls silent.
    * To stop, it first loses its leaderships; `should_shut_down` tells when it may go.
    * Directories reported offline cost the replicas in them their place in the ISR.
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
