"""Validates changes of broker configs before they are forwarded to the controller.

The controller validates keys, types and scopes; only the broker itself can check its directories,
host names and thread counts (Kafka's ConfigAdminManager). So a client sends changes of one broker's
configs to that broker, which rejects what it could not apply and forwards the rest:

    BROKER_LOGGER                                         changed here, never forwarded (KIP-412)
    BROKER "3" sent to broker 1                           INVALID_REQUEST
    cordoned.log.dirs that are not log directories        INVALID_REQUEST
    max.connections.per.ip.overrides of unknown hosts     INVALID_REQUEST
    thread counts below half or above twice the current   INVALID_REQUEST
    key and trust stores that cannot replace the current  INVALID_REQUEST
    advertised.listeners that cannot be registered        INVALID_REQUEST

INVALID_REQUEST instead of the more precise INVALID_CONFIG, as in Kafka. Changes sent to a
controller's listener are not validated here; a broker that cannot apply one logs a warning.
"""

from typing import TYPE_CHECKING, Any, Protocol

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.controller.configs import Change, Operation, changed_value
from sparkraft.metadata.image import ResourceType
from sparkraft.security.acls import CLUSTER_NAME, AclOperation, AclResourceType
from sparkraft.server import log_levels
from sparkraft.server.controller.audit import Names, log_names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from sparkraft.metadata.image import ClusterImage
    from sparkraft.server.api.registry import RequestContext
    from sparkraft.server.broker.dynamic_configs import DynamicConfigs
    from sparkraft.server.broker.forwarding import Forwarding
    from sparkraft.server.env import Env
    from sparkraft.server.loop_turns import Turn


_OPERATIONS = frozenset(Operation)


class ConfigHost(Protocol):
    """The broker whose configs are changed."""

    @property
    def node_id(self) -> int: ...
    @property
    def image(self) -> "ClusterImage": ...
    @property
    def env(self) -> "Env": ...
    @property
    def forwarding(self) -> "Forwarding": ...
    @property
    def dynamic_configs(self) -> "DynamicConfigs": ...


def forward_checked(
    response_class: type, result_class: type
) -> "Callable[[ConfigHost, RequestContext, Any], Awaitable[list[Any]]]":
    """A handler that forwards the valid resources of an AlterConfigs of either kind.

    Args:
        response_class: of the response.
        result_class: of one resource's result in it.
    """

    async def forward(broker: ConfigHost, context: "RequestContext", request: Any) -> list[Any]:
        checked = await _checked(broker, context, request)
        if checked.is_for_controller:
            return await broker.forwarding.forward(context, request)
        answered: dict[tuple[int, str], Any] = {}
        throttle_time_ms = 0
        if checked.kept:
            rest = type(request)(resources=checked.kept, validate_only=request.validate_only)
            response = await broker.forwarding.ask(context, rest)
            throttle_time_ms = response.throttle_time_ms
            answered = await _with_stores(broker, result_class, rest, response.responses)
        turn = broker.env.turn(broker.env.work_max.partitions)
        results = []
        for resource, error in zip(request.resources, checked.errors, strict=True):
            found = answered.get(_key(resource)) if error is None else None
            results.append(found or _result(result_class, resource, error or _MISSING))
            if turn.is_over(1):
                await turn.next()
        response = response_class(throttle_time_ms=throttle_time_ms, responses=results)
        return await broker.forwarding.encode(context, response)

    return forward


class _Checked:
    """The decisions of this broker about the resources of a request.

    Attributes:
        errors: for each resource the result that this broker decides; None: the controller decides.
        kept: the resources that the controller decides.
        is_for_controller: nothing is left to do for this broker.
    """

    __slots__ = ("errors", "is_for_controller", "kept")

    def __init__(self) -> None:
        self.errors: list[KafkaError | None] = []
        self.kept: list[Any] = []
        self.is_for_controller = True

    def add(self, resource: Any, error: KafkaError | None, *, is_own: bool) -> None:
        """Add a resource; `is_own`: this broker applies its changes, too."""
        self.errors.append(error)
        if error is None:
            self.kept.append(resource)
        if error is not None or is_own:
            self.is_for_controller = False


async def _checked(broker: ConfigHost, context: "RequestContext", request: Any) -> _Checked:
    turn = broker.env.turn(broker.env.work_max.partitions)
    found = _Checked()
    error: KafkaError | None
    for resource in request.resources:
        if is_logger_change(resource):
            operation = AclOperation.ALTER_CONFIGS
            error = logger_result(broker.node_id, context, request, resource, operation)
        else:
            error = await _refusal(broker, resource, turn)
        found.add(resource, error, is_own=_is_own(broker, resource))
        if turn.is_over(1 + len(resource.configs)):
            await turn.next()
    return found


def _key(resource: Any) -> tuple[int, str]:
    """Of a resource or its result."""
    return resource.resource_type, resource.resource_name


def _is_own(broker: ConfigHost, resource: Any) -> bool:
    return _key(resource) == (ResourceType.BROKER, str(broker.node_id))


async def _with_stores(
    broker: ConfigHost, result_class: type, request: Any, results: list[Any]
) -> dict[tuple[int, str], Any]:
    """The results by resource, after TLS stores whose files have changed were loaded.

    A change of this broker's configs that was made does so; it is an error if a store is refused.
    """
    turn = broker.env.turn(broker.env.work_max.partitions)
    after = {}
    for result in results:
        error = None
        made = result.error_code == ErrorCode.NONE and not request.validate_only
        if made and _is_own(broker, result):
            error = broker.dynamic_configs.reload_stores()
        after[_key(result)] = result if error is None else _result(result_class, result, error)
        if turn.is_over(1):
            await turn.next()
    return after


_MISSING = KafkaError(
    ErrorCode.UNKNOWN_SERVER_ERROR, "the controller's response lacks this resource"
)


def _result(result_class: type, resource: Any, error: KafkaError) -> Any:
    return result_class(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        error_code=int(error.code),
        error_message=error.detail or None,
    )


def is_logger_change(resource: Any) -> bool:
    """Whether an IncrementalAlterConfigs resource has log levels; AlterConfigs has none."""
    incremental = hasattr(next(iter(resource.configs), None), "config_operation")
    return resource.resource_type == ResourceType.BROKER_LOGGER and incremental


def logger_result(
    node_id: int, context: "RequestContext", request: Any, resource: Any, operation: AclOperation
) -> KafkaError:
    """Change levels of this node's loggers; the result, with code NONE if it was done.

    A broker requires ALTER_CONFIGS on the cluster, a controller CLUSTER_ACTION, as in Kafka.
    """
    if not context.is_allowed(operation, AclResourceType.CLUSTER, CLUSTER_NAME):
        wrong = "Cluster authorization failed."
        return KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, wrong)
    try:
        log_levels.apply_changes(
            node_id, resource.resource_name, resource.configs, validate_only=request.validate_only
        )
    except KafkaError as error:
        return error
    if not request.validate_only:
        _log_levels(node_id, context, resource)
    return KafkaError(ErrorCode.NONE)


def _log_levels(node_id: int, context: "RequestContext", resource: Any) -> None:
    names = Names()
    for config in resource.configs:
        is_set = config.config_operation == log_levels.SET
        names.add(f"{config.name} ({config.value if is_set else 'removed'})")
    log_names(context, f"changed levels of loggers of node {node_id}:", names)


async def _refusal(broker: ConfigHost, resource: Any, turn: "Turn") -> KafkaError | None:
    """Why this broker could not apply it; None if it could, or the controller will reject it."""
    if resource.resource_type != ResourceType.BROKER:
        return None
    name = resource.resource_name
    try:
        if name and int(name) != broker.node_id:
            wrong = f"Unexpected broker id, expected {broker.node_id}, but received {name}"
            return KafkaError(ErrorCode.INVALID_REQUEST, wrong)
        current = broker.image.config(ResourceType.BROKER, name)
        final = await _final_values(resource, current, turn)
    except (ValueError, KafkaError):
        return None
    return broker.dynamic_configs.objection(name, final)


async def _final_values(
    resource: Any, current: "Mapping[str, str]", turn: "Turn"
) -> "Mapping[str, str]":
    """All of a resource's configs after the change; KafkaError if the change is invalid."""
    is_incremental = hasattr(next(iter(resource.configs), None), "config_operation")
    final = dict(current) if is_incremental else {}
    for config in resource.configs:
        if not is_incremental:
            if config.value:
                final[config.name] = config.value
        elif config.config_operation in _OPERATIONS:
            change = Change(config.name, config.config_operation, config.value)
            value = changed_value(ResourceType.BROKER, change, current.get(config.name))
            if value is None:
                final.pop(config.name, None)
            else:
                final[config.name] = value
        if turn.is_over(1):
            await turn.next()
    return final
