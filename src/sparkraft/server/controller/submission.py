"""Shared by the controller's API files: submit a request, set the error of a result."""

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import KafkaError
from sparkraft.controller.call import no_quota
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.security.session import NodeSession
from sparkraft.server.controller.audit import log_change

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sparkraft.security.mutation_quotas import MutationQuota
    from sparkraft.server.api.registry import RequestContext
    from sparkraft.server.controller.services import ControllerServices

_STRICT_FROM = {
    ApiKey.CREATE_TOPICS: 6,
    ApiKey.DELETE_TOPICS: 5,
    ApiKey.CREATE_PARTITIONS: 3,
}
"""Requests with a quota, and the versions that know THROTTLING_QUOTA_EXCEEDED."""


async def submit_to_controller(
    node: "ControllerServices", context: "RequestContext", request: Any
) -> Any:
    """Let the active controller decide by the function that `DECISIONS` has for the API key.

    Administrative changes are logged when they are committed (`audit`). Partitions that the request
    creates or deletes count against its client's quota (KIP-599), which holds up a client that sent
    the request to this node; other nodes do so themselves, as the response reports it.
    """
    quota = _mutation_quota(node, context)
    response = await node.controller.submit(
        ApiKey(context.api_key),
        request,
        version=context.api_version,
        principal=context.principal,
        received_ms=context.received_ms,
        apply_partition_change_quota=no_quota if quota is None else quota.apply,
    )
    if quota is not None and (throttle_ms := quota.throttle_ms):
        response.throttle_time_ms = throttle_ms
        if context.connection is not None and not context.session.is_forwarded:
            context.connection.mute(throttle_ms)  # else its broker does, by the response
    log_change(context, request, response)
    return response


async def submit_in_parts(
    node: "ControllerServices",
    context: "RequestContext",
    parts: "Sequence[Any]",
    *,
    results: "Callable[[Any], list[Any]]",
    refuse: "Callable[[Any, KafkaError], Any]",
) -> Any:
    """Submit parts of a request one by one, between other requests; returns one response.

    If the controller loses its role meanwhile, the parts left have the error.

    Args:
        node: the controller.
        context: of the whole request.
        parts: at least one.
        results: the results of a response, which are joined.
        refuse: the response to a part that has an error.
    """
    response = await submit_to_controller(node, context, parts[0])
    for place, part in enumerate(parts[1:], 1):
        await node.env.turns.next()
        try:
            more = await submit_to_controller(node, context, part)
        except KafkaError as error:
            for left in parts[place:]:
                results(response).extend(results(refuse(left, error)))
            return response
        results(response).extend(results(more))
        response.throttle_time_ms = max(response.throttle_time_ms, more.throttle_time_ms)
    return response


def _mutation_quota(
    node: "ControllerServices", context: "RequestContext"
) -> "MutationQuota | None":
    """The quota of a request that creates or deletes partitions; None if nothing limits it."""
    strict_from = _STRICT_FROM.get(ApiKey(context.api_key))
    if strict_from is None or isinstance(context.session, NodeSession):
        return None
    quotas = node.mutation_quotas
    quotas.limits.update(node.image.quotas)
    if not quotas.limits.is_active:
        return None
    return quotas.quota_of(
        context.principal.name,
        context.client_id,
        is_strict=context.api_version >= strict_from,
        now_ms=node.clock.mono_ms,
    )


def set_error(result: Any, error: KafkaError) -> Any:
    """Set `error` on one result of a response and return the result."""
    result.error_code = int(error.code)
    if hasattr(result, "error_message"):
        result.error_message = error.detail or None
    return result
