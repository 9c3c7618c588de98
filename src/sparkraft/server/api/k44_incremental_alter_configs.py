"""IncrementalAlterConfigs: v0-1. Single configs are set, deleted, added to, taken from. (KIP-339)

Behaviour:
    * Each resource is checked as a whole: unknown topic keys, bad values: INVALID_CONFIG, static
      broker keys INVALID_REQUEST, no such topic UNKNOWN_TOPIC_OR_PARTITION.
    * Appending to or subtracting from a key that is not a list: INVALID_CONFIG.
    * With ELR on, no broker has a min.insync.replicas of its own (KIP-966).
    * A broker refuses what it could not follow itself, and other brokers' configs: INVALID_REQUEST.
    * Log levels (BROKER_LOGGER) are changed by the node that gets the request, until it stops
      (KIP-412).
Versions: v1 flexible.    Not done: policies in Java classes.
"""

from typing import TYPE_CHECKING

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k44_incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.config_authorization import alter_denial, altered_configs
from sparkraft.server.api.item_errors import awaited
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.broker.config_changes import (
    forward_checked,
    is_logger_change,
    logger_result,
)
from sparkraft.server.controller.submission import set_error, submit_to_controller

if TYPE_CHECKING:
    from sparkraft.server.controller.services import ControllerServices

_ERRORS = altered_configs(
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, AlterConfigsResourceResponse
)


async def handle_on_controller(
    node: "ControllerServices", context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Change this controller's own log levels, and let the active controller decide the rest."""
    levels = [resource for resource in request.resources if is_logger_change(resource)]
    others = [resource for resource in request.resources if not is_logger_change(resource)]
    response = IncrementalAlterConfigsResponse()
    if others:
        rest = _ERRORS.only(request, others)
        response = await awaited(_ALTER(node, context, rest))
    for resource in levels:
        result = logger_result(
            node.node_id, context, request, resource, AclOperation.CLUSTER_ACTION
        )
        response.responses.append(set_error(_ERRORS.result(resource), result))
    return response


_ALTER = _ERRORS.authorized(submit_to_controller, alter_denial)

API = Api(
    key=ApiKey.INCREMENTAL_ALTER_CONFIGS,
    handle=handle_on_controller,
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
