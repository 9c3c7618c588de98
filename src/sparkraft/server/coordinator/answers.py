"""Answers that are there at once, or as an awaitable where something must become durable first."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

Answer = Any
"""A value, or an awaitable of one."""


def is_later(answer: Answer) -> bool:
    """Whether the value is still to come."""
    return isinstance(answer, Awaitable)


def when(answer: Answer, then: Callable[[Any], Any]) -> Answer:
    """`then` of the value, now where it is there."""
    return _then(answer, then) if is_later(answer) else then(answer)


def when_all(answers: Sequence[Answer], then: Callable[[list[Any]], Any]) -> Answer:
    """`then` of all values in order, now where all are there."""
    if any(is_later(answer) for answer in answers):
        return _then_all(answers, then)
    return then(list(answers))


async def _then(answer: Awaitable[Any], then: Callable[[Any], Any]) -> Any:
    return then(await answer)


async def _then_all(answers: Sequence[Answer], then: Callable[[list[Any]], Any]) -> Any:
    # One after another: what they wait for goes on by itself, and a list keeps their order.
    return then([await answer if is_later(answer) else answer for answer in answers])
