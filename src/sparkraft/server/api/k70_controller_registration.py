"""ControllerRegistration: v0. A controller tells its listeners and features. (KIP-919)

Behaviour:
    * metadata.version below 3.7-IV0: UNSUPPORTED_VERSION.
Versions: v0.    Not done: -
"""

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.server.api.registry import Api
from sparkraft.server.controller.submitting import submitted

API = Api(
    key=ApiKey.CONTROLLER_REGISTRATION,
    handle=submitted("controller_registration"),
    broker=False,
    controller=True,
)
