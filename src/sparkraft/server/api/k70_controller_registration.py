"""ControllerRegistration: v0. A controller registers its listeners and features. (KIP-919)

Behaviour:
    * metadata.version below 3.7-IV0: UNSUPPORTED_VERSION.
Versions: v0.    Not done: -
"""

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api
from sparkraft.server.controller.submission import submit_to_controller

API = Api(
    key=ApiKey.CONTROLLER_REGISTRATION,
    handle=submit_to_controller,
    authorize=(on_cluster(AclOperation.CLUSTER_ACTION),),
    broker=False,
    controller=True,
)
