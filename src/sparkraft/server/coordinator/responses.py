"""Responses that are available at once, or as an awaitable if records must be committed first."""

from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from typing import Any, TypeAlias, TypeVar

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


def begin(work: Coroutine[Any, Any, T]) -> Response[T]:
    """Run a coroutine up to its first wait: its result if there is none, else the rest of it.

    A task takes longer than a small append. Before its first wait the work must not use
    `asyncio.timeout`, which needs a current task.
    """
    try:
        awaited = work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    return _Begun(work, awaited)


class _Begun(Coroutine[Any, Any, T]):
    """The rest of a coroutine; `awaited` is what it waits for."""

    __slots__ = ("_awaited", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], awaited: Any) -> None:
        self._work = work
        self._awaited: tuple[Any, ...] = (awaited,)

    def send(self, value: Any) -> Any:
        if self._awaited:
            (awaited,), self._awaited = self._awaited, ()
            return awaited
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        self._awaited = ()
        return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self  # an iterator with `send` and `throw`

    def __iter__(self) -> "_Begun[T]":
        return self

    def __next__(self) -> Any:
        return self.send(None)


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
