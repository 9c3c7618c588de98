"""AlterConfigs: v0-2. Replace all configs of a resource. (KIP-133)

Behaviour:
    * Keys that are not in the request return to their defaults.
    * The checks are those of IncrementalAlterConfigs, which should be used instead.
    * A broker refuses values it could not apply itself, and other brokers' configs:
      INVALID_REQUEST.
    * Log levels can't be changed by it: only IncrementalAlterConfigs knows BROKER_LOGGER.
Versions: v2 flexible.    Not done: policies in Java classes.
"""

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k33_alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.config_authorization import alter_denial, altered_configs
from sparkraft.server.api.registry import Api
from sparkraft.server.broker.config_changes import forward_checked
from sparkraft.server.controller.submission import submit_to_controller

_ERRORS = altered_configs(AlterConfigsRequest, AlterConfigsResponse, AlterConfigsResourceResponse)


API = Api(
    key=ApiKey.ALTER_CONFIGS,
    handle=_ERRORS.authorized(submit_to_controller, alter_denial),
    authorize=(
        on_each(AclOperation.ALTER_CONFIGS, AclResourceType.TOPIC),
        on_each(
            AclOperation.ALTER_CONFIGS,
            AclResourceType.CLUSTER,
            when="of brokers and client metrics",
        ),
        on_each(AclOperation.ALTER_CONFIGS, AclResourceType.GROUP),
    ),
    controller=True,
    forward=True,
    forward_by=forward_checked(AlterConfigsResponse, AlterConfigsResourceResponse),
    refuse=_ERRORS.refuse,
)
