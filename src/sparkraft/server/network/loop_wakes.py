"""The time in which the event loop wakes up for a client, which counts for `request_percentage`.

    … piece ─┐ end()     selector, timers, receiving      take() ┌─ piece …
             └───────────── processor time of the thread ────────┘

A client that is held up has a wake or two for each request, which take half as long as the request
itself. Kafka's network threads count what they do for a connection, too.
"""

from collections.abc import Callable

WAKE_S_MAX = 0.000_2
"""The longest wake. Other tasks run between two pieces as well, and count for no client."""


class LoopWakes:
    """Shared by the listeners of a node.

    Args:
        thread_s: returns the processor time of the calling thread in seconds.
    """

    __slots__ = ("_ended", "_thread_s")

    def __init__(self, thread_s: Callable[[], float]) -> None:
        self._thread_s = thread_s
        self._ended: float | None = None

    def end(self) -> None:
        """A piece of a client's work ends."""
        self._ended = self._thread_s()

    def take(self) -> float:
        """A piece of a client's work begins: the seconds of the wake before it."""
        if self._ended is None:
            return 0.0
        return min(self._thread_s() - self._ended, WAKE_S_MAX)
