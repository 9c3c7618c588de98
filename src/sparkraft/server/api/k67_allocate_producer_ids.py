"""AllocateProducerIds: v0. The next thousand producer ids for a broker. (KIP-730)

Behaviour:
    * No id is allocated twice, not even by different controllers.
Versions: v0.    Not done: -
"""

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api
from sparkraft.server.controller.submission import submit_to_controller

API = Api(
    key=ApiKey.ALLOCATE_PRODUCER_IDS,
    handle=submit_to_controller,
    authorize=(on_cluster(AclOperation.CLUSTER_ACTION),),
    broker=False,
    controller=True,
    zookeeper=True,
    zookeeper_forward=True,
)
