"""BrokerRegistration: v0-4. A broker joins the cluster. (KIP-631, KIP-858, KIP-966)

Behaviour:
    * The id is in use and its session valid: DUPLICATE_BROKER_REGISTRATION.
    * It lacks a finalized feature: UNSUPPORTED_VERSION; invalid directory ids, or ids of another
      broker: INVALID_REGISTRATION; another cluster: INCONSISTENT_CLUSTER_ID.
    * An unclean start removes it from every ISR and ELR.
Versions: v2 directories; v3 previous epoch; v4 features from 0.    Not done: -
"""

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api
from sparkraft.server.controller.submission import submit_to_controller

API = Api(
    key=ApiKey.BROKER_REGISTRATION,
    handle=submit_to_controller,
    authorize=(on_cluster(AclOperation.CLUSTER_ACTION),),
    broker=False,
    controller=True,
)
