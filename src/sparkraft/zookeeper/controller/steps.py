"""Effects of a decision as data: znode requests, and requests to brokers.

    def decide(...) -> Steps[int]:
        results = yield Ask((GetData(path="/a"), GetData(path="/b")))    pipelined
        yield Send(batch.drain())                                        queued, not awaited
        yield Answer(response)                                           to the event's submitter
        for piece in pieces(partitions):
            ...
            yield Worked(len(piece))                                     others may run in between
        return len(results)

`Ask` gives one result or exception for each request, in their order. The driver repeats a request
after a lost connection, so a repeated write may meet its own effect.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from sparkraft.zookeeper.controller.requests import ControlRequest
    from sparkraft.zookeeper.requests import Request


class ControllerMovedError(Exception):
    """Another node is the controller; this one resigns."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Send requests to ZooKeeper and wait for all replies."""

    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class Send:
    """Append requests to the queues of brokers."""

    requests: tuple[ControlRequest, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer the submitter of the event; a `KafkaError` is raised there."""

    value: Any


@dataclass(frozen=True, slots=True)
class Worked:
    """Work on some partitions, replicas or znodes is done; other tasks may run now.

    No reply is awaited and nothing is sent; the decision continues unchanged.
    """

    units: int


Effect = Ask | Send | Answer | Worked

T = TypeVar("T")

PIECE_MAX = 100
"""Units of a piece: at most 4 ms."""


def pieces(items: Iterable[T]) -> Iterator[list[T]]:
    """Cut items into lists of at most `PIECE_MAX`."""
    left = iter(items)
    while piece := list(islice(left, PIECE_MAX)):
        yield piece


Steps = Generator[Effect, Any, T]
"""A decision; see the module's docstring."""
