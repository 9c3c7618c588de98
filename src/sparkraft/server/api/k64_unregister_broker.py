"""UnregisterBroker: v0. Remove a broker from the cluster. (KIP-631)

Behaviour:
    * Not registered: BROKER_ID_NOT_REGISTERED.
Versions: v0.    Not done: -
"""

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api
from sparkraft.server.controller.submission import submit_to_controller

API = Api(
    key=ApiKey.UNREGISTER_BROKER,
    handle=submit_to_controller,
    zookeeper=False,
    authorize=(on_cluster(AclOperation.ALTER),),
    forward=True,
    controller=True,
)
