"""UpdateFeatures: v0-2. Feature levels go up or down. (KIP-584, KIP-778, KIP-1022)

Behaviour:
    * All updates or none; every broker and voter must support each level, else
      INVALID_UPDATE_VERSION.
Versions: v1 kinds of downgrade, validate only; v2 one error for all.    Not done: kraft.version.
"""

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.server.api.registry import Api
from sparkraft.server.controller.submitting import submitted

API = Api(
    key=ApiKey.UPDATE_FEATURES,
    handle=submitted("update_features"),
    forward=True,
    controller=True,
)
