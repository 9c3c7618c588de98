"""Shared by the controller's API files: submit a request, set the error of a result."""

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.server.controller.audit import log_change

if TYPE_CHECKING:
    from sparkraft.server.api.registry import RequestContext
    from sparkraft.server.controller.services import ControllerServices


async def submit_to_controller(
    node: "ControllerServices", context: "RequestContext", request: Any
) -> Any:
    """Let the active controller decide by the function that `DECISIONS` has for the API key.

    Administrative changes are logged when they are committed (`audit`).
    """
    response = await node.controller.submit(
        ApiKey(context.api_key),
        request,
        version=context.api_version,
        principal=context.principal,
        received_ms=context.received_ms,
    )
    log_change(context, request, response)
    return response


def set_error(result: Any, error: KafkaError) -> Any:
    """Set `error` on one result of a response and return the result."""
    result.error_code = int(error.code)
    if hasattr(result, "error_message"):
        result.error_message = error.detail or None
    return result
