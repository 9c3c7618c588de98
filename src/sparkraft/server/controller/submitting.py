"""What the controller's API files share: ask the driver, and refuse item by item."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import KafkaError

if TYPE_CHECKING:
    from sparkraft.server.api.registry import RequestContext
    from sparkraft.server.controller.services import ControllerServices

Handle = Callable[["ControllerServices", "RequestContext", Any], Awaitable[Any]]


def submitted(name: str) -> Handle:
    """A handler that lets the active controller decide by its `handle_<name>`."""

    async def handle(node: "ControllerServices", context: "RequestContext", request: Any) -> Any:
        return await node.controller.submit(
            name, request, version=context.api_version, received_ms=context.received_ms
        )

    return handle


def tell(result: Any, error: KafkaError) -> Any:
    """Write `error` on one result of a response."""
    result.error_code = int(error.code)
    if hasattr(result, "error_message"):
        result.error_message = error.detail or None
    return result
