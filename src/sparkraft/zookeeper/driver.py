"""Executes decisions of the controller on a session: effects are sent, results come back.

One decision runs at a time; its reads and writes are pipelined on the session. A request that the
connection lost is sent again until the session ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkraft.zookeeper.controller.steps import Answer, Send, Worked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sparkraft.zookeeper.client import ZooKeeperClient
    from sparkraft.zookeeper.controller.requests import ControlRequest
    from sparkraft.zookeeper.controller.steps import Steps, T


async def execute(
    client: ZooKeeperClient,
    decision: Steps[T],
    send: Callable[[tuple[ControlRequest, ...]], None],
    answer: Callable[[Any], None] = lambda _: None,
    on_worked: Callable[[int], Awaitable[None]] | None = None,
) -> T:
    """Run a decision to its end and return its result.

    Args:
        client: the session.
        decision: not started.
        send: queues requests to brokers; must not block.
        answer: called with the response to the submitter of the event.
        on_worked: awaited after each piece of work with its units, to let other tasks run.

    Raises:
        SessionExpiredError: the session ended; the decision was abandoned.
        ControllerMovedError: another controller was elected.
    """
    results: Any = None
    try:
        while True:
            effect = decision.send(results)
            results = None
            if isinstance(effect, Send):
                send(effect.requests)
            elif isinstance(effect, Answer):
                answer(effect.value)
            elif isinstance(effect, Worked):
                if on_worked is not None:
                    await on_worked(effect.units)
            else:
                results = await client.submit_all(list(effect.requests))
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        decision.close()
