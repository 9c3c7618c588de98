"""Responses that are available at once, or as an awaitable if records must be committed first."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, TypeVar

from sparkraft.base.errors import KafkaError

T = TypeVar("T")
U = TypeVar("U")

Response: TypeAlias = T | Awaitable[T]


def map_response(response: Response[T], then: Callable[[T], U]) -> Response[U]:
    """Apply `then` to a response, at once if it is available."""
    if isinstance(response, Awaitable):
        return _map_later(response, then)
    return then(response)


def map_responses(responses: Sequence[Response[T]], then: Callable[[list[T]], U]) -> Response[U]:
    """Apply `then` to all responses in order, at once if all are available."""
    available: list[T] = []
    for one in responses:
        if isinstance(one, Awaitable):
            return _map_all_later(responses, then)
        available.append(one)
    return then(available)


def catch_error(call: Callable[[], Response[T]], respond: Callable[[KafkaError], T]) -> Response[T]:
    """The response of `call`; `respond` makes one of the KafkaError that it raises or ends with."""
    try:
        response = call()
    except KafkaError as error:
        return respond(error)
    if isinstance(response, Awaitable):
        return _catch_later(response, respond)
    return response


async def _map_later(response: Awaitable[T], then: Callable[[T], U]) -> U:
    return then(await response)


async def _map_all_later(responses: Sequence[Response[T]], then: Callable[[list[T]], U]) -> U:
    # In sequence: the appends proceed by themselves, and a list keeps the order.
    return then([await one if isinstance(one, Awaitable) else one for one in responses])


async def _catch_later(response: Awaitable[T], respond: Callable[[KafkaError], T]) -> T:
    try:
        return await response
    except KafkaError as error:
        return respond(error)
