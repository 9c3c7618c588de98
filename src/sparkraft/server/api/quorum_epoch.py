"""The handler of BeginQuorumEpoch and EndQuorumEpoch, which differ in their messages alone."""

from collections.abc import Callable
from typing import Any

from sparkraft.base.errors import ErrorCode
from sparkraft.raft import events
from sparkraft.server.api.registry import Handler, RequestContext


def quorum_epoch_handler(
    response_class: type,
    read: Callable[[Any], Any | None],
    write: Callable[[events.QuorumEpochResponse, str, int], Any],
) -> Handler:
    """A handler that passes the event `read` makes of a request to the quorum.

    Args:
        response_class: of the response.
        read: the event of a request; None if it names another partition: INVALID_REQUEST.
        write: the response to a client of that listener and version.
    """

    async def handle(node: Any, context: RequestContext, request: Any) -> Any:
        event = read(request)
        if event is None:
            return response_class(error_code=ErrorCode.INVALID_REQUEST)
        response = await node.raft.handle_request(event)
        assert isinstance(response, events.QuorumEpochResponse)
        return write(response, context.listener_name, context.api_version)

    return handle
