"""BrokerRegistration: v0-4. A broker joins the cluster. (KIP-631, KIP-858, KIP-966)

Behaviour:
    * The id is taken and its session alive: DUPLICATE_BROKER_REGISTRATION.
    * A finalized feature it lacks: UNSUPPORTED_VERSION; directories that are no good or taken:
      INVALID_REGISTRATION; another cluster: INCONSISTENT_CLUSTER_ID.
    * An unclean start takes it out of every ISR and ELR.
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
