"""Changes of broker configs that this broker looks at before the controller hears of them.

A controller knows keys, types and scopes; what fits a broker's directories, names and threads, only
that broker can say (Kafka's ConfigAdminManager). So a client sends changes of one broker's configs
to that broker, which refuses what it could not follow, and forwards the rest:

    BROKER "3" asked of broker 1                          INVALID_REQUEST
    cordoned.log.dirs that are no log directories         INVALID_REQUEST
    max.connections.per.ip.overrides of unknown hosts     INVALID_REQUEST
    thread counts below half or above twice what they are INVALID_REQUEST

INVALID_REQUEST where INVALID_CONFIG would say more: Kafka's brokers have always answered that. What
is set through a controller's listener is not looked at here; a broker that can't follow it warns.
"""

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.controller.configs import Change, Operation, changed_value
from sparkraft.metadata.image import ResourceType

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from sparkraft.server.api.registry import RequestContext
    from sparkraft.server.broker.services import BrokerServices


def forward_checked(
    messages: Any,
) -> "Callable[[BrokerServices, RequestContext, Any], Awaitable[Any]]":
    """Forwards what this broker could follow of an AlterConfigs of either kind.

    Args:
        messages: the module with the request's and the response's classes.
    """

    async def forward(broker: "BrokerServices", context: "RequestContext", request: Any) -> Any:
        refused = [_refusal(broker, resource) for resource in request.resources]
        if not any(refused):
            return await broker.forwarding.forward(context, request)
        pairs = list(zip(request.resources, refused, strict=True))
        kept = [resource for resource, error in pairs if error is None]
        answered: dict[tuple[int, str], Any] = {}
        response: Any = None
        if kept:
            rest = type(request)(resources=kept, validate_only=request.validate_only)
            response = await broker.forwarding.forward(context, rest)
            answered = {(r.resource_type, r.resource_name): r for r in response.responses}
        results = []
        for resource, error in pairs:
            key = (resource.resource_type, resource.resource_name)
            found = answered.get(key) if error is None else None
            results.append(found or _result(messages, resource, error or _UNANSWERED))
        if response is None:
            name = type(request).__name__.replace("Request", "Response")
            response = getattr(messages, name)()
        response.responses = results
        return response

    return forward


_UNANSWERED = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the controller left it out of its answer")


def _result(messages: Any, resource: Any, error: KafkaError) -> Any:
    return messages.AlterConfigsResourceResponse(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        error_code=int(error.code),
        error_message=error.detail,
    )


def _refusal(broker: "BrokerServices", resource: Any) -> KafkaError | None:
    """Why this broker could not follow; None where it could, or the controller will say so."""
    if resource.resource_type != ResourceType.BROKER:
        return None
    name = resource.resource_name
    try:
        if name and int(name) != broker.node_id:
            wrong = f"Unexpected broker id, expected {broker.node_id}, but received {name}"
            return KafkaError(ErrorCode.INVALID_REQUEST, wrong)
        final = _final_values(resource, broker.image.config(ResourceType.BROKER, name))
    except (ValueError, KafkaError):
        return None
    return broker.dynamic_configs.objection(name, final)


def _final_values(resource: Any, current: "Mapping[str, str]") -> "Mapping[str, str]":
    """A resource's whole map after the change; KafkaError where it can't be changed so."""
    if not hasattr(next(iter(resource.configs), None), "config_operation"):
        return {config.name: config.value for config in resource.configs if config.value}
    final = dict(current)
    for config in resource.configs:
        if config.config_operation not in set(Operation):
            continue
        change = Change(config.name, config.config_operation, config.value)
        value = changed_value(ResourceType.BROKER, change, current.get(config.name))
        if value is None:
            final.pop(config.name, None)
        else:
            final[config.name] = value
    return final
