"""AlterConfigs: v0-2. A resource's whole map of configs is replaced. (KIP-133)

Behaviour:
    * Keys that are not given go back to their defaults.
    * Checks as for IncrementalAlterConfigs, which should be used instead.
    * A broker refuses what it could not follow itself, and other brokers' configs: INVALID_REQUEST.
Versions: v2 flexible.    Not done: levels of broker loggers; policies in Java classes.
"""

from sparkraft.base.errors import KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import k33_alter_configs as k33
from sparkraft.protocol.messages.k33_alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.registry import Api
from sparkraft.server.broker.config_changes import forward_checked
from sparkraft.server.controller.submission import set_error, submit_to_controller


def refuse(
    _: type, request: AlterConfigsRequest, version: int, error: KafkaError
) -> AlterConfigsResponse:
    """The error on each resource."""
    results = [
        AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        for resource in request.resources
    ]
    return AlterConfigsResponse(responses=[set_error(result, error) for result in results])


API = Api(
    key=ApiKey.ALTER_CONFIGS,
    handle=submit_to_controller,
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
    forward_by=forward_checked(k33),
    refuse=refuse,
)
