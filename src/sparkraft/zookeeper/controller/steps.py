"""Effects of a decision as data: znode requests, and requests to brokers.

    def decide(...) -> Steps[int]:
        results = yield Ask((GetData(path="/a"), GetData(path="/b")))    pipelined
        yield Send(batch.drain())                                        queued, not awaited
        yield Answer(response)                                           to the event's submitter
        return len(results)

`Ask` gives one result or exception for each request, in their order. The driver repeats a request
after a lost connection, so a repeated write may meet its own effect.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
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


Effect = Ask | Send | Answer

T = TypeVar("T")

Steps = Generator[Effect, Any, T]
"""A decision; see the module's docstring."""
