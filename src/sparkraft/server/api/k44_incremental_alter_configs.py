"""IncrementalAlterConfigs: v0-1. Single configs are set, deleted, added to, taken from. (KIP-339)

Behaviour:
    * Each resource is checked as a whole: unknown topic keys, bad values: INVALID_CONFIG, static
      broker keys INVALID_REQUEST, no such topic UNKNOWN_TOPIC_OR_PARTITION.
    * Appending to or subtracting from a key that is not a list: INVALID_CONFIG.
    * With ELR on, no broker has a min.insync.replicas of its own (KIP-966).
    * A broker refuses what it could not follow itself, and other brokers' configs: INVALID_REQUEST.
Versions: v1 flexible.    Not done: levels of broker loggers; policies in Java classes.
"""

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k44_incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.config_authorization import alter_denial, altered_configs
from sparkraft.server.api.registry import Api
from sparkraft.server.broker.config_changes import forward_checked
from sparkraft.server.controller.submission import submit_to_controller

_ERRORS = altered_configs(
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, AlterConfigsResourceResponse
)


API = Api(
    key=ApiKey.INCREMENTAL_ALTER_CONFIGS,
    handle=_ERRORS.authorized(submit_to_controller, alter_denial),
    authorize=(
        on_each(AclOperation.ALTER_CONFIGS, AclResourceType.TOPIC),
        on_each(
            AclOperation.ALTER_CONFIGS,
            AclResourceType.CLUSTER,
            when="of brokers, their loggers and client metrics",
        ),
        on_each(AclOperation.ALTER_CONFIGS, AclResourceType.GROUP),
    ),
    controller=True,
    forward=True,
    forward_by=forward_checked(IncrementalAlterConfigsResponse, AlterConfigsResourceResponse),
    refuse=_ERRORS.refuse,
)
